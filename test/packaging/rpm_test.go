// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"narthex/test/nettest"
)

// The package for Fedora and its kin has what that for Debian has, and scripts that a shell reads.
// rpm itself is not on the machines of the tests: what is asked for is in the header, which is not compressed.
func TestRPM(t *testing.T) {
	output(t, "make", "--no-print-directory", "rpm", "DEBVERSION=1.2.3")
	found, err := filepath.Glob(filepath.Join(repository, "build", "narthex-1.2.3-*.rpm"))
	nettest.Check(t, err)
	if len(found) != 1 {
		t.Fatalf("packages %q, want one", found)
	}
	t.Cleanup(func() { os.Remove(found[0]) })
	text, err := os.ReadFile(found[0])
	nettest.Check(t, err)
	if !bytes.HasPrefix(text, []byte{0xed, 0xab, 0xee, 0xdb}) {
		t.Error("it does not begin as an rpm does")
	}
	for _, want := range []string{"narthex.service", "narthex@.service", "narthex-policy.5.gz", "narthex.8.gz", "policy.schema.json", "systemctl daemon-reload", "narthex detach --instance"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("it lacks %q", want)
		}
	}
	for _, script := range []string{"postinstall", "preremove"} {
		if out, err := exec.Command("sh", "-n", filepath.Join(repository, "packaging", "rpm", script)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, strings.TrimSpace(string(out)))
		}
	}
}
