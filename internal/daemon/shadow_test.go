// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

// begin tries a policy out in which everyone has a burst of one.
func (h *rehearsal) beginTrial(t *testing.T) api.ShadowStarted {
	t.Helper()
	started, err := h.client.Shadow(t.Context(), api.ShadowRequest{File: h.write("q.yaml", withBurst(1))})
	if err != nil {
		t.Fatal(err)
	}
	return started
}

// copySYNs has the kernel copy so many SYNs of one source.
func (h *rehearsal) copySYNs(t *testing.T, n int) {
	t.Helper()
	for range n {
		c := datapath.Mirrored{
			Time: time.Now(), Weight: 1, Client: netip.MustParseAddrPort("10.0.0.1:4000"),
			Server: netip.MustParseAddrPort("192.0.2.1:80"), Service: "web", SYN: true, Kind: datapath.EventPass, Rule: "everyone",
		}
		if !h.kernel.Copy(c) {
			t.Fatal("nobody takes copies")
		}
	}
}

func TestTrialFindsDifferences(t *testing.T) {
	h := newRehearsal(t)
	if _, err := h.client.ShadowReport(t.Context(), ""); err == nil || !strings.HasPrefix(err.Error(), "no policy is tried out: ") {
		t.Errorf("report without a trial: %v", err)
	}
	started := h.beginTrial(t)
	if started.Live.Hash != h.status().Policy.Hash || !strings.HasSuffix(started.Candidate.File, "/q.yaml") || started.Replaced {
		t.Errorf("started %+v", started)
	}
	h.copySYNs(t, 3)
	h.kernel.Copy(datapath.Mirrored{Missed: 4})
	h.wantBurst("nothing changes", 9)
	var r api.ShadowReport
	eventually(t, "all is counted", func() bool {
		var err error
		if r, err = h.client.ShadowReport(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		return r.Missed == 4
	})
	if r.SYNs != 3 || r.Different != 2 || len(r.Pairs) != 1 || r.Pairs[0].Count != 2 || r.By != ownName() || r.Ended != "" {
		t.Errorf("report %+v", r)
	}
	if s := h.status().Trial; s == nil || s.Seen != 3 || s.Different != 2 || s.Ended != "" || s.By != ownName() {
		t.Errorf("status %+v", s)
	}
	if started := h.beginTrial(t); !started.Replaced {
		t.Error("a second trial is not said to end the first")
	}
	h.copySYNs(t, 1)
	r, err := h.client.EndShadow(t.Context(), "")
	if err != nil || r.Ended != "ended by "+ownName() {
		t.Errorf("ended: %v, %+v", err, r)
	}
	if s := h.status().Trial; s != nil || h.kernel.Copy(datapath.Mirrored{}) {
		t.Errorf("it goes on: %+v", s)
	}
	h.end()
}

func TestTrialEndsWithAChangeOfThePolicy(t *testing.T) {
	tests := map[string]struct {
		change func(h *rehearsal) (said bool, err error)
		want   string
	}{
		"reload": {func(h *rehearsal) (bool, error) {
			r, err := h.client.Reload(h.t().Context(), api.ReloadRequest{})
			return r.Trial, err
		}, "reload by " + ownName()},
		"set": {func(h *rehearsal) (bool, error) {
			r, err := h.client.Set(h.t().Context(), api.SetRequest{Path: burstPath, Value: "5"})
			return r.Trial, err
		}, "set " + burstPath + " by " + ownName()},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newRehearsal(t)
			h.beginTrial(t)
			h.copySYNs(t, 2)
			if _, err := h.client.Reload(t.Context(), api.ReloadRequest{File: h.write("bad.yaml", "nonsense")}); err == nil || h.status().Trial.Ended != "" {
				t.Errorf("a reload that failed: %v", err)
			}
			if said, err := tt.change(h); err != nil || !said {
				t.Errorf("said that a trial ends: %v, %v", said, err)
			}
			r, err := h.client.ShadowReport(t.Context(), "")
			if err != nil || r.Ended != tt.want || r.SYNs == 0 {
				t.Errorf("report %+v, %v", r, err)
			}
			if s := h.status().Trial; s == nil || s.Ended != tt.want || s.Seen == 0 {
				t.Errorf("status %+v", s)
			}
			h.end()
		})
	}
}

