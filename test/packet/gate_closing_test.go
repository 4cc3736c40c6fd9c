// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"fmt"
	"strings"
	"testing"

	"narthex/internal/datapath"
)

var asksToClose = passesFor("asked_to_close")

// shownClosing is a request as a server is shown it that is to close the connection behind its answer.
func shownClosing(asked string) string {
	at := strings.Index(strings.ToLower(asked), "keep-alive")
	if strings.Contains(strings.ToLower(asked), "\nconnection: ") && at > 0 {
		return asked[:at] + "     close" + asked[at+10:]
	}
	return strings.Replace(asked, "HTTP/1.1", "HTTP/1.0", 1)
}

// A server whose workers stay with connections is asked to close each of them behind its answer, in whatever way the
// request lets it be asked.
func TestGateAsksToClose(t *testing.T) {
	g := newGate(t)
	long := strings.Repeat("x: "+strings.Repeat("y", 95)+"\r\n", 9)
	for _, asked := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\nConnection: Keep-Alive\r\nAccept: */*\r\n\r\n",
		"GET /a HTTP/1.1\r\nHost: x\r\n" + long + "Connection: keep-alive\r\n\r\n",
		"GET / HTTP/1.1\r\n" + long + "Connection: \tKEEP-ALIVE , te\r\n\r\n",
		"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
		"POST /a HTTP/1.1\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
	} {
		shown := shownClosing(asked)
		for _, base := range []string{lowBase, v6Base} {
			name := fmt.Sprintf("%.30q %d %s", asked, len(asked), base)
			t.Run("passes "+name, func(t *testing.T) {
				r := g.room(t, "concurrency: auto")
				r.steer(t, datapath.Control{Limit: 1, Closes: true})
				c := r.clientAt(t, base)
				c.passesAs(c.frame(c.says(asked)), c.frame(c.says(shown)), serves.and(known, asksToClose))
			})
			t.Run("passes without a limit "+name, func(t *testing.T) {
				r := g.room(t, "concurrency: auto")
				r.steer(t, datapath.Control{Closes: true})
				c := r.clientAt(t, base)
				c.passesAs(c.frame(c.says(asked)), c.frame(c.says(shown)), serves.and(known, asksToClose))
			})
			t.Run("passes on a connection that was kept "+name, func(t *testing.T) {
				r := g.room(t, "concurrency: auto")
				r.steer(t, datapath.Control{})
				c := r.clientAt(t, base)
				c.asks(get, serves.and(known))
				c.replies(ok, ends)
				r.steer(t, datapath.Control{Closes: true})
				c.passesAs(c.frame(c.says(asked)), c.frame(c.says(shown)), serves.and(asksToClose))
			})
			t.Run("waits "+name, func(t *testing.T) {
				r := g.room(t, "concurrency: auto")
				r.steer(t, datapath.Control{Limit: 1, Closes: true})
				first, c := r.client(t), r.clientAt(t, base)
				first.passesAs(first.frame(first.says(get)), first.frame(first.says(shownClosing(get))), serves.and(known, asksToClose))
				first.Next += uint32(len(get))
				c.drops(c.says(asked), waits.and(known, asksToClose))
				first.replies(ok, ends)
				c.released(c.frame(c.says(shown)))
			})
			t.Run("again "+name, func(t *testing.T) {
				r := g.room(t, "concurrency: auto")
				r.steer(t, datapath.Control{Limit: 2, Closes: true})
				c := r.clientAt(t, base)
				c.loses(c.says(asked), serves.and(known, asksToClose))
				c.passesAs(c.frame(c.says(asked)), c.frame(c.says(shown)), asksToClose)
			})
			head := strings.Index(asked, "\r\n\r\n")
			for _, at := range []int{10, strings.Index(asked, "HTTP") + 5, head - 3, head + 2} {
				t.Run(fmt.Sprintf("in pieces from %d on: %s", at, name), func(t *testing.T) {
					r := g.room(t, "concurrency: auto")
					r.steer(t, datapath.Control{Limit: 1, Closes: true})
					c := r.clientAt(t, base)
					s := c.says(asked[:at])
					c.acknowledged(s, s.Seq+uint32(at), gathers.and(known))
					res := c.send(after(s, asked[at:]), turns.and(asksToClose))
					res.is(t, tcxNext, c.frame(c.says(shown)))
					c.lands(res)
				})
			}
		}
	}
}

// It is not asked by what it would read otherwise then, nor where nobody says so any more.
func TestGateDoesNotAskToClose(t *testing.T) {
	g := newGate(t)
	for _, asked := range []string{
		"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
		"GET / HTTP/1.1\r\nConnection: keep-alive, close\r\n\r\n",
		"GET / HTTP/1.0\r\n\r\n",
		"GET / HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"PUT / HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
	} {
		r := g.room(t, "concurrency: auto")
		r.steer(t, datapath.Control{Limit: 1, Closes: true})
		c := r.client(t)
		c.passes(c.says(asked), serves.and(known))
	}
	r := g.room(t, "concurrency: auto")
	r.steer(t, datapath.Control{Limit: 1})
	c := r.client(t)
	c.asks(get, serves.and(known))
	c.replies(ok, ends)
	r.steer(t, datapath.Control{Limit: 1, Closes: true, Grace: 1})
	c.asks(get, serves)
}

// What a class may have in service holds nothing while the limit is given up, for as long as somebody says so.
func TestGateGivesUpWhatAClassMayHave(t *testing.T) {
	g := newGate(t)
	for _, tt := range []struct {
		steered datapath.Control
		most    int // requests in service
	}{
		{datapath.Control{Closes: true}, 1},
		{datapath.Control{Closes: true, GivenUp: true}, 3},
		{datapath.Control{Closes: true, GivenUp: true, Grace: 1}, 1},
	} {
		for _, concurrency := range []string{"auto", "unlimited"} {
			r := g.room(t)
			policy := fmt.Sprintf(roomPolicy, r.port-8000, r.port, ", queue: {max_wait: 60s}, concurrency: "+concurrency)
			r.apply(t, strings.Replace(policy, "priority: 2}", "priority: 2, max: 1}", 1))
			r.steer(t, tt.steered)
			asks, shown := asksToClose, shownClosing(get)
			if tt.steered.Grace == 1 {
				asks, shown = change{}, get
			}
			for range tt.most {
				c := r.clientAt(t, lowBase)
				c.passesAs(c.frame(c.says(get)), c.frame(c.says(shown)), serves.and(known, asks))
			}
			if tt.most == 1 {
				c := r.clientAt(t, lowBase)
				c.drops(c.says(get), waits.and(known, asks))
			}
		}
	}
}

// Where the limit is the policy's the server is asked as well. Meanwhile more may be in service, for those that wait for
// workers: nothing else raises that limit, nor does anything lower it.
func TestGateAsksToCloseAtAFixedLimit(t *testing.T) {
	g := newGate(t)
	for _, tt := range []struct {
		steered datapath.Control
		asked   bool // the server is asked
		most    int  // requests in service
	}{
		{datapath.Control{Limit: 3}, false, 2},
		{datapath.Control{Limit: 1, Closes: true}, true, 2},
		{datapath.Control{Limit: 3, Closes: true}, true, 3},
		{datapath.Control{Limit: 0, Closes: true}, true, 2},
		{datapath.Control{Limit: 3, Closes: true, Grace: 1}, false, 2},
	} {
		for _, base := range []string{lowBase, v6Base} {
			r := g.room(t, "concurrency: 2")
			r.steer(t, tt.steered)
			shown, asks := get, change{}
			if tt.asked {
				shown, asks = shownClosing(get), asksToClose
			}
			for range tt.most {
				c := r.clientAt(t, base)
				c.passesAs(c.frame(c.says(get)), c.frame(c.says(shown)), serves.and(known, asks))
			}
			c := r.clientAt(t, base)
			c.drops(c.says(get), waits.and(known, asks))
		}
	}
}
