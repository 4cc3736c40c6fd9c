// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"narthex/internal/policy"
)

// Client is what is remembered of a client by its address.
type Client struct {
	Class   int           // index into Tables.Classes of the class that it is learned in, or policy.NotLearned
	Learned time.Duration // for which it is yet
	Blocked time.Duration // for which its connections are refused yet; 0: they are not
}

// Client reads what is remembered of a client.
func (in *Instance) Client(from netip.Addr) (Client, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.objects == nil || in.applied.Tables == nil {
		return Client{}, errNoPolicy
	}
	t, err := now()
	if err != nil {
		return Client{}, err
	}
	c := Client{Class: policy.NotLearned}
	key := clientKey(from)
	var learned narthexLearned
	if err := lookUp(in.objects.LearnedClients, &key, &learned); err != nil {
		return Client{}, err
	}
	if learned.Until > t {
		// A class that the policy has no more is none.
		if c.Class = in.classIn(learned.Class); c.Class >= 0 {
			c.Learned = time.Duration(learned.Until - t)
		}
	}
	var blocked uint64
	if err := lookUp(in.objects.BlockedClients, &key, &blocked); err != nil {
		return Client{}, err
	}
	if blocked > t {
		c.Blocked = time.Duration(blocked - t)
	}
	return c, nil
}

// clientKey is set_client() of bpf/policy/clients.h.
func clientKey(from netip.Addr) narthexClient {
	k := policy.NewKey(from, 0)
	return narthexClient{Address: [2]uint64{k[0], 0}, V6: flag(!from.Unmap().Is4())}
}

// lookUp leaves the value as it is if there is none.
func lookUp[K, V any](m *ebpf.Map, key *K, value *V) error {
	if err := m.Lookup(key, value); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("reading map %s: %w", m, err)
	}
	return nil
}

// forgetLearned forgets who is learned in the class of a slot, which is to be another's.
func (o *objects) forgetLearned(slot uint32) error {
	var gone []narthexClient
	err := eachClient(o.LearnedClients, func(key *narthexClient, learned *narthexLearned) {
		if learned.Class == slot {
			gone = append(gone, *key)
		}
	})
	if err != nil {
		return err
	}
	for i := range gone {
		if err := o.LearnedClients.Delete(&gone[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forgetting a client: %w", err)
		}
	}
	return nil
}
