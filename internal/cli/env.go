// SPDX-License-Identifier: Apache-2.0

// Package cli holds the commands of narthex. Their surroundings come in an Env, so that
// tests run them in-process.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"narthex/internal/api"
	"narthex/internal/daemon"
	"narthex/internal/policy"
	"narthex/internal/starter"
)

// The exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // it could not be done, or nothing is enforced
	exitUsage   = 2 // the command line or a policy is wrong; of diff: it cannot be told
	exitGone    = 3 // the network namespace that was policed is gone
	exitTaken   = 4 // somebody has taken the instance out of force while the daemon hung

	exitInterrupted = 130 // by SIGINT, as shells say it
)

// Env is what a command sees of the world.
type Env struct {
	Args           []string // without the program's name
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       bool // Stderr is one: logs are for reading
	Colours        bool // Stdout is one that shows them
	Screen         Screen
	ASCII          bool // what shows Stdout does not understand UTF-8
	Version        string

	RunDir          string // sockets and locks of all instances
	Kernel          daemon.Kernel
	PinnedInstances func() []string // for completion
	OpenNetwork     func(name string, log *slog.Logger) (daemon.Network, error)
	Notifier        daemon.Notifier
	Confine         func() ([]string, error) // gives up capabilities; nil: none
	Listeners       func(netns string) ([]starter.Listener, error)
	SchemaFile      string // JSON Schema of policies; empty: it is not installed
	Demo            func(ctx context.Context, out io.Writer, asJSON bool) error
}

// Screen says what can be drawn on Stdout.
type Screen int

// The kinds of screens.
const (
	NoScreen   Screen = iota // it is no terminal, or nobody has keys
	DumbScreen               // a terminal that prints one line after the other
	FullScreen               // a terminal whose cursor can be moved
)

// Main runs one command and returns the exit code.
func Main(ctx context.Context, env Env) int {
	root := Commands(env)
	root.SetArgs(env.Args)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	err := root.ExecuteContext(ctx)
	var done exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &done):
		return done.code
	}
	fmt.Fprintf(env.Stderr, "narthex: %s\n", sentence(err))
	return exitCode(err)
}

// failure marks what went wrong in a command. An error without it is about the command
// line.
type failure struct{ err error }

func (f failure) Error() string { return f.err.Error() }
func (f failure) Unwrap() error { return f.err }

// exitError ends a command that has said all there is to say.
type exitError struct{ code int }

func (e exitError) Error() string { return fmt.Sprintf("exit %d", e.code) }

// usage is an error of the command line that only the command itself can find.
func usage(message string) error { return &api.Error{Message: message, Usage: true} }

func exitCode(err error) int {
	var told *api.Error
	switch {
	case errors.As(err, new(policy.Errors)):
		return exitUsage
	case errors.As(err, &told) && told.Usage:
		return exitUsage
	case errors.As(err, new(*daemon.GoneError)):
		return exitGone
	case errors.As(err, new(*daemon.TakenError)):
		return exitTaken
	case errors.As(err, new(failure)):
		return exitFailure
	}
	return exitUsage
}

// sentence makes one line of an error. Of a policy with several errors it tells the first.
func sentence(err error) string {
	lines := strings.Split(err.Error(), "\n")
	if exitCode(err) == exitUsage && len(lines) > 1 {
		return fmt.Sprintf("%s (and %d more: `narthex check` lists them)", lines[0], len(lines)-1)
	}
	return strings.Join(lines, "; ")
}
