// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
)

// NodeConfig says how Node runs a server of one thread.
type NodeConfig struct {
	Listen  netip.AddrPort
	Answer  string // JavaScript: the body of async (request, response) => { ... }
	Head    string // JavaScript before it
	Backlog int
	CPUs    []int // cores that it runs on; any if empty
}

// StartNode starts Node and waits until it accepts connections. It ends with the namespace, or with
// Close.
func (n *Namespace) StartNode(cfg NodeConfig) (*Server, error) {
	return foreign{
		name: "node", program: "node", pkg: "nodejs", listen: []netip.AddrPort{cfg.Listen}, cpus: cfg.CPUs,
		args: func(dir string) []string { return []string{filepath.Join(dir, "server.js")} },
		prepare: func(dir string) error {
			text := cfg.Head + "\nrequire('http').createServer({keepAliveTimeout: 60000}, async (request, response) => {" + cfg.Answer + "\n}).listen({host: '" +
				cfg.Listen.Addr().String() + "', port: " + strconv.Itoa(int(cfg.Listen.Port())) + ", backlog: " + strconv.Itoa(defaultTo(cfg.Backlog, 511)) + "})\n"
			return os.WriteFile(filepath.Join(dir, "server.js"), []byte(text), 0o644)
		},
	}.start(n)
}
