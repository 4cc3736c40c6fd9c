// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
)

const loopback = "lo"

// loopbackSettings must be 1 for lo: a released packet comes without a route, and the kernel
// would take 127.0.0.1 for a martian address.
var loopbackSettings = []string{"route_localnet", "accept_local"}

func settingFile(name string) string { return "/proc/sys/net/ipv4/conf/" + loopback + "/" + name }

// keySetting is where the journal has what a setting was before.
func keySetting(name string) string { return "sysctl." + loopback + "." + name }

// openLoopback lets released packets in on lo, of the calling thread's namespace, and records
// what was changed. Other interfaces need nothing.
func openLoopback(name string, journal *ebpf.Map) error {
	if name != loopback {
		return nil
	}
	for _, setting := range loopbackSettings {
		was, err := os.ReadFile(settingFile(setting))
		if err != nil {
			return fmt.Errorf("preparing interface %q: %w", loopback, err)
		}
		if strings.TrimSpace(string(was)) == "1" {
			continue
		}
		if recorded(journal, keySetting(setting)) == "" {
			if err := record(journal, keySetting(setting), strings.TrimSpace(string(was))); err != nil {
				return err
			}
		}
		if err := os.WriteFile(settingFile(setting), []byte("1"), 0o644); err != nil {
			return fmt.Errorf("preparing interface %q: %w; a service manager may have to allow it", loopback, err)
		}
	}
	return nil
}

// closeLoopback puts back what openLoopback has recorded.
func closeLoopback(journal *ebpf.Map) error {
	var all error
	for _, setting := range loopbackSettings {
		was := recorded(journal, keySetting(setting))
		if was == "" {
			continue
		}
		if err := os.WriteFile(settingFile(setting), []byte(was), 0o644); err != nil {
			all = errors.Join(all, fmt.Errorf("restoring net.ipv4.conf.%s.%s to %s: %w", loopback, setting, was, err))
			continue
		}
		all = errors.Join(all, erase(journal, keySetting(setting)))
	}
	return all
}
