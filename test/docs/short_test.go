// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"narthex/internal/api"
	"narthex/test/docs/blocks"
)

// TestShortWay goes the short way of the tutorial on a machine that has nginx and nothing of
// Narthex: at most five commands, and a client's requests are enforced upon. How long it takes
// is said and not judged.
func TestShortWay(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repository, "docs/tutorial.md"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := blocks.Read(string(text))
	if err != nil {
		t.Fatal(err)
	}
	var way *blocks.Block
	for i := range list {
		if list[i].Words["path"] == "short" {
			way = &list[i]
		}
	}
	if way == nil {
		t.Fatal("no block with path=short in the tutorial")
	}
	steps, err := blocks.Commands(way)
	if err != nil || len(steps) == 0 || len(steps) > 5 {
		t.Fatalf("%d commands, %v; want one to five", len(steps), err)
	}

	p := &page{t: t, name: "docs/tutorial.md", scene: newScene(t)}
	p.scene.nginx()
	if _, code, err := p.scene.terminal("", "server").run("command -v narthex"); err != nil || code == 0 {
		t.Fatalf("narthex is there before it is installed: %v", err)
	}
	begin := time.Now()
	if err := p.run(way); err != nil {
		t.Fatal(err)
	}
	t.Logf("from make install to a protected nginx: %d commands, %v", len(steps), time.Since(begin).Round(10*time.Millisecond))

	out, code, err := p.scene.terminal("", "client").run("curl -s -o /dev/null -w '%{http_code}' http://shop.example/")
	if err != nil || code != 0 || out != "200" {
		t.Fatalf("a client gets %q, exit code %d, %v", out, code, err)
	}
	var s api.Status
	counted := within(patience, func() bool {
		s = api.Status{}
		text := p.scene.do("narthex status --json")
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		return served(s) == 1
	})
	if !counted || !s.Enforcing {
		t.Errorf("enforcing %v, %d requests served to the client; want true and 1", s.Enforcing, served(s))
	}
	for _, service := range s.Services {
		if service.Mode != "enforce" {
			t.Errorf("service %s is in mode %s", service.Name, service.Mode)
		}
	}
}

// served is how many requests of all services have been served.
func served(s api.Status) (n uint64) {
	for _, service := range s.Services {
		if service.RoomStatus == nil {
			continue
		}
		for _, c := range service.Classes {
			n += c.Served
		}
	}
	return n
}
