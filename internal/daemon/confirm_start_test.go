// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"narthex/internal/api"
)

func TestKilledDaemonsTrialGoesOn(t *testing.T) {
	h := newRehearsal(t)
	h.mustTry(h.write("q.yaml", withBurst(4)), long)
	until := h.status().Policy.Unconfirmed.Until
	h.write("q.yaml", withBurst(6)) // whatever the file holds now
	h.again()
	h.wantBurst("the trial goes on", 4)
	h.write("p.yaml", "nonsense")
	h.again()
	h.wantBurst("the trial goes on with a file that is wrong", 4)
	h.wantPending(true)
	h.wantChange(byReload, ownName())
	if got := h.status().Policy.Unconfirmed.Until; !got.Equal(until) {
		t.Errorf("until %s, want %s", got, until)
	}
	h.again()
	h.confirm(true)
	h.wantBurst("taken back", 9)
	h.end()
}

func TestWrongFileBeginsNothing(t *testing.T) {
	h := newRehearsal(t)
	h.mustTry(h.write("q.yaml", withBurst(4)), long)
	h.crash(h.running, h.cfg)
	if _, err := h.kernel.Remove("test"); err != nil {
		t.Fatal(err)
	}
	h.write("p.yaml", "nonsense")
	if err := Run(t.Context(), h.cfg); err == nil || !strings.Contains(err.Error(), "a policy is a mapping of keys to values") {
		t.Errorf("error %v", err)
	}
	if _, ok := h.kernel.State("test"); ok {
		t.Error("something is in force")
	}
}

func TestTrialThatEndsWithoutADaemon(t *testing.T) {
	h := newRehearsal(t)
	h.write("p.yaml", withBurst(4)) // in place
	h.mustTry("", long)
	r, err := readRecord(recordPath(h.dir, "test"))
	if err != nil {
		t.Fatal(err)
	}
	h.crash(h.running, h.cfg)
	h.wantBurst("without a daemon", 4)
	r.Deadline = monotonic()
	if err := writeRecord(recordPath(h.dir, "test"), r); err != nil {
		t.Fatal(err)
	}
	h.running = h.machine.start(h.cfg)
	h.wantBurst("taken back by the next daemon", 9)
	h.wantPending(false)
	h.wantChange(byRevert, "")
	if notes := h.status().Notes; len(notes) != 1 || !strings.HasPrefix(notes[0], "nobody had confirmed the policy ") {
		t.Errorf("notes %q", notes)
	}

	h.again() // the file still holds what was taken back
	h.wantBurst("the start after that", 9)
	if notes := h.status().Notes; len(notes) != 1 || !strings.Contains(notes[0], "holds a policy that was taken back") {
		t.Errorf("notes %q", notes)
	}
	if h.try(h.write("bad.yaml", "nonsense"), 0) == nil {
		t.Error("nonsense is in force")
	}
	if notes := h.status().Notes; len(notes) != 1 {
		t.Errorf("notes %q after a reload that failed", notes)
	}
	h.write("p.yaml", withBurst(6))
	result, err := h.client.Reload(t.Context(), api.ReloadRequest{File: filepath.Join(h.dir, "p.yaml")})
	if notes := h.status().Notes; err != nil || len(result.Notes)+len(notes) > 0 {
		t.Errorf("with the file put right: %v, notes %q and %q", err, result.Notes, notes)
	}
	h.write("p.yaml", withBurst(7))
	h.again()
	h.wantBurst("with another file", 7)
	h.wantChange(byStart, ownName())
	h.end()
}

