// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// What `narthex init` writes about a web server, one that ends TLS and the application behind
// that is a policy to run as it is: requests are seen where they can be read.
func TestInitWritesWhatRuns(t *testing.T) {
	t.Parallel()
	rig := nettest.Lab(t, 1)
	at := netip.MustParseAddrPort
	nettest.Nginx(t, rig.Server, at("0.0.0.0:80"))
	_, err := rig.Server.StartPython(lab.PythonConfig{Listen: []netip.AddrPort{at("127.0.0.1:8000")}})
	nettest.Check(t, err)
	_, err = rig.Server.StartNginx(lab.NginxConfig{Listen: []netip.AddrPort{at("0.0.0.0:443")}, TLS: true, Backend: "127.0.0.1:8000"})
	nettest.Check(t, err)

	file := filepath.Join(t.TempDir(), "policy.yaml")
	must(t, "init", "--netns", rig.Server.Name(), file)
	if r := narthex(t, "check", file); r.code != 0 || r.stderr != "" {
		t.Fatalf("check: exit code %d: %s", r.code, r.stderr)
	}
	text, err := os.ReadFile(file)
	nettest.Check(t, err)
	in := start(t, rig.Server, string(text))

	for _, url := range []string{"http://10.77.0.1/", "https://10.77.0.1/wait"} {
		if out, err := rig.Client.Command("curl", "-sSk", "-o", "/dev/null", url).CombinedOutput(); err != nil {
			t.Fatalf("curl %s: %v: %s", url, err, out)
		}
	}
	arrived := func() map[string]uint64 {
		all := map[string]uint64{}
		for _, s := range in.status().Services {
			if s.Mode != "shadow" || !s.Listening {
				t.Errorf("service %s: mode %s, listening %v", s.Name, s.Mode, s.Listening)
			}
			if s.RoomStatus == nil {
				continue // of nginx-443: its SYNs alone are looked at
			}
			for _, c := range s.Classes {
				all[s.Name] += c.Arrived
			}
		}
		return all
	}
	eventually(t, "a request is counted at nginx, and one at what is behind its TLS", func() bool {
		got := arrived()
		return got["nginx-80"] == 1 && got["python3"] == 1
	})
}
