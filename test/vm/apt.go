// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// suites are those of Debian whose kernels people run, and those with newer ones.
var suites = []string{"bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid"}

const (
	defaultMirror = "http://deb.debian.org/debian"
	keyring       = "/usr/share/keyrings/debian-archive-keyring.gpg"
	listsAge      = 24 * time.Hour // after which they are read anew
)

// apt reads package lists of its own, so that the suites do not become part of this machine's.
type apt struct {
	dir     string
	arch    string
	options []string
}

func newApt(cache, arch string) (apt, error) {
	dir := filepath.Join(cache, "apt-"+arch)
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return apt{}, err
		}
	}
	return apt{dir, arch, []string{
		"-o", "APT::Architecture=" + arch,
		"-o", "APT::Architectures=" + arch,
		"-o", "Dir::Etc::sourcelist=" + filepath.Join(dir, "sources.list"),
		"-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::State::lists=" + filepath.Join(dir, "lists"),
		"-o", "Dir::Cache=" + filepath.Join(dir, "cache"),
		"-o", "APT::Sandbox::User=root",
		"-o", "Acquire::Retries=3",
		"-o", "Acquire::Languages=none",
	}}, nil
}

// output runs a command of apt with these lists.
func (a apt) output(command string, args ...string) ([]byte, error) {
	return output(command, slices.Concat(a.options, args)...)
}

// imageName matches names of packages with a stock kernel and its architecture: not the variants
// for clouds, for real time and with other pages, nor those without a signature.
var imageName = regexp.MustCompile(`^linux-image-([0-9][0-9.]*(?:\+deb[0-9.]+)?(?:-[0-9.]+)?-([a-z0-9]+))$`)

// kernels returns the versions of all stock kernels for the architecture that are there whole.
// Where modules are a package of their own, it leaves the archive before that with the image.
func (a apt) kernels() ([]string, error) {
	if err := a.update(); err != nil {
		return nil, err
	}
	out, err := a.output("apt-cache", "pkgnames", "linux-")
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for name := range strings.FieldsSeq(string(out)) {
		names[name] = true
	}
	var versions []string
	for name := range names {
		m := imageName.FindStringSubmatch(name)
		if m == nil || m[2] != a.arch || names["linux-binary-"+m[1]] && !names["linux-modules-"+m[1]] {
			continue
		}
		versions = append(versions, m[1])
	}
	if len(versions) == 0 {
		return nil, fmt.Errorf("%q lists no kernel; remove the folder and try again", a.dir)
	}
	return versions, nil
}

// update reads the package lists if they are old.
func (a apt) update() error {
	stamp := filepath.Join(a.dir, "updated")
	if info, err := os.Stat(stamp); err == nil && time.Since(info.ModTime()) < listsAge {
		return nil
	}
	mirror, err := Mirror()
	if err != nil {
		return err
	}
	var sources strings.Builder
	for _, s := range suites {
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s %s main\n", keyring, mirror, s)
	}
	if err := os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(sources.String()), 0o644); err != nil {
		return err
	}
	if _, err := a.output("apt-get", "update"); err != nil {
		return err
	}
	return os.WriteFile(stamp, nil, 0o644)
}

var debianURI = regexp.MustCompile(`(?m)^(?:URIs:|deb )[^#\n]*?\b([a-z]+://[^ \n]*/debian)/?(?: |$)`)

// Mirror is this machine's mirror of Debian, or everybody's.
func Mirror() (string, error) {
	if _, err := os.Stat(keyring); err != nil {
		return "", errors.New("the keys of Debian are missing: install debian-archive-keyring")
	}
	files, _ := filepath.Glob("/etc/apt/sources.list.d/*")
	for _, f := range append(files, "/etc/apt/sources.list") {
		text, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if m := debianURI.FindSubmatch(text); m != nil {
			return string(m[1]), nil
		}
	}
	return defaultMirror, nil
}

// parts are the packages of a kernel. Older ones have all in the image.
var parts = []string{"image", "binary", "modules"}

// download unpacks a kernel's packages below a folder.
func (a apt) download(version, dir string) error {
	for _, part := range parts {
		name := "linux-" + part + "-" + version
		known, err := a.output("apt-cache", "pkgnames", name)
		if err != nil {
			return err
		}
		if len(known) == 0 {
			continue
		}
		if err := a.unpackDeb(name, dir); err != nil {
			return err
		}
	}
	return nil
}

// unpackDeb downloads a package and unpacks it below a folder.
func (a apt) unpackDeb(name, dir string) error {
	debs, err := os.MkdirTemp(a.dir, "debs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(debs)
	get := exec.Command("apt-get", slices.Concat(a.options, []string{"download", name})...)
	get.Dir = debs // where apt-get leaves what it downloads
	if out, err := get.CombinedOutput(); err != nil {
		return fmt.Errorf("download %q: %w: %s", name, err, out)
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) != 1 {
		return fmt.Errorf("download %q: apt-get left %d packages, not one", name, len(files))
	}
	_, err = output("dpkg-deb", "-x", files[0], dir)
	return err
}
