// SPDX-License-Identifier: Apache-2.0

package generator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"narthex/internal/lab"
)

// runs numbers the runs of this process. Those of earlier processes began elsewhere, most likely.
var runs atomic.Uint32

func init() { runs.Store(rand.Uint32()) }

// program is the XDP program on the clients' device.
type program struct {
	objects clientsObjects
	link    link.Link
	options ebpf.RunOptions
	ns      *lab.Namespace
	dev     string
	dropped uint64 // by the device before the start
}

// attach loads the program and attaches it.
func attach(cfg Config) (*program, error) {
	spec, err := loadClients()
	if err != nil {
		return nil, err
	}
	device, err := cfg.Client.Link(cfg.Dev)
	if err != nil {
		return nil, err
	}
	index := device.Attrs().Index
	if err := cfg.configure(spec, index); err != nil {
		return nil, err
	}
	p := &program{ns: cfg.Client, dev: cfg.Dev, options: ebpf.RunOptions{
		Data: make([]byte, synBytes), Flags: unix.BPF_F_TEST_XDP_LIVE_FRAMES, BatchSize: batch,
	}}
	if p.dropped, err = p.drops(); err != nil {
		return nil, err
	}
	if err := spec.LoadAndAssign(&p.objects, nil); err != nil {
		return nil, fmt.Errorf("load the clients' program: %w", err)
	}
	err = cfg.Client.Do(func() (err error) {
		p.link, err = link.AttachXDP(link.XDPOptions{Program: p.objects.Clients, Interface: index, Flags: link.XDPDriverMode})
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("attach the clients' program to %q: %w", cfg.Dev, err), p.Close())
	}
	return p, nil
}

// synBytes is the length of a SYN's frame. The program writes all of it.
const synBytes = 14 + 20 + 24

// configure sets the program's constants.
func (c Config) configure(spec *ebpf.CollectionSpec, index int) error {
	client, err := c.Client.MAC(c.Dev)
	if err != nil {
		return err
	}
	server, err := c.Server.MAC(c.Dev)
	if err != nil {
		return err
	}
	var request [256]byte
	copy(request[:], c.Request)
	from, to, port := c.From.Masked().Addr().As4(), c.To.Addr().As4(), c.To.Port()
	var mask [4]byte
	binary.BigEndian.PutUint32(mask[:], ^uint32(uint64(1)<<(32-c.From.Bits())-1))
	for name, value := range map[string]any{
		"client_mac": [6]byte(client), "server_mac": [6]byte(server),
		"prefix": from, "mask": mask, "server": to, "server_port": [2]byte{byte(port >> 8), byte(port)},
		"ifindex": uint32(index), "seed": uint32(c.Seed ^ c.Seed>>32), "run": uint16(runs.Add(1)),
		"to_the_end": closes(c.Request), "request": request,
		"request_length": uint32(len(c.Request)), "request_sum": sum(request[:]),
	} {
		if err := spec.Variables[name].Set(value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	return nil
}

// closes tells whether a request asks the server to close the connection.
func closes(request string) bool {
	head, _, _ := strings.Cut(strings.ToLower(request), "\r\n\r\n")
	line, fields, _ := strings.Cut(head, "\r\n")
	for field := range strings.SplitSeq(fields, "\r\n") {
		if name, value, _ := strings.Cut(field, ":"); name == "connection" {
			return strings.TrimSpace(value) == "close"
		}
	}
	return strings.HasSuffix(line, " http/1.0")
}

// sum adds 16-bit words as they are in this machine's memory: the Internet checksum does not
// mind the order of bytes (RFC 1071).
func sum(b []byte) (sum uint32) {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.NativeEndian.Uint16(b))
	}
	return sum
}

// inject makes SYNs. The caller's thread is in the clients' namespace. A signal may cut it short
// or have it make more: what was made the program counts.
func (p *program) inject(n uint32) error {
	p.options.Repeat = n
	_, err := p.objects.Clients.Run(&p.options)
	return err
}

// counts reads what the program has counted on all cores.
func (p *program) counts() (Counts, error) {
	c := Counts{Answers: map[int]uint64{}}
	each, err := p.each()
	if err != nil {
		return c, err
	}
	for i := range each {
		e := &each[i]
		c.SYNACKs += e.Synacks
		c.Requests += e.Requests
		c.Ends += e.Ends
		c.Resets += e.Resets
		c.Stale += e.Stale
		c.Repeated += e.Repeated
		for status, n := range e.Answers {
			if n > 0 {
				c.Answers[status] += n
			}
		}
	}
	if err := p.objects.Made.Get(&c.SYNs); err != nil {
		return c, fmt.Errorf("read the number of SYNs: %w", err)
	}
	dropped, err := p.drops()
	c.Lost = dropped - p.dropped
	return c, err
}

// each reads what the program has counted on each core.
func (p *program) each() (each []clientsCounts, err error) {
	if err := p.objects.Counted.Lookup(uint32(0), &each); err != nil {
		return nil, fmt.Errorf("read the generator's counts: %w", err)
	}
	return each, nil
}

// drops is how many frames the device has dropped that were to leave through it. One that is gone,
// with the other end's namespace for example, has dropped none.
func (p *program) drops() (uint64, error) {
	device, err := p.ns.Link(p.dev)
	if gone := (netlink.LinkNotFoundError{}); errors.As(err, &gone) {
		return p.dropped, nil
	}
	if err != nil {
		return 0, err
	}
	return device.Attrs().Statistics.TxDropped, nil
}

// settle has connections reset for which the server still sends something. It is over when
// nothing has come for a while, and after a second at the latest.
func (p *program) settle() error {
	const quiet, most = 50 * time.Millisecond, time.Second
	if err := p.objects.Ending.Set(uint32(1)); err != nil {
		return fmt.Errorf("end connections: %w", err)
	}
	came := uint64(0)
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(quiet) {
		each, err := p.each()
		if err != nil {
			return err
		}
		now := uint64(0)
		for i := range each {
			now += each[i].Frames
		}
		if now == came {
			return nil
		}
		came = now
	}
	return nil
}

// Close takes the program off the device.
func (p *program) Close() error {
	var err error
	if p.link != nil {
		err = p.link.Close()
	}
	return errors.Join(err, p.objects.Close())
}
