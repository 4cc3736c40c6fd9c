// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"slices"
	"strings"
	"time"

	"narthex/internal/importer/draft"
)

// config is what is of interest in a configuration.
type config struct {
	draft   *draft.Draft
	proxies map[string]*proxy // by name
	tables  map[string]*table
	taken   map[string]bool // addresses that have a service
	of      map[*proxy][]*draft.Service
	list    []*proxy
	seen    map[draft.Origin]bool // lines with counters that are carried over or listed
	room    map[*proxy]string     // backends, and the service that has their servers' maxconn
	excepts map[*draft.Rule]bool  // rules for addresses that stand before a rate
}

// table is a stick table.
type table struct {
	line
	address bool
	periods map[string]time.Duration // of rates, by counter
}

// Import makes a draft of a configuration. The error is a *draft.SyntaxError.
func Import(name string, text []byte, files draft.Files, env Lookup) (*draft.Draft, error) {
	d := &draft.Draft{}
	sections, err := parse(name, text, env, d)
	if err != nil {
		return nil, err
	}
	c := &config{draft: d, proxies: map[string]*proxy{}, tables: map[string]*table{}, taken: map[string]bool{}, of: map[*proxy][]*draft.Service{},
		seen: map[draft.Origin]bool{}, room: map[*proxy]string{}, excepts: map[*draft.Rule]bool{}}
	c.read(sections, files)
	classes := c.classes()
	made := map[*proxy][]*draft.Rule{} // of requests
	for _, p := range c.list {
		if p.kind == "backend" {
			continue
		}
		c.services(p)
		if len(p.service) == 0 {
			continue
		}
		c.connections(p)
		before := len(d.Requests)
		c.requests(p, classes)
		made[p] = d.Requests[before:]
		c.allowed(p)
		c.others(p)
	}
	c.rest(sections)
	if len(d.Services) > 1 {
		for p, rules := range made {
			for _, r := range rules {
				r.To = p.service
			}
		}
	}
	return d, nil
}

// read sorts sections out. A section has the defaults before it, or those it names.
func (c *config) read(sections []*section, files draft.Files) {
	named := map[string]*section{}
	var last *section
	for _, s := range sections {
		if !s.matters() {
			continue
		}
		if s.kind == "defaults" {
			last = s
			named[s.name] = s
			continue
		}
		p := &proxy{section: s, defaults: last, files: files, draft: c.draft}
		if i := slices.Index(s.words, "from"); i > 0 && i+1 < len(s.words) {
			p.defaults = named[s.words[i+1]]
		}
		if s.kind != "backend" && len(s.words) > 2 && s.words[2] != "from" {
			s.lines = append([]line{{s.Origin, []string{"bind", s.words[2]}}}, s.lines...)
		}
		c.proxies[s.name] = p
		c.list = append(c.list, p)
		for _, l := range s.lines {
			if l.words[0] == "stick-table" {
				c.tables[s.name] = readTable(l)
			}
		}
	}
}

func readTable(l line) *table {
	t := &table{line: l, periods: map[string]time.Duration{}}
	for i := 1; i+1 < len(l.words); i++ {
		switch l.words[i] {
		case "type":
			t.address = l.words[i+1] == "ip" || l.words[i+1] == "ipv6"
		case "store":
			for _, kind := range strings.Split(l.words[i+1], ",") {
				name, arg := fetchOf(kind)
				period, err := duration(arg)
				if err != nil {
					period = 0 // a counter that is no rate has none
				}
				t.periods[name] = period
			}
		}
	}
	return t
}

// others lists limits that have no counterpart.
func (c *config) others(p *proxy) {
	if l := p.first("maxconn"); l != nil {
		c.draft.Leave(l.Origin, l.text(), "it is a limit of connections, idle ones among them", "concurrency limits what is in service; a connection rule limits the rate of new connections")
	}
	for _, l := range p.lines {
		if l.begins("http-request", "set-priority-offset") {
			c.draft.Leave(l.Origin, l.text(), "within a class who came first is first", "use a class")
		}
	}
	for _, b := range c.backends(p) {
		if b == nil {
			continue
		}
		for _, l := range b.lines {
			if option(l.words, "maxqueue") > 0 || option(l.words, "minconn") > 0 || l.begins("fullconn") {
				c.draft.Leave(l.Origin, l.text(), "maxqueue, minconn and fullconn are not carried over", "queue: {size: …} bounds who waits; a limit that follows the load is concurrency: auto")
			}
		}
	}
}