func TestTrialEndsWithTheInstance(t *testing.T) {
	for _, how := range []string{"stop", "another file"} {
		t.Run(how, func(t *testing.T) {
			h := newRehearsal(t)
			h.mustTry(h.write("q.yaml", withBurst(4)), long)
			if how == "stop" {
				h.end()
			} else {
				h.crash(h.running, h.cfg)
				h.cfg.Policy = h.write("r.yaml", withBurst(8))
			}
			h.running = h.machine.start(h.cfg)
			h.wantBurst("a start of its own", map[string]uint32{"stop": 3, "another file": 8}[how])
			h.wantPending(false)
			h.end()
			if left, _ := filepath.Glob(recordPath(h.dir, "test") + "*"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestPolicyThatCannotBeTakenBack(t *testing.T) {
	no := errors.New("the driver says no")
	tests := map[string]func(h *rehearsal, file string){
		"in time": func(h *rehearsal, file string) { h.mustTry(file, soon) },
		"at a start": func(h *rehearsal, file string) {
			h.mustTry(file, long)
			r, _ := readRecord(recordPath(h.dir, "test"))
			h.crash(h.running, h.cfg)
			r.Deadline = monotonic()
			if err := writeRecord(recordPath(h.dir, "test"), r); err != nil {
				h.t().Fatal(err)
			}
			h.running = h.machine.start(h.cfg)
		},
	}
	for name, expire := range tests {
		t.Run(name, func(t *testing.T) {
			h := newRehearsal(t)
			h.kernel.Refuse("eth0", no)
			expire(h, h.write("q.yaml", strings.Replace(withBurst(4), "web,", "web, interfaces: [eth1],", 1)))
			eventually(t, "the status says that it failed", func() bool {
				u := h.status().Policy.Unconfirmed
				return u != nil && strings.Contains(u.Fault, no.Error())
			})
			h.wantBurst("it stays", 4)
			h.wantPending(true)
			h.kernel.Refuse("eth0", nil)
			h.confirm(true)
			h.wantBurst("taken back", 9)
			h.end()
		})
	}
}

// TestPolicyThatNeverWasInForce was written down by a daemon that was killed then: it does not begin
// because the one before cannot.
func TestPolicyThatNeverWasInForce(t *testing.T) {
	h := newRehearsal(t)
	h.mustTry(h.write("q.yaml", strings.Replace(withBurst(4), "web,", "web, interfaces: [eth1],", 1)), long)
	r, err := readRecord(recordPath(h.dir, "test"))
	if err != nil {
		t.Fatal(err)
	}
	h.confirm(true)
	h.crash(h.running, h.cfg)
	if err := writeRecord(recordPath(h.dir, "test"), r); err != nil {
		t.Fatal(err)
	}
	h.kernel.Refuse("eth0", errors.New("the driver says no"))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // lest one that runs does so for good
	defer cancel()
	if err := Run(ctx, h.cfg); err == nil || !strings.Contains(err.Error(), "the driver says no") {
		t.Errorf("error %v", err)
	}
	h.wantBurst("as before", 9)
	h.kernel.Refuse("eth0", nil)
	h.running = h.machine.start(h.cfg)
	h.wantBurst("the next start", 9)
	h.wantPending(false)
	h.end()
}

// TestLogNamesThePolicyInForce at a start, whatever the file holds.
func TestLogNamesThePolicyInForce(t *testing.T) {
	h := newRehearsal(t)
	h.mustTry(h.write("q.yaml", withBurst(4)), long)
	var log bytes.Buffer
	h.crash(h.running, h.cfg)
	h.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	h.running = h.machine.start(h.cfg)
	hash := h.status().Policy.Hash
	h.end()
	if want := fmt.Sprintf("msg=\"in force\" instance=test policy=%s hash=%s ", filepath.Join(h.dir, "q.yaml"), shortHash(hash)); !strings.Contains(log.String(), want) {
		t.Errorf("log without %s\n%s", want, &log)
	}
}

func TestBrokenRecordIsNoHindrance(t *testing.T) {
	h := newRehearsal(t)
	h.write("test.unconfirmed", "{")
	h.again()
	h.wantBurst("as before", 9)
	h.wantPending(false)
	h.end()
}

func TestAuthorOutlivesTheDaemon(t *testing.T) {
	h := newRehearsal(t)
	h.wantChange("set "+burstPath, ownName())
	h.again()
	h.wantChange("set "+burstPath, ownName())
	h.reload <- nil
	eventually(t, "a reload by signal", func() bool { return h.burst() == 3 })
	h.wantChange(bySIGHUP, "")
	h.end()
}
