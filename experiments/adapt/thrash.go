// SPDX-License-Identifier: Apache-2.0

package main

import (
	"narthex/experiments/internal/thrash"
	"narthex/internal/testnet"
)

// thrashMemory is what all programs together may have in memory: a few have room.
const thrashMemory = 96 << 20

// thrash starts Apache with a program that needs memory.
func (st *stage) thrash() (*testnet.Server, error) {
	group, err := thrash.New(st.lab.Server, "adapt", thrashMemory)
	if err != nil {
		return nil, err
	}
	s, err := st.apache(thrash.Workers, thrash.Script)
	if err != nil {
		return nil, err
	}
	return s, group.Add(s)
}
