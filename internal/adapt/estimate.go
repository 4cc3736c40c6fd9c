// SPDX-License-Identifier: Apache-2.0

package adapt

import "math"

const (
	memory       = 10.0  // seconds over which the estimator forgets, of time with completions
	fewest       = 20.0  // completions below which nothing is concluded
	quietest     = 0.8   // utilisation beyond which times in service are taken to hold queueing
	slack        = 1.5   // the limit without overload, in multiples of the knee
	burst        = 0.005 // the same, in seconds of work at capacity beyond the knee, at least
	rarely       = 3e-5  // how likely a request may meet that limit by chance: queues have geometric tails
	inflation    = 2.5   // factor by which times in service must grow to be those of a queue inside the server
	suspicion    = 1.4   // factor from which on nothing is learned from them
	learnFor     = 2.0   // seconds of samples before there is a limit
	busySpan     = 2.0   // seconds over which it forgets how busy the processors were; it learns briefly
	briefly      = 0.3   // seconds for which the estimator takes something as recent
	highestLimit = 1 << 20
	coldFirst    = 0.25  // of the limit of a server of which nothing is known, what it has in the first moment
	coldLimit    = 128.0 // that limit, at least
	coldCore     = 64.0  // the same, per core
	blindFor     = 0.15  // seconds for which it is waited until it is seen what processors do
	coldMore     = 2.0   // the same, in multiples of the most that was in service without a queue
)

// estimator learns, while the server is not overloaded, what it will be able to do when it is,
// by the laws of operational analysis (P. J. Denning and J. P. Buzen, The Operational Analysis
// of Queueing Network Models, ACM Computing Surveys 10(3), 1978): the service demand law gives
// the processor time per request D = busy/served, hence the capacity X* = cores/D, and Little's
// law the knee N* = X*·R of the asymptotic bounds, with R the time in service of a request that
// does not queue. All sums forget exponentially.
type estimator struct {
	demand     sums // processor seconds of requests
	residence  sums // times in service at low utilisation
	low        quantile
	background float64 // cores busy while no request was in service
	cores      float64
	seen       float64 // seconds of samples
	burst      float64 // seconds of work at capacity beyond the knee that the limit without overload lets in
	busy       float64 // cores busy, without the moments in which most were
	peak       float64 // of requests in service, forgotten slowly
	first      float64 // requests in service when it began to learn
	opened     float64 // share of the limit of a server of which nothing is known, that it has by now
	left       float64 // requests in service when an overload ended, forgotten slowly: so many are no queue
	brief      brief
	quick      float64                 // the shortest mean time in service of late, seconds; 0: not known
	quickest   [len(quantiles)]float64 // the shortest that quantiles of times in service were of late, seconds; 0: not known
	long       tally                   // of some seconds
}

// sums is a ratio of two sums, with the number of requests behind them.
type sums struct{ of, count float64 }

func (x *sums) add(of, count, keep float64) {
	x.of, x.count = x.of*keep+of, x.count*keep+count
}

func (x *sums) mean() float64 {
	if x.count == 0 {
		return 0
	}
	return x.of / x.count
}

// quantile follows quantiles of a histogram that forgets: what the quick requests take is not
// changed by some that are slow, but by a queue in front of all.
type quantile struct{ buckets [32]float64 }

func (q *quantile) add(h *Histogram, keep float64) {
	for i, b := range h.Buckets {
		q.buckets[i] = q.buckets[i]*keep + float64(b)
	}
}

func (q *quantile) count() (n float64) {
	for _, b := range q.buckets {
		n += b
	}
	return n
}

// at returns the quantile of a share of all, in seconds.
func (q *quantile) at(share float64) float64 {
	rank := share * q.count()
	for i, b := range q.buckets {
		if b > 0 && rank <= b {
			return math.Ldexp(1+rank/b, i) / 1e6
		}
		rank -= b
	}
	return 0
}

// quantiles are those of times in service by which one tells whether all take longer.
var quantiles = [...]float64{0.25, 0.5}

// brief is what was seen last.
type brief struct {
	tally
	low quantile
}

func (b *brief) step(s *Sample) {
	b.forget(s.Span.Seconds(), briefly)
	b.add(s)
	b.low.add(&s.Service, math.Exp(-s.Span.Seconds()/briefly))
}

// quicken remembers how quick requests can be.
func (e *estimator) quicken(s *Sample) {
	if e.brief.low.count() < fewest/2 {
		return
	}
	now := e.brief.spent / e.brief.served
	if e.quick *= math.Exp(s.Span.Seconds() / peakSpan); e.quick == 0 || now < e.quick {
		e.quick = now
	}
	for i, q := range quantiles {
		now := e.brief.low.at(q)
		if e.quickest[i] *= math.Exp(s.Span.Seconds() / peakSpan); e.quickest[i] == 0 || now < e.quickest[i] {
			e.quickest[i] = now
		}
	}
}

// inflation is how many times as long requests take as they did without a queue, the quick ones as
// well.
func (e *estimator) inflation() float64 {
	if e.brief.low.count() < fewest/2 {
		return 1
	}
	least := math.Inf(1)
	for i, q := range quantiles {
		was := e.quickest[i]
		if e.low.count() >= fewest {
			was = min(was, e.low.at(q))
		}
		least = min(least, e.brief.low.at(q)/max(was, 1e-6))
	}
	return least
}

