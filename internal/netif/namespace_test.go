// SPDX-License-Identifier: Apache-2.0

package netif_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"narthex/internal/netif"
	"narthex/test/nettest"
)

// openNamespace opens a namespace for the test.
func openNamespace(t *testing.T, name string) *netif.Namespace {
	t.Helper()
	n, err := netif.OpenNamespace(name)
	nettest.Check(t, err)
	t.Cleanup(func() { n.Close() })
	return n
}

func TestNamespaceIsGone(t *testing.T) {
	named := nettest.Namespace(t, "gone")
	server := named.Command("sleep", "infinity")
	nettest.Check(t, server.Start())
	byName := openNamespace(t, named.Name())
	byProcess := openNamespace(t, fmt.Sprintf("/proc/%d/ns/net", server.Process.Pid))
	if byName.Gone() || byProcess.Gone() {
		t.Error("a namespace is gone from the beginning")
	}
	nettest.Check(t, server.Process.Kill())
	_ = server.Wait()
	if byName.Gone() || !byProcess.Gone() {
		t.Errorf("after the process: gone by its name %v, by the process %v", byName.Gone(), byProcess.Gone())
	}
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	ip("netns", "delete", named.Name())
	if !byName.Gone() {
		t.Error("it is not gone without its name")
	}
	ip("netns", "add", named.Name())
	if !byName.Gone() {
		t.Error("it is not gone when another one has its name")
	}
	if _, err := byName.Cookie(); err != nil {
		t.Errorf("what is open cannot be used any more: %v", err)
	}
}

func TestClosedNamespace(t *testing.T) {
	n, err := netif.OpenNamespace(nettest.Namespace(t, "closed").Name())
	nettest.Check(t, err)
	nettest.Check(t, n.Close())
	if err := n.Do(func() error { return nil }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v", err)
	}
}
