// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/experiments/internal/thrash"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
)

// server is one whose limit is to be found.
type server struct {
	name, what string
	path       string // what clients ask for; "/" if empty
	clients    int    // besides gold ones: more than the server needs, and than any limit of the sweep
	top        int    // highest limit of the sweep
	// How many times a quarter of a second clients take until all are there; at once if 0. A server
	// that thrashes does not recover within any client's patience from all of them at once, whatever
	// the limit is afterwards.
	batches int
	start   func(*stage) (*lab.Server, error)
	ends    string // service_ends; auto if empty
}

// settle is what the server gets until it is measured, once all clients are there.
func (s server) settle() time.Duration {
	if s.batches > 0 {
		return 2 * settle()
	}
	return settle()
}

// crowded is how many clients there are before most servers.
const crowded = 320

var servers = []server{
	{name: "go", what: "Go, 2 ms of work", clients: crowded, top: 256, start: func(st *stage) (*lab.Server, error) {
		return st.origin(origin.Config{Work: 2 * time.Millisecond})
	}},
	{name: "cgi", what: "Apache prefork, CGI", path: lab.CGIPath, clients: crowded, top: 256, start: func(st *stage) (*lab.Server, error) {
		return st.apache(300, shellScript)
	}},
	{name: "nginx", what: "nginx, 8 KB", path: lab.NginxFile, clients: crowded, top: 256, start: func(st *stage) (*lab.Server, error) {
		return st.Nginx(st.rig)
	}},
	{name: "sleep", what: "Go, 50 ms of waiting and 1 ms of work", clients: crowded, top: 256, start: func(st *stage) (*lab.Server, error) {
		return st.origin(origin.Config{Work: time.Millisecond, Sleep: 50 * time.Millisecond})
	}},
	{name: "thrash", what: "Apache prefork, CGI that needs memory", path: lab.CGIPath, clients: thrash.Workers + 20, top: 128, batches: 16, start: (*stage).thrash},
	{name: "python", what: "Python, 8 KB (not used in tuning)", clients: crowded, top: 256, start: func(st *stage) (*lab.Server, error) {
		return st.rig.Server.StartPython(lab.PythonConfig{Listen: []netip.AddrPort{bench.Web(st.rig)}, Backlog: backlog, CPUs: st.ServerCPUs})
	}},
}

// serverNamed finds one.
func serverNamed(name string) server {
	for _, s := range servers {
		if s.name == name {
			return s
		}
	}
	panic("no server " + name)
}

// control is where the Go programs are told to be slower, past the waiting room.
func (st *stage) control() netip.AddrPort { return netip.AddrPortFrom(st.rig.ServerV4, 81) }

// origin starts a Go program.
func (st *stage) origin(cfg origin.Config) (*lab.Server, error) {
	cfg.Listen, cfg.Control = []netip.AddrPort{bench.Web(st.rig)}, []netip.AddrPort{st.control()}
	cfg.CPUs, cfg.Backlog = st.ServerCPUs, backlog
	return origin.Start(st.rig.Server, cfg)
}

// shellScript is a script as small as they come: the cost is that of the process.
const shellScript = `#!/bin/sh
printf 'Content-Type: text/plain\r\nContent-Length: 8\r\n\r\nnarthex\n'
`

// apache starts Apache with a process for each connection.
func (st *stage) apache(workers int, script string) (*lab.Server, error) {
	return st.rig.Server.StartApache(lab.ApacheConfig{
		Listen: []netip.AddrPort{bench.Web(st.rig)}, MPM: lab.Prefork, Workers: workers, Backlog: backlog,
		CGI: script, CPUs: st.ServerCPUs,
	})
}
