// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of a visit's patience. Requests wait for max_wait, of 4 s at most.
const (
	connectLimit = 15 * time.Second
	answerLimit  = 15 * time.Second // until an answer begins
	silenceLimit = 15 * time.Second // within one
)

// kind is what a visit does.
type kind struct {
	name   string
	weight int
	visit  func(*visit) error
}

// visit is an ordinary client on one connection.
type visit struct {
	ctx     context.Context
	rng     *rand.Rand
	rig     *rig
	service *service
	class   class
	kind    string
	v6      bool
	mptcp   bool
	ahead   bool   // it has asked for more than it has answers for: that has to be sent again when its turn may come
	name    string // of the bodies that it sends
	began   time.Time
	from    netip.AddrPort

	seq, ack uint32   // of the connection, when it began
	raw      *counted // below TLS, if there is that
	conn     net.Conn
	r        *bufio.Reader
	answered int
}

// String is what the visit is, and from where.
func (v *visit) String() string {
	from := "about to connect"
	if v.from.IsValid() {
		from = v.from.String()
	}
	return fmt.Sprintf("%s of %s, %s, %d answered", v.kind, v.class.name, from, v.answered)
}

// dial connects as one of many sorts of clients does.
func (v *visit) dial() error {
	source := v.class.v4(byte(v.rng.IntN(addressesEach)))
	if v.v6 {
		source = v.class.v6(byte(v.rng.IntN(addressesEach)))
	}
	// Not where the limit comes and goes: MPTCP is only taken out of SYNs while there is one,
	// and a connection that has it does not end by a reset.
	v.mptcp = v.rng.IntN(4) == 0 && v.service.frail
	mss := []int{0, 0, 0, 536, 300}[v.rng.IntN(5)]
	d := net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0)),
		Timeout:   connectLimit,
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			controlErr := c.Control(func(fd uintptr) { err = tune(int(fd), mss, v.kind == "download") })
			return errors.Join(controlErr, err)
		},
	}
	d.SetMultipathTCP(v.mptcp)
	v.service.pace.begin(v)
	err := v.rig.Client.Do(func() error {
		conn, err := d.DialContext(v.ctx, "tcp", v.rig.at(v.service, v.v6).String())
		if err == nil {
			v.raw = &counted{TCPConn: conn.(*net.TCPConn)}
		}
		return err
	})
	v.service.pace.end(v)
	if err != nil {
		return err
	}
	v.from = v.raw.LocalAddr().(*net.TCPAddr).AddrPort()
	if v.rng.IntN(3) == 0 { // with Nagle's algorithm
		_ = v.raw.SetNoDelay(false)
	}
	v.conn = v.raw
	v.r = bufio.NewReader(v.raw)
	return nil
}

// tune sets a client's socket up before it connects.
func tune(fd, mss int, slow bool) error {
	// The port is chosen at connect, where one is free as soon as it is for this target.
	err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	if mss > 0 && err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, mss)
	}
	if slow && err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 32<<10)
	}
	return err
}

// pause waits, for at most so long.
func (v *visit) pause(most time.Duration) {
	_ = sleep(v.ctx, time.Duration(v.rng.Int64N(int64(most)+1)))
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// send sends bytes at once.
func (v *visit) send(b []byte) error {
	_ = v.conn.SetWriteDeadline(time.Now().Add(silenceLimit))
	_, err := v.conn.Write(b)
	return err
}

// sendSlowly sends bytes in pieces, with a pause before each but the first.
func (v *visit) sendSlowly(b []byte, pieces int, most time.Duration) error {
	for i := range pieces {
		n := len(b)
		if i < pieces-1 {
			v.pause(most)
			n = v.rng.IntN(len(b) + 1)
		}
		if err := v.send(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// awaitByte waits for the first byte of an answer to what has been sent whole.
func (v *visit) awaitByte() error {
	if v.sent(); !v.ahead {
		v.service.pace.begin(v)
		defer v.service.pace.end(v)
	}
	limit := answerLimit
	if v.ahead { // its TCP waits, before it sends again, for up to as long as it has done so already
		limit += time.Since(v.began)
	}
	_ = v.conn.SetReadDeadline(time.Now().Add(limit))
	_, err := v.r.Peek(1)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errLate
	}
	return err
}

// sent waits until the kernel has sent all that it was given, or an answer has come: who has not
// yet said all that he has to waits for his own network.
func (v *visit) sent() {
	raw, err := v.raw.SyscallConn()
	for end := time.Now().Add(answerLimit); err == nil && v.r.Buffered() == 0 && v.ctx.Err() == nil && time.Now().Before(end); {
		var unsent, come int
		err = raw.Control(func(fd uintptr) {
			unsent, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD)
			come, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ)
		})
		if unsent == 0 || come > 0 {
			return
		}
		_ = sleep(v.ctx, 10*time.Millisecond)
	}
}

// step is called when something of an answer has come.
func (v *visit) step(int) {
	v.service.pace.step()
	_ = v.conn.SetReadDeadline(time.Now().Add(silenceLimit))
}

// head is a request up to its body.
func (v *visit) head(method, path string, fields ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, v.rig.at(v.service, v.v6))
	if v.rng.IntN(4) == 0 { // so much that it does not fit into one segment, sometimes
		fmt.Fprintf(&b, "Cookie: c=%s\r\n", strings.Repeat("narthex-", v.rng.IntN(400)))
	}
	for _, f := range fields {
		b.WriteString(f + "\r\n")
	}
	b.WriteString("\r\n")
	return []byte(b.String())
}

