// SPDX-License-Identifier: Apache-2.0

// Package origin is an HTTP server that burns a known amount of CPU per request, for
// experiments in which the server must be the bottleneck. It runs as a process of its
// own; see package reexec.
package origin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"narthex/internal/testnet"
	"narthex/internal/testnet/reexec"
)

// Config says how the server runs.
type Config struct {
	Listen  []netip.AddrPort
	Work    time.Duration // CPU time that each request burns, on an undisturbed core
	Workers int           // connections that it serves at once; unlimited if 0
	Backlog int           // of each listener; the system's maximum if 0
	Body    int           // bytes in a response's body; testnet.FileBytes if 0
	CPUs    []int         // cores that it runs on; any if empty
}

const helper = "origin"

func init() {
	reexec.Register(helper, func(config []byte) error {
		var cfg Config
		if err := json.Unmarshal(config, &cfg); err != nil {
			return fmt.Errorf("read configuration: %w", err)
		}
		return serve(cfg)
	})
}

// Start starts the server in a namespace and waits until it accepts connections. It
// ends with the namespace, or with Close. The program must call reexec.Main first.
func Start(n *testnet.Namespace, cfg Config) (*testnet.Server, error) {
	if len(cfg.Listen) == 0 {
		return nil, errors.New("start origin server: no address to listen on")
	}
	if cfg.Body == 0 {
		cfg.Body = testnet.FileBytes
	}
	program, env, err := reexec.Command(helper, cfg)
	if err != nil {
		return nil, err
	}
	cmd := n.Command(program)
	cmd.Env, cmd.CPUs = env, cfg.CPUs
	s, err := n.Serve(cmd, cfg.Listen...)
	if err != nil {
		return nil, fmt.Errorf("start origin server: %w", err)
	}
	return s, nil
}
