// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"narthex/internal/importer/draft"
	"narthex/internal/policy"
)

// proxy is a frontend, backend or listen section with its defaults.
type proxy struct {
	*section
	defaults *section
	files    draft.Files
	draft    *draft.Draft
	service  []string // names of the services made of it
}

// first returns the first line that begins so, of the section or its defaults.
func (p *proxy) first(words ...string) *line {
	for _, s := range []*section{p.section, p.defaults} {
		if s == nil {
			continue
		}
		for i, l := range s.lines {
			if l.begins(words...) {
				return &s.lines[i]
			}
		}
	}
	return nil
}

// tcp reports whether the proxy does not read requests.
func (p *proxy) tcp() bool {
	mode := p.first("mode")
	return mode == nil || len(mode.words) < 2 || mode.words[1] != "http"
}

// listening is where a proxy listens.
type listening struct {
	addrs []string
	at    draft.Origin
}

// binds returns the addresses with TLS and those without.
func (p *proxy) binds() (plain, tls listening) {
	for _, l := range p.lines {
		if l.words[0] != "bind" || len(l.words) < 2 {
			continue
		}
		to := &plain
		if slices.Contains(l.words, "ssl") {
			to = &tls
		}
		for _, text := range strings.Split(l.words[1], ",") {
			addrs, err := listenAddrs(text)
			if err != nil {
				p.draft.Leave(l.Origin, l.text(), err.Error(), "")
			}
			if to.at.Line == 0 {
				to.at = l.Origin
			}
			to.addrs = append(to.addrs, addrs...)
		}
		if slices.Contains(l.words, "accept-proxy") {
			p.draft.Leave(l.Origin, l.text(), "it is not said whose PROXY header is true", "name the proxies: trusted_proxies in the service")
		}
	}
	return plain, tls
}

// maxPorts is how many ports of a range are written one by one.
const maxPorts = 64

// listenAddrs writes an address of a bind line as a policy does.
func listenAddrs(text string) ([]string, error) {
	noTCP := errors.New("a service listens at an IP address and a port of TCP")
	if prefix, rest, ok := strings.Cut(text, "@"); ok {
		if !slices.Contains([]string{"ipv4", "ipv6", "tcp", "tcp4", "tcp6"}, prefix) {
			return nil, noTCP
		}
		text = rest
	}
	host, ports, ok := cutLast(text, ":")
	if !ok {
		return nil, noTCP
	}
	host = strings.Trim(host, "[]")
	first, last, isRange := strings.Cut(ports, "-")
	if !isRange {
		last = first
	}
	a, err := strconv.ParseUint(first, 10, 16)
	b, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || a == 0 || b < a {
		return nil, noTCP
	}
	if b-a >= maxPorts {
		return nil, fmt.Errorf("it is a range of more than %d ports", maxPorts)
	}
	addr, err := netip.ParseAddr(host)
	if host != "" && host != "*" && (err != nil || addr.Zone() != "") {
		return nil, noTCP
	}
	var out []string
	for port := a; port <= b; port++ {
		if !addr.IsValid() || addr.IsUnspecified() {
			out = append(out, fmt.Sprintf("*:%d", port))
		} else {
			out = append(out, netip.AddrPortFrom(addr.Unmap(), uint16(port)).String())
		}
	}
	return out, nil
}

// services makes services of what the proxy listens at.
func (c *config) services(p *proxy) {
	plain, tls := p.binds()
	wish := p.name
	if wish == "" {
		wish = p.kind
	}
	for _, l := range []struct {
		listening
		suffix   string
		protocol policy.Protocol
	}{{plain, "", policy.HTTP}, {tls, "-tls", policy.TLS}} {
		s := &draft.Service{Origin: l.at, Protocol: l.protocol}
		for _, addr := range l.addrs {
			if !c.taken[addr] {
				c.taken[addr] = true
				s.Listen = append(s.Listen, addr)
			}
		}
		if len(s.Listen) == 0 {
			continue
		}
		if l.suffix != "" && len(plain.addrs) == 0 {
			l.suffix = ""
		}
		if p.tcp() && l.protocol == policy.HTTP {
			s.Protocol = policy.TCP
			if p.asksSNI() {
				s.Protocol = policy.TLS
			}
		}
		if l.protocol == policy.TLS {
			s.Note = append(s.Note, "What is within TLS cannot be seen: connections wait here, and rules about requests do not hold.")
		}
		s.Name = c.draft.Name("service", wish+l.suffix)
		p.service = append(p.service, s.Name)
		c.waitingRoom(p, s)
		c.draft.Services = append(c.draft.Services, s)
		c.of[p] = append(c.of[p], s)
	}
}

