// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func listen(t *testing.T, network, address string) netip.AddrPort {
	t.Helper()
	server, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server.Addr().(*net.TCPAddr).AddrPort()
}

func openDiag(t *testing.T) *Diag {
	t.Helper()
	d, err := OpenDiag(&Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestDiagFindsListeners finds sockets of both families, and no connections.
func TestDiagFindsListeners(t *testing.T) {
	v4, v6 := listen(t, "tcp4", "127.0.0.1:0"), listen(t, "tcp6", "[::1]:0")
	conn, err := net.Dial("tcp4", v4.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	found, err := openDiag(t).Listening(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []netip.AddrPort{v4, v6} {
		i := slices.IndexFunc(found, func(l Listening) bool { return l.At == at })
		if i < 0 {
			t.Fatalf("nothing listens on %v in %v", at, found)
		}
		if found[i].Inode == 0 {
			t.Errorf("%v has no inode", at)
		}
	}
	client := conn.LocalAddr().(*net.TCPAddr).AddrPort()
	if slices.ContainsFunc(found, func(l Listening) bool { return l.At == client }) {
		t.Errorf("the connection from %v is taken for a listener", client)
	}
}

// TestDiagBacklog counts connections that nobody accepts, and finds none where nobody listens.
func TestDiagBacklog(t *testing.T) {
	d := openDiag(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		at := listen(t, "tcp", address)
		for n := range 4 {
			eventually(t, func() bool {
				backlog, err := d.Backlog(at, 0, 7)
				if err != nil {
					t.Fatal(err)
				}
				return backlog == n
			}, "%d connections in the queue of %v", n, at)
			conn, err := net.Dial("tcp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
	}
	gone := netip.MustParseAddrPort("127.0.0.1:1")
	if backlog, err := d.Backlog(gone, 0, 0); backlog != 0 || err != nil {
		t.Errorf("backlog %d, error %v where nobody listens", backlog, err)
	}
}

func eventually(t *testing.T, ok func() bool, format string, args ...any) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: "+format, args...)
}

// TestDiagAllocates reads a backlog without making garbage: it is read twenty times a second.
func TestDiagAllocates(t *testing.T) {
	d, at := openDiag(t), listen(t, "tcp", "127.0.0.1:0")
	if n := testing.AllocsPerRun(100, func() {
		if _, err := d.Backlog(at, 0, 0); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

// TestDiagRefusesCutAnswers does not read beyond what came.
func TestDiagRefusesCutAnswers(t *testing.T) {
	d := &Diag{asked: 1}
	whole := make([]byte, unix.SizeofNlMsghdr+diagMessage)
	for cut := range whole {
		b := slices.Clone(whole)
		b[0], b[4], b[8], b[unix.SizeofNlMsghdr+1] = byte(len(whole)), unix.SOCK_DIAG_BY_FAMILY, 1, stateListen
		read := 0
		_, err := d.parse(b[:cut], true, func([]byte) { read++ })
		if read > 0 || cut >= unix.SizeofNlMsghdr && err == nil {
			t.Errorf("%d of %d bytes: read %d messages, error %v", cut, len(whole), read, err)
		}
	}
}

func BenchmarkListening(b *testing.B) {
	d, err := OpenDiag(&Namespace{})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	var list []Listening
	for b.Loop() {
		if list, err = d.Listening(list[:0]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBacklog(b *testing.B) {
	d, err := OpenDiag(&Namespace{})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	at := netip.MustParseAddrPort("127.0.0.1:1")
	for b.Loop() {
		if _, err := d.Backlog(at, 0, 0); err != nil {
			b.Fatal(err)
		}
	}
}
