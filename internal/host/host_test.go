// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// write makes files below a folder.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	stat = `cpu  100 0 50 1000 7 0 3 2 0 0
cpu0 60 0 20 500 5 0 2 1 0 0
cpu2 40 0 30 500 2 0 1 1 0 0
intr 1234 0 0
ctxt 99
`
	vmstat = "nr_free_pages 12\npgfault 1000\npgmajfault 42\npgrefill 3\n"
	stalls = "some avg10=0.00 avg60=1.23 avg300=0.50 total=1500000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
)

func TestMachineReads(t *testing.T) {
	proc := t.TempDir()
	write(t, proc, map[string]string{"stat": stat, "vmstat": vmstat, "pressure/cpu": stalls, "pressure/memory": stalls})
	m := Open(proc)
	defer m.Close()
	want := &Reading{
		Idle:   []time.Duration{5050 * time.Millisecond, Unknown, 5020 * time.Millisecond},
		Stalls: Stalls{CPU: 1500 * time.Millisecond, Memory: 1500 * time.Millisecond, IO: Unknown},
		Faults: 42,
	}
	for range 2 { // from the beginning each time
		if diff := cmp.Diff(want, m.Read()); diff != "" {
			t.Errorf("reading (-want +got):\n%s", diff)
		}
	}
}

// TestMachineKnowsNothing takes what there is not for unknown.
func TestMachineKnowsNothing(t *testing.T) {
	m := Open(t.TempDir())
	defer m.Close()
	want := &Reading{Stalls: Stalls{Unknown, Unknown, Unknown}, Faults: Unknown}
	if got := m.Read(); len(got.Idle) > 0 || got.Stalls != want.Stalls || got.Faults != Unknown {
		t.Errorf("reading %+v, want %+v", got, want)
	}
}

func TestMachineOfThisKernel(t *testing.T) {
	m := Open("/proc")
	defer m.Close()
	before := m.Read()
	if len(before.Idle) == 0 || before.Idle[0] == Unknown || before.Faults == Unknown {
		t.Fatalf("reading %+v", before)
	}
	if n := testing.AllocsPerRun(100, func() { m.Read() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestParseOdd reads what no kernel writes without believing it.
func TestParseOdd(t *testing.T) {
	for _, text := range []string{"", "cpu", "cpu0", "cpu0 1 2 3", "cpu0 1 2 3 4\n", "cpux 1 2 3 4 5\n", "cpu99999 1 2 3 4 5\n", "cpu0 a b c d e\n", "intr\n"} {
		if idle := parseIdle([]byte(text), nil); len(idle) > 0 {
			t.Errorf("%q: idle %v", text, idle)
		}
	}
	for _, text := range []string{"", "some", "some total=", "some total=x\n", "full total=5\n", "some avg10=0.00\n"} {
		if got := parseStall([]byte(text)); got != Unknown {
			t.Errorf("%q: %v", text, got)
		}
	}
	for text, want := range map[string]int64{"": Unknown, "k": Unknown, "k ": Unknown, "k 5": 5, "k 5\nk 6": 5, "k -1": Unknown} {
		if got := number([]byte(text), "k "); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(stat))
	f.Add([]byte(stalls))
	f.Fuzz(func(t *testing.T, b []byte) {
		for cpu, idle := range parseIdle(b, nil) {
			if idle < Unknown || cpu >= maxCPUs {
				t.Errorf("CPU %d is idle for %v", cpu, idle)
			}
		}
		if stall := parseStall(b); stall < Unknown {
			t.Errorf("stalled for %v", stall)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	m := Open("/proc")
	defer m.Close()
	for b.Loop() {
		m.Read()
	}
}
