// SPDX-License-Identifier: Apache-2.0

package starter

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"narthex/internal/policy"
)

// Plan is what a policy to start from says.
type Plan struct {
	Services []Service `json:"services"`
	LeftOut  []LeftOut `json:"left_out"`
	Notes    []string  `json:"notes"` // what to know before it is used
}

// Service is a server to protect.
type Service struct {
	Name       string   `json:"name"`
	Listen     []string `json:"listen"`
	Interfaces []string `json:"interfaces,omitempty"` // default: all with an address, but lo
	Protocol   string   `json:"protocol"`
	Program    string   `json:"program,omitempty"`
	PID        int      `json:"pid,omitempty"`
	Trusts     []string `json:"trusted_proxies,omitempty"`
	Remarks    []string `json:"remarks,omitempty"` // why it is as it is

	port            uint16
	proxy, loopback bool
}

// LeftOut is a listener that the policy does not protect.
type LeftOut struct {
	Listen  string `json:"listen"`
	Program string `json:"program,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Why     string `json:"why"`

	service *Service // what it would be; nil if it is surely no web server
}

// maxServices leaves room in a policy for services of one's own.
const maxServices = policy.MaxServices / 2

// Make plans a policy for what listens.
func Make(found []Listener) *Plan {
	p := &Plan{Services: []Service{}, LeftOut: []LeftOut{}, Notes: []string{}}
	taken := map[string]bool{}
	unseen := 0
	for _, group := range grouped(found) {
		first, g := group[0], guessOf(group[0])
		s := serviceOf(group, g, taken)
		if first.Program == "" {
			unseen++
		}
		if len(s.Listen) == 0 {
			continue // another service has all of it
		}
		switch {
		case g.web && len(p.Services) < maxServices:
			p.Services = append(p.Services, s)
		case g.web:
			p.leaveOut(s, "one more than a policy to start from has", false)
		default:
			p.leaveOut(s, g.why, g.maybe)
		}
	}
	p.chooseLoopback()
	p.advise()
	p.name()
	switch unseen {
	case 0:
	case 1:
		p.note("one port is of a program that could not be seen (root sees all), and is judged by its number")
	default:
		p.note("%d ports are of programs that could not be seen (root sees all), and are judged by their numbers", unseen)
	}
	return p
}

func (p *Plan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

func (p *Plan) leaveOut(s Service, why string, maybe bool) {
	for i, listen := range s.Listen {
		out := LeftOut{Listen: listen, Program: s.Program, PID: s.PID, Why: why}
		if maybe && i == 0 {
			out.service = &s
		}
		p.LeftOut = append(p.LeftOut, out)
	}
}

// grouped puts together the listeners that make one service: those of one program at one port,
// apart from those that only this machine can reach.
func grouped(found []Listener) (groups [][]Listener) {
	type key struct {
		program, device string
		port            uint16
		loopback        bool
	}
	at := map[key]int{}
	for _, l := range found {
		k := key{l.Program, l.Device, l.At.Port(), l.At.Addr().IsLoopback()}
		i, ok := at[k]
		if !ok {
			i = len(groups)
			at[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], l)
	}
	return groups
}

// serviceOf makes a service of a group, of the addresses that are not taken yet.
func serviceOf(group []Listener, g guess, taken map[string]bool) Service {
	first := group[0]
	s := Service{
		Program: printable(first.Program), PID: first.PID, Protocol: string(policy.HTTP),
		port: first.At.Port(), proxy: g.proxy, loopback: first.At.Addr().IsLoopback(),
	}
	if g.tls {
		s.Protocol = string(policy.TLS)
	}
	switch {
	case first.Device != "":
		s.Interfaces = []string{first.Device}
	case s.loopback:
		s.Interfaces = []string{"lo"}
	}
	for _, l := range group {
		if l.At.Addr().IsUnspecified() {
			group = []Listener{l} // the others are part of it
			break
		}
	}
	for _, l := range group {
		listen := l.At.String()
		if l.At.Addr().IsUnspecified() {
			listen = fmt.Sprintf("*:%d", l.At.Port())
		}
		if !taken[listen] {
			taken[listen] = true
			s.Listen = append(s.Listen, listen)
		}
	}
	return s
}

// chooseLoopback leaves servers out that only this machine can reach, unless a proxy before them
// ends TLS, so that requests can be read nowhere else, or there are no others.
func (p *Plan) chooseLoopback() {
	front := p.front()
	public := slices.ContainsFunc(p.Services, func(s Service) bool { return !s.loopback })
	var chosen []Service
	for _, s := range p.Services {
		switch {
		case !s.loopback || !public:
			chosen = append(chosen, s)
		case front != nil && !s.same(front):
			chosen = append(chosen, s)
		case front != nil:
			p.leaveOut(s, "of the proxy itself, for this machine alone", true)
		default:
			p.leaveOut(s, "only this machine can reach it; requests from elsewhere wait at the services above", true)
		}
	}
	p.Services = chosen
}

// front is the first server that ends TLS for others, or nil.
func (p *Plan) front() *Service {
	for i := range p.Services {
		if s := &p.Services[i]; s.proxy && !s.loopback && s.Protocol == string(policy.TLS) {
			return s
		}
	}
	return nil
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// name gives services names: that of the program, with the port where it has several.
func (p *Plan) name() {
	all := make([]*Service, 0, len(p.Services)+len(p.LeftOut))
	for i := range p.Services {
		all = append(all, &p.Services[i])
	}
	for i := range p.LeftOut {
		if s := p.LeftOut[i].service; s != nil {
			all = append(all, s)
		}
	}
	used := map[string]int{}
	for _, s := range all {
		used[s.base()]++
	}
	given := map[string]bool{}
	for _, s := range all {
		name := s.base()
		if used[name] > 1 || name == "port" {
			name = fmt.Sprintf("%s-%d", name, s.port)
		}
		for i, base := 2, name; given[name]; i++ {
			name = fmt.Sprintf("%s-%d", base, i)
		}
		given[name] = true
		s.Name = name
	}
}

// same reports whether two services are surely of one program.
func (s *Service) same(other *Service) bool { return s.Program != "" && s.Program == other.Program }

// base is a name that says what the service is; it may not be unique. Programs have at most
// 15 bytes in their names, or 255 if those of files.
func (s *Service) base() string {
	if s.Name != "" {
		return s.Name
	}
	name := strings.Trim(notInName.ReplaceAllString(s.Program, "-"), "-_")
	if name == "" {
		return "port"
	}
	return strings.TrimRight(name[:min(len(name), 32)], "-_")
}

// printable returns a program's name without what could end a comment or confuse a terminal:
// a program can call itself anything.
func printable(program string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, program)
}

// scope says whether an address is one that others can reach.
func scope(listen string) string {
	if at, err := netip.ParseAddrPort(listen); err == nil && at.Addr().IsLoopback() {
		return "through lo alone"
	}
	return "from the network"
}
