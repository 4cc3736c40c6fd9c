// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"time"
)

const (
	gold   = 0 // class of requests in open loop, the most important
	bronze = 1 // class of the load
)

// world is a simulated server behind a waiting room, with clients and a controller, in
// simulated time.
type world struct {
	now    float64
	rand   *rand.Rand
	work   *rand.Rand // of what requests ask for, so that it is the same in all runs
	seq    uint64
	events eventHeap
	server *server

	limit      int // in force; 0: unlimited
	waiting    [2][]*job
	waits      int
	queueSize  int
	maxWait    float64
	hop        float64 // seconds from a release until the server sees the request
	controller *Controller
	hideBusy   bool    // processors cannot be seen
	noTasks    bool    // nor what the server's threads do
	fakes      int     // connections that look unread, for their clients leave a part of a body
	device     bool    // the server's cores are those of a device that nobody sees
	sends      float64 // bytes per second of such a core, and of one that only waits
	sentBusy   float64
	closes     bool // the server is asked to close connections
	deaf       bool // of no use
	keeps      bool // bronze clients use their connections again
	accepted   map[int]bool
	wantedRead float64
	ranRead    float64
	decided    func(*Sample, Decision)
	pacer      *Pacer // of the rules that classes have, by class
	paced      [2]pacedClass
	retry      float64 // seconds after which a client in closed loop comes again that a rate refused

	s         Sample // that is being filled
	inTime    float64
	busyRead  float64
	lastDrain float64

	served0   [2]int
	latencies []float64 // of gold
	held      int
	rejected  int
	closed    int // bronze clients in closed loop that go on
}

const period = 0.05

// ownShare is of what processors do the part that the server's own threads must do, as in the daemon: else
// they do not tell how busy it is.
const ownShare = 0.4

func newWorld(v *server, seed uint64) *world {
	v.slow = 1
	w := &world{rand: rand.New(rand.NewPCG(seed, 1)), work: rand.New(rand.NewPCG(seed, 2)), server: v, queueSize: 4096, maxWait: 5, accepted: map[int]bool{}, hop: 50e-6}
	w.s.Classes = make([]ClassSample, 2)
	return w
}

func (w *world) after(t float64, do func()) {
	w.seq++
	heap.Push(&w.events, event{at: w.now + t, seq: w.seq, do: do})
}

// arrive lets a request come to the waiting room.
func (w *world) arrive(class, client int) {
	if w.pacer != nil && !w.paced[class].take(w.now) {
		if client >= 0 {
			w.after(w.retry*(0.5+w.rand.Float64()), func() { w.sendClosed(client) })
		}
		return
	}
	j := &job{class: class, client: client, arrived: w.now, stages: w.server.request(w.work)}
	if w.keeps && client >= 0 {
		j.kept, w.accepted[client] = w.accepted[client], true
	}
	j.closes = w.closes && !w.deaf
	w.s.Arrived++
	w.s.Classes[class].Arrived++
	if w.limit == 0 || w.server.inService < w.limit && w.waits == 0 {
		w.enter(j)
		return
	}
	if w.waits >= w.queueSize {
		if class == gold && len(w.waiting[bronze]) > 0 {
			w.reject(w.waiting[bronze][0])
			w.waiting[bronze] = w.waiting[bronze][1:]
		} else {
			w.reject(j)
			return
		}
	}
	w.held++
	if cost := w.server.holding; cost > 0 {
		j.stages = append([]stage{{onCPU, cost}}, j.stages...)
	}
	w.s.Held++
	w.s.Classes[class].Held++
	w.waits++
	w.waiting[class] = append(w.waiting[class], j)
}

func (w *world) reject(j *job) {
	w.rejected++
	w.s.Rejected++
	w.s.Classes[j.class].Rejected++
	if len(w.waiting[j.class]) > 0 && w.waiting[j.class][0] == j {
		w.waits--
	}
	if j.client >= 0 {
		w.after(0.1, func() { w.sendClosed(j.client) })
	}
}

func (w *world) enter(j *job) {
	w.account()
	w.s.Entered++
	w.server.inService++
	j.entered = w.now
	w.after(w.hop, func() { w.accept(j) })
}

// served ends a request, lets in who waits, and has its client send the next one.
func (w *world) served(j *job) {
	w.account()
	w.server.inService--
	w.s.Served++
	w.s.Service.Add(time.Duration((w.now - j.entered) * 1e9))
	w.served0[j.class]++
	if j.class == gold {
		w.latencies = append(w.latencies, w.now-j.arrived)
	}
	w.done(j)
	w.release()
	if j.client >= 0 {
		w.sendClosed(j.client)
	}
}

func (w *world) sendClosed(client int) {
	if client < w.closed {
		w.after(100e-6, func() { w.arrive(bronze, client) })
	}
}

func (w *world) release() {
	for class := range w.waiting {
		for len(w.waiting[class]) > 0 && (w.limit == 0 || w.server.inService < w.limit) {
			j := w.waiting[class][0]
			if w.now-j.arrived > w.maxWait {
				w.reject(j)
				w.waiting[class] = w.waiting[class][1:]
				continue
			}
			w.waiting[class] = w.waiting[class][1:]
			w.waits--
			w.enter(j)
		}
	}
}

// account brings the integral of requests in service up to date.
func (w *world) account() {
	w.inTime += float64(w.server.inService) * (w.now - w.lastDrain)
	w.lastDrain = w.now
}

// open sends requests of a class as a Poisson process, at a rate that may change.
func (w *world) open(class int, rate func() float64) {
	w.after(exponential(w.rand, 1/rate()), func() {
		w.arrive(class, -1)
		w.open(class, rate)
	})
}

