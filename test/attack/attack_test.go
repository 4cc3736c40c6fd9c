// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/lab/reexec"
	"narthex/test/attack"
	"narthex/test/nettest"
)

func TestMain(m *testing.M) {
	reexec.Main()
	os.Exit(m.Run())
}

// patience bounds waits for what must happen soon; it is no figure.
const patience = 20 * time.Second

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// madeUp are the sources of floods.
func madeUp(v6 bool) netip.Prefix {
	if v6 {
		return netip.MustParsePrefix("2001:db8:18::/64")
	}
	return netip.MustParsePrefix("198.18.0.0/15")
}

// scene is a lab with an origin.
type scene struct {
	*lab.Lab
	t  *testing.T
	to netip.AddrPort
}

func newScene(t *testing.T, v6, vlan, offloads bool) *scene {
	t.Helper()
	rig := nettest.Lab(t, 1)
	s := &scene{rig, t, netip.AddrPortFrom(rig.ServerV4, 80)}
	if v6 {
		s.to = netip.AddrPortFrom(rig.ServerV6, 80)
	}
	for _, n := range []*lab.Namespace{rig.Server, rig.Client} {
		for _, o := range []lab.Offload{lab.RxChecksum, lab.TxChecksum, lab.TSO, lab.GSO, lab.GRO, lab.TxVLAN, lab.RxVLAN} {
			nettest.Check(t, n.SetOffload(lab.Dev, o, offloads))
		}
		if vlan {
			nettest.Check(t, n.TagFrames(lab.Dev, lab.VLANTag{ID: 10}))
		}
	}
	_, err := origin.Start(rig.Server, origin.Config{Listen: []netip.AddrPort{s.to}})
	nettest.Check(t, err)
	return s
}

// connections counts those that the server's kernel has in a state.
func (s *scene) connections(state string) int {
	s.t.Helper()
	out, err := s.Server.Command("ss", "-Htn", "state", state, "sport", "=", ":80").CombinedOutput()
	nettest.Check(s.t, err)
	return bytes.Count(out, []byte("\n"))
}

