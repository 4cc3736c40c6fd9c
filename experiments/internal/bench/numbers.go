// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Numbers reads the sequence numbers of a connection, the one of the next byte that it sends
// and the one of the next that it receives. Nothing else may be going on on it.
func Numbers(conn *net.TCPConn) (seq, ack uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { seq, ack, failed = queueNumbers(int(fd)) })
	return seq, ack, errors.Join(err, failed)
}

// queueNumbers asks for the numbers as those do who move connections to other machines.
func queueNumbers(fd int) (seq, ack uint32, err error) {
	const off = -1 // TCP_REPAIR_OFF_NO_WP: and sends nothing
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, 1); err != nil {
		return 0, 0, err
	}
	number := func(queue int) uint32 {
		err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR_QUEUE, queue))
		n, failed := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_QUEUE_SEQ)
		err = errors.Join(err, failed)
		return uint32(n)
	}
	const receive, send = 1, 2 // TCP_RECV_QUEUE, TCP_SEND_QUEUE
	ack, seq = number(receive), number(send)
	return seq, ack, errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_REPAIR, off))
}
