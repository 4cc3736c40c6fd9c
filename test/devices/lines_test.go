// SPDX-License-Identifier: Apache-2.0

//go:build vm

package devices

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// lines are what happens to packets both ways, as netem has it. What it corrupts the gate sees, and
// the stack does not take.
var lines = []struct{ name, netem string }{
	{"slow", "delay 10ms 5ms"},
	{"loses", "delay 2ms loss 3%"},
	{"loses in bursts", "delay 2ms loss gemodel 1% 30%"},
	{"reorders", "delay 5ms reorder 70% 50%"},
	{"duplicates", "delay 2ms duplicate 10%"},
	{"corrupts", "delay 2ms corrupt 2%"},
	{"does all that", "delay 5ms 2ms loss 1% duplicate 2% corrupt 1% reorder 80%"},
}

// linePolicy has fewer places than clients, for plain and for encrypted requests, and one service that refuses
// with a page of several segments.
const linePolicy = `
version: 1
services:
  - {name: web, listen: "*:80", concurrency: 2, queue: {max_wait: 1m}}
  - {name: secure, listen: "*:443", protocol: tls, concurrency: 2, queue: {max_wait: 1m}}
  - {name: closed, listen: "*:82"}
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
answers: {closed: {status: 503, page: closed.txt}}
requests:
  - {name: closed, to: closed, path: "*", action: reject, answer: closed}
  - {name: gold, header: {X-Plan: gold}, class: gold}
`

// Whatever a line does to packets, every client gets its answer, whole, and nothing is left.
func TestLines(t *testing.T) {
	for _, line := range lines {
		t.Run(line.name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			s := newScene(t)
			s.connect(lab.Dev)
			s.listen()
			s.both("tc qdisc add dev eth0 root netem limit 10000 " + line.netem)
			s.both("ethtool -K eth0 tso off gso off gro off")
			s.in = start(t, s.server, linePolicy, file{"closed.txt", refusal})
			s.clients()
			s.emptied()
		})
	}
}

// listen gives the devices addresses, and starts a server for each service.
func (s *scene) listen() {
	s.t.Helper()
	s.address()
	for _, port := range []int{80, 82, 443} {
		_, err := origin.Start(s.server, origin.Config{
			Listen: []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), uint16(port))}, TLS: port == 443,
		})
		nettest.Check(s.t, err)
	}
}

// habit is what a client does on a connection.
type habit struct {
	name string
	do   func(c *caller) error
}

var habits = []habit{
	{"asks once", func(c *caller) error { return c.get(true) }},
	{"asks again", func(c *caller) error { return repeat(5, func() error { return c.get(false) }) }},
	{"asks ahead", (*caller).ahead},
	{"asks at length", (*caller).atLength},
	{"asks in pieces", (*caller).inPieces},
	{"uploads", func(c *caller) error { return repeat(3, c.upload) }},
	{"uploads chunks", func(c *caller) error { return repeat(3, c.chunks) }},
	{"asks before it uploads", (*caller).expect},
}

func repeat(n int, do func() error) error {
	for i := range n {
		if err := do(); err != nil {
			return fmt.Errorf("the %d. time: %w", i+1, err)
		}
	}
	return nil
}

// clients lets each habit have clients of both services and families, at once.
func (s *scene) clients() {
	s.t.Helper()
	const each = 3 // connections, one after the other
	var all sync.WaitGroup
	for _, addr := range []netip.Addr{serverV4, serverV6} {
		for _, port := range []uint16{80, 443} {
			for _, h := range habits {
				all.Go(func() {
					for range each {
						if err := s.call(netip.AddrPortFrom(addr, port), h.do); err != nil {
							s.t.Errorf("a client of %s that %s: %v", netip.AddrPortFrom(addr, port), h.name, err)
						}
					}
				})
			}
		}
		all.Go(func() {
			for range each * 3 {
				if err := s.call(netip.AddrPortFrom(addr, 82), (*caller).refused); err != nil {
					s.t.Errorf("a client that is refused over %s: %v", addr, err)
				}
			}
		})
	}
	all.Wait()
}

// caller is a client with a connection.
type caller struct {
	conn net.Conn
	r    *bufio.Reader
}

// call connects, over TLS where the port is that of TLS, and does something.
func (s *scene) call(to netip.AddrPort, do func(c *caller) error) error {
	conn, err := dial(s.client, bronze.address(to.Addr()), to, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	if to.Port() == 443 {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // of a certificate made up for the test
	}
	if err := conn.SetDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		return err
	}
	return do(&caller{conn, bufio.NewReader(conn)})
}

const lineHead = " HTTP/1.1\r\nHost: lines\r\n"

// say writes something at once.
func (c *caller) say(text string) error {
	_, err := io.WriteString(c.conn, text)
	return err
}

