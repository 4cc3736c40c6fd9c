// SPDX-License-Identifier: Apache-2.0

package generator

import "maps"

// Counts is what has happened since the start. Retransmissions count again, but for Answers.
type Counts struct {
	SYNs     uint64         // that were sent
	Unsent   uint64         // SYNs that the rate asked for and that were not sent: the generator was saturated
	Lost     uint64         // frames that the device dropped for want of room in the other end's ring, those of its other senders included
	SYNACKs  uint64         // that came
	Requests uint64         // that were sent, each with the end of a handshake
	Ends     uint64         // FINs that came
	Resets   uint64         // RSTs that came
	Stale    uint64         // segments that came for connections of earlier runs, and were answered with RST
	Repeated uint64         // answers that came again
	Answers  map[int]uint64 // answers that began, by HTTP status
}

// Minus returns what has happened between d and c.
func (c Counts) Minus(d Counts) Counts {
	answers := maps.Clone(c.Answers)
	for status, n := range d.Answers {
		if answers[status] -= n; answers[status] == 0 {
			delete(answers, status)
		}
	}
	return Counts{
		SYNs: c.SYNs - d.SYNs, Unsent: c.Unsent - d.Unsent, Lost: c.Lost - d.Lost,
		SYNACKs: c.SYNACKs - d.SYNACKs, Requests: c.Requests - d.Requests,
		Ends: c.Ends - d.Ends, Resets: c.Resets - d.Resets,
		Stale: c.Stale - d.Stale, Repeated: c.Repeated - d.Repeated, Answers: answers,
	}
}

// Answered is how many answers began, whatever their status.
func (c Counts) Answered() (n uint64) {
	for _, of := range c.Answers {
		n += of
	}
	return n
}
