// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/attack"
)

// The connections upon which is forged.
const (
	forgedEach  = 8  // of each state
	forgedHeld  = 45 // seconds for which requests can be held: the kernel gives those up that wait longer than a minute
	forgedSlice = 20 * time.Second
)

// forged: packets in the name of connections of others.
func (b suite) forged(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.stage("forged")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if err := st.origin(origin.Config{}); err != nil {
		return nil, err
	}
	if err := st.enforce(ctx, fmt.Sprintf("concurrency: %d, queue: {max_wait: %ds}", forgedEach, forgedHeld)); err != nil {
		return nil, err
	}
	for _, kind := range []attack.Kind{attack.ForgeData, attack.ForgeACK, attack.ForgeRST, attack.ForgeFIN} {
		for _, victims := range []string{"held", "in service", "idle", "no connection"} {
			f, err := st.forge(ctx, kind, victims)
			figures = append(figures, f...)
			if err != nil {
				return figures, fmt.Errorf("forged %s, %s: %w", kind, victims, err)
			}
		}
	}
	return figures, nil
}

// people are clients in every state.
type people struct {
	served, held, idle []*visit
}

func (p *people) close() {
	for _, list := range [][]*visit{p.served, p.held, p.idle} {
		for _, v := range list {
			v.conn.Close()
		}
	}
}

