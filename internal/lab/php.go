// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
)

// PHPConfig says how PHP-FPM runs, for a web server in front of it.
type PHPConfig struct {
	Listen  netip.AddrPort // FastCGI
	Workers int            // processes
	Script  string         // what answers each request, without <?php
	CPUs    []int          // cores of all its processes; any if empty
}

// PHPScript is the SCRIPT_FILENAME that a web server asks PHP-FPM for.
const PHPScript = "app.php"

// phpProgram is the newest PHP-FPM, which Debian names by its version.
func phpProgram() string {
	found, _ := filepath.Glob("/usr/sbin/php-fpm*") // the pattern is fine
	if len(found) == 0 {
		return "php-fpm"
	}
	return found[len(found)-1]
}

// StartPHP starts PHP-FPM and waits until it accepts connections, with all its processes. It ends with the namespace,
// or with Close.
func (n *Namespace) StartPHP(cfg PHPConfig) (*Server, error) {
	return foreign{
		name: "PHP-FPM", program: phpProgram(), pkg: "php-fpm", listen: []netip.AddrPort{cfg.Listen}, cpus: cfg.CPUs, workers: cfg.Workers,
		args: func(dir string) []string {
			return []string{"--nodaemonize", "--allow-to-run-as-root", "--force-stderr", "--fpm-config", filepath.Join(dir, "fpm.conf")}
		},
		prepare: func(dir string) error {
			conf := fmt.Sprintf("[global]\nerror_log = /dev/stderr\nlog_level = error\n[www]\nuser = root\nlisten = %s\nlisten.backlog = 4096\npm = static\npm.max_children = %d\nchdir = %s\n", cfg.Listen, cfg.Workers, dir)
			if err := os.WriteFile(filepath.Join(dir, "fpm.conf"), []byte(conf), 0o644); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, PHPScript), []byte("<?php "+cfg.Script), 0o644)
		},
	}.start(n)
}
