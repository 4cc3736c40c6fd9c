// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/test/nettest"
)

const dropAll = `
version: 1
services: [{name: shop, listen: ["*:80"]}]
connections: [{name: all, action: drop}]
`

// ip runs ip(8) in a namespace.
func ip(t *testing.T, ns *lab.Namespace, args ...string) {
	t.Helper()
	if out, err := ns.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Macvlan devices on one device send to each other within it: what a sibling sends never
// passes the device below.
func TestMacvlanSiblings(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	guest := nettest.Namespace(t, "guest")
	for _, name := range []string{"mac0", "mac1"} {
		nettest.Check(t, rig.Server.AddMacvlan(name, lab.Dev))
	}
	ip(t, rig.Server, "link", "set", "mac1", "netns", guest.Name())
	nettest.Check(t, rig.Server.AddAddr("mac0", netip.MustParsePrefix("10.78.0.1/24")))
	nettest.Check(t, guest.SetUp("mac1"))
	nettest.Check(t, guest.AddAddr("mac1", netip.MustParsePrefix("10.78.0.2/24")))
	to := netip.MustParseAddrPort("10.78.0.1:80")
	nettest.Nginx(t, rig.Server, to)
	if _, err := get(guest, to, "/", netip.Addr{}, patience); err != nil {
		t.Fatalf("without Narthex: %v", err)
	}
	in := start(t, rig.Server, dropAll)
	if _, err := get(guest, to, "/", netip.Addr{}, 200*time.Millisecond); err == nil {
		t.Error("the sibling went by")
	}
	in.counted("all", datapath.Counts{Dropped: 1})
}

// An interface keeps index and link when it moves to another namespace. A new one that
// gets its index must not be taken for it.
func TestIndexOfAnInterfaceThatMoved(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		t.Run(fmt.Sprintf("running=%v", running), func(t *testing.T) {
			rig := nettest.Lab(t, 1)
			elsewhere := nettest.Namespace(t, "elsewhere")
			dev, err := rig.Server.Link(lab.Dev)
			nettest.Check(t, err)
			index := fmt.Sprint(dev.Attrs().Index)
			in := start(t, rig.Server, dropAll)
			if !running {
				in.stop(syscall.SIGKILL)
			}
			ip(t, rig.Server, "link", "set", lab.Dev, "netns", elsewhere.Name())
			ip(t, rig.Server, "link", "add", "eth9", "index", index, "type", "veth", "peer", "name", "eth9", "netns", rig.Client.Name())
			for _, end := range []struct {
				ns   *lab.Namespace
				addr string
			}{{rig.Server, "10.79.0.1/24"}, {rig.Client, "10.79.0.2/24"}} {
				nettest.Check(t, end.ns.AddAddr("eth9", netip.MustParsePrefix(end.addr)))
				nettest.Check(t, end.ns.SetUp("eth9"))
			}
			to := netip.MustParseAddrPort("10.79.0.1:80")
			nettest.Nginx(t, rig.Server, to)
			if !running {
				in.start()
			}
			eventually(t, "the new interface is policed", func() bool {
				_, err := get(rig.Client, to, "/", netip.Addr{}, 100*time.Millisecond)
				return err != nil && in.rule("all").Dropped > 0
			})
			if got := in.modes(); len(got) != 1 || got["eth9"] == "" {
				t.Errorf("attached to %v", got)
			}
		})
	}
}
