// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"narthex/internal/api"
	"narthex/internal/daemon"
	"narthex/internal/datapath"
	"narthex/internal/policy"
	"narthex/test/daemontest"
)

// world is what the commands of a test run in.
type world struct {
	t       *testing.T
	dir     string
	kernel  *daemontest.Kernel
	network *daemontest.Network
}

type silent struct{}

func (silent) Notify(string)           {}
func (silent) Watchdog() time.Duration { return 0 }

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "narthex") // short enough for a socket, unlike t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &world{t: t, dir: dir, kernel: daemontest.NewKernel(), network: daemontest.NewNetwork("eth0")}
}

func (w *world) env(out, errs io.Writer, args ...string) Env {
	return Env{
		Args: args, Stdout: out, Stderr: errs, Version: "1.2.3", RunDir: w.dir,
		Kernel: daemon.Kernel{
			Open:   func(cfg datapath.Config, _ int) (daemon.Datapath, error) { return w.kernel.Open(cfg), nil },
			Remove: w.kernel.Remove,
			Pinned: w.kernel.Pinned,
		},
		PinnedInstances: func() []string { return []string{"orphan"} },
		OpenNetwork:     func(string, *slog.Logger) (daemon.Network, error) { return w.network, nil },
		Notifier:        silent{},
		Demo: func(_ context.Context, out io.Writer, asJSON bool) error {
			_, err := io.WriteString(out, map[bool]string{false: "a table\n", true: "{}\n"}[asJSON])
			return err
		},
	}
}

// result is what a command said, with the folder's name replaced.
type result struct {
	Code     int
	Out, Err string
}

