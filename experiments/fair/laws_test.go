// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Laws by which a queue in overload gets rid of who would wait for too long.
const (
	fifo     = "none, in order of arrival"
	codel    = "CoDel's"
	direct   = "the oldest beyond the target goes"
	adaptive = "the newest first, and the oldest goes after max_wait"
)

// simulation is a server with places, each taken for an exponential time, and what waits for one.
type simulation struct {
	law     string
	dice    *rand.Rand
	now     float64   // s
	queue   []float64 // when they came
	places  []float64 // when they are free
	waits   []float64 // of who was served
	late    float64   // since when somebody waits for longer than the target; 0: nobody does
	lasts   bool
	count   int // CoDel: of those dropped one after the other
	dropped float64
}

const (
	simTarget  = 0.5
	simMaxWait = 5
	simQueue   = 4096
)

// give lets the next into a place that is free, as the law says.
func (s *simulation) give(place int) {
	s.expel()
	if len(s.queue) == 0 {
		s.places[place] = s.now
		return
	}
	at := 0
	if s.law == adaptive && s.lasts {
		at = len(s.queue) - 1
	}
	if s.now > 10 {
		s.waits = append(s.waits, s.now-s.queue[at])
	}
	s.queue = slices.Delete(s.queue, at, at+1)
	s.places[place] = s.now + s.dice.ExpFloat64()*0.02
}

// expel has those go that the law says.
func (s *simulation) expel() {
	oldest := func() float64 { return s.now - s.queue[0] }
	drop := func() { s.queue = s.queue[1:] }
	for len(s.queue) > 0 && oldest() >= simMaxWait {
		drop()
	}
	switch {
	case len(s.queue) == 0 || oldest() < simTarget/2:
		s.late, s.lasts, s.count = 0, false, 0
	case oldest() >= simTarget && s.late == 0:
		s.late = s.now
	case s.late > 0 && s.now-s.late >= simTarget:
		s.lasts = true
	}
	for s.lasts && len(s.queue) > 0 && s.law == direct && oldest() >= simTarget*7/8 {
		drop()
	}
	for s.lasts && len(s.queue) > 0 && s.law == codel && oldest() >= simTarget && s.now >= s.dropped {
		drop()
		s.count++
		s.dropped = s.now + simTarget/math.Sqrt(float64(s.count))
	}
}

// run offers so many times what the server can do, for a minute.
func (s *simulation) run(times float64) (median, p99 time.Duration, perSecond float64) {
	const end = 60
	s.dice, s.places = rand.New(rand.NewPCG(1, 2)), make([]float64, 4)
	next := 0.0
	for s.now < end {
		place := 0
		for i, free := range s.places {
			if free < s.places[place] {
				place = i
			}
		}
		if len(s.queue) > 0 && s.places[place] < next {
			s.now = s.places[place]
			s.give(place)
			continue
		}
		s.now = next
		if len(s.queue) < simQueue {
			s.queue = append(s.queue, s.now)
		}
		next += s.dice.ExpFloat64() * 0.02 / 4 / times
		s.expel()
		if s.places[place] <= s.now {
			s.give(place)
		}
	}
	slices.Sort(s.waits)
	at := func(q float64) time.Duration {
		return time.Duration(s.waits[int(q*float64(len(s.waits)-1))] * float64(time.Second))
	}
	return at(0.5), at(0.99), float64(len(s.waits)) / (end - 10)
}

// The law that is built keeps who is served under the target whatever the load is, and serves as many as any.
func TestLaws(t *testing.T) {
	for _, times := range []float64{2, 10} {
		rates := map[string]float64{}
		for _, law := range []string{fifo, codel, adaptive, direct} {
			s := simulation{law: law}
			median, p99, rate := s.run(times)
			rates[law] = rate
			t.Logf("%2.0f times, %-52s median %5d ms, p99 %5d ms, %3.0f/s", times, law+":", median.Milliseconds(), p99.Milliseconds(), rate)
			if law == direct && (median.Seconds() > simTarget || p99.Seconds() > 2*simTarget) {
				t.Errorf("%.0f times the load: who is served waits for %s, p99 %s", times, median, p99)
			}
		}
		if rates[direct] < 0.98*rates[fifo] {
			t.Errorf("%.0f times the load: %.0f/s, in order of arrival %.0f/s", times, rates[direct], rates[fifo])
		}
	}
}
