// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

const websocket = "GET /upgrade HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n"

// A connection that has left HTTP/1 behind is in service until it is closed, however silent
// it is.
func TestRoomTunnels(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"websocket", websocket, http.StatusSwitchingProtocols},
		{"CONNECT", "CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			situations(t, func(t *testing.T, kept, held bool) {
				r, all, unblock := in(t, kept, held, 1, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
				v := all[0]
				v.tunnel = true
				v.pieces(c.request, 4)
				if held {
					r.await(1, 1)
				}
				unblock()
				v.wants(c.status)
				b := r.queue(bronze, "/b", 1)
				for _, text := range []string{"\x00\x01\xff", getRequest("x", "/no-request"), "POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", strings.Repeat("long", 5000)} {
					v.sendLater(text)
					got := make([]byte, len(text))
					if _, err := readFull(v, got); err != nil || string(got) != text {
						t.Fatalf("through the tunnel came %.40q, error %v; want %.40q", got, err, text)
					}
				}
				b.silent(3 * quiet) // the tunnel is silent, too
				r.await(1, 1)
				v.conn.Close()
				b.wants(http.StatusOK)
				r.calm()
			})
		})
	}
}

func readFull(v *visitor, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = v.r.Read(b[n:])
		n += m
	}
	return n, err
}

// Whom the server refuses a tunnel is an ordinary client.
func TestRoomTunnelRefused(t *testing.T) {
	t.Parallel()
	r, first := blocked(t, roomPolicy{}, origin.Config{})
	r.frees(first)
	v := r.visit(gold)
	v.send("CONNECT refused:443 HTTP/1.1\r\nHost: x\r\n\r\n")
	v.wants(http.StatusForbidden)
	v.send(strings.Replace(websocket, "/upgrade", "/as-usual", 1))
	v.wants(http.StatusOK)
	r.await(0, 0)
	unblock := r.block(bronze)
	v.get("/next")
	r.await(1, 1)
	unblock()
	v.wants(http.StatusOK)
	if got := r.class(gold); got.Arrived != 3 || got.Held != 1 {
		t.Errorf("%+v, want 3 arrived, 1 held", got)
	}
	r.calm()
}

// Who asks before it sends its body is told to, once it is in.
func TestRoomExpectContinue(t *testing.T) {
	t.Parallel()
	situations(t, func(t *testing.T, kept, held bool) {
		r, all, unblock := in(t, kept, held, 1, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
		v := all[0]
		for range 2 {
			v.send(strings.Replace(postHead(v.host, "/echo", 10), "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
			if held {
				r.await(1, 1)
				v.silent(quiet)
				held = false
			}
			unblock()
			unblock = func() {}
			v.wants(http.StatusContinue)
			v.send("01234")
			time.Sleep(20 * time.Millisecond)
			v.send("56789")
			v.echoed("0123456789")
			v.send(strings.Replace(chunkedHead, "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
			v.wants(http.StatusContinue)
			v.send(inChunks("hello", 2))
			v.echoed("hello")
		}
		r.wasNew("/echo", "/echo", "/echo", "/echo")
		r.calm()
	})
}

// curl asks so before it sends much.
func TestRoomExpectContinueCurl(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		for _, chunked := range []bool{false, true} {
			t.Run(fmt.Sprintf("held=%v/chunked=%v", held, chunked), func(t *testing.T) {
				r, _, unblock := in(t, false, held, 0, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
				dir := t.TempDir()
				body := bytes.Repeat([]byte("0123456789abcdef"), 1<<17)
				nettest.Check(t, os.WriteFile(filepath.Join(dir, "in"), body, 0o600))
				args := []string{"-sS", "--max-time", "30", "--interface", r.addr(gold).String(), "-H", "Expect: 100-continue", "--expect100-timeout", "20",
					"-T", filepath.Join(dir, "in"), "-X", "POST", "-o", filepath.Join(dir, "out"), "-w", "%{http_code}"}
				if chunked {
					args = append(args, "-H", "Transfer-Encoding: chunked")
				}
				cmd := r.client.Command("curl", append(args, "http://"+r.to.String()+"/echo", "-o", filepath.Join(dir, "out2"), "http://"+r.to.String()+"/next")...)
				done := make(chan struct{})
				var out []byte
				var err error
				go func() {
					defer close(done)
					out, err = cmd.CombinedOutput()
				}()
				if held {
					r.await(1, 1)
				}
				unblock()
				<-done
				got, readErr := os.ReadFile(filepath.Join(dir, "out"))
				if err != nil || readErr != nil || !bytes.Equal(got, body) || !strings.HasPrefix(string(out), "200") {
					t.Errorf("curl: %q, %v; %d bytes of %d came back", out, err, len(got), len(body))
				}
				r.calm()
			})
		}
	}
}

// A body that comes after its answer takes no place in service, and the next request is found
// behind it.
func TestRoomEarlyAnswers(t *testing.T) {
	t.Parallel()
	for _, framing := range []struct{ name, head, begin, end string }{
		{"length", "POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n", "01", "23456789"},
		{"chunks", "POST /early HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\n01", "234\r\n5\r\n56789\r\n0\r\n\r\n"},
	} {
		t.Run(framing.name, func(t *testing.T) {
			situations(t, func(t *testing.T, kept, held bool) {
				r, all, unblock := in(t, kept, held, 1, roomPolicy{service: "queue: {max_wait: 20s}"}, origin.Config{})
				v := all[0]
				v.send(framing.head)
				if held {
					r.await(1, 1)
				}
				unblock()
				v.wants(http.StatusOK)
				r.await(0, 0)
				v.send(framing.begin)
				unblock = r.block(bronze) // there is room, although the body is not whole
				for i := range framing.end {
					v.send(framing.end[i : i+1])
					time.Sleep(time.Millisecond)
				}
				r.await(1, 0)
				v.get("/next")
				r.await(1, 1)
				unblock()
				v.wants(http.StatusOK)
				r.wasNew("/early", "/next")
				if got := r.class(gold); got.Paused != 0 {
					t.Errorf("%+v, want nobody paused", got)
				}
				r.calm()
			})
		})
	}
}
