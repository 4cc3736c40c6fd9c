// SPDX-License-Identifier: Apache-2.0

package main

import (
	"narthex/experiments/internal/thrash"
	"narthex/internal/lab"
)

// thrashMemory is what all programs together may have in memory: a few have room.
const thrashMemory = 96 << 20

// thrash starts Apache with a program that needs memory.
func (st *stage) thrash() (*lab.Server, error) {
	group, err := thrash.New(st.rig.Server, "adapt", thrashMemory)
	if err != nil {
		return nil, err
	}
	s, err := st.apache(thrash.Workers, thrash.Script)
	if err != nil {
		return nil, err
	}
	return s, group.Add(s)
}
