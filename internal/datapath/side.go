// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
)

// side is one of the places at an interface's traffic control where a program of ours stands.
type side struct {
	pin      string // what its pins begin with
	at       ebpf.AttachType
	parent   uint32 // of filters
	priority uint16 // of filters, at least: SYN policing comes before the gate
}

var (
	sideSYN = side{string(ModeTCX), ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS, 1}
	sideIn  = side{"gatein", ebpf.AttachTCXIngress, netlink.HANDLE_MIN_INGRESS, 2}
	sideOut = side{"gateout", ebpf.AttachTCXEgress, netlink.HANDLE_MIN_EGRESS, 1}
)

// attachTraffic attaches to one side of an interface of the calling thread's namespace: by tcx,
// or by a filter where the kernel has no tcx.
func (o *objects) attachTraffic(p pins, prog *ebpf.Program, index int, s side, behind hook) (h hook, err error) {
	err = o.lacks(FeatureTCX)
	if err == nil {
		h, err = attachTCX(prog, index, s, behind, p.hookPath(s.pin, index))
	}
	if err == nil || !isNotSupported(err) {
		return h, err
	}
	o.miss(FeatureTCX, err)
	return attachFilter(p, prog, index, s)
}

// hookName is the name of a hook's pin: the index, since names may have dots, which bpffs
// refuses, and change.
func hookName(kind string, index int) string { return fmt.Sprintf("%s_%d", kind, index) }

func (p pins) hookPath(kind string, index int) string {
	return filepath.Join(p.linkDir(), hookName(kind, index))
}

// parseHookName takes a hook's name apart. A filter's has the inode of the namespace, too.
func parseHookName(name string) (kind string, index int, namespace uint64, ok bool) {
	kind, rest, _ := strings.Cut(name, "_")
	number, inode, isFilter := strings.Cut(rest, "_")
	index, err := strconv.Atoi(number)
	if isFilter && err == nil {
		namespace, err = strconv.ParseUint(inode, 10, 64)
	}
	return kind, index, namespace, err == nil && index > 0
}

// openHook opens what stands under a name among the pins.
func (p pins) openHook(name string, s side) (hook, error) {
	_, index, namespace, _ := parseHookName(name)
	if namespace != 0 {
		return &filterHook{pin: filepath.Join(p.linkDir(), name), index: index, side: s, namespace: namespace}, nil
	}
	return openLink(filepath.Join(p.linkDir(), name), s.at)
}

// pinnedHooks returns the names of what is pinned, none if there is no instance.
func (p pins) pinnedHooks() ([]string, error) {
	entries, err := os.ReadDir(p.linkDir())
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("reading pinned links: %w", err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
