// SPDX-License-Identifier: Apache-2.0

package privilege_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"narthex/internal/lab/reexec"
	"narthex/internal/privilege"
)

func TestMain(m *testing.M) {
	reexec.Register("confine", confine)
	reexec.Main()
	os.Exit(m.Run())
}

// confine gives up capabilities while there are threads that do something else, and says what
// each thread has then.
func confine([]byte) error {
	ready, end := make(chan bool), make(chan bool)
	defer close(end)
	for range 4 {
		go func() {
			runtime.LockOSThread()
			ready <- true
			<-end
		}()
	}
	for range 4 {
		<-ready
	}
	held, err := privilege.Confine()
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(held, " "))
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil || len(threads) < 4 {
		return errors.Join(err, fmt.Errorf("%d threads", len(threads)))
	}
	for _, thread := range threads {
		text, err := os.ReadFile(thread)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "Cap") || strings.HasPrefix(line, "NoNewPrivs") {
				fmt.Print(line)
			}
		}
	}
	return nil
}

// What root gives up is gone on every thread, and does not come back.
func TestConfine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("only root has what this test gives up: run it with sudo")
	}
	program, env, err := reexec.Command("confine", nil)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	held, threads, _ := strings.Cut(string(out), "\n")
	if want := "CAP_DAC_READ_SEARCH CAP_NET_ADMIN CAP_SYS_PTRACE CAP_PERFMON CAP_BPF"; held != want {
		t.Errorf("held: %s, want %s", held, want)
	}
	const kept, none = "000000c000081004", "0000000000000000"
	want := map[string]string{"CapInh": none, "CapPrm": kept, "CapEff": kept, "CapBnd": kept, "CapAmb": none, "NoNewPrivs": "1"}
	for line := range strings.Lines(threads) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if strings.TrimSpace(value) != want[name] {
			t.Errorf("%s is %s, want %s", name, strings.TrimSpace(value), want[name])
		}
	}
}
