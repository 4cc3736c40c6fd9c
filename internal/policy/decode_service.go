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
	defaultStatus     = 503 // of overload
	rateStatus        = 429 // of a rate
	defaultRetryAfter = time.Second
	leastStatus       = 400
	mostStatus        = 599
	maxPriority       = 65_535
	maxQueueSize      = 65_536
	maxWaitBound      = 60 * time.Second // request sockets die at 63 s
	maxInterfaceBytes = 15               // IFNAMSIZ less the NUL
	leastStall        = 200 * time.Millisecond
	mostStall         = 10 * time.Minute
	leastKnown        = 10 * time.Second
	mostKnown         = 24 * time.Hour
	mostRequests      = 1_000_000_000 // of a connection
)

// DefaultMaxService is when a request that did not leave service is given up for lost,
// unless the policy says otherwise.
const DefaultMaxService = 60 * time.Second

func (d *decoder) service(n *yaml.Node) Service {
	s := Service{
		Pos: position(n), XDP: XDPAuto, Protocol: HTTP, ServiceEnds: EndAuto, H2C: H2CIgnore,
		Queue: Queue{Size: defaultQueueSize, MaxWait: defaultMaxWait, MaxService: DefaultMaxService},
	}
	rejectAt := (*yaml.Node)(nil)
	seen := d.mapping(n, &serviceForm, func(key string, n *yaml.Node) {
		if key == "reject" {
			s.Reject, rejectAt = d.reject(n, &s.rejectNamed), n
			return
		}
		d.where(key, n, &s)
		d.room(key, n, &s)
		d.membership(key, n, &s.Membership)
	})
	if seen == nil {
		return s
	}
	d.required(n, "a service", seen, "name", `a word of your choice`)
	d.required(n, "a service", seen, "listen", `where the server listens, as "*:80"`)
	d.protocolFits(&s, rejectAt, seen)
	d.poolFits(&s.Concurrency, s.pool, "service", seen)
	d.loopbackSeen(&s)
	d.plainlySpoken(&s)
	return s
}

// The parsers of a service's words.
var (
	parseXDP        = parseWord(xdpModes...)
	parseProtocol   = parseWord(protocols...)
	parseServiceEnd = parseWord(serviceEnds...)
	parseH2C        = parseWord(h2cs...)
	parseLabel      = parseWord(labelWays...)
	parseMode       = parseWord(modes...)
)

// where decodes the keys that say what a service is and where it is policed.
func (d *decoder) where(key string, n *yaml.Node, s *Service) {
	switch key {
	case "name":
		scalar(d, n, key, &s.Name, parseName)
	case "listen":
		d.listens(n, s)
	case "interfaces":
		s.Interfaces = distinct(d, n, key, parseInterface)
	case "xdp":
		scalar(d, n, key, &s.XDP, parseXDP)
		s.xdpAt = position(n)
	case "protocol":
		scalar(d, n, key, &s.Protocol, parseProtocol)
	}
}

// room decodes the keys of a service's waiting room, and mode.
func (d *decoder) room(key string, n *yaml.Node, s *Service) {
	switch key {
	case "concurrency":
		d.concurrency(n, &s.Concurrency)
	case "overload":
		d.overload(n, &s.Overload)
	case "queue":
		d.queue(n, &s.Queue)
	case "service_ends":
		scalar(d, n, key, &s.ServiceEnds, parseServiceEnd)
	case "trusted_proxies":
		s.TrustedProxies = values(d, n, key, parseRange)
	case "h2c":
		scalar(d, n, key, &s.H2C, parseH2C)
	case "requests_per_connection":
		scalar(d, n, key, &s.Requests, parseInt(1, mostRequests))
	case "socket_mark":
		scalar(d, n, key, &s.SocketMark, parseMark)
	case "labels":
		ways := distinct(d, n, key, parseLabel)
		s.Labels, s.labelsAt = Labels{slices.Contains(ways, labelWays[0]), slices.Contains(ways, labelWays[1])}, position(n)
	case "mode":
		var mode string
		scalar(d, n, key, &mode, parseMode)
		s.Shadow = mode == "shadow"
	}
}

// required reports a key that is not there.
func (d *decoder) required(n *yaml.Node, what string, seen map[string]*yaml.Node, key, value string) {
	if seen[key] == nil {
		d.errorAt(n, "%s needs %q: %s", what, key, value)
	}
}

