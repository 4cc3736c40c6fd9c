// SPDX-License-Identifier: Apache-2.0

package origin_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"narthex/internal/testnet"
	"narthex/internal/testnet/nettest"
	"narthex/internal/testnet/origin"
	"narthex/internal/testnet/reexec"
)

func TestMain(m *testing.M) {
	reexec.Main()
	os.Exit(m.Run())
}

var addr = netip.MustParseAddrPort("127.0.0.1:80")

func start(t *testing.T, cfg origin.Config) (*testnet.Namespace, *testnet.Server) {
	t.Helper()
	n := nettest.Namespace(t, "origin")
	cfg.Listen = []netip.AddrPort{addr}
	s, err := origin.Start(n, cfg)
	nettest.Check(t, err)
	return n, s
}

// ask opens a connection and sends a request on it; the answer can be read from it.
func ask(t *testing.T, n *testnet.Namespace) net.Conn {
	t.Helper()
	var conn net.Conn
	nettest.Check(t, n.Do(func() (err error) {
		conn, err = net.Dial("tcp", addr.String())
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	_, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
	nettest.Check(t, err)
	return conn
}

// answer reads one response's first bytes; ok is false if none came in time.
func answer(t *testing.T, conn net.Conn, wait time.Duration) (line string, ok bool) {
	t.Helper()
	nettest.Check(t, conn.SetReadDeadline(time.Now().Add(wait)))
	buf := make([]byte, 1<<16)
	n, err := conn.Read(buf)
	if os.IsTimeout(err) {
		return "", false
	}
	nettest.Check(t, err)
	line, _, _ = strings.Cut(string(buf[:n]), "\r\n")
	return line, true
}

func TestAnswersAndBurns(t *testing.T) {
	const work, requests = 20 * time.Millisecond, 5
	n, s := start(t, origin.Config{Work: work, CPUs: []int{0}})
	before, err := testnet.ProcessCPU(s.PID())
	nettest.Check(t, err)
	for range requests {
		if line, _ := answer(t, ask(t, n), 10*time.Second); line != "HTTP/1.1 200 OK" {
			t.Errorf("answered %q", line)
		}
	}
	after, err := testnet.ProcessCPU(s.PID())
	nettest.Check(t, err)
	// CPU time, not time: half leaves room for a core that became faster since.
	if burnt := after - before; burnt < requests*work/2 {
		t.Errorf("%d requests burnt %v, want about %v", requests, burnt, requests*work)
	}
}

func TestWorkersLimitsConnections(t *testing.T) {
	n, _ := start(t, origin.Config{Workers: 1})
	first := ask(t, n)
	if _, ok := answer(t, first, 10*time.Second); !ok {
		t.Fatal("the first connection got no answer")
	}
	second := ask(t, n) // the first is kept alive and holds the worker
	if line, ok := answer(t, second, 200*time.Millisecond); ok {
		t.Errorf("a second connection was served beside the first: %q", line)
	}
	first.Close()
	if _, ok := answer(t, second, 10*time.Second); !ok {
		t.Error("the second connection got no answer after the first had closed")
	}
}

func TestBacklog(t *testing.T) {
	n, _ := start(t, origin.Config{Backlog: 7})
	out, err := n.Command("ss", "-Hltn").CombinedOutput()
	nettest.Check(t, err)
	if fields := strings.Fields(string(out)); len(fields) < 3 || fields[2] != "7" {
		t.Errorf("ss says %q, want a backlog of 7", out)
	}
}

func TestStartSaysWhyNot(t *testing.T) {
	n := nettest.Namespace(t, "origin")
	_, err := origin.Start(n, origin.Config{Listen: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:80")}})
	if want := "cannot assign requested address"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
	if _, err := origin.Start(n, origin.Config{}); err == nil {
		t.Error(fmt.Sprint("a server without an address started: ", err))
	}
}
