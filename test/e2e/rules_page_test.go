// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// pagesPolicy refuses all that is asked for by pages of the site's own.
const pagesPolicy = `
version: 1
answers:
  small: {status: 503, page: %[1]s/small.html}
  page: {status: 503, retry_after: 5s, page: %[1]s/page.html}
  largest: {status: 429, page: %[1]s/largest.txt}
services: [{name: go, listen: "*:80", concurrency: 100}]
requests:
  - {name: small, path: /small, action: reject, answer: small}
  - {name: page, path: /page, action: reject, answer: page}
  - {name: largest, path: /largest, action: reject, answer: largest}
`

// pages are what they say, by path.
func pages(t *testing.T) (dir string, bodies map[string]string) {
	t.Helper()
	dir = t.TempDir()
	filled := func(size int, begin string) string {
		b := bytes.NewBufferString(begin)
		for i := 0; b.Len() < size; i++ {
			fmt.Fprintf(b, "%d, ", i)
		}
		return b.String()[:size]
	}
	bodies = map[string]string{
		"/small":   filled(100, "<p>"),
		"/page":    filled(16<<10, `<meta http-equiv=refresh content=5>`),
		"/largest": filled(32<<10, ""),
	}
	for path, ending := range map[string]string{"/small": ".html", "/page": ".html", "/largest": ".txt"} {
		nettest.Check(t, os.WriteFile(filepath.Join(dir, path+ending), []byte(bodies[path]), 0o600))
	}
	return dir, bodies
}

// The site's own pages come whole: by curl, over both versions of IP, to who reads little at once, to many at
// once, and where a tenth of the packets is lost.
func TestPages(t *testing.T) {
	t.Parallel()
	r := newRuled(t, map[string]uint16{"go": 80}, "go")
	dir, bodies := pages(t)
	r.enforce(fmt.Sprintf(pagesPolicy, dir))
	for _, v6 := range []bool{false, true} {
		s := r.at(t, "go", v6)
		curl := func(path string, args ...string) string {
			t.Helper()
			args = append([]string{"-sS", "--max-time", "20", "--interface", s.addr(free).String(), "http://" + s.to.String() + path}, args...)
			out, err := s.client.Command("curl", args...).CombinedOutput()
			if err != nil {
				t.Errorf("curl %s: %v\n%.300s", args, err, out)
			}
			return string(out)
		}
		for path, body := range bodies {
			if got := curl(path); got != body {
				t.Errorf("%s: %d bytes, want %d: %.80q", path, len(got), len(body), got)
			}
			head := curl(path, "--head")
			if !strings.HasPrefix(head, "HTTP/1.1 ") || !strings.HasSuffix(head, "Connection: close\r\n\r\n") {
				t.Errorf("HEAD %s: %q", path, head)
			}
			want := body
			if path == "/page" { // it asks again by itself: of who posts it would not be the same
				want = ""
			}
			if got := curl(path, "--data", "x=y"); got != want {
				t.Errorf("POST %s: %d bytes, want %d", path, len(got), len(want))
			}
		}
	}
	t.Run("slow readers", func(t *testing.T) { readsSlowly(t, r.at(t, "go", false), bodies) })
	t.Run("who goes", func(t *testing.T) { goesEarly(t, r.at(t, "go", false)) })
	t.Run("who uploads", func(t *testing.T) { uploads(t, r.at(t, "go", false), bodies["/largest"]) })
	nettest.Check(t, r.v4.client.LosePackets(lab.Dev, 0.1))
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("losses, v6=%v", v6), func(t *testing.T) { fetchAll(t, r.at(t, "go", v6), bodies) })
	}
	if got := r.v4.asked(); len(got) > 0 {
		t.Errorf("the server was asked for %q", got)
	}
}

// whole reads an answer, in pieces of so many bytes, and compares its body.
func whole(c io.Reader, piece int, pause time.Duration, want string) error {
	var all []byte
	b := make([]byte, piece)
	for {
		n, err := c.Read(b)
		all = append(all, b[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("%w behind %d bytes", err, len(all))
		}
		time.Sleep(pause)
	}
	_, body, _ := strings.Cut(string(all), "\r\n\r\n")
	if body != want {
		return fmt.Errorf("a body of %d bytes, want %d", len(body), len(want))
	}
	return nil
}

// dialSmall connects with a receive buffer of so many bytes.
func dialSmall(s *scene, size int) (c net.Conn, err error) {
	d := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(s.addr(free), 0)),
		Control: func(_, _ string, raw syscall.RawConn) (err error) {
			ctlErr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, size) })
			return errors.Join(ctlErr, err)
		},
	}
	err = s.client.Do(func() (err error) {
		c, err = d.Dial("tcp", s.to.String())
		return err
	})
	return c, err
}

// readsSlowly asks with small windows, and reads little by little.
func readsSlowly(t *testing.T, s *scene, bodies map[string]string) {
	for _, size := range []int{2304, 4096, 10_000} {
		for path, body := range bodies {
			c, err := dialSmall(s, size)
			nettest.Check(t, err)
			_ = c.SetDeadline(time.Now().Add(patience))
			_, err = io.WriteString(c, getRequest("x", path))
			nettest.Check(t, err)
			time.Sleep(50 * time.Millisecond) // its window is full, and closed
			if err := whole(c, 500, time.Millisecond, body); err != nil {
				t.Errorf("%s into %d bytes: %v", path, size, err)
			}
			c.Close()
		}
	}
}

// goesEarly asks and resets the connection at once, or after a part of the page.
func goesEarly(t *testing.T, s *scene) {
	for i := range 40 {
		v := s.visit(free)
		v.get("/largest")
		if i%2 > 0 {
			_, err := v.r.Peek(1000)
			nettest.Check(t, err)
		}
		v.reset()
	}
}

// uploads sends much before it reads anything.
func uploads(t *testing.T, s *scene, body string) {
	const size = 3 << 20
	v := s.visit(free)
	v.send(postHead(v.host, "/largest", size))
	for range size / 1024 {
		if _, err := io.WriteString(v.conn, strings.Repeat("x", 1024)); err != nil {
			t.Fatalf("sending a body that is not wanted: %v", err)
		}
	}
	if err := whole(v.conn, 4096, 0, body); err != nil {
		t.Error(err)
	}
}

// fetchAll asks for pages from many connections at once.
func fetchAll(t *testing.T, s *scene, bodies map[string]string) {
	var wg sync.WaitGroup
	for path, body := range bodies {
		for range 30 {
			v := s.visit(free)
			_ = v.conn.SetDeadline(time.Now().Add(6 * patience))
			wg.Go(func() {
				if _, err := io.WriteString(v.conn, getRequest(v.host, path)); err != nil {
					t.Errorf("%s: %v", path, err)
				} else if err := whole(v.conn, 4096, 0, body); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			})
		}
	}
	wg.Wait()
}
