// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
	"time"
)

// suite is a package of tests, run inside the machine.
type suite struct {
	pkg  string // from the project's folder
	tags string // of the build
	args string // beside those of every suite; %s is the folder of what was compiled
	// limit bounds it. Everything there is slow, and several machines may share two cores.
	limit time.Duration
}

// name is what files of the suite are called.
func (s suite) name() string { return strings.ReplaceAll(s.pkg, "/", "-") }

var suites = []suite{
	{pkg: "internal/datapath", limit: 5 * time.Minute},
	{pkg: "test/client", limit: 5 * time.Minute},
	{pkg: "test/http", limit: 5 * time.Minute},
	{pkg: "test/parser", limit: 5 * time.Minute},
	{pkg: "test/rules", limit: 10 * time.Minute},
	{pkg: "test/tls", limit: 5 * time.Minute},
	{pkg: "test/packet", limit: 15 * time.Minute},
	{pkg: "test/e2e", args: "-narthex %s/narthex", limit: 30 * time.Minute},
}

// check is a line of the matrix: tests of one suite.
type check struct {
	name  string
	pkg   string
	tests string // those that it takes, as a regular expression of what follows Test
	quick string // those that CI takes; the same if empty
	slow  bool   // CI takes none
}

// fromKernel are tests of programs in the kernel. The rest of their packages tests the same
// source compiled natively, and what the verifier says of the programs is checked by themselves.
const fromKernel = `Kernel.*`

var checks = []check{
	{name: "loader", pkg: "internal/datapath", tests: `.*`, slow: true},
	{name: "clients in the kernel", pkg: "test/client", tests: fromKernel},
	{name: "HTTP in the kernel", pkg: "test/http", tests: fromKernel},
	{name: "packets in the kernel", pkg: "test/parser", tests: fromKernel},
	{name: "rules in the kernel", pkg: "test/rules", tests: fromKernel},
	{name: "TLS in the kernel", pkg: "test/tls", tests: fromKernel},
	{name: "packet tests", pkg: "test/packet", tests: `.*`, quick: `Decisions|Pieces|Burst|Gate(FirstRequest|Appends|Rejects|Order|NextRequest|Chunks|TLS|TCP|StripsSYNs)`},

	{name: "SYN policing", pkg: "test/e2e", tests: `Traffic|JumboFrames|DecidedOnce|InterfacesComeAndGo`, quick: `DecidedOnce|JumboFrames`},
	{name: "hold and order", pkg: "test/e2e", tests: `Room(Serves|Order|KeepAlive|HeadGathers|Reserve|UnderLoad)`, quick: `RoomOrder`},
	{name: "request rules", pkg: "test/e2e", tests: `Rules(|Segments|Evasions|Forwarded|ProxyHeader)`, quick: `RulesForwarded`},
	{name: "rejection", pkg: "test/e2e", tests: `Room(QueueFull|RejectsAsToldTo|RejectionOnTheWire|MaxWait|ServerRestarts)`, quick: `Room(QueueFull|RejectsAsToldTo)`},
	{name: "learned identity", pkg: "test/e2e", tests: `Rules(Learn|Block)`, quick: `RulesLearn`},
	{name: "tls", pkg: "test/e2e", tests: `RoomTLS(|Hellos|Gathers|Servers|Rejects)|RulesTLS`, quick: `RoomTLSRejects`},
	{name: "tcp", pkg: "test/e2e", tests: `RoomTCP(|ServerSpeaksFirst|Idle|Rejects|Cookies)`, quick: `RoomTCPRejects`},
	{name: "adoption after kill -9", pkg: "test/e2e", tests: `KilledDaemonIsAdopted|RoomOutlivesTheDaemon|NoGapWhileDaemonsComeAndGo`, quick: `RoomOutlivesTheDaemon`},
	{name: "upgrade and reload", pkg: "test/e2e", tests: `OtherLayoutIsReplaced|ReloadUnderLoad|RoomReload`, quick: `OtherLayoutIsReplaced`},
	{name: "detach leaves nothing", pkg: "test/e2e", tests: `StopDetaches|KeepAndDetach|RoomStop`, quick: `KeepAndDetach`},
}

// wants is the regular expression of the tests that a check takes, empty if there are none.
func (c check) wants(quick bool) string {
	if quick && c.slow {
		return ""
	}
	if quick && c.quick != "" {
		return `^Test(` + c.quick + `)$`
	}
	return `^Test(` + c.tests + `)$`
}

// takes returns the tests of a suite that a check takes.
func (c check) takes(quick bool, tests []string) (taken []string) {
	if c.wants(quick) == "" {
		return nil
	}
	wanted := regexp.MustCompile(c.wants(quick))
	for _, t := range tests {
		if wanted.MatchString(t) {
			taken = append(taken, t)
		}
	}
	return taken
}
