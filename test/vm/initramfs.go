// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"narthex/test/vm/guest"
)

// bootModules are what the first process needs before it sees this machine's files. Kernels
// have some of them built in.
var bootModules = []string{"virtio_pci", "virtio_console", "9p", "9pnet_virtio", "overlay"}

// writeInitramfs writes a kernel's first files: the first process, its task, and the modules
// that it loads, in order.
func writeInitramfs(ctx context.Context, path string, k Kernel, task guest.Task) error {
	var archive cpio
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags=-s -w", "-o", path, "narthex/test/vm/init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+k.Arch)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the first process: %w: %s", err, out)
	}
	first, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	archive.file("init", 0o755, first)
	text, err := json.Marshal(task)
	if err != nil {
		return err
	}
	archive.file(guest.TaskFile, 0o644, text)
	archive.dir(guest.ModulesDir)
	files, err := k.moduleFiles(bootModules)
	if err != nil {
		return err
	}
	for i, f := range files {
		module, err := readModule(f)
		if err != nil {
			return err
		}
		archive.file(fmt.Sprintf("%s/%02d.ko", guest.ModulesDir, i), 0o644, module)
	}
	return os.WriteFile(path, archive.end(), 0o644)
}

// moduleFiles returns the files of modules and of those that they need, in the order in which
// they can be loaded.
func (k Kernel) moduleFiles(names []string) (files []string, err error) {
	text, err := os.ReadFile(filepath.Join(k.modules, "modules.dep"))
	if err != nil {
		return nil, err
	}
	needs := map[string][]string{} // by name of the module: its file, then those that it needs
	for line := range strings.Lines(string(text)) {
		if file, others, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			name, _, _ := strings.Cut(filepath.Base(file), ".ko")
			needs[strings.ReplaceAll(name, "-", "_")] = append([]string{file}, strings.Fields(others)...)
		}
	}
	for _, name := range names {
		// What a module needs stands behind it, what is needed first at the end.
		for _, file := range slices.Backward(needs[name]) {
			if path := filepath.Join(k.modules, file); !slices.Contains(files, path) {
				files = append(files, path)
			}
		}
	}
	return files, nil
}

// readModule returns a module decompressed.
func readModule(file string) ([]byte, error) {
	switch filepath.Ext(file) {
	case ".xz":
		return output("xz", "-dc", file)
	case ".zst":
		return output("zstd", "-dc", file)
	}
	return os.ReadFile(file)
}

// cpio is an archive in the format that the kernel unpacks, see
// https://docs.kernel.org/driver-api/early-userspace/buffer-format.html.
type cpio struct {
	bytes.Buffer
	entries int
}

func (c *cpio) dir(name string) { c.entry(name, 0o040755, nil) }

func (c *cpio) file(name string, mode int, content []byte) { c.entry(name, 0o100000|mode, content) }

func (c *cpio) entry(name string, mode int, content []byte) {
	c.entries++
	c.WriteString("070701")
	for _, field := range []int{c.entries, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0} {
		fmt.Fprintf(c, "%08x", field)
	}
	c.WriteString(name + "\x00")
	c.pad()
	c.Write(content)
	c.pad()
}

// pad fills up to the next multiple of four bytes.
func (c *cpio) pad() { c.Write(make([]byte, -c.Len()&3)) }

func (c *cpio) end() []byte {
	c.entry("TRAILER!!!", 0, nil)
	return c.Bytes()
}