// gather has clients connect and ask, so that there are some in each state. The name is one
// that the server has not been told before.
func (st *stage) gather(ctx context.Context, name string) (p *people, err error) {
	p = &people{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	add := func(list *[]*visit, path string) error {
		v, err := st.visit(ctx, st.rig.ClientsV4[0])
		if err != nil {
			return err
		}
		*list = append(*list, v)
		return v.ask(path)
	}
	for range forgedEach {
		if err := add(&p.idle, "/"); err != nil {
			return p, err
		}
		if _, err := p.idle[len(p.idle)-1].answer(); err != nil {
			return p, err
		}
	}
	for i := range forgedEach {
		if err := add(&p.served, fmt.Sprintf("/wait?for=%s&served=%d", name, i)); err != nil {
			return p, err
		}
	}
	if _, _, err := st.until(ctx, 5*time.Second, func(s state) bool { return s.inService == forgedEach }); err != nil {
		return p, err
	}
	for i := range forgedEach {
		if err := add(&p.held, fmt.Sprintf("/wait?for=%s&held=%d", name, i)); err != nil {
			return p, err
		}
	}
	s, _, err := st.until(ctx, 5*time.Second, func(s state) bool { return s.waiting == forgedEach })
	if err == nil && (s.waiting != forgedEach || s.inService != forgedEach) {
		err = fmt.Errorf("before anything was forged: %v", s)
	}
	return p, err
}

// victims are those upon whom is forged.
func (p *people) victims(st *stage, which string) (all []attack.Victim, err error) {
	if which == "no connection" {
		return nobodies(bench.Web(st.rig)), nil
	}
	for _, v := range map[string][]*visit{"held": p.held, "in service": p.served, "idle": p.idle}[which] {
		victim, err := v.victim()
		if err != nil {
			return nil, err
		}
		all = append(all, victim)
	}
	return all, nil
}

// forge sends packets of one kind and looks what became of everybody's requests.
func (st *stage) forge(ctx context.Context, kind attack.Kind, which string) ([]bench.Figure, error) {
	name := fmt.Sprintf("%d-%s", kind, which[:2])
	p, err := st.gather(ctx, name)
	if err != nil {
		return nil, err
	}
	defer p.close()
	victims, err := p.victims(st, which)
	if err != nil {
		return nil, err
	}
	before, err := st.state(ctx)
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	sent, most, err := st.send(ctx, kind, victims, before)
	if err != nil {
		return nil, err
	}
	took := time.Since(begun).Seconds()
	after, err := st.state(ctx)
	if err != nil {
		return nil, err
	}
	harmed, what := st.harmed(ctx, p, name)
	s, _, err := st.until(ctx, calmLimit, state.zero)
	if err != nil {
		return nil, err
	}
	if !s.zero() {
		what = append(what, fmt.Sprintf("after it: %v", s))
	}
	ended := after.gone() - before.gone()
	st.Progress("  %s, %s: %d packets in %.1f s, %d slots taken, %d requests ended, %d altered or without an answer %q", kind, which, sent, took, most, ended, harmed, what)
	title := fmt.Sprintf("%s, %s", kind, which)
	figures := []bench.Figure{
		{What: title + ": packets", Wanted: bench.AtLeast(float64(*packets)), Samples: []float64{float64(sent)}},
		{What: "  slots taken", Wanted: bench.Always(0, 0), Samples: []float64{float64(most)}},
		{What: "  requests ended, or altered, or not answered", Wanted: bench.Always(0, 0), Samples: []float64{float64(int(ended) + harmed + len(what) - harmed)}},
		{What: "  packets/s", Unit: "/s", Samples: []float64{float64(sent) / took}},
	}
	if len(what) > 0 {
		figures[2].Note = fmt.Sprint(what)
	}
	return figures, nil
}

// gone is how many requests have ended so far without being served.
func (s state) gone() (n uint64) {
	for _, c := range s.classes {
		n += c.GaveUp + c.Lost
		for _, r := range c.Rejected {
			n += r
		}
	}
	return n
}

// send sends the packets: with any numbers, with some in the window, and with some beyond it,
// a third of each. It returns how many, and how many more slots were taken at most.
func (st *stage) send(ctx context.Context, kind attack.Kind, victims []attack.Victim, before state) (sent uint64, most int, err error) {
	aims := []attack.Aim{attack.Blind, attack.Inside, attack.Outside}
	for _, aim := range aims {
		run, err := attack.Forgery{
			Link: attack.Over(st.rig), Kind: kind, Aim: aim, Victims: victims,
			Pace: attack.Pace{Count: *packets/uint64(len(aims)) + 1, Seed: uint64(aim)},
		}.Start(ctx)
		if err != nil {
			return sent, most, err
		}
		for limit := time.Now().Add(forgedSlice); time.Now().Before(limit); {
			select {
			case <-run.Done():
				limit = time.Now()
			case <-time.After(50 * time.Millisecond):
			}
			s, err := st.state(ctx)
			if err != nil {
				return sent, most, errors.Join(err, run.Stop())
			}
			most = max(most, s.slots-before.slots)
		}
		err = run.Stop()
		sent += run.Counts().Sent
		if err != nil {
			return sent, most, err
		}
	}
	return sent, most, nil
}

// harmed lets everybody's request go and counts those that are not answered as they must be.
func (st *stage) harmed(ctx context.Context, p *people, name string) (n int, what []string) {
	if _, err := st.tell(ctx, "/go?for="+name); err != nil {
		return len(p.held), []string{err.Error()}
	}
	judge := func(who string, v *visit) {
		body, err := v.answer()
		if err == nil && string(body) != string(lab.FileContent()) {
			err = fmt.Errorf("another body, of %d bytes", len(body))
		}
		if err != nil {
			n++
			what = append(what, fmt.Sprintf("%s: %v", who, err))
		}
	}
	for _, v := range p.served {
		judge("in service", v)
	}
	for _, v := range p.held {
		judge("held", v)
	}
	for _, v := range p.idle {
		if err := v.ask("/"); err != nil {
			n++
			what = append(what, fmt.Sprintf("idle: %v", err))
			continue
		}
		judge("idle", v)
	}
	if forged, err := st.asked(ctx, "/forged"); err != nil || len(forged) > 0 {
		n += len(forged)
		what = append(what, fmt.Sprintf("%d forged requests were answered, %v", len(forged), err))
	}
	return n, what
}
