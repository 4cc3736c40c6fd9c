// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Defaults and bounds of a service.
const (
	defaultQueueSize  = 4096
	defaultMaxWait    = 5 * time.Second
	defaultStatus     = 503
	defaultRetryAfter = time.Second
	maxQueueSize      = 65_536
	maxConcurrency    = 1_000_000
	maxWaitBound      = 60 * time.Second // request sockets die at 63 s
	maxInterfaceBytes = 15               // IFNAMSIZ less the NUL
)

// DefaultMaxService is when a request that did not leave service is given up for lost,
// unless the policy says otherwise.
const DefaultMaxService = 60 * time.Second

func (d *decoder) service(n *yaml.Node) Service {
	s := Service{
		Pos: position(n), XDP: XDPAuto, Protocol: HTTP, ServiceEnds: EndAuto, H2C: H2CReject,
		Queue: Queue{defaultQueueSize, defaultMaxWait, DefaultMaxService},
	}
	rejectAt := (*yaml.Node)(nil)
	seen := d.mapping(n, "a service", slices.Concat(d.whereFields(&s), d.roomFields(&s, &rejectAt)))
	if seen == nil {
		return s
	}
	d.required(n, "a service", seen, "name", `a word of your choice`)
	d.required(n, "a service", seen, "listen", `where the server listens, as "*:80"`)
	d.protocolFits(&s, rejectAt, seen)
	d.loopbackSeen(&s)
	d.plainlySpoken(&s)
	return s
}

// whereFields are the keys that say what a service is and where it is policed.
func (d *decoder) whereFields(s *Service) []field {
	return []field{
		{"name", func(n *yaml.Node) { scalar(d, n, "name", &s.Name, parseName) }},
		{"listen", func(n *yaml.Node) { d.listens(n, s) }},
		{"interfaces", func(n *yaml.Node) { s.Interfaces = distinct(d, n, "interfaces", parseInterface) }},
		{"xdp", func(n *yaml.Node) {
			scalar(d, n, "xdp", &s.XDP, parseWord(XDPAuto, XDPNative, XDPGeneric, XDPOff))
			s.xdpAt = position(n)
		}},
		{"protocol", func(n *yaml.Node) { scalar(d, n, "protocol", &s.Protocol, parseWord(HTTP, TLS, TCP)) }},
	}
}

// roomFields are the keys of a service's waiting room, and mode.
func (d *decoder) roomFields(s *Service, rejectAt **yaml.Node) []field {
	return []field{
		{"concurrency", func(n *yaml.Node) {
			scalar(d, n, "concurrency", &s.Concurrency, parseConcurrency)
		}},
		{"queue", func(n *yaml.Node) { d.queue(n, &s.Queue) }},
		{"service_ends", func(n *yaml.Node) {
			scalar(d, n, "service_ends", &s.ServiceEnds, parseWord(EndAuto, EndFirstByte, EndClose))
		}},
		{"reject", func(n *yaml.Node) { s.Reject, *rejectAt = d.reject(n), n }},
		{"trusted_proxies", func(n *yaml.Node) { s.TrustedProxies = values(d, n, "trusted_proxies", parseRange) }},
		{"h2c", func(n *yaml.Node) { scalar(d, n, "h2c", &s.H2C, parseWord(H2CReject, H2CPass)) }},
		{"socket_mark", func(n *yaml.Node) {
			scalar(d, n, "socket_mark", &s.SocketMark, parseMark)
		}},
		{"mode", func(n *yaml.Node) {
			var mode string
			scalar(d, n, "mode", &mode, parseWord("enforce", "shadow"))
			s.Shadow = mode == "shadow"
		}},
	}
}

// required reports a key that is not there.
func (d *decoder) required(n *yaml.Node, what string, seen map[string]*yaml.Node, key, value string) {
	if seen[key] == nil {
		d.errorAt(n, "%s needs %q: %s", what, key, value)
	}
}

// protocolFits sets the reject that a service without one has. It reports a setting that
// means nothing to the service's protocol, and warns of values that mean another there.
func (d *decoder) protocolFits(s *Service, rejectAt *yaml.Node, seen map[string]*yaml.Node) {
	if s.Protocol == HTTP {
		if rejectAt == nil {
			s.Reject = Reject{Status: defaultStatus, RetryAfter: defaultRetryAfter}
		}
		return
	}
	if rejectAt != nil && !s.Reject.Reset {
		d.warnf(position(rejectAt), `reject: a %s service cannot answer with an HTTP status: who is not served gets a reset`, s.Protocol)
	}
	s.Reject = Reject{Reset: true}
	if s.ServiceEnds == EndFirstByte {
		d.warnf(position(seen["service_ends"]), `service_ends: first_byte is that of an HTTP response: in a %s service it means auto, that both sides are silent`, s.Protocol)
	}
	if n := seen["h2c"]; n != nil {
		d.errorAt(n, `"h2c" is about HTTP, and this is a %s service; remove it`, s.Protocol)
	}
}

