// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"sync/atomic"

	"narthex/experiments/internal/bench"
	"narthex/test/attack"
)

// counted is a connection that counts its bytes.
type counted struct {
	*net.TCPConn
	sent, received atomic.Uint32
}

// Read counts what is received.
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.received.Add(uint32(n))
	return n, err
}

// Write counts what is sent.
func (c *counted) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.sent.Add(uint32(n))
	return n, err
}

// numbers reads the sequence numbers before anything is sent.
func (v *visit) numbers() (err error) {
	v.seq, v.ack, err = bench.Numbers(v.raw.TCPConn)
	return err
}

// victim is the connection as somebody sees it who guesses well.
func (v *visit) victim() attack.Victim {
	return attack.Victim{
		From: v.from, To: v.rig.at(v.service, v.v6),
		Next: v.seq + v.raw.sent.Load(), Ack: v.ack + v.raw.received.Load(),
	}
}
