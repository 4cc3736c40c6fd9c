// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"narthex/test/verifier/baseline"
	"narthex/test/vm"
	"narthex/test/vm/guest"
)

// compiled is a suite with the tests that are run of it.
type compiled struct {
	suite
	program string
	args    []string
	wanted  []string // tests
	names   []string // of theirs
}

// compile compiles the command and the suites, for each architecture of the series.
func (p *plan) compile(ctx context.Context) (err error) {
	if p.dir, err = filepath.Abs(p.dir); err != nil {
		return err
	}
	p.suites = map[string][]compiled{}
	for _, series := range p.series {
		arch := vm.Arch(series)
		if p.suites[arch] != nil {
			continue
		}
		if err := p.compileFor(ctx, arch); err != nil {
			return err
		}
		p.say("", "compiled for %s", arch)
	}
	return nil
}

// bin is the folder for what is compiled for an architecture.
func (p *plan) bin(arch string) string { return filepath.Join(p.dir, "bin-"+arch) }

// compileFor compiles for one architecture.
func (p *plan) compileFor(ctx context.Context, arch string) error {
	bin := p.bin(arch)
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for _, command := range []string{"cmd/narthex", "test/verifier"} {
		if err := build(ctx, arch, "build", filepath.Join(bin, filepath.Base(command)), "", command); err != nil {
			return err
		}
	}
	for _, s := range suites {
		wanted := p.wanted(s)
		if len(wanted) == 0 || s.cgo && arch != runtime.GOARCH {
			continue
		}
		c := compiled{suite: s, program: filepath.Join(bin, s.name()+".test"), wanted: wanted}
		if s.args != "" {
			c.args = strings.Fields(strings.ReplaceAll(s.args, "%s", bin))
		}
		if err := build(ctx, arch, "test", c.program, s.tags, s.pkg); err != nil {
			return err
		}
		names, err := p.list(ctx, c)
		if err != nil {
			return fmt.Errorf("list the tests of %q: %w", s.pkg, err)
		}
		c.names = taken(wanted, names)
		p.suites[arch] = append(p.suites[arch], c)
	}
	return nil
}

// list returns the names of a suite's tests. Those for another architecture are the same, but
// do not run here.
func (p *plan) list(ctx context.Context, c compiled) ([]string, error) {
	here := filepath.Join(p.bin(runtime.GOARCH), filepath.Base(c.program))
	if here != c.program {
		if err := build(ctx, runtime.GOARCH, "test", here, c.tags, c.pkg); err != nil {
			return nil, err
		}
	}
	list := exec.CommandContext(ctx, here, append(c.args, "-test.list", ".*")...)
	list.Dir = c.pkg
	out, err := list.Output()
	return strings.Fields(string(out)), err
}

// build compiles a command, or a package's tests.
func build(ctx context.Context, arch, what, to, tags, pkg string) error {
	args := []string{what, "-buildvcs=false", "-o", to, "-tags", tags}
	if what == "test" {
		args = append(args, "-c")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Env = append(os.Environ(), "GOARCH="+arch)
	if arch != runtime.GOARCH {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile %q: %w\n%s", pkg, err, out)
	}
	return nil
}

// wanted returns the tests that checks take of a suite.
func (p *plan) wanted(s suite) (tests []string) {
	if p.update != "" {
		return nil
	}
	for _, c := range checks {
		if c.pkg == s.pkg {
			tests = append(tests, c.wants(p.quick)...)
		}
	}
	return tests
}

// bootTime is more than a machine needs to boot.
const bootTime = 5 * time.Minute

// boot runs everything on a kernel.
func (p *plan) boot(ctx context.Context, kernel vm.Kernel) (*result, error) {
	share := filepath.Join(p.dir, kernel.Series)
	if err := errors.Join(os.RemoveAll(share), os.MkdirAll(share, 0o755)); err != nil {
		return nil, err
	}
	script, limit := p.script(kernel.Series, kernel.Arch, share)
	if err := os.WriteFile(filepath.Join(share, "run"), []byte(script), 0o755); err != nil {
		return nil, err
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	task := guest.Task{Command: []string{"/bin/sh", filepath.Join(share, "run")}, Dir: here, Share: share}
	ctx, cancel := context.WithTimeoutCause(ctx, limit+bootTime, fmt.Errorf("not done after %v", limit+bootTime))
	defer cancel()
	out := &lines{each: func(line string) { p.say(kernel.Series, "%s", line) }}
	code, err := vm.Machine{Kernel: kernel, Memory: p.memory, Output: out}.Run(ctx, task)
	if err == nil && code != 0 {
		err = fmt.Errorf("the script on kernel %s ended with exit code %d", kernel.Version, code)
	}
	if err != nil {
		return nil, err
	}
	return p.read(kernel, share)
}

// prologue is the beginning of what a machine runs: one command, and one suite. A few tests that
// fail are run once more, of tests with parts only the parts that fail: on a machine that others use,
// too, something may come late.
const prologue = `run() {
  name=$1
  shift
  began=$(date +%s) end=passed
  "$@" >"$share/$name.log" 2>&1 || end=failed
  echo "$name $end after $(($(date +%s) - began)) s"
  [ $end = passed ]
}
failed() {
  sed -n 's/^[^-]*--- FAIL: \([^ ]*\) .*/\1/p' "$1" | awk -F / '
    {whole[$1]}
    NF > 1 {parts[$1] = 1; part[$1 "/" $2]}
    END {for (t in whole) if (!(t in parts)) print t; for (p in part) print p}' |
    sort | sed 's/[][().*+?^$|{}\\]/\\&/g; s|/|$/^|; s/.*/^&$/'
}
suite() {
  name=$1 tests=$2
  shift 2
  run "$name" "$@" -test.run "$tests" && return
  again=$(failed "$share/$name.log")
  case $(echo "$again" | grep -c .) in
  [1-4]) run "$name.again" "$@" -test.run "$(echo "$again" | paste -sd '|')" ;;
  esac
}
`

// script is what a machine runs, and the longest that it can take. Each suite leaves a log; how
// it ended follows from that.
func (p *plan) script(series, arch, share string) (text string, limit time.Duration) {
	bin := p.bin(arch)
	var b strings.Builder
	fmt.Fprintf(&b, "share=%s here=$PWD\n%s", share, prologue)
	compare := "-kernel " + baseline.Debian(series)
	if p.update != "" {
		compare += " -growth 0" // what is written is what is allowed
	}
	fmt.Fprintf(&b, "run %s sh -c '%s/verifier -json %s >%s/programs.json'\n", loads, bin, compare, share)
	limit = 5 * time.Minute
	for _, s := range p.suites[arch] {
		limit += 2 * s.limit
		fmt.Fprintf(&b, "cd \"$here/%s\"\nsuite %s '%s' %s %s -test.v=test2json -test.timeout %v\n",
			s.pkg, s.name(), pattern(s.wanted), s.program, strings.Join(s.args, " "), s.limit)
	}
	return b.String() + "exit 0\n", limit
}

// lines hands what is written on by lines.
type lines struct {
	each func(line string)
	rest []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		l.each(string(line))
		l.rest = rest
	}
}
