// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// Feature is something that a kernel may lack, and without which the rest works.
type Feature string

// The features.
const (
	FeatureXDP        Feature = "xdp"         // SYN policing in front of the stack
	FeatureTraffic    Feature = "tc"          // SYN policing in traffic control
	FeatureTCX        Feature = "tcx"         // links to traffic control, of Linux 6.6
	FeatureGate       Feature = "gate"        // waiting rooms and request rules
	FeatureCgroup     Feature = "cgroup"      // programs for the sockets of the whole system
	FeatureCasts      Feature = "casts"       // kfuncs of 6.2 that make any kernel object readable
	FeatureMemoryKeys Feature = "memory-keys" // keys of maps in any memory, of 6.2
)

// lost says what is not enforced without a feature, or how it is done instead.
var lost = map[Feature]string{
	FeatureXDP:        "SYNs are policed in traffic control, behind the driver",
	FeatureTraffic:    "SYNs are not policed on interfaces whose driver has no XDP",
	FeatureTCX:        "programs are attached as tc filters, in clsact qdiscs",
	FeatureGate:       "waiting rooms and request rules are not enforced, SYN policing is",
	FeatureCgroup:     "socket_priority and socket_mark are not set",
	FeatureCasts:      "the kernel's objects are read by copies",
	FeatureMemoryKeys: "keys are copied",
}

// Missing is a feature that the kernel lacks.
type Missing struct {
	Feature Feature `json:"feature"`
	Lost    string  `json:"lost"`   // what that means
	Reason  string  `json:"reason"` // what the kernel said
}

// MissingText says in one line what is missing.
func MissingText(all []Missing) string {
	var parts []string
	for _, m := range all {
		parts = append(parts, fmt.Sprintf("%s: %s (%s)", m.Feature, m.Lost, m.Reason))
	}
	return strings.Join(parts, "; ")
}

// ParseFeatures returns the features of those names.
func ParseFeatures(names []string) ([]Feature, error) {
	var all []Feature
	for _, n := range names {
		if _, ok := lost[Feature(n)]; !ok {
			return nil, fmt.Errorf("there is no feature %q: use one of %s", n, strings.Join(featureNames(), ", "))
		}
		all = append(all, Feature(n))
	}
	return all, nil
}

func featureNames() []string {
	var names []string
	for f := range lost {
		names = append(names, string(f))
	}
	slices.Sort(names)
	return names
}

// errWithout is why a feature is missing that the configuration says is not there.
var errWithout = fmt.Errorf("%w: left out by configuration", ebpf.ErrNotSupported)

func isNotSupported(err error) bool { return errors.Is(err, ebpf.ErrNotSupported) }

// features are what was tried, with what came of it. Those not in it are not known to be missing.
type features map[Feature]error

// newFeatures leaves out some from the start.
func newFeatures(without []Feature) features {
	f := features{}
	for _, w := range without {
		f[w] = errWithout
	}
	return f
}

// lacks returns why a feature is missing, nil if it is not known to be.
func (f features) lacks(x Feature) error { return f[x] }

// miss notes that a feature is missing.
func (f features) miss(x Feature, err error) {
	if err != nil && f[x] == nil {
		f[x] = err
	}
}

// missing lists what is missing in order of names.
func (f features) missing() []Missing {
	var all []Missing
	for x, err := range f {
		all = append(all, Missing{x, lost[x], firstLine(err)})
	}
	slices.SortFunc(all, func(a, b Missing) int { return strings.Compare(string(a.Feature), string(b.Feature)) })
	return all
}

// firstLine is what an error says, without a verifier's log.
func firstLine(err error) string {
	var ve *ebpf.VerifierError
	if errors.As(err, &ve) && len(ve.Log) > 0 {
		for _, line := range slices.Backward(ve.Log) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "processed ") {
				return fmt.Sprintf("%v: %s", ve.Cause, line)
			}
		}
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// hasGate reports whether the programs of waiting rooms are loaded.
func (o *objects) hasGate() bool { return o.NarthexGateIn != nil }

// lackOf returns why there is no program for a mode.
func (o *objects) lackOf(m Mode) error {
	f := FeatureTraffic
	if m.isXDP() {
		f = FeatureXDP
	}
	return fmt.Errorf("this kernel has no program for it: %s", firstLine(o.lacks(f)))
}
