// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"time"

	"narthex/internal/lab"
	"narthex/test/busy"
)

// Meters measure the server's core and its clients'.
type Meters struct {
	Core     *Core       // the server's; nil if nothing is to soak up its idle time
	Clients  *busy.Meter // of the clients' core; nil if that is not measured
	Workers  Workers     // the servers' processes
	Receiver int         // thread of the kernel that does what the server's device receives; 0 if there is none

	server *lab.Namespace
}

// Open begins to measure both cores. Close is due even if it fails.
func (m *Meters) Open(b *Bench, rig *lab.Lab) (err error) {
	m.server = rig.Server
	if m.Clients, err = busy.Start(b.ClientCPUs[0]); err != nil {
		return err
	}
	m.Core, err = NewCore(b.ServerCPUs[0])
	return err
}

// Close ends the measurement.
func (m *Meters) Close() error {
	var errs []error
	if m.Core != nil {
		errs = append(errs, m.Core.Close())
	}
	if m.Clients != nil {
		errs = append(errs, m.Clients.Close())
	}
	return errors.Join(errs...)
}

// Serve has the processes of a server, or proxy, count as workers. It takes what starting one returns.
func (m *Meters) Serve(s *lab.Server, err error) (*lab.Server, error) {
	if err != nil {
		return nil, err
	}
	processes, err := s.PIDs()
	m.Workers = append(m.Workers, processes...)
	return s, err
}

// Spent is the time of the server's core that its workers and what they receive have taken, but for
// a constant; 0 if that is not measured.
func (m *Meters) Spent() (time.Duration, error) {
	if m.Core == nil {
		return 0, nil
	}
	workers := m.Workers
	if m.Receiver != 0 {
		workers = append(workers[:len(workers):len(workers)], m.Receiver)
	}
	return m.Core.Spent(workers)
}

// spent is that, and what of it the receiver has taken.
func (m *Meters) spent() (work, received time.Duration, err error) {
	if m.Receiver != 0 {
		if received, err = lab.ProcessCPU(m.Receiver); err != nil {
			return 0, 0, err
		}
	}
	work, err = m.Spent()
	return work, received, err
}

// busy is for how long the cores have been busy, but for a constant; 0 if that is not measured.
func (m *Meters) busy() (server, clients time.Duration) {
	if m.Core != nil {
		server = m.Core.Busy()
	}
	if m.Clients != nil {
		clients = m.Clients.Busy()
	}
	return server, clients
}

// Use is what became of the cores' time in a stretch of time; 0 where that was not measured.
type Use struct {
	Took                   time.Duration
	Work                   time.Duration // of the server's core for its workers and what they receive
	Received               time.Duration // of that, for what they receive
	ServerBusy, ClientBusy float64       // shares of time of the cores
	Others                 float64       // of the server's, what was not for its workers
}

// Use lets time pass and tells what became of it.
func (m *Meters) Use(ctx context.Context, length time.Duration) (Use, error) {
	return m.use(ctx, length, func() {})
}

// use does so, and calls ended when the time has passed: what that takes counts.
func (m *Meters) use(ctx context.Context, length time.Duration, ended func()) (u Use, err error) {
	begun := time.Now()
	server, clients := m.busy()
	work, received, err := m.spent()
	if err != nil {
		return u, err
	}
	if err := Sleep(ctx, length); err != nil {
		return u, err
	}
	u.Work, u.Received, err = m.spent()
	if err != nil {
		return u, err
	}
	ended()
	u.Took, u.Work, u.Received = time.Since(begun), u.Work-work, u.Received-received
	serverNow, clientsNow := m.busy()
	took := u.Took.Seconds()
	u.ServerBusy, u.ClientBusy = (serverNow-server).Seconds()/took, (clientsNow-clients).Seconds()/took
	u.Others = u.ServerBusy - u.Work.Seconds()/took
	return u, nil
}

// Sample is what happened in a stretch of time.
type Sample struct {
	Reports          // of the clients, in the order in which they came
	Use              // of the cores
	Overflows uint64 // of the server's accept and SYN queues
}

// PerAnswer is the work of the server's core per request that was OK, in microseconds.
func (s *Sample) PerAnswer() float64 { return s.Work.Seconds() * 1e6 / float64(s.Answered()) }

// Measure measures clients for a time after they have had time to settle.
func (m *Meters) Measure(ctx context.Context, c *Crowd, settle, length time.Duration) (*Sample, error) {
	if err := Sleep(ctx, settle); err != nil {
		return nil, err
	}
	overflows, err := ListenDrops(m.server)
	if err != nil {
		return nil, err
	}
	c.Interval()
	s := &Sample{}
	if s.Use, err = m.use(ctx, length, func() { s.Reports = c.Interval() }); err != nil {
		return nil, err
	}
	drops, err := ListenDrops(m.server)
	s.Overflows = drops - overflows
	return s, err
}

// Once starts clients, measures them and ends them.
func (m *Meters) Once(ctx context.Context, settle, length time.Duration, clients ...Starter) (*Sample, error) {
	c, err := Gather(ctx, clients...)
	if err != nil {
		return nil, err
	}
	defer c.End()
	return m.Measure(ctx, c, settle, length)
}
