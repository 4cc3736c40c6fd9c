// SPDX-License-Identifier: Apache-2.0

package generator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/lab/reexec"
	"narthex/test/attack"
	"narthex/test/generator"
	"narthex/test/nettest"
)

func TestMain(m *testing.M) {
	reexec.Main()
	os.Exit(m.Run())
}

// patience bounds waits for what must happen soon; it is no figure.
const patience = 20 * time.Second

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

var madeUp = netip.MustParsePrefix("198.18.0.0/16")

const (
	closing = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	keeping = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
)

// scene is a lab with a server's address.
type scene struct {
	*lab.Lab
	t  testing.TB
	to netip.AddrPort
}

func newScene(t testing.TB) *scene {
	t.Helper()
	rig := nettest.Lab(t, 1)
	return &scene{rig, t, netip.AddrPortFrom(rig.ServerV4, 80)}
}

// config is for a generator of the scene.
func (s *scene) config(request string, rate int) generator.Config {
	cpus, err := lab.CPUs()
	nettest.Check(s.t, err)
	return generator.Config{
		Client: s.Client, Server: s.Server, From: madeUp, To: s.to,
		Request: request, Rate: rate, CPU: cpus[len(cpus)-1], Seed: 1,
	}
}

func start(t testing.TB, cfg generator.Config) *generator.Generator {
	t.Helper()
	g, err := generator.Start(t.Context(), cfg)
	nettest.Check(t, err)
	t.Cleanup(func() {
		if err := g.Stop(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func counts(t testing.TB, g *generator.Generator) generator.Counts {
	t.Helper()
	c, err := g.Counts()
	nettest.Check(t, err)
	return c
}

// atLeast runs a generator until it has sent so many SYNs, and returns what came of them all.
func atLeast(t testing.TB, g *generator.Generator, n uint64, settled func(generator.Counts) bool) generator.Counts {
	t.Helper()
	eventually(t, "SYNs", func() bool { return counts(t, g).SYNs >= n })
	g.SetRate(-1)
	var c generator.Counts
	defer func() {
		if t.Failed() {
			t.Logf("%+v", c)
		}
	}()
	eventually(t, "what comes of them", func() bool { c = counts(t, g); return settled(c) })
	return c
}

// sockets lists those that the server has for the generator's connections.
func (s *scene) sockets() string {
	s.t.Helper()
	out, err := s.Server.Command("ss", "-Htna", "dst", madeUp.String()).CombinedOutput()
	nettest.Check(s.t, err)
	return string(out)
}

// gone waits until the server has no socket left.
func (s *scene) gone() {
	s.t.Helper()
	eventually(s.t, "no socket at the server", func() bool { return s.sockets() == "" })
}

// get asks the server through a kernel.
func (s *scene) get(path string) (body []byte) {
	s.t.Helper()
	conn, err := attack.Dial(s.t.Context(), s.Client, s.ClientsV4[0], s.to)
	nettest.Check(s.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET "+path+" HTTP/1.0\r\n\r\n")
	nettest.Check(s.t, err)
	answer, err := io.ReadAll(conn)
	nettest.Check(s.t, err)
	head, body, _ := bytes.Cut(answer, []byte("\r\n\r\n"))
	if !bytes.HasPrefix(head, []byte("HTTP/1.")) || !bytes.Contains(head, []byte(" 200 ")) {
		s.t.Fatalf("%s was answered with %.80q", path, answer)
	}
	return body
}

// Each connection is a whole exchange with a real server, counted once, and leaves nothing there.
func TestExchanges(t *testing.T) {
	for name, request := range map[string]string{"close": closing, "keep-alive": keeping, "HTTP/1.0": "GET / HTTP/1.0\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			nettest.Nginx(t, s.Server, s.to)
			g := start(t, s.config(request, 1000))
			c := atLeast(t, g, 200, func(c generator.Counts) bool { return c.Answers[200] == c.SYNs })
			s.gone()
			c = counts(t, g)
			if c.SYNACKs != c.SYNs || c.Requests != c.SYNs || c.Resets != 0 || c.Stale != 0 || len(c.Answers) != 1 {
				t.Errorf("not one exchange each: %+v", c)
			}
			if whole := request != keeping; whole && c.Ends != c.SYNs {
				t.Errorf("%d of %d answers came to their ends", c.Ends, c.SYNs)
			}
		})
	}
}

// Every request reaches the server as it is, from addresses of the prefix, each but once.
func TestRequests(t *testing.T) {
	s := newScene(t)
	_, err := origin.Start(s.Server, origin.Config{Listen: []netip.AddrPort{s.to}})
	nettest.Check(t, err)
	path := "/" + strings.Repeat("a", 100) // odd in length
	longest := "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: "
	longest += strings.Repeat("y", generator.MaxRequest-len(longest)-4) + "\r\n\r\n"
	g := start(t, s.config(longest, 2000))
	c := atLeast(t, g, 300, func(c generator.Counts) bool { return c.Answers[200] == c.SYNs })
	var asked []origin.Request
	nettest.Check(t, json.Unmarshal(s.get("/asked"), &asked))
	from := map[netip.Addr]bool{}
	for _, r := range asked {
		if r.URI == path {
			from[r.From.Addr()] = true
			if !madeUp.Contains(r.From.Addr()) {
				t.Errorf("a request from %s", r.From)
			}
		}
	}
	if uint64(len(from)) != c.SYNs {
		t.Errorf("%d addresses asked, want %d", len(from), c.SYNs)
	}
	s.gone()
}

// Statuses are counted as they are.
func TestStatuses(t *testing.T) {
	s := newScene(t)
	_, err := s.Server.StartNginx(lab.NginxConfig{Listen: []netip.AddrPort{s.to}, Backend: "127.0.0.1:1"})
	nettest.Check(t, err)
	for path, status := range map[string]int{"/none": 404, "/wait": 502} {
		g := start(t, s.config("GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 1000))
		c := atLeast(t, g, 100, func(c generator.Counts) bool { return c.Answered() == c.SYNs })
		if want := map[int]uint64{status: c.SYNs}; !maps.Equal(c.Answers, want) {
			t.Errorf("%s: answers %v, want %v", path, c.Answers, want)
		}
		nettest.Check(t, g.Stop())
	}
}

func TestNobodyListens(t *testing.T) {
	s := newScene(t)
	g := start(t, s.config(closing, 1000))
	c := atLeast(t, g, 200, func(c generator.Counts) bool { return c.Resets == c.SYNs })
	if c.Requests != 0 || len(c.Answers) != 0 {
		t.Errorf("requests without a server: %+v", c)
	}
}

// SYNs alone are answered, and that is all.
func TestSYNs(t *testing.T) {
	s := newScene(t)
	nettest.Nginx(t, s.Server, s.to)
	g := start(t, s.config("", 1000))
	c := atLeast(t, g, 100, func(c generator.Counts) bool { return c.SYNACKs >= c.SYNs })
	if c.Requests != 0 || c.Resets != 0 {
		t.Errorf("more than SYNs: %+v", c)
	}
	if sockets := s.sockets(); !strings.Contains(sockets, "SYN-RECV") || strings.Contains(sockets, "ESTAB") {
		t.Errorf("not half-open connections alone: %q", sockets)
	}
}

// Clients with a kernel use the same device while it runs, and large answers reach them.
func TestOtherClients(t *testing.T) {
	s := newScene(t)
	const body = 3_000_000
	_, err := origin.Start(s.Server, origin.Config{Listen: []netip.AddrPort{s.to}, Body: body})
	nettest.Check(t, err)
	g := start(t, s.config("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 500))
	for range 5 {
		if got := s.get("/"); len(got) != body {
			t.Fatalf("%d bytes came, want %d", len(got), body)
		}
	}
	c := atLeast(t, g, 100, func(c generator.Counts) bool { return c.Answers[200] == c.SYNs })
	if c.Resets != 0 || c.Ends != c.SYNs {
		t.Errorf("exchanges beside other clients: %+v", c)
	}
}

// attached tells whether the client's device has an XDP program.
func (s *scene) attached() bool {
	device, err := s.Client.Link(lab.Dev)
	nettest.Check(s.t, err)
	x := device.Attrs().Xdp
	return x != nil && x.Attached
}

// Nothing stays on the device, and a later run takes no notice of an earlier one, whose
// connections it ends.
func TestOneAfterTheOther(t *testing.T) {
	s := newScene(t)
	_, err := origin.Start(s.Server, origin.Config{Listen: []netip.AddrPort{s.to}})
	nettest.Check(t, err)
	first, err := generator.Start(t.Context(), s.config("GET /wait?for=later HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 500))
	nettest.Check(t, err)
	if !s.attached() {
		t.Error("no program on the device")
	}
	waiting := atLeast(t, first, 50, func(c generator.Counts) bool { return c.Requests == c.SYNs })
	eventually(t, "requests at the server", func() bool { return uint64(strings.Count(s.sockets(), "ESTAB")) == waiting.SYNs })
	for range 2 {
		nettest.Check(t, first.Stop())
	}
	if s.attached() {
		t.Error("the program is still on the device")
	}
	if c := counts(t, first); c.SYNs != waiting.SYNs || c.Answered() != 0 {
		t.Errorf("after the end %+v, before %+v", c, waiting)
	}

	cfg := s.config(closing, 500)
	cfg.Seed = 2
	ctx, cancel := context.WithCancel(t.Context())
	second, err := generator.Start(ctx, cfg)
	nettest.Check(t, err)
	atLeast(t, second, 50, func(c generator.Counts) bool { return c.Answers[200] == c.SYNs })
	s.get("/go?for=later")
	s.gone()
	if c := counts(t, second); c.Stale < waiting.SYNs || c.Answers[200] != c.SYNs {
		t.Errorf("%+v, with %d connections of an earlier run", c, waiting.SYNs)
	}
	cancel()
	eventually(t, "no program after the end of the context", func() bool { return !s.attached() })
	nettest.Check(t, second.Stop())
}

// The end of a namespace is the end of a generator, and no error, whichever goes first.
func TestEndsWithTheLab(t *testing.T) {
	for _, server := range []bool{false, true} {
		s := newScene(t)
		g := start(t, s.config("", 1000))
		eventually(t, "SYNs", func() bool { return counts(t, g).SYNs > 0 })
		if server {
			nettest.Check(t, s.Server.Close())
		}
		nettest.Check(t, s.Lab.Close())
		nettest.Check(t, g.Stop())
	}
}
