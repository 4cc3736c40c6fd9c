// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"narthex/test/docs/blocks"
)

// run executes the commands of a block.
func (p *page) run(b *blocks.Block) error {
	list, err := blocks.Commands(b)
	if err != nil {
		return err
	}
	for i, c := range list {
		last := i == len(list)-1
		if err := p.command(b, c, last); err != nil {
			return fmt.Errorf("%s: %w", c.Text, err)
		}
	}
	return nil
}

// daemonCommand is a command that serves until it is stopped.
var daemonCommand = regexp.MustCompile(`^(?:sudo +)?(?:\S*/)?narthex +run\b`)

func (p *page) command(b *blocks.Block, c blocks.Command, last bool) error {
	t := p.on().terminal(b.Words["terminal"], b.Words["on"])
	switch {
	case c.Text == blocks.Interrupt:
		return p.interrupt(t)
	case daemonCommand.MatchString(c.Text) && !strings.Contains(c.Text, "--help") && !b.Has("fails") && !b.Has("exit"):
		return p.daemon(t, b, c)
	case last && (b.Has("background") || b.Has("endless")):
		return p.goOn(t, b, c)
	}
	var output string
	var code int
	var err error
	once := func() bool {
		output, code, err = t.run(c.Text)
		return err != nil || len(c.Shown) == 0 || blocks.Matches(c.Shown, output, b.Has("numbers"))
	}
	if last && b.Has("retry") {
		within(patience, once)
	} else {
		once()
	}
	if err != nil {
		return fmt.Errorf("%w; it has printed:\n%s", err, output)
	}
	if err := expectCode(b, last, code); err != nil {
		return fmt.Errorf("%w; it has printed:\n%s", err, output)
	}
	p.expectOutput(b, c, output)
	return nil
}

// expectOutput compares what was printed with what is shown, or writes it there. A page goes on after a
// difference.
func (p *page) expectOutput(b *blocks.Block, c blocks.Command, output string) {
	if len(c.Shown) == 0 || blocks.Matches(c.Shown, output, b.Has("numbers")) {
		return
	}
	if *record && b.Lang == "console" {
		p.recorded = append(p.recorded, recording{from: b.Line + c.Line, lines: len(c.Shown), text: strings.TrimRight(blocks.WithoutMount(output), "\n")})
		return
	}
	p.t.Errorf("%s:%d: %s: the page shows\n%s\nit has printed\n%s", p.name, b.Line, c.Text, strings.Join(c.Shown, "\n"), output)
}

// expectCode compares an exit code with what the block says of its last command.
func expectCode(b *blocks.Block, last bool, code int) error {
	want, named := b.Words["exit"]
	switch {
	case last && named && strconv.Itoa(code) != want:
		return fmt.Errorf("exit code %d, not %s", code, want)
	case last && b.Has("fails") && code == 0:
		return errors.New("it does not fail")
	case !(last && (named || b.Has("fails"))) && code != 0:
		return fmt.Errorf("exit code %d", code)
	}
	return nil
}

// goOn starts a command that does not end by itself and waits until it has printed what is shown.
func (p *page) goOn(t *terminal, b *blocks.Block, c blocks.Command) error {
	job, err := t.background(c.Text)
	if err != nil {
		return err
	}
	shown := func() bool {
		if len(c.Shown) == 0 { // no more to wait for than a sign of life
			return job.printed() != "" || b.Has("background")
		}
		return blocks.Begins(c.Shown, job.printed(), b.Has("numbers"))
	}
	within(patience, func() bool { return shown() || job.ended() })
	if !shown() {
		return fmt.Errorf("the page shows\n%s\nafter %v it has printed\n%s", strings.Join(c.Shown, "\n"), patience, job.printed())
	}
	if b.Has("endless") {
		return p.on().interrupt(job)
	}
	t.foreground = job
	return nil
}

// daemon starts a daemon and waits until it enforces.
func (p *page) daemon(t *terminal, b *blocks.Block, c blocks.Command) error {
	job, err := t.background(c.Text)
	if err != nil {
		return err
	}
	t.foreground = job
	status := repository + "/bin/narthex status" + strings.Join(instanceFlag.FindAllString(c.Text, -1), "")
	probe := p.on().terminal("probe", "server")
	up := within(commandPatience, func() bool {
		_, code, err := probe.run(status)
		return err != nil || code == 0 && strings.Contains(job.printed(), "in force") || job.ended()
	})
	if !up || job.ended() {
		return fmt.Errorf("it does not enforce; it has printed:\n%s", job.printed())
	}
	p.expectOutput(b, c, job.printed())
	return nil
}

var instanceFlag = regexp.MustCompile(` --(?:instance|socket)[ =]\S+`)

// interrupt is Ctrl-C in a terminal.
func (p *page) interrupt(t *terminal) error {
	if t.foreground == nil {
		return errors.New("nothing goes on in this terminal")
	}
	job := t.foreground
	t.foreground = nil
	return p.on().interrupt(job)
}
