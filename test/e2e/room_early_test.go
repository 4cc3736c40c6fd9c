// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/test/nettest"
)

// halves is a server of which one answer stops in the middle, and another does not begin,
// until it is told to go on.
func halves(s *scene) (goOn, begin chan struct{}) {
	s.t.Helper()
	goOn, begin = make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/halves", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "hello")
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, "world")
	})
	mux.HandleFunc("/busy", func(http.ResponseWriter, *http.Request) { <-begin })
	mux.HandleFunc("/next", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") })
	s.handle(mux)
	return goOn, begin
}

// Who asks while the answer before pauses has to ask again when it is over, and is held then like anybody;
// nothing of the waiting room falls into that answer.
func TestRoomAskedInAPause(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	goOn, begin := halves(s)
	r := s.enforce(roomPolicy{service: "queue: {max_wait: 10s}"})
	early, other := r.visit(bronze), r.visit(gold)
	early.get("/halves")
	r.await(0, 0) // its answer has begun
	other.get("/busy")
	r.await(1, 0)
	if _, err := early.r.Peek(1); err != nil {
		t.Fatal(err)
	}
	before := r.dropped("pipelined")
	early.get("/next")
	eventually(t, "it is dropped", func() bool { return r.dropped("pipelined") > before })
	r.await(1, 0)
	goOn <- struct{}{}
	if _, body := early.wants(http.StatusOK); string(body) != "helloworld" {
		t.Errorf("the answer is %q", body)
	}
	r.await(1, 1)
	begin <- struct{}{}
	other.wants(http.StatusOK)
	if _, body := early.wants(http.StatusOK); string(body) != "next" {
		t.Errorf("the next answer is %q", body)
	}
	early.conn.Close()
	other.conn.Close()
	r.await(0, 0)
}

// dropped is how many packets were dropped for a reason.
func (r *room) dropped(reason string) int {
	r.t.Helper()
	return int(r.status().Reasons[reason].Dropped)
}

// crowded counts who is with the server, and the most at once.
type crowded struct{ now, most atomic.Int64 }

func (c *crowded) enter() {
	n := c.now.Add(1)
	for most := c.most.Load(); n > most && !c.most.CompareAndSwap(most, n); most = c.most.Load() {
	}
}

func (c *crowded) leave() { c.now.Add(-1) }

// streams is a server whose answers to /stream come in chunks, with a pause in the middle until it is told to
// go on, and whose answers to /work take a while. Returned are how many of each there are at once.
func streams(s *scene) (goOn chan struct{}, stream, work *crowded) {
	s.t.Helper()
	goOn, stream, work = make(chan struct{}), &crowded{}, &crowded{}
	mux := http.NewServeMux()
	mux.HandleFunc("/stream", func(w http.ResponseWriter, _ *http.Request) {
		stream.enter()
		defer stream.leave()
		for range 3 {
			_, _ = io.WriteString(w, "0\r\n\r\n") // looks like the last chunk
			_ = http.NewResponseController(w).Flush()
		}
		<-goOn
		_, _ = io.WriteString(w, "more")
	})
	mux.HandleFunc("/work", func(w http.ResponseWriter, _ *http.Request) {
		work.enter()
		defer work.leave()
		time.Sleep(20 * time.Millisecond)
		_, _ = io.WriteString(w, "done")
	})
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	s.handle(mux)
	return goOn, stream, work
}

// handle has a server of this process answer at the service.
func (s *scene) handle(h http.Handler) {
	s.t.Helper()
	s.runs(&http.Server{Handler: h})
}

// runs has a server of this process answer at the service, over TLS if it has a certificate.
func (s *scene) runs(server *http.Server) {
	s.t.Helper()
	var l net.Listener
	nettest.Check(s.t, s.server.Do(func() (err error) {
		l, err = net.Listen("tcp", s.to.String())
		return err
	}))
	if c := server.TLSConfig; c != nil && len(c.Certificates) > 0 { // without, Serve has made it
		l = tls.NewListener(l, server.TLSConfig)
	}
	go func() { _ = server.Serve(l) }()
	s.t.Cleanup(func() { _ = server.Close() })
}

