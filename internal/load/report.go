// SPDX-License-Identifier: Apache-2.0

package load

import (
	"net/netip"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Outcome is how a request ended.
type Outcome uint8

// The outcomes.
const (
	OK           Outcome = iota // a complete answer with a status of 200 to 299; with ConnectOnly, a connection
	OtherStatus                 // a complete answer with another status
	NoConnection                // not connected within ConnectTimeout
	NoAnswer                    // connected, but no complete answer within Timeout
	Refused                     // an RST in answer to the SYN
	Reset                       // an RST on the connection
	Cut                         // closed before the answer was complete
	Failed                      // anything else, such as no free port or an answer without a Content-Length
	Unsent                      // not begun: MaxOpen connections were open
	Unfinished                  // under way at the end of the run
	outcomes
)

var outcomeNames = [outcomes]string{
	"ok", "other status", "no connection", "no answer", "refused", "reset", "cut", "failed", "unsent", "unfinished",
}

// String returns the outcome's name.
func (o Outcome) String() string { return outcomeNames[o] }

// Event is one request. Times are since the start of the run.
type Event struct {
	Source    netip.Addr // zero if the kernel chose it
	Begun     time.Duration
	Connected time.Duration // 0 if it was not, or the connection was open before
	Ended     time.Duration
	Outcome   Outcome
	Status    int // of the answer, 0 if there was none
}

// Report says what happened in a stretch of a run.
type Report struct {
	Elapsed   time.Duration
	Begun     uint64 // requests; each has one outcome in the end
	Connected uint64 // handshakes completed
	Outcomes  [outcomes]uint64
	Bytes     uint64                  // of the bodies of what was OK
	Statuses  map[int]uint64          // answers by status
	Times     *hdrhistogram.Histogram // from begin to last byte of what was OK, in microseconds
	Events    []Event                 // if Record is set, in the order in which they ended
}

// newReport makes an empty report, for times up to a minute with an error of 0.1 %.
func newReport() *Report {
	return &Report{
		Statuses: map[int]uint64{},
		Times:    hdrhistogram.New(1, time.Minute.Microseconds(), 3),
	}
}

// Rate is how many requests per second were OK.
func (r *Report) Rate() float64 { return float64(r.Outcomes[OK]) / r.Elapsed.Seconds() }

// Goodput is how many bytes per second were those of bodies that came completely and were OK.
func (r *Report) Goodput() float64 { return float64(r.Bytes) / r.Elapsed.Seconds() }

// Quantile returns the response time that the given share of OK requests did not exceed.
func (r *Report) Quantile(share float64) time.Duration {
	return time.Duration(r.Times.ValueAtQuantile(share*100)) * time.Microsecond
}

// Median is the response time in the middle, 0 if nothing was OK.
func (r *Report) Median() time.Duration { return r.Quantile(0.5) }

// Add adds what happened in another stretch.
func (r *Report) Add(o *Report) {
	r.Elapsed += o.Elapsed
	r.Begun += o.Begun
	r.Connected += o.Connected
	r.Bytes += o.Bytes
	for i, n := range o.Outcomes {
		r.Outcomes[i] += n
	}
	for status, n := range o.Statuses {
		r.Statuses[status] += n
	}
	r.Times.Merge(o.Times)
	r.Events = append(r.Events, o.Events...)
}

// tally collects reports while a run goes on.
type tally struct {
	record bool
	start  time.Time

	mu     sync.Mutex
	past   *Report // up to the last cut
	recent *Report
	since  time.Time // when the last cut was
}

func newTally(record bool) *tally {
	return &tally{record: record, past: newReport(), recent: newReport()}
}

// begin starts the clock.
func (t *tally) begin(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.start, t.since = now, now
}

func (t *tally) begun() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recent.Begun++
}

func (t *tally) connected() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.recent.Connected++
}

// ended counts the end of a connection's request.
func (t *tally) ended(c *conn, ended time.Time, o Outcome) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.recent
	r.Outcomes[o]++
	if c.answer.status != 0 {
		r.Statuses[c.answer.status]++
	}
	if o == OK {
		r.Bytes += uint64(c.answer.length)
		// Cannot fail: timeouts keep it in range.
		_ = r.Times.RecordValue(min(ended.Sub(c.begun).Microseconds(), r.Times.HighestTrackableValue()))
	}
	if !t.record {
		return
	}
	e := Event{Source: c.source, Begun: c.begun.Sub(t.start), Ended: ended.Sub(t.start), Outcome: o, Status: c.answer.status}
	if !c.connected.IsZero() {
		e.Connected = c.connected.Sub(t.start)
	}
	r.Events = append(r.Events, e)
}

// cut returns what happened since the last cut.
func (t *tally) cut(now time.Time) *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.recent
	if !t.since.IsZero() {
		r.Elapsed = now.Sub(t.since)
	}
	t.since = now
	t.past.Add(r)
	t.recent = newReport()
	return r
}

// total returns what happened since the start.
func (t *tally) total(now time.Time) *Report {
	t.cut(now)
	t.mu.Lock()
	defer t.mu.Unlock()
	r := newReport()
	r.Add(t.past)
	return r
}
