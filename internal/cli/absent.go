// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"narthex/internal/daemon"
	"narthex/internal/daemon/api"
)

// absence is what is known of an instance whose daemon does not answer.
type absence struct {
	target   *target
	holder   int  // the process that holds the instance nevertheless, 0 for none
	enforced bool // something is policed
}

func (t *target) absence() absence {
	pinned, err := t.env.Pinned(t.instance)
	return absence{t, daemon.Holder(t.env.RunDir, t.instance), err == nil && pinned}
}

// sentence says how things are, and what to do.
func (a absence) sentence() string {
	t := a.target
	start := fmt.Sprintf("`narthex run --policy FILE%s`", t.named())
	switch {
	case a.holder != 0:
		return fmt.Sprintf("process %d holds instance %q and does not answer on %s: name its socket with --socket", a.holder, t.instance, t.socket)
	case a.enforced:
		return fmt.Sprintf("enforcing without a daemon: %s takes it over, `narthex detach%s` ends it", start, t.named())
	}
	return fmt.Sprintf("no daemon answers on %s: start it with %s", t.socket, start)
}

// explain makes a sentence of it if no daemon has answered.
func (t *target) explain(err error) error {
	if !errors.Is(err, api.ErrNoDaemon) {
		return err
	}
	return errors.New(t.absence().sentence())
}
