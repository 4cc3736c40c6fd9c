// SPDX-License-Identifier: Apache-2.0

// Package adapt finds how many requests a server should have in service at once, from what is
// seen of it from outside: completions, how long they took, how busy its processors are.
//
// It knows neither eBPF nor clocks. A Controller is fed one Sample after another and answers
// each with a Decision; the same samples give the same decisions. docs/decisions/0018-adaptation.md
// says why it works as it does.
package adapt

import (
	"time"
)

// Config bounds what a Controller may decide.
type Config struct {
	Floor     int // the lowest limit; less than 1 stands for 1
	Ceiling   int // the highest limit; 0: none
	QueueSize int // how many requests can wait; 0: not known
	// Target is how long what waits inside the server may take; 0: as long as a request does that does
	// not wait, at least a millisecond, and more where holding costs more than it brings.
	Target time.Duration
	// Alike says that all requests are: to let some go first is nothing that holding them could bring.
	Alike bool
	// Cautious says that a server of which nothing is known yet has a limit all the same, a provisional one.
	Cautious bool
	// Streams says that a request is in service until the last byte of its answer: slow ones are judged by their bytes.
	Streams bool
	// Unlimited says that nothing is held but by what a class may have: only how overloaded the service is is asked for.
	Unlimited bool
	// Closable says that requests can ask the server to close their connections.
	Closable bool
	Thresholds
}

// Decision is what a Controller has decided for the time until its next Step.
type Decision struct {
	Limit int `json:"limit"` // requests in service at once; 0: unlimited
	// Provisional says that nothing is known of the server yet: the limit is one that most servers do not need.
	Provisional bool `json:"provisional,omitempty"`
	// Closes has the server be asked to close each connection behind its answer, for workers that stay with one.
	Closes bool `json:"closes,omitempty"`
	// GivenUp has nothing be held by what a class may have in service until those connections are closed.
	GivenUp  bool      `json:"given_up,omitempty"`
	Safe     int       `json:"safe"`           // the limit for when nobody adapts it any more; 0: unlimited
	Overload bool      `json:"overload"`       // the service has more work than it can do
	Level    Level     `json:"level"`          // how much more
	Degree   float64   `json:"degree"`         // of overload: 0 none, up to 1 by how full the queue is, beyond 1 by how many requests are refused
	Keep     []float64 `json:"keep,omitempty"` // share of SYNs to let in, 0 to 1, by rank of their class; nil: all
	// Strangers is which share of SYNs not to let in of sources whose class only their requests tell.
	Strangers float64 `json:"strangers,omitempty"`
	Wait      float64 `json:"wait"`             // seconds that a request would wait that comes now, in the room and inside the server
	Target    float64 `json:"target"`           // seconds that it may be, where rates set themselves
	Signal    string  `json:"signal"`           // what set the limit, one of the Signal constants
	Reason    string  `json:"reason,omitempty"` // a sentence for the audit log if the limit or the state changed noteworthily, else empty
}

// What can set a limit.
const (
	SignalIdle       = "idle"       // nothing known yet: more than most servers need
	SignalHeadroom   = "headroom"   // not overloaded: far above what the server needs
	SignalModel      = "model"      // overloaded: from capacity and time in service before
	SignalTaken      = "taken"      // overloaded: as many as the server takes
	SignalCPU        = "cpu"        // overloaded: processors busy, but no longer than needed
	SignalThroughput = "throughput" // overloaded: completions do not grow with the limit
	SignalMemory     = "memory"     // overloaded: the server pages
	SignalHarm       = "harm"       // overloaded: the server has stopped while requests were held
	SignalFloor      = "floor"      // Config.Floor
	SignalCeiling    = "ceiling"    // Config.Ceiling
)

// Controller adapts the limit of one service. It is not safe for concurrent use.
type Controller struct {
	config   Config
	last     Sample
	begun    bool
	est      estimator
	inside   inside
	bound    binding
	harm     harm
	streams  streams
	search   search
	overload overload
	wait     waiter
	keep     keeper
	safe     safeLimit
	report   reporter
}

// New returns a Controller that has seen nothing yet.
func New(config Config) *Controller {
	c := &Controller{}
	c.est.opened = coldFirst
	c.Configure(config)
	c.report.limit = c.First().Limit
	return c
}

// Configure changes what bounds decisions from the next Step on. What was learned stays.
func (c *Controller) Configure(config Config) {
	config.Floor = max(config.Floor, 1)
	if config.Ceiling > 0 {
		config.Ceiling = max(config.Ceiling, config.Floor)
	}
	c.config = config
	c.inside.most, c.inside.alike = config.Target.Seconds(), config.Alike
	c.est.burst = max(burst, config.Target.Seconds())
	c.search.within(config)
}

