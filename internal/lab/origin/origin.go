// SPDX-License-Identifier: Apache-2.0

// Package origin is an HTTP server for experiments and tests. It burns a known amount of
// CPU per request, so that the server can be made the bottleneck, or waits where a test
// tells it to. It runs as a process of its own; see package reexec.
//
// Any path is answered with a body of fixed length, except these:
//
//	/wait?ms=N      answers after so many milliseconds
//	/wait?for=NAME  answers once somebody has asked for /go?for=NAME, after a minute with 504
//	/go?for=NAME    lets the requests that wait for the name, and all later ones, be answered
//	/stream?for=NAME  answers with one body at once, and with another once somebody has asked for /go?for=NAME
//	/echo           answers with the body of the request, with a length as the request had
//	/early          answers without waiting for the body of the request, which it reads then
//	/early?for=NAME the same, once somebody has asked for /go?for=NAME
//	/upgrade        switches to the protocol that the request asks for, and echoes in it
//	/slower?work=N&sleep=M  has each later request work N times and sleep M times as long as configured; 1 if left out
//	/socket         answers with SO_PRIORITY and SO_MARK of the connection, as Socket
//	/asked          answers with the requests that have come, in order, as []Request
//	/most           answers with how many requests it has worked on at once at most, without these
//	/forget         empties that record
//
// CONNECT makes a tunnel in which it echoes, but to a host called "refused".
package origin

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/reexec"
)

// Config says how the server runs.
type Config struct {
	Listen  []netip.AddrPort
	Control []netip.AddrPort // more addresses, for /go and /asked past whatever is in front of the others
	Work    time.Duration    // CPU time that each request burns, on an undisturbed core
	Sleep   time.Duration    // time that each request takes without work
	Rubbish int              // objects that each request makes, of which a million stay: the collector has work
	Workers int              // connections that it serves at once; unlimited if 0
	Backlog int              // of each listener; the system's maximum if 0
	Body    int              // bytes in a response's body; lab.FileBytes if 0
	CPUs    []int            // cores that it runs on; any if empty

	NoKeepAlive bool          // close every connection after its answer
	IdleTimeout time.Duration // after which an idle connection is closed; never if 0
	NoMPTCP     bool          // plain TCP listeners; Go's default is MPTCP
	DeferAccept time.Duration // of connections that say nothing (TCP_DEFER_ACCEPT), in seconds; 0: not

	TLS bool // over TLS, with HTTP/2 for those who want it, but for Control
	H2C bool // HTTP/2 without TLS, too, to those who begin with it
	// Lines that are said back, in place of HTTP on Listen: "wait NAME" once somebody has asked
	// for /go?for=NAME, "hush TEXT" not at all, "bye" before the end of the connection. The end
	// of the client's half is answered with "(end)". Lines are in /asked, and "(connected)".
	Lines  bool
	Banner string // of Lines: said first; nothing if empty
}

// Request is a request that has come to the server.
type Request struct {
	From   netip.AddrPort
	Method string
	URI    string
}

// Socket is what the server sees of a connection.
type Socket struct {
	Priority int // SO_PRIORITY
	Mark     int // SO_MARK
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
func Start(n *lab.Namespace, cfg Config) (*lab.Server, error) {
	if len(cfg.Listen) == 0 {
		return nil, errors.New("start origin server: no address to listen on")
	}
	if cfg.Body == 0 {
		cfg.Body = lab.FileBytes
	}
	program, env, err := reexec.Command(helper, cfg)
	if err != nil {
		return nil, err
	}
	cmd := n.Command(program)
	cmd.Env, cmd.CPUs = env, cfg.CPUs
	s, err := n.Serve(cmd, slices.Concat(cfg.Listen, cfg.Control)...)
	if err != nil {
		return nil, fmt.Errorf("start origin server: %w", err)
	}
	return s, nil
}
