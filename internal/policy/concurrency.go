// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxConcurrency bounds what a policy names as a limit, in requests.
const maxConcurrency = 1_000_000

// defaultFloor is what a limit that sets itself never falls below, unless the policy says
// otherwise, in requests.
const defaultFloor = 1

// parseTarget reads how long requests may wait inside the server.
var parseTarget = parseDuration(time.Millisecond, 10*time.Second, time.Millisecond)

// concurrency decodes a limit, or the bounds and the target of one that sets itself.
func (d *decoder) concurrency(n *yaml.Node, c *Concurrency) {
	if n.Kind != yaml.MappingNode {
		scalar(d, n, "concurrency", c, parseConcurrency)
		return
	}
	var bounds Concurrency
	seen := d.mapping(n, &concurrencyForm, func(key string, n *yaml.Node) {
		switch key {
		case "min":
			scalar(d, n, key, &bounds.Min, parseLimit)
		case "max":
			scalar(d, n, key, &bounds.Max, parseLimit)
		case "target":
			scalar(d, n, key, &bounds.Target, parseTarget)
		}
	})
	switch {
	case len(n.Content) == 0:
		d.errorAt(n, `"concurrency" is empty; write auto, unlimited, a number, or a target and bounds of auto, as {target: 5ms, min: 4, max: 500}`)
	case bounds.Max > 0 && bounds.Min > bounds.Max:
		d.errorAt(seen["max"], "concurrency: %v", errBounds(bounds.Min, bounds.Max))
	default:
		*c = bounds
	}
}

// parseLimit reads how many requests may be in service.
var parseLimit = parseInt(1, maxConcurrency)

func errBounds(least, most int) error {
	return fmt.Errorf("min %d is above max %d; there is no limit between them", least, most)
}

func parseConcurrency(s string) (Concurrency, error) {
	switch s {
	case "auto":
		return Concurrency{Mode: ConcurrencyAuto}, nil
	case "unlimited":
		return Concurrency{Mode: ConcurrencyUnlimited}, nil
	}
	limit, err := parseLimit(s)
	if err != nil {
		return Concurrency{}, fmt.Errorf("%w, unlimited, auto, or bounds of auto, as {min: 4, max: 500}", err)
	}
	return Concurrency{Mode: ConcurrencyFixed, Limit: limit}, nil
}

// word returns the limit without bounds, as in a policy.
func (c Concurrency) word() string {
	switch c.Mode {
	case ConcurrencyUnlimited:
		return "unlimited"
	case ConcurrencyFixed:
		return fmt.Sprint(c.Limit)
	}
	return "auto"
}

// String returns the limit as in a policy, and the target and the bounds of one that sets itself.
func (c Concurrency) String() string {
	var bounds []string
	if c.target() > 0 {
		bounds = append(bounds, "target "+span(c.Target))
	}
	if c.floor() > defaultFloor {
		bounds = append(bounds, fmt.Sprintf("min %d", c.Min))
	}
	if c.ceiling() > 0 {
		bounds = append(bounds, fmt.Sprintf("max %d", c.Max))
	}
	if len(bounds) == 0 {
		return c.word()
	}
	return c.word() + " (" + strings.Join(bounds, ", ") + ")"
}

// floor is what the limit never falls below, in requests; 0 where it does not set itself.
func (c Concurrency) floor() int {
	if c.Mode != ConcurrencyAuto {
		return 0
	}
	return max(c.Min, defaultFloor)
}

// ceiling is what the limit never rises above, in requests; 0 where there is none, and where
// it does not set itself.
func (c Concurrency) ceiling() int {
	if c.Mode != ConcurrencyAuto {
		return 0
	}
	return c.Max
}

// target is how long requests may wait inside the server; 0 for as long as one takes, and where the limit does
// not set itself.
func (c Concurrency) target() time.Duration {
	if c.Mode != ConcurrencyAuto {
		return 0
	}
	return c.Target
}

// setConcurrency takes a limit over, or hands it back. Its bounds and its target stay for that.
func setConcurrency(c *Concurrency) func(string) error {
	return func(value string) error {
		next, err := parseConcurrency(value)
		if err != nil {
			return err
		}
		next.Min, next.Max, next.Target = c.Min, c.Max, c.Target
		*c = next
		return nil
	}
}

// setPooled sets the limit that a service or pool in a pool has of its own.
func setPooled(c *Concurrency) func(string) error {
	return func(value string) error {
		next, err := parseConcurrency(value)
		if err == nil && next.Mode == ConcurrencyAuto {
			err = fmt.Errorf("the limit %w", errNotAuto)
		}
		if err == nil {
			*c = next
		}
		return err
	}
}

// CheckBounds reports overrides that together leave a service no limit to choose, a target that nobody waits for, or no order of levels.
func (p *Policy) CheckBounds() error {
	for i := range p.Services {
		if c := p.Services[i].Concurrency; c.Max > 0 && c.Min > c.Max {
			return fmt.Errorf("concurrency of service %q: %w", p.Services[i].Name, errBounds(c.Min, c.Max))
		}
		if q := p.Services[i].Queue; q.Target > q.MaxWait {
			return fmt.Errorf("queue of service %q: target: %s is more than max_wait, %s; set one of them first", p.Services[i].Name, span(q.Target), span(q.MaxWait))
		}
		if err := p.Services[i].Overload.check(); err != nil {
			return fmt.Errorf("overload of service %q: %w", p.Services[i].Name, err)
		}
	}
	for i := range p.Pools {
		if c := p.Pools[i].Concurrency; c.Max > 0 && c.Min > c.Max {
			return fmt.Errorf("concurrency of pool %q: %w", p.Pools[i].Name, errBounds(c.Min, c.Max))
		}
	}
	return nil
}
