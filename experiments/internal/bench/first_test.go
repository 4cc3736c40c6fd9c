// SPDX-License-Identifier: Apache-2.0

package bench

import "testing"

func TestRankOfGroup(t *testing.T) {
	for _, c := range []struct {
		text    string
		rank    int
		grouped bool
		fails   bool
	}{
		{"/autogroup-4 nice 0\n", 0, true, false},
		{"/autogroup-1234 nice -10\n", -10, true, false},
		{"", 0, false, false}, // in no session's group
		{"something else\n", 0, false, true},
	} {
		rank, grouped, err := rankOfGroup(c.text)
		if rank != c.rank || grouped != c.grouped || (err != nil) != c.fails {
			t.Errorf("%q: rank %d, grouped %t, %v", c.text, rank, grouped, err)
		}
	}
}
