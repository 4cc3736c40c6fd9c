// SPDX-License-Identifier: Apache-2.0

package origin_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

var control = netip.MustParseAddrPort("127.0.0.1:81")

// dial opens a connection to the server.
func dial(t *testing.T, n *lab.Namespace) (net.Conn, *bufio.Reader) {
	t.Helper()
	var conn net.Conn
	nettest.Check(t, n.Do(func() (err error) {
		conn, err = net.Dial("tcp", addr.String())
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	return conn, bufio.NewReader(conn)
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text)
	nettest.Check(t, err)
}

// reads fails unless the next bytes are these.
func reads(t *testing.T, r io.Reader, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(r, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v; want %q", b, err, want)
	}
}

func status(t *testing.T, r *bufio.Reader, want int) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	nettest.Check(t, err)
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != want {
		t.Fatalf("%s, %v; want %d", resp.Status, err, want)
	}
}

func TestTunnels(t *testing.T) {
	n, _ := start(t, origin.Config{})
	for _, request := range []struct {
		head   string
		status int
	}{
		{"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 200},
		{"GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 101},
	} {
		conn, r := dial(t, n)
		send(t, conn, request.head)
		line, err := r.ReadString('\n')
		if want := fmt.Sprintf("HTTP/1.1 %d ", request.status); err != nil || !strings.HasPrefix(line, want) {
			t.Fatalf("%q, %v", line, err)
		}
		for line != "\r\n" {
			line, err = r.ReadString('\n')
			nettest.Check(t, err)
		}
		for range 2 {
			send(t, conn, "\x00 anything\n")
			reads(t, r, "\x00 anything\n")
		}
	}
	conn, r := dial(t, n)
	send(t, conn, "CONNECT refused:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	status(t, r, http.StatusForbidden)
	send(t, conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	status(t, r, http.StatusOK)
}

func TestAnswersEarly(t *testing.T) {
	n, _ := start(t, origin.Config{Control: []netip.AddrPort{control}})
	conn, r := dial(t, n)
	for _, path := range []string{"/early", "/early?for=x"} {
		send(t, conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")
		fetch(t, n, control, "GET", "/go?for=x", "")
		status(t, r, http.StatusOK)
		send(t, conn, "hello")
	}
	send(t, conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	status(t, r, http.StatusOK)
}

func TestSpeaksTLS(t *testing.T) {
	n, _ := start(t, origin.Config{TLS: true})
	conn, _ := dial(t, n)
	c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	send(t, c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	status(t, bufio.NewReader(c), http.StatusOK)
}

func TestSpeaksHTTP2WithoutTLS(t *testing.T) {
	n, _ := start(t, origin.Config{H2C: true})
	for _, version := range []string{"--http1.1", "--http2-prior-knowledge"} {
		out, err := n.Command("curl", "-sS", version, "-o", "/dev/null", "-w", "%{http_code}", "http://"+addr.String()+"/").CombinedOutput()
		if err != nil || string(out) != "200" {
			t.Errorf("curl %s: %q, %v", version, out, err)
		}
	}
}

// withoutOne leaves out a line of what was heard, if the rest is what is wanted then. Who waits for the listener connects,
// too, and the server may note that at any time.
func withoutOne(heard []string, line string, want []string) []string {
	for i := range heard {
		if rest := slices.Delete(slices.Clone(heard), i, i+1); heard[i] == line && slices.Equal(rest, want) {
			return rest
		}
	}
	return heard
}

func TestSpeaksLines(t *testing.T) {
	for _, cfg := range []origin.Config{
		{Lines: true, Banner: "welcome", Control: []netip.AddrPort{control}},
		{Lines: true, DeferAccept: 5 * time.Second, Control: []netip.AddrPort{control}},
	} {
		n, _ := start(t, cfg)
		conn, r := dial(t, n)
		if cfg.Banner != "" {
			reads(t, r, "welcome\n")
		}
		send(t, conn, "hello\nhush now\nwait x\n")
		reads(t, r, "hello\n")
		fetch(t, n, control, "GET", "/go?for=x", "")
		reads(t, r, "wait x\n")
		nettest.Check(t, conn.(*net.TCPConn).CloseWrite())
		reads(t, r, "(end)\n")
		if b, err := r.ReadByte(); err != io.EOF {
			t.Errorf("byte %#x, %v", b, err)
		}
		other, r := dial(t, n)
		send(t, other, "bye\n")
		if cfg.Banner != "" {
			reads(t, r, "welcome\n")
		}
		reads(t, r, "bye\n")
		if b, err := r.ReadByte(); err != io.EOF {
			t.Errorf("byte %#x, %v", b, err)
		}
		var asked []origin.Request
		_, list := fetch(t, n, control, "GET", "/asked", "")
		nettest.Check(t, json.Unmarshal([]byte(list), &asked))
		var lines []string
		for _, a := range asked {
			lines = append(lines, a.URI)
		}
		const connected = "(connected)"
		want := []string{connected, "hello", "hush now", "wait x", connected, "bye"}
		if cfg.DeferAccept > 0 {
			want = slices.DeleteFunc(want, func(s string) bool { return s == connected })
			lines = slices.DeleteFunc(lines, func(s string) bool { return s == connected })
		} else {
			lines = withoutOne(lines, connected, want)
		}
		if !slices.Equal(lines, want) {
			t.Errorf("the server heard %q, want %q", lines, want)
		}
	}
}
