// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"

	"narthex/internal/api"
	"narthex/internal/daemon"
)

// absence is what is known of an instance whose daemon does not answer.
type absence struct {
	target   *target
	holder   int  // the process that holds the instance nevertheless, 0 for none
	enforced bool // something is policed
}

func (t *target) absence() absence {
	pinned, err := t.env.Kernel.Pinned(t.instance)
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

// client returns a client that says when the daemon is long about something.
func (t *target) client() *api.Client {
	c := api.NewClient(t.socket)
	c.Busy = func(pid int) {
		fmt.Fprintf(t.env.Stderr, "process %d runs and is busy: waiting for it (Ctrl-C gives up; `narthex detach --force%s` takes the policy out of force without it)\n", pid, t.named())
	}
	return c
}

// explain makes a sentence of it if no daemon has answered, or says what to do about one that hangs.
func (t *target) explain(err error) error {
	var hung *api.HungError
	switch {
	case errors.Is(err, api.ErrNoDaemon):
		return errors.New(t.absence().sentence())
	case errors.As(err, &hung):
		return fmt.Errorf("%w: %s", err, t.wayOut(hung))
	}
	return err
}

// wayOut says what to do about a daemon that hangs. What it has put in force goes on meanwhile.
func (t *target) wayOut(hung *api.HungError) string {
	pid := hung.PID
	if pid == 0 {
		pid = daemon.Holder(t.env.RunDir, t.instance)
	}
	let := "what is in force goes on without it"
	if pid != 0 && hung.State == "stopped" {
		let += fmt.Sprintf("; `kill -CONT %d` lets the daemon go on", pid)
	} else if pid != 0 {
		let += fmt.Sprintf("; `kill -KILL %d` ends the daemon alone, and the next one takes over", pid)
	}
	return fmt.Sprintf("%s; `narthex detach --force%s` takes the policy out of force", let, t.named())
}
