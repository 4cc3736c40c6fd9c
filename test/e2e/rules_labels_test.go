// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/datapath"
)

// Proxies at the addresses of free clients are trusted to say who asks.
const labelsPolicy = `
version: 1
services:
  - {name: app, listen: ["*:80"], concurrency: 8, labels: [header, socket], socket_mark: 0x100, trusted_proxies: [10.77.4.0/24, "fd77::4:0/112"]}
  - {name: deaf, listen: ["*:8080"], concurrency: 8}
  - {name: ruled, listen: ["*:8081"], concurrency: 8, labels: header}
  - {name: free, listen: ["*:8082"], concurrency: unlimited, labels: header}
classes:
  - {name: gold, priority: 1}
  - {name: silver, priority: 2}
  - {name: bronze, priority: 3}
%s`

type connKey struct{}

// labelling is an application: it says what the query tells it to, in one piece or byte by byte, or by its
// socket.
func labelling(w http.ResponseWriter, req *http.Request) {
	q := req.URL.Query()
	conn := req.Context().Value(connKey{}).(*net.TCPConn)
	raw, err := conn.SyscallConn()
	if err != nil {
		panic(err)
	}
	for name, option := range map[string]int{"mark": unix.SO_MARK, "priority": unix.SO_PRIORITY} {
		if n, err := strconv.Atoi(q.Get(name)); err == nil {
			_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option, n) })
			if err != nil {
				panic(err)
			}
		}
	}
	if label := q.Get("label"); label != "" {
		w.Header().Set("Narthex-Class", label)
	}
	if q.Get("cut") == "" {
		return
	}
	hijacked, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer hijacked.Close()
	head := "HTTP/1.1 200 OK\r\nContent-Type: x\r\nnarthex-class: " + q.Get("label") + "\r\nConnection: close\r\n\r\n"
	for i := range head {
		_, _ = hijacked.Write([]byte{head[i]})
		time.Sleep(time.Millisecond)
	}
}

// newLabels starts the application at all services.
func newLabels(t *testing.T, more string) *ruled {
	t.Helper()
	r := newRuled(t, map[string]uint16{"app": 80, "deaf": 8080, "ruled": 8081, "free": 8082})
	server := &http.Server{
		Handler:     http.HandlerFunc(labelling),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	for name := range r.ports {
		r.at(t, name, false).runs(server)
		r.at(t, name, true).runs(server)
	}
	r.enforce(fmt.Sprintf(labelsPolicy, more))
	return r
}

// labels has the application say something on a connection.
func (v *visitor) labels(query string, lines ...string) {
	v.t.Helper()
	v.send(to("/?"+strings.NewReplacer(" ", "%20", ";", "%3B").Replace(query), lines...))
	v.wants(200)
}

// The application says of what class the next requests of a connection are, and those of its client. A rule that
// gives a class counts more.
func TestLabels(t *testing.T) {
	t.Parallel()
	for _, v6 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v6=%v", v6), func(t *testing.T) {
			t.Parallel()
			r := newLabels(t, `
requests:
  - {name: slow, path: "/slow*", class: silver}
`)
			s := r.at(t, "app", v6)
			l := r.opened()
			v := s.visit(gold)
			v.labels("label=gold")
			l.arrives("app", "bronze", 1)
			for range 2 {
				v.labels("")
				l.arrives("app", "gold", 1)
			}
			v.send(to("/slow"))
			v.wants(200)
			l.arrives("app", "silver", 1)
			l.counts("slow", datapath.Counts{Passed: 1})
			v.labels("label=silver")
			l.arrives("app", "gold", 1)
			v.labels("label=golden") // there is none
			v.labels("label=gold x")
			l.arrives("app", "silver", 2)
			s.visit(gold).labels("label=gold; for=10m")
			l.arrives("app", "bronze", 1)
			r.agrees(t, l)

			s.visit(gold).labels("label=silver; for=1m") // also less
			l.arrives("app", "gold", 1)
			v.labels("")
			s.visit(gold).labels("label=gold; for=1s")
			l.arrives("app", "silver", 2)
			time.Sleep(1100 * time.Millisecond)
			s.visit(gold).labels("")
			l.arrives("app", "bronze", 1)
			if got := r.status().Reasons["no_class"].Passed; got != 2 {
				t.Errorf("%d labels were of no class, want 2", got)
			}
			r.agrees(t, l)

			s.visit(bronze).labels("label=gold;for=1h&cut=1")
			s.visit(bronze).labels("")
			l.arrives("app", "bronze", 1)
			l.arrives("app", "gold", 1)
			r.agrees(t, l)
			said := narthex(t, r.command("explain", "--from", s.addr(bronze).String(), "--to", s.to.String())...).stdout
			if !strings.Contains(said, "class gold") {
				t.Errorf("explain says of a client that is labelled gold:\n%s", said)
			}
		})
	}
}

