// SPDX-License-Identifier: Apache-2.0

package adapt

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// stage is a part of a request's way through the simulated server: processor time, or time
// that passes without it, of which at most server.pool requests may have theirs at once.
type stage struct {
	kind stageKind
	time float64 // seconds
}

type stageKind int

const (
	onCPU stageKind = iota
	delay
	inPool
)

// job is a request.
type job struct {
	class   int
	client  int // closed loop: who sends the next one after it; -1: open loop
	arrived float64
	entered float64
	stages  []stage
	fresh   bool // the server has not taken it
	kept    bool // on a connection that the server has accepted
	closes  bool // the server closes the connection behind its answer
}

// server is a simulated one: processor sharing on some cores, where every request uses one core
// at the most, a pool, and delays. Where it has workers, each takes one request at a time and the others
// are in the accept queue; where it is a loop, a core works on one request until it waits or ends. effort says by how much work gets slower with the requests
// that are in service: context switches, caches, paging.
type server struct {
	cores   float64
	pool    int
	workers int                 // requests that it takes at once; 0: all
	loop    bool                // first come, first served, by as many threads as there are cores
	turns   int                 // a loop works on so many at most, and then accepts one connection; 0: it accepts all
	holding float64             // seconds of processor time that a request costs which was held
	effort  func(n int) float64 // factor of processor time; nil: 1
	idles   bool                // work beyond factor 1 is waiting for pages, not processor time
	slow    float64             // factor of all times, 1 at first
	spin    float64             // seconds for which processors look for work when there is none
	others  int                 // that always compute, on the same processors
	sticks  float64             // seconds for which a worker waits for the next request of a connection that is kept
	most    int                 // requests after which it does not, if others wait
	request func(*rand.Rand) []stage

	inService int
	running   eventHeap // by virtual time at which they have had their processor time
	virtual   float64   // processor time that each of the running has had since the start
	pooled    int
	queue     []*job  // for the pool
	busy      float64 // core-seconds used
	ran       float64 // core-seconds that its own threads used
	wanted    float64 // core-seconds that they used or waited for
	spun      float64 // seconds of the stretch without work that is going on
	taken     int     // by workers
	backlog   []*job  // that no worker has taken
	ready     []*job  // that no thread of the loop works on
	turn      int     // how many are left until it accepts one
	with      map[int]*attached
}

// attached is a worker and the connection that it stays with.
type attached struct {
	answered int // requests
	waits    int // how often it has waited for the next one
	idle     bool
}

// unread is how many requests the server has accepted and not read.
func (v *server) unread() (n int) {
	for _, j := range v.ready {
		if j.fresh {
			n++
		}
	}
	return n
}

// queuedFor is for how long requests have been in the accept queue, their mean.
func (v *server) queuedFor(now float64) (mean float64) {
	for _, j := range v.backlog {
		mean += (now - j.entered) / float64(len(v.backlog))
	}
	return mean
}

// rate is how fast virtual time goes, and how many cores are busy.
func (v *server) rate() (virtual, busy float64) {
	n := float64(len(v.running))
	if n == 0 {
		return 0, min(float64(v.others), v.cores)
	}
	n += float64(v.others)
	virtual, busy = min(1, v.cores/n), min(n, v.cores)
	if v.effort != nil {
		f := v.effort(v.inService)
		virtual /= f
		if v.idles {
			busy /= f
		}
	}
	return virtual / v.slow, busy
}

// look returns how long processors look for work in a time in which nothing ends: the core-seconds.
func (v *server) look(t float64) float64 {
	if len(v.running) > 0 {
		v.spun = 0
		return 0
	}
	before := min(v.spun, v.spin)
	v.spun += t
	return v.cores * (min(v.spun, v.spin) - before)
}

