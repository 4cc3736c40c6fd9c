// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// idle is how long the servers under test keep idle connections.
const idle = time.Second

// servers are the web servers that can be started, with what they do with connections.
var servers = []struct {
	name      string
	keepAlive bool
	start     func(n *lab.Namespace, backlog int, listen ...netip.AddrPort) (*lab.Server, error)
}{
	{"nginx", true, func(n *lab.Namespace, backlog int, listen ...netip.AddrPort) (*lab.Server, error) {
		return n.StartNginx(lab.NginxConfig{Listen: listen, Backlog: backlog, IdleTimeout: idle, CPUs: []int{0}})
	}},
	{"apache-prefork", true, func(n *lab.Namespace, backlog int, listen ...netip.AddrPort) (*lab.Server, error) {
		return n.StartApache(lab.ApacheConfig{Listen: listen, MPM: lab.Prefork, Workers: 4, Backlog: backlog, IdleTimeout: idle, CPUs: []int{0}})
	}},
	{"apache-event", true, func(n *lab.Namespace, backlog int, listen ...netip.AddrPort) (*lab.Server, error) {
		return n.StartApache(lab.ApacheConfig{Listen: listen, Backlog: backlog, IdleTimeout: idle, CPUs: []int{0}})
	}},
	{"haproxy", true, func(n *lab.Namespace, backlog int, listen ...netip.AddrPort) (*lab.Server, error) {
		return n.StartHAProxy(lab.HAProxyConfig{Listen: listen, Backlog: backlog, IdleTimeout: idle, CPUs: []int{0}})
	}},
	{"python-1.1", true, func(n *lab.Namespace, backlog int, listen ...netip.AddrPort) (*lab.Server, error) {
		return n.StartPython(lab.PythonConfig{Listen: listen, HTTP11: true, Backlog: backlog, IdleTimeout: idle, CPUs: []int{0}})
	}},
	{"python-1.0", false, func(n *lab.Namespace, backlog int, listen ...netip.AddrPort) (*lab.Server, error) {
		return n.StartPython(lab.PythonConfig{Listen: listen, Backlog: backlog, CPUs: []int{0}})
	}},
}

func TestServers(t *testing.T) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			nettest.Root(t)
			n, err := lab.NewNamespace("server")
			nettest.Check(t, err)
			defer n.Close()
			v4, v6 := netip.MustParseAddrPort("127.0.0.1:80"), netip.MustParseAddrPort("[::1]:80")
			server, err := s.start(n, 9, v4, v6)
			nettest.Check(t, err)
			backlogs(t, n, 9)
			converse(t, n, v4, lab.File, s.keepAlive)
			converse(t, n, v6, "/", s.keepAlive)
			pids, err := server.PIDs()
			nettest.Check(t, err)
			for _, pid := range pids {
				var cpus unix.CPUSet
				if err := unix.SchedGetaffinity(pid, &cpus); err != nil || cpus.Count() != 1 || !cpus.IsSet(0) {
					t.Errorf("process %d may run on %d cores (error: %v), want core 0", pid, cpus.Count(), err)
				}
			}
			nettest.Check(t, n.Close())
			for _, pid := range pids {
				if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
					t.Errorf("process %d after Close: %v, want it gone", pid, err)
				}
			}
			name, _, _ := strings.Cut(s.name, "-")
			left, _ := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("narthex-%s-%d-*", name, os.Getpid())))
			if len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

// backlogs checks the backlog of every listener.
func backlogs(t *testing.T, n *lab.Namespace, want int) {
	t.Helper()
	out, err := n.Command("ss", "-Hltn").CombinedOutput()
	nettest.Check(t, err)
	for line := range strings.Lines(string(out)) {
		if fields := strings.Fields(line); len(fields) < 3 || fields[2] != fmt.Sprint(want) {
			t.Errorf("ss says %q, want a backlog of %d", line, want)
		}
	}
}

