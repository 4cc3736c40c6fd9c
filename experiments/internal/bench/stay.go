// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Stay keeps this process, in which the clients are, from the server's core. What it starts
// afterwards keeps to the clients' core, too, unless it is pinned.
func (b *Bench) Stay() error {
	threads, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return err
	}
	var cpus unix.CPUSet
	for _, cpu := range b.ClientCPUs {
		cpus.Set(cpu)
	}
	for _, t := range threads {
		var id int
		if _, err := fmt.Sscan(filepath.Base(t), &id); err != nil {
			return err
		}
		// Threads that start later inherit it.
		if err := unix.SchedSetaffinity(id, &cpus); err != nil && err != unix.ESRCH {
			return fmt.Errorf("keep to the clients' core: %w", err)
		}
	}
	return nil
}
