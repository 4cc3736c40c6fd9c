// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// outcome is how a test ended.
type outcome struct {
	how    string // pass, fail or skip; empty if it did not end
	lacks  string // why it, or a part of it, was skipped
	output []string
}

// readLog finds how each test ended, in what a test binary printed. What its parts printed is of
// the test.
func readLog(log []byte) (map[string]*outcome, error) {
	convert := exec.Command("go", "tool", "test2json")
	convert.Stdin = bytes.NewReader(log)
	events, err := convert.Output()
	if err != nil {
		return nil, fmt.Errorf("read a test's output: %w", err)
	}
	outcomes, said := map[string]*outcome{}, map[string]string{} // by test, and what each part said last
	for decoder := json.NewDecoder(bytes.NewReader(events)); ; {
		var e struct{ Action, Test, Output string }
		err := decoder.Decode(&e)
		if errors.Is(err, io.EOF) {
			return outcomes, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read a test's output: %w", err)
		}
		test, _, isPart := strings.Cut(e.Test, "/")
		o := outcomes[test]
		if o == nil {
			o = &outcome{}
			outcomes[test] = o
		}
		switch e.Action {
		case "output":
			o.output = append(o.output, e.Output)
			if m := logged.FindStringSubmatch(e.Output); m != nil {
				said[e.Test] = m[1]
			}
		case "pass", "fail", "skip":
			if e.Action == "skip" {
				o.lacks = said[e.Test]
			}
			if !isPart {
				o.how = e.Action
			}
		}
	}
}

// readLogs finds how each test ended: of those that were run again the second time counts.
func readLogs(first, again string) (map[string]*outcome, error) {
	log, err := os.ReadFile(first)
	if err != nil {
		return nil, err
	}
	outcomes, err := readLog(log)
	if err != nil {
		return nil, err
	}
	log, err = os.ReadFile(again)
	if errors.Is(err, os.ErrNotExist) {
		return outcomes, nil
	}
	if err != nil {
		return nil, err
	}
	repeated, err := readLog(log)
	for test, o := range repeated {
		if was := outcomes[test]; was != nil && o.lacks == "" {
			o.lacks = was.lacks // a part may have been run again without the one that was skipped
		}
		outcomes[test] = o
	}
	return outcomes, err
}

var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// quoted is how many lines of a failed test's output are shown; the log has all.
const quoted = 40

// quote is the end of what a test printed, but for how its parts went.
func (o *outcome) quote() string {
	var lines []string
	for _, line := range o.output {
		if !strings.HasPrefix(line, "=== ") && !strings.Contains(line, "--- PASS: ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-quoted):], "")
}

// verdict is what is to be said of a check that took these tests, and why.
func verdict(outcomes map[string]*outcome, taken []string) (said, why string) {
	var failed, lacks []string
	for _, t := range taken {
		o := outcomes[t]
		switch {
		case o == nil || o.how == "":
			failed = append(failed, t+" (did not end)")
			if o != nil {
				why += o.quote()
			}
		case o.how == "fail":
			failed = append(failed, t)
			why += o.quote()
		case o.how == "skip" || o.lacks != "":
			lacks = append(lacks, o.lacks)
		}
	}
	switch {
	case len(taken) == 0:
		return fail + "no test has this check's names", ""
	case len(failed) > 0:
		return fail + strings.Join(failed, ", "), why
	case len(lacks) > 0:
		return missing + lacks[0], ""
	}
	return ok, ""
}
