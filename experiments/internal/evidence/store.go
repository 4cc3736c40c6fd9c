// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Stored is what the JSON file of an experiment holds: its result, and with what it was found.
type Stored struct {
	Result
	Made Made `json:"made"`
}

// Made says when a result was found, and what of the machine may change until the next one.
type Made struct {
	Date    time.Time `json:"date"`
	Narthex string    `json:"narthex"` // commit
	Kernel  string    `json:"kernel"`
	CPU     string    `json:"cpu"`
}

// Folders of a report.
const (
	dataFolder  = "data"
	plotsFolder = "plots"
	machineFile = "machine.json"
)

// Save writes a result and its plots into a report's folder, in place of those that the
// experiment has there.
func Save(dir string, r *Result, m *Machine) error {
	for _, folder := range []string{dataFolder, plotsFolder} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return err
		}
	}
	if err := removePlots(dir, r.ID); err != nil {
		return err
	}
	for i := range r.Plots {
		if err := r.Plots[i].write(filepath.Join(dir, plotsFolder), r.file(&r.Plots[i])); err != nil {
			return fmt.Errorf("draw %s: %w", r.file(&r.Plots[i]), err)
		}
	}
	s := Stored{*r, Made{time.Now().UTC().Truncate(time.Second), m.Narthex, m.Kernel, m.CPU}}
	return writeJSON(filepath.Join(dir, dataFolder, r.ID+".json"), s)
}

// SaveMachine writes where and with what a report's last run was made.
func SaveMachine(dir string, m *Machine) error {
	if err := os.MkdirAll(filepath.Join(dir, dataFolder), 0o755); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, dataFolder, machineFile), m)
}

// Load reads what an experiment has found last, or returns an error that is [fs.ErrNotExist] if
// it has not been done.
func Load(dir, id string) (*Stored, error) {
	s := &Stored{}
	return s, readJSON(filepath.Join(dir, dataFolder, id+".json"), s)
}

// file is the name of a plot's files, without extension.
func (r *Result) file(p *Plot) string {
	if p.Name == "" || p.Name == r.ID {
		return r.ID
	}
	return r.ID + "-" + strings.TrimPrefix(p.Name, r.ID+"-")
}

// removePlots removes those of an experiment.
func removePlots(dir, id string) error {
	var errs []error
	for _, pattern := range []string{id + ".*", id + "-*"} {
		files, err := filepath.Glob(filepath.Join(dir, plotsFolder, pattern))
		errs = append(errs, err)
		for _, f := range files {
			errs = append(errs, os.Remove(f))
		}
	}
	return errors.Join(errs...)
}

// load reads all results of a report, in the order given, and after them those that it does not have.
func load(dir string, order []string) (all []*Stored, err error) {
	files, err := filepath.Glob(filepath.Join(dir, dataFolder, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if filepath.Base(f) == machineFile {
			continue
		}
		s := &Stored{}
		if err := readJSON(f, s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	place := func(s *Stored) int {
		if i := slices.Index(order, s.ID); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(all, func(a, b *Stored) int { return place(a) - place(b) })
	return all, nil
}

// loadMachine reads where the last run was made; empty where there was none.
func loadMachine(dir string) (*Machine, error) {
	m := &Machine{}
	err := readJSON(filepath.Join(dir, dataFolder, machineFile), m)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return m, err
}

// Lists of figures are written in a line.
var (
	figures = regexp.MustCompile(`\[\s+(?:[-+.\w]+,?\s+)+\]`)
	blanks  = regexp.MustCompile(`\s+`)
)

func writeJSON(path string, v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	text = figures.ReplaceAllFunc(text, func(list []byte) []byte { return blanks.ReplaceAll(list, nil) })
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("read %s: %w", filepath.Base(path), err)
	}
	return nil
}