// step learns from a sample without overload, in which requests queued inside the server or not: times in service are
// longer then.
func (e *estimator) step(s *Sample, queued bool) {
	span := s.Span.Seconds()
	e.cores = s.Cores
	if e.seen == 0 && s.Waiting == 0 { // else more were kept out
		e.first = float64(s.InService)
	}
	e.seen += span
	if s.Waiting == 0 {
		e.long.forget(span, memory)
		e.long.add(s)
	}
	slowly := math.Exp(-span / (3 * memory))
	e.left *= slowly
	if e.peak *= slowly; s.Waiting == 0 && !e.queues(s, suspicion) && (s.Cores == 0 || s.Busy < saturated*s.Cores) {
		e.peak = max(e.peak, s.MeanInService)
	}
	if s.Busy < busyAbout*s.Cores {
		over := busySpan
		if s.Busy > e.busy {
			over = briefly
		}
		e.busy += (s.Busy - e.busy) * (1 - math.Exp(-span/over))
	}
	if s.Served == 0 {
		if s.InService == 0 && s.Cores > 0 {
			e.background += (s.Busy - e.background) * min(1, span)
		}
		return
	}
	k := float64(s.Served)
	keep := math.Exp(-span / memory)
	if s.Cores > 0 {
		e.demand.add(max(s.Busy-e.background, 0)*span, k, keep)
	}
	if (s.Cores == 0 || s.Busy < quietest*s.Cores) && !queued && !e.queues(s, suspicion) {
		e.residence.add(s.Service.Sum.Seconds(), k, keep)
		e.low.add(&s.Service, keep)
	}
}

// crowded tells whether more requests are in service than there would be, at this throughput,
// if they took as long as they did.
func (e *estimator) crowded(s *Sample) bool {
	return float64(s.InService) > 1.8*e.brief.rate()*e.service()+4
}

// service is the mean time in service of a request that does not queue, seconds.
func (e *estimator) service() float64 {
	if e.residence.count >= fewest {
		return min(e.residence.mean(), e.quick)
	}
	return e.quick
}

// little returns, for a server inside which requests wait for something else than a processor,
// as many as would be in service at this throughput if they did not, by Little's law.
func (e *estimator) little(s *Sample) float64 {
	return 1.2 * max(e.brief.rate(), float64(s.Served)/s.Span.Seconds()) * e.service()
}

// queues tells whether all requests, the quick ones as well, take so many times as long as they
// did, and more of them are in service than would be otherwise. Some that are slow by themselves
// do not look like this.
func (e *estimator) queues(s *Sample, times float64) bool {
	return e.crowded(s) && e.inflation() >= times
}

// capacity returns X*, the completions per second that the processors allow, or 0 if it is not
// known.
func (e *estimator) capacity() float64 {
	if e.cores == 0 || e.demand.count < fewest || e.demand.of <= 0 {
		return 0
	}
	return e.cores / e.demand.mean()
}

// knee returns N*, the requests in service from which on the processors are busy if no request
// waits for another, or 0 if it is not known.
func (e *estimator) knee() float64 {
	x := e.capacity()
	if x == 0 || e.residence.count < fewest {
		return 0
	}
	return max(x*e.residence.mean(), 1)
}

// knows tells whether there is a limit that comes from what is known of the server.
func (e *estimator) knows() bool {
	return e.seen >= learnFor && (e.knee() > 0 || e.cores == 0 && e.residence.count >= fewest)
}

// opens tells whether requests wait, or have waited, for a server of which nothing is known, and which may yet have
// more: neither are its processors busy, nor does it leave some of what it has untaken.
func (e *estimator) opens(s *Sample, q *inside) bool {
	busy := s.Cores > 0 && s.use() >= saturated*s.Cores
	waited := s.Waiting > 0 || s.Held > 0
	return !e.knows() && e.opened < 1 && waited && !busy && q.taken() == 0
}

// open lets a server have more of which nothing is known.
func (e *estimator) open(s *Sample, q *inside) {
	if e.opens(s, q) && (s.Cores > 0 || e.seen >= blindFor) {
		e.opened = min(2*e.opened, 1)
	}
}

// headroom returns a limit that holds no request of a server that keeps up, yet does not let in
// seconds of work when a flood begins, and whether it comes from what is known of the server.
func (e *estimator) headroom() (limit int, known bool) {
	if !e.knows() {
		return e.cold(), false
	}
	n := e.knee()
	if n > 0 {
		u := min(max(e.busy/e.cores, 0.1), 0.9)
		n = max(slack*n, n+math.Log(rarely)/math.Log(u), n+e.burst*e.capacity(), n+e.unheld(), slack*max(e.peak, e.left))
	} else { // processors are not seen
		n = max(8*e.peak, 64)
	}
	return int(min(math.Ceil(n), highestLimit)), true
}

// cold returns the limit of a server of which nothing is known: what came all at once in the first moment, and was let in,
// can be taken back no more.
func (e *estimator) cold() int {
	n := max(e.opened*max(coldLimit, coldCore*e.cores), coldMore*max(e.peak, e.first), e.unheld())
	return int(min(math.Ceil(n), highestLimit))
}

// unheld returns how many may queue inside where answers are cheap, of which so many were there of late that holding
// requests would cost more; else 0. That one takes little of a processor is no proof: it may take something else.
func (e *estimator) unheld() float64 {
	x := e.brief.rate()
	if !holdingCosts(x, max(e.cores, 1)) {
		return 0
	}
	return cheapQueue * x
}
