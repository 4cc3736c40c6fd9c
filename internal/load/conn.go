// SPDX-License-Identifier: Apache-2.0

package load

import (
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// conn is one client: its connection, if it has one, and the request that is under way.
type conn struct {
	fd      int // -1 without a connection
	id      int32
	serial  int32 // of the connection: an event with another is of an earlier one
	source  netip.Addr
	request []byte
	answer  answer

	begun, connected time.Time // of the request; connected is zero until it is

	// Where it waits, and since when; see fifo.
	in         *fifo
	since      time.Time
	prev, next *conn
}

// open begins a connection to the target.
func (c *conn) open(ep int, target unix.Sockaddr) error {
	family := unix.AF_INET
	if _, ok := target.(*unix.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	c.fd = fd
	c.serial++
	if c.source.IsValid() {
		// The port is chosen at connect, where one is free as soon as it is for this target.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return err
		}
		if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(c.source, 0))); err != nil {
			return err
		}
	}
	if err := unix.Connect(fd, target); err != nil && err != unix.EINPROGRESS {
		return err
	}
	return unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: unix.EPOLLIN | unix.EPOLLOUT | edgeTriggered,
		Fd:     c.id, // whatever we like: it comes back with the event
		Pad:    c.serial,
	})
}

// edgeTriggered is EPOLLET, which x/sys has as a negative number.
const edgeTriggered = 1 << 31

// close ends the connection, if there is one; abort does so with an RST.
func (c *conn) close(abort bool) {
	if c.fd < 0 {
		return
	}
	if abort {
		// Without it the connection would merely close properly.
		_ = unix.SetsockoptLinger(c.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
	unix.Close(c.fd)
	c.fd = -1
}

// finish returns what has become of the handshake.
func (c *conn) finish() error {
	errno, err := unix.GetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

// send writes a request, which always fits into an empty socket buffer.
func (c *conn) send(request []byte) error {
	n, err := unix.Write(c.fd, request)
	if err == nil && n < len(request) {
		err = errors.New("request longer than the socket buffer")
	}
	return err
}

// errCut says that the server closed before its answer was complete.
var errCut = errors.New("connection closed before the answer was complete")

// receive reads what has come and reports whether the answer is complete.
func (c *conn) receive(buf []byte) (complete bool, err error) {
	for {
		n, err := unix.Read(c.fd, buf)
		switch {
		case err == unix.EAGAIN:
			return false, nil
		case err == unix.EINTR:
			continue
		case err != nil:
			return false, err
		case n == 0:
			return false, errCut
		}
		if complete, err := c.answer.feed(buf[:n]); complete || err != nil {
			return complete, err
		}
	}
}

// outcomeOf names the outcome that an error is.
func outcomeOf(err error) Outcome {
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return Reset
	case errors.Is(err, unix.ETIMEDOUT):
		return NoConnection
	case errors.Is(err, errCut):
		return Cut
	}
	return Failed
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}
