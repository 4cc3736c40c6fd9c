// SPDX-License-Identifier: Apache-2.0

package gate

// dice decide what happens in one event: by its record, and when that is used up by what
// follows from it. So an event can be left out without changing what the others decide.
type dice struct {
	record uint64
	rolled int
	state  uint64
}

func newDice(record uint64) dice { return dice{record: record, state: record} }

// word is a number that follows from the record.
func (d *dice) word() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// n is a number below k.
func (d *dice) n(k int) int {
	if k <= 1 {
		return 0
	}
	if d.rolled < 4 {
		piece := d.record >> (16 * d.rolled) & 0xffff
		d.rolled++
		return int(piece) % k
	}
	return int(d.word() % uint64(k))
}

// in says whether one of k cases is there.
func (d *dice) in(k int) bool { return d.n(k) == 0 }

// of is one of several.
func of[T any](d *dice, choices ...T) T { return choices[d.n(len(choices))] }
