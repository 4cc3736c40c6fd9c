// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"narthex/internal/lab"
)

// ListenDrops is how many SYNs and connections the namespace's listeners had no room for.
func ListenDrops(ns *lab.Namespace) (sum uint64, err error) {
	err = ns.Do(func() error {
		// Not /proc/net, which is the main thread's.
		text, err := os.ReadFile("/proc/thread-self/net/netstat")
		if err != nil {
			return err
		}
		for _, name := range []string{"ListenOverflows", "ListenDrops", "TCPReqQFullDrop", "TCPReqQFullDoCookies"} {
			v, err := tcpExt(string(text), name)
			if err != nil {
				return err
			}
			sum += v
		}
		return nil
	})
	return sum, err
}

// tcpExt finds a counter in the text of /proc/net/netstat, where a line of names precedes
// one of values.
func tcpExt(text, name string) (uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "TcpExt:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i := 1; i < min(len(names), len(fields)); i++ {
			if names[i] == name {
				return strconv.ParseUint(fields[i], 10, 64)
			}
		}
	}
	return 0, fmt.Errorf("netstat: no counter %q", name)
}
