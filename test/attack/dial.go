// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
)

// connectTimeout bounds handshakes: longer than the third repetition of a SYN.
const connectTimeout = 10 * time.Second

// Dial connects from a namespace. Unlike package net, whose threads are anywhere, it makes
// the socket on a thread that is in it; and many can wait for their handshakes at once. An
// invalid source address leaves the choice to the kernel.
func Dial(ctx context.Context, ns *lab.Namespace, from netip.Addr, to netip.AddrPort) (*net.TCPConn, error) {
	fd := -1
	err := ns.Do(func() (err error) {
		family := unix.AF_INET6
		if to.Addr().Is4() {
			family = unix.AF_INET
		}
		fd, err = unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	conn, err := connect(ctx, fd, from, to)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return conn, nil
}

// connect waits for a handshake. It takes over the descriptor.
func connect(ctx context.Context, fd int, from netip.Addr, to netip.AddrPort) (*net.TCPConn, error) {
	file := os.NewFile(uintptr(fd), "client")
	defer file.Close()
	if from.IsValid() {
		// The port is chosen at connect, where one is free as soon as it is for this target.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
			return nil, err
		}
		if err := unix.Bind(fd, sockaddr(netip.AddrPortFrom(from, 0))); err != nil {
			return nil, fmt.Errorf("bind to %s: %w", from, err)
		}
	}
	if err := unix.Connect(fd, sockaddr(to)); err != nil && err != unix.EINPROGRESS {
		return nil, err
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	tcp := conn.(*net.TCPConn) // what a stream socket of the two families is
	if err := connected(ctx, tcp); err != nil {
		return nil, errors.Join(err, tcp.Close())
	}
	return tcp, nil
}

// connected waits until the handshake is done.
func connected(ctx context.Context, c *net.TCPConn) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	_ = c.SetWriteDeadline(time.Now().Add(connectTimeout))
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
		switch {
		case err != nil:
			failed = err
		case errno != 0:
			failed = unix.Errno(errno)
		default:
			_, err := unix.Getpeername(int(fd))
			return err == nil // else it is under way
		}
		return true
	})
	_ = c.SetWriteDeadline(time.Time{})
	return errors.Join(err, failed, ctx.Err())
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

// clamp has the client say that it has room for no more than so many bytes; 0: what its kernel says.
func clamp(c *net.TCPConn, window int) error {
	raw, err := c.SyscallConn()
	if err != nil || window == 0 {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, window)
	})
	return errors.Join(err, failed)
}

// reset has the connection end with an RST when it is closed.
func reset(c *net.TCPConn) { _ = c.SetLinger(0) }

// Forget closes the connection without a word: in repair mode the kernel sends nothing.
func Forget(c *net.TCPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1) }); err != nil {
		return err
	}
	return errors.Join(failed, c.Close())
}
