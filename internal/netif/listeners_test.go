// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseListeners(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20000 1 0000000000000000 100 0 0 10 0
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20001 1 0000000000000000 100 0 0 10 0
   2: 0100007F:0016 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 20002 1 0000000000000000 20 4 30 10 -1
   3: 00000000:0051 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 20003 1 0000000000000000 100 0 0 10 0
`
	const table6 = `  sl  local_address                         remote_address                        st
   0: 000000FD000000000000000002000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: 00000000000000000000000000000000:01BB 00000000000000000000000000000000:0000 0A 00000000:00000000
`
	var got Listeners
	for _, s := range []string{table, table6} {
		l, err := parseListeners(strings.NewReader(s))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l...)
	}
	want := Listeners{
		netip.MustParseAddrPort("127.0.0.1:8080"),
		netip.MustParseAddrPort("0.0.0.0:80"),
		netip.MustParseAddrPort("[fd00::2]:8080"),
		netip.MustParseAddrPort("[::]:443"),
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("listeners (-want +got):\n%s", diff)
	}
}

func TestListenersOn(t *testing.T) {
	l := Listeners{
		netip.MustParseAddrPort("0.0.0.0:80"),
		netip.MustParseAddrPort("127.0.0.1:8080"),
		netip.MustParseAddrPort("[::]:443"),
		netip.MustParseAddrPort("[::ffff:10.0.0.1]:9000"),
	}
	tests := []struct {
		addr string // empty: any
		port uint16
		want bool
	}{
		{"", 80, true},
		{"", 81, false},
		{"10.0.0.1", 80, true},
		{"fd00::1", 80, false},
		{"127.0.0.1", 8080, true},
		{"127.0.0.2", 8080, false},
		{"", 8080, true},
		{"10.0.0.1", 443, true},
		{"fd00::1", 443, true},
		{"10.0.0.1", 9000, true},
		{"10.0.0.2", 9000, false},
	}
	for _, tt := range tests {
		var addr netip.Addr
		if tt.addr != "" {
			addr = netip.MustParseAddr(tt.addr)
		}
		if got := l.On(addr, tt.port); got != tt.want {
			t.Errorf("On(%q, %d) = %v, want %v", tt.addr, tt.port, got, tt.want)
		}
	}
}

func TestReadListenersFindsASocketOfOurs(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	at := server.Addr().(*net.TCPAddr).AddrPort()
	found, err := ReadListeners(&Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	if !found.On(at.Addr(), at.Port()) {
		t.Errorf("no listener on %v in %v", at, found)
	}
}
