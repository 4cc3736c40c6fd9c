// SPDX-License-Identifier: Apache-2.0

//go:build vm

package devices

import (
	"errors"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// What linux/if_team.h says.
const (
	teamVersion      = 1
	teamOptionsSet   = 1
	teamIfindex      = 1
	teamListOption   = 2
	teamItemOption   = 1
	teamOptionName   = 1
	teamOptionType   = 3
	teamOptionData   = 4
	netlinkString    = 5 // NLA_STRING
	teamModeSelected = "roundrobin"
)

// team joins the namespaces by two pairs, each side's in a team.
func team(s *scene) {
	s.connect("port0")
	s.connect("port1")
	s.both("ip link add team0 type team")
	for _, ns := range []*lab.Namespace{s.server, s.client} {
		selectMode(s.t, ns, "team0")
	}
	for _, port := range []string{"port0", "port1"} {
		s.both("ip link set "+port+" down", "ip link set "+port+" master team0", "ip link set "+port+" up")
	}
	s.both("ip link set team0 up")
	s.serverDev, s.clientDev = "team0", "team0"
}

// selectMode does of teamd's work what a team needs to forward anything.
func selectMode(t *testing.T, ns *lab.Namespace, dev string) {
	t.Helper()
	link, err := ns.Link(dev)
	nettest.Check(t, err)
	nettest.Check(t, ns.Do(func() error {
		family, err := netlink.GenlFamilyGet("team")
		if err != nil {
			return err
		}
		request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
		request.AddData(&nl.Genlmsg{Command: teamOptionsSet, Version: teamVersion})
		request.AddData(nl.NewRtAttr(teamIfindex, nl.Uint32Attr(uint32(link.Attrs().Index))))
		list := nl.NewRtAttr(teamListOption|unix.NLA_F_NESTED, nil)
		item := list.AddRtAttr(teamItemOption|unix.NLA_F_NESTED, nil)
		item.AddRtAttr(teamOptionName, nl.ZeroTerminated("mode"))
		item.AddRtAttr(teamOptionType, nl.Uint8Attr(netlinkString))
		item.AddRtAttr(teamOptionData, nl.ZeroTerminated(teamModeSelected))
		request.AddData(list)
		if _, err = request.Execute(unix.NETLINK_GENERIC, 0); errors.Is(err, unix.ESRCH) {
			return nil // the mode is set, and nobody listens to the news of it
		}
		return err
	}))
}