// response reads the head of the answer to a request. It is errRefused if it is a proper
// refusal, which then has been read to its end.
func (v *visit) response(method string, status int) (*http.Response, error) {
	if err := v.awaitByte(); err != nil {
		return nil, err
	}
	for {
		resp, err := http.ReadResponse(v.r, &http.Request{Method: method})
		switch {
		case err != nil:
			return nil, fmt.Errorf("read the answer: %w", err)
		case resp.StatusCode == status:
			v.service.pace.step()
			v.answered++
			return resp, nil
		case resp.StatusCode == http.StatusContinue:
			continue
		case resp.Header.Get("Refused-By") != "" && resp.Header.Get("Retry-After") != "":
			return nil, v.turnedAway(resp)
		}
		return nil, wrong{fmt.Sprintf("answer %s, not %d", resp.Status, status)}
	}
}

// turnedAway reads a refusal to its end, which must be that of the connection, too.
func (v *visit) turnedAway(resp *http.Response) error {
	if !resp.Close {
		return wrong{"a refusal that does not say that the connection ends"}
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fmt.Errorf("read the refusal: %w", err)
	}
	if b, err := v.r.ReadByte(); err == nil {
		return wrong{fmt.Sprintf("byte %#x behind a refusal", b)}
	}
	return errRefused
}

// file reads the answer with a file.
func (v *visit) file(size int) error { return v.body(http.MethodGet, fileName(size), size) }

// body reads the answer with a body.
func (v *visit) body(method, name string, size int) error {
	resp, err := v.response(method, http.StatusOK)
	if err != nil {
		return err
	}
	if resp.ContentLength >= 0 && resp.ContentLength != int64(size) {
		return wrong{fmt.Sprintf("%q: Content-Length %d, not %d", name, resp.ContentLength, size)}
	}
	if method == http.MethodHead {
		return nil
	}
	return v.bytes(resp.Body, name, size, true)
}

// bytes reads a body, or bytes that go on.
func (v *visit) bytes(r io.Reader, name string, size int, whole bool) error {
	if err := check(r, v.rig.seed, name, size, v.step); err != nil || !whole {
		return err
	}
	if n, err := io.Copy(io.Discard, r); n > 0 {
		return wrong{fmt.Sprintf("%q: %d bytes too many", name, n)}
	} else if err != nil {
		return fmt.Errorf("%q, after its last byte: %w", name, err)
	}
	return nil
}

// ends waits for the end of the connection.
func (v *visit) ends() error {
	_ = v.conn.SetReadDeadline(time.Now().Add(silenceLimit))
	switch b, err := v.r.ReadByte(); {
	case err == nil:
		return wrong{fmt.Sprintf("byte %#x behind the last answer", b)}
	case err != io.EOF:
		return fmt.Errorf("the connection does not end: %w", err)
	}
	return nil
}

// client makes visits until the context ends, or until it is to begin no more.
type client struct {
	rig    *rig
	ledger *ledger
	live   *live
	rng    *rand.Rand
	number int
}

func (w *world) newClient(number int) *client {
	return &client{rig: w.rig, ledger: w.ledger, live: &w.live, number: number, rng: rand.New(rand.NewPCG(w.rig.seed, uint64(number)))}
}

func (c *client) run(ctx, begin context.Context) {
	for i := 0; begin.Err() == nil; i++ {
		v := c.next(ctx, i)
		err := v.make(c.live)
		if ctx.Err() != nil {
			return
		}
		c.ledger.settle(v, err)
		think := time.Duration(c.rng.ExpFloat64() * float64(50*time.Millisecond))
		if err != nil { // as one does who is told to come again
			think += time.Duration(c.rng.Int64N(int64(500 * time.Millisecond)))
		}
		_ = sleep(begin, think)
	}
}

// next chooses a visit. All of its choices follow from one number of the client's, so that
// they are the same with the same seed, whatever happens.
func (c *client) next(ctx context.Context, i int) *visit {
	rng := rand.New(rand.NewPCG(c.rng.Uint64(), c.rng.Uint64()))
	s := c.rig.services[rng.IntN(len(c.rig.services))]
	k := choose(rng, s.hasKinds)
	return &visit{
		ctx: ctx, rng: rng, rig: c.rig, service: s, kind: k.name,
		class: classes[rng.IntN(len(classes))],
		v6:    rng.IntN(2) == 0,
		name:  fmt.Sprintf("%d-%d", c.number, i),
	}
}

func choose(rng *rand.Rand, kinds []kind) kind {
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	at := rng.IntN(sum)
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			return k
		}
	}
	return kinds[0]
}

func (v *visit) make(live *live) error {
	v.began = time.Now()
	if err := v.dial(); err != nil {
		return err
	}
	defer v.raw.Close()
	if !v.mptcp {
		if err := v.numbers(); err != nil {
			return fmt.Errorf("read the sequence numbers: %w", err)
		}
		defer live.add(v)()
	}
	stop := context.AfterFunc(v.ctx, func() { _ = v.raw.SetDeadline(time.Now()) })
	defer stop()
	for _, k := range v.service.hasKinds {
		if k.name == v.kind {
			return k.visit(v)
		}
	}
	return nil
}
