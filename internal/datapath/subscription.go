// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

const (
	// renewEvery is how often it is said that somebody listens, for audienceLasts from then on:
	// if the process dies, the programs go on alone.
	renewEvery    = 500 * time.Millisecond
	audienceLasts = 2 * time.Second
)

// subscription reads what the programs put into a ring while it says that it listens.
type subscription struct {
	in      *Instance
	ring    *ringbuf.Reader
	control *ebpf.Map                                // says until when somebody listens
	budgets *ebpf.Map                                // how much was missed, by CPU
	say     func(until uint64) error                 // writes control; until: ns, 0 at the end
	looking func(missed uint64, since time.Duration) // is called each renewEvery while somebody reads; nil: nothing is to be done then
	opened  uint64                                   // ns: what is older was told to somebody else

	looked time.Time     // when the next two were read
	epoch  time.Time     // when the programs' clock was 0
	missed uint64        // since the instance was loaded
	stop   chan struct{} // closed at the end
	ended  sync.WaitGroup
	once   sync.Once
	next   sync.Mutex // held by read
	record ringbuf.Record
}

// open begins to listen. On error close() is due nevertheless.
func (s *subscription) open(ring, control, budgets *ebpf.Map) (err error) {
	if s.control, err = control.Clone(); err != nil {
		return err
	}
	if s.budgets, err = budgets.Clone(); err != nil {
		return err
	}
	if s.ring, err = ringbuf.NewReader(ring); err != nil {
		return err
	}
	if s.opened, err = now(); err != nil {
		return err
	}
	if _, err = s.look(); err != nil {
		return err
	}
	if err = s.renew(); err != nil {
		return err
	}
	s.ended.Go(s.renewUntilStopped)
	return nil
}

// renew says that somebody listens.
func (s *subscription) renew() error {
	t, err := now()
	if err != nil {
		return err
	}
	return s.say(t + uint64(audienceLasts))
}

// renewUntilStopped has a goroutine of its own: who reads may have to wait for Apply.
func (s *subscription) renewUntilStopped() {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
			if err := s.renew(); err != nil {
				s.in.log.Warn("cannot go on listening to the programs", "error", err)
			}
		}
	}
}

// Close ends reading, and has the programs tell of nothing any more.
func (s *subscription) Close() (err error) {
	s.once.Do(func() {
		close(s.stop)
		s.ended.Wait()
		err = errors.Join(s.say(0), s.release())
	})
	return err
}

func (s *subscription) release() (err error) {
	if s.ring != nil {
		err = s.ring.Close() // interrupts read
	}
	s.next.Lock()
	defer s.next.Unlock()
	closeMap(s.control)
	closeMap(s.budgets)
	return err
}

// read waits for a record, or until some were missed. The caller holds s.next; the record is
// valid until the next read.
func (s *subscription) read() (raw []byte, missed uint64, err error) {
	for {
		if time.Since(s.looked) >= renewEvery {
			if missed, err := s.look(); err != nil || missed > 0 {
				return nil, missed, err
			}
		}
		s.ring.SetDeadline(s.looked.Add(renewEvery))
		err := s.ring.ReadInto(&s.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return nil, 0, fmt.Errorf("reading what the programs tell: %w", err)
		}
		return s.record.RawSample, 0, nil
	}
}

// look reads how much has been missed since it last did, and what time it is.
func (s *subscription) look() (missed uint64, err error) {
	select {
	case <-s.stop:
		return 0, fmt.Errorf("reading what the programs tell: %w", os.ErrClosed)
	default:
	}
	var perCPU []narthexEventBudget
	if err := s.budgets.Lookup(zero, &perCPU); err != nil {
		return 0, fmt.Errorf("reading how much was missed: %w", err)
	}
	var sum uint64
	for _, b := range perCPU {
		sum += b.Missed
	}
	t, err := now()
	if err != nil {
		return 0, err
	}
	before := s.looked
	s.looked = time.Now()
	s.epoch = s.looked.Round(0).Add(-time.Duration(t))
	missed, s.missed = sum-s.missed, sum
	if before.IsZero() {
		return 0, nil
	}
	if s.looking != nil {
		s.looking(missed, s.looked.Sub(before))
	}
	return missed, nil
}

// at is when the programs' clock showed t, in ns.
func (s *subscription) at(t uint64) time.Time { return s.epoch.Add(time.Duration(t)) }
