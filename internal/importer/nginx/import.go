// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"slices"
	"strings"

	"narthex/internal/importer/draft"
	"narthex/internal/policy"
)

// Import makes a draft of a configuration. The error is a *draft.SyntaxError.
func Import(name string, text []byte, files draft.Files) (*draft.Draft, error) {
	d := &draft.Draft{}
	p := &parser{files: files, draft: d}
	list, err := p.file(name, text, 0)
	if err != nil {
		return nil, err
	}
	c := &config{draft: d, zones: map[string]*zone{}, variables: map[string]*variable{}}
	c.read(list)
	c.services()
	c.rules()
	return d, nil
}

// read reads the top level. A file that is included in an http block stands there alone, too.
func (c *config) read(list []*directive) {
	bare := &directive{}
	for _, e := range list {
		switch e.name {
		case "http":
			c.readHTTP(e)
		case "stream":
			c.readStream(e)
		case "server", "limit_req_zone", "limit_req", "limit_conn_zone", "limit_conn", "map", "geo", "upstream", "set_real_ip_from", "real_ip_header":
			bare.block = append(bare.block, e)
		}
	}
	if len(bare.block) > 0 {
		c.readHTTP(bare)
	}
}

// readStream reads servers of TCP.
func (c *config) readStream(d *directive) {
	for _, e := range d.block {
		if e.name != "server" {
			continue
		}
		s := &server{Origin: e.Origin}
		for _, f := range e.block {
			switch f.name {
			case "listen":
				if l, ok := c.listen(f); ok {
					s.listens = append(s.listens, l)
				}
			case "limit_conn":
				c.draft.Leave(f.Origin, f.text(), "what a server of the stream module may have at once is not carried over",
					"write a connection rule with limits: [{at_once: N, per: source}]")
			}
		}
		c.streams = append(c.streams, s)
	}
}

// services makes a service of all that nginx listens at, for each protocol.
func (c *config) services() {
	plain := &draft.Service{Protocol: policy.HTTP, Name: "web"}
	tls := &draft.Service{Protocol: policy.TLS, Name: "web-tls", Note: []string{"What is within TLS cannot be seen: connections wait here, and rules about requests do not hold."}}
	secret := map[string]bool{}
	for _, s := range c.servers {
		for _, l := range s.listens {
			secret[l.addr] = secret[l.addr] || l.tls
		}
	}
	for _, s := range c.servers {
		for i, l := range s.listens {
			s.listens[i].tls = secret[l.addr]
			of := plain
			if secret[l.addr] {
				of = tls
			}
			add(of, s.Origin, l.addr)
		}
		c.withinTLS(s)
	}
	for _, s := range []*draft.Service{plain, tls} {
		if len(s.Listen) > 0 {
			c.proxies(s)
			s.Name = c.draft.Name("service", s.Name)
			c.draft.Services = append(c.draft.Services, s)
		}
	}
	for _, s := range c.streams {
		of := &draft.Service{Protocol: policy.TCP, Note: []string{"A server of the stream module."}}
		for _, l := range s.listens {
			if l.tls {
				of.Protocol = policy.TLS
			}
			add(of, s.Origin, l.addr)
		}
		if len(of.Listen) > 0 {
			of.Name = c.draft.Name("service", "stream")
			c.draft.Services = append(c.draft.Services, of)
		}
	}
	c.everywhere(plain)
}

func add(s *draft.Service, at draft.Origin, addr string) {
	if s.Origin.Line == 0 {
		s.Origin = at
	}
	if !slices.Contains(s.Listen, addr) {
		s.Listen = append(s.Listen, addr)
	}
}

// withinTLS lists the limits of a server that clients reach by TLS.
func (c *config) withinTLS(s *server) {
	if !slices.ContainsFunc(s.listens, func(l listen) bool { return l.tls }) {
		return
	}
	for _, e := range s.entries {
		for _, l := range e.limits() {
			c.draft.Leave(l.Origin, l.text, "requests within TLS are not visible, so that this limit does not hold for them",
				"run Narthex between what ends TLS and the application, or limit connections: a connection rule with rate and per: source")
		}
	}
}

func (c *config) proxies(s *draft.Service) {
	if len(c.trusted) == 0 {
		return
	}
	if c.header == nil || len(c.header.args) != 1 || !slices.Contains([]string{"x-forwarded-for", "proxy_protocol"}, strings.ToLower(c.header.args[0])) {
		at := draft.Origin{File: s.File, Line: s.Line}
		what := "real_ip_header X-Real-IP"
		if c.header != nil {
			at, what = c.header.Origin, c.header.text()
		}
		c.draft.Leave(at, what, "Narthex learns of the client by X-Forwarded-For or the PROXY protocol", "have the proxy send one of them and name it in trusted_proxies")
		return
	}
	s.TrustedProxies = c.trusted
}

// everywhere lists servers whose limits hold at more addresses than in nginx.
func (c *config) everywhere(plain *draft.Service) {
	for _, s := range c.servers {
		var here []string
		for _, l := range s.listens {
			if !l.tls {
				here = append(here, l.addr)
			}
		}
		if len(here) > 0 && len(here) < len(plain.Listen) && s.limited() {
			c.draft.Leave(s.Origin, "server at "+strings.Join(here, ", "), "rules hold at every address where its host is asked for, not at these alone",
				"if limits differ by port, make a policy for each and run them as instances: narthex run --instance NAME")
		}
	}
}
