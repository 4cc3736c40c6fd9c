// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"narthex/internal/daemon/api"
	"narthex/internal/datapath"
	"narthex/internal/policy"
)

// assumedPort is the source port of a connection that names none: the first of those that
// clients take (RFC 6335).
const assumedPort = 49152

// Explainer tells what a policy would do, without sending anything.
type Explainer struct {
	Policy *policy.Policy
	Tables *policy.Tables
	// Local reports whether an address is one of the host's. Nil takes any for one.
	Local func(netip.Addr) bool
	// Bucket reads a live bucket. Nil: there are none.
	Bucket func(rule int, from netip.Addr) (datapath.Bucket, error)
}

// Explain answers a question.
func (x Explainer) Explain(req api.ExplainRequest) (api.ExplainResult, error) {
	from, port, err := parseFrom(req.From)
	if err != nil {
		return api.ExplainResult{}, err
	}
	result := api.ExplainResult{From: req.From, To: req.To}
	services, err := x.candidates(req.To)
	if err != nil {
		return api.ExplainResult{}, err
	}
	if port == 0 {
		port = assumedPort
		if slices.ContainsFunc(x.Policy.Connections, func(c policy.Connection) bool { return len(c.FromPort) > 0 }) {
			result.Notes = append(result.Notes, fmt.Sprintf("source port %d is assumed, and rules depend on it: name one with --from IP:PORT", assumedPort))
		}
	}
	for _, i := range services {
		decision, err := x.decide(i, from, port)
		if err != nil {
			return api.ExplainResult{}, err
		}
		result.Decisions = append(result.Decisions, decision)
	}
	if len(services) == 0 {
		result.Decisions = []api.Decision{{Verdict: "pass"}}
	}
	if req.URL != "" || req.Method != "" || req.SNI != "" || len(req.Headers) > 0 {
		result.Notes = append(result.Notes, x.requestNote())
	}
	result.Notes = api.List(result.Notes)
	return result, nil
}

func (x Explainer) requestNote() string {
	if len(x.Policy.Requests) == 0 {
		return "the policy has no request rules: what the request says makes no difference"
	}
	return "request rules are not enforced yet: this is what becomes of the connection"
}

// candidates returns the services that a connection may be to: the one, none, or all of
// them if there is no destination.
func (x Explainer) candidates(to string) ([]int, error) {
	if to == "" {
		all := make([]int, len(x.Tables.Services))
		for i := range all {
			all[i] = i
		}
		return all, nil
	}
	dst, err := netip.ParseAddrPort(to)
	if err != nil {
		return nil, usagef("%q is no address and port: write it like 192.0.2.1:80 or [2001:db8::1]:80", to)
	}
	local := x.Local
	if local == nil {
		local = func(netip.Addr) bool { return true }
	}
	if i, ok := x.Tables.ServiceAt(dst, local); ok {
		return []int{i}, nil
	}
	return nil, nil
}

func (x Explainer) decide(service int, from netip.Addr, port uint16) (api.Decision, error) {
	s := x.Tables.Services[service]
	d := api.Decision{Service: s.Name, Shadow: s.Shadow, Class: x.Policy.ClassName(-1), Verdict: "pass"}
	rule := x.Tables.Lookup(service, from, port)
	if rule < 0 {
		return d, nil
	}
	c := x.Policy.Connections[rule]
	d.Rule, d.Action, d.Class = c.Name, c.Action.String(), x.Policy.ClassName(c.Class)
	switch c.Action {
	case policy.ActionDrop:
		d.Verdict = dropText(s.Shadow)
	case policy.ActionPolice:
		d.Rate, d.Burst, d.Per = c.Rate.String(), uint32(c.Burst), perText(c.Per)
		if x.Bucket == nil {
			d.Verdict = "by the bucket"
			return d, nil
		}
		bucket, err := x.Bucket(rule, from)
		if err != nil {
			return d, fmt.Errorf("read the bucket of rule %q: %w", c.Name, err)
		}
		d.Bucket = &api.BucketStatus{Known: bucket.Known, Tokens: bucket.Tokens, FullIn: bucket.Full.Seconds()}
		if bucket.Known && bucket.Tokens < 1 {
			d.Verdict = dropText(s.Shadow)
		}
	}
	return d, nil
}

func dropText(shadow bool) string {
	if shadow {
		return "would drop"
	}
	return "drop"
}

// parseFrom reads IP or IP:PORT; the port is 0 if there is none.
func parseFrom(s string) (netip.Addr, uint16, error) {
	if at, err := netip.ParseAddrPort(s); err == nil {
		return at.Addr().Unmap(), at.Port(), nil
	}
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, 0, usagef("%q is no address: write it like 192.0.2.1, 192.0.2.1:50000 or [2001:db8::1]:50000", s)
	}
	return addr.Unmap(), 0, nil
}

func usagef(format string, args ...any) error {
	return &api.Error{Usage: true, Message: fmt.Sprintf(format, args...)}
}

// explain answers with the levels of the live buckets.
func (e *engine) explain(req api.ExplainRequest) (api.ExplainResult, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Explainer{
		Policy: e.current.policy,
		Tables: e.current.tables,
		Bucket: e.dp.Bucket,
		Local: func(a netip.Addr) bool {
			return a.IsLoopback() || slices.ContainsFunc(e.snap.Locals, func(p netip.Prefix) bool { return p.Contains(a) })
		},
	}.Explain(req)
}

// Offline explains a policy file that is not in force.
func Offline(file string, req api.ExplainRequest) (api.ExplainResult, error) {
	p, _, err := policy.Load(file)
	if err != nil {
		return api.ExplainResult{}, err
	}
	tables, _, err := policy.Compile(p)
	if err != nil {
		return api.ExplainResult{}, err
	}
	return Explainer{Policy: p, Tables: tables}.Explain(req)
}