// Where a policy does not ask for them nobody hears labels, and a connection rule's class counts more.
func TestLabelsUnheard(t *testing.T) {
	t.Parallel()
	r := newLabels(t, `
connections:
  - {name: known, from: [10.77.3.0/24], class: silver}
`)
	l := r.opened()
	s := r.at(t, "deaf", false)
	for range 2 {
		v := s.visit(gold)
		v.labels("label=gold; for=1h")
		v.labels("")
		l.arrives("deaf", "bronze", 2)
	}
	s = r.at(t, "ruled", false)
	for range 2 {
		v := s.visit(bronze)
		v.labels("label=gold; for=1h&mark=256")
		v.labels("")
		l.arrives("ruled", "silver", 1)
		l.arrives("ruled", "gold", 1)
	}
	r.agrees(t, l)
	// What an application has said of a client counts wherever it is heard.
	r.at(t, "app", false).visit(gold).labels("label=gold; for=1h")
	r.at(t, "ruled", false).visit(gold).labels("")
	s = r.at(t, "deaf", false)
	s.visit(gold).labels("")
	l.arrives("app", "bronze", 1)
	l.arrives("ruled", "gold", 1)
	l.arrives("deaf", "bronze", 1)
	r.agrees(t, l)
	// Where nobody ever waits, too: classes are counted, and rules may come.
	s = r.at(t, "free", false)
	v := s.visitAs(bronze, 1)
	v.labels("label=gold")
	v.labels("")
	l.arrives("free", "silver", 1)
	l.arrives("free", "gold", 1)
	r.agrees(t, l)
}

// The application says it by its socket.
func TestLabelsOfSockets(t *testing.T) {
	t.Parallel()
	r := newLabels(t, "")
	l := r.opened()
	s := r.at(t, "app", false)
	v := s.visit(gold)
	for _, c := range []struct{ query, next string }{
		{"", "bronze"},
		{"mark=256", "gold"},
		{"", "bronze"}, // as before: it says nothing
		{"mark=257", "silver"},
		{"mark=300", "bronze"}, // of no class
		{"mark=258", "bronze"},
		{"priority=6", "gold"},
		{"priority=2", "bronze"},
		{"priority=5", "bronze"},
		{"priority=6&label=silver", "silver"}, // what it says in words counts more
	} {
		v.labels(c.query)
		l.arrives("app", "bronze", 1)
		v.labels("")
		l.arrives("app", c.next, 1)
		v.labels("label=bronze")
		l.arrives("app", c.next, 1)
		r.agrees(t, l)
	}
	s.visit(gold).labels("") // it was of the connection
	l.arrives("app", "bronze", 1)
	r.agrees(t, l)
}

// Of a trusted proxy's connection a label says nothing, for it has many clients; it is its client's who was named.
func TestLabelsBehindProxies(t *testing.T) {
	t.Parallel()
	r := newLabels(t, "")
	l := r.opened()
	s := r.at(t, "app", false)
	v := s.visit(free)
	const one, other = "X-Forwarded-For: 203.0.113.1", "X-Forwarded-For: 203.0.113.2"
	v.labels("label=gold; for=1h", one)
	v.labels("", other)
	v.labels("label=gold; for=1h")
	v.labels("")
	l.arrives("app", "bronze", 4)
	v.labels("", one)
	s.visit(free).labels("", one)
	l.arrives("app", "gold", 2)
	s.visit(free).labels("", other)
	l.arrives("app", "bronze", 1)
	r.agrees(t, l)
}
