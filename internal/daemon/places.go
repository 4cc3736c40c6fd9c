// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net"
	"sync"
)

// bounded is a listener that has so many connections at once and closes those beyond that: each
// costs the daemon memory, and whoever is on the machine may open one.
type bounded struct {
	net.Listener
	places chan struct{} // one entry for each connection
}

func newBounded(l net.Listener, most int) net.Listener {
	return &bounded{l, make(chan struct{}, most)}
}

// Accept waits for a connection that there is a place for.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.places <- struct{}{}:
			return &placed{conn, sync.OnceFunc(func() { <-b.places })}, nil
		default:
			conn.Close()
		}
	}
}

// placed is a connection that has a place.
type placed struct {
	net.Conn
	leave func()
}

// Close gives the place back.
func (p *placed) Close() error {
	defer p.leave()
	return p.Conn.Close()
}
