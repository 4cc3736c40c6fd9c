// SPDX-License-Identifier: Apache-2.0

// Narthex keeps a web server useful when more work arrives than it can do.
package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"golang.org/x/term"

	"narthex/internal/cli"
	"narthex/internal/daemon"
	"narthex/internal/datapath"
	"narthex/internal/demo"
	"narthex/internal/lab/reexec"
	"narthex/internal/privilege"
	"narthex/internal/starter"
)

// version is set by the linker, by `make build`.
var version = ""

// release is the next one, as in CHANGELOG.md.
const release = "0.1.0"

func main() {
	reexec.Main() // in namespaces of the demo, this program is the server and the clients
	os.Exit(cli.Main(context.Background(), cli.Env{
		Args:            os.Args[1:],
		Stdin:           os.Stdin,
		Stdout:          os.Stdout,
		Stderr:          os.Stderr,
		Terminal:        term.IsTerminal(int(os.Stderr.Fd())),
		Colours:         term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "",
		Screen:          screen(),
		ASCII:           !utf8Locale(os.Getenv),
		Version:         versionText(),
		RunDir:          daemon.RunDir,
		Kernel:          daemon.BPF(),
		PinnedInstances: pinnedInstances,
		OpenNetwork:     daemon.OpenNamespace,
		Notifier:        daemon.Systemd{},
		Confine:         privilege.Confine,
		Listeners:       starter.Find,
		SchemaFile:      schemaFile(),
		Demo: func(ctx context.Context, out io.Writer, asJSON bool) error {
			return demo.Run(ctx, out, demo.Options{JSON: asJSON})
		},
	}))
}

// screen says what can be drawn on stdout.
func screen() cli.Screen {
	switch {
	case !term.IsTerminal(int(os.Stdout.Fd())):
		return cli.NoScreen
	case os.Getenv("TERM") == "" || os.Getenv("TERM") == "dumb":
		return cli.DumbScreen
	case !term.IsTerminal(int(os.Stdin.Fd())):
		return cli.NoScreen
	}
	return cli.FullScreen
}

// utf8Locale reports whether the locale of characters is one of UTF-8, as POSIX has it.
func utf8Locale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if value := strings.ToLower(getenv(name)); value != "" {
			return strings.Contains(value, "utf-8") || strings.Contains(value, "utf8")
		}
	}
	return false
}

// versionText is the linker's, the module's or that of the source tree.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return release + "-dev"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return release + "-dev+" + s.Value[:min(len(s.Value), 12)]
		}
	}
	if v := strings.TrimPrefix(info.Main.Version, "v"); v != "" && v != "(devel)" {
		return v
	}
	return release + "-dev"
}

// schemaFile is where `make install` puts the JSON Schema of policies beside this program.
func schemaFile() string {
	program, err := os.Executable()
	if err != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(program), "../share/narthex/policy.schema.json")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// pinnedInstances lists the instances that are in force.
func pinnedInstances() []string {
	entries, err := os.ReadDir(datapath.Root)
	if err != nil {
		return nil // none, or not ours to see
	}
	var names []string
	for _, e := range entries {
		if daemon.CheckInstance(e.Name()) == nil {
			names = append(names, e.Name())
		}
	}
	return names
}
