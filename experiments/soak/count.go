// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// history is what was done lately.
type history struct {
	mu     sync.Mutex
	events []string
}

// note adds what has just happened.
func (h *history) note(format string, args ...any) {
	const most = 16
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	h.events = h.events[max(0, len(h.events)-most):]
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.events, "\n")
}

// counts are how often something was done, by name.
type counts struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counts) change(name string, by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	if c.n[name] += by; c.n[name] == 0 {
		delete(c.n, name)
	}
}

func (c *counts) add(name string) { c.change(name, 1) }

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.n)) {
		if n := c.n[name]; n == 1 {
			all = append(all, name)
		} else {
			all = append(all, fmt.Sprintf("%s × %d", name, n))
		}
	}
	if len(all) == 0 {
		return "nothing"
	}
	return strings.Join(all, ", ")
}

func (c *counts) sum() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.n {
		n += v
	}
	return n
}
