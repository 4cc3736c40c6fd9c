// SPDX-License-Identifier: Apache-2.0

// Command machine does on a Debian 13 of its own, in a virtual machine, what a user does: installs the
// package, follows the tutorial, reboots, upgrades and purges; and on another, mends an incident. It
// writes transcripts of that.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// inventoryScript goes to the machine's second disk, beside the packages.
//
//go:embed inventory
var inventoryScript []byte

func main() {
	previous := flag.String("previous", "", "`commit` that is upgraded from; the last tag or the commit before by default")
	only := flag.String("only", "", "`part` that is played, life or incident; both by default")
	dir := flag.String("dir", "build/machine", "`folder` for the image, which stays, and all else")
	limit := flag.Duration("limit", 90*time.Minute, "how long it may take")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx, cancel = context.WithTimeoutCause(ctx, *limit, errors.New("the time limit has passed (-limit)"))
	defer cancel()
	if err := all(ctx, *dir, *previous, *only); err != nil {
		fmt.Fprintln(os.Stderr, "machine:", err)
		os.Exit(1)
	}
}

// parts are played each on a machine of its own.
var parts = map[string]func(*story, context.Context, debs) error{"life": (*story).live, "incident": (*story).night}

func all(ctx context.Context, dir, previous, only string) error {
	if only != "" && parts[only] == nil {
		return fmt.Errorf("there is no part %q: name life or incident", only)
	}
	files := filepath.Join(dir, "files")
	d, err := makeDebs(ctx, files, previous, only != "incident")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(files, "inventory"), inventoryScript, 0o644); err != nil {
		return err
	}
	img, err := makeImage(ctx, dir)
	if err != nil {
		return err
	}
	second := filepath.Join(dir, "files.disk")
	if err := makeDisk(ctx, files, second, "256M"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		if only == "" || only == name {
			if err := play(ctx, name, dir, img, second, d); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// play boots a machine for a part, and writes a transcript beside this source.
func play(ctx context.Context, name, dir string, img image, second string, d debs) error {
	begin := time.Now()
	m, err := boot(ctx, dir, img, second)
	if err != nil {
		return err
	}
	defer m.kill()
	s := &story{m: m}
	if err := parts[name](s, ctx, d); err != nil {
		return m.failed(err)
	}
	if len(s.faults) > 0 {
		return fmt.Errorf("%d faults:\n%s", len(s.faults), strings.Join(s.faults, "\n"))
	}
	version := d.currentVersion
	if name == "life" {
		version += ", upgraded from commit " + d.previousCommit + ","
	}
	text := fmt.Sprintf("On %s, with package %s in %d minutes.\n\n%s\n", time.Now().UTC().Format(time.DateOnly), version,
		int(time.Since(begin).Minutes())+1, strings.TrimSpace(s.told.String()))
	return os.WriteFile(filepath.Join("test/machine", name+".txt"), []byte(text), 0o644)
}
