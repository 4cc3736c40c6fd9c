// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"narthex/internal/api"
)

// logged is a value as it stands in the log.
func logged(s string) string {
	if strings.Contains(s, " ") {
		return strconv.Quote(s)
	}
	return s
}

// rehearsal is a daemon with a policy of burst 3 and an override to burst 9, and files with
// other bursts.
type rehearsal struct {
	*machine
	*running
	cfg Config
}

func withBurst(n int) string {
	return strings.Replace(onePolicy, "burst: 3", "burst: "+strconv.Itoa(n), 1)
}

const burstPath = "connections.everyone.burst"

func newRehearsal(t *testing.T) *rehearsal {
	t.Helper()
	m := newMachine(t, "eth0", "eth1")
	h := &rehearsal{machine: m, cfg: m.config(m.write("p.yaml", onePolicy))}
	h.running = m.start(h.cfg)
	if _, err := h.client.Set(t.Context(), api.SetRequest{Path: burstPath, Value: "9"}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *rehearsal) t() *testing.T { return h.machine.t }

// burst is what the kernel enforces.
func (h *rehearsal) burst() uint32 {
	s, _ := h.kernel.State("test")
	return burstOf(s, "everyone")
}

func (h *rehearsal) wantBurst(when string, want uint32) {
	h.t().Helper()
	if got := h.burst(); got != want {
		h.t().Errorf("%s: burst %d, want %d", when, got, want)
	}
}

// try reloads a file and has it confirmed within a time.
func (h *rehearsal) try(file string, within time.Duration) error {
	_, err := h.client.Reload(h.t().Context(), api.ReloadRequest{File: file, Confirm: within.Seconds()})
	return err
}

func (h *rehearsal) mustTry(file string, within time.Duration) {
	h.t().Helper()
	if err := h.try(file, within); err != nil {
		h.t().Fatal(err)
	}
}

func (h *rehearsal) confirm(revert bool) api.ConfirmResult {
	h.t().Helper()
	result, err := h.client.Confirm(h.t().Context(), api.ConfirmRequest{Revert: revert})
	if err != nil {
		h.t().Fatal(err)
	}
	return result
}

// again kills the daemon and starts the next one.
func (h *rehearsal) again() {
	h.t().Helper()
	h.crash(h.running, h.cfg)
	h.running = h.machine.start(h.cfg)
}

// wantChange compares what and who has changed the policy last.
func (h *rehearsal) wantChange(what, by string) {
	h.t().Helper()
	c := h.status().Policy.Change
	if c == nil || c.What != what || c.By != by || time.Since(c.At) > time.Hour {
		h.t().Errorf("last change %+v, want %s by %q", c, what, by)
	}
}

// wantPending says whether a policy is to be confirmed, in the status and for the next daemon.
func (h *rehearsal) wantPending(want bool) {
	h.t().Helper()
	if got := h.status().Policy.Unconfirmed; (got != nil) != want {
		h.t().Errorf("to be confirmed: %+v, want %v", got, want)
	}
	r, err := readRecord(recordPath(h.dir, "test"))
	if err != nil || (r != nil && !r.Reverted) != want {
		h.t().Errorf("record %+v, %v; want one: %v", r, err, want)
	}
}

const long = time.Hour

// soon is over when the next step comes.
const soon = 20 * time.Millisecond

func TestConfirmedPolicyStays(t *testing.T) {
	h := newRehearsal(t)
	h.wantChange("set "+burstPath, ownName())
	h.mustTry(h.write("q.yaml", withBurst(4)), long)
	h.wantBurst("on trial", 4)
	h.wantPending(true)
	h.wantChange(byReload, ownName())
	if u := h.status().Policy.Unconfirmed; !u.Until.After(time.Now().Add(long/2)) || u.Previous.File != filepath.Join(h.dir, "p.yaml") {
		t.Errorf("to be confirmed: %+v", u)
	}
	h.confirm(false)
	h.wantBurst("confirmed", 4)
	h.wantPending(false)
	h.wantChange(byConfirm, ownName())
	_, err := h.client.Confirm(t.Context(), api.ConfirmRequest{})
	if err == nil || !strings.HasPrefix(err.Error(), "there is nothing to confirm: ") {
		t.Errorf("confirmed again: %v", err)
	}
	h.mustTry("", 0)
	h.end()
}

func TestUnconfirmedPolicyIsTakenBack(t *testing.T) {
	h := newRehearsal(t)
	h.mustTry(h.write("q.yaml", withBurst(4)), soon)
	eventually(t, "the policy before is back, with its override", func() bool { return h.burst() == 9 })
	h.wantPending(false)
	h.wantChange(byRevert, "")
	s := h.status()
	if s.Policy.File != filepath.Join(h.dir, "p.yaml") || len(s.Overrides) != 1 || s.Overrides[0] != (api.Override{Path: burstPath, Value: "9"}) {
		t.Errorf("in force: %+v %v", s.Policy, s.Overrides)
	}
	h.again()
	h.wantBurst("after the next start", 9)
	h.wantChange(byRevert, "")
	h.end()
}

// A limit that the deadline takes back has changed by the deadline, and not by nobody.
func TestLimitIsTakenBackByTheDeadline(t *testing.T) {
	h := newRehearsal(t)
	limited := func(n string) string {
		return strings.Replace(onePolicy, `listen: "*:80"}`, `listen: "*:80", concurrency: `+n+`}`, 1)
	}
	h.mustTry(h.write("four.yaml", limited("4")), long)
	h.confirm(false)
	h.mustTry(h.write("nine.yaml", limited("9")), soon)
	eventually(t, "the policy before is back", func() bool { return h.status().Services[0].Limit == "4" })
	changes := h.status().Services[0].Changes
	if len(changes) == 0 || changes[0].Old != "9" || changes[0].New != "4" || changes[0].By != byDeadline {
		t.Errorf("changes %+v, want first 9 to 4 by %s", changes, byDeadline)
	}
	h.end()
}

func TestPolicyIsTakenBackAtOnce(t *testing.T) {
	h := newRehearsal(t)
	file := h.write("p.yaml", withBurst(4)) // in place
	h.mustTry("", long)
	if _, err := h.client.Set(t.Context(), api.SetRequest{Path: burstPath, Value: "5"}); err != nil {
		t.Fatal(err)
	}
	got := h.confirm(true)
	want := api.ConfirmResult{
		Policy:   h.status().Policy,
		Ended:    []api.Override{{Path: burstPath, Value: "5"}},
		Restored: []api.Override{{Path: burstPath, Value: "9"}},
		Notes:    []string{file + " holds the policy that was taken back: put it right before the next reload"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	h.wantBurst("taken back", 9)
	h.wantChange(byRevert, ownName())
	if got := h.kernel.Journal("test")[keyOverride+burstPath]; got != "9" {
		t.Errorf("override in the journal: %q", got)
	}
	h.end()
}

func TestFurtherReloadsBeforeTheConfirmation(t *testing.T) {
	h := newRehearsal(t)
	h.mustTry(h.write("q.yaml", withBurst(4)), long)
	err := h.try(h.write("r.yaml", withBurst(5)), 0)
	if err == nil || !strings.HasPrefix(err.Error(), "the policy in force is not confirmed and would be taken back at ") || errors.As(err, new(*api.Error)) && err.(*api.Error).Usage {
		t.Errorf("a plain reload: %v", err)
	}
	h.wantBurst("refused", 4)
	if h.try(h.write("bad.yaml", "nonsense"), long) == nil {
		t.Error("nonsense is in force")
	}
	h.wantPending(true)
	h.mustTry(filepath.Join(h.dir, "r.yaml"), soon)
	eventually(t, "back to the last that was confirmed", func() bool { return h.burst() == 9 })
	h.end()
}

func TestPolicyThatCannotComeInForceIsNotOnTrial(t *testing.T) {
	h := newRehearsal(t)
	h.kernel.Refuse("eth1", errors.New("the driver says no"))
	refused := h.write("q.yaml", strings.Replace(withBurst(4), "web,", "web, interfaces: [eth1],", 1))
	if h.try(refused, long) == nil {
		t.Fatal("it is in force")
	}
	h.wantPending(false)
	h.mustTry(h.write("r.yaml", strings.Replace(withBurst(5), "web,", "web, interfaces: [eth0],", 1)), long)
	if h.try(refused, long) == nil {
		t.Fatal("it is in force")
	}
	h.wantPending(true)
	h.again()
	h.wantBurst("the one before goes on", 5)
	h.wantPending(true)
	h.end()
}

func TestPolicyThatCannotBeWrittenDownIsRefused(t *testing.T) {
	h := newRehearsal(t)
	if err := os.Mkdir(recordPath(h.dir, "test")+"~", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.try(h.write("q.yaml", withBurst(4)), long); err == nil || !strings.Contains(err.Error(), "write down what to go back to") {
		t.Errorf("error %v", err)
	}
	h.wantBurst("as before", 9)
	h.wantPending(false)
	h.end()
}

// TestRecordOfWhatWasTakenBackStays when a later policy is to be confirmed that cannot come in force.
func TestRecordOfWhatWasTakenBackStays(t *testing.T) {
	h := newRehearsal(t)
	h.write("p.yaml", withBurst(4)) // in place
	h.mustTry("", long)
	h.confirm(true)
	h.kernel.Refuse("eth1", errors.New("the driver says no"))
	if h.try(h.write("q.yaml", strings.Replace(withBurst(5), "web,", "web, interfaces: [eth1],", 1)), long) == nil {
		t.Fatal("it is in force")
	}
	h.kernel.Refuse("eth1", nil)
	h.wantPending(false)
	h.again() // p.yaml still holds what was taken back
	h.wantBurst("after the next start", 9)
	h.end()
}

// TestPolicyIsTakenBackWithoutAnInterface that was away before the other one came in force.
func TestPolicyIsTakenBackWithoutAnInterface(t *testing.T) {
	h := newRehearsal(t)
	named := func(burst int, interfaces string) string {
		return strings.Replace(withBurst(burst), "web,", "web, interfaces: ["+interfaces+"],", 1)
	}
	h.mustTry(h.write("p.yaml", named(7, "eth0, eth1")), 0)
	h.network.Become("eth0")
	h.mustTry(h.write("q.yaml", named(4, "eth0")), long)
	h.confirm(true)
	h.wantBurst("taken back", 7)
	if h.try(h.write("r.yaml", named(5, "eth0, eth7")), long) == nil {
		t.Error("a policy with an interface that never was is in force")
	}
	h.end()
}

func TestTimeToConfirmIsBounded(t *testing.T) {
	h := newRehearsal(t)
	file := h.write("q.yaml", withBurst(4))
	for _, within := range []float64{-1, 1e-12, 9e-4, 1e9} {
		_, err := h.client.Reload(t.Context(), api.ReloadRequest{File: file, Confirm: within})
		var told *api.Error
		if !errors.As(err, &told) || !told.Usage {
			t.Errorf("%g s: %v", within, err)
		}
	}
	h.wantBurst("as before", 9)
	h.end()
}

func TestUserNames(t *testing.T) {
	for _, tt := range []struct {
		uid, login uint32
		want       string
	}{{0, noLogin, "root"}, {0, 0, "root"}, {4000000, noLogin, "uid 4000000"}, {0, 4000000, "uid 4000000 (as root)"}} {
		if got := userName(tt.uid, tt.login); got != tt.want {
			t.Errorf("user %d, login %d: %q, want %q", tt.uid, tt.login, got, tt.want)
		}
	}
}
