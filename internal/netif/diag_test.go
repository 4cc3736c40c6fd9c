// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"encoding/binary"
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

// TestDiagUnread tells connections that nobody has accepted from those that nobody reads.
func TestDiagUnread(t *testing.T) {
	d := openDiag(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		server, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		at := server.Addr().(*net.TCPAddr).AddrPort()
		for range 3 {
			conn, err := net.Dial("tcp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(accepted, queued int) {
			t.Helper()
			var u Unread
			eventually(t, func() bool {
				if u, err = d.Unread(at.Port(), at.Addr().Is6()); err != nil {
					t.Fatal(err)
				}
				return u.Accepted == accepted && u.Queued == queued && (u.QueuedFor > 0) == (queued > 0)
			}, "%d accepted and %d queued at %v", accepted, queued, at)
		}
		expect(0, 3)
		first, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer first.Close()
		expect(1, 2)
		if _, err := first.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		expect(0, 2)
	}
}

// TestUnreadLeavesOldBodies does not count what a server has not read for long, of a connection that it has
// accepted: that may be as long as the client likes.
func TestUnreadLeavesOldBodies(t *testing.T) {
	message := func(unread, inode, age uint32) []byte {
		m := make([]byte, diagMessage+8+unix.SizeofNlAttr+infoReceived+4)
		binary.NativeEndian.PutUint32(m[56:], unread)
		binary.NativeEndian.PutUint32(m[68:], inode)
		b := m[diagMessage:]
		binary.NativeEndian.PutUint16(b, 5) // another attribute, which is padded
		binary.NativeEndian.PutUint16(b[2:], 8)
		b = b[8:]
		binary.NativeEndian.PutUint16(b, unix.SizeofNlAttr+infoReceived+4)
		binary.NativeEndian.PutUint16(b[2:], extInfo)
		binary.NativeEndian.PutUint32(b[unix.SizeofNlAttr+infoReceived:], age)
		return m
	}
	var u Unread
	u.add(message(0, 7, 0))
	u.add(message(100, 7, 20))
	u.add(message(100, 7, 5001))
	u.add(message(100, 0, 5001))
	u.add(message(1, 0, 2)[:diagMessage+9]) // cut off
	if want := (Unread{Accepted: 1, Queued: 2, QueuedFor: 5001 * time.Millisecond}); u != want {
		t.Errorf("%+v, want %+v", u, want)
	}
}

func BenchmarkUnread(b *testing.B) {
	d, err := OpenDiag(&Namespace{})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	for b.Loop() {
		if _, err := d.Unread(1, false); err != nil {
			b.Fatal(err)
		}
	}
}
