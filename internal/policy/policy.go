// SPDX-License-Identifier: Apache-2.0

// Package policy reads the policy file, checks it and compiles it to tables. It knows
// nothing of eBPF.
package policy

// XDPMode says where SYN policing attaches on a service's interfaces.
type XDPMode string

// The modes of `xdp:` in the policy.
const (
	XDPAuto    XDPMode = "auto"
	XDPNative  XDPMode = "native"
	XDPGeneric XDPMode = "generic"
	XDPOff     XDPMode = "off"
)