func TestTrialOfAWrongPolicy(t *testing.T) {
	h := newRehearsal(t)
	_, err := h.client.Shadow(t.Context(), api.ShadowRequest{File: h.write("bad.yaml", "nonsense")})
	var told *api.Error
	if !errors.As(err, &told) || !told.Usage {
		t.Errorf("error %v", err)
	}
	h.beginTrial(t)
	h.end() // with a trial that runs
	if _, err := os.Stat(h.cfg.Socket); err == nil {
		t.Error("the socket is left")
	}
}

func TestTrialEndsWhenItsTimeIsOver(t *testing.T) {
	h := newRehearsal(t)
	file := h.write("q.yaml", withBurst(1))
	begin := func(limit time.Duration) api.ShadowStarted {
		t.Helper()
		started, err := h.client.Shadow(t.Context(), api.ShadowRequest{File: file, For: limit.Seconds()})
		if err != nil {
			t.Fatal(err)
		}
		return started
	}
	for _, limit := range []float64{-1, 1e9} {
		_, err := h.client.Shadow(t.Context(), api.ShadowRequest{File: file, For: limit})
		var told *api.Error
		if !errors.As(err, &told) || !told.Usage {
			t.Errorf("%g s: %v", limit, err)
		}
	}
	first := begin(soon)
	eventually(t, "it ends", func() bool {
		r, err := h.client.ShadowReport(t.Context(), first.ID)
		return err == nil && r.Ended == "its time is over"
	})
	if h.kernel.Copy(datapath.Mirrored{}) {
		t.Error("its copies are taken yet")
	}
	if _, err := h.client.EndShadow(t.Context(), first.ID); err != nil || h.status().Trial != nil {
		t.Errorf("it is not forgotten: %v", err)
	}

	second, third := begin(soon), begin(0)
	time.Sleep(2 * soon)
	for what, ask := range map[string]func(context.Context, string) (api.ShadowReport, error){
		"report": h.client.ShadowReport, "end": h.client.EndShadow,
	} {
		for _, id := range []string{first.ID, second.ID} {
			if _, err := ask(t.Context(), id); err == nil || !strings.HasPrefix(err.Error(), "the trial has ended and is forgotten") {
				t.Errorf("%s of a trial that was: %v", what, err)
			}
		}
	}
	if r, err := h.client.ShadowReport(t.Context(), third.ID); err != nil || r.Ended != "" {
		t.Errorf("the last one has ended: %v, %q", err, r.Ended)
	}
	h.end()
}

// TestTrialMayTakeMemory while it runs, however it ends.
func TestTrialMayTakeMemory(t *testing.T) {
	limit := func() int64 { return debug.SetMemoryLimit(-1) }
	for name, end := range map[string]func(h *rehearsal) error{
		"by hand": func(h *rehearsal) error {
			_, err := h.client.EndShadow(h.t().Context(), "")
			return err
		},
		"by a reload": func(h *rehearsal) error { return h.try("", 0) },
		"by a set": func(h *rehearsal) error {
			_, err := h.client.Set(h.t().Context(), api.SetRequest{Path: burstPath, Value: "5"})
			return err
		},
		"by a fault": func(h *rehearsal) error {
			h.kernel.BreakMirror(errors.New("no more"))
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newRehearsal(t)
			h.beginTrial(t)
			h.copySYNs(t, 1)
			if _, err := h.client.Reload(t.Context(), api.ReloadRequest{File: h.write("bad.yaml", "nonsense")}); err == nil {
				t.Fatal("nonsense is in force")
			}
			during := limit()
			if err := end(h); err != nil {
				t.Fatal(err)
			}
			// What the rest of this process takes meanwhile is much less.
			eventually(t, "the memory is given back", func() bool { return limit() < during-trialMemory/2 })
			h.end()
		})
	}
}
