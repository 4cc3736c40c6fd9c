// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"strings"
	"testing"

	"narthex/internal/api"
)

// A second instance on a service that another one polices is refused, by whatever way it would
// come about; what it is told names the other.
func TestSecondInstanceOnAService(t *testing.T) {
	m := newMachine(t, "eth0")
	first := m.config(m.write("first.yaml", onePolicy))
	first.Instance, first.Socket = "first", SocketPath(m.dir, "first")
	one := m.start(first)

	refused := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), `instance "first" polices service "web" (*:80) already`) || !strings.Contains(err.Error(), "`narthex detach --instance first`") {
			t.Errorf("the second was told %v", err)
		}
	}
	second := m.config(m.write("second.yaml", strings.Replace(onePolicy, "*:80", "192.0.2.1:80", 1)))
	refused(Run(t.Context(), second))
	if _, ok := m.kernel.State("test"); ok {
		t.Error("the refused instance left something in force")
	}

	m.write("second.yaml", strings.Replace(onePolicy, `"*:80"`, `"*:81"`, 1))
	two := m.start(second)
	_, err := two.client.Reload(t.Context(), api.ReloadRequest{File: m.write("bad.yaml", onePolicy)})
	refused(err)
	if got := m.kernel.Journal("test")[keyPolicy]; got == "" {
		t.Error("the policy of before is not in force")
	}
	if _, err := two.client.Reload(t.Context(), api.ReloadRequest{File: m.write("shadow.yaml", strings.Replace(onePolicy, "}", ", mode: shadow}", 1))}); err != nil {
		t.Errorf("shadow mode is in nobody's way: %v", err)
	}

	// Without a daemon it is in force as well; what was removed is not.
	if err := one.client.Stop(context.Background(), api.StopRequest{Keep: true}); err != nil {
		t.Fatal(err)
	}
	if err := <-one.ended; err != nil {
		t.Fatal(err)
	}
	_, err = two.client.Reload(t.Context(), api.ReloadRequest{File: m.write("bad.yaml", onePolicy)})
	refused(err)
	if _, err := m.kernel.Remove("first"); err != nil {
		t.Fatal(err)
	}
	if _, err := two.client.Reload(t.Context(), api.ReloadRequest{File: m.write("bad.yaml", onePolicy)}); err != nil {
		t.Errorf("an instance that is no more is in the way: %v", err)
	}
}

func TestWhatMeets(t *testing.T) {
	one := func(listen string, interfaces ...string) claim { return claim{"a", []string{listen}, interfaces} }
	for _, tt := range []struct {
		a, b claim
		want bool
	}{
		{one("*:80"), one("*:80"), true},
		{one("*:80"), one("[2001:db8::1]:80"), true},
		{one("192.0.2.1:80"), one("192.0.2.2:80"), false},
		{one("*:80"), one("*:81"), false},
		{one("*:80", "eth0"), one("*:80", "eth1"), false},
		{one("*:80", "eth0"), one("*:80", "eth1", "eth0"), true},
		{one("*:80", "lo"), one("*:80"), false},
		{one("*:80", "eth0"), one("*:80"), true},
		{one("*:80", "lo"), one("*:80", "lo"), true},
	} {
		if tt.a.meets(&tt.b) != tt.want || tt.b.meets(&tt.a) != tt.want {
			t.Errorf("%v and %v meet: %v", tt.a, tt.b, !tt.want)
		}
	}
}