// First returns what is to be in force until the first Step.
func (c *Controller) First() Decision {
	d := Decision{Signal: SignalIdle}
	if c.config.Cautious {
		d.Limit = c.est.cold()
	}
	c.clamp(&d)
	d.Signal, d.Safe = SignalIdle, c.config.Ceiling
	return d
}

// Step takes the next sample and returns what is to be in force from now on. Samples are in the
// order of their time and do not overlap.
func (c *Controller) Step(s Sample) Decision {
	if s.Span <= 0 {
		s.Span = 50 * time.Millisecond
	}
	if s.MeanInService <= 0 {
		s.MeanInService = float64(s.InService+c.last.InService) / 2
	}
	limit, signal := c.limit(&s)
	d := Decision{Limit: limit, Signal: signal}
	c.clamp(&d)
	c.wait.step(&s, &c.est, &c.inside, c.config.Target)
	d.Wait, d.Target = c.wait.wait, c.wait.target
	c.overload.step(&s, &c.config, c.waits(&s))
	d.Level, d.Degree = c.overload.level(), c.overload.degree
	d.Overload = d.Level >= LevelOverload
	d.Keep = c.keep.step(&s, c.config.QueueSize)
	d.Strangers = c.keep.strangers
	lasting := d.Limit
	if d.Provisional {
		lasting = 0 // it says nothing of the server
	}
	d.Safe = c.safe.step(&s, lasting)
	d.Closes = c.harm.closes(s.Span.Seconds(), c.binds() || s.Waiting > 0) && c.config.Closable
	d.GivenUp = d.Closes && c.harm.free > 0
	if d.GivenUp && d.Limit > 0 {
		d.Limit = c.harm.above(d.Limit, &s, &c.inside)
	}
	d.Reason = c.report.step(&s, &d, c)
	c.last, c.begun = s, true
	return d
}

// waits tells whether requests wait for more than a moment: for the limit or, where nothing is held, inside
// the server.
func (c *Controller) waits(s *Sample) bool {
	if c.config.Unlimited || c.harm.free > 0 {
		return c.wait.wait > c.wait.target/2
	}
	return (c.bound.active || c.streams.base > 0) && (s.Waiting > 0 || s.Held > 0 || s.Rejected > 0)
}

// limit returns the limit from now on, not clamped yet, and what set it.
func (c *Controller) limit(s *Sample) (limit int, signal string) {
	was := c.bound.active
	c.est.brief.step(s)
	c.est.quicken(s)
	c.inside.step(s)
	if c.config.Unlimited {
		c.harm.step(s, &c.inside, false, false) // a class may have a bound
		if c.wait.wait <= c.wait.target/2 {
			c.est.step(s, c.inside.taken() > 0)
		}
		return 0, SignalIdle
	}
	if c.config.Streams {
		if n, ok := c.streams.step(s); ok && n > 0 {
			c.bound.end()
			return n, SignalThroughput
		} else if ok && c.streams.known {
			c.bound.end()
			return 0, SignalHeadroom
		}
	}
	if c.harm.step(s, &c.inside, c.binds(), !c.fixed() && c.bound.active && c.search.trial > 0) {
		c.bound.end()
		return 0, SignalHarm
	}
	c.bound.step(s, &c.est, &c.inside, &c.search)
	if !c.bound.active {
		c.est.open(s, &c.inside)
		c.est.step(s, c.inside.taken() > 0)
		if was {
			c.est.left = s.MeanInService
		}
		switch n, known := c.est.headroom(); {
		case c.inside.pointless(s):
			return 0, SignalHeadroom
		case known:
			return n, SignalHeadroom
		case c.config.Cautious:
			return n, SignalIdle
		}
		return 0, SignalIdle
	}
	if !was {
		c.search.begin(s, &c.est, &c.inside, c.config, c.bound.probes.on)
	}
	c.search.observe(s, &c.est, &c.inside, c.config)
	return c.search.limit(), c.search.signal
}

// fixed tells whether there is but one limit that may be in force.
func (c *Controller) fixed() bool { return c.config.Floor == c.config.Ceiling }

// binds tells whether requests are held for what the server was found to do.
func (c *Controller) binds() bool { return !c.fixed() && c.bound.active && c.search.paged == 0 }

// clamp keeps a limit between floor and ceiling, and says whether it is provisional.
func (c *Controller) clamp(d *Decision) {
	if floor := c.config.Floor; d.Limit > 0 && d.Limit <= floor {
		if d.Limit = floor; floor > 1 && c.bound.active {
			d.Signal = SignalFloor
		}
	}
	if top := c.config.Ceiling; top > 0 && (d.Limit == 0 || d.Limit >= top) {
		d.Limit, d.Signal = top, SignalCeiling
	}
	d.Provisional = d.Signal == SignalIdle && d.Limit > 0
}