func parseConcurrency(s string) (Concurrency, error) {
	switch s {
	case "auto":
		return Concurrency{Mode: ConcurrencyAuto}, nil
	case "unlimited":
		return Concurrency{Mode: ConcurrencyUnlimited}, nil
	}
	limit, err := parseInt(1, maxConcurrency)(s)
	if err != nil {
		return Concurrency{}, fmt.Errorf("%w, unlimited or auto", err)
	}
	return Concurrency{Mode: ConcurrencyFixed, Limit: limit}, nil
}

// String returns the limit as in a policy.
func (c Concurrency) String() string {
	switch c.Mode {
	case ConcurrencyUnlimited:
		return "unlimited"
	case ConcurrencyFixed:
		return fmt.Sprint(c.Limit)
	}
	return "auto"
}

// parseInterface checks a name as the kernel's dev_valid_name does.
func parseInterface(s string) (string, error) {
	switch {
	case s == "*" || s == "any" || s == "all":
		return "", fmt.Errorf("%s is not an interface; leave the key out for all that have an address", quote(s))
	case len(s) > maxInterfaceBytes || s == "." || s == ".." || strings.ContainsAny(s, "/: \t\r\n\v\f"):
		return "", fmt.Errorf("%s cannot be an interface's name; write one as `ip link` shows it, at most %d bytes", quote(s), maxInterfaceBytes)
	}
	return s, nil
}

// The parsers of a queue's values.
var (
	parseQueueSize  = parseInt(0, maxQueueSize)
	parseMaxWait    = parseDuration(time.Millisecond, maxWaitBound, time.Millisecond)
	parseMaxService = parseDuration(time.Second, time.Hour, time.Millisecond)
)

func (d *decoder) queue(n *yaml.Node, q *Queue) {
	d.mapping(n, "queue", []field{
		{"size", func(n *yaml.Node) { scalar(d, n, "size", &q.Size, parseQueueSize) }},
		{"max_wait", func(n *yaml.Node) {
			scalar(d, n, "max_wait", &q.MaxWait, parseMaxWait)
			if q.MaxWait > defaultMaxWait {
				d.warnf(position(n), "max_wait: after %s the kernel may have given a waiting connection up: it keeps them for 7 s when many wait", span(q.MaxWait))
			}
		}},
		{"max_service", func(n *yaml.Node) { scalar(d, n, "max_service", &q.MaxService, parseMaxService) }},
	})
}

func (d *decoder) reject(n *yaml.Node) Reject {
	r := Reject{Status: defaultStatus, RetryAfter: defaultRetryAfter}
	seen := d.mapping(n, "reject", []field{
		{"status", func(n *yaml.Node) { scalar(d, n, "status", &r.Status, parseInt(400, 599)) }},
		{"retry_after", func(n *yaml.Node) {
			scalar(d, n, "retry_after", &r.RetryAfter, parseDuration(0, 24*time.Hour, time.Second))
		}},
		{"reset", func(n *yaml.Node) { scalar(d, n, "reset", &r.Reset, parseBool) }},
	})
	if !r.Reset {
		return r
	}
	for _, key := range []string{"status", "retry_after"} {
		if k := seen[key]; k != nil {
			d.errorAt(k, `"reset: true" sends no answer that %q could be in; remove one of the two`, key)
		}
	}
	return Reject{Reset: true}
}

// parseMax reads how many requests of a class may be in service.
var parseMax = parseInt(1, maxConcurrency)

func (d *decoder) class(n *yaml.Node) Class {
	c := Class{Pos: position(n)}
	seen := d.mapping(n, "a class", []field{
		{"name", func(n *yaml.Node) { scalar(d, n, "name", &c.Name, parseName) }},
		{"priority", func(n *yaml.Node) {
			scalar(d, n, "priority", &c.Priority, parseInt(1, 65_535))
			c.priorityAt = position(n)
		}},
		{"reserve", func(n *yaml.Node) {
			scalar(d, n, "reserve", &c.Reserve, parsePercent)
			c.reserveAt = position(n)
		}},
		{"max", func(n *yaml.Node) {
			scalar(d, n, "max", &c.Max, parseMax)
		}},
	})
	if seen == nil {
		return c
	}
	d.required(n, "a class", seen, "name", "a word of your choice")
	d.required(n, "a class", seen, "priority", "a number, 1 for the most important class")
	return c
}
