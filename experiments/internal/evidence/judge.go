// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"fmt"
	"math"
	"slices"
)

// Verdict is what follows from claims.
type Verdict string

// The verdicts.
const (
	Holds     Verdict = "holds"
	Fails     Verdict = "does not hold"
	NotJudged Verdict = "not judged" // something is invalid or was not measured
	NoClaim   Verdict = "no claim"   // of this kind, in a result that has others
)

// Holds reports whether the samples' median keeps to the bounds. It does not without samples, nor
// if one of them is no number, nor without bounds.
func (c *Claim) Holds() bool {
	if !measured(c.Samples) || c.Least == nil && c.Most == nil {
		return false
	}
	m := Median(c.Samples)
	return (c.Least == nil || m >= *c.Least) && (c.Most == nil || m <= *c.Most)
}

// Verdict is that on the claim alone, whatever else is wrong with the result.
func (c *Claim) Verdict() Verdict {
	switch {
	case !measured(c.Samples), c.Least == nil && c.Most == nil:
		return NotJudged
	case c.Holds():
		return Holds
	}
	return Fails
}

// Verdict is that on all claims. Nothing is judged if a run stayed invalid.
func (r *Result) Verdict() Verdict {
	return r.verdict(func(*Claim) bool { return true }, NotJudged)
}

// VerdictOn is that on the claims of one kind, [NoClaim] if there are none of it.
func (r *Result) VerdictOn(k Kind) Verdict {
	return r.verdict(func(c *Claim) bool { return c.Kind == k }, NoClaim)
}

// On is the verdict on one of the claims, [NotJudged] if a run stayed invalid.
func (r *Result) On(c *Claim) Verdict {
	if len(r.Invalid) > 0 {
		return NotJudged
	}
	return c.Verdict()
}

// verdict is that on some claims: the worst, where what is refuted is worse than what is unknown.
func (r *Result) verdict(about func(*Claim) bool, none Verdict) Verdict {
	if len(r.Invalid) > 0 || len(r.Claims) == 0 {
		return NotJudged
	}
	worst := none
	for i := range r.Claims {
		if !about(&r.Claims[i]) {
			continue
		}
		switch v := r.Claims[i].Verdict(); {
		case v == Fails:
			return Fails
		case v == NotJudged, worst == none:
			worst = v
		}
	}
	return worst
}

// Standing is how ours compares with a peer's.
type Standing string

// The standings.
const (
	Better      Standing = "better"
	Worse       Standing = "worse"
	Alike       Standing = "alike"
	NotCompared Standing = "not compared"
)

// alike is how far from 1 a ratio's median may be without a difference that matters.
const alike = 0.03

// Standing is what follows from the samples. Ours and theirs are alike if the samples are on both
// sides of 1, or their median is within 3 % of it.
func (q *Ratio) Standing() Standing {
	if !measured(q.Samples) {
		return NotCompared
	}
	m := Median(q.Samples)
	switch least, most := Range(q.Samples); {
	case least <= 1 && most >= 1, math.Abs(m-1) <= alike:
		return Alike
	case (m > 1) != q.Low:
		return Better
	}
	return Worse
}

// Than leads to the peer's name.
func (s Standing) Than() string {
	return map[Standing]string{Better: "better than", Worse: "worse than", Alike: "like", NotCompared: "not compared with"}[s]
}

// rank puts what speaks against us first.
func (s Standing) rank() int {
	return slices.Index([]Standing{Worse, NotCompared, Alike, Better}, s)
}

// Comparison is a ratio with what follows from it.
type Comparison struct {
	Ratio
	Standing Standing
}

// Compared are the ratios, those where the peer is better first. Where a run stayed invalid nothing
// speaks for us.
func (r *Result) Compared() []Comparison {
	var all []Comparison
	for _, q := range r.Ratios {
		c := Comparison{q, q.Standing()}
		if len(r.Invalid) > 0 && c.Standing != Worse {
			c.Standing = NotCompared
		}
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b Comparison) int { return a.Standing.rank() - b.Standing.rank() })
	return all
}

// Findings say in sentences what has been found: first what speaks against us, then the rest.
func (r *Result) Findings() []string { return append(r.Against(), r.favourable()...) }

// Against says where a peer is better, then what is invalid, does not hold or could not be judged.
func (r *Result) Against() []string {
	var said []string
	for _, q := range r.Compared() {
		if q.Standing == Worse {
			said = append(said, q.String())
		}
	}
	for _, why := range r.Invalid {
		said = append(said, "Invalid: "+why+".")
	}
	if len(r.Claims) == 0 {
		said = append(said, "Not judged: there is no claim.")
	}
	return append(said, r.claimed(Fails, NotJudged)...)
}

// favourable is what remains.
func (r *Result) favourable() []string {
	said := r.claimed(Holds)
	for _, q := range r.Compared() {
		if q.Standing != Worse {
			said = append(said, q.String())
		}
	}
	return said
}

// claimed are the claims on which there are these verdicts, one after the other.
func (r *Result) claimed(verdicts ...Verdict) (said []string) {
	for _, v := range verdicts {
		for i := range r.Claims {
			if c := &r.Claims[i]; r.On(c) == v {
				said = append(said, fmt.Sprintf("%s: %s; wanted %s, got %s.", capital(string(v)), c.What, c.Wanted(), c.Got()))
			}
		}
	}
	return said
}

// Against is what a result says about one peer.
type Against struct {
	Comparison     // the least favourable
	Of         int // so many
}

// ByPeer picks for each peer the least favourable ratio, those of better peers first.
func (r *Result) ByPeer() []Against {
	var all []Against
	for _, q := range r.Compared() {
		i := slices.IndexFunc(all, func(a Against) bool { return a.Peer == q.Peer })
		if i < 0 {
			all = append(all, Against{q, 1})
			continue
		}
		all[i].Of++
		if q.Standing == all[i].Standing && q.gain() < all[i].gain() {
			all[i].Comparison = q
		}
	}
	return all
}

// gain is how many times better ours is.
func (q *Ratio) gain() float64 {
	m := Median(q.Samples)
	if q.Low {
		return 1 / m
	}
	return m
}

// Wanted are the bounds, with the unit.
func (c *Claim) Wanted() string {
	switch {
	case c.Least == nil && c.Most == nil:
		return "nothing"
	case c.Most == nil:
		return unit("≥ "+Number(*c.Least), c.Unit)
	case c.Least == nil:
		return unit("≤ "+Number(*c.Most), c.Unit)
	}
	return unit(Number(*c.Least)+" to "+Number(*c.Most), c.Unit)
}

// Got is the samples' median with its range and unit.
func (c *Claim) Got() string { return unit(Spread(c.Samples), c.Unit) }

// String says who is better.
func (q *Comparison) String() string {
	than := capital(q.Standing.Than())
	if q.Standing == NotCompared {
		return fmt.Sprintf("%s %s: %s.", than, q.Peer, q.What)
	}
	less := ""
	if q.Low {
		less = "; less is better"
	}
	return fmt.Sprintf("%s %s: %s, ours is %s × theirs%s.", than, q.Peer, q.What, Spread(q.Samples), less)
}