func (w *world) do(args ...string) result {
	w.t.Helper()
	var out, errs bytes.Buffer
	code := Main(w.t.Context(), w.env(&out, &errs, args...))
	clean := func(b bytes.Buffer) string { return strings.ReplaceAll(b.String(), w.dir, "DIR") }
	return result{code, clean(out), clean(errs)}
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

const webPolicy = `version: 1
services:
  - {name: web, listen: "*:80", concurrency: unlimited}
connections:
  - {name: everyone, rate: 5/s, burst: 3, per: source}
`

// run starts `narthex run` and waits until it answers. The function it returns ends it and
// returns its exit code and what it wrote.
func (w *world) run(args ...string) func() (int, string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() { ended <- Main(ctx, w.env(io.Discard, &errs, append([]string{"run"}, args...)...)) }()
	client := api.NewClient(daemon.SocketPath(w.dir, "default"))
	for {
		select {
		case code := <-ended:
			w.t.Fatalf("run ended with %d: %s", code, &errs)
		case <-time.After(time.Millisecond):
		}
		if _, err := client.Status(ctx); err == nil {
			break
		} else if !errors.Is(err, api.ErrNoDaemon) {
			w.t.Fatal(err)
		}
	}
	return func() (int, string) {
		cancel()
		return <-ended, errs.String()
	}
}

func TestSentencesAndExitCodes(t *testing.T) {
	const nobody = "narthex: no daemon answers on DIR/default.sock: start it with `narthex run --policy FILE`\n"
	w := newWorld(t)
	good := w.write("good.yaml", webPolicy)
	bad := w.write("bad.yaml", "version: 1\nservices: []\n")
	worse := w.write("worse.yaml", "version: 2\nservices: 3\n")
	absent := w.write("absent.yaml", strings.Replace(webPolicy, "web,", "web, interfaces: [eth7],", 1))
	tests := []struct {
		args []string
		code int
		want string // on the standard error
	}{
		{[]string{"bogus"}, 2, "narthex: there is no command \"bogus\": see `narthex --help`\n"},
		{[]string{"stats"}, 2, "narthex: there is no command \"stats\"; did you mean `narthex status`? See `narthex --help`\n"},
		{[]string{"relod"}, 2, "narthex: there is no command \"relod\"; did you mean `narthex reload`? See `narthex --help`\n"},
		{[]string{"help", "statu"}, 2, "narthex: there is no command \"statu\"; did you mean `narthex status`? See `narthex --help`\n"},
		{[]string{"diff", good, "--against", w.dir + "/none"}, 2, "narthex: read policy \"DIR/none\": no such file or directory: name a policy file that exists\n"},
		{[]string{"diff", good}, 2, nobody},
		{[]string{"--bogus"}, 2, "narthex: unknown flag: --bogus: see `narthex --help`\n"},
		{[]string{"run", "--bogus"}, 2, "narthex: unknown flag: --bogus: see `narthex run --help`\n"},
		{[]string{"run"}, 2, "narthex: no policy is named: use `narthex run --policy FILE`\n"},
		{[]string{"run", good}, 2, "narthex: this command takes options only, not 1 argument: see `narthex run --help`\n"},
		{[]string{"run", "--policy", good, "--sources", "-1"}, 2, "narthex: --sources -1: use 1 to 16777216, or leave it out\n"},
		{[]string{"run", "--policy", good, "--sources", "0"}, 2, "narthex: --sources 0: use 1 to 16777216, or leave it out\n"},
		{[]string{"run", "--policy", good, "--slots", "0"}, 2, "narthex: --slots 0: use 1 to 65536, or leave it out\n"},
		{[]string{"run", "--policy", good, "--slots", "65537"}, 2, "narthex: --slots 65537: use 1 to 65536, or leave it out\n"},
		{[]string{"run", "--policy", good, "--slot-size", "1000"}, 2, "narthex: --slot-size 1000: use 2048 to 16064 bytes, or leave it out\n"},
		{[]string{"run", "--policy", good, "--slot-size", "16065"}, 2, "narthex: --slot-size 16065: use 2048 to 16064 bytes, or leave it out\n"},
		{[]string{"run", "--policy", good, "--flows", "0"}, 2, "narthex: --flows 0: use 1 to 4194304, or leave it out\n"},
		{[]string{"run", "--policy", good, "--flows", "4194305"}, 2, "narthex: --flows 4194305: use 1 to 4194304, or leave it out\n"},
		{[]string{"run", "--policy", good, "--slots", "100", "--flows", "99"}, 2, "narthex: --flows 99: use at least 100, as many as --slots: a request that waits is followed, too\n"},
		{[]string{"run", "--policy", good, "--netns", ""}, 2, "narthex: --netns is empty: give it a value or leave it out\n"},
		{[]string{"run", "--policy", good, "--socket="}, 2, "narthex: --socket is empty: give it a value or leave it out\n"},
		{[]string{"run", "--policy="}, 2, "narthex: --policy is empty: give it a value or leave it out\n"},
		{[]string{"status", "--instance", ""}, 2, "narthex: --instance is empty: give it a value or leave it out\n"},
		{[]string{"explain", "--from", "10.0.0.1", "--policy", ""}, 2, "narthex: --policy is empty: give it a value or leave it out\n"},
		{[]string{"run", "--policy", good, "--metrics", "foo"}, 2, "narthex: --metrics \"foo\": use HOST:PORT, such as 127.0.0.1:9464, or a port of 127.0.0.1\n"},
		{[]string{"run", "--policy", good, "--metrics", "99999"}, 2, "narthex: --metrics \"99999\": use HOST:PORT, such as 127.0.0.1:9464, or a port of 127.0.0.1\n"},
		{[]string{"run", "--policy", w.dir}, 1, "narthex: read policy \"DIR\": is a directory: name the policy file in it\n"},
		{[]string{"help", "nosuch"}, 2, "narthex: there is no command \"nosuch\": see `narthex --help`\n"},
		{[]string{"run", "--policy", good, "--log-level", "loud"}, 2, "narthex: --log-level \"loud\": use debug, info, warn or error\n"},
		{[]string{"run", "--policy", good, "--instance", "a b"}, 2, "narthex: \"a b\" cannot be the name of an instance: use up to 63 letters, digits, dots, dashes and underscores\n"},
		{[]string{"run", "--policy", w.dir + "/none"}, 1, "narthex: read policy \"DIR/none\": no such file or directory: name a policy file that exists\n"},
		{[]string{"run", "--policy", bad}, 2, "narthex: DIR/bad.yaml:2:11: \"services\" is empty; name a server to protect: - {name: web, listen: \"*:80\"}\n"},
		{[]string{"run", "--policy", worse}, 2, "narthex: DIR/worse.yaml:1:10: version \"2\" is not known; this Narthex reads version 1 (and 1 more: `narthex check` lists them)\n"},
		{[]string{"run", "--policy", absent}, 1, "narthex: service \"web\": interface \"eth7\" does not exist: create it or correct `interfaces` in the policy\n"},
		{[]string{"check"}, 2, "narthex: name the policy file, not 0 arguments: see `narthex check --help`\n"},
		{[]string{"check", w.dir + "/none"}, 1, "narthex: read policy \"DIR/none\": no such file or directory: name a policy file that exists\n"},
		{[]string{"check", bad}, 2, "DIR/bad.yaml:2:11: \"services\" is empty; name a server to protect: - {name: web, listen: \"*:80\"}\n"},
		{[]string{"status"}, 1, strings.Replace(nobody, "no daemon", "nothing is enforced: no daemon", 1)},
		{[]string{"status", "--instance", "test"}, 1, "narthex: nothing is enforced: no daemon answers on DIR/test.sock: start it with `narthex run --policy FILE --instance test`\n"},
		{[]string{"reload", "--socket", w.dir + "/other"}, 1, strings.Replace(nobody, "default.sock", "other", 1)},
		{[]string{"reload"}, 1, nobody},
		{[]string{"set", "connections.everyone.rate", "5/s"}, 1, nobody},
		{[]string{"set", "connections.everyone.rate"}, 2, "narthex: a path and a value are needed: see `narthex set --help`\n"},
		{[]string{"set", "connections.everyone.rate", "5/s", "--policy"}, 2, "narthex: --policy takes a path and no value: see `narthex set --help`\n"},
		{[]string{"explain"}, 2, "narthex: no client is named: use `narthex explain --from IP`\n"},
		{[]string{"explain", "--from", "10.0.0.1"}, 1, nobody},
		{[]string{"explain", "--from", "10.0.0.1", "--to", "[2001:db8::1]:80"}, 2, "narthex: --from 10.0.0.1 and --to [2001:db8::1]:80 are of different families: name two IPv4 or two IPv6 addresses\n"},
		{[]string{"explain", "--from", "10.0.0", "--policy", good}, 2, "narthex: \"10.0.0\" is no address: write it like 192.0.2.1, 192.0.2.1:50000 or [2001:db8::1]:50000\n"},
		{[]string{"completion", "tcsh"}, 2, "narthex: name a shell: bash, zsh or fish: see `narthex completion --help`\n"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			if diff := cmp.Diff(result{Code: tt.code, Err: tt.want}, w.do(tt.args...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if _, ok := w.kernel.State("default"); ok {
		t.Error("something is attached")
	}
}

func TestCheck(t *testing.T) {
	w := newWorld(t)
	file := w.write("p.yaml", webPolicy+"  - {name: never, action: drop}\n  - {name: idle, rate: 5/s, from: 10.0.0.1}\n")
	got := w.do("check", file)
	if got.Code != 0 || !strings.HasPrefix(got.Out, "DIR/p.yaml: 1 service, ") {
		t.Errorf("check: %+v", got)
	}
	if !strings.HasPrefix(got.Err, "DIR/p.yaml:6:5: ") || !strings.Contains(got.Err, "(warning)\nDIR/p.yaml:7:5: ") {
		t.Errorf("warnings: %q", got.Err)
	}

	got = w.do("check", "--json", file)
	var meaning struct {
		Services []struct{ Name string }
		Warnings []struct{ Line int }
	}
	if err := json.Unmarshal([]byte(got.Out), &meaning); err != nil {
		t.Fatal(err)
	}
	if got.Err != "" || len(meaning.Services) != 1 || len(meaning.Warnings) != 2 || meaning.Warnings[1].Line != 7 {
		t.Errorf("check --json: %+v", got)
	}

	two := w.write("two.yaml", "version: 1\nservices:\n  - {name: a, listen: \"*:80\", concurrency: 4}\n  - {name: b, listen: \"*:81\", concurrency: 4}\n")
	if got = w.do("check", two); !strings.Contains(got.Out, "up to 8192 wait in all queues together: use --slots 8457 (129 MiB) to hold all at once") {
		t.Errorf("check of more than fits: %+v", got)
	}

	bad := w.write("bad.yaml", "version: 1\nservices: []\n")
	want := result{Code: 2, Out: `{
  "errors": [
    {
      "file": "DIR/bad.yaml",
      "line": 2,
      "col": 11,
      "message": "\"services\" is empty; name a server to protect: - {name: web, listen: \"*:80\"}"
    }
  ],
  "warnings": []
}
`}
	if diff := cmp.Diff(want, w.do("check", "--json", bad)); diff != "" {
		t.Errorf("check --json of a bad policy (-want +got):\n%s", diff)
	}
}

func TestCheckOfWhatIsNoRegularFile(t *testing.T) {
	w := newWorld(t)
	stdin := func(r io.Reader, args ...string) result {
		var out, errs bytes.Buffer
		env := w.env(&out, &errs, args...)
		env.Stdin = r
		code := Main(t.Context(), env)
		return result{code, out.String(), errs.String()}
	}
	if got := stdin(strings.NewReader(webPolicy), "check", "-"); got.Code != 0 || !strings.HasPrefix(got.Out, "<stdin>: 1 service, ") {
		t.Errorf("check -: %+v", got)
	}
	const large = "has 16777217 bytes; a policy has at most 16777216\n"
	if got := stdin(zeros{}, "check", "-"); got.Code != 2 || !strings.HasSuffix(got.Err, large) {
		t.Errorf("check - without an end: %+v", got)
	}
	if got := w.do("check", "/dev/zero"); got.Code != 2 || !strings.HasSuffix(got.Err, large) {
		t.Errorf("check of a device: %+v", got)
	}
	fifo := filepath.Join(w.dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(fifo, []byte(webPolicy), 0o600)
	if got := w.do("check", fifo); got.Code != 0 {
		t.Errorf("check of a FIFO: %+v", got)
	}
}

// zeros has no end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestCommandsOfARunningInstance(t *testing.T) {
	w := newWorld(t)
	file := w.write("p.yaml", webPolicy)
	end := w.run("--policy", file, "--metrics", "0")

	got := w.do("status")
	for _, want := range []string{
		"instance default: enforcing, process ", "policy DIR/p.yaml (", "sources 4 of 100, maps 0.0 MiB\n",
		"\nSERVICE  LISTEN  MODE     INTERFACES     PASSED  DROPPED  WOULD DROP\n" +
			"web      *:80    enforce  eth0 (native)       3        2           1\n",
		"\nslots in use: 4 of 64 (8192 bytes each); flows: 5 of 128\n" +
			"web  enforce  limit unlimited  in service 0  waiting 0 of 4096\n",
		"\nRULE      DOES         PER     CLASS  PASSED  DROPPED  WOULD DROP\n" +
			"everyone  5/s burst 3  source  -           1       10           0\n",
		"\nWITHOUT A RULE  PASSED  DROPPED  WOULD DROP\nno_rule              7        0           0\n",
	} {
		if !strings.Contains(got.Out, want) {
			t.Errorf("status lacks %q:\n%s", want, got.Out)
		}
	}
	if got.Code != 0 || got.Err != "" {
		t.Errorf("status: %d %s", got.Code, got.Err)
	}

	steps := []struct {
		args []string
		want result
	}{
		{
			[]string{"set", "connections.everyone.rate", "9/s"},
			result{Out: "connections.everyone.rate is 9/s until the next reload; the buckets of its sources start full\n"},
		},
		{
			[]string{"explain", "--from", "10.0.0.9", "--to", "192.0.2.1:80"},
			result{Out: "service web on eth0: rule everyone, 9/s burst 3 per source, class default: drop (0.5 of 3 tokens, full in 2s)\n"},
		},
		{
			[]string{"explain", "--from", "10.0.0.8", "--to", "192.0.2.1:80"},
			result{Out: "service web on eth0: rule everyone, 9/s burst 3 per source, class default: pass (no bucket yet: it starts full, with 3 tokens)\n"},
		},
		{
			[]string{"explain", "--from", "127.0.0.1"},
			result{Out: "service web: not policed: it arrives on lo, which service web does not name: pass\n"},
		},
		{
			[]string{"explain", "--from", "10.0.0.8", "--to", "192.0.2.7:80"},
			result{Out: "192.0.2.7 is not an address of this machine, and forwarded traffic is left alone: pass\n"},
		},
		{
			[]string{"set", "connections.everyone.rate", "--policy"},
			result{Out: "connections.everyone.rate is as in the policy; the buckets of its sources keep their level\n"},
		},
		{
			[]string{"set", "connections.everyone.rate", "--policy"},
			result{Out: "connections.everyone.rate is as in the policy: it was not overridden\n"},
		},
		{
			[]string{"set", "connections.everyone.rat", "--policy"},
			result{Code: 2, Err: "narthex: set \"connections.everyone.rat\": there is no such path; did you mean \"connections.everyone.rate\"?\n"},
		},
		{
			[]string{"set", "services.web.concurrency", "8"},
			result{Out: "services.web.concurrency is 8 until the next reload\n"},
		},
		{
			[]string{"explain", "--from", "10.0.0.8", "--to", "192.0.2.1:80"},
			result{Out: "service web on eth0: rule everyone, 5/s burst 3 per source, class default: pass (no bucket yet: it starts full, with 3 tokens)\n" +
				"  a request would be served at once: 0 of 8 in service, 0 waiting\n"},
		},
		{
			[]string{"explain", "--from", "10.0.0.9", "--to", "192.0.2.1:80"},
			result{Out: "service web on eth0: rule everyone, 5/s burst 3 per source, class default: drop (0.5 of 3 tokens, full in 2s)\n"},
		},
		{
			[]string{"set", "services.web.concurrency", "--policy"},
			result{Out: "services.web.concurrency is as in the policy\n"},
		},
		{
			[]string{"status", "--socket", w.dir + "/other"},
			result{Out: "instance default: enforcing\nnote: process PID holds instance \"default\" and does not answer on DIR/other: name its socket with --socket\n"},
		},
		{
			[]string{"reload", "--socket", w.dir + "/other"},
			result{Code: 1, Err: "narthex: process PID holds instance \"default\" and does not answer on DIR/other: name its socket with --socket\n"},
		},
		{
			[]string{"set", "connections.everyone.rate", "fast"},
			result{Code: 2, Err: "narthex: set connections.everyone.rate: \"fast\" is not a rate; write a whole number per second, minute or hour, as 100/s, 15/m or 1000/h\n"},
		},
		{
			[]string{"run", "--policy", file},
			result{Code: 1, Err: "narthex: instance \"default\" is busy: process PID holds it; stop that one or name another with --instance\n"},
		},
		{
			[]string{"reload", w.write("bad.yaml", "nonsense")},
			result{Code: 2, Err: "narthex: DIR/bad.yaml:1:1: a policy is a mapping of keys to values, not \"nonsense\"\n"},
		},
		{
			[]string{"set", "connections.everyone.burst", "4"},
			result{Out: "connections.everyone.burst is 4 until the next reload; the buckets of its sources keep their level\n"},
		},
		{
			[]string{"reload"},
			result{Out: "connections.everyone.burst is no longer 4 but as in the policy\ninstance default: DIR/p.yaml is in force (HASH)\n"},
		},
	}
	for _, s := range steps {
		got := w.do(s.args...)
		got.Err = strings.ReplaceAll(got.Err, pidText(), "PID")
		got.Out = strings.ReplaceAll(got.Out, pidText(), "PID")
		if i := strings.Index(got.Out, "in force ("); i >= 0 {
			got.Out = got.Out[:i] + "in force (HASH)\n"
		}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", strings.Join(s.args, " "), diff)
		}
	}
	code, log := end()
	if code != 0 {
		t.Errorf("run ended with %d", code)
	}
	for line := range strings.Lines(log) {
		if !json.Valid([]byte(line)) {
			t.Errorf("log line is no JSON: %s", line)
		}
		if strings.Contains(line, `:""`) {
			t.Errorf("log line with an empty value: %s", line)
		}
	}
	if _, ok := w.kernel.State("default"); ok {
		t.Error("still attached after run has ended")
	}
}

func TestRunSizesTheWaitingRooms(t *testing.T) {
	w := newWorld(t)
	end := w.run("--policy", w.write("p.yaml", webPolicy), "--slots", "10", "--slot-size", "16064", "--flows", "10", "--sources", "7")
	end()
	if got := w.kernel.Opened(); got.Slots != 10 || got.SlotSize != 16064 || got.Flows != 10 || got.Sources != 7 {
		t.Errorf("opened with %+v", got)
	}
}

func pidText() string { return strconv.Itoa(os.Getpid()) }

func TestEnforcingWithoutADaemon(t *testing.T) {
	w := newWorld(t)
	end := w.run("--policy", w.write("p.yaml", webPolicy), "--keep")
	if code, _ := end(); code != 0 {
		t.Fatalf("run ended with %d", code)
	}
	want := result{Out: "instance default: enforcing\nnote: enforcing without a daemon: `narthex run --policy FILE` takes it over, `narthex detach` ends it\n"}
	if diff := cmp.Diff(want, w.do("status")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	var status api.Status
	text := w.do("status", "--json").Out
	if err := json.Unmarshal([]byte(text), &status); err != nil || !status.Enforcing || status.PID != 0 || strings.Contains(text, "null") {
		t.Errorf("status --json: %s, %v", text, err)
	}
	const goesOn = "narthex: enforcing without a daemon: `narthex run --policy FILE` takes it over, `narthex detach` ends it\n"
	for _, args := range []string{"reload", "set connections.everyone.rate 5/s", "explain --from 10.0.0.1"} {
		if diff := cmp.Diff(result{Code: 1, Err: goesOn}, w.do(strings.Fields(args)...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
	if diff := cmp.Diff(result{Out: "instance default: detached\n"}, w.do("detach")); diff != "" {
		t.Errorf("detach (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(result{Out: "instance default: nothing to detach\n"}, w.do("detach")); diff != "" {
		t.Errorf("second detach (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(result{Code: 1, Err: "narthex: there is no instance \"typo\": there is orphan\n"}, w.do("detach", "--instance", "typo")); diff != "" {
		t.Errorf("detach of what there is not (-want +got):\n%s", diff)
	}
}

func TestStatusWithoutAnInterfaceIsAFailure(t *testing.T) {
	w := newWorld(t)
	end := w.run("--policy", w.write("p.yaml", webPolicy))
	w.network.Become()
	var got result
	for range 1000 {
		if got = w.do("status"); got.Code == 1 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got.Code != 1 || !strings.HasPrefix(got.Out, "instance default: not enforcing, process ") || got.Err != "" {
		t.Errorf("status: %+v", got)
	}
	end()
}

func TestCompletion(t *testing.T) {
	w := newWorld(t)
	complete := func(args ...string) []string {
		t.Helper()
		got := w.do(append([]string{"__complete"}, args...)...)
		lines := strings.Split(strings.TrimSpace(got.Out), "\n")
		return lines[:len(lines)-1] // the last one is a directive
	}
	end := w.run("--policy", w.write("p.yaml", strings.Replace(webPolicy, "connections:", "  - {name: mail, listen: \"*:25\", protocol: tcp}\nconnections:", 1)))
	tests := []struct {
		args, want []string
	}{
		{[]string{"status", "--instance", ""}, []string{"default", "orphan"}},
		{[]string{"set", ""}, []string{"connections.", "requests.", "services.", "classes."}},
		{[]string{"set", "c"}, []string{"connections.", "classes."}},
		{[]string{"set", "services.w"}, []string{"services.web."}},
		{[]string{"set", "services.m"}, []string{"services.mail."}},
		{[]string{"set", "services.web."}, []string{
			"services.web.mode", "services.web.concurrency", "services.web.concurrency.min", "services.web.concurrency.max", "services.web.concurrency.target",
			"services.web.overload.after", "services.web.overload.calm", "services.web.overload.rejecting", "services.web.overload.flooded",
			"services.web.queue.size", "services.web.queue.max_wait", "services.web.queue.max_service", "services.web.queue.target",
		}},
		{[]string{"set", "services.web.q"}, []string{
			"services.web.queue.size", "services.web.queue.max_wait", "services.web.queue.max_service", "services.web.queue.target",
		}},
		{[]string{"set", "classes."}, []string{"classes.default."}},
		{[]string{"set", "classes.default."}, []string{"classes.default.reserve", "classes.default.max", "classes.default.stall"}},
		{[]string{"set", "connections.e"}, []string{"connections.everyone."}},
		{[]string{"set", "connections.x"}, []string{}},
		{[]string{"set", "connections.everyone."}, []string{"connections.everyone.rate", "connections.everyone.burst"}},
		{[]string{"set", "--instance", "none", "connections."}, []string{}},
		{[]string{"set", "connections.everyone.rate", ""}, []string{}},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}},
		{[]string{"run", "--log-level", ""}, []string{"debug", "info", "warn", "error"}},
	}
	for _, tt := range tests {
		if got := complete(tt.args...); !slices.Equal(got, tt.want) {
			t.Errorf("%q: %q, want %q", tt.args, got, tt.want)
		}
	}
	end()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if got := w.do("completion", shell); got.Code != 0 || !strings.Contains(got.Out, "narthex") {
			t.Errorf("completion %s: %d %s", shell, got.Code, got.Err)
		}
	}
}

// TestCompletionOffersAll offers what can be set, and no more.
func TestCompletionOffersAll(t *testing.T) {
	w := newWorld(t)
	file := w.write("p.yaml", strings.Replace(webPolicy, "connections:", "classes: [{name: gold, priority: 1}]\nconnections:", 1)+
		"  - {name: rest, from: 10.9.0.0/16, action: drop}\nrequests:\n  - {name: search, path: /search, rate: 5/s, burst: 3}\n  - {name: noaccess, path: /x, action: reject}\n")
	p, _, err := policy.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	end := w.run("--policy", file)
	offered := []string{""}
	for range 3 { // tables, names, limits
		var next []string
		for _, prefix := range offered {
			lines := strings.Split(strings.TrimSpace(w.do("__complete", "set", prefix).Out), "\n")
			next = append(next, lines[:len(lines)-1]...)
		}
		offered = next
	}
	end()
	want := p.Paths()
	slices.Sort(want)
	slices.Sort(offered)
	if diff := cmp.Diff(want, offered); diff != "" {
		t.Errorf("what is offered (-can be set +offered):\n%s", diff)
	}
}

func TestVersionAndDemo(t *testing.T) {
	w := newWorld(t)
	for args, want := range map[string]string{
		"version": "narthex 1.2.3\n", "--version": "narthex 1.2.3\n", "demo": "a table\n", "demo --json": "{}\n",
	} {
		if diff := cmp.Diff(result{Out: want}, w.do(strings.Fields(args)...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
}

func TestInterruptedDemo(t *testing.T) {
	w := newWorld(t)
	var errs bytes.Buffer
	env := w.env(io.Discard, &errs, "demo")
	env.Demo = func(ctx context.Context, _ io.Writer, _ bool) error {
		if err := unix.Kill(os.Getpid(), unix.SIGINT); err != nil {
			return err
		}
		<-ctx.Done()
		return errors.New("demo stopped")
	}
	if code := Main(t.Context(), env); code != 130 || errs.String() != "narthex: demo stopped\n" {
		t.Errorf("exit code %d, %q", code, &errs)
	}
}

func TestHelpCommand(t *testing.T) {
	w := newWorld(t)
	if got, want := w.do("help", "run"), w.do("run", "--help"); got != want {
		t.Errorf("help run: %+v", got)
	}
	if got := w.do("help"); got.Code != 0 || !strings.Contains(got.Out, "Available Commands:") {
		t.Errorf("help: %+v", got)
	}
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	w := newWorld(t)
	for _, cmd := range Commands(w.env(io.Discard, io.Discard)).Commands() {
		if cmd.Long == "" || cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s lacks a text", cmd.Name())
		}
		if got := w.do(cmd.Name(), "--help"); got.Code != 0 || !strings.Contains(got.Out, cmd.Example) || got.Err != "" {
			t.Errorf("%s --help: %+v", cmd.Name(), got)
		}
	}
}

// TestCheckStrict: warnings are errors to whoever asks for that.
func TestCheckStrict(t *testing.T) {
	w := newWorld(t)
	warned := w.write("warned.yaml", "version: 1\nservices: [{name: web, listen: \"*:80\"}]\nrequests: [{name: a, host: \"a:80\", action: drop}]\n")
	fine := w.write("fine.yaml", "version: 1\nservices: [{name: web, listen: \"*:80\"}]\n")
	for _, tt := range []struct {
		args []string
		code int
	}{
		{[]string{"check", warned}, 0}, {[]string{"check", "--strict", warned}, 2}, {[]string{"check", "--strict", "--json", warned}, 2},
		{[]string{"check", "--strict", fine}, 0},
	} {
		if got := w.do(tt.args...); got.Code != tt.code || got.Out == "" {
			t.Errorf("%q: %+v, want exit code %d and what the policy means", tt.args, got, tt.code)
		}
	}
}

// What is remembered of clients is shown, forgotten and added, with exit codes of its own.
func TestTable(t *testing.T) {
	w := newWorld(t)
	policy := w.write("p.yaml", webPolicy+"  - {name: all, rate: 10/s, burst: 4}\nclasses: [{name: gold, priority: 1}]\n")
	const nobody = "narthex: no daemon answers on DIR/default.sock: start it with `narthex run --policy FILE`\n"
	if diff := cmp.Diff(result{Code: 2, Err: nobody}, w.do("table")); diff != "" {
		t.Errorf("without a daemon (-want +got):\n%s", diff)
	}
	end := w.run("--policy", policy)
	const see = ": see `narthex table "
	for _, tt := range []struct {
		args      string
		code      int
		out, errs string
	}{
		{"", 0, "blocked\n  client     left\n  10.0.0.21    2s\nbuckets\n  rule  of           tokens  burst  full in\n  all   connections     4.0      4       0s\n", ""},
		{"blocked 10.0.0.0/24", 0, "blocked\n  client     left\n  10.0.0.21    2s\n", ""},
		{"list blocked 10.0.1.0/24", 1, "", ""},
		{"list learned --json", 1, "{\n  \"blocked\": [],\n  \"learned\": [],\n  \"buckets\": [],\n  \"at_once\": []\n}\n", ""},
		{"list 10.0.0.9", 0, "buckets\n  rule      of           tokens  burst  full in\n  everyone  connections     0.5      3       2s\n", ""},
		{"list nobody 10.0.0.1", 2, "", "narthex: \"nobody\" is nothing that is remembered: name blocked, learned, buckets, at_once\n"},
		{"list nobody", 2, "", "narthex: \"nobody\" is no address and no prefix: write it like 192.0.2.1, 192.0.2.0/24 or 2001:db8::/32\n"},
		{"clear", 2, "", "narthex: name what to clear: blocked, learned, buckets" + see + "clear --help`\n"},
		{"clear blocked", 2, "", "narthex: name addresses or prefixes, or say --all" + see + "clear --help`\n"},
		{"clear blocked 10.0.0.1 --all", 2, "", "narthex: --all goes with no address and no rule" + see + "clear --help`\n"},
		{"clear blocked 10.0.0.20", 1, "", "narthex: nothing was found to clear\n"},
		{"clear blocked 10.0.0.20/31", 0, "10.0.0.21: cleared\n", ""},
		{"clear blocked --all", 1, "", "narthex: nothing was found to clear\n"},
		{"clear buckets 10.0.0.9", 0, "everyone: cleared\n", ""},
		{"clear buckets 10.0.0.0/24", 2, "", "narthex: 10.0.0.0/24: buckets of sources are found by an address, not by a prefix\n"},
		{"clear buckets --rule all", 0, "all: cleared\n", ""},
		{"clear buckets --rule none", 2, "", "narthex: no rule with a rate is named \"none\"\n"},
		{"add blocked 10.0.0.1", 2, "", "narthex: say for how long, as --for 10m" + see + "add --help`\n"},
		{"add learned 10.0.0.1 --for 1h", 2, "", "narthex: say in which class, as --class gold" + see + "add --help`\n"},
		{"add learned 10.0.0.1 --for 1h --class silver", 2, "", "narthex: no class is named \"silver\"\n"},
		{"add blocked 10.0.0.1 --for 1ms", 2, "", "narthex: 1ms: say for how long, from 1s to 30 days\n"},
		{"add blocked 10.0.0.1:80 --for 1m", 2, "", "narthex: \"10.0.0.1:80\" has a port: a client is an address\n"},
		{"add blocked 10.0.0.1 2001:db8::1 --for 1m", 0, "10.0.0.1 is blocked for 1m0s\n2001:db8::/64 is blocked for 1m0s\n", ""},
		{"list blocked 2001:db8::/32", 0, "blocked\n  client         left\n  2001:db8::/64  1m0s\n", ""},
		{"add learned 10.0.0.1 --for 1h --class gold --json", 0, "{\n  \"added\": [\n    \"10.0.0.1\"\n  ]\n}\n", ""},
	} {
		got := w.do(append([]string{"table"}, strings.Fields(tt.args)...)...)
		if diff := cmp.Diff(result{tt.code, tt.out, tt.errs}, got); diff != "" {
			t.Errorf("table %s (-want +got):\n%s", tt.args, diff)
		}
	}
	end()
}