// converse asks twice on one connection, if the server keeps it alive, and waits for the
// server to close it.
func converse(t *testing.T, n *lab.Namespace, addr netip.AddrPort, path string, keepAlive bool) {
	t.Helper()
	conn := connect(t, n, addr)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	r := bufio.NewReader(conn)
	asks := 1
	if keepAlive {
		asks = 2
	}
	for range asks {
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil)
		nettest.Check(t, err)
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || !bytes.Equal(body, lab.FileContent()) {
			t.Errorf("%s%s: %s, %d bytes, error %v", addr, path, resp.Status, len(body), err)
		}
	}
	start := time.Now()
	if b, err := r.ReadByte(); err != io.EOF {
		t.Errorf("after the answers: byte %#x, error %v; want the connection closed", b, err)
	}
	if took := time.Since(start); keepAlive && took < idle*8/10 {
		t.Errorf("closed after %v, want it kept idle for %v", took, idle)
	}
}

func connect(t *testing.T, n *lab.Namespace, addr netip.AddrPort) (conn net.Conn) {
	t.Helper()
	nettest.Check(t, n.Do(func() (err error) {
		conn, err = net.Dial("tcp", addr.String())
		return err
	}))
	return conn
}

func TestServersSayWhyTheyDoNotStart(t *testing.T) {
	n := nettest.Namespace(t, "server")
	for _, s := range servers {
		_, err := s.start(n, 0, netip.MustParseAddrPort("192.0.2.1:80"))
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), "annot ") {
			t.Errorf("%s on an address that is not there: %v", s.name, err)
		}
		if _, err := s.start(n, 0); err == nil || !strings.Contains(err.Error(), "no address") {
			t.Errorf("%s without an address: %v", s.name, err)
		}
	}
}

// A request that comes later overtakes in the proxy's queue, but not what is at the
// origin already.
func TestHAProxyPutsSourcesInOrder(t *testing.T) {
	n := nettest.Namespace(t, "proxy")
	origin, front := netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("127.0.0.1:80")
	var listener net.Listener
	nettest.Check(t, n.Do(func() (err error) {
		listener, err = net.Listen("tcp", origin.String())
		return err
	}))
	asked, release := make(chan string, 3), make(chan struct{})
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		<-release
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	_, err := n.StartHAProxy(lab.HAProxyConfig{
		Listen: []netip.AddrPort{front}, Origin: origin, MaxConn: 1,
		Priorities: []lab.HAProxyPriority{
			{From: netip.MustParsePrefix("127.0.0.2/32"), Priority: -10},
			{From: netip.MustParsePrefix("127.0.0.0/8"), Priority: 10},
		},
	})
	nettest.Check(t, err)
	send := func(from, path string) {
		t.Helper()
		var conn net.Conn
		nettest.Check(t, n.Do(func() (err error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			conn, err = d.Dial("tcp", front.String())
			return err
		}))
		t.Cleanup(func() { conn.Close() })
		_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
		nettest.Check(t, err)
		time.Sleep(200 * time.Millisecond) // until it is in the queue
	}
	send("127.0.0.3", "/first")
	send("127.0.0.3", "/low")
	send("127.0.0.2", "/high")
	for _, want := range []string{"/first", "/high", "/low"} {
		select {
		case got := <-asked:
			if got != want {
				t.Errorf("the origin is asked for %s, want %s", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("nobody asks for %s", want)
		}
		release <- struct{}{}
	}
}

func TestApacheCGI(t *testing.T) {
	n := nettest.Namespace(t, "cgi")
	listen := netip.MustParseAddrPort("127.0.0.1:80")
	script := "#!/bin/sh\nprintf 'Content-Type: text/plain\\r\\nContent-Length: 8\\r\\n\\r\\nnarthex\\n'\n"
	_, err := n.StartApache(lab.ApacheConfig{Listen: []netip.AddrPort{listen}, MPM: lab.Prefork, Workers: 2, CGI: script})
	nettest.Check(t, err)
	var conn net.Conn
	nettest.Check(t, n.Do(func() (err error) {
		conn, err = net.Dial("tcp", listen.String())
		return err
	}))
	defer conn.Close()
	nettest.Check(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", lab.CGIPath)
	nettest.Check(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	nettest.Check(t, err)
	body, err := io.ReadAll(resp.Body)
	nettest.Check(t, err)
	if string(body) != "narthex\n" || resp.ContentLength != 8 {
		t.Errorf("%q of length %d, want %q with its length", body, resp.ContentLength, "narthex\n")
	}
	if _, err := n.StartApache(lab.ApacheConfig{Listen: []netip.AddrPort{listen}, CGI: script}); err == nil {
		t.Error("the event MPM has mod_cgi")
	}
}