// loop has n bronze clients, each of which sends its next request when it has its response.
func (w *world) loop(n int) {
	from := w.closed
	w.closed = n
	for i := from; i < n; i++ {
		w.after(w.rand.Float64()*0.01, func() { w.arrive(bronze, i) })
	}
}

// run goes on until a time.
func (w *world) run(until float64) {
	if w.now == 0 {
		if w.controller != nil {
			w.limit = w.controller.First().Limit
		}
		w.after(period, w.sample)
	}
	for w.now < until {
		rate, busy := w.server.rate()
		next, cpu := until, false
		if len(w.events) > 0 && w.events[0].at < next {
			next = w.events[0].at
		}
		if len(w.server.running) > 0 {
			if at := w.now + (w.server.running[0].at-w.server.virtual)/rate; at <= next {
				next, cpu = max(at, w.now), true
			}
		}
		dt := next - w.now
		w.server.virtual += rate * dt
		w.server.wanted += float64(len(w.server.running)+len(w.server.ready)) * dt
		looked := w.server.look(dt)
		w.server.ran += rate*float64(len(w.server.running))*dt + looked
		w.server.busy += busy*dt + looked
		w.now = next
		switch {
		case cpu:
			e := heap.Pop(&w.server.running).(event)
			w.server.virtual = max(w.server.virtual, e.at)
			w.staged(e.job)
		case len(w.events) > 0 && w.events[0].at <= w.now:
			heap.Pop(&w.events).(event).do()
		}
	}
}

// sample hands the controller what happened since the last time. Busy time is read with an
// error of up to a tick of 4 ms that the next reading makes good, as kernels count it.
func (w *world) sample() {
	w.after(period, w.sample)
	w.account()
	s := w.s
	s.At, s.Span = time.Duration(w.now*1e9), time.Duration(period*1e9)
	s.Limit, s.InService, s.Waiting = w.limit, w.server.inService, w.waits
	s.Backlog, s.Unread, s.QueuedFor = len(w.server.backlog), w.server.unread()+w.fakes, w.server.queuedFor(w.now)
	s.MeanInService, w.inTime = w.inTime/period, 0
	for class := range w.waiting {
		s.Classes[class].Waiting = len(w.waiting[class])
	}
	busy := w.server.busy - 0.004*w.rand.Float64()*min(1, w.server.busy-w.busyRead)
	if !w.hideBusy {
		s.Cores, s.Busy = w.server.cores, min(max(busy-w.busyRead, 0)/period, w.server.cores)
	}
	if w.sends > 0 {
		s.Sent = w.send(s.MeanInService)
	}
	if w.device {
		s.Cores, s.Busy = 1, 0.02
	}
	wanted, ran := (w.server.wanted-w.wantedRead)/period, (w.server.ran-w.ranRead)/period
	if !w.hideBusy && !w.noTasks {
		s.Rested = max(s.Cores-wanted, 0)
	}
	if !w.hideBusy && !w.noTasks && ran >= ownShare*s.Busy {
		s.Wanted = min(wanted, w.server.cores)
	}
	w.wantedRead, w.ranRead = w.server.wanted, w.server.ran
	w.busyRead = busy
	s.Pressure = Pressure{-1, -1, -1}
	if v := w.server; v.idles {
		lost := 1 - 1/v.effort(v.inService)
		s.Pressure.Memory, s.MajorFaults = lost, 2000*math.Max(0, lost)
	}
	w.s = Sample{Classes: make([]ClassSample, 2)}
	if w.controller == nil {
		return
	}
	d := w.controller.Step(s)
	w.limit, w.closes = d.Limit, d.Closes
	if w.pacer != nil {
		w.pace(&s, &d)
	}
	if w.decided != nil {
		w.decided(&s, d)
	}
	w.release()
}

// send returns the bytes that were sent since it was last asked: a device takes a step for all answers that it has at
// once, and each answer of a server without one has its own.
func (w *world) send(inService float64) uint64 {
	if w.server.pool < 0 {
		return uint64(w.sends * inService * period)
	}
	step := 0.02 * max(1, float64(w.server.inService)/w.server.cores)
	upTo := w.server.busy - math.Mod(w.now, step)*min(float64(w.server.inService), w.server.cores)
	sent := max(upTo-w.sentBusy, 0)
	w.sentBusy += sent
	return uint64(w.sends * sent)
}

// measure forgets what was counted so far, runs for a while, and returns completions per
// second and the 99th percentile of gold's response times.
func (w *world) measure(t float64) (goodput, p99 float64) {
	w.served0, w.latencies, w.held, w.rejected = [2]int{}, nil, 0, 0
	w.run(w.now + t)
	return float64(w.served0[gold]+w.served0[bronze]) / t, percentile(w.latencies, 0.99)
}

// pacedClass is what a rule with a rate that sets itself does with a class.
type pacedClass struct {
	rule  bool // there is one
	rate  float64
	full  float64 // when its bucket is full
	count PacedCount
}

// take takes a token, as the data path does.
func (c *pacedClass) take(now float64) bool {
	if c.rule && c.rate > 0 {
		interval := 1 / c.rate
		if c.full-now > interval*(max(1, math.Floor(c.rate/10))-1) {
			c.count.Refused++
			return false
		}
		c.full = max(c.full, now) + interval
	}
	c.count.Passed++
	return true
}

// pace sets the rates anew.
func (w *world) pace(s *Sample, d *Decision) {
	var counts []PacedCount
	for i := range w.paced {
		if w.paced[i].rule {
			counts = append(counts, w.paced[i].count)
		}
		w.paced[i].count = PacedCount{}
	}
	rates := w.pacer.Step(s, d, counts)
	for i := range w.paced {
		if w.paced[i].rule {
			w.paced[i].rate, rates = rates[0], rates[1:]
		}
	}
}
