// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// The network of the incident: visitors and a crowd, in a namespace of their own.
const (
	visitor = "10.7.0.9"
	crowd   = "10.8.0.66" // in another /24 than the visitor: a class is fair between /24s

	network = `sudo sh -c 'ip netns add net; ip link add web0 type veth peer name out0 netns net; ip addr add 10.7.0.1/24 dev web0; ip link set web0 up; ip route add 10.8.0.0/24 dev web0
ip -n net addr add ` + crowd + `/24 dev out0; ip -n net addr add ` + visitor + `/32 dev out0; ip -n net link set out0 up
ip -n net route add 10.7.0.0/24 dev out0 src ` + crowd + `'`
	visits = `for i in 1 2 3 4 5; do sudo ip netns exec net curl -s -o /dev/null -w '%{http_code} ' --max-time 20 --interface ` + visitor + ` http://10.7.0.1/; done; echo`
	comes  = `sudo ip netns exec net wrk -t1 -c100 -d10m -H 'Accept-Encoding: gzip' http://10.7.0.1/report.html`
)

// night protects a fresh machine, and has a crowd and a mistake come over it.
func (s *story) night(ctx context.Context, d debs) error {
	s.chapter("A Debian 13, with nginx")
	s.settle()
	s.do("seq 100000 | sudo tee /var/www/html/report.html >/dev/null")
	s.do(inventory + " >before")
	s.do(network + " # for clients")

	s.chapter("From a fresh machine to a protected nginx")
	s.install(d.current)

	s.chapter("An incident")
	if err := s.incident(); err != nil {
		return err
	}

	s.chapter("A wrong policy, and the way back")
	s.mistake()

	s.chapter("Remove all of it")
	s.leave()
	s.purge()
	return s.end(ctx)
}

// install goes the short way from a machine with nginx to a protected one, and says how long that took.
func (s *story) install(deb string) {
	begin := time.Now()
	for _, c := range []string{
		"sudo apt-get install -q -y /srv/" + deb,
		"sudo narthex init --force /etc/narthex/policy.yaml",
		"sudo sed -i '/mode: shadow/d' /etc/narthex/policy.yaml",
		"sudo systemctl enable --now narthex",
		"sudo narthex status",
	} {
		s.do(c)
	}
	s.note(fmt.Sprintf("Five commands, %d s.", int(time.Since(begin).Seconds())+1))
	s.visited(5)
	s.check(strings.Contains(s.do("sudo narthex status"), "enforcing"), "nothing is enforced")
}

// visited has a visitor come five times, and checks how often nginx answers.
func (s *story) visited(want int) {
	if n := strings.Count(s.do(visits), "200 "); n != want {
		s.check(false, "nginx answered %d of 5 visits; want %d", n, want)
	}
}

// shows repeats a command until what it prints has all the words.
func (s *story) shows(text string, words ...string) {
	if s.err != nil {
		return
	}
	t := s.terminal("")
	s.command(t, text)
	var output string
	var err error
	has := within(patience, func() bool {
		output, _, err = t.run(text)
		for _, word := range words {
			if !strings.Contains(output, word) {
				return err != nil
			}
		}
		return true
	})
	s.printed(output)
	s.err = err
	s.check(has, "%s does not say %s", text, strings.Join(words, ", "))
}

// incident has a crowd overload nginx, and an operator find and mend that with our commands alone.
func (s *story) incident() error {
	if s.err != nil {
		return s.err
	}
	t := s.terminal("third")
	if err := s.goOn(t, comes, func(string) bool { return true }); err != nil {
		return err
	}
	s.note("The telephone rings: the site is slow. What is wrong?")
	s.shows("sudo narthex status", "overloaded")
	s.note("Too much is asked. By whom?")
	s.shows("sudo narthex top --once", crowd)
	s.try(visits)
	s.note("One address. Does it come to an end there, for now?")
	s.do("sudo narthex table add blocked " + crowd + " --for 10m")
	s.visited(5)
	s.note("It does. Who was turned away until then? And a visitor who has complained?")
	s.shows("sudo narthex events --since 10m --summary", crowd)
	s.try("sudo narthex explain --from " + visitor + " --at 30s")
	s.note("For good: a rule on what is expensive. What does it change?")
	s.do(`sudo tee -a /etc/narthex/policy.yaml >/dev/null <<'END'

requests:
  - {name: report, path: /report.html, rate: 5/s, per: source}
END`)
	s.do("narthex check /etc/narthex/policy.yaml")
	_, code := s.try("sudo narthex diff /etc/narthex/policy.yaml")
	s.check(code == 1, "diff ends with exit code %d", code)
	s.do("sudo narthex reload --confirm 3m")
	s.do("sudo narthex table clear blocked " + crowd)
	s.visited(5)
	s.do("sudo narthex confirm")
	s.note("Five reports a second are still many.")
	s.do("sudo narthex set requests.report.rate 1/s")
	s.shows("sudo narthex events --kind reject --count 3", "report", "429")
	s.visited(5)
	return s.interrupt(t)
}

// mistake puts policies in force that are wrong, and comes back.
func (s *story) mistake() {
	s.note("A slip of the keyboard.")
	s.do("sed 's/per: source/per: sauce/' /etc/narthex/policy.yaml | sudo tee /etc/narthex/slip.yaml >/dev/null")
	_, code := s.try("sudo narthex reload /etc/narthex/slip.yaml")
	s.check(code == 2, "a reload of a wrong policy ends with exit code %d", code)
	s.visited(5)
	s.note("A policy that is sound, and not what was meant: it turns everybody away.")
	s.do(`sed 's/^requests:/&\n  - {name: bots, path: "\/*", action: reject}/' /etc/narthex/policy.yaml | sudo tee /etc/narthex/bots.yaml >/dev/null`)
	s.try("sudo narthex diff /etc/narthex/bots.yaml")
	s.do("sudo narthex reload --confirm 30s /etc/narthex/bots.yaml")
	s.visited(0)
	s.do("sudo narthex explain --from " + visitor + " --to 10.7.0.1:80 --url http://10.7.0.1/")
	s.note("Nobody confirms it.")
	s.shows("sudo narthex status", "policy /etc/narthex/policy.yaml", "taken back, as nobody has confirmed it")
	s.visited(5)
	s.note("And by hand, with the pause switch until one has understood.")
	s.do("sudo narthex set services.nginx.mode shadow --for 10m")
	s.do("sudo narthex reload /etc/narthex/policy.yaml")
	s.visited(5)
}

// leave takes all of it away again.
func (s *story) leave() {
	s.do("sudo systemctl disable --now narthex && sudo narthex detach")
	s.do("sudo rm /etc/narthex/slip.yaml /etc/narthex/bots.yaml; sudo ip netns del net")
}

// note tells what somebody thinks.
func (s *story) note(text string) { s.tell("## %s\n", text) }
