// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// rootPackages are what commands find in a machine of another architecture: what the tests use.
const rootPackages = "bash,coreutils,dash,grep,sed,gawk,findutils,hostname,util-linux,mount,procps,kmod,iproute2,ethtool,bpftool," +
	"curl,openssl,nftables,netbase,base-passwd,nginx-light,apache2-bin,haproxy"

// foreignRoot returns a folder with files of a Debian for another architecture. Its packages are unpacked
// and not configured, for nothing of it runs here. It makes the folder unless an earlier run has.
func foreignRoot(ctx context.Context, arch string) (string, error) {
	cache := cacheDir()
	recipe := sha256.Sum256([]byte(rootPackages))
	dir := filepath.Join(cache, fmt.Sprintf("root-%s-%x", arch, recipe[:4]))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(cache)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	mirror, err := Mirror()
	if err != nil {
		return "", err
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--architectures="+arch,
		"--include="+rootPackages, "--aptopt=Acquire::Languages \"none\"", "trixie", part, mirror)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("unpack a Debian for %s: %w: %s", arch, err, out)
	}
	if err := configure(part); err != nil {
		return "", fmt.Errorf("make the Debian for %s usable: %w", arch, err)
	}
	return dir, os.Rename(part, dir)
}

// configure does the little that packages' own scripts would have done.
func configure(root string) (err error) {
	for from, to := range map[string]string{"usr/share/base-passwd/passwd.master": "etc/passwd", "usr/share/base-passwd/group.master": "etc/group"} {
		text, readErr := os.ReadFile(filepath.Join(root, from))
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(root, to), text, 0o644))
	}
	for _, dir := range []string{"var/log/nginx", "var/lib/nginx", "var/log/apache2"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	hosts := "127.0.0.1 localhost\n::1 localhost\n"
	err = errors.Join(err, os.WriteFile(filepath.Join(root, "etc/hosts"), []byte(hosts), 0o644))
	if _, statErr := os.Lstat(filepath.Join(root, "usr/bin/awk")); errors.Is(statErr, os.ErrNotExist) {
		err = errors.Join(err, os.Symlink("gawk", filepath.Join(root, "usr/bin/awk")))
	}
	return err
}
