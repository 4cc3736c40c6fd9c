// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// fate is what becomes of a request.
type fate string

const (
	reached   fate = "served"   // by the server
	turned    fate = "rejected" // as the service's reject says
	cutOff    fate = "reset"
	ambiguous fate = "400"
	tooLarge  fate = "431"
	unheard   fate = "no answer"
)

// ruled is one daemon with request rules before several servers, on both versions of IP.
type ruled struct {
	*instance
	t      *testing.T
	v4, v6 *scene
	ports  map[string]uint16 // of services
}

// newRuled makes the namespaces, in which an origin serves the ports and its control is in IPv4.
func newRuled(t *testing.T, ports map[string]uint16, origins ...string) *ruled {
	t.Helper()
	s := newScene(t, plain, false)
	s6 := *s
	s6.v6, s6.to = true, netip.AddrPortFrom(s.rig.ServerV6, s.to.Port())
	for _, w := range []who{gold, bronze, free} {
		nettest.Check(t, s.client.AddAddr(lab.Dev, s6.prefix(w)))
	}
	r := &ruled{t: t, v4: s, v6: &s6, ports: ports}
	cfg := origin.Config{Control: []netip.AddrPort{s.tell}}
	for _, name := range origins {
		cfg.Listen = append(cfg.Listen, r.listen(name)...)
	}
	if len(origins) > 0 {
		_, err := origin.Start(s.server, cfg)
		nettest.Check(t, err)
	}
	return r
}

// listen are the addresses of a service.
func (r *ruled) listen(service string) []netip.AddrPort {
	return []netip.AddrPort{r.at(r.t, service, false).to, r.at(r.t, service, true).to}
}

// at is a service as clients of a subtest see it.
func (r *ruled) at(t *testing.T, service string, v6 bool) *scene {
	s := *r.v4
	if v6 {
		s = *r.v6
	}
	s.t = t
	s.to = netip.AddrPortFrom(s.to.Addr(), r.ports[service])
	return &s
}

// enforce starts the daemon.
func (r *ruled) enforce(policy string, args ...string) {
	r.t.Helper()
	r.instance = start(r.t, r.v4.server, policy, args...)
	r.t.Cleanup(func() {
		if r.t.Failed() && r.cmd != nil {
			r.t.Logf("status at the end:\n%s", narthex(r.t, r.command("status")...).stdout)
		}
	})
}

// service returns the status of a service.
func (r *ruled) service(name string) api.ServiceStatus {
	r.t.Helper()
	for _, s := range r.status().Services {
		if s.Name == name && s.RoomStatus != nil {
			return s
		}
	}
	r.t.Fatalf("no service %q with a waiting room in the status", name)
	return api.ServiceStatus{}
}

// awaits waits until so many are in service and wait.
func (r *ruled) awaits(service string, inService, waiting int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d of %s in service, %d waiting", inService, service, waiting), func() bool {
		s := r.service(service)
		return s.InService == inService && s.Waiting == waiting
	})
}

// ledger is what rules and classes should have counted.
type ledger struct {
	mu      sync.Mutex
	rules   map[string]datapath.Counts
	arrived map[string]uint64 // by service and class
}

// opened begins with what has been counted so far.
func (r *ruled) opened() *ledger {
	r.t.Helper()
	l := &ledger{rules: map[string]datapath.Counts{}, arrived: map[string]uint64{}}
	s := r.status()
	for _, rule := range s.Requests {
		l.rules[rule.Name] = rule.Counts.Counts
	}
	for _, service := range s.Services {
		if service.RoomStatus == nil {
			continue
		}
		for _, c := range service.Classes {
			l.arrived[service.Name+"/"+c.Name] = c.Arrived
		}
	}
	return l
}

// counts adds to what a rule should have counted.
func (l *ledger) counts(rule string, more datapath.Counts) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.rules[rule]
	c.Passed += more.Passed
	c.Dropped += more.Dropped
	c.WouldDrop += more.WouldDrop
	l.rules[rule] = c
}

// arrives adds to what should have arrived of a class.
func (l *ledger) arrives(service, class string, n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.arrived[service+"/"+class] += n
}

// agrees compares the ledger with the status.
func (r *ruled) agrees(t *testing.T, want *ledger) {
	t.Helper()
	got := r.opened()
	for name, counts := range want.rules {
		if got.rules[name] != counts {
			t.Errorf("rule %q counted %+v, want %+v", name, got.rules[name], counts)
		}
	}
	if !maps.Equal(got.arrived, want.arrived) {
		t.Errorf("arrived: %v, want %v", got.arrived, want.arrived)
	}
}

// marks tells requests apart: the query string of each has another one.
var marks atomic.Uint64

func mark() string { return fmt.Sprintf("?mark=%d.", marks.Add(1)) }

// query is a request in parts.
type query struct {
	method, path, host string // GET and "x" if empty
	headers            string // whole lines
	body               string // in its form on the wire
	version            string // 1.1 if empty
}

func (q query) String() string {
	return fmt.Sprintf("%s %s HTTP/%s\r\nHost: %s\r\n%s\r\n%s", or(q.method, "GET"), q.path, or(q.version, "1.1"), or(q.host, "x"), q.headers, q.body)
}

// to is a request for a target, with further lines of the head.
func to(target string, lines ...string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: x\r\n" + strings.Join(append(lines, ""), "\r\n") + "\r\n"
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// tries sends text cut at the given places, until the other end resets the connection.
func (v *visitor) tries(text string, cuts ...int) error {
	from := 0
	for _, cut := range append(cuts, len(text)) {
		if _, err := io.WriteString(v.conn, text[from:cut]); err != nil {
			return err // which reading will not return once more
		}
		if from = cut; from < len(text) {
			time.Sleep(time.Millisecond) // so that the kernel does not put them together
		}
	}
	return nil
}

// meets reads one answer, unless sending has failed, and says what has become of the request.
func (v *visitor) meets(err error) fate {
	var resp *http.Response
	if err == nil {
		resp, _, err = v.answer()
	}
	switch {
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return cutOff
	case err != nil:
		return fate(fmt.Sprintf("%s: %v", unheard, err))
	case resp.Header.Get("Refused-By") == "narthex" && resp.Close && resp.Header.Get("Retry-After") != "":
		return turned
	case resp.Header.Get("Date") != "" || resp.Header.Get("Content-Type") != "":
		return reached
	case resp.StatusCode == http.StatusBadRequest && resp.Close:
		return ambiguous
	case resp.StatusCode == http.StatusRequestHeaderFieldsTooLarge && resp.Close:
		return tooLarge
	}
	return fate(resp.Status)
}

// whether the origin was asked for what has the mark.
func (s *scene) sawMark(mark string) bool {
	s.t.Helper()
	for _, uri := range s.asked() {
		if strings.Contains(uri, mark) {
			return true
		}
	}
	return false
}
