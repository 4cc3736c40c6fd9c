// SPDX-License-Identifier: Apache-2.0

package lab

import (
	_ "embed"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"
)

// PythonConfig says how Python's own web server runs, with a thread per connection.
type PythonConfig struct {
	Listen      []netip.AddrPort
	HTTP11      bool          // speak HTTP/1.1 and keep connections alive; else HTTP/1.0, as python3 -m http.server does
	Backlog     int           // of each listener; 128 if 0
	IdleTimeout time.Duration // after which a silent connection is closed; never if 0
	CPUs        []int         // cores that it runs on; any if empty
}

//go:embed server.py
var pythonServer string

// StartPython starts the distribution's Python with its own web server and waits until
// that accepts connections. It ends with the namespace, or with Close.
func (n *Namespace) StartPython(cfg PythonConfig) (*Server, error) {
	protocol := "HTTP/1.0"
	if cfg.HTTP11 {
		protocol = "HTTP/1.1"
	}
	return foreign{
		name: "python", program: "/usr/bin/python3", pkg: "python3", listen: cfg.Listen, cpus: cfg.CPUs,
		args: func(dir string) []string {
			args := []string{"-I", "-c", pythonServer, filepath.Join(dir, "html"), protocol,
				strconv.Itoa(defaultTo(cfg.Backlog, 128)), strconv.FormatFloat(cfg.IdleTimeout.Seconds(), 'f', -1, 64)}
			for _, addr := range cfg.Listen {
				args = append(args, addr.Addr().String(), strconv.Itoa(int(addr.Port())))
			}
			return args
		},
		prepare: func(dir string) error { return writeFile(dir, File, "index.html") },
	}.start(n)
}
