// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"

	"narthex/internal/datapath"
)

// GoneError is how a daemon ends whose network namespace has gone: that of a container that
// was stopped, or that got another one by a restart.
type GoneError struct {
	NetNS string // as it was named
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("network namespace %q is gone, and nobody listens in it: run narthex again with --netns of the new one", e.NetNS)
}

// checkGone returns a *GoneError if there is nothing left to protect. While a server listens
// there is, also if the file is gone by which the namespace was opened.
func (d *daemon) checkGone() error {
	if !d.engine.net.Gone() {
		return nil
	}
	if listeners, err := d.engine.net.Listeners(); err != nil || len(listeners) > 0 {
		return nil
	}
	return &GoneError{d.cfg.NetNS}
}

// open opens the data path. What is pinned of a namespace that is no more is removed first:
// its interfaces and connections went with it.
func (d *daemon) open(network Network, cfg datapath.Config, rules int) (dp Datapath, err error) {
	cookie, err := network.Cookie()
	if err != nil {
		return nil, err
	}
	err = network.Do(func() (err error) {
		if dp, err = d.cfg.Kernel.Open(cfg, rules); err != nil {
			return err
		}
		journal, err := dp.Journal()
		if err != nil {
			return errors.Join(fmt.Errorf("read journal: %w", err), dp.Close())
		}
		if checkNetwork(cfg.Instance, journal, cookie) == nil || len(dp.Attachments()) > 0 {
			return nil
		}
		d.log.Warn("removing what is left of a network namespace that is gone", "instance", cfg.Instance)
		if err := dp.Close(); err != nil {
			return err
		}
		if _, err := d.cfg.Kernel.Remove(cfg.Instance); err != nil {
			return err
		}
		dp, err = d.cfg.Kernel.Open(cfg, rules)
		return err
	})
	return dp, err
}
