// SPDX-License-Identifier: Apache-2.0

package origin_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/lab/reexec"
	"narthex/test/nettest"
)

func TestMain(m *testing.M) {
	reexec.Main()
	os.Exit(m.Run())
}

var addr = netip.MustParseAddrPort("127.0.0.1:80")

func start(t *testing.T, cfg origin.Config) (*lab.Namespace, *lab.Server) {
	t.Helper()
	n := nettest.Namespace(t, "origin")
	cfg.Listen = []netip.AddrPort{addr}
	s, err := origin.Start(n, cfg)
	nettest.Check(t, err)
	return n, s
}

// ask opens a connection and sends a request on it; the answer can be read from it.
func ask(t *testing.T, n *lab.Namespace) net.Conn {
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
	before, err := lab.ProcessCPU(s.PID())
	nettest.Check(t, err)
	for range requests {
		if line, _ := answer(t, ask(t, n), 10*time.Second); line != "HTTP/1.1 200 OK" {
			t.Errorf("answered %q", line)
		}
	}
	after, err := lab.ProcessCPU(s.PID())
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

// fetch asks for a path on a connection of its own.
func fetch(t *testing.T, n *lab.Namespace, to netip.AddrPort, method, path, body string) (status int, answer string) {
	t.Helper()
	var conn net.Conn
	nettest.Check(t, n.Do(func() (err error) {
		conn, err = net.Dial("tcp", to.String())
		return err
	}))
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	req, err := http.NewRequest(method, "http://x"+path, strings.NewReader(body))
	nettest.Check(t, err)
	nettest.Check(t, req.Write(conn))
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	nettest.Check(t, err)
	b, err := io.ReadAll(resp.Body)
	nettest.Check(t, err)
	return resp.StatusCode, string(b)
}

func TestWaitsUntilTold(t *testing.T) {
	control := netip.MustParseAddrPort("127.0.0.1:81")
	n, _ := start(t, origin.Config{Control: []netip.AddrPort{control}, Workers: 1})
	answered := make(chan int)
	go func() {
		status, _ := fetch(t, n, addr, "GET", "/wait?for=x", "")
		answered <- status
	}()
	for asked := ""; !strings.Contains(asked, "/wait?for=x"); _, asked = fetch(t, n, control, "GET", "/asked", "") {
		time.Sleep(10 * time.Millisecond)
	}
	select {
	case status := <-answered:
		t.Fatalf("answered with %d before it was told", status)
	case <-time.After(100 * time.Millisecond):
	}
	fetch(t, n, control, "GET", "/go?for=x", "")
	if status := <-answered; status != http.StatusOK {
		t.Errorf("answered with %d", status)
	}
	if status, _ := fetch(t, n, addr, "GET", "/wait?ms=10", ""); status != http.StatusOK {
		t.Errorf("a wait of 10 ms: %d", status)
	}
	if status, _ := fetch(t, n, addr, "GET", "/wait", ""); status != http.StatusBadRequest {
		t.Errorf("a wait for nothing: %d", status)
	}
	var asked []origin.Request
	_, list := fetch(t, n, control, "GET", "/asked", "")
	nettest.Check(t, json.Unmarshal([]byte(list), &asked))
	if len(asked) != 3 || asked[1].URI != "/wait?ms=10" || asked[0].Method != "GET" || !asked[0].From.IsValid() {
		t.Errorf("asked: %+v", asked)
	}
}

func TestEchoes(t *testing.T) {
	n, _ := start(t, origin.Config{})
	body := strings.Repeat("0123456789abcdef", 1<<16)
	if status, got := fetch(t, n, addr, "POST", "/echo", body); status != http.StatusOK || got != body {
		t.Errorf("status %d, %d bytes", status, len(got))
	}
}

func TestTellsSocketOptions(t *testing.T) {
	for _, workers := range []int{0, 1} {
		n, _ := start(t, origin.Config{Workers: workers, NoMPTCP: true})
		if status, got := fetch(t, n, addr, "GET", "/socket", ""); status != http.StatusOK || got != `{"Priority":0,"Mark":0}` {
			t.Errorf("status %d, %q", status, got)
		}
	}
}

func TestConnectionsEnd(t *testing.T) {
	for _, c := range []struct {
		name    string
		cfg     origin.Config
		atLeast time.Duration
	}{
		{"after an answer", origin.Config{NoKeepAlive: true, Sleep: 50 * time.Millisecond}, 50 * time.Millisecond},
		{"idle", origin.Config{IdleTimeout: 300 * time.Millisecond}, 300 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, _ := start(t, c.cfg)
			began := time.Now()
			conn := ask(t, n)
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			b, err := io.ReadAll(conn)
			if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 200") {
				t.Errorf("%.40q, error %v", b, err)
			}
			if took := time.Since(began); took < c.atLeast {
				t.Errorf("closed after %v, want at least %v", took, c.atLeast)
			}
		})
	}
}

func TestSlower(t *testing.T) {
	n, _ := start(t, origin.Config{Sleep: time.Millisecond})
	fetch(t, n, addr, "GET", "/slower?sleep=60000", "")
	if line, ok := answer(t, ask(t, n), 200*time.Millisecond); ok {
		t.Errorf("answered %q by a server that sleeps for a minute", line)
	}
	fetch(t, n, addr, "GET", "/slower", "")
	if line, ok := answer(t, ask(t, n), 10*time.Second); !ok {
		t.Errorf("answered %q by a server that is fast again", line)
	}
}
