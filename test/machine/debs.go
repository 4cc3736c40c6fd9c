// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// debs are the two versions of ours that the machine gets, by the names of their files.
type debs struct {
	current, previous string
	currentVersion    string // of Debian's kind
	previousCommit    string
}

// makeDebs makes the package of this tree in a folder, and if it is upgraded from, that of an earlier commit.
func makeDebs(ctx context.Context, dir, previous string, upgraded bool) (d debs, err error) {
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return d, err
	}
	if d.previousCommit, err = previousCommit(previous); err != nil {
		return d, err
	}
	if d.current, err = makeDeb(ctx, ".", dir, ""); err != nil {
		return d, err
	}
	version, err := exec.Command("dpkg-deb", "--field", filepath.Join(dir, d.current), "Version").Output()
	if err != nil {
		return d, fmt.Errorf("ask for the version of %q: %w", d.current, err)
	}
	d.currentVersion = strings.TrimSpace(string(version))
	if !upgraded {
		return d, nil
	}
	tree, err := filepath.Abs(filepath.Join(dir, "..", "previous"))
	if err != nil {
		return d, err
	}
	_ = exec.Command("git", "worktree", "remove", "--force", tree).Run() // of a run that was interrupted
	if err := run(ctx, "git", "worktree", "add", "--quiet", "--detach", tree, d.previousCommit); err != nil {
		return d, err
	}
	defer func() {
		err = errors.Join(err, run(context.Background(), "git", "worktree", "remove", "--force", tree))
	}()
	// "~" sorts before everything, the end included.
	d.previous, err = makeDeb(ctx, tree, dir, d.currentVersion+"~previous")
	return d, err
}

// previousCommit is what is upgraded from: what was asked for, or the last tag that is not this
// commit, or the commit before this one.
func previousCommit(asked string) (string, error) {
	if asked == "" {
		asked = "HEAD~1"
		if out, err := exec.Command("git", "describe", "--tags", "--abbrev=0", "HEAD~1").Output(); err == nil {
			asked = strings.TrimSpace(string(out))
		}
	}
	out, err := exec.Command("git", "rev-parse", "--short", asked+"^{commit}").Output()
	if err != nil {
		return "", fmt.Errorf("find the commit %q to upgrade from: %w; name another by PREVIOUS", asked, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// makeDeb makes the package of a tree and moves it to a folder. It returns the name of its file.
func makeDeb(ctx context.Context, tree, dir, version string) (name string, err error) {
	old, _ := filepath.Glob(filepath.Join(tree, "build", "narthex_*.deb"))
	for _, f := range old {
		if err := os.Remove(f); err != nil {
			return "", err
		}
	}
	args := []string{"--no-print-directory", "-C", tree, "deb"}
	if version != "" {
		args = append(args, "DEBVERSION="+version)
	}
	if err := run(ctx, "make", args...); err != nil {
		return "", err
	}
	made, err := filepath.Glob(filepath.Join(tree, "build", "narthex_*.deb"))
	if err != nil || len(made) != 1 {
		return "", fmt.Errorf("make deb in %q left %d packages, not one", tree, len(made))
	}
	name = filepath.Base(made[0])
	return name, os.Rename(made[0], filepath.Join(dir, name))
}

// run executes a command, which prints where this one does.
func run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}
