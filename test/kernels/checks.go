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
	cgo  bool   // has C that Go calls, and is compiled for this machine's architecture alone
	// limit bounds it. Everything there is slow, and several machines may share two cores.
	limit time.Duration
}

// name is what files of the suite are called.
func (s suite) name() string { return strings.ReplaceAll(s.pkg, "/", "-") }

var suites = []suite{
	{pkg: "internal/datapath", limit: 5 * time.Minute},
	{pkg: "test/client", cgo: true, limit: 5 * time.Minute},
	{pkg: "test/http", cgo: true, limit: 5 * time.Minute},
	{pkg: "test/parser", cgo: true, limit: 5 * time.Minute},
	{pkg: "test/rules", cgo: true, limit: 10 * time.Minute},
	{pkg: "test/tls", cgo: true, limit: 5 * time.Minute},
	{pkg: "test/packet", limit: 40 * time.Minute},
	// One test after the other: they wait less there than they compute.
	{pkg: "test/e2e", args: "-narthex %s/narthex -test.parallel 1", limit: 40 * time.Minute},
	{pkg: "test/devices", tags: "vm", args: "-narthex %s/narthex -test.parallel 1", limit: 40 * time.Minute},
}

// check is a line of the matrix: tests of one suite. A test is the regular expression of what
// follows Test in its name; parts of tests follow behind slashes, as in go test -run.
type check struct {
	name  string
	pkg   string
	tests []string
	quick []string // those that CI runs, where it does not run all
	slow  bool     // CI runs none
}

// fromKernel are tests of programs in the kernel. The rest of their packages tests the same
// source compiled natively, and what the verifier says of the programs is checked by itself.
var fromKernel = []string{`.*Kernel.*`}

var everything = []string{`.*`}

var checks = []check{
	{name: "loader", pkg: "internal/datapath", tests: everything, slow: true},
	{name: "clients in the kernel", pkg: "test/client", tests: fromKernel},
	{name: "HTTP in the kernel", pkg: "test/http", tests: fromKernel},
	{name: "what the stack takes", pkg: "test/parser", tests: []string{"Stack"}},
	{name: "rules in the kernel", pkg: "test/rules", tests: fromKernel},
	{name: "TLS in the kernel", pkg: "test/tls", tests: fromKernel},
	{name: "packet tests", pkg: "test/packet", tests: everything, quick: []string{
		"Decisions", "Pieces", "Burst", "GateFirstRequest", "GateRejects", "GateOrder", "GateNextRequest", "GateChunks", "GateStripsSYNs",
	}},

	{name: "SYN policing", pkg: "test/e2e", tests: []string{"Traffic", "JumboFrames", "DecidedOnce", "InterfacesComeAndGo"},
		quick: []string{"Traffic/plain/offloads=true"}},
	{name: "hold and order", pkg: "test/e2e", tests: []string{"RoomServes", "RoomOrder", "RoomKeepAlive", "RoomReserve"},
		quick: []string{"RoomServes/nginx/plain/IPv4", "RoomOrder/plain/v6=false"}},
	{name: "request rules", pkg: "test/e2e", tests: []string{"Rules", "RulesSegments", "RulesForwarded", "RulesProxyHeader"},
		quick: []string{"RulesForwarded/v6=false"}},
	{name: "rejection", pkg: "test/e2e", tests: []string{"RoomQueueFull", "RoomRejectsAsToldTo", "RoomMaxWait", "RoomServerRestarts"},
		quick: []string{"RoomQueueFull", "RoomRejectsAsToldTo"}},
	{name: "learned identity", pkg: "test/e2e", tests: []string{"RulesLearn", "RulesBlock", "Labels", "LabelsOfSockets", "LabelsBehindProxies"}, quick: []string{"RulesLearn"}},
	{name: "tls", pkg: "test/e2e", tests: []string{"RoomTLS", "RoomTLSHellos", "RoomTLSServers", "RoomTLSRejects", "RulesTLS"},
		quick: []string{"RoomTLS/plain/v6=false", "RoomTLSRejects/full"}},
	{name: "tcp", pkg: "test/e2e", tests: []string{"RoomTCP", "RoomTCPServerSpeaksFirst", "RoomTCPRejects"},
		quick: []string{"RoomTCP/speaks_second/plain/v6=true", "RoomTCPRejects/speaks_first"}},
	{name: "adoption after kill -9", pkg: "test/e2e", tests: []string{"RoomOutlivesTheDaemon", "KilledDaemonIsAdopted"},
		quick: []string{"RoomOutlivesTheDaemon/adopted=true"}},
	{name: "upgrade and reload", pkg: "test/e2e", tests: []string{"OtherLayoutIsReplaced", "ReloadUnderLoad", "RoomReload"},
		quick: []string{"OtherLayoutIsReplaced", "RoomReload"}},
	{name: "detach leaves nothing", pkg: "test/e2e", tests: []string{"StopDetaches", "KeepAndDetach", "RoomStop"},
		quick: []string{"KeepAndDetach"}},
	{name: "filters in place of tcx", pkg: "test/e2e", tests: []string{"Filters", "FiltersBesideOthers", "FiltersDetached"},
		quick: []string{"Filters"}},
	{name: "without what may be missing", pkg: "test/e2e", tests: []string{"WithoutFeatures"},
		quick: []string{"WithoutFeatures/casts,memory-keys", "WithoutFeatures/gate"}},
	{name: "network devices", pkg: "test/devices", tests: []string{"Devices", "VRF", "IPVlanL3S"}, slow: true},
	{name: "lines that damage packets", pkg: "test/devices", tests: []string{"Lines"}, slow: true},
	{name: "firewall rules", pkg: "test/devices", tests: []string{"Firewalls", "Dropped.*", "Redirected"}, slow: true},
}

// wants returns the tests that a check takes.
func (c check) wants(quick bool) []string {
	switch {
	case quick && c.slow:
		return nil
	case quick && c.quick != nil:
		return c.quick
	}
	return c.tests
}

// pattern is what go test -run wants for tests.
func pattern(tests []string) string {
	var all []string
	for _, test := range tests {
		var parts []string
		for part := range strings.SplitSeq("Test"+test, "/") {
			parts = append(parts, "^"+part+"$")
		}
		all = append(all, strings.Join(parts, "/"))
	}
	return strings.Join(all, "|")
}

// taken returns which of a suite's tests are taken.
func taken(tests, suite []string) (names []string) {
	for _, name := range suite {
		for _, test := range tests {
			whole, _, _ := strings.Cut(test, "/")
			if regexp.MustCompile("^Test" + whole + "$").MatchString(name) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}
