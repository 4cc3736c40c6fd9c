// SPDX-License-Identifier: Apache-2.0

package reading

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"narthex/internal/lab"
)

// marker is the request that is sent behind another, to find where that ends.
const marker = "GET /marker HTTP/1.1\r\nHost: marker\r\n\r\n"

// patience bounds how long a server may take.
const patience = 10 * time.Second

// Answer is one of a server's answers on a connection.
type Answer struct {
	Status int
	Said   string // of the connection: "close", "keep-alive" or nothing
	Framed bool   // it says how long its body is
	Seen   *Seen  // nil: it did not serve the request
}

// Exchange is what came back on a connection.
type Exchange struct {
	Answers []Answer
	Err     string // "": the server closed it behind a whole answer
}

// froms numbers connections, so that no two of some time have the same ports.
var froms atomic.Uint32

// moment is how long a server may take before it is taken to wait for more.
const moment = time.Second

// ask sends a request over a connection of its own, the marker once that is answered, as the gate would let it in, and
// then nothing more, and reads all that the server answers. Where only the first answer matters it sends all at once. It
// must be called in the namespace.
func (s *Server) ask(j *job) (Exchange, error) {
	n := froms.Add(1)
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(n>>8), byte(n))}, Timeout: patience}
	conn, err := d.Dial("tcp", s.at.String())
	if err != nil {
		return Exchange{}, err
	}
	defer conn.Close()
	talk := &dialogue{server: s, conn: conn.(*net.TCPConn), head: j.gate.method == http.MethodHead}
	_ = talk.conn.SetLinger(0)
	talk.send(j.wire)
	if j.gate.Refused == "" {
		talk.await(1, moment)
	}
	talk.send([]byte(marker))
	if j.gate.Refused == "" && len(talk.parse().Answers) > 0 {
		talk.await(2, moment)
	}
	_ = talk.conn.CloseWrite()
	if !talk.await(1<<20, patience) {
		return Exchange{Err: "it neither answers nor closes"}, nil
	}
	return talk.parse(), talk.err
}

// dialogue is a connection and what has come over it.
type dialogue struct {
	server *Server
	conn   *net.TCPConn
	head   bool // the first request is HEAD
	got    []byte
	err    error // other than its end
	closed bool
}

// send sends text. A server that has refused what came before need not take it.
func (d *dialogue) send(text []byte) { _, _ = d.conn.Write(text) }

func (d *dialogue) parse() Exchange { return d.server.parse(d.got, d.head) }

// await reads until there are so many answers, or the connection has ended. False: neither has come in time.
func (d *dialogue) await(answers int, within time.Duration) bool {
	_ = d.conn.SetReadDeadline(time.Now().Add(within))
	for chunk := make([]byte, 4096); !d.closed; {
		n, err := d.conn.Read(chunk)
		d.got = append(d.got, chunk[:n]...)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		d.closed = err != nil
		if err != nil && err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
			d.err = err
		}
		if len(d.parse().Answers) >= answers {
			return true
		}
	}
	return true
}

// parse reads answers, of which the first is to HEAD or not.
func (s *Server) parse(got []byte, head bool) (e Exchange) {
	for r := bufio.NewReader(bytes.NewReader(got)); ; {
		if _, err := r.Peek(1); err != nil {
			return e
		}
		asked := &http.Request{Method: http.MethodGet}
		if head && len(e.Answers) == 0 {
			asked.Method = http.MethodHead
		}
		resp, err := http.ReadResponse(r, asked)
		if err != nil {
			e.Err = err.Error()
			return e
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			e.Err = "answer cut off"
			return e
		}
		a := Answer{Status: resp.StatusCode, Said: saidOf(resp), Framed: resp.Header.Get("Content-Length") != "" || len(resp.TransferEncoding) > 0}
		if resp.StatusCode < 300 && asked.Method != http.MethodHead {
			if seen, err := s.read(resp, body); err == nil {
				a.Seen = &seen
			}
		}
		e.Answers = append(e.Answers, a)
		if asked.Method == http.MethodHead && a.Status >= 400 {
			return e // some say why at length all the same
		}
	}
}

// saidOf is what an answer says of its connection.
func saidOf(resp *http.Response) string {
	said := strings.ToLower(strings.Join(resp.Header["Connection"], ","))
	switch {
	case strings.Contains(said, "close"), resp.Close:
		return "close"
	case strings.Contains(said, "keep-alive"):
		return "keep-alive"
	}
	return ""
}

// twice sends a request over a connection of its own, the marker behind it, and then nothing more.
func (s *Server) twice(ns *lab.Namespace, request string) (e Exchange, err error) {
	err = ns.Do(func() error {
		conn, err := net.DialTimeout("tcp", s.at.String(), patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		talk := &dialogue{server: s, conn: conn.(*net.TCPConn), head: strings.HasPrefix(request, "HEAD ")}
		talk.send([]byte(request))
		talk.await(1, patience)
		talk.send([]byte(marker))
		_ = talk.conn.CloseWrite()
		if talk.await(1<<20, patience); !talk.closed {
			return errors.New("it neither answers nor closes")
		}
		e = talk.parse()
		return nil
	})
	return e, err
}
