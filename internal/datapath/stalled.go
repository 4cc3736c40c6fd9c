// SPDX-License-Identifier: Apache-2.0

package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// mostDestroyed is how many connections a tick ends at most.
const mostDestroyed = 64

// destroyStalled ends connections whose clients keep workers waiting, as the programs have found. No
// program can end a socket. The calling thread is in the network namespace of the targets.
func (o *objects) destroyStalled() error {
	for range mostDestroyed {
		var key narthexFlowKey
		err := o.Stalled.LookupAndDelete(nil, &key)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading which connections have stalled: %w", err)
		}
		if err := destroySocket(&key); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("ending a connection that has stalled: %w", err)
		}
	}
	return nil
}

// destroySocket has the kernel end a connection: its process sees an error, its client a reset.
func destroySocket(key *narthexFlowKey) error {
	r := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
	r.AddData(socketOf(key))
	_, err := r.Execute(unix.NETLINK_INET_DIAG, 0)
	return err
}

// socketName is struct inet_diag_req_v2, which names a socket.
type socketName [56]byte

// Offsets in it.
const (
	nameProtocol = 1
	nameLocal    = 8 // ports in network byte order, then addresses, each with room for IPv6
	namePeer     = 10
	nameFrom     = 12
	nameTo       = 28
	nameCookie   = 48 // all bits: any
)

func (s *socketName) Len() int          { return len(s) }
func (s *socketName) Serialize() []byte { return s[:] }

// socketOf names the socket of a connection.
func socketOf(key *narthexFlowKey) *socketName {
	s := &socketName{0: unix.AF_INET, nameProtocol: unix.IPPROTO_TCP}
	if key.V6 != 0 {
		s[0] = unix.AF_INET6
	}
	binary.BigEndian.PutUint16(s[nameLocal:], key.LocalPort)
	binary.BigEndian.PutUint16(s[namePeer:], key.PeerPort)
	for i := range key.Local {
		binary.BigEndian.PutUint64(s[nameFrom+8*i:], key.Local[i])
		binary.BigEndian.PutUint64(s[nameTo+8*i:], key.Peer[i])
	}
	binary.NativeEndian.PutUint64(s[nameCookie:], ^uint64(0))
	return s
}
