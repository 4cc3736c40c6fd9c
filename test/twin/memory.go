// SPDX-License-Identifier: Apache-2.0

// Package twin is what tests share that run C of the data path twice: on this machine, where they
// can call it a million times on hostile bytes, and in the kernel.
package twin

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Guarded returns so many bytes that end at a page that nobody may touch: a read beyond their end is
// a fault and not a surprise. They are there until the test ends.
func Guarded(tb testing.TB, size int) []byte {
	tb.Helper()
	page := unix.Getpagesize()
	usable := (size + page - 1) / page * page
	whole, err := unix.Mmap(-1, 0, usable+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		tb.Fatalf("mapping memory: %v", err)
	}
	tb.Cleanup(func() {
		if err := unix.Munmap(whole); err != nil {
			tb.Error(err)
		}
	})
	if err := unix.Mprotect(whole[usable:], unix.PROT_NONE); err != nil {
		tb.Fatalf("guarding memory: %v", err)
	}
	return whole[usable-size : usable]
}

// Fill puts bytes into a chunk, and behind them what must not matter.
func Fill(chunk, b []byte, behind byte) {
	for i := copy(chunk, b); i < len(chunk); i++ {
		chunk[i] = behind
	}
}
