// SPDX-License-Identifier: Apache-2.0

// Command machine does on a Debian 13 of its own, in a virtual machine, what a user does: installs the
// package, follows the tutorial, reboots, upgrades and purges. It writes a page of what it saw.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
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
	page := flag.String("page", "docs/machine.md", "`file` for what was seen")
	dir := flag.String("dir", "build/machine", "`folder` for the image, which stays, and all else")
	limit := flag.Duration("limit", 90*time.Minute, "how long it may take")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx, cancel = context.WithTimeoutCause(ctx, *limit, errors.New("the time limit has passed (-limit)"))
	defer cancel()
	if err := all(ctx, *dir, *previous, *page); err != nil {
		fmt.Fprintln(os.Stderr, "machine:", err)
		os.Exit(1)
	}
}

func all(ctx context.Context, dir, previous, page string) error {
	files := filepath.Join(dir, "files")
	d, err := makeDebs(ctx, files, previous)
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
	begin := time.Now()
	m, err := boot(ctx, dir, img, second)
	if err != nil {
		return err
	}
	defer m.kill()
	s := &story{m: m}
	if err := s.live(ctx, d); err != nil {
		return m.failed(err)
	}
	if len(s.faults) > 0 {
		return fmt.Errorf("%d faults:\n%s", len(s.faults), strings.Join(s.faults, "\n"))
	}
	return s.save(page, d, time.Since(begin))
}

// introduction is the page.
//
//go:embed page.md
var introduction string

// save writes the page, and beside this source the transcript.
func (s *story) save(page string, d debs, took time.Duration) error {
	text := strings.NewReplacer("{date}", time.Now().UTC().Format(time.DateOnly), "{version}", d.currentVersion,
		"{previous}", d.previousCommit, "{minutes}", fmt.Sprint(int(took.Minutes())+1),
		"{commands}", fmt.Sprint(s.commands), "{seconds}", fmt.Sprint(int(s.took.Seconds())+1)).Replace(introduction)
	if err := os.WriteFile("test/machine/transcript.txt", []byte(strings.TrimSpace(s.told.String())+"\n"), 0o644); err != nil {
		return err
	}
	return os.WriteFile(page, []byte(text), 0o644)
}