// protocolFits sets the reject and the limit that a service without them has. It reports a setting that
// means nothing to the service's protocol, and warns of values that mean another there.
func (d *decoder) protocolFits(s *Service, rejectAt *yaml.Node, seen map[string]*yaml.Node) {
	if s.Protocol != HTTP && seen["concurrency"] == nil {
		s.Concurrency = Concurrency{Mode: ConcurrencyUnlimited}
	}
	if s.Protocol == HTTP {
		if rejectAt == nil {
			s.Reject = Answer{RetryAfter: defaultRetryAfter}
		}
		return
	}
	if rejectAt != nil && !s.Reject.Reset {
		d.warnf(position(rejectAt), `reject: a %s service cannot answer with an HTTP status: who is not served gets a reset`, s.Protocol)
	}
	s.Reject = Answer{Reset: true}
	if s.ServiceEnds == EndFirstByte || s.ServiceEnds == EndLastByte {
		d.warnf(position(seen["service_ends"]), `service_ends: %s is that of an HTTP response: in a %s service it means auto, that both sides are silent`, s.ServiceEnds, s.Protocol)
	}
	for _, key := range []string{"h2c", "requests_per_connection", "labels"} {
		if n := seen[key]; n != nil {
			d.errorAt(n, `%q is about HTTP, and this is a %s service; remove it`, key, s.Protocol)
		}
	}
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
	var at Pos // of the target
	d.mapping(n, &queueForm, func(key string, n *yaml.Node) {
		switch key {
		case "size":
			scalar(d, n, key, &q.Size, parseQueueSize)
		case "max_wait":
			scalar(d, n, key, &q.MaxWait, parseMaxWait)
		case "max_service":
			scalar(d, n, key, &q.MaxService, parseMaxService)
		case "target":
			scalar(d, n, key, &q.Target, parseMaxWait)
			at = position(n)
		}
	})
	if q.Target > q.MaxWait {
		d.errorf(at, "target: %s is more than max_wait, %s; write less, or remove it", span(q.Target), span(q.MaxWait))
	}
}

// parseMax reads how many requests of a class may be in service.
var parseMax = parseInt(1, maxConcurrency)

// parseStall reads for how long a client may keep a worker waiting. Less than between two looks at a
// connection nobody would notice.
var parseStall = parseDuration(leastStall, mostStall, time.Millisecond)

// parseKnown reads for how long sources are known that were answered.
var parseKnown = parseDuration(leastKnown, mostKnown, time.Second)

// The words of fair.
var fairs = []string{"source", "host", "none"}

// fair decodes between whom the places of a class are divided.
func (d *decoder) fair(n *yaml.Node, f *Fair) {
	if n.Kind != yaml.MappingNode {
		var word string
		scalar(d, n, "fair", &word, parseWord(fairs...))
		*f = map[string]Fair{"source": FairSource, "host": FairDefault, "none": FairNone}[word]
		if word == "host" {
			f.Key.Kind = word
		}
		return
	}
	d.mapping(n, &fairForm, d.onePer(`"fair" has %q and %q, but goes by one thing; write one of them`, &f.V4, &f.V6, &f.Key))
	if len(n.Content) == 0 {
		d.errorAt(n, `"fair" is empty; write source, none, host, prefix lengths, as {v4: 24, v6: 48}, or {cookie: NAME} or {header: NAME}`)
	}
}

func (d *decoder) class(n *yaml.Node) Class {
	c := Class{Pos: position(n), Fair: FairDefault}
	seen := d.mapping(n, &classForm, func(key string, n *yaml.Node) {
		switch key {
		case "name":
			scalar(d, n, key, &c.Name, parseName)
		case "priority":
			scalar(d, n, key, &c.Priority, parseInt(1, maxPriority))
			c.priorityAt = position(n)
		case "reserve":
			scalar(d, n, key, &c.Reserve, parsePercent)
			c.reserveAt = position(n)
		case "max":
			scalar(d, n, key, &c.Max, parseMax)
		case "stall":
			scalar(d, n, key, &c.Stall, parseStall)
		case "fair":
			d.fair(n, &c.Fair)
			c.fairAt = position(n)
		case "known":
			scalar(d, n, key, &c.Known, parseKnown)
			c.knownAt = position(n)
		}
	})
	if seen == nil {
		return c
	}
	d.required(n, "a class", seen, "name", "a word of your choice")
	d.required(n, "a class", seen, "priority", "a number, 1 for the most important class")
	return c
}
