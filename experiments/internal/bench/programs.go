// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/datapath"
)

// Programs are those of an instance.
type Programs []*ebpf.Program

// OpenPrograms opens the programs of an instance. The kernel counts their time while
// ebpf.EnableStats has it do so.
func OpenPrograms(instance string) (all Programs, err error) {
	files, err := filepath.Glob(filepath.Join(datapath.Root, instance, "programs", "*"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("find the programs of %q: %v", instance, err)
	}
	for _, f := range files {
		p, err := ebpf.LoadPinnedProgram(f, nil)
		if err != nil {
			all.Close()
			return nil, fmt.Errorf("open pinned program %q: %w", f, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// Spent is how long the programs have run. One that runs within another counts twice.
func (all Programs) Spent() (sum time.Duration, err error) {
	for _, p := range all {
		s, err := p.Stats()
		if err != nil {
			return 0, err
		}
		sum += s.Runtime
	}
	return sum, nil
}

// Close closes them.
func (all Programs) Close() {
	for _, p := range all {
		p.Close()
	}
}
