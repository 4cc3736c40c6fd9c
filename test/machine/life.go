// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
)

// standing is the policy of the service: few start pages for each source, and few requests at once.
const standing = `version: 1
services: [{name: web, listen: "*:80", interfaces: [lo], concurrency: 4}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2, reserve: 10%}]
default_class: bronze
requests: [{name: start, path: /, rate: 1/m, burst: 2, per: source}]
`

// ask asks eight times for the start page and prints the codes of the answers.
const ask = `for i in 1 2 3 4 5 6 7 8; do curl -s -o /dev/null -w '%{http_code} ' http://127.0.0.1/; done; echo`

// inventory writes down all that a package could leave, on the second disk of the machine.
const inventory = "sudo sh /srv/inventory"

// live installs, follows the tutorial, reboots, upgrades and removes.
func (s *story) live(ctx context.Context, d debs) error {
	s.chapter("A Debian 13, with nginx")
	s.do("cat /etc/debian_version && uname -r")
	s.settle()
	s.do(inventory + " >before && wc -l before")

	s.chapter("Install the package")
	s.do("sudo apt-get install -q -y /srv/" + d.current)
	_, code := s.try("systemctl is-enabled narthex")
	s.check(code != 0, "installing has enabled the service")
	s.try("sudo narthex status")
	s.check(s.answered() == 8, "something is enforced after the installation")

	s.chapter("The tutorial, by its own commands")
	if err := s.tutorial(); err != nil {
		return err
	}

	s.chapter("As a service")
	s.serve()
	s.do(`echo 'NARTHEX_OPTIONS="--metrics 9464"' | sudo tee /etc/default/narthex >/dev/null && sudo systemctl restart narthex`)
	s.check(strings.TrimSpace(s.do("curl -s http://127.0.0.1:9464/readyz")) == "ok", "the service does not say that it is ready")

	s.chapter("Reboot")
	if err := s.reboot(ctx); err != nil {
		return err
	}
	s.do("systemctl is-active narthex nginx")
	s.protected()
	s.do("sudo narthex status")

	s.chapter("Purge the package: nothing is left")
	s.do("sudo rm /etc/narthex/strict.yaml /etc/default/narthex # ours")
	s.purge()

	s.chapter("Upgrade from " + d.previousCommit)
	if err := s.upgrade(d); err != nil {
		return err
	}

	s.chapter("Remove, then purge")
	s.do("sudo apt-get remove -q -y narthex")
	s.check(s.answered() == 8, "something is enforced after the removal")
	s.do("ls /etc/narthex")
	s.purge()
	return s.end(ctx)
}

// end turns the machine off.
func (s *story) end(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	s.command(s.terminal(""), "sudo systemctl poweroff")
	if err := s.terminal("").start("sudo systemctl poweroff"); err != nil {
		return err
	}
	return s.m.off(ctx)
}

// serve puts the standing policy in force, now and after each boot.
func (s *story) serve() {
	s.do("sudo tee /etc/narthex/policy.yaml >/dev/null <<'END'\n" + standing + "END")
	if _, code := s.try("sudo systemctl enable --now narthex"); code != 0 {
		s.fault("the service does not start")
		s.try("sudo journalctl --unit narthex --no-pager --lines 30")
	}
	s.protected()
	s.do("sudo narthex status")
}

// answered asks for the start page and returns how often nginx answered.
func (s *story) answered() int { return strings.Count(s.do(ask), "200 ") }

// protected sees to it that the standing policy is enforced from its beginning: two start pages, and
// another one if a minute is over.
func (s *story) protected() {
	n := s.answered()
	s.check(n == 2 || n == 3, "nginx answered %d of 8 requests; want 2", n)
}

func (s *story) reboot(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	s.command(s.terminal(""), "sudo systemctl reboot")
	if err := s.terminal("").start("sudo systemctl reboot"); err != nil {
		return err
	}
	if err := s.m.logIn(ctx); err != nil {
		return err
	}
	s.settle()
	return nil
}

// purge removes everything of the package, and compares the machine with what it was before.
func (s *story) purge() {
	s.do("sudo apt-get purge -q -y narthex")
	s.check(s.answered() == 8, "something is enforced after the purge")
	s.do(inventory + " >after")
	_, code := s.try("diff before after && echo the same")
	s.check(code == 0, "the package has left something")
}

// upgrade installs the earlier package, protects nginx, and upgrades while a client goes on
// asking: it gets no more than the policy allows, at any time.
func (s *story) upgrade(d debs) error {
	s.do("sudo apt-get install -q -y /srv/" + d.previous)
	s.serve()
	s.do("narthex version && systemctl show -p MainPID narthex")
	client := s.terminal("second")
	if err := s.goOn(client, `while :; do curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1/ >>codes; done`,
		func(string) bool { return true }); err != nil {
		return err
	}
	load := s.terminal("third")
	if err := s.goOn(load, "wrk -t1 -c20 -d10m http://127.0.0.1/report.html", func(p string) bool { return strings.Contains(p, "connections") }); err != nil {
		return err
	}
	s.do("date +%s >begin; sudo apt-get install -q -y /srv/" + d.current)
	s.do("systemctl is-active narthex && narthex version && systemctl show -p MainPID narthex")
	s.check(strings.Contains(s.do("sudo narthex status"), "enforcing"), "nothing is enforced after the upgrade")
	for _, t := range []*terminal{client, load} {
		if err := s.interrupt(t); err != nil {
			return err
		}
	}
	out := s.do(`echo "$(($(date +%s) - $(cat begin))) s: $(grep -c 200 codes) answered, $(grep -c -e 429 -e 503 codes) refused, $(grep -vc -e 200 -e 429 -e 503 codes) otherwise"`)
	if s.err != nil {
		return s.err
	}
	var seconds, answered, refused, otherwise int
	if _, err := fmt.Sscanf(out, "%d s: %d answered, %d refused, %d otherwise", &seconds, &answered, &refused, &otherwise); err != nil {
		return fmt.Errorf("read %q: %w", out, err)
	}
	// A token a minute, and one that came before the upgrade began.
	s.check(answered <= seconds/60+2, "nginx answered %d requests in %d s of the upgrade", answered, seconds)
	s.check(refused > 0 && otherwise == 0, "%d requests were refused and %d ended otherwise", refused, otherwise)
	return nil
}