// asked returns how often the server was asked for a path.
func (s *scene) asked(path string) (n int) {
	s.t.Helper()
	conn, err := attack.Dial(s.t.Context(), s.Server, netip.Addr{}, s.to)
	nettest.Check(s.t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /asked HTTP/1.0\r\n\r\n")
	nettest.Check(s.t, err)
	answer, err := io.ReadAll(conn)
	nettest.Check(s.t, err)
	_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	var requests []origin.Request
	nettest.Check(s.t, json.Unmarshal([]byte(body), &requests))
	for _, r := range requests {
		if r.URI == path {
			n++
		}
	}
	return n
}

// start starts an attack, which ends with the test.
func start(t *testing.T, a interface {
	Start(context.Context) (*attack.Run, error)
}) *attack.Run {
	t.Helper()
	r, err := a.Start(t.Context())
	nettest.Check(t, err)
	t.Cleanup(func() {
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// A flood's packets are what a server takes for clients, whatever is on the wire.
func TestFloods(t *testing.T) {
	t.Parallel()
	const n = 50
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []bool{false, true} {
			for _, offloads := range []bool{false, true} {
				t.Run(fmt.Sprintf("v6=%v/VLAN=%v/offloads=%v", v6, vlan, offloads), func(t *testing.T) {
					s := newScene(t, v6, vlan, offloads)
					flood := attack.Flood{Link: attack.Over(s.Lab), From: madeUp(v6), To: s.to, Pace: attack.Pace{Count: n, Rate: 5000, Seed: 1}}
					silent := start(t, flood)
					nettest.Check(t, silent.Wait())
					eventually(t, "half-open connections", func() bool { return s.connections("syn-recv") > 0 })
					if got := s.connections("established"); got != 0 {
						t.Errorf("SYNs alone made %d connections", got)
					}

					flood.IdleConnects, flood.Seed = true, 2
					idle := start(t, flood)
					nettest.Check(t, idle.Wait())
					eventually(t, "idle connections", func() bool { return s.connections("established") == n })
					nettest.Check(t, idle.Stop())
					if got := idle.Counts(); got.Sent != n || got.Answered < n {
						t.Errorf("%+v, want %d SYNs and their handshakes", got, n)
					}

					flood.Request, flood.Seed = "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n", 3
					asking := start(t, flood)
					eventually(t, "requests at the server", func() bool { return s.asked("/flood") == n })
					nettest.Check(t, asking.Stop())
					if v6 {
						return
					}

					flood.Request, flood.Broken, flood.Seed = "GET /dropped HTTP/1.1\r\nHost: x\r\n\r\n", true, 4
					dropped := start(t, flood)
					nettest.Check(t, dropped.Wait())
					eventually(t, "answers", func() bool { return dropped.Counts().Answered >= n })
					nettest.Check(t, dropped.Stop())
					if got := s.asked("/dropped"); got != 0 {
						t.Errorf("the server got %d requests that its stack is to drop", got)
					}
				})
			}
		}
	}
}

func TestPaceBoundsRateAndCount(t *testing.T) {
	t.Parallel()
	s := newScene(t, false, false, true)
	const rate, n = 2000, 500
	began := time.Now()
	r := start(t, attack.Packets{Link: attack.Over(s.Lab), Pace: attack.Pace{Rate: rate, Count: n}, Make: func(g *attack.Segment, _ uint64, _ *rand.Rand) {
		*g = attack.Segment{From: netip.AddrPortFrom(s.ClientsV4[0], 5), To: s.to, Flags: attack.RST}
	}})
	nettest.Check(t, r.Wait())
	if took, least := time.Since(began), n*time.Second/rate; took < least {
		t.Errorf("sent within %v, sooner than %v", took, least)
	}
	if got := r.Counts().Sent; got != n {
		t.Errorf("sent %d, want %d", got, n)
	}
}

// A forger who knows just the numbers hurts; one who does not, does not. So the packets
// are what they should be.
func TestForgery(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		s := newScene(t, v6, false, true)
		from := netip.MustParseAddrPort("10.77.9.9:4000")
		if v6 {
			from = netip.MustParseAddrPort("[fd77::9:9]:4000")
		}
		p := nettest.Peer(t, s.Lab, lab.PeerConfig{From: from, To: s.to})
		nettest.Check(t, p.Connect(patience))
		nettest.Check(t, p.Send([]byte("GET /a HTTP/1.1\r\nHost: x\r\n\r\n")))
		eventually(t, "the request", func() bool { return s.asked("/a") == 1 })
		victim := attack.Victim{From: p.From, To: p.To, Next: p.Next, Ack: p.SYNACK.Seq + 1}
		for kind := range attack.Kind(attack.Kinds) {
			for aim := range attack.Aim(attack.Aims) {
				if kind == attack.ForgeRST && aim == attack.Exact {
					continue // what it acknowledges does not count
				}
				f := start(t, attack.Forgery{Link: attack.Over(s.Lab), Kind: kind, Aim: aim, Victims: []attack.Victim{victim}, Pace: attack.Pace{Count: 100}})
				nettest.Check(t, f.Wait())
				if got := s.connections("established"); got != 1 {
					t.Fatalf("%s, %s: %d connections are left", kind, aim, got)
				}
			}
		}
		exact := start(t, attack.Forgery{Link: attack.Over(s.Lab), Kind: attack.ForgeRST, Aim: attack.Exact, Victims: []attack.Victim{victim}, Pace: attack.Pace{Count: 1}})
		nettest.Check(t, exact.Wait())
		eventually(t, "the connection is gone", func() bool { return s.connections("established") == 0 })
		if got := s.asked("/forged"); got != 0 {
			t.Errorf("the server was asked %d times by forgers", got)
		}
	}
}

func TestSlowClients(t *testing.T) {
	t.Parallel()
	const n = 20
	s := newScene(t, false, false, true)
	crowd := attack.Crowd{NS: s.Client, From: s.ClientsV4, To: s.to, Clients: n}
	posts := start(t, attack.SlowPosts{Crowd: crowd, Path: "/echo"})
	eventually(t, "posts are begun", func() bool { return posts.Counts().Asked == n && s.asked("/echo") == n })
	nettest.Check(t, posts.Stop())

	drips := start(t, attack.SlowPosts{Crowd: crowd, Path: "/echo", Length: 5, Drip: 10 * time.Millisecond})
	eventually(t, "posts come to an end", func() bool { return drips.Counts().Served >= n })
	nettest.Check(t, drips.Stop())

	heads := start(t, attack.SlowHeads{Crowd: crowd, Every: 5 * time.Millisecond, Head: "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"})
	eventually(t, "heads come to an end", func() bool { return s.asked("/slow") >= n && heads.Counts().Served >= n })
	nettest.Check(t, heads.Stop())

	silent := start(t, attack.Silent{Crowd: crowd})
	eventually(t, "connections", func() bool { return s.connections("established") == n && silent.Counts().Open == n })
	if got := silent.Counts(); got.Asked != 0 {
		t.Errorf("%+v, want %d that say nothing", got, n)
	}
	nettest.Check(t, silent.Stop())
	eventually(t, "no connections", func() bool { return s.connections("established") == 0 })
}

func TestLeavers(t *testing.T) {
	t.Parallel()
	s := newScene(t, false, false, true)
	for way := range attack.AnyWay + 1 {
		path := fmt.Sprintf("/left-%d", way)
		r := start(t, attack.Leavers{
			Crowd:   attack.Crowd{NS: s.Client, To: s.to, Clients: 5, Seed: 7},
			Request: "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n", After: 20 * time.Millisecond, Way: way,
		})
		eventually(t, "they come again", func() bool { return s.asked(path) > 10 })
		nettest.Check(t, r.Stop())
		if got := r.Counts(); got.Asked <= 10 || got.Open != 0 {
			t.Errorf("way %d: %+v", way, got)
		}
	}
	eventually(t, "nobody is left", func() bool { return s.connections("established") == 0 })
}

func TestTLSIdlers(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	to := netip.AddrPortFrom(rig.ServerV4, 443)
	var l net.Listener
	nettest.Check(t, rig.Server.Do(func() (err error) {
		l, err = net.Listen("tcp", to.String())
		return err
	}))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	server.Listener.Close()
	server.Listener = l
	server.TLS = &tls.Config{}
	server.StartTLS()
	defer server.Close()
	const n = 10
	r := start(t, attack.TLSIdlers{Crowd: attack.Crowd{NS: rig.Client, To: to, Clients: n}})
	eventually(t, "all are answered", func() bool { return r.Counts().Served == n })
	if got := r.Counts(); got.Open != n || got.Connected != n {
		t.Errorf("%+v, want %d connections", got, n)
	}
	nettest.Check(t, r.Stop())
	more := start(t, attack.TLSIdlers{Crowd: attack.Crowd{NS: rig.Client, To: to, Clients: n}, Every: 10 * time.Millisecond})
	eventually(t, "they ask again", func() bool { c := more.Counts(); return c.Served > 5*n && c.Connected == n })
}
