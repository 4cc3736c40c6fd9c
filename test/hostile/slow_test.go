// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"time"

	"narthex/internal/lab"
	"narthex/test/attack"
	"narthex/test/nettest"
)

// slow are clients that hold what they are given, and give nothing.
var slow = []hostile{
	{name: "slow posts", inexact: true, begin: func(r *round) {
		path := "/wait?ms=1" // to be passed on, with the whole body
		if r.server == "go" {
			path = "/echo"
		}
		posts := r.attack(attack.SlowPosts{Crowd: r.crowd(10 * concurrency), Path: path})
		eventually(r.t, "all have begun, and none is in service", func() bool {
			return posts.Counts().Asked >= 10*concurrency && r.read().class("web", "mob").Paused >= 10*concurrency
		})
	}},
	// Without their class's max they would take all places.
	{name: "dripping posts", without: []event{far, classes}, inexact: true, begin: func(r *round) {
		r.attack(attack.SlowPosts{Crowd: r.crowd(5 * concurrency), Path: "/wait?ms=1", Length: 30, Drip: 50 * time.Millisecond})
	}},
	{name: "heads byte by byte", inexact: true, begin: func(r *round) {
		r.attack(attack.SlowHeads{Crowd: r.crowd(2 * queueSize), Every: 100 * time.Millisecond})
	}},
	{name: "heads that never end", inexact: true, begin: func(r *round) {
		begin := "GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("a", 4000)
		r.attack(attack.SlowHeads{Crowd: r.crowd(2 * queueSize), Begin: begin, Head: begin + strings.Repeat("b", 4000), Every: 100 * time.Millisecond})
	}},
	{name: "heads that come in small pieces", begin: func(r *round) {
		head := closing("x", r.file(0))
		c := r.crowd(10)
		c.Once = true
		heads := r.attack(attack.SlowHeads{Crowd: c, Head: strings.Replace(head, "run=", "piece=", 1), Every: time.Millisecond})
		eventually(r.t, "all are served", func() bool { return heads.Counts().Served == 10 })
	}},
	{name: "heads that are too long", begin: func(r *round) {
		for i := range 20 {
			v := r.visit(i%2, mob, 80)
			_, err := v.conn.Write([]byte("GET /forged HTTP/1.1\r\nHost: x\r\nCookie: " + strings.Repeat("c", 20_000) + "\r\n\r\n"))
			nettest.Check(r.t, err)
			status, _, err := v.answer()
			if err != nil || status != http.StatusRequestHeaderFieldsTooLarge {
				r.t.Errorf("a head of 20,000 bytes: status %d, error %v; want 431", status, err)
			}
			v.conn.Close()
		}
	}},
	{name: "idle browsers over TLS", inexact: true, begin: func(r *round) {
		if !r.starts(443) {
			return
		}
		c := r.crowd(10 * concurrency)
		c.To = r.to(r.attackers, 443)
		idle := r.attack(attack.TLSIdlers{Crowd: c})
		eventually(r.t, "all are served", func() bool { return idle.Counts().Served == 10*concurrency })
		r.atEnd(func() {
			if got := idle.Counts(); got.Open != 10*concurrency || got.Ended != 0 {
				r.t.Errorf("idle browsers: %+v", got)
			}
			r.browse()
		})
	}},
	{name: "silent connections to a service of any protocol", inexact: true, begin: func(r *round) {
		r.starts(7007)
		c := r.crowd(10 * concurrency)
		c.To = r.to(r.attackers, 7007)
		idle := r.attack(attack.Silent{Crowd: c})
		eventually(r.t, "all have entered", func() bool { got := r.read().class("tcp", "mob"); return got.Admitted+got.Released >= 10*concurrency })
		r.atEnd(func() {
			nettest.Check(r.t, whole(r.visit(r.attackers, gold, 7007).fetch(lab.File)))
			if idle.Counts().Open == 0 {
				r.t.Error("no silent connection is left")
			}
		})
	}},
}

// starts starts the scene's server on another port, unless it cannot do what is needed there.
func (r *round) starts(port uint16) bool {
	r.t.Helper()
	if port == 443 && r.server == "apache-prefork" {
		return false // as it comes here it has no TLS
	}
	if !r.started[port] {
		r.serve(port, 0)
		r.started[port] = true
	}
	return true
}

// browse asks over TLS as an ordinary client.
func (r *round) browse() {
	r.t.Helper()
	v := r.visit(r.attackers, gold, 443)
	c := tls.Client(v.conn, &tls.Config{InsecureSkipVerify: true, ServerName: lab.ServerName})
	_, err := fmt.Fprint(c, closing(v.host, lab.File))
	nettest.Check(r.t, err)
	v.r.Reset(c)
	nettest.Check(r.t, whole(v.answer()))
	c.Close()
}
