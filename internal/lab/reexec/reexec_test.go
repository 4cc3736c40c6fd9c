// SPDX-License-Identifier: Apache-2.0

package reexec_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"narthex/internal/lab/reexec"
)

func TestMain(m *testing.M) {
	reexec.Register("echo", func(config []byte) error {
		fmt.Printf("got %s\n", config)
		return nil
	})
	reexec.Register("fail", func([]byte) error { return errors.New("no luck") })
	reexec.Main()
	os.Exit(m.Run())
}

func run(t *testing.T, name string, config any) (out string, code int) {
	t.Helper()
	program, env, err := reexec.Command(name, config)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = env
	b, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b)), cmd.ProcessState.ExitCode()
}

func TestRunsWhatWasRegistered(t *testing.T) {
	for _, c := range []struct {
		name string
		out  string
		code int
	}{
		{"echo", `got {"n":1}`, 0},
		{"fail", "fail: no luck", 1},
		{"other", `helper "other" is not part of this program; unset NARTHEX_HELPER`, 2},
	} {
		if out, code := run(t, c.name, map[string]int{"n": 1}); out != c.out || code != c.code {
			t.Errorf("%s: %q, exit %d; want %q, exit %d", c.name, out, code, c.out, c.code)
		}
	}
}
