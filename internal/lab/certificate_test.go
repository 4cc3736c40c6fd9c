// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"net/netip"
	"testing"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

func TestNginxSpeaksTLS(t *testing.T) {
	n := nettest.Namespace(t, "server")
	addr := netip.MustParseAddrPort("127.0.0.1:443")
	_, err := n.StartNginx(lab.NginxConfig{Listen: []netip.AddrPort{addr}, TLS: true})
	nettest.Check(t, err)
	for _, version := range []string{"1.1", "2"} {
		out, err := n.Command("curl", "-sSk", "--http"+version, "-o", "/dev/null", "-w", "%{http_code} %{http_version} %{size_download}",
			"https://"+addr.String()+lab.File).CombinedOutput()
		if want := "200 " + version + " 8192"; err != nil || string(out) != want {
			t.Errorf("curl: %q, %v; want %q", out, err, want)
		}
	}
}
