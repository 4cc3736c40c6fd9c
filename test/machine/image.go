// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"narthex/test/vm"
)

// suite is Debian 13.
const suite = "trixie"

// packages are what the machine has beside Debian's important ones: what the tutorial installs,
// and what looks at the kernel.
var packages = []string{
	"systemd-sysv", "dbus", "linux-image-amd64", "initramfs-tools", "zstd", "sudo", "nginx-light", "wrk", "curl", "bpftool",
}

// customize makes the machine usable over its serial lines; $1 is its root.
//
//go:embed customize
var customize string

// image is a machine's disk and the kernel that is installed on it.
type image struct {
	disk, kernel, initrd string
}

// makeImage makes the disk of a Debian 13 below a folder, unless an earlier run has.
func makeImage(ctx context.Context, dir string) (image, error) {
	recipe := sha256.Sum256([]byte(suite + strings.Join(packages, " ") + customize))
	at := filepath.Join(dir, fmt.Sprintf("%s-%x", suite, recipe[:4]))
	img := image{filepath.Join(at, "disk"), filepath.Join(at, "vmlinux"), filepath.Join(at, "initrd")}
	if _, err := os.Stat(at); err == nil {
		fmt.Println("the image is that of an earlier run:", at)
		return img, nil
	}
	part := at + ".part"
	if err := errors.Join(os.RemoveAll(part), os.MkdirAll(part, 0o755)); err != nil {
		return image{}, err
	}
	if err := fillImage(ctx, part); err != nil {
		return image{}, fmt.Errorf("make the image of a Debian 13: %w", err)
	}
	return img, os.Rename(part, at)
}

// fillImage installs Debian in a folder and makes a disk of it.
func fillImage(ctx context.Context, part string) error {
	mirror, err := vm.Mirror()
	if err != nil {
		return err
	}
	root, hook := filepath.Join(part, "root"), filepath.Join(part, "customize")
	if err := os.WriteFile(hook, []byte(customize), 0o755); err != nil {
		return err
	}
	if err := run(ctx, "mmdebstrap", "--quiet", "--mode=root", "--variant=important", "--include="+strings.Join(packages, ","),
		"--aptopt=Acquire::Languages \"none\"", "--customize-hook="+hook, suite, root, mirror); err != nil {
		return err
	}
	for name, to := range map[string]string{"vmlinuz-*": "vmlinuz", "initrd.img-*": "initrd"} {
		found, err := filepath.Glob(filepath.Join(root, "boot", name))
		if err != nil || len(found) != 1 {
			return fmt.Errorf("%d files match /boot/%s, not one", len(found), name)
		}
		if err := run(ctx, "cp", found[0], filepath.Join(part, to)); err != nil {
			return err
		}
	}
	if err := vm.Decompress(filepath.Join(part, "vmlinuz"), filepath.Join(part, "vmlinux")); err != nil {
		return err
	}
	if err := makeDisk(ctx, root, filepath.Join(part, "disk"), "4G"); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// makeDisk makes a disk that holds a folder's files.
func makeDisk(ctx context.Context, from, disk, size string) error {
	return errors.Join(os.RemoveAll(disk), run(ctx, "mkfs.ext4", "-q", "-d", from, disk, size))
}
