// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/lab"
	"narthex/test/nettest"
)

const (
	openPolicy = `
version: 1
services: [{name: shop, listen: ["*:80"], concurrency: 16}]
connections: [{name: everyone, rate: 1000/s, burst: 500}]
`
	closedPolicy = `
version: 1
services: [{name: shop, listen: ["*:80"], concurrency: 16}]
connections: [{name: nobody, action: drop}]
`
)

// letIn reports whether a request gets to the server.
func letIn(rig *lab.Lab, path string, within time.Duration) bool {
	_, err := get(rig.Client, netip.AddrPortFrom(rig.ServerV4, 80), path, rig.ClientsV4[0], within)
	return err == nil
}

// shutOut reports whether a connection does not come about: a SYN that is dropped comes again
// after a second.
func shutOut(rig *lab.Lab) bool { return !letIn(rig, "/", 300*time.Millisecond) }

// A policy that shuts everybody out goes by itself, also when its daemon is killed meanwhile.
func TestPolicyIsTakenBack(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	nettest.Nginx(t, rig.Server, netip.AddrPortFrom(rig.ServerV4, 80))
	in := start(t, rig.Server, openPolicy)
	closed := policyFile(t, closedPolicy)
	const path = "connections.everyone.burst"
	must(t, in.command("set", path, "400")...)
	if !letIn(rig, "/", patience) {
		t.Fatal("the server does not answer")
	}

	must(t, in.command("reload", closed, "--confirm", "1h")...)
	if !shutOut(rig) {
		t.Error("the new policy is not in force")
	}
	in.stop(syscall.SIGKILL)
	if !shutOut(rig) {
		t.Error("the new policy is not in force without a daemon")
	}
	in.start()
	if u := in.status().Policy.Unconfirmed; u == nil || !shutOut(rig) {
		t.Errorf("the next daemon does not go on: %+v", u)
	}
	must(t, in.command("confirm", "--revert")...)
	if !letIn(rig, "/", patience) {
		t.Error("it is not taken back")
	}
	if o := in.status().Overrides; len(o) != 1 || o[0] != (api.Override{Path: path, Value: "400"}) {
		t.Errorf("overrides %v", o)
	}

	must(t, in.command("reload", closed, "--confirm", "1s")...)
	eventually(t, "it is taken back by itself", func() bool { return !shutOut(rig) })
	s := in.status()
	if s.Policy.Unconfirmed != nil || s.Policy.Change == nil || s.Policy.Change.What != "revert" || len(s.Overrides) != 1 {
		t.Errorf("status %+v, overrides %v", s.Policy, s.Overrides)
	}

	must(t, in.command("reload", closed, "--confirm", "1h")...)
	must(t, in.command("confirm")...)
	if in.status().Policy.Unconfirmed != nil || !shutOut(rig) {
		t.Error("what is confirmed does not stay")
	}
}

// A trial says what another policy would do with real requests, and changes nothing.
func TestPolicyIsTriedOut(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	nettest.Nginx(t, rig.Server, netip.AddrPortFrom(rig.ServerV4, 80))
	in := start(t, rig.Server, openPolicy)
	report := func() (r api.ShadowReport) {
		t.Helper()
		nettest.Check(t, json.Unmarshal([]byte(must(t, in.command("shadow", "--json")...)), &r))
		return r
	}
	send := func(n int, path string) {
		t.Helper()
		for range n {
			if !letIn(rig, path, patience) {
				t.Fatalf("%s does not reach the server", path)
			}
		}
	}

	must(t, in.command("reload", "--shadow")...)
	send(3, "/")
	eventually(t, "all is seen", func() bool { return report().Requests == 3 })
	if r := report(); r.SYNs != 3 || r.Different != 0 || r.Same != 6 || r.Agreement != 1 || r.Missed != 0 {
		t.Errorf("the same policy: %+v", r)
	}

	strict := policyFile(t, strings.Replace(openPolicy, "1000/s, burst: 500", "1/m, burst: 4", 1)+
		"requests: [{name: secret, path: \"/8k*\", action: reject}]\n")
	must(t, in.command("reload", "--shadow", strict)...)
	send(2, "/")
	send(2, "/8k.html")
	send(1, "/")
	eventually(t, "all is seen", func() bool { return report().Requests == 5 })
	r := report()
	found := map[string]uint64{}
	for _, p := range r.Pairs {
		found[p.Of+" "+string(p.Live.Verdict)+" -> "+string(p.Candidate.Verdict)+" "+p.Candidate.Rule] = p.Count
	}
	if len(found) != 3 || found["SYN pass -> drop everyone"] != 1 || found["request pass -> reject secret"] != 2 || found["request pass -> not reached "] != 1 {
		t.Errorf("found %v", found)
	}
	if r.Agreement != 1 {
		t.Errorf("the kernel has done otherwise: %+v", r)
	}
	if text := must(t, in.command("shadow", "--end")...); !strings.Contains(text, "GET /8k.html HTTP/1.1") {
		t.Errorf("report without an example:\n%s", text)
	}
	if s := in.status(); s.Trial != nil || s.Rules[0].Dropped != 0 {
		t.Errorf("status %+v, %+v", s.Trial, s.Rules)
	}
	send(1, "/8k.html")
}