// However many ask in the pauses of streaming answers, no more are let in than there are places: what the server
// says on is no answer to them.
func TestRoomStreamsAskedInPauses(t *testing.T) {
	t.Parallel()
	for _, ends := range []string{"auto", "first_byte", "last_byte"} {
		t.Run(ends, func(t *testing.T) {
			const limit, clients = 4, 40
			s := sharedScene(t, plain, false)
			goOn, _, work := streams(s)
			r := s.enforce(roomPolicy{service: fmt.Sprintf("concurrency: %d, service_ends: %s", limit, ends)})
			n := clients
			if ends == "last_byte" {
				n = limit // others wait until these are over
			}
			var all []*visitor
			for range n {
				v := r.visit(bronze)
				v.get("/stream")
				if _, err := v.r.Peek(1); err != nil {
					t.Fatal(err)
				}
				all = append(all, v)
			}
			in := 0
			if ends == "last_byte" {
				in = limit
			}
			r.await(in, 0)
			before := r.dropped("pipelined")
			for _, v := range all {
				v.get("/work")
			}
			eventually(t, "all are dropped", func() bool { return r.dropped("pipelined") >= before+n })
			r.await(in, 0)
			close(goOn)
			for _, v := range all {
				if _, body := v.wants(http.StatusOK); len(body) != 3*5+4 {
					t.Errorf("a stream of %d bytes", len(body))
				}
			}
			for _, v := range all {
				if _, body := v.wants(http.StatusOK); string(body) != "done" {
					t.Errorf("the answer behind a stream is %q", body)
				}
				v.conn.Close()
			}
			if most := work.most.Load(); most > limit {
				t.Errorf("%d were at the server at once, the limit is %d", most, limit)
			}
			r.calm()
		})
	}
}

// With last_byte a stream keeps its place until the last chunk, on connections that live on, too.
func TestRoomStreamsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	const limit, clients = 8, 64
	s := sharedScene(t, plain, false)
	var at crowded
	s.handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		at.enter()
		defer at.leave()
		for range 5 {
			_, _ = io.WriteString(w, "part")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(10 * time.Millisecond)
		}
	}))
	r := s.enforce(roomPolicy{service: fmt.Sprintf("concurrency: %d, service_ends: last_byte, queue: {max_service: 5m}", limit)})
	var all sync.WaitGroup
	for i := range clients {
		v := r.visit(who(2 + i%2))
		all.Go(func() {
			for range 3 {
				v.get("/")
				if _, body := v.wants(http.StatusOK); len(body) != 20 {
					t.Errorf("a stream of %d bytes", len(body))
				}
			}
			v.conn.Close()
		})
	}
	all.Wait()
	if most := at.most.Load(); most != limit {
		t.Errorf("%d were at the server at once, the limit is %d", most, limit)
	}
	r.calm()
}

// A client that takes its answers in tiny pieces cannot have a part of an interim one taken for the answer.
func TestRoomInterimInPieces(t *testing.T) {
	t.Parallel()
	const limit, clients = 4, 32
	s := sharedScene(t, plain, false)
	var at crowded
	s.handle(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		at.enter()
		defer at.leave()
		_, _ = io.Copy(io.Discard, req.Body) // says 100 Continue
		time.Sleep(20 * time.Millisecond)
		_, _ = io.WriteString(w, "done")
	}))
	r := s.enforce(roomPolicy{service: fmt.Sprintf("concurrency: %d, service_ends: first_byte", limit)})
	nettest.Check(t, s.client.Sysctl("ipv4/tcp_rmem", "4096 4096 4096"))
	s.changed = true
	var all sync.WaitGroup
	for range clients {
		v := r.visit(bronze)
		conn, err := tcpConn(v.conn)
		nettest.Check(t, err)
		raw, err := conn.SyscallConn()
		nettest.Check(t, err)
		nettest.Check(t, raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, 4)
		}))
		nettest.Check(t, err)
		all.Go(func() {
			v.send("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
			v.wants(http.StatusContinue)
			v.send("ab")
			if _, body := v.wants(http.StatusOK); string(body) != "done" {
				t.Errorf("the answer is %q", body)
			}
			v.conn.Close()
		})
	}
	all.Wait()
	if most := at.most.Load(); most > limit {
		t.Errorf("%d were at the server at once, the limit is %d", most, limit)
	}
	r.calm()
}

// A long interim answer, and the answer in the same segment: the request is over, and so is the next.
func TestRoomLongEarlyHints(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	s.handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		for {
			hints := "HTTP/1.1 103 Early Hints\r\nLink: </" + strings.Repeat("x", 1000) + ">\r\n\r\n"
			_, _ = io.WriteString(conn, hints+"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if _, err := http.ReadRequest(buffered.Reader); err != nil {
				return
			}
		}
	}))
	r := s.enforce(roomPolicy{})
	v := r.visit(bronze)
	for range 3 {
		v.get("/")
		v.wants(http.StatusEarlyHints)
		v.wants(http.StatusOK)
		r.await(0, 0)
	}
	v.conn.Close()
	r.await(0, 0)
}
