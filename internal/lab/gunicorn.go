// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
)

// GunicornConfig says how gunicorn runs a Python application.
type GunicornConfig struct {
	Listen  []netip.AddrPort
	Workers int    // processes
	Threads int    // of each; 0: one request at a time, and no connection is used again
	App     string // text of the module; its function app answers
	Backlog int
	CPUs    []int // cores of all its processes; any if empty
}

// StartGunicorn starts the distribution's gunicorn and waits until it accepts connections, with all
// its workers. It ends with the namespace, or with Close.
func (n *Namespace) StartGunicorn(cfg GunicornConfig) (*Server, error) {
	return foreign{
		name: "gunicorn", program: "/usr/bin/gunicorn", pkg: "gunicorn", listen: cfg.Listen, cpus: cfg.CPUs,
		workers: cfg.Workers,
		args: func(dir string) []string {
			args := []string{"--chdir", dir, "--worker-tmp-dir", dir}
			args = append(args, "--workers", strconv.Itoa(cfg.Workers), "--backlog", strconv.Itoa(defaultTo(cfg.Backlog, 2048)), "--log-level", "error")
			if cfg.Threads > 0 {
				args = append(args, "--worker-class", "gthread", "--threads", strconv.Itoa(cfg.Threads))
			}
			for _, addr := range cfg.Listen {
				args = append(args, "--bind", addr.String())
			}
			return append(args, "site_app:app")
		},
		prepare: func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "site_app.py"), []byte(cfg.App), 0o644)
		},
	}.start(n)
}
