// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// describeRoom writes what the waiting room of a service does.
func (t *Tables) describeRoom(b io.Writer, service int, s *Service) {
	fmt.Fprintf(b, "  speaks %s; %s\n", s.Protocol, s.limitInWords(t.HasRoom(service))+t.poolInWords(service))
	if o := s.Overload; o != (Overload{}) {
		fmt.Fprintf(b, "  %s\n", o.inWords())
	}
	if s.SocketMark != 0 {
		fmt.Fprintf(b, "  marks its sockets: %s\n", t.marksInWords(s.SocketMark))
	}
	if proxies := s.TrustedProxies; len(proxies) > 0 && t.Services[service].Room.Ruled {
		fmt.Fprintf(b, "  takes the word of %s for who a client is\n", inWords(words(proxies), "and"))
	}
	if !t.HasRoom(service) {
		t.describeRuled(b, service, s)
		return
	}
	if q := s.Queue; q.Size > 0 {
		lasting := ""
		if q.Target > 0 {
			lasting = fmt.Sprintf(", or %s while overload lasts", span(q.Target))
		}
		fmt.Fprintf(b, "  up to %d wait, at most %s each%s, then %s\n", q.Size, span(q.MaxWait), lasting, s.Reject)
	} else {
		fmt.Fprintf(b, "  nobody waits: who finds no room gets %s\n", s.Reject)
	}
	if t.Services[service].Room.Ruled {
		t.describeRate(b, s)
	}
	fmt.Fprintf(b, "  %s\n", t.orderInWords())
	fmt.Fprintf(b, "  a %s leaves service %s; at the latest after %s\n", s.Protocol.unit(), s.endInWords(), span(s.Queue.MaxService))
	s.describeH2C(b)
}

// describeRuled writes what request rules may bring about where nobody waits.
func (t *Tables) describeRuled(b io.Writer, service int, s *Service) {
	if t.Services[service].Room.Ruled {
		fmt.Fprintf(b, "  who is rejected gets %s\n", s.Reject)
		t.describeRate(b, s)
		s.describeH2C(b)
	}
}

// describeRate writes what is said to who is over the rate of a request rule, if that is something else.
func (t *Tables) describeRate(b io.Writer, s *Service) {
	rated := func(r RequestRule) bool { return r.Action == ActionPolice && r.Over == OverReject }
	if !slices.ContainsFunc(t.RequestRules(), rated) {
		return
	}
	if says := s.Reject.For(CauseRate, 0).String(); says != s.Reject.String() {
		fmt.Fprintf(b, "  who is over the rate of a request rule gets %s\n", says)
	}
}

func (s *Service) describeH2C(b io.Writer) {
	if s.Protocol == HTTP {
		h2c := map[H2C]string{
			H2CIgnore: "is answered 400; an Upgrade to it is ignored",
			H2CPass:   "counts as one request until its connection closes", H2CReject: "is answered 400",
		}[s.H2C]
		fmt.Fprintf(b, "  HTTP/2 without TLS %s\n", h2c)
	}
	if s.Requests > 0 {
		fmt.Fprintf(b, "  a connection may ask %d requests; the GET or HEAD after that ends it\n", s.Requests)
	}
	if s.Labels.Header {
		fmt.Fprintln(b, "  Narthex-Class of an answer says of what class the connection's next requests are, and with for=10m its client's")
	}
	if s.Labels.Socket {
		fmt.Fprintln(b, "  SO_MARK or SO_PRIORITY of its socket says of what class a connection's next requests are")
	}
}

// unit is what takes its turn at a service.
func (p Protocol) unit() string {
	if p == HTTP {
		return "request"
	}
	return "connection"
}

// endInWords says what ends the time in service.
func (s *Service) endInWords() string {
	switch {
	case s.ServiceEnds == EndClose && s.Protocol != HTTP:
		return "when it ends"
	case s.ServiceEnds == EndClose:
		return "when its connection ends"
	case s.Protocol != HTTP:
		return "when it ends, or when both sides are silent and the client was not the last to speak; its next byte takes another turn"
	case s.ServiceEnds == EndFirstByte:
		return "with the first byte of its response"
	case s.ServiceEnds == EndLastByte:
		return "when the server has written the last byte of its response"
	}
	return "with the first byte of its response, or if the connection ends with that, when the server has written the last byte"
}

// limitInWords says how many requests of a service may be in service.
func (s *Service) limitInWords(room bool) string {
	unit := s.Protocol.unit()
	if s.Concurrency.Mode == ConcurrencyFixed {
		return "at most " + count(s.Concurrency.Limit, unit) + " in service"
	}
	if s.Concurrency.Mode == ConcurrencyAuto {
		return "auto: as many " + unit + "s in service as the server works best with, " + s.Concurrency.boundsInWords() + s.Concurrency.targetInWords()
	}
	words := "any number of " + unit + "s in service"
	if s.Pool > 0 {
		return words
	}
	if room {
		words += " except where a class has a max"
	}
	return words
}

// boundsInWords says between which numbers a limit sets itself.
func (c Concurrency) boundsInWords() string {
	if c.Max == 0 {
		return fmt.Sprintf("at least %d", c.floor())
	}
	return fmt.Sprintf("%d to %d", c.floor(), c.Max)
}

// targetInWords says from when on a limit that sets itself holds anything.
func (c Concurrency) targetInWords() string {
	if c.Target == 0 {
		return ""
	}
	return ", from when what waits inside the server takes " + span(c.Target)
}

// marksInWords says which SO_MARK the sockets of each class get.
func (t *Tables) marksInWords(mark uint32) string {
	marks := make([]string, len(t.Classes))
	for i, c := range t.Classes {
		marks[i] = fmt.Sprintf("%#x for %s", mark+uint32(i), c.Name)
	}
	return strings.Join(marks, ", ")
}

// orderInWords says in which order classes are admitted to a waiting room, and with which
// limits.
func (t *Tables) orderInWords() string {
	names := make([]string, len(t.Classes))
	for i, c := range t.Classes {
		var limits []string
		if c.Reserve > 0 {
			limits = append(limits, fmt.Sprintf("at least %d%% of admissions while it waits", c.Reserve))
		}
		if c.Max > 0 {
			limits = append(limits, fmt.Sprintf("at most %d in service", c.Max))
		}
		if c.Fair != FairDefault && len(names) > 1 {
			limits = append(limits, c.Fair.inWords())
		}
		if c.Known > 0 && len(names) > 1 {
			limits = append(limits, knownInWords(c.Known))
		}
		names[i] = c.Name
		if len(limits) > 0 {
			names[i] += " (" + strings.Join(limits, ", ") + ")"
		}
	}
	if len(names) == 1 {
		order := t.Classes[0].Fair.inWords()
		if known := t.Classes[0].Known; known > 0 {
			order += ", " + knownInWords(known)
		}
		return "one class, " + order + ": " + names[0]
	}
	return "classes in order: " + strings.Join(names, ", ")
}
