// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Newest is the series of the newest kernel that Debian packages.
const Newest = "newest"

// Kernel is a stock kernel of Debian, unpacked.
type Kernel struct {
	Series  string // as asked for: 6.12, newest, 6.12-arm64
	Arch    string // as Go calls it: amd64, arm64
	Version string // as uname -r says it: 6.12.117+deb13-amd64
	image   string // uncompressed, as QEMU boots it
	modules string // folder of its modules, with modules.dep
}

// NotPackagedError says that no kernel of a series is packaged (any more).
type NotPackagedError struct{ Series string }

func (e *NotPackagedError) Error() string {
	return fmt.Sprintf("Debian packages no kernel of series %q today", e.Series)
}

// cacheDir is where package lists and kernels stay between runs.
func cacheDir() string {
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "narthex", "kernels")
	}
	return "/var/tmp/narthex/kernels"
}

// Find returns the newest kernel of a series that Debian packages. The series may name another
// architecture than this machine's: 6.12-arm64. It downloads and unpacks the kernel unless an
// earlier run has.
func Find(series string) (Kernel, error) {
	fail := func(err error) (Kernel, error) {
		return Kernel{}, fmt.Errorf("find a kernel of series %q: %w", series, err)
	}
	arch, number := Arch(series), strings.TrimSuffix(series, "-"+Arch(series))
	cache := cacheDir()
	a, err := newApt(cache, arch)
	if err != nil {
		return fail(err)
	}
	unlock, err := lock(cache)
	if err != nil {
		return fail(err)
	}
	defer unlock()
	versions, err := a.kernels()
	if err != nil {
		return fail(err)
	}
	version := pick(versions, number)
	if version == "" {
		return Kernel{}, &NotPackagedError{series}
	}
	dir := filepath.Join(cache, version)
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		err = a.unpack(version, dir)
		if err != nil {
			return fail(err)
		}
	}
	return Kernel{
		Series: series, Arch: arch, Version: version, image: filepath.Join(dir, "vmlinux"), modules: filepath.Join(dir, "lib/modules", version),
	}, nil
}

// Arch is the architecture that a series names: this machine's if it names none.
func Arch(series string) string {
	if _, arch, named := strings.Cut(series, "-"); named {
		return arch
	}
	return runtime.GOARCH
}

// lock keeps others from the folder until it is unlocked.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %q: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// pick returns the highest version of a series, empty if there is none.
func pick(versions []string, series string) string {
	best := ""
	for _, v := range versions {
		if series != Newest && !strings.HasPrefix(v, series+".") {
			continue
		}
		if best == "" || slices.Compare(numbers(v), numbers(best)) > 0 {
			best = v
		}
	}
	return best
}

var digits = regexp.MustCompile(`[0-9]+`)

// numbers are those in a version, for comparison.
func numbers(version string) (n []int) {
	for _, d := range digits.FindAllString(version, -1) {
		i, _ := strconv.Atoi(d)
		n = append(n, i)
	}
	return n
}

// unpack makes dir hold a kernel: vmlinux and lib/modules/VERSION.
func (a apt) unpack(version, dir string) error {
	part := dir + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return err
	}
	if err := a.download(version, part); err != nil {
		return err
	}
	if err := merge(part); err != nil {
		return err
	}
	if _, err := output("depmod", "-b", part, version); err != nil {
		return err
	}
	packed := filepath.Join(part, "boot", "vmlinuz-"+version)
	if _, err := os.Stat(packed); err != nil {
		packed = filepath.Join(part, "lib/modules", version, "vmlinuz")
	}
	if err := Decompress(packed, filepath.Join(part, "vmlinux")); err != nil {
		return err
	}
	return os.Rename(part, dir)
}

// merge makes lib/modules the folder of modules, for newer packages have it as usr/lib/modules.
func merge(root string) error {
	lib := filepath.Join(root, "lib")
	if _, err := os.Stat(lib); err == nil {
		return nil
	}
	return os.Symlink("usr/lib", lib)
}

// Decompress takes the kernel out of the image, which decompresses itself: that is slow
// without KVM, and fails on some machines. Those of arm64 are not compressed.
func Decompress(packed, to string) error {
	image, err := os.ReadFile(packed)
	if err != nil {
		return err
	}
	if arm64 := []byte("ARM\x64"); len(image) > 60 && bytes.Equal(image[56:60], arm64) {
		return os.WriteFile(to, image, 0o644)
	}
	for _, c := range []struct {
		magic   string
		command string
	}{{"\xfd7zXZ\x00", "xz"}, {"\x28\xb5\x2f\xfd", "zstd"}} {
		if at := bytes.Index(image, []byte(c.magic)); at >= 0 {
			cmd := exec.Command(c.command, "-dc")
			cmd.Stdin = bytes.NewReader(image[at:])
			kernel, _ := cmd.Output() // fails behind the kernel, where something else follows
			if bytes.HasPrefix(kernel, []byte("\x7fELF")) {
				return os.WriteFile(to, kernel, 0o644)
			}
		}
	}
	return fmt.Errorf("%q holds no kernel that xz or zstd can decompress", packed)
}

// output runs a command and returns what it printed; an error says what it complained about.
func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