// answer reads an answer, which has the status.
func (c *caller) answer(status int) (body []byte, err error) {
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != status {
		err = fmt.Errorf("%s: %.80q", resp.Status, body)
	}
	return body, err
}

// page reads the server's default answer.
func (c *caller) page() error {
	body, err := c.answer(http.StatusOK)
	if err == nil && (len(body) != lab.FileBytes || !bytes.Equal(body, bytes.Repeat([]byte("narthex\n"), lab.FileBytes/8))) {
		err = fmt.Errorf("%d bytes that are not the page", len(body))
	}
	return err
}

func (c *caller) get(last bool) error {
	closes := ""
	if last {
		closes = "Connection: close\r\n"
	}
	return errors.Join(c.say("GET /page"+lineHead+closes+"\r\n"), c.page())
}

// ahead asks for all before it reads anything.
func (c *caller) ahead() error {
	const asked = 8
	return errors.Join(c.say(strings.Repeat("GET /ahead"+lineHead+"\r\n", asked)), repeat(asked, c.page))
}

// atLength has a head of several segments.
func (c *caller) atLength() error {
	return repeat(3, func() error {
		return errors.Join(c.say("GET /length"+lineHead+"Cookie: c="+strings.Repeat("x", 5000)+"\r\nX-Plan: gold\r\n\r\n"), c.page())
	})
}

// inPieces pauses inside of its head.
func (c *caller) inPieces() error {
	return repeat(3, func() error {
		head := "GET /pieces" + lineHead + "X-Plan: gold\r\n\r\n"
		for len(head) > 0 {
			n := min(len(head), 1+rand.IntN(30))
			if err := c.say(head[:n]); err != nil {
				return err
			}
			head = head[n:]
			time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
		}
		return c.page()
	})
}

// uploaded is a body that no two parts of are alike.
func uploaded() []byte {
	body := make([]byte, 20_000+rand.IntN(80_000))
	for i := range body {
		body[i] = byte(rand.Uint32())
	}
	return body
}

// summed reads what the server says of a body.
func (c *caller) summed(body []byte) error {
	got, err := c.answer(http.StatusOK)
	if want := origin.Sum(int64(len(body)), crc32.ChecksumIEEE(body)); err == nil && strings.TrimSpace(string(got)) != want {
		err = fmt.Errorf("the server got %q of %q", got, want)
	}
	return err
}

func (c *caller) upload() error {
	body := uploaded()
	return errors.Join(c.say(fmt.Sprintf("POST /sum%sContent-Length: %d\r\n\r\n%s", lineHead, len(body), body)), c.summed(body))
}

// chunks sends chunks of any size, some one by one and some many at once.
func (c *caller) chunks() error {
	body := uploaded()
	w := bufio.NewWriterSize(c.conn, 1+rand.IntN(20_000))
	fmt.Fprintf(w, "POST /sum%sTransfer-Encoding: chunked\r\n\r\n", lineHead)
	for rest := body; len(rest) > 0; {
		n := min(len(rest), 1+rand.IntN(9000))
		fmt.Fprintf(w, "%x\r\n%s\r\n", n, rest[:n])
		rest = rest[n:]
	}
	fmt.Fprint(w, "0\r\n\r\n")
	return errors.Join(w.Flush(), c.summed(body))
}

// expect waits to be told to go on.
func (c *caller) expect() error {
	body := uploaded()
	head := fmt.Sprintf("POST /sum%sExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", lineHead, len(body))
	if err := c.say(head); err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil || resp.StatusCode != http.StatusContinue {
		return fmt.Errorf("%+v, %w; want to be told to go on", resp, err)
	}
	return errors.Join(c.say(string(body)), c.summed(body))
}

// refused gets the page for those who are refused, whole, and then the end.
func (c *caller) refused() error {
	if err := c.say("GET /closed" + lineHead + "\r\n"); err != nil {
		return err
	}
	body, err := c.answer(http.StatusServiceUnavailable)
	if err == nil && !bytes.Equal(body, refusal) {
		err = fmt.Errorf("%d bytes that are not the page for it", len(body))
	}
	return err
}

// refusal takes several segments.
var refusal = bytes.Repeat([]byte("The site is closed. "), 500)

// emptied waits until nobody is in service and no slot is taken.
func (s *scene) emptied() {
	s.t.Helper()
	var status api.Status
	if !within(patience, func() bool {
		status = s.in.status()
		left := 0
		for _, service := range status.Services {
			left += service.InService + service.Waiting
		}
		return left == 0 && status.WaitingRoom.FreeSlots == status.WaitingRoom.Slots
	}) {
		s.t.Errorf("left: %+v, %+v", status.WaitingRoom, status.Services)
	}
	s.t.Logf("packets by reason: %+v", status.Reasons)
}
