// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// packaged is where the files are that are tested.
const packaged = "../../packaging"

// server is a real Prometheus.
type server struct {
	t    *testing.T
	base string // of its URLs
}

// startServer runs Prometheus with the scrape configuration and the alert rules as they are
// packaged, but for the address that it scrapes and how often, until the test ends.
func startServer(t *testing.T, scraped string) *server {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"scrape.yml", "alerts.yml"} {
		text := read(t, filepath.Join(packaged, "prometheus", name))
		if name == "scrape.yml" {
			for old, replacement := range map[string]string{`"127.0.0.1:9464"`: `"` + scraped + `"`, "_interval: 15s": "_interval: 1s"} {
				if !strings.Contains(text, old) {
					t.Fatalf("%s has no %s to replace", name, old)
				}
				text = strings.ReplaceAll(text, old, replacement)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address := freeAddress(t)
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "scrape.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"),
		"--web.listen-address", address, "--log.level", "warn")
	var log bytes.Buffer
	cmd.Stderr = &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start Prometheus (scripts/setup test installs it): %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", &log)
		}
	})
	s := &server{t, "http://" + address}
	eventually(t, "Prometheus is ready", func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("Prometheus ended: %v", err)
		default:
		}
		resp, err := http.Get(s.base + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return s
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ask calls Prometheus's API. What it refuses is said in wrong.
func (s *server) ask(path string, query url.Values, into any) (wrong string) {
	s.t.Helper()
	resp, err := http.Get(s.base + "/api/v1/" + path + "?" + query.Encode())
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		s.t.Fatal(err)
	}
	if answer.Status != "success" {
		return answer.Error
	}
	if err := json.Unmarshal(answer.Data, into); err != nil {
		s.t.Fatalf("%s: %v", path, err)
	}
	return ""
}

// series are what an expression has now.
func (s *server) series(expression string) []map[string]string {
	s.t.Helper()
	var answer struct {
		Result []struct{ Metric map[string]string }
	}
	if wrong := s.ask("query", url.Values{"query": {expression}}, &answer); wrong != "" {
		s.t.Errorf("Prometheus refuses %s: %s", expression, wrong)
	}
	var list []map[string]string
	for _, r := range answer.Result {
		list = append(list, r.Metric)
	}
	return list
}
