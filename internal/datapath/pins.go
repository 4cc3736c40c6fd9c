// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// pins are the paths of an instance in the BPF file system:
//
//	ROOT/INSTANCE/maps/NAME
//	ROOT/INSTANCE/programs/NAME
//	ROOT/INSTANCE/links/MODE_IFINDEX
//
// A new instance is put together in ROOT/INSTANCE~ and appears by one rename.
type pins struct {
	root, dir string
}

func newPins(root, instance string) pins {
	if root == "" {
		root = Root
	}
	return pins{root, filepath.Join(root, instance)}
}

func (p pins) draft() pins              { return pins{p.root, p.dir + "~"} }
func (p pins) mapPath(n string) string  { return filepath.Join(p.dir, "maps", n) }
func (p pins) progPath(n string) string { return filepath.Join(p.dir, "programs", n) }
func (p pins) linkDir() string          { return filepath.Join(p.dir, "links") }

// exist reports whether the instance is pinned.
func (p pins) exist() (bool, error) {
	_, err := os.Stat(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (p pins) create() error {
	for _, dir := range []string{"maps", "programs", "links"} {
		err := os.MkdirAll(filepath.Join(p.dir, dir), 0o700)
		// The last instance to go takes the folder of all with it, maybe in this moment.
		for try := 0; errors.Is(err, fs.ErrNotExist) && try < 10; try++ {
			err = os.MkdirAll(filepath.Join(p.dir, dir), 0o700)
		}
		if err != nil {
			return fmt.Errorf("creating pins: %w", err)
		}
	}
	return nil
}

// remove deletes all pins.
func (p pins) remove() error { return os.RemoveAll(p.dir) }

// retire makes the pins a draft, which the next start removes, at one stroke: a crash in
// the middle of removing leaves nothing that looks like an instance.
func (p pins) retire() error {
	if err := p.draft().remove(); err != nil {
		return err
	}
	if err := os.Rename(p.dir, p.draft().dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// pinned is a map or a program.
type pinned interface{ Pin(string) error }

// pin puts an object at a path in place of what is there.
func pin(o pinned, path string) error {
	if err := pinBeside(o, path); err != nil {
		return err
	}
	return os.Rename(fresh(path), path)
}

// pinBeside pins an object beside the one in whose place pin will put it.
func pinBeside(o pinned, path string) error {
	if err := os.Remove(fresh(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := o.Pin(fresh(path)); err != nil {
		return fmt.Errorf("pinning %q: %w", path, err)
	}
	return nil
}

func fresh(path string) string { return path + "~" }

// mountBPFFS makes sure that root is in a BPF file system.
func mountBPFFS(root string) error {
	top := root
	for filepath.Dir(top) != "/sys/fs" && filepath.Dir(top) != top {
		if isBPFFS(top) {
			return nil
		}
		top = filepath.Dir(top)
	}
	if isBPFFS(top) {
		return nil
	}
	if !strings.HasPrefix(root, "/sys/fs/bpf/") {
		return fmt.Errorf("%q is not in a BPF file system: mount one there with \"mount -t bpf bpf DIR\"", root)
	}
	if err := unix.Mount("bpf", "/sys/fs/bpf", "bpf", 0, "mode=0700"); err != nil {
		return fmt.Errorf("mounting the BPF file system: %w; mount it with \"mount -t bpf bpf /sys/fs/bpf\"", err)
	}
	return nil
}

func isBPFFS(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.BPF_FS_MAGIC
}

// loadPinnedMap opens a pinned map; nil if there is none.
func (p pins) loadPinnedMap(name string) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(p.mapPath(name), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening pinned map %q: %w", name, err)
	}
	return m, nil
}
