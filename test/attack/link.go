// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
)

// Link is the veth pair over which an attack goes, from the attacker's end to the target's.
// A device's name is lab.Dev if empty. Where frames carry VLAN tags on the wire, the
// devices put them on: see lab.Namespace.TagFrames, to be called before an attack begins.
type Link struct {
	Attacker, Target       *lab.Namespace
	AttackerDev, TargetDev string
	Via4, Via6             netip.Addr // addresses of the attacker's device, to route made-up sources to
}

// Over returns the link of a lab.
func Over(rig *lab.Lab) Link {
	return Link{Attacker: rig.Client, Target: rig.Server, Via4: rig.ClientsV4[0], Via6: rig.ClientsV6[0]}
}

func (l Link) devices() (attacker, target string) {
	attacker, target = l.AttackerDev, l.TargetDev
	if attacker == "" {
		attacker = lab.Dev
	}
	if target == "" {
		target = lab.Dev
	}
	return attacker, target
}

// macs returns the hardware addresses of both ends.
func (l Link) macs() (attacker, target net.HardwareAddr, err error) {
	a, t := l.devices()
	if attacker, err = l.Attacker.MAC(a); err != nil {
		return nil, nil, err
	}
	target, err = l.Target.MAC(t)
	return attacker, target, err
}

// sender opens the attacker's device.
func (l Link) sender() (*lab.Raw, error) {
	dev, _ := l.devices()
	return l.Attacker.OpenSender(dev)
}

// route has the target send answers to made-up sources to the attacker's device.
func (l Link) route(sources netip.Prefix) error {
	via := l.Via4
	if sources.Addr().Is6() {
		via = l.Via6
	}
	if !via.IsValid() {
		return fmt.Errorf("route %s: the link says no address of the attacker's device", sources)
	}
	if err := l.Target.AddRoute(sources.Masked(), via); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
