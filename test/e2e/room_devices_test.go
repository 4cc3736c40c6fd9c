// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// visitFrom connects from a namespace to an address with a zone.
func (s *scene) visitFrom(ns *lab.Namespace, to string) *visitor {
	s.t.Helper()
	v := &visitor{t: s.t, who: bronze, host: "x"}
	nettest.Check(s.t, ns.Do(func() (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		v.conn, err = new(net.Dialer).DialContext(ctx, "tcp", to)
		return err
	}))
	s.t.Cleanup(func() { v.conn.Close() })
	nettest.Check(s.t, v.conn.SetDeadline(time.Now().Add(2*patience)))
	v.r = bufio.NewReader(v.conn)
	return v
}

// Sockets of link-local connections are bound to their interface. What waits on one interface is released when a
// request on another one is answered, and nothing is taken for gone because it is not found from another.
func TestRoomSocketsOfInterfaces(t *testing.T) {
	t.Parallel()
	s := newScene(t, plain, true)
	far := nettest.Namespace(t, "far")
	here, there := netip.MustParsePrefix("fe80::1/64"), netip.MustParsePrefix("fe80::2/64")
	nettest.Check(t, lab.Connect(lab.End{NS: s.server, Dev: "eth1", Addrs: []netip.Prefix{here}},
		lab.End{NS: far, Dev: lab.Dev, Addrs: []netip.Prefix{there}}))
	nettest.Check(t, s.server.AddAddr(lab.Dev, here))
	nettest.Check(t, s.client.AddAddr(lab.Dev, there))
	s.cfg = config(origin.Config{})
	_, err := origin.Start(s.server, origin.Config{Listen: []netip.AddrPort{netip.MustParseAddrPort("[::]:80")}, Control: []netip.AddrPort{s.tell}})
	nettest.Check(t, err)
	r := s.enforce(roomPolicy{service: "concurrency: 2"})
	to := fmt.Sprintf("[fe80::1%%%s]:80", lab.Dev)
	var all []*visitor
	for i := range 5 {
		for _, ns := range []*lab.Namespace{s.client, far} {
			v := s.visitFrom(ns, to)
			v.get(fmt.Sprintf("/wait?for=%d", i/4)) // the first ones are let go together
			all = append(all, v)
		}
	}
	r.await(2, 8)
	time.Sleep(time.Second) // some looks at what is in service
	r.await(2, 8)
	if got := len(s.asked()); got != 2 {
		t.Errorf("%d requests are with the server, the limit is 2", got)
	}
	s.letGo("0")
	s.letGo("1")
	for i, v := range all {
		if resp, _, err := v.answer(); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("request %d: %v, %v", i, resp, err)
		}
	}
	r.await(0, 0)
	if rejected := r.read().sum().Rejected; rejected > 0 {
		t.Errorf("%d were rejected", rejected)
	}
}