// asksSNI reports whether a TCP proxy reads ClientHellos.
func (p *proxy) asksSNI() bool {
	return slices.ContainsFunc(p.lines, func(l line) bool {
		return slices.ContainsFunc(l.words, func(w string) bool {
			return strings.HasPrefix(w, "req_ssl_sni") || strings.HasPrefix(w, "req.ssl_sni")
		})
	})
}

// backends returns the backends that a proxy's requests may go to.
func (c *config) backends(p *proxy) []*proxy {
	var out []*proxy
	for _, l := range append(slices.Clone(p.lines), defaultsOf(p)...) {
		if (l.words[0] != "default_backend" && l.words[0] != "use_backend") || len(l.words) < 2 {
			continue
		}
		if l.words[0] == "default_backend" && slices.ContainsFunc(out, func(b *proxy) bool { return b != nil && b.name == l.words[1] }) {
			continue
		}
		out = append(out, c.proxies[l.words[1]])
	}
	if p.kind == "listen" && slices.ContainsFunc(p.lines, func(l line) bool { return strings.HasPrefix(l.words[0], "server") }) {
		out = append(out, p)
	}
	return out
}

func defaultsOf(p *proxy) []line {
	if p.defaults == nil || slices.ContainsFunc(p.lines, func(l line) bool { return l.words[0] == "default_backend" }) {
		return nil
	}
	return p.defaults.lines
}

// waitingRoom makes a waiting room of the servers' maxconn, if all requests go to them.
func (c *config) waitingRoom(p *proxy, s *draft.Service) {
	backends := c.backends(p)
	if len(backends) != 1 || backends[0] == nil {
		for _, b := range backends {
			if b != nil {
				c.leaveMaxconn(b, "the requests of "+p.name+" go to several backends, and a service has one limit")
			}
		}
		return
	}
	b := backends[0]
	sum, all := b.maxconn()
	if sum == 0 {
		return
	}
	if !all {
		c.leaveMaxconn(b, "other servers of this backend have no maxconn, so that there is no limit on all of them")
		return
	}
	if with := c.room[b]; with != "" {
		c.draft.Leave(s.Origin, "service "+s.Name, fmt.Sprintf("its requests go to %s %s, too, and what the servers there may have at once is the concurrency of service %s already", b.kind, b.name, with),
			"divide it between the two by hand, or put the addresses of both in one service")
		return
	}
	c.room[b] = s.Name
	s.Concurrency = strconv.Itoa(sum)
	s.Note = append(s.Note, fmt.Sprintf("The sum of maxconn of the servers in %s %s.", b.kind, b.name))
	if t := b.first("timeout", "queue"); t != nil && len(t.words) > 2 {
		c.maxWait(s, *t)
	}
}

func (c *config) maxWait(s *draft.Service, l line) {
	wait, err := duration(l.words[2])
	if err != nil {
		c.draft.Leave(l.Origin, l.text(), err.Error(), "")
		return
	}
	if wait > time.Minute {
		c.draft.Leave(l.Origin, l.text(), "max_wait is at most 1m, which is what it is now", "")
		wait = time.Minute
	}
	if wait = wait.Truncate(time.Millisecond); wait > 0 {
		s.MaxWait = strings.TrimSuffix(wait.String(), "m0s")
		if wait%time.Minute == 0 {
			s.MaxWait += "m"
		}
	}
}
