// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"strings"

	"narthex/test/docs/blocks"
)

// scenes are what pages find on their machine when that is more or less than an installed
// narthex.
var scenes = map[string]func(*scene){
	"docs/tutorial.md": func(*scene) {}, // it installs
	"docs/operations.md": func(s *scene) {
		s.install()
		s.write("shop.yaml", shop)
		s.write("/etc/narthex/policy.yaml", strings.ReplaceAll(standing, "concurrency: 8", "concurrency: auto"))
	},
}

// shop is the policy of which operations.md asks what becomes of a request.
const shop = `version: 1
services: [{name: shop, listen: "10.1.1.1:80", concurrency: 32}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
requests: [{name: search, path: "/search*", rate: 10/s, burst: 20, per: source, block: 3s}]
`

// needs brings about what a block needs.
func (p *page) needs(b *blocks.Block) error {
	for need := range strings.SplitSeq(b.Words["needs"], ",") {
		switch need {
		case "":
		case "nginx":
			p.on().nginx()
		case "policy":
			p.on().standingPolicy()
		case "daemon":
			if err := p.standing(b); err != nil {
				return err
			}
		default:
			return fmt.Errorf("nothing is known of needs=%s", need)
		}
	}
	return nil
}

// nginx starts the distribution's nginx as it is configured, as its package does.
func (s *scene) nginx() {
	s.do("[ -e /run/nginx.pid ] || nginx")
}

// standing is what is enforced unless the page has written another policy.
const standing = `version: 1
services: [{name: web, listen: "*:80", interfaces: [eth0, lo], concurrency: 8}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2, reserve: 10%}]
connections: [{name: everyone, rate: 100/s, burst: 100, per: source}]
requests:
  - {name: search, path: "/search*", rate: 10/s, burst: 5, per: source}
  - {name: members, cookie: {session: "*"}, class: gold}
`

// standingPolicy writes the standing policy if the page has written none.
func (s *scene) standingPolicy() {
	if s.do("ls /etc/narthex") == "" {
		s.write("/etc/narthex/policy.yaml", standing)
	}
}

// standing sees to it that a daemon is up.
func (p *page) standing(b *blocks.Block) error {
	s := p.on()
	out, _, err := s.terminal("probe", "server").run(repository + "/bin/narthex status --json")
	if err != nil || strings.Contains(out, `"pid": `) {
		return err
	}
	s.standingPolicy()
	run := blocks.Command{Text: repository + "/bin/narthex run --policy /etc/narthex/policy.yaml --metrics 9464 --refusals /var/log/narthex"}
	return p.daemon(s.terminal("daemon", "server"), b, run)
}
