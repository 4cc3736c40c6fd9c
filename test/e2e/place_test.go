// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// place is where one scene after the other happens: namespaces, and a daemon that takes in the
// policy of each. A start costs a core more than a second in the kernel's verifier, a reload
// next to nothing. Scenes that look at how a daemon comes and goes, or that change the
// namespaces, have places of their own.
type place struct {
	network
	rig    *lab.Lab // nil on lo
	server *lab.Namespace
	client *lab.Namespace
	dir    string    // for the policy file
	args   []string  // of the daemon, beside those of every instance
	daemon *instance // nil until something is enforced
	tagged bool      // frames are, on this wire
	scenes int       // so far
}

// network is what addresses follow from.
type network struct {
	wire wire
	v6   bool
}

// maxScenes is how many scenes can have peers with addresses of their own.
const maxScenes = 200

// idlePolicy is in force between scenes: nothing is left of the rooms before, nor of what they
// have counted.
const idlePolicy = `
version: 1
services: [{name: idle, listen: ["*:9"], concurrency: 1%s}]
`

// unused are the places at which nothing happens.
var unused struct {
	sync.Mutex
	places []*place
}

// takePlace returns a place that is unused, or a new one.
func takePlace(w wire, v6 bool, args []string) (*place, error) {
	unused.Lock()
	defer unused.Unlock()
	for i, p := range unused.places {
		if p.network == (network{w, v6}) && slices.Equal(p.args, args) {
			unused.places = slices.Delete(unused.places, i, i+1)
			return p, nil
		}
	}
	return newPlace(w, v6, args)
}

// leavePlace ends the test's use of a place, which is kept if it is as it was.
func leavePlace(t *testing.T, p *place) {
	p.scenes++
	if t.Failed() || !p.isAsBefore() {
		t.Log("nobody comes to this place again")
		p.endsWith(t)
		return
	}
	unused.Lock()
	defer unused.Unlock()
	unused.places = append(unused.places, p)
}

// closePlaces ends what is unused after the last test.
func closePlaces() (err error) {
	for _, p := range unused.places {
		if p.daemon != nil {
			err = errors.Join(err, p.daemon.end())
		}
		err = errors.Join(err, p.close())
	}
	return err
}

func newPlace(w wire, v6 bool, args []string) (p *place, err error) {
	p = &place{network: network{w, v6}, args: args}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	dev := lab.Dev
	if w == lo {
		dev = "lo"
		if p.server, err = lab.NewNamespace("room"); err != nil {
			return nil, err
		}
		p.client = p.server
	} else {
		if p.rig, err = lab.New("room", 1); err != nil {
			return nil, err
		}
		p.server, p.client = p.rig.Server, p.rig.Client
	}
	if p.dir, err = p.server.TempDir("policy"); err != nil {
		return nil, err
	}
	for _, w := range []who{gold, bronze, free} {
		if p.wire == lo && !p.v6 { // all of 127.0.0.0/8 is there
			break
		}
		if err := p.client.AddAddr(dev, p.prefix(w)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *place) close() (err error) {
	if p.rig != nil {
		return p.rig.Close()
	}
	if p.server != nil {
		return p.server.Close()
	}
	return nil
}

// endsWith ends what is here with a test.
func (p *place) endsWith(t *testing.T) {
	t.Helper()
	if p.daemon != nil {
		p.daemon.t = t
		p.daemon.endsWith()
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// isAsBefore waits until nothing is left of a scene, and returns false if something stays.
func (p *place) isAsBefore() bool {
	in := p.daemon
	if in == nil || in.cmd == nil || p.scenes >= maxScenes {
		return false
	}
	in.reload(fmt.Sprintf(idlePolicy, p.onLo()))
	return within(10*time.Second, func() bool {
		s := in.status()
		return len(s.Overrides) == 0 && s.WaitingRoom.UsedFlows == 0 && s.WaitingRoom.FreeSlots == s.WaitingRoom.Slots
	})
}

func (p *place) onLo() string {
	if p.wire == lo {
		return ", interfaces: [lo]"
	}
	return ""
}

// enforces has a policy in force.
func (p *place) enforces(t *testing.T, policy string) *instance {
	t.Helper()
	if p.daemon == nil {
		p.daemon = instanceOf(p.server, filepath.Join(p.dir, "policy.yaml"), p.args...)
		p.daemon.t = t
		p.daemon.write(policy)
		p.daemon.start()
	} else {
		p.daemon.t = t
		p.daemon.reload(policy)
	}
	if p.wire == vlan && !p.tagged {
		for _, ns := range []*lab.Namespace{p.server, p.client} {
			nettest.Check(t, ns.TagFrames(lab.Dev, lab.VLANTag{ID: 10}))
		}
		p.tagged = true
	}
	return p.daemon
}

// numbered is an address of a kind of clients. Their kernel has number 1.
func (n network) numbered(w who, i byte) netip.Addr {
	switch {
	case n.v6:
		return netip.AddrFrom16([16]byte{0xfd, 0x77, 13: byte(w), 15: i})
	case n.wire == lo:
		return netip.AddrFrom4([4]byte{127, 0, byte(w), i})
	}
	return netip.AddrFrom4([4]byte{10, 77, byte(w), i})
}

// prefix is the address of the kind's kernel with the length of its network.
func (n network) prefix(w who) netip.Prefix {
	addr := n.numbered(w, 1)
	switch {
	case n.wire == lo:
		return netip.PrefixFrom(addr, addr.BitLen())
	case n.v6:
		return netip.PrefixFrom(addr, 64)
	}
	return netip.PrefixFrom(addr, 16)
}
