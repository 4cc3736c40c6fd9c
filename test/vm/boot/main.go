// SPDX-License-Identifier: Apache-2.0

// Command boot runs a command on a stock Debian kernel, in a virtual machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"narthex/test/vm"
	"narthex/test/vm/guest"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: boot [flags] SERIES COMMAND [ARGUMENT]...")
		flag.PrintDefaults()
	}
	dir := flag.String("dir", ".", "`folder` where the command starts")
	share := flag.String("share", "", "`folder` that the command can write, from there; nothing else that it writes stays")
	limit := flag.Duration("limit", time.Hour, "how long it may take")
	memory := flag.Int("memory", 0, "of the machine, in MiB; 0: as the matrix has it")
	flag.Parse()
	if flag.NArg() < 2 {
		flag.Usage()
		os.Exit(2)
	}
	code, err := run(*dir, *share, *limit, *memory, flag.Arg(0), flag.Args()[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "boot:", err)
		code = 125 // as env, nohup and others end when it is they that fail
	}
	os.Exit(code)
}

func run(dir, share string, limit time.Duration, memory int, series string, command []string) (code int, err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx, cancel = context.WithTimeoutCause(ctx, limit, errors.New("the time limit has passed (-limit)"))
	defer cancel()
	kernel, err := vm.Find(series)
	if err != nil {
		return 0, err
	}
	fmt.Fprintln(os.Stderr, "kernel", kernel.Version)
	task := guest.Task{Command: command}
	if task.Dir, err = filepath.Abs(dir); err != nil {
		return 0, err
	}
	if task.Share = share; share != "" && !filepath.IsAbs(share) {
		task.Share = filepath.Join(task.Dir, share)
	}
	return vm.Machine{Kernel: kernel, Memory: memory, Output: os.Stdout}.Run(ctx, task)
}
