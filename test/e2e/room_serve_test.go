// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// Requests that had to wait are served whole, by any server, over any wire.
func TestRoomServes(t *testing.T) {
	t.Parallel()
	type way struct {
		wire wire
		v6   bool
	}
	ways := []way{{plain, false}, {plain, true}, {vlan, false}, {vlan, true}, {lo, false}, {lo, true}}
	for i, server := range roomServers {
		for j, w := range ways {
			if (i+j)%2 == 1 { // each way has every other server, each server every other way
				continue
			}
			family := "IPv4"
			if w.v6 {
				family = "IPv6"
			}
			t.Run(fmt.Sprintf("%s/%s/%s", server.name, w.wire, family), func(t *testing.T) {
				s := sharedScene(t, w.wire, w.v6)
				origin := server.start(s)
				r := s.enforce(roomPolicy{})
				r.holdsAndServes(origin)
			})
		}
	}
}

// holdsAndServes has eight clients ask while the server does nothing, so that seven are
// held, and then lets it serve them.
func (r *room) holdsAndServes(server *lab.Server) {
	r.t.Helper()
	const clients = 8
	before := r.read().sum()
	var all sync.WaitGroup
	r.t.Cleanup(all.Wait)
	resume := r.pause(server)
	for i := range clients {
		all.Add(1)
		go func() {
			defer all.Done()
			r.curl(who(2+i%2), lab.File)
		}()
	}
	r.await(1, clients-1)
	resume()
	all.Wait()
	r.await(0, 0)
	got := r.read().sum()
	if got.Arrived-before.Arrived != clients || got.Held-before.Held != clients-1 || got.Released-before.Released != clients-1 {
		r.t.Errorf("%+v, want %d arrived, all but one held and released", got, clients)
	}
	r.calm()
}

// curl fetches the file and checks it. It may be called on any goroutine.
func (s *scene) curl(w who, path string) {
	body := filepath.Join(s.t.TempDir(), "body")
	cmd := s.client.Command("curl", "-sS", "--max-time", "30", "--interface", s.addr(w).String(),
		"-o", body, "-w", "%{http_code}", "http://"+s.to.String()+path)
	out, err := cmd.CombinedOutput()
	got, readErr := os.ReadFile(body)
	if err != nil || readErr != nil || string(out) != "200" || !bytes.Equal(got, lab.FileContent()) {
		s.t.Errorf("curl: %q, %d bytes, error %v", out, len(got), err)
	}
}

// Where checksums and segmentation are done decides what a held packet's bytes are.
func TestRoomOffloads(t *testing.T) {
	t.Parallel()
	const (
		client = 1
		server = 2
	)
	for i, c := range []struct {
		name     string
		offloads []lab.Offload
		ends     int
	}{
		{"all off", []lab.Offload{lab.RxChecksum, lab.TxChecksum, lab.TSO, lab.GSO, lab.GRO, lab.TxVLAN, lab.RxVLAN}, client | server},
		{"all off at the server", []lab.Offload{lab.RxChecksum, lab.TxChecksum, lab.TSO, lab.GSO, lab.GRO}, server},
		{"all off at the client", []lab.Offload{lab.RxChecksum, lab.TxChecksum, lab.TSO, lab.GSO, lab.GRO}, client},
		{"no tx checksum at the client", []lab.Offload{lab.TxChecksum}, client},
		{"no rx checksum at the server", []lab.Offload{lab.RxChecksum}, server},
		{"no segmentation at the server", []lab.Offload{lab.TSO, lab.GSO}, server},
	} {
		for j, w := range []wire{plain, vlan} {
			if i > 0 && (i+j)%2 == 1 { // all off on both wires, the others on one each
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", c.name, w), func(t *testing.T) {
				s := newScene(t, w, false)
				for _, o := range c.offloads {
					if c.ends&server != 0 {
						nettest.Check(t, s.server.SetOffload(lab.Dev, o, false))
					}
					if c.ends&client != 0 {
						nettest.Check(t, s.client.SetOffload(lab.Dev, o, false))
					}
				}
				server := s.origin(origin.Config{})
				r := s.enforce(roomPolicy{})
				r.holdsAndServes(server)
				r.echoes(1 << 20)
			})
		}
	}
}

// echoes has two clients send a body and compare what comes back.
func (r *room) echoes(length int) {
	r.t.Helper()
	var all sync.WaitGroup
	for i := range 2 {
		body := strings.Repeat(fmt.Sprintf("%07d\n", i), length/8)
		v := r.visit(who(2 + i))
		all.Add(1)
		go func() {
			defer all.Done()
			if _, err := v.conn.Write([]byte(postHead(v.host, "/echo", len(body)) + body)); err != nil {
				r.t.Errorf("%s: %v", v.who, err)
				return
			}
			resp, got, err := v.answer()
			if err != nil || resp.StatusCode != http.StatusOK || string(got) != body {
				r.t.Errorf("%s: %v, %d bytes of %d, error %v", v.who, resp, len(got), len(body), err)
			}
		}()
	}
	all.Wait()
	r.calm()
}

// A load generator sees nothing but slower answers.
func TestRoomUnderLoad(t *testing.T) {
	t.Parallel()
	for _, server := range roomServers[:4] {
		t.Run(server.name, func(t *testing.T) {
			s := sharedScene(t, plain, false)
			server.start(s)
			r := s.enforce(roomPolicy{service: "concurrency: 2"})
			out, err := s.client.Command("wrk", "-t1", "-c32", "-d3s", "--timeout", "10s", "http://"+s.to.String()+lab.File).CombinedOutput()
			if err != nil || strings.Contains(string(out), "Socket errors") || strings.Contains(string(out), "Non-2xx") {
				t.Errorf("wrk: %v\n%s", err, out)
			}
			if got := r.read().sum(); got.Held == 0 {
				t.Errorf("nobody was held: %+v", got)
			}
			r.calm()
		})
	}
}
