// SPDX-License-Identifier: Apache-2.0

package starter

import (
	"fmt"
	"strings"

	"narthex/internal/policy"
)

// placeholder is the name of the service that stands in where there is no web server, for a policy has a service.
const placeholder = "web"

// advise adds what one has to know of each service, and of them together.
func (p *Plan) advise() {
	front := p.front()
	var apps []string
	for i := range p.Services {
		s := &p.Services[i]
		behind := front != nil && !s.same(front) && s.Protocol == string(policy.HTTP)
		switch {
		case s.loopback && behind:
			apps = append(apps, s.Listen[0])
			s.Trusts = []string{"127.0.0.1", "::1"}
			s.remark("Behind %s, it seems. Here requests can be read: they wait here, and rules in \"requests\" act here.", front.whose())
			s.remark("Who asks is whom the proxy names in X-Forwarded-For: have it set that header.")
		case s.loopback:
			s.remark("Only this machine can reach it. lo is policed because it is named.")
		case s.Protocol == string(policy.TLS):
			s.remark("TLS: what is inside cannot be read here. Rules in \"connections\" act here, and request rules with sni or alpn.")
		case behind && !s.proxy && s.Program != "":
			s.remark("If %s passes requests on to it, these come through lo: write \"interfaces: [lo]\" to have them wait here.", front.whose())
		}
	}
	if len(apps) > 0 {
		p.chooseWhere(front, apps)
	}
	if len(p.Services) == 0 {
		p.Services = append(p.Services, Service{Name: placeholder, Listen: []string{"*:80"}, Protocol: string(policy.HTTP)})
		p.Services[0].remark("No web server was found. Write here where yours listens.")
		p.note("no web server listens here: write in the policy where yours will")
	}
}

// chooseWhere explains the choice between a proxy that ends TLS and what is behind it.
func (p *Plan) chooseWhere(front *Service, apps []string) {
	p.note("%s ends TLS on this machine, for %s, it seems. Inside TLS nothing can be read, so that the place for request rules, classes and waiting is "+
		"between the two, on lo, and the place for rules on connections is the proxy, where clients open them. The policy has both", front.whose(), strings.Join(firstOf(apps), " and "))
	for i := range p.Services {
		s := &p.Services[i]
		if s.proxy && !s.loopback && s.Protocol == string(policy.HTTP) {
			s.remark("If its requests go to %s, they wait there: write \"concurrency: unlimited\" here, lest they wait twice.", strings.Join(firstOf(apps), " or "))
		}
	}
}

func (s *Service) remark(format string, args ...any) {
	s.Remarks = append(s.Remarks, fmt.Sprintf(format, args...))
}

// whose names the server in a sentence.
func (s *Service) whose() string {
	if s.Program == "" {
		return "the server on " + s.Listen[0]
	}
	return fmt.Sprintf("%s (%s)", s.Program, s.Listen[0])
}

// firstOf shortens a list.
func firstOf(list []string) []string {
	const most = 3
	if len(list) <= most {
		return list
	}
	return append(list[:most:most], "others")
}
