// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Machine is where, when and with what a report was made. It names no host, user or folder.
type Machine struct {
	CPU          string    `json:"cpu"`
	Cores        int       `json:"cores"`
	Memory       string    `json:"memory"`
	Kernel       string    `json:"kernel"`
	Distribution string    `json:"distribution"`
	Narthex      string    `json:"narthex"`  // commit
	Programs     []Program `json:"programs"` // of others

	Date    time.Time     `json:"date"`
	Command string        `json:"command"`
	Took    time.Duration `json:"took_ns"`
}

// Program is one that takes part, with its version.
type Program struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// programs are asked for their versions: the first match of the pattern in what they print is it.
var programs = []struct {
	name, command, version string
}{
	{"nginx", "nginx -v", `nginx/(\S+)`},
	{"Apache httpd", "apache2 -v", `Apache/(\S+)`},
	{"mod_qos", "dpkg-query -W -f ${Version} libapache2-mod-qos", `(\S+)`},
	{"HAProxy", "haproxy -v", `version (\S+)`},
	{"nftables", "nft --version", `v(\S+)`},
	{"iptables", "iptables --version", `v(.+)`},
	{"wrk", "wrk -v", `wrk (?:debian/)?(\S+)`},
	{"clang", "clang-19 --version", `version (\S+)`},
}

// Here describes this machine.
func Here(ctx context.Context) (*Machine, error) {
	m := &Machine{Cores: runtime.NumCPU(), Narthex: commit(ctx), Date: time.Now().UTC().Truncate(time.Second)}
	for _, f := range []struct {
		to            *string
		file, pattern string
	}{
		{&m.CPU, "/proc/cpuinfo", `(?m)^(?:model name|Model|CPU part)\s*: (.+)$`},
		{&m.Memory, "/proc/meminfo", `MemTotal:\s+(\d+) kB`},
		{&m.Kernel, "/proc/sys/kernel/osrelease", `(.+)`},
		{&m.Distribution, "/etc/os-release", `(?m)^PRETTY_NAME="?([^"\n]+)`},
	} {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return nil, fmt.Errorf("describe the machine: %w", err)
		}
		*f.to = first(f.pattern, text)
	}
	var kilobytes float64
	if _, err := fmt.Sscan(m.Memory, &kilobytes); err == nil {
		m.Memory = fmt.Sprintf("%.1f GiB", kilobytes/(1<<20))
	}
	for _, p := range programs {
		m.Programs = append(m.Programs, Program{p.name, first(p.version, output(ctx, strings.Fields(p.command)...))})
	}
	m.Programs = append(m.Programs, Program{"Go", strings.TrimPrefix(runtime.Version(), "go")})
	return m, nil
}

// first is what a pattern's first group matches.
func first(pattern string, text []byte) string {
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		return "unknown"
	}
	return strings.TrimSpace(string(m[1]))
}

// output is what a command prints, on either stream: some write their version to standard error.
// A program that is not there prints nothing.
func output(ctx context.Context, command ...string) []byte {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, _ := cmd.CombinedOutput()
	return out
}

// sources are what Narthex and what measures it are made of.
var sources = []string{":/bpf", ":/cmd", ":/internal", ":/experiments", ":/go.mod", ":(exclude,top)experiments/report"}

// commit describes the last commit that changed the sources, and says "-dirty" where they have
// changed since. A report that is committed in between does not count.
func commit(ctx context.Context) string {
	git := func(args ...string) string {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		if err != nil {
			return ""
		}
		return string(bytes.TrimSpace(out))
	}
	last := git(append([]string{"log", "-1", "--format=%H", "--"}, sources...)...)
	if last == "" {
		return "unknown"
	}
	text := git("describe", "--always", "--tags", last)
	if git(append([]string{"status", "--porcelain", "--"}, sources...)...) != "" {
		text += "-dirty"
	}
	return text
}

// Rows list the machine for a table.
func (m *Machine) Rows() [][2]string {
	rows := [][2]string{
		{"CPU", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores)},
		{"Memory", m.Memory},
		{"Kernel", m.Kernel},
		{"Distribution", m.Distribution},
		{"Narthex", "commit " + m.Narthex},
	}
	for _, p := range m.Programs {
		rows = append(rows, [2]string{p.Name, p.Version})
	}
	return append(rows,
		[2]string{"Date", m.Date.Format("2006-01-02 15:04 MST")},
		[2]string{"Command", m.Command},
		[2]string{"Took", Took(m.Took)})
}

// Took writes how long something took.
func Took(d time.Duration) string {
	if d >= 2*time.Minute {
		return fmt.Sprintf("%.0f minutes", d.Minutes())
	}
	return fmt.Sprintf("%.0f seconds", d.Seconds())
}
