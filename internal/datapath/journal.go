// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

func newNote(s string) (n narthexNote, err error) {
	if len(s) >= len(n.Text) {
		return n, fmt.Errorf("%q is too long for the journal: at most %d bytes", s, len(n.Text)-1)
	}
	copy(n.Text[:], s)
	return n, nil
}

// Journal returns the strings that Record put beside the maps, where they outlive the
// daemon: overrides, and the hash of the policy in force.
func (in *Instance) Journal() (map[string]string, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return nil, errors.New("instance is closed")
	}
	all := map[string]string{}
	var k, v narthexNote
	entries := in.objects.Journal.Iterate()
	for entries.Next(&k, &v) {
		all[nameString(k.Text[:])] = nameString(v.Text[:])
	}
	if err := entries.Err(); err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	return all, nil
}

// Record stores a string under a key; both are at most 127 bytes.
func (in *Instance) Record(key, value string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return errors.New("instance is closed")
	}
	return record(in.objects.Journal, key, value)
}

func record(journal *ebpf.Map, key, value string) error {
	k, err := newNote(key)
	if err != nil {
		return err
	}
	v, err := newNote(value)
	if err != nil {
		return err
	}
	if err := journal.Put(&k, &v); err != nil {
		return fmt.Errorf("recording %q: %w", key, err)
	}
	return nil
}

// recorded returns what is recorded under a key, empty if nothing is.
func recorded(journal *ebpf.Map, key string) string {
	var v narthexNote
	k, err := newNote(key)
	if err != nil || journal == nil || journal.Lookup(&k, &v) != nil {
		return ""
	}
	return nameString(v.Text[:])
}

// Erase removes a key from the journal. A key that is not there is no error.
func (in *Instance) Erase(key string) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil {
		return errors.New("instance is closed")
	}
	return erase(in.objects.Journal, key)
}

func erase(journal *ebpf.Map, key string) error {
	k, err := newNote(key)
	if err != nil {
		return err
	}
	if err := journal.Delete(&k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("erasing %q: %w", key, err)
	}
	return nil
}
