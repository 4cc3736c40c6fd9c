// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
)

// PumaConfig says how Puma runs a Ruby application.
type PumaConfig struct {
	Listen  netip.AddrPort
	Workers int    // processes
	Threads int    // of each
	Answer  string // Ruby that runs before each answer
	Backlog int
	CPUs    []int // cores of all its processes; any if empty
}

// StartPuma starts the distribution's Puma and waits until it accepts connections, with all its
// workers. It ends with the namespace, or with Close.
func (n *Namespace) StartPuma(cfg PumaConfig) (*Server, error) {
	return foreign{
		name: "puma", program: "/usr/bin/puma", pkg: "puma", listen: []netip.AddrPort{cfg.Listen}, cpus: cfg.CPUs,
		workers: cfg.Workers,
		args: func(dir string) []string {
			threads := strconv.Itoa(cfg.Threads)
			return []string{"--quiet", "--workers", strconv.Itoa(cfg.Workers), "--threads", threads + ":" + threads,
				"--bind", fmt.Sprintf("tcp://%s?backlog=%d", cfg.Listen, defaultTo(cfg.Backlog, 1024)), filepath.Join(dir, "config.ru")}
		},
		prepare: func(dir string) error {
			app := "run lambda { |env| " + cfg.Answer + "; [200, {'Content-Type' => 'text/plain', 'Content-Length' => '8'}, [\"narthex\\n\"]] }\n"
			return os.WriteFile(filepath.Join(dir, "config.ru"), []byte(app), 0o644)
		},
	}.start(n)
}