// event is something that happens to a job, or the function do, at a time.
type event struct {
	at  float64
	seq uint64 // breaks ties, so that runs are the same
	job *job
	do  func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

// exponential draws from an exponential distribution.
func exponential(r *rand.Rand, mean float64) float64 { return r.ExpFloat64() * mean }

// lognormal draws from a log-normal distribution with a mean and a coefficient of variation.
func lognormal(r *rand.Rand, mean, cv float64) float64 {
	v := math.Log(1 + cv*cv)
	return mean * math.Exp(math.Sqrt(v)*r.NormFloat64()-v/2)
}

// accept lets the server take a job, or not yet.
func (w *world) accept(j *job) {
	v := w.server
	j.fresh = true
	if a := v.with[j.client]; a != nil && a.idle {
		a.idle = false
		if !w.next(j) {
			w.served(j)
		}
		return
	}
	if v.workers > 0 && v.taken >= v.workers || v.turns > 0 && !j.kept && len(v.running) > 0 {
		v.backlog = append(v.backlog, j)
		return
	}
	v.taken++
	if !w.next(j) {
		w.served(j)
	}
}

// stays tells whether a worker stays with the connection of a request that it has answered.
func (w *world) stays(j *job) bool {
	v := w.server
	if v.sticks == 0 || j.client < 0 {
		return false
	}
	if v.with == nil {
		v.with = map[int]*attached{}
	}
	a := v.with[j.client]
	if a == nil {
		a = &attached{}
		v.with[j.client] = a
	}
	if a.answered++; j.closes || a.answered >= v.most && len(v.backlog) > 0 {
		delete(v.with, j.client)
		return false
	}
	a.idle = true
	a.waits++
	turn := a.waits
	w.after(v.sticks, func() {
		if a.idle && a.waits == turn {
			delete(v.with, j.client)
			w.free()
		}
	})
	return true
}

// done has a worker that has answered a request take the next one.
func (w *world) done(j *job) {
	if j.closes {
		w.accepted[j.client] = false
	}
	if !w.stays(j) {
		w.free()
	}
}

// free has a worker take the next request.
func (w *world) free() {
	v := w.server
	v.taken--
	if v.turn--; v.turns > 0 && v.turn <= 0 && len(v.backlog) > 0 {
		j := v.backlog[0]
		v.backlog, v.turn = v.backlog[1:], min(v.turns, len(v.ready)+1)
		if v.taken++; len(v.running) > 0 {
			v.ready = append(v.ready, j)
		} else {
			w.compute(j)
		}
	}
	if len(v.backlog) > 0 && v.taken < v.workers {
		j := v.backlog[0]
		v.backlog = v.backlog[1:]
		w.accept(j)
	}
}

// compute has a job use a processor.
func (w *world) compute(j *job) {
	w.seq++
	j.fresh = false
	heap.Push(&w.server.running, event{at: w.server.virtual + j.stages[0].time, seq: w.seq, job: j})
}

// next lets a job go on with its next stage, and returns false when it has none left.
func (w *world) next(j *job) bool {
	if len(j.stages) == 0 {
		return false
	}
	st := j.stages[0]
	v := w.server
	switch st.kind {
	case onCPU:
		if v.loop && len(v.running) >= int(v.cores) {
			v.ready = append(v.ready, j)
			return true
		}
		w.compute(j)
	case delay:
		w.after(st.time*v.slow, func() { w.staged(j) })
	case inPool:
		if v.pooled >= v.pool {
			v.queue = append(v.queue, j)
			return true
		}
		w.usePool(j)
	}
	return true
}

func (w *world) usePool(j *job) {
	v := w.server
	v.pooled++
	w.after(j.stages[0].time*v.slow, func() {
		v.pooled--
		if len(v.queue) > 0 {
			first := v.queue[0]
			v.queue = v.queue[1:]
			w.usePool(first)
		}
		w.staged(j)
	})
}

// staged ends a stage of a job.
func (w *world) staged(j *job) {
	if v := w.server; j.stages[0].kind == onCPU && len(v.ready) > 0 && len(v.running) < int(v.cores) {
		first := v.ready[0]
		v.ready = v.ready[1:]
		w.compute(first)
	}
	j.stages = j.stages[1:]
	if !w.next(j) {
		w.served(j)
	}
}
