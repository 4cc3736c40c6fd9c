// SPDX-License-Identifier: Apache-2.0

package model

// scenario is a small world of which all states are visited.
type scenario struct {
	name  string
	large bool // takes minutes
	Config
}

// one is a service with one place, one piece a request, and one request a connection.
func one(conns, cpus int, slots uint8, change func(*Config)) Config {
	c := Config{Conns: conns, CPUs: cpus, Slots: slots, Queue: 2, Limit: 1, Requests: 1, Pieces: 1, Head: 1, Ring: 1}
	change(&c)
	return c
}

var scenarios = []scenario{
	{"turns", false, one(2, 2, 2, func(c *Config) { c.NoTick = true })},
	{"resets", false, one(2, 2, 1, func(c *Config) { c.Resets, c.Hostile, c.NoTick, c.NoRepeat = true, 1, true, true })},
	{"closes", false, one(2, 2, 1, func(c *Config) { c.Closes, c.Hostile, c.NoTick, c.NoRepeat = true, 1, true, true })},
	{"leaves", false, one(2, 2, 1, func(c *Config) { c.FINs, c.NoTick, c.NoRepeat = true, true, true })},
	{"full queue", false, one(2, 2, 2, func(c *Config) { c.Queue, c.NoTick = 0, true })},
	{"faults", false, one(2, 1, 2, func(c *Config) { c.Crowds, c.Loses, c.Ages, c.Changes = true, true, true, 3 })},
	{"ends", false, one(2, 1, 1, func(c *Config) { c.Requests, c.Backlog, c.Resets, c.Closes = 2, true, true, true })},
	{"crowd", false, one(2, 2, 2, func(c *Config) { c.Crowds, c.Changes, c.NoTick, c.NoRepeat = true, 1, true, true })},
	{"keep-alive", false, one(1, 2, 1, func(c *Config) { c.Requests, c.Lies = 3, true })},
	{"heads in pieces", false, one(2, 1, 2, func(c *Config) {
		c.Pieces, c.Head, c.Watches, c.Ages, c.Resets, c.Loses, c.Changes, c.NoTick = 2, 2, true, true, true, true, 1, true
	})},
	{"a head on two CPUs", false, one(1, 2, 1, func(c *Config) {
		c.Pieces, c.Head, c.Watches, c.Resets, c.Closes = 3, 3, true, true, true
	})},
	{"bodies", false, one(2, 1, 2, func(c *Config) {
		c.Pieces, c.Ring, c.Watches, c.Ages, c.Resets = 2, 2, true, true, true
	})},
	{"a body on two CPUs", false, one(1, 2, 1, func(c *Config) {
		c.Requests, c.Pieces, c.Watches, c.NoTick = 2, 2, true, true
	})},
	{"tcp", false, one(2, 1, 2, func(c *Config) { c.Requests, c.TCP, c.Ring, c.Watches = 2, true, 2, true })},
	{"tcp on two CPUs", false, one(1, 2, 1, func(c *Config) { c.Requests, c.TCP, c.Watches, c.Resets = 2, true, true, true })},
	{"epochs", false, one(2, 1, 2, func(c *Config) { c.Requests, c.Epochs, c.Resets, c.NoTick = 2, true, true, true })},
	{"drops", false, one(2, 1, 2, func(c *Config) {
		c.Requests, c.Drops, c.Watches, c.Changes, c.Ring = 2, true, true, 2, 2
	})},
	{"drops on two CPUs", false, one(1, 2, 1, func(c *Config) {
		c.Requests, c.Drops, c.Watches, c.Changes, c.Resets = 2, true, true, 2, true
	})},
	{"heads that are dropped", false, one(2, 1, 2, func(c *Config) {
		c.Pieces, c.Head, c.Drops, c.Watches, c.Ages, c.Crowds, c.Changes, c.NoTick, c.Ring = 2, 2, true, true, true, true, 2, true, 2
	})},
	{"classes", false, one(3, 1, 2, func(c *Config) {
		c.Class, c.Reloads, c.Changes, c.NoTick, c.NoRepeat = [3]uint8{0, 1, 1}, true, 2, true, true
	})},
	{"max", false, one(3, 1, 2, func(c *Config) { c.Class, c.Limit, c.Max = [3]uint8{0, 1, 1}, 2, [2]uint8{0, 1} })},
	{"memory", false, one(2, 2, 1, func(c *Config) { c.Backlog, c.NoTick, c.NoRepeat = true, true, true })},
	{"lives", false, one(1, 2, 1, func(c *Config) { c.Backlog, c.Lives, c.Resets = true, 1, true })},

	// No place at all, and no queue.
	{"refused", false, one(1, 2, 1, func(c *Config) { c.Limit, c.Queue, c.Backlog, c.Lives = 0, 0, true, 1 })},

	{"all reset", true, one(2, 2, 2, func(c *Config) { c.Resets, c.NoRepeat = true, true })},
	{"all close", true, one(2, 2, 1, func(c *Config) { c.Closes, c.FINs, c.NoRepeat = true, true, true })},
	{"crowds", true, one(2, 2, 2, func(c *Config) { c.Crowds, c.Ages, c.Changes, c.NoTick, c.NoRepeat = true, true, 2, true, true })},
	{"heads on two CPUs", true, one(2, 2, 2, func(c *Config) {
		c.Pieces, c.Head, c.Watches, c.NoTick, c.NoRepeat = 2, 2, true, true, true
	})},
	{"bodies on two CPUs", true, one(2, 2, 1, func(c *Config) {
		c.Pieces, c.Ring, c.Queue, c.Watches, c.NoTick, c.NoRepeat = 2, 1, 1, true, true, true
	})},
	{"two in service", true, one(3, 1, 3, func(c *Config) {
		c.Limit, c.Requests, c.Resets, c.NoTick, c.NoRepeat = 2, 1, true, true, true
	})},
}
