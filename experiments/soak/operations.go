// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"narthex/internal/lab"
)

// operation is something that an operator does, or that happens to a machine.
type operation struct {
	name   string
	weight int
	do     func(w *world, ctx context.Context, rng *rand.Rand) error
}

var operations = []operation{
	{"reload", 6, (*world).reload},
	{"set", 6, (*world).set},
	{"kill", 2, (*world).kill},
	{"link", 1, (*world).link},
	{"restart", 1, (*world).restart},
}

// operate does one operation after the other until the context ends.
func (w *world) operate(ctx context.Context, rng *rand.Rand) error {
	var kinds []kind
	for _, o := range w.operations {
		kinds = append(kinds, kind{name: o.name, weight: o.weight})
	}
	for len(kinds) > 0 && sleep(ctx, time.Second+time.Duration(rng.Int64N(int64(3*time.Second)))) == nil {
		name := choose(rng, kinds).name
		for _, o := range w.operations {
			if o.name != name {
				continue
			}
			end := w.begin(name)
			// What was begun is also brought to its end.
			err := o.do(w, context.WithoutCancel(ctx), rng)
			end()
			w.done.add(name)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// reload puts another policy in force.
func (w *world) reload(ctx context.Context, rng *rand.Rand) error {
	p := w.otherPolicy(rng)
	w.history.note("to %+v", p)
	if err := w.writePolicy(p); err != nil {
		return err
	}
	_, err := w.narthex.Swap(ctx, w.policy)
	return err
}

// set changes a limit.
func (w *world) set(ctx context.Context, rng *rand.Rand) error {
	s := w.rig.services[rng.IntN(len(w.rig.services))]
	path, value := "services."+s.name+".concurrency", fmt.Sprint(1+rng.IntN(8))
	switch rng.IntN(5) {
	case 0:
		path, value = "services."+s.name+".queue.size", fmt.Sprint(10+rng.IntN(500))
	case 1:
		path, value = "classes.bronze.max", []string{"none", "1", "3"}[rng.IntN(3)]
	}
	w.history.note("%s %s", path, value)
	return w.narthex.Set(ctx, path, value)
}

// kill has the daemon die, and after a while the next one take over.
func (w *world) kill(ctx context.Context, rng *rand.Rand) error {
	if err := w.narthex.Kill(); err != nil {
		return err
	}
	if err := sleep(ctx, time.Duration(rng.Int64N(int64(2*time.Second)))); err != nil {
		return err
	}
	return w.narthex.Restart(ctx)
}

// link has the link go down for a moment. What is lost meanwhile is sent again, at the latest
// after a time that doubles with each loss.
func (w *world) link(ctx context.Context, rng *rand.Rand) error {
	end := w.ledger.excuse(nil, false, 3*time.Second)
	defer end()
	// Who connects meanwhile hears that there is no way.
	endConnects := w.ledger.excuse(nil, true, 0)
	defer endConnects()
	ns := []*lab.Namespace{w.rig.Client, w.rig.Server}[rng.IntN(2)]
	if err := ns.SetDown(lab.Dev); err != nil {
		return err
	}
	err := sleep(ctx, time.Duration(50+rng.IntN(400))*time.Millisecond)
	return errors.Join(err, ns.SetUp(lab.Dev))
}

// restart stops a server with all its connections and starts it again.
func (w *world) restart(_ context.Context, rng *rand.Rand) error {
	s := w.rig.services[rng.IntN(len(w.rig.services))]
	end := w.ledger.excuse(s, true, 2*time.Second)
	defer end()
	w.history.note("of %s", s.name)
	if err := s.server.Close(); err != nil {
		return err
	}
	var err error
	s.server, err = s.start(w.rig, s)
	return err
}

// policy is what changes in a policy.
type policy struct {
	concurrency []int // by service; 0: unlimited
	shadow      []bool
	queue       int
	wait        time.Duration
	bronze      string // further keys of the class
	silver      string
}

// limit is what services have at first and at the end.
const limit = 3

func (w *world) firstPolicy() policy {
	p := policy{queue: 1000, wait: 4 * time.Second}
	for range w.rig.services {
		p.concurrency, p.shadow = append(p.concurrency, limit), append(p.shadow, false)
	}
	return p
}

// otherPolicy is any.
func (w *world) otherPolicy(rng *rand.Rand) policy {
	p := w.firstPolicy()
	for i := range p.concurrency {
		p.concurrency[i] = []int{0, 1, 2, 3, 4, 8, 50}[rng.IntN(7)]
		p.shadow[i] = rng.IntN(12) == 0
		if w.rig.services[i].frail {
			p.concurrency[i], p.shadow[i] = max(1, p.concurrency[i]), false
		}
	}
	p.queue = []int{20, 200, 4000}[rng.IntN(3)]
	p.wait = time.Duration(1+rng.IntN(4)) * time.Second
	p.bronze = []string{"", "max: 2", "max: 6"}[rng.IntN(3)]
	p.silver = []string{"", "reserve: 10%", "reserve: 50%"}[rng.IntN(3)]
	return p
}

func (p policy) text(services []*service) string {
	var b strings.Builder
	b.WriteString("version: 1\nservices:\n")
	for i, s := range services {
		concurrency := fmt.Sprint(p.concurrency[i])
		if p.concurrency[i] == 0 {
			concurrency = "unlimited"
		}
		fmt.Fprintf(&b, "  - {name: %s, listen: [\"*:%d\"], protocol: %s, concurrency: %s, queue: {size: %d, max_wait: %v}", s.name, s.port,
			s.protocol, concurrency, p.queue, p.wait)
		if p.shadow[i] {
			b.WriteString(", mode: shadow")
		}
		b.WriteString("}\n")
	}
	b.WriteString("classes:\n")
	for i, c := range classes {
		keys := map[string]string{"silver": p.silver, "bronze": p.bronze}[c.name]
		if keys != "" {
			keys = ", " + keys
		}
		fmt.Fprintf(&b, "  - {name: %s, priority: %d%s}\n", c.name, i+1, keys)
	}
	b.WriteString("connections:\n")
	for _, c := range classes {
		fmt.Fprintf(&b, "  - {name: %s, from: [10.77.%d.0/24, \"fd77::%d:0/112\"], class: %s}\n", c.name, c.number, c.number, c.name)
	}
	return b.String()
}

// writePolicy replaces the policy file at once.
func (w *world) writePolicy(p policy) error {
	next := w.policy + "~"
	if err := os.WriteFile(next, []byte(p.text(w.rig.services)), 0o600); err != nil {
		return err
	}
	return os.Rename(next, w.policy)
}

func (w *world) policyFile() string { return filepath.Join(w.rig.dir, "policy.yaml") }
