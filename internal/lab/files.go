// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
	"time"
)

// File is the path of the file that the servers serve, FileBytes long; so is "/".
const File = "/8k.html"

// FileBytes is the length of the file that the servers serve.
const FileBytes = 8192

// LargeFile is the path of a file of LargeBytes, all zero, that they serve, too: more than a socket takes whose
// client does not read.
const LargeFile = "/large.bin"

// LargeBytes is the length of LargeFile.
const LargeBytes = 64 << 20

// FileContent is what is in the file.
func FileContent() []byte { return bytes.Repeat([]byte("narthex\n"), FileBytes/8) }

// foreign is a server of the distribution, about to be started.
type foreign struct {
	name    string // as errors have it
	program string // a path, or a name to look for
	pkg     string // Debian's name of what to install
	listen  []netip.AddrPort
	cpus    []int
	kill    bool // it with all its processes, instead of asking it to end
	workers int  // processes that it starts; it accepts connections before
	args    func(dir string) []string
	prepare func(dir string) error // fills the server's folder
}

// start starts the server in a namespace and waits until it accepts connections and has all its processes.
func (f foreign) start(n *Namespace) (*Server, error) {
	fail := func(what string, err error) (*Server, error) {
		return nil, fmt.Errorf("%s %s: %w", what, f.name, err)
	}
	if len(f.listen) == 0 {
		return fail("start", errors.New("no address to listen on"))
	}
	program, err := exec.LookPath(f.program)
	if err != nil {
		return fail("start", fmt.Errorf("%w; install it, with apt-get install %s on Debian and Ubuntu", err, f.pkg))
	}
	dir, err := n.TempDir(f.name)
	if err != nil {
		return fail("start", err)
	}
	if err := f.prepare(dir); err != nil {
		return fail("configure", err)
	}
	cmd := n.Command(program, f.args(dir)...)
	cmd.CPUs = f.cpus
	cmd.SysProcAttr.Setpgid = true // Apache ends by a signal to its whole process group
	cmd.kill = f.kill
	s, err := n.Serve(cmd, f.listen...)
	if err != nil {
		return fail("start", err)
	}
	if err := s.awaitWorkers(f.workers); err != nil {
		return fail("start", errors.Join(err, s.Close()))
	}
	return s, nil
}

// writeConf fills in a configuration's template and writes it to a file.
func writeConf(path string, text *template.Template, values any) error {
	var b bytes.Buffer
	if err := text.Execute(&b, values); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

// writeFile makes the folder html below dir, with the file that is served under the given
// names. Servers that do not run as root can read it.
func writeFile(dir string, names ...string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	html := filepath.Join(dir, "html")
	if err := os.Mkdir(html, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(html, name), FileContent(), 0o644); err != nil {
			return err
		}
	}
	large, err := os.OpenFile(filepath.Join(html, LargeFile), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(large.Truncate(LargeBytes), large.Close()) // sparse
}

// milliseconds returns a duration in whole milliseconds, of which there is at least one.
func milliseconds(d time.Duration) int64 { return max(1, d.Milliseconds()) }

func defaultTo[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}
