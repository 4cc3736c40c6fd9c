// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"narthex/internal/api"
	"narthex/internal/datapath"
)

func TestRunDetachesAtTheEnd(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", onePolicy)))
	state, ok := m.kernel.State("test")
	if !ok || !slices.Equal(targetNames(state), []string{"eth0"}) || len(state.Locals) != 1 {
		t.Fatalf("in force: %v %+v", ok, state)
	}
	r.end()
	if _, ok := m.kernel.State("test"); ok {
		t.Error("the instance is still in the kernel")
	}
	left, err := filepath.Glob(filepath.Join(m.dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(m.dir, "p.yaml")}; !slices.Equal(left, want) {
		t.Errorf("files left: %v, want %v", left, want)
	}
}

func TestHolder(t *testing.T) {
	dir := t.TempDir()
	if pid := Holder(dir, "test"); pid != 0 {
		t.Errorf("process %d holds what does not exist", pid)
	}
	lock, err := AcquireLock(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	if pid := Holder(dir, "test"); pid != os.Getpid() {
		t.Errorf("process %d holds the lock, want %d", pid, os.Getpid())
	}
	lock.file.Close() // as when it is killed
	if pid := Holder(dir, "test"); pid != 0 {
		t.Errorf("process %d holds the lock of a dead one", pid)
	}
}

func TestRunKeeps(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	cfg.Keep = true
	m.start(cfg).end()
	if _, ok := m.kernel.State("test"); !ok {
		t.Error("the instance is gone")
	}
}

func TestRunThatCannotStartLeavesThingsAsTheyWere(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(*machine, *Config)
		want  string
	}{
		{
			name:  "no policy file",
			spoil: func(m *machine, c *Config) { c.Policy = filepath.Join(m.dir, "none.yaml") },
			want:  `read policy "DIR/none.yaml": no such file or directory: name a policy file that exists`,
		},
		{
			name: "interface that does not exist",
			spoil: func(m *machine, c *Config) {
				c.Policy = m.write("p.yaml", strings.Replace(onePolicy, "web,", "web, interfaces: [eth7],", 1))
			},
			want: "service \"web\": interface \"eth7\" does not exist: create it or correct `interfaces` in the policy",
		},
		{
			name: "interface that cannot be policed",
			spoil: func(m *machine, _ *Config) {
				m.kernel.Refuse("eth0", errors.New("the driver says no"))
			},
			want: `attach to "eth0": the driver says no`,
		},
		{
			name:  "name of the instance",
			spoil: func(_ *machine, c *Config) { c.Instance = "../x" },
			want:  `"../x" cannot be the name of an instance: use up to 63 letters, digits, dots, dashes and underscores`,
		},
		{
			name:  "metrics address",
			spoil: func(_ *machine, c *Config) { c.Metrics = "nonsense:nonsense" },
			want:  `listen for metrics on "nonsense:nonsense": listen tcp: lookup tcp/nonsense: unknown port: name another address with --metrics`,
		},
		{
			name: "metrics port in use",
			spoil: func(m *machine, c *Config) {
				other, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					m.t.Fatal(err)
				}
				m.t.Cleanup(func() { other.Close() })
				c.Metrics = other.Addr().String()
			},
			want: `listen for metrics on "ADDRESS": listen tcp ADDRESS: bind: address already in use: name another address with --metrics`,
		},
		{
			name: "something else at the socket's path",
			spoil: func(m *machine, c *Config) {
				c.Socket = m.write("notes", "mine")
			},
			want: `"DIR/notes" is there already and is no socket: remove it or name another path with --socket`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, "eth0")
			cfg := m.config(m.write("p.yaml", onePolicy))
			tt.spoil(m, &cfg)
			err := Run(t.Context(), cfg)
			if err == nil {
				t.Fatal("it ran")
			}
			want := strings.ReplaceAll(tt.want, "ADDRESS", cfg.Metrics)
			if got := strings.ReplaceAll(err.Error(), m.dir, "DIR"); got != want {
				t.Errorf("error\n%s\nwant\n%s", got, want)
			}
			if _, ok := m.kernel.State("test"); ok {
				t.Error("an instance is in the kernel")
			}
			if left, _ := filepath.Glob(filepath.Join(m.dir, "test.*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestRunOfABusyInstance(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	r := m.start(cfg)
	err := Run(t.Context(), cfg)
	var busy *BusyError
	if !errors.As(err, &busy) || busy.PID != os.Getpid() {
		t.Errorf("error %v, want that process %d holds the instance", err, os.Getpid())
	}
	if _, ok := m.kernel.State("test"); !ok {
		t.Error("the running instance was removed")
	}
	r.end()
}

// crash ends a daemon as SIGKILL does, as far as the kernel and files are concerned.
func (m *machine) crash(r *running, cfg Config) {
	m.t.Helper()
	if err := r.client.Stop(context.Background(), api.StopRequest{Keep: true}); err != nil {
		m.t.Fatal(err)
	}
	if err := <-r.ended; err != nil {
		m.t.Fatal(err)
	}
	dead, err := listenControl(cfg.Socket, "test", 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	dead.Close()
	m.write("test.lock", "1\n")
}

func TestOverridesOutliveTheDaemonOnly(t *testing.T) {
	ctx := t.Context()
	m := newMachine(t, "eth0")
	file := m.write("p.yaml", onePolicy)
	cfg := m.config(file)
	const path = "connections.everyone.burst"
	burst := func() uint32 { s, _ := m.kernel.State("test"); return burstOf(s, "everyone") }
	wantBurst := func(when string, want uint32, overridden bool) {
		t.Helper()
		if got := burst(); got != want {
			t.Errorf("%s: burst %d, want %d", when, got, want)
		}
		if recorded := m.kernel.Journal("test")[keyOverride+path] != ""; recorded != overridden {
			t.Errorf("%s: in the journal: %v, want %v", when, recorded, overridden)
		}
	}
	set := func(r *running, req api.SetRequest) {
		t.Helper()
		if _, err := r.client.Set(ctx, req); err != nil {
			t.Fatal(err)
		}
	}

	r := m.start(cfg)
	set(r, api.SetRequest{Path: path, Value: "9"})
	wantBurst("after set", 9, true)
	set(r, api.SetRequest{Path: path, Value: "8"})
	wantBurst("after another set", 8, true)
	if diff := cmp.Diff([]api.Override{{Path: path, Value: "8"}}, r.status().Overrides); diff != "" {
		t.Errorf("overrides (-want +got):\n%s", diff)
	}
	if !r.status().Rules[0].Overridden {
		t.Error("the rule is not said to be overridden")
	}

	m.crash(r, cfg)
	r = m.start(cfg)
	if !r.status().Adopted {
		t.Error("the instance was not adopted")
	}
	wantBurst("after a crash", 8, true)

	set(r, api.SetRequest{Path: path, Policy: true})
	wantBurst("after set --policy", 3, false)

	set(r, api.SetRequest{Path: path, Value: "7"})
	result, err := r.client.Reload(ctx, api.ReloadRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]api.Override{{Path: path, Value: "7"}}, result.Ended); diff != "" {
		t.Errorf("ended overrides (-want +got):\n%s", diff)
	}
	wantBurst("after a reload", 3, false)

	set(r, api.SetRequest{Path: path, Value: "6"})
	m.crash(r, cfg)
	m.write("p.yaml", onePolicy+"# changed\n")
	r = m.start(cfg)
	wantBurst("after a crash and a change of the policy", 3, false)
	r.end()
}

func TestAdoptionInAnotherNamespaceIsRefused(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	m.crash(m.start(cfg), cfg)
	m.network.ID = 2
	err := Run(t.Context(), cfg)
	const want = "instance \"test\" is in force in another network namespace: run `narthex detach --instance test` first, or choose that one with --netns"
	if err == nil || err.Error() != want {
		t.Errorf("error\n%v\nwant\n%s", err, want)
	}
	if _, ok := m.kernel.State("test"); !ok {
		t.Error("what was in force is gone")
	}
}

func TestReloadThatFailsChangesNothing(t *testing.T) {
	tests := []struct {
		name, policy, want string
		usage              bool
	}{
		{"not a policy", "nonsense", `DIR/p.yaml:1:1: a policy is a mapping of keys to values, not "nonsense"`, true},
		{
			"absent interface", strings.Replace(onePolicy, "web,", "web, interfaces: [eth7],", 1),
			"service \"web\": interface \"eth7\" does not exist: create it or correct `interfaces` in the policy", false,
		},
		{
			"interface that cannot be policed", strings.Replace(onePolicy, "web,", "web, interfaces: [eth1],", 1),
			`attach to "eth1": the driver says no`, false,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, "eth0", "eth1")
			m.kernel.Refuse("eth1", errors.New("the driver says no"))
			old := strings.Replace(onePolicy, "web,", "web, interfaces: [eth0],", 1)
			r := m.start(m.config(m.write("p.yaml", old)))
			before, _ := m.kernel.State("test")
			m.write("p.yaml", tt.policy)

			_, err := r.client.Reload(t.Context(), api.ReloadRequest{})
			var told *api.Error
			if !errors.As(err, &told) {
				t.Fatalf("error %v", err)
			}
			want := &api.Error{Message: tt.want, Usage: tt.usage}
			told.Message = strings.ReplaceAll(told.Message, m.dir, "DIR")
			if diff := cmp.Diff(want, told); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			after, _ := m.kernel.State("test")
			if before.Tables != after.Tables || !slices.Equal(targetNames(before), targetNames(after)) {
				t.Errorf("in force: %+v, was %+v", after, before)
			}
			if got := r.status().Policy.Hash; got != before.Tables.Hash {
				t.Errorf("status has policy %s, want %s", got, before.Tables.Hash)
			}
			r.end()
		})
	}
}

func TestReloadRemembersTheLastPolicyThatWorked(t *testing.T) {
	ctx := t.Context()
	m := newMachine(t, "eth0")
	first := m.write("p.yaml", onePolicy)
	second := m.write("q.yaml", strings.Replace(onePolicy, "burst: 3", "burst: 4", 1))
	bad := m.write("bad.yaml", "nonsense")
	r := m.start(m.config(first))
	burst := func() uint32 { s, _ := m.kernel.State("test"); return burstOf(s, "everyone") }

	if _, err := r.client.Reload(ctx, api.ReloadRequest{File: second}); err != nil || burst() != 4 {
		t.Fatalf("reload of another file: %v, burst %d", err, burst())
	}
	if _, err := r.client.Reload(ctx, api.ReloadRequest{File: bad}); err == nil {
		t.Fatal("a bad policy was loaded")
	}
	m.write("q.yaml", strings.Replace(onePolicy, "burst: 3", "burst: 5", 1))
	m.reload <- unix.SIGHUP
	eventually(t, "burst 5 after SIGHUP", func() bool { return burst() == 5 })
	r.end()

	var said []string
	for _, s := range m.notifier.all() {
		said = append(said, strings.Split(s, "\n")[0])
	}
	want := []string{
		"READY=1",
		"RELOADING=1", "READY=1",
		"RELOADING=1", "READY=1",
		"RELOADING=1", "READY=1",
		"STOPPING=1",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("notifications (-want +got):\n%s", diff)
	}
	if s := m.notifier.all()[1]; !strings.Contains(s, "\nMONOTONIC_USEC=") {
		t.Errorf("RELOADING without its time: %q", s)
	}
}

// TestARunningDaemonWaitsForNoPipe whoever names one; it may start from one.
func TestARunningDaemonWaitsForNoPipe(t *testing.T) {
	m := newMachine(t, "eth0")
	fifo := filepath.Join(m.dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(fifo, []byte(onePolicy), 0o600)
	r := m.start(m.config(fifo))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for what, ask := range map[string]func() error{
		"reload": func() error { _, err := r.client.Reload(ctx, api.ReloadRequest{File: fifo}); return err },
		"diff":   func() error { _, err := r.client.Diff(ctx, api.DiffRequest{File: fifo}); return err },
		"trial":  func() error { _, err := r.client.Shadow(ctx, api.ShadowRequest{}); return err },
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Fatalf("%s: error %v", what, err)
		}
	}
	candidate := m.write("q.yaml", onePolicy+"# another one\n")
	if _, err := r.client.Reload(ctx, api.ReloadRequest{File: candidate, Confirm: 60}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(candidate), unix.Mkfifo(candidate, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.client.Confirm(ctx, api.ConfirmRequest{Revert: true}); err != nil {
		t.Fatal(err)
	}
	r.end()
}

func TestInterfacesThatComeAndGo(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", onePolicy)))
	policed := func(names ...string) func() bool {
		return func() bool { s, _ := m.kernel.State("test"); return slices.Equal(targetNames(s), names) }
	}
	m.network.Become("eth0", "eth1")
	eventually(t, "eth0 and eth1", policed("eth0", "eth1"))
	m.network.Become()
	eventually(t, "none", policed())
	if s := r.status(); s.Enforcing {
		t.Error("enforcing without an interface")
	}
	m.network.Become("eth0")
	eventually(t, "eth0", policed("eth0"))

	m.kernel.Refuse("eth1", errors.New("the driver says no"))
	m.network.Become("eth0", "eth1", "eth2")
	eventually(t, "eth2 in spite of eth1", policed("eth0", "eth2"))
	eventually(t, "a note on eth1", func() bool {
		return slices.Contains(r.status().Notes, `attach to "eth1": the driver says no`)
	})
	m.network.Become("eth0", "eth2", "eth3")
	eventually(t, "eth3", policed("eth0", "eth2", "eth3"))
	if notes := r.status().Notes; len(notes) > 0 {
		t.Errorf("notes %q, want none", notes)
	}
	r.end()
}

// TestInterfacesThatAReloadHasSeenAlone are gone again when the daemon is told of a change.
func TestInterfacesThatAReloadHasSeenAlone(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", onePolicy)))
	m.network.BecomeUnseen("eth0", "eth1")
	if _, err := r.client.Reload(t.Context(), api.ReloadRequest{}); err != nil {
		t.Fatal(err)
	}
	if s, _ := m.kernel.State("test"); !slices.Equal(targetNames(s), []string{"eth0", "eth1"}) {
		t.Fatalf("policed: %v", targetNames(s))
	}
	m.network.Become("eth0")
	eventually(t, "eth0 alone", func() bool { s, _ := m.kernel.State("test"); return slices.Equal(targetNames(s), []string{"eth0"}) })
	r.end()
}

// TestInterfacesThatStayAreLeftAlone when the daemon is told of them once more.
func TestInterfacesThatStayAreLeftAlone(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", onePolicy)))
	m.kernel.Refuse("eth0", errors.New("the driver says no"))
	for range 3 { // the first is dealt with by the end
		m.network.Become("eth0")
	}
	if notes := r.status().Notes; len(notes) > 0 {
		t.Errorf("notes %q, want none", notes)
	}
	r.end()
}

func TestNamedInterfaceThatVanishesIsWaitedFor(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", strings.Replace(onePolicy, "web,", "web, interfaces: [eth0],", 1))))
	m.network.Become("lan0")
	eventually(t, "a note", func() bool {
		s := r.status()
		return !s.Enforcing && slices.Contains(s.Notes, "service \"web\": interface \"eth0\" does not exist: create it or correct `interfaces` in the policy")
	})
	m.network.Become("eth0")
	eventually(t, "eth0 again", func() bool { return r.status().Enforcing })
	r.end()
}

func TestReloadWhileANamedInterfaceIsAway(t *testing.T) {
	m := newMachine(t, "eth0")
	named := func(names string) string {
		return m.write("p.yaml", strings.Replace(onePolicy, "web,", "web, interfaces: ["+names+"],", 1))
	}
	r := m.start(m.config(named("eth0")))
	m.network.Become("lan0")
	eventually(t, "eth0 let go", func() bool { return !r.status().Enforcing })
	if _, err := r.client.Reload(t.Context(), api.ReloadRequest{File: named("eth0, lan0")}); err != nil {
		t.Errorf("reload of a policy that names eth0 as before: %v", err)
	}
	if _, err := r.client.Reload(t.Context(), api.ReloadRequest{File: named("eth0, eth7")}); err == nil || !strings.Contains(err.Error(), `"eth7" does not exist`) {
		t.Errorf("reload of a policy that names eth7 for the first time: %v", err)
	}
	m.network.Become("eth0", "lan0")
	eventually(t, "eth0 and lan0", func() bool { s, _ := m.kernel.State("test"); return len(s.Targets) == 2 })
	r.end()
}

func TestRunLogsWhatIsLeftOut(t *testing.T) {
	m := newMachine(t, "eth0", "tun0")
	var text bytes.Buffer
	cfg := m.config(m.write("p.yaml", strings.Replace(onePolicy, `"*:80"`, `"*:81"`, 1)))
	cfg.Log = slog.New(slog.NewTextHandler(&text, nil))
	m.start(cfg).end()
	for _, want := range []string{`msg="interface \"tun0\" has no Ethernet header`, `msg="no server listens" instance=test service=web on=[*:81]`} {
		if strings.Count(text.String(), want) != 1 {
			t.Errorf("not logged once: %s\n%s", want, &text)
		}
	}
	if hash := regexp.MustCompile(`hash=(\w+)`).FindStringSubmatch(text.String()); len(hash) < 2 || len(hash[1]) != 12 {
		t.Errorf("hash %q, want 12 digits", hash)
	}
}

// Several limits are set at one moment, or none.
func TestSetSeveral(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", onePolicy)))
	set := func(values ...api.Override) error {
		_, err := r.client.Set(t.Context(), api.SetRequest{Values: values})
		return err
	}
	overrides := func() []api.Override {
		s, err := r.client.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.Overrides
	}
	burst, rate := api.Override{Path: "connections.everyone.burst", Value: "9"}, api.Override{Path: "connections.everyone.rate", Value: "7/s"}
	if err := set(rate, burst); err != nil || !cmp.Equal(overrides(), []api.Override{burst, rate}) {
		t.Errorf("set %v, %v", overrides(), err)
	}
	if err := set(api.Override{Path: burst.Path, Value: "3"}, api.Override{Path: rate.Path, Value: "x"}); err == nil || !cmp.Equal(overrides(), []api.Override{burst, rate}) {
		t.Errorf("one of two is wrong: %v, error %v", overrides(), err)
	}
	if _, err := r.client.Set(t.Context(), api.SetRequest{Path: rate.Path, Value: "3/s", Values: []api.Override{burst}}); err == nil {
		t.Error("a path beside values is taken")
	}
	r.end()
}

func TestBucketsAfterASet(t *testing.T) {
	m := newMachine(t, "eth0")
	r := m.start(m.config(m.write("p.yaml", onePolicy+"  - {name: all, from: 10.0.0.0/8, rate: 5/s, burst: 3}\n")))
	for _, tt := range []struct{ path, value, want string }{
		{"connections.everyone.rate", "6/s", "the buckets of its sources start full"},
		{"connections.everyone.rate", "5/s", "the buckets of its sources keep their level"},
		{"connections.everyone.burst", "9", "the buckets of its sources keep their level"},
		{"connections.all.rate", "6/s", "the rule's bucket keeps its tokens"},
	} {
		got, err := r.client.Set(t.Context(), api.SetRequest{Path: tt.path, Value: tt.value})
		if err != nil || got.Buckets != tt.want || !got.Changed {
			t.Errorf("%s %s: %+v, %v; want %q", tt.path, tt.value, got, err, tt.want)
		}
	}
	r.end()
}

func TestNativeXDPThatTheDriverLacks(t *testing.T) {
	m := newMachine(t, "eth0")
	m.kernel.Refuse("eth0", errors.New("native XDP: the driver does not support it"))
	err := Run(t.Context(), m.config(m.write("p.yaml", strings.Replace(onePolicy, "web,", "web, xdp: native,", 1))))
	if err == nil || !strings.HasSuffix(err.Error(), "write `xdp: auto` or `xdp: generic` in the policy") {
		t.Errorf("error %v", err)
	}
}

func TestWatchdog(t *testing.T) {
	m := newMachine(t, "eth0")
	m.notifier.every = 4 * time.Millisecond
	r := m.start(m.config(m.write("p.yaml", onePolicy)))
	eventually(t, "a sign of life", func() bool { return slices.Contains(m.notifier.all(), "WATCHDOG=1") })
	r.end()
}

func TestDetach(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	detach := func() bool {
		t.Helper()
		found, err := Detach(t.Context(), m.bpf(), Detachment{Instance: cfg.Instance, RunDir: m.dir, Socket: cfg.Socket, Client: api.NewClient(cfg.Socket)})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := m.kernel.State("test"); ok {
			t.Error("the instance is in the kernel after detach")
		}
		if _, err := os.Lstat(cfg.Socket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket is there after detach: %v", err)
		}
		return found
	}
	r := m.start(cfg)
	if !detach() {
		t.Error("a running instance was not found")
	}
	if err := <-r.ended; err != nil {
		t.Errorf("the daemon ended with %v", err)
	}
	m.crash(m.start(cfg), cfg)
	left := temporaryDir(cfg.Socket, "test")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if !detach() {
		t.Error("a crashed instance was not found")
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("detach left the folder in which a socket was made")
	}
	if detach() {
		t.Error("something was found where there is nothing")
	}
}

// What waits is released before the instance goes; with --keep it goes on waiting.
func TestStopEmptiesTheWaitingRooms(t *testing.T) {
	for _, tt := range []struct {
		name string
		keep bool
		stop func(*running) error
		want []string
	}{
		{"signal", false, func(r *running) error { r.cancel(); return nil }, []string{"clear 2s", "close", "remove"}},
		{"signal with --keep", true, func(r *running) error { r.cancel(); return nil }, []string{"close"}},
		{
			"request, with --keep", true,
			func(r *running) error { return r.client.Stop(context.Background(), api.StopRequest{}) },
			[]string{"clear 2s", "close", "remove"},
		},
		{
			"request to keep", false,
			func(r *running) error { return r.client.Stop(context.Background(), api.StopRequest{Keep: true}) },
			[]string{"close"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMachine(t, "eth0")
			cfg := m.config(m.write("p.yaml", onePolicy))
			cfg.Keep = tt.keep
			r := m.start(cfg)
			if err := tt.stop(r); err != nil {
				t.Fatal(err)
			}
			if err := <-r.ended; err != nil {
				t.Fatal(err)
			}
			if got := m.kernel.End(); !slices.Equal(got, tt.want) {
				t.Errorf("it ended with %q, want %q", got, tt.want)
			}
			ticks := m.kernel.Ticks()
			time.Sleep(2 * tickEvery)
			if m.kernel.Ticks() != ticks {
				t.Error("it ticks after its end")
			}
		})
	}
}

func TestRunSizesTheWaitingRooms(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	cfg.Sources, cfg.Slots, cfg.SlotSize, cfg.Flows = 1, 2, 3000, 4
	m.start(cfg).end()
	if got := m.kernel.Opened(); got.Sources != 1 || got.Slots != 2 || got.SlotSize != 3000 || got.Flows != 4 {
		t.Errorf("opened with %+v", got)
	}
}

// A daemon whose instance was taken does not look after attachments: those that are gone it would remove, with pins that
// are another's by then.
func TestTakenInstanceKeepsItsPins(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	r := m.start(cfg)
	if _, err := SeizeLock(m.dir, cfg.Instance); err != nil {
		t.Fatal(err)
	}
	looked := m.kernel.Looked()
	if _, err := r.client.Reload(t.Context(), api.ReloadRequest{}); err == nil {
		t.Error("it has reloaded what is another's")
	}
	if now := m.kernel.Looked(); now != looked {
		t.Errorf("it looked after attachments %d times", now-looked)
	}
	if err := unix.Kill(os.Getpid(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-r.ended; !errors.As(err, new(*TakenError)) {
		t.Errorf("the daemon ended with %v", err)
	}
}

// A daemon whose instance was taken ends, and leaves alone what is another's by then.
func TestInstanceIsTaken(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	r := m.start(cfg)
	lock, err := SeizeLock(m.dir, cfg.Instance)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(os.Getpid(), unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-r.ended; !errors.As(err, new(*TakenError)) {
		t.Errorf("the daemon ended with %v", err)
	}
	if got, want := m.kernel.End(), []string{"close"}; !slices.Equal(got, want) {
		t.Errorf("it ended with %q, want %q", got, want)
	}
	if _, err := os.Lstat(cfg.Socket); err != nil {
		t.Errorf("it removed a socket that may be another's: %v", err)
	}
	if !lock.Held() {
		t.Error("it removed another's lock")
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// So does one that was asked to stop before, and hung on its way.
func TestInstanceIsTakenAtTheEnd(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	r := m.start(cfg)
	lock, err := SeizeLock(m.dir, cfg.Instance)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Release()
	r.cancel()
	if err := <-r.ended; !errors.As(err, new(*TakenError)) {
		t.Errorf("the daemon ended with %v", err)
	}
	if got, want := m.kernel.End(), []string{"close"}; !slices.Equal(got, want) {
		t.Errorf("it ended with %q, want %q", got, want)
	}
}

// What is set for a time ends by itself, whichever daemon runs then.
func TestSetForATime(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	r := m.start(cfg)
	shadow := func() bool { s, _ := m.kernel.State("test"); return s.Tables.Services[0].Shadow }
	set := func(seconds float64) {
		t.Helper()
		if _, err := r.client.Set(t.Context(), api.SetRequest{Path: "services.web.mode", Value: "shadow", For: seconds}); err != nil {
			t.Fatal(err)
		}
		if !shadow() {
			t.Fatal("the service is not in shadow mode")
		}
	}
	set(0.1)
	eventually(t, "it enforces again", func() bool { return !shadow() })
	eventually(t, "the override has gone", func() bool { return len(r.status().Overrides) == 0 })
	for key := range m.kernel.Journal("test") {
		if strings.HasPrefix(key, keyOverride) || strings.HasPrefix(key, keyUntil) {
			t.Errorf("the journal has %q", key)
		}
	}
	set(3600)
	if o := r.status().Overrides; len(o) != 1 || o[0].Until == nil || time.Until(*o[0].Until) < 59*time.Minute {
		t.Errorf("overrides %+v", o)
	}
	set(0.5)
	m.crash(r, cfg)
	r = m.start(cfg)
	defer r.end()
	eventually(t, "it enforces again under the next daemon", func() bool { return !shadow() })
}

func TestHealth(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	cfg.Metrics = "127.0.0.1:0"
	d := &daemon{cfg: cfg, engine: &engine{}}
	ask := func(path string) int {
		w := httptest.NewRecorder()
		d.withHealth(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code
	}
	if got := [3]int{ask("/healthz"), ask("/readyz"), ask("/")}; got != [3]int{200, 503, 404} {
		t.Errorf("while nothing is policed: %v", got)
	}
	d.engine.attachments = []datapath.Attachment{{Name: "eth0"}}
	if got := ask("/readyz"); got != 200 {
		t.Errorf("while something is: %v", got)
	}
}
