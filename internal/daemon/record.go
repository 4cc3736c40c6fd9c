// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/api"
)

// record is what the next daemon has to know of a policy that nobody has confirmed. It lies in
// the folder of sockets and locks, which is gone after a reboot as what is in force is.
type record struct {
	// Run is the policy file that the daemon was started with. A start with another one is the
	// operator's own decision.
	Run       string        `json:"run"`
	Candidate recorded      `json:"candidate"`
	Previous  recorded      `json:"previous"`
	Deadline  time.Duration `json:"deadline_monotonic_ns"` // of the clock that nobody sets
	Until     time.Time     `json:"until"`
	// Reverted says that the candidate was taken back, and Previous is in force: the file may
	// hold the candidate yet.
	Reverted bool `json:"reverted"`
}

// recorded is a policy as it was, whatever its file holds now.
type recorded struct {
	File      string         `json:"file"`
	Hash      string         `json:"hash"`
	Text      string         `json:"text"`
	Overrides []api.Override `json:"overrides,omitempty"`
}

func recordOf(f *enforceable) recorded {
	return recorded{f.file, f.tables.Hash, string(f.text), f.overrides}
}

// policy makes it enforceable again.
func (r *recorded) policy() (*enforceable, error) {
	f, err := parse(r.File, []byte(r.Text))
	if err != nil || len(r.Overrides) == 0 {
		return f, err
	}
	for i, o := range r.Overrides {
		if o.Until != nil {
			r.Overrides[i].Deadline = monotonic() + time.Until(*o.Until)
		}
	}
	return f.with(r.Overrides)
}

// recordPath is where an instance's record is.
func recordPath(runDir, instance string) string {
	return filepath.Join(runDir, instance+".unconfirmed")
}

// writeRecord replaces the record, all at once.
func writeRecord(path string, r *record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode what to go back to: %w", err)
	}
	fresh := path + "~"
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		os.Remove(fresh)
		return fmt.Errorf("write down what to go back to: %w", err)
	}
	if err := os.Rename(fresh, path); err != nil {
		return fmt.Errorf("write down what to go back to: %w", err)
	}
	return nil
}

// readRecord returns nil if there is none.
func readRecord(path string) (*record, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what to go back to: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read what to go back to from %q: %w", path, err)
	}
	return r, nil
}

// removeRecord removes the record and what a killed daemon may have left of one.
func removeRecord(runDir, instance string) {
	os.Remove(recordPath(runDir, instance))
	os.Remove(recordPath(runDir, instance) + "~")
}

// monotonic returns CLOCK_MONOTONIC, which goes on when a daemon ends.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0 // the clock is there on every Linux
	}
	return time.Duration(ts.Nano())
}
