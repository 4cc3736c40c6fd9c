// SPDX-License-Identifier: Apache-2.0

package starter

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"narthex/internal/netif"
)

// procRoot is where the kernel shows processes.
const procRoot = "/proc"

// process is one that holds a socket.
type process struct {
	pid, parent int
	name        string
}

// owners finds who holds each of the sockets, by inode. Processes that this one may not look
// into hold nothing that it can see.
func owners(proc string, sockets []netif.Listening) map[uint32]process {
	wanted := make(map[string]uint32, len(sockets))
	for _, s := range sockets {
		if s.Inode != 0 {
			wanted[fmt.Sprintf("socket:[%d]", s.Inode)] = s.Inode
		}
	}
	holders := map[uint32][]process{}
	entries, _ := os.ReadDir(proc) // without it nobody is known
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		held := holds(filepath.Join(proc, e.Name(), "fd"), wanted)
		if len(held) == 0 {
			continue
		}
		p, err := readProcess(filepath.Join(proc, e.Name()), pid)
		if err != nil {
			continue // it has just ended
		}
		for inode := range held {
			holders[inode] = append(holders[inode], p)
		}
	}
	owners := make(map[uint32]process, len(holders))
	for inode, all := range holders {
		owners[inode] = eldest(all)
	}
	return owners
}

// holds returns which of the wanted sockets are among the open files in a folder.
func holds(dir string, wanted map[string]uint32) map[uint32]bool {
	held := map[uint32]bool{}
	files, _ := os.ReadDir(dir)
	for _, f := range files {
		link, err := os.Readlink(filepath.Join(dir, f.Name()))
		if err != nil {
			continue
		}
		if inode, ok := wanted[link]; ok {
			held[inode] = true
		}
	}
	return held
}

// eldest returns the process that the others got the socket from: it is the one whose parent
// does not hold it. Who starts services by their sockets (systemd) is not asked for if there
// is another.
func eldest(all []process) process {
	holds := map[int]bool{}
	for _, p := range all {
		holds[p.pid] = p.pid != 1
	}
	best := all[0]
	for _, p := range all {
		better := best.pid == 1 || holds[best.parent] && !holds[p.parent]
		if p.pid != 1 && better {
			best = p
		}
	}
	return best
}

// readProcess reads /proc/PID/stat: "PID (NAME) STATE PARENT …", where the name may hold
// anything. Where the name is that of a thread, the program's file tells more.
func readProcess(dir string, pid int) (process, error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return process{}, err
	}
	text := string(stat)
	from, to := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if from < 0 || to < from {
		return process{}, fmt.Errorf("read process %d: %q is not what the kernel writes", pid, text)
	}
	p := process{pid: pid, name: text[from+1 : to]}
	if fields := strings.Fields(text[to+1:]); len(fields) > 1 {
		p.parent, _ = strconv.Atoi(fields[1])
	}
	if file, err := os.Readlink(filepath.Join(dir, "exe")); err == nil && !known(p.name) {
		if base := filepath.Base(strings.TrimSuffix(file, " (deleted)")); known(base) {
			p.name = base
		}
	}
	return p, nil
}
