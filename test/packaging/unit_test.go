// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"narthex/test/nettest"
)

// Units are right, as systemd reads them, and give away no more than they must.
func TestUnits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		capabilities []string
		exposure     string // ten times what systemd-analyze calls the exposure level, at most
	}{
		"narthex.service":  {append(slices.Clone(needed), "sys_ptrace", "dac_read_search"), "35"},
		"narthex@.service": {append(slices.Clone(needed), "sys_admin", "sys_ptrace", "dac_read_search"), "55"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(repository, "packaging", name))
			nettest.Check(t, err)
			_, line, _ := strings.Cut(string(text), "\nCapabilityBoundingSet=")
			line, _, _ = strings.Cut(line, "\n")
			if want := "CAP_" + strings.ToUpper(strings.Join(c.capabilities, " CAP_")); line != want {
				t.Errorf("capabilities %q, want %q", line, want)
			}
			if !strings.Contains(string(text), "\nCPUWeight=1000\n") {
				t.Error("an overloaded server keeps the daemon from the processor")
			}
			unit := write(t, filepath.Join(t.TempDir(), name), strings.ReplaceAll(string(text), "/usr/local/bin/narthex", binary))
			if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("verify: %v: %s", err, out)
			}
			out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+c.exposure, unit).CombinedOutput()
			if err != nil {
				t.Errorf("exposed too much: %v\n%s", err, out)
			}
		})
	}
}
