// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dial connects from the calling thread's namespace. Package net would do that on
// whatever thread it likes.
func dial(from netip.Addr, to netip.AddrPort, timeout time.Duration) (net.Conn, error) {
	return dialProto(0, netip.AddrPortFrom(from, 0), to, timeout)
}

// dialProto is dial with a protocol, such as MPTCP, and from a port; 0 is any.
func dialProto(proto int, from, to netip.AddrPort, timeout time.Duration) (net.Conn, error) {
	family := unix.AF_INET6
	if to.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "client")
	defer file.Close()
	// How long connect may take: SO_SNDTIMEO holds for it too.
	tv := unix.NsecToTimeval(timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &tv); err != nil {
		return nil, err
	}
	if from.IsValid() {
		if err := unix.Bind(fd, sockaddr(from)); err != nil {
			return nil, fmt.Errorf("bind to %s: %w", from, err)
		}
	}
	// With a timeout the kernel does not go on by itself after a signal, of which the runtime sends some;
	// Linux goes on waiting when it is asked again.
	err = unix.Connect(fd, sockaddr(to))
	for err == unix.EINTR {
		err = unix.Connect(fd, sockaddr(to))
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", to, err)
	}
	return net.FileConn(file)
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())}
	}
	return &unix.SockaddrInet6{Addr: a.Addr().As16(), Port: int(a.Port())}
}

func readBody(conn net.Conn, req *http.Request) ([]byte, error) {
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", resp.Status)
	}
	return io.ReadAll(resp.Body)
}
