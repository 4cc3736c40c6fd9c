// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// socketLink is a program that hears of sockets, of the whole system.
type socketLink struct {
	pin  string
	link link.Link
}

const (
	pinSockState   = "sockstate"
	pinSockMissed  = "sockmissed"
	pinSockRelease = "sockrelease"
	pinSockops     = "sockops"
)

var socketPins = []string{pinSockState, pinSockMissed, pinSockRelease, pinSockops}

// attachSockets attaches programs that hear of sockets, and pins them in place of what is
// pinned. On error none of these is attached; those that were still are.
func (in *Instance) attachSockets(pins []string) (err error) {
	if len(pins) == 0 {
		return nil
	}
	before := len(in.sockets)
	defer func() {
		if err != nil {
			for _, s := range in.sockets[before:] {
				release(s.link)
			}
			in.sockets = in.sockets[:before]
		}
	}()
	cgroup, _, err := rootCgroup()
	if err != nil {
		return err
	}
	o := in.objects
	attach := map[string]func() (link.Link, error){
		pinSockState: func() (link.Link, error) {
			return link.AttachTracing(link.TracingOptions{Program: o.NarthexSockState})
		},
		pinSockMissed: func() (link.Link, error) {
			return link.AttachTracing(link.TracingOptions{Program: o.NarthexSockMissed})
		},
		pinSockRelease: func() (link.Link, error) {
			return link.AttachTracing(link.TracingOptions{Program: o.NarthexSockRelease})
		},
		pinSockops: func() (link.Link, error) {
			return link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupSockOps, Program: o.NarthexSockops})
		},
	}
	for _, pin := range pins {
		l, err := attach[pin]()
		if err != nil {
			return fmt.Errorf("attaching the program %q, which follows the server's sockets: %w", pin, err)
		}
		in.sockets = append(in.sockets, socketLink{pin, l})
		if _, err := pinLink(l, ebpf.AttachNone, filepath.Join(in.pins.linkDir(), pin)); err != nil {
			return err
		}
	}
	return nil
}

// tracePins are of the programs that hear of each change of each socket of the machine.
var tracePins = []string{pinSockState, pinSockMissed}

// followSockets attaches them if there is a gate that needs them, and else lets them go. The calling thread is in
// the network namespace of the targets.
func (in *Instance) followSockets(s *State) error {
	wanted := in.socketPins(s)
	if err := in.attachSockets(in.unattached(wanted)); err != nil {
		return err
	}
	// Only now does each new socket tell of itself.
	if slices.Contains(wanted, pinSockops) {
		older, err := in.hasOlderSockets()
		if err != nil {
			in.log.Debug("looking for sockets that are older", "error", err)
		}
		if older || err != nil {
			wanted = append(wanted, tracePins...)
		}
	}
	if err := in.attachSockets(in.unattached(wanted)); err != nil {
		return err
	}
	in.sockets = slices.DeleteFunc(in.sockets, func(l socketLink) bool {
		if slices.Contains(wanted, l.pin) {
			return false
		}
		release(l.link)
		return true
	})
	return nil
}

// unattached returns those of the pins that are not attached.
func (in *Instance) unattached(pins []string) []string {
	return slices.DeleteFunc(slices.Clone(pins), func(pin string) bool {
		return slices.ContainsFunc(in.sockets, func(l socketLink) bool { return l.pin == pin })
	})
}

// socketPins returns which of the programs that there are are needed, whatever sockets there are.
func (in *Instance) socketPins(s *State) []string {
	if len(in.gates) == 0 || !slices.ContainsFunc(s.Targets, s.wantsGate) {
		return in.leftPins()
	}
	if in.objects.lacks(FeatureCgroup) != nil {
		return append([]string{pinSockRelease}, tracePins...)
	}
	pins := []string{pinSockRelease, pinSockops}
	if _, whole, err := rootCgroup(); err != nil || !whole {
		return append(pins, tracePins...) // servers outside the folder do not call sockops
	}
	return pins
}

// leftPins returns what is needed where there are no gates any more: sockets that have places of limits give them back
// when they end.
func (in *Instance) leftPins() []string {
	if !in.objects.hasGate() {
		return nil
	}
	held, err := in.holdsPlaces()
	if err != nil {
		in.log.Debug("looking for places that are taken", "error", err)
	}
	if !held && err == nil {
		return nil
	}
	return []string{pinSockRelease}
}

// hasOlderSockets reports whether there are sockets of services' connections whose end nothing but the tracepoints
// tells: those that were established before sockops was attached.
func (in *Instance) hasOlderSockets() (bool, error) {
	l, err := link.AttachIter(link.IterOptions{Program: in.objects.NarthexSockOlder})
	if err != nil {
		return false, err
	}
	defer l.Close()
	sockets, err := l.Open()
	if err != nil {
		return false, err
	}
	defer sockets.Close()
	n, err := sockets.Read(make([]byte, 1))
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n > 0, err
}

// rootCgroup returns where the cgroup2 hierarchy is mounted, wherever that is, and whether all of it is there.
func rootCgroup() (dir string, whole bool, err error) {
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", false, fmt.Errorf("looking for the cgroup2 hierarchy: %w", err)
	}
	defer mounts.Close()
	for lines := bufio.NewScanner(mounts); lines.Scan(); {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if strings.HasPrefix(after, "cgroup2 ") && len(fields) > 4 && isRootCgroup(fields[4]) {
			return fields[4], true, nil
		}
	}
	if dir, err = mountCgroup(); err != nil {
		return "", false, err
	}
	return dir, isRootCgroup(dir), nil
}

// isRootCgroup reports whether a folder is the root of the hierarchy: all others have a type.
// What mountinfo says of a mount's root is relative to the cgroup namespace, which a container
// has of its own.
func isRootCgroup(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "cgroup.procs"))
	_, untyped := os.Stat(filepath.Join(dir, "cgroup.type"))
	return err == nil && errors.Is(untyped, fs.ErrNotExist)
}

// mountCgroup mounts the cgroup2 hierarchy where no one else looks.
func mountCgroup() (string, error) {
	const dir = "/run/narthex/cgroup"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("mounting the cgroup2 hierarchy: %w", err)
	}
	if err := unix.Mount("cgroup2", dir, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return "", fmt.Errorf("no cgroup2 hierarchy is mounted, and mounting it failed: %w; mount it with \"mount -t cgroup2 none DIR\"", err)
	}
	return dir, nil
}

// interfaceName returns the name of an interface of the calling thread's namespace, empty if
// there is none with that index.
func interfaceName(index int) string {
	i, err := net.InterfaceByIndex(index)
	if err != nil {
		return ""
	}
	return i.Name
}
