// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"slices"
	"strings"

	"narthex/internal/policy"
)

// confine gives up what was needed to start alone. A daemon that cannot goes on: its work is
// worth more than that.
func (d *daemon) confine() {
	if d.cfg.Confine == nil {
		return
	}
	held, err := d.cfg.Confine()
	if err != nil {
		d.log.Error("cannot give up capabilities, goes on with all of them", "error", err)
		return
	}
	d.held = held
	d.log.Info("capabilities are given up", "held", strings.Join(held, " "))
	adapts := slices.ContainsFunc(d.engine.current.policy.Services, func(s policy.Service) bool { return s.Concurrency.Mode == policy.ConcurrencyAuto })
	if adapts && !(slices.Contains(held, "CAP_SYS_PTRACE") && slices.Contains(held, "CAP_DAC_READ_SEARCH")) {
		d.log.Info("limits set themselves by the CPUs of the whole machine: without CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH it is not known which processes serve")
	}
}
