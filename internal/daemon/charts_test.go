// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/api"
	"narthex/internal/live"
)

var night = time.Date(2026, 11, 22, 3, 0, 0, 0, time.UTC)

// keeping opens what is kept of charts below a folder, and returns what it says.
func keeping(dir string) (*chartLog, *strings.Builder) {
	said := &strings.Builder{}
	return openCharts(&Config{History: dir, Instance: "a"}, slog.New(slog.NewTextHandler(said, nil))), said
}

// minutes has a log see so many minutes of a service, with one request more rejected in each.
func minutes(c *chartLog, from time.Time, n int) {
	for i := range n {
		c.see(from.Add(time.Duration(i)*time.Minute), api.Status{Services: []api.ServiceStatus{{
			Name: "web", Limit: "8", RoomStatus: &api.RoomStatus{InService: 3, Classes: []api.RoomClassStatus{{Name: "gold", Served: uint64(60 * i)}}},
		}}})
	}
}

// Charts survive a restart, a line that a crash has cut, and bytes that are none of ours.
func TestChartsAreKept(t *testing.T) {
	dir := t.TempDir()
	c, _ := keeping(dir)
	minutes(c, night, 4)
	c.close()
	file := filepath.Join(dir, "a.history")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	broken := string(text) + "\x00\xff\n{}\n[]\n" + strings.SplitN(string(text), "\n", 3)[1][:40]
	if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ = keeping(dir)
	defer c.close()
	minutes(c, night.Add(time.Hour), 3)
	views := c.read(night, night.Add(2*time.Hour))
	if len(views) != 3+2 || !views[3].Time.Equal(night.Add(time.Hour+time.Minute)) || views[0].Services[0].Served != 1 || views[0].Status.Services[0].Limit != "8" {
		t.Errorf("%d views: %+v", len(views), views)
	}
	if late := c.read(night.Add(time.Hour), night.Add(2*time.Hour)); len(late) != 2 {
		t.Errorf("%d views of the last hour", len(late))
	}
}

// Whose file it is stays whole, and nothing waits for what is no file.
func TestForeignFilesAreLeftAlone(t *testing.T) {
	for _, name := range []string{"a.history", "a.history.1"} {
		for what, lay := range map[string]func(path string) error{
			"a file":   func(path string) error { return os.WriteFile(path, []byte("dear diary\n"), 0o600) },
			"a link":   func(path string) error { return os.Symlink("/etc/passwd", path) },
			"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
			"a pipe":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		} {
			dir := t.TempDir()
			if err := lay(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			c, said := keeping(dir)
			if c != nil || !strings.Contains(said.String(), "level=WARN") {
				t.Errorf("%s at %s: it is used, and it says %q", what, name, said)
			}
			if what != "a file" {
				continue
			}
			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "dear diary\n" {
				t.Errorf("%s: %q, %v", name, text, err)
			}
		}
	}
}

// The files are bounded, and what is read is the end.
func TestChartFiles(t *testing.T) {
	c, _ := keeping(t.TempDir())
	defer c.close()
	c.files.most = 4000
	minutes(c, night, 200)
	for _, path := range []string{c.files.path, c.files.path + ".1"} {
		if info, err := os.Stat(path); err != nil || info.Size() > 4000 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	views := c.read(night, night.Add(24*time.Hour))
	if n := len(views); n < 4 || n > 40 || !views[n-1].Time.Equal(night.Add(199*time.Minute)) {
		t.Errorf("%d views", n)
	}
}

// A full disk costs views and one line of the log. When there is room again, views are kept as before.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=16k"); err != nil {
		t.Fatalf("mounting a small disk: %v", err)
	}
	defer unix.Unmount(dir, 0)
	c, said := keeping(dir)
	defer c.close()
	minutes(c, night, 400)
	full := len(c.read(night, night.Add(24*time.Hour)))
	if n := strings.Count(said.String(), "cannot keep"); full == 0 || full > 100 || n != 1 {
		t.Fatalf("%d views, %d lines: %s", full, n, said)
	}
	c.files.most = 1 // the next view replaces the file by another
	minutes(c, night.Add(24*time.Hour), 3)
	if err := os.Remove(c.files.path + ".1"); err != nil {
		t.Fatal(err)
	}
	minutes(c, night.Add(25*time.Hour), 3)
	if got := c.read(night.Add(25*time.Hour), night.Add(48*time.Hour)); len(got) == 0 {
		t.Errorf("nothing is kept when there is room again: %s", said)
	}
}

// The dashboard has the last hour from before a restart, and longer times if it asks.
func TestDashboardRemembersAcrossRestarts(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	cfg.Metrics, cfg.History = "127.0.0.1:0", filepath.Join(m.dir, "kept")
	feeds := make(chan live.Feed, 1)
	cfg.Dashboard = func(feed live.Feed, _ string, _ []string, metrics http.Handler) http.Handler {
		feeds <- feed
		return metrics
	}
	now := time.Now()
	c, _ := keeping(cfg.History)
	c.files.path = filepath.Join(cfg.History, cfg.Instance+".history")
	if err := c.files.open(); err != nil {
		t.Fatal(err)
	}
	minutes(c, now.Add(-5*time.Hour), 299)
	c.close()
	r := m.start(cfg)
	defer r.end()
	feed := <-feeds
	eventually(t, "the last hour is remembered", func() bool { n := len(feed.Past(time.Hour)); return n > 55 && n < 65 })
	if n := len(feed.Past(24 * time.Hour)); n < 290 || n > 310 {
		t.Errorf("%d views of a day", n)
	}
}

// A long time is told in few views, the worst of each stretch.
func TestThin(t *testing.T) {
	var views []live.PastView
	for i := range 10_080 {
		views = append(views, live.PastView{Time: night.Add(time.Duration(i) * time.Minute), Services: []live.Service{{Rejected: float64(i % 977)}}})
	}
	thin := live.Thin(views, 700)
	worst := 0
	for i, v := range thin {
		if i > 0 && !v.Time.After(thin[i-1].Time) {
			t.Fatalf("view %d is of %s, after one of %s", i, v.Time, thin[i-1].Time)
		}
		if v.Services[0].Rejected == 976 {
			worst++
		}
	}
	if len(thin) > 700 || len(thin) < 600 || worst != 10 {
		t.Errorf("%d views, %d of the ten worst", len(thin), worst)
	}
	if text, err := json.Marshal(thin[0]); err != nil || !strings.Contains(string(text), "interval_seconds") {
		t.Error(fmt.Errorf("%s, %w", text, err))
	}
}
