// SPDX-License-Identifier: Apache-2.0

package nginx

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"narthex/internal/importer/draft"
)

// config is what is of interest in a configuration.
type config struct {
	draft     *draft.Draft
	zones     map[string]*zone
	variables map[string]*variable
	servers   []*server
	streams   []*server
	trusted   []string // set_real_ip_from
	header    *directive
	followed  int
}

// zone is a limit_req_zone or a limit_conn_zone.
type zone struct {
	draft.Origin
	text  string
	name  string
	count int // 0: of a limit_conn_zone
	per   time.Duration
	rate  string // count and per as a policy has them, with a note if that was rounded
	note  string
	key   key
	err   error // why it cannot be carried over
	rules int   // that were made of it
}

// limit is a limit_req or a limit_conn.
type limit struct {
	draft.Origin
	text   string
	zone   string
	burst  int
	delays bool // what is beyond the rate is not let in at once
	atOnce int  // of limit_conn; 0: a limit_req
}

// level is what holds in a block and those within, unless they say otherwise.
type level struct {
	requests []limit
	conns    []limit
	status   int // 0: nothing is said
}

func (l level) limits() []limit { return slices.Concat(l.requests, l.conns) }

// server is a server block.
type server struct {
	draft.Origin
	listens []listen
	names   []string
	level
	entries []entry
}

type listen struct {
	addr  string // as in a policy
	tls   bool
	other bool // default_server
}

// readHTTP reads an http block. Variables may be used before they are defined.
func (c *config) readHTTP(d *directive) {
	for _, e := range d.block {
		switch e.name {
		case "map":
			c.define(readMap(e))
		case "geo":
			c.define(readGeo(e))
		case "upstream":
			c.upstream(e)
		}
	}
	for _, e := range d.block {
		if e.name == "limit_req_zone" || e.name == "limit_conn_zone" {
			c.limitZone(e)
		}
	}
	base := c.level(d.block, level{})
	inherited := slices.DeleteFunc(slices.Clone(d.block), func(e *directive) bool { return e.name != "index" && e.name != "error_page" })
	for _, e := range d.block {
		if e.name == "server" && e.opens {
			c.server(e, base)
			c.redirectsIn(e, inherited, own(e.block, base.limits()))
		}
	}
}

func (c *config) define(name string, v *variable) {
	if v != nil {
		c.variables[name] = v
	}
}

// zoneName returns the key and name in a zone's directive.
func zoneName(d *directive) (key, name string, ok bool) {
	for _, a := range d.args {
		if zone, is := strings.CutPrefix(a, "zone="); is {
			name, _, _ = strings.Cut(zone, ":")
			ok = true
		} else if !strings.HasPrefix(a, "rate=") {
			key = a
		}
	}
	return key, name, ok
}

func (c *config) limitZone(d *directive) {
	text, name, ok := zoneName(d)
	if !ok {
		c.draft.Leave(d.Origin, d.text(), "it names no zone", "")
		return
	}
	z := &zone{Origin: d.Origin, text: d.text(), name: name, count: 1, per: time.Second}
	if d.name == "limit_conn_zone" {
		z.count = 0
	}
	c.zones[name] = z
	for _, a := range d.args {
		if rate, is := strings.CutPrefix(a, "rate="); is {
			number, unit := strings.CutSuffix(rate, "r/s")
			if !unit {
				number, unit = strings.CutSuffix(rate, "r/m")
				z.per = time.Minute
			}
			n, err := strconv.Atoi(number)
			if !unit || err != nil || n < 1 {
				c.draft.Leave(d.Origin, d.text(), "its rate is not understood", "write one as 10r/s or 30r/m")
				delete(c.zones, name)
				return
			}
			z.count = n
		}
	}
	z.key, z.err = c.key(text)
}

// level reads what limits a block has of its own.
func (c *config) level(block []*directive, outer level) level {
	l := outer
	var requests, conns []limit
	for _, e := range block {
		switch e.name {
		case "limit_req":
			requests = append(requests, c.limit(e))
		case "limit_conn":
			if l, ok := connLimit(e); ok {
				conns = append(conns, l)
			}
		case "limit_req_status", "limit_conn_status":
			if n, err := strconv.Atoi(strings.Join(e.args, "")); err == nil {
				l.status = n
			}
		case "limit_req_dry_run":
			if slices.Equal(e.args, []string{"on"}) {
				c.draft.Leave(e.Origin, e.text(), "in Narthex a service is in shadow mode, not one rule", "all of this policy is in shadow mode until you take that out")
			}
		case "set_real_ip_from":
			c.trust(e)
		case "real_ip_header":
			c.header = e
		}
	}
	if requests != nil {
		l.requests = requests
	}
	if conns != nil {
		l.conns = conns
	}
	return l
}

func (c *config) limit(d *directive) limit {
	l := limit{Origin: d.Origin, text: d.text(), delays: true}
	for _, a := range d.args {
		name, value, _ := strings.Cut(a, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "zone":
			l.zone = value
		case "burst":
			l.burst = max(n, 0)
		case "nodelay":
			l.delays = false
		case "delay":
			l.delays = n < l.burst
		}
	}
	l.delays = l.delays && l.burst > 0
	return l
}

// connLimit reads a limit_conn.
func connLimit(d *directive) (limit, bool) {
	if len(d.args) != 2 {
		return limit{}, false
	}
	n, err := strconv.Atoi(d.args[1])
	return limit{Origin: d.Origin, text: d.text(), zone: d.args[0], atOnce: n}, err == nil && n > 0
}

func (c *config) upstream(d *directive) {
	for _, e := range d.block {
		for _, a := range e.args {
			if e.name == "server" && strings.HasPrefix(a, "max_conns=") {
				c.draft.Leave(e.Origin, e.text(), "Narthex limits what is in service at nginx, not behind it", "if all requests go there, the sum over the servers may do for concurrency")
			}
		}
	}
}

// trust notes a proxy whose word about the client counts.
func (c *config) trust(d *directive) {
	text := strings.Join(d.args, "")
	if a, err := netip.ParseAddr(text); err == nil {
		text = a.String()
	} else if p, err := netip.ParsePrefix(text); err == nil {
		text = p.Masked().String()
	} else {
		c.draft.Leave(d.Origin, d.text(), "a trusted proxy is an address or a prefix", "")
		return
	}
	if !slices.Contains(c.trusted, text) {
		c.trusted = append(c.trusted, text)
	}
}

// server reads a server block.
func (c *config) server(d *directive, outer level) {
	s := &server{Origin: d.Origin}
	allTLS := false
	for _, e := range d.block {
		switch e.name {
		case "listen":
			if l, ok := c.listen(e); ok {
				s.listens = append(s.listens, l)
			}
		case "server_name":
			s.names = append(s.names, e.args...)
		case "ssl": // until nginx 1.25
			allTLS = slices.Equal(e.args, []string{"on"})
		}
	}
	if !slices.ContainsFunc(d.block, func(e *directive) bool { return e.name == "listen" }) {
		s.listens = []listen{{addr: "*:80"}}
	}
	for i := range s.listens {
		s.listens[i].tls = s.listens[i].tls || allTLS
	}
	s.level = c.level(d.block, outer)
	s.entries = c.locations(d.Origin, d.block, s.level)
	c.redirects(d, outer.limits())
	c.servers = append(c.servers, s)
}
