// SPDX-License-Identifier: Apache-2.0

package parser

import (
	"fmt"
	"net/netip"
)

// Kind is what kind of frame a parser found.
type Kind string

const (
	SYN       Kind = "syn"       // the start of a connection and nothing else
	Anomaly   Kind = "anomaly"   // not to be let through to a service
	Pass      Kind = "pass"      // none of Narthex's business
	Truncated Kind = "truncated" // the bytes end before that can be told
)

// Reason is why a frame is not a plain SYN.
type Reason string

const (
	NotIP        Reason = "not IP"
	NotTCP       Reason = "not TCP"
	NotSYN       Reason = "not a SYN"
	Malformed    Reason = "malformed"
	FragmentTail Reason = "later fragment"
	Fragment     Reason = "first fragment"
	VLANTags     Reason = "VLAN tags"
	Extension    Reason = "extension headers"
	SYNData      Reason = "SYN with data"
	SYNFlags     Reason = "SYN with FIN or RST"
)

// Result is what a parser says of a frame. Addresses are set for a SYN and for an anomaly
// whose addresses could be read; they are invalid otherwise.
type Result struct {
	Kind             Kind
	Reason           Reason
	Src, Dst         netip.Addr
	Ports            bool
	SrcPort, DstPort uint16
}

func (r Result) String() string {
	s := fmt.Sprintf("%s (%s)", r.Kind, r.Reason)
	if r.Dst.IsValid() {
		s += fmt.Sprintf(" %v → %v", r.Src, r.Dst)
	}
	if r.Ports {
		s += fmt.Sprintf(", ports %d → %d", r.SrcPort, r.DstPort)
	}
	return s
}

// final tells whether more bytes of the frame would not be asked for: wants_more() of
// bpf/syn/hooks.h, negated.
func (r Result) final() bool { return r.Kind != Truncated && (r.Kind != Anomaly || r.Ports) }
