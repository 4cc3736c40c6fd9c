// SPDX-License-Identifier: Apache-2.0

package reading

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"narthex/internal/lab"
)

// Config says what is compared.
type Config struct {
	Servers []*Server // see Start
	Seed    uint64
	First   uint64 // number of the first head
	Heads   int
	Workers int // connections at once, of each server

	ns     *lab.Namespace
	stream func(seed, number uint64) []byte // Stream if nil
}

// Start starts servers of which the names are given, or all, in a namespace.
func Start(ns *lab.Namespace, cfg *Config, names ...string) error {
	cfg.ns = ns
	for _, s := range Servers() {
		if len(names) > 0 && !slices.Contains(names, s.Name) {
			continue
		}
		if err := s.start(ns, s.at); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		cfg.Servers = append(cfg.Servers, s)
	}
	return nil
}

// Difference is a head that a server reads otherwise than the data path.
type Difference struct {
	Server, What string
	Number       uint64
	Wire         []byte
	Exchange     Exchange
}

// Outcome is what the heads came to.
type Outcome struct {
	Heads, Passed, Refused int            // by the data path
	Skipped                int            // of which the comparison says nothing
	Served                 map[string]int // requests that the data path has let in, by server
	Differences            []Difference
	Strict                 []uint64 // heads that the data path refuses and all servers serve
}

// job is one head.
type job struct {
	number uint64
	gate   Gate
	wire   []byte
	got    []Exchange // by server
}

// Run has the servers read heads.
func Run(cfg Config) (*Outcome, error) {
	if cfg.stream == nil {
		cfg.stream = Stream
	}
	out := &Outcome{Served: map[string]int{}}
	reader, err := NewReader()
	if err != nil {
		return nil, err
	}
	const batch = 2000
	for first := 0; first < cfg.Heads; first += batch {
		jobs, err := out.draw(reader, cfg, cfg.First+uint64(first), min(batch, cfg.Heads-first))
		if err != nil {
			return nil, err
		}
		if err := cfg.askAll(jobs); err != nil {
			return nil, err
		}
		for _, j := range jobs {
			out.note(cfg, j)
		}
	}
	return out, nil
}

// draw makes some heads, and reads them.
func (o *Outcome) draw(reader *Reader, cfg Config, first uint64, n int) (jobs []*job, err error) {
	for number := first; number < first+uint64(n); number++ {
		stream := cfg.stream(cfg.Seed, number)
		gate, ok, err := reader.Read(stream)
		if err != nil {
			return nil, fmt.Errorf("head %d: %w: %q", number, err, stream)
		}
		o.Heads++
		if !ok {
			o.Skipped++
			continue
		}
		jobs = append(jobs, &job{number, gate, gate.wire(stream), make([]Exchange, len(cfg.Servers))})
	}
	return jobs, nil
}

// askAll has every server answer all jobs.
func (cfg *Config) askAll(jobs []*job) error {
	var wait sync.WaitGroup
	errs := make([]error, len(cfg.Servers)*cfg.Workers)
	for i, s := range cfg.Servers {
		next := make(chan *job, len(jobs))
		for _, j := range jobs {
			next <- j
		}
		close(next)
		for w := range cfg.Workers {
			wait.Go(func() {
				errs[i*cfg.Workers+w] = cfg.ns.Do(func() error { return s.askEach(next, i) })
			})
		}
	}
	wait.Wait()
	return errors.Join(errs...)
}

// askEach asks the server for the jobs of a channel.
func (s *Server) askEach(jobs <-chan *job, index int) (err error) {
	for j := range jobs {
		if j.got[index], err = s.ask(j); err != nil {
			return fmt.Errorf("%s, head %d: %w", s.Name, j.number, err)
		}
	}
	return nil
}

// note adds what servers have answered.
func (o *Outcome) note(cfg Config, j *job) {
	if j.gate.Refused != "" {
		o.Refused++
		if agree(j.got) {
			o.Strict = append(o.Strict, j.number)
		}
		return
	}
	o.Passed++
	for i, e := range j.got {
		name := cfg.Servers[i].Name
		if e.served() {
			o.Served[name]++
		}
		if what := j.gate.compare(&e); what != "" {
			o.Differences = append(o.Differences, Difference{name, what, j.number, j.wire, e})
		}
	}
}

// String says all that matters in a few lines.
func (o *Outcome) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d heads: %d let in, %d refused, %d not compared; %d differences, %d refused that all servers serve; served of those let in:", o.Heads, o.Passed, o.Refused, o.Skipped, len(o.Differences), len(o.Strict))
	for _, name := range slices.Sorted(maps.Keys(o.Served)) {
		fmt.Fprintf(&b, " %s %d", name, o.Served[name])
	}
	return b.String()
}

// String shows the difference.
func (d *Difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, head %d: %s\n  %.1500q\n", d.Server, d.Number, d.What, d.Wire)
	for _, a := range d.Exchange.Answers {
		fmt.Fprintf(&b, "  answer: %d, connection %q, framed %v, %+v\n", a.Status, a.Said, a.Framed, a.Seen)
	}
	return b.String()
}
