// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Diag asks a namespace about its listening sockets, by sock_diag(7). It is not safe for
// concurrent use. What it asks allocates nothing beyond what it returns.
type Diag struct {
	fd     int
	asked  uint32 // sequence number of the last question
	buffer []byte
	req    [diagRequest]byte
}

// SocketDiag is what a Diag does.
type SocketDiag interface {
	Listening(into []Listening) ([]Listening, error)
	Backlog(at netip.AddrPort, device uint32, pick uint16) (int, error)
	Unread(port uint16, v6 bool) (Unread, error)
	Peers(port uint16, v6 bool, visit func(netip.Addr)) error
	Close() error
}

// Unread are connections of servers that have not read what came.
type Unread struct {
	Accepted  int           // that they have accepted
	Queued    int           // in accept queues
	QueuedFor time.Duration // the times since the last of it came of those in accept queues, added up
}

// unreadMost is how old what a server has not read of a connection that it has accepted may be:
// it does not want to read what is older.
const unreadMost = 5 * time.Second

// Listening is a listening TCP socket.
type Listening struct {
	At      netip.AddrPort
	Inode   uint32 // as in the links of /proc/PID/fd
	Backlog int    // connections that are to be accepted
	Device  uint32 // index of the interface that it is bound to; 0: none
}

// Sizes and offsets of linux/netlink.h and linux/inet_diag.h, which sock_diag(7) describes.
const (
	diagRequest = unix.SizeofNlMsghdr + 56 // struct inet_diag_req_v2
	diagMessage = 72                       // struct inet_diag_msg
	diagTimeout = 500                      // milliseconds that an answer may take
	diagBuffer  = 32 << 10

	stateEstablished, stateTimeWait, stateCloseWait, stateListen = 1, 6, 8, 10

	extInfo      = 2  // INET_DIAG_INFO: struct tcp_info
	infoReceived = 52 // its tcpi_last_data_recv, milliseconds

	// In both structs the identity of the socket is of one form.
	idSourcePort, idDestinationPort, idSource, idDestination, idDevice, idCookie, idLen = 0, 2, 4, 20, 36, 40, 48
)

// OpenDiag opens the socket that questions go through.
func OpenDiag(ns *Namespace) (d *Diag, err error) {
	err = ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
		if err != nil {
			return err
		}
		limit := unix.NsecToTimeval(diagTimeout * 1e6)
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			unix.Close(fd)
			return err
		}
		d = &Diag{fd: fd, buffer: make([]byte, diagBuffer)}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask about listening sockets: %w", err)
	}
	return d, nil
}

// Close lets it go.
func (d *Diag) Close() error { return unix.Close(d.fd) }

// Listening appends all listening TCP sockets of the namespace to a list.
func (d *Diag) Listening(into []Listening) ([]Listening, error) {
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		d.ask(family, unix.NLM_F_DUMP, nil)
		err := d.answers(func(m []byte) { into = append(into, listening(m)) })
		if errors.Is(err, os.ErrNotExist) && family == unix.AF_INET6 {
			continue // a kernel without IPv6
		}
		if err != nil {
			return into, fmt.Errorf("ask about listening sockets: %w", err)
		}
	}
	return into, nil
}

// Backlog returns how many connections wait to be accepted at a socket's address, 0 if none
// listens there any more. Of sockets that share the address (SO_REUSEPORT) one answers;
// which one depends on pick.
func (d *Diag) Backlog(at netip.AddrPort, device uint32, pick uint16) (backlog int, err error) {
	id := [idLen]byte{}
	binary.BigEndian.PutUint16(id[idSourcePort:], at.Port())
	binary.BigEndian.PutUint16(id[idDestinationPort:], pick)
	family := byte(unix.AF_INET6)
	if at.Addr().Is4() {
		family = unix.AF_INET
		a := at.Addr().As4()
		copy(id[idSource:], a[:])
	} else {
		a := at.Addr().As16()
		copy(id[idSource:], a[:])
	}
	binary.NativeEndian.PutUint32(id[idDevice:], device)
	for i := idCookie; i < idLen; i++ {
		id[i] = 0xff // INET_DIAG_NOCOOKIE
	}
	d.ask(family, 0, id[:])
	err = d.answers(func(m []byte) { backlog = listening(m).Backlog })
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("ask for the accept queue of %s: %w", at, err)
	}
	return backlog, nil
}

// Unread looks at all connections of servers at a port, of sockets of IPv4 or IPv6. That takes about
// a microsecond for each.
func (d *Diag) Unread(port uint16, v6 bool) (u Unread, err error) {
	err = d.connections(port, v6, 1<<stateEstablished|1<<stateCloseWait, func(m []byte) { u.add(m) })
	return u, err
}

// Peers calls a function with the other end of each connection of servers at a port, of sockets of IPv4 or IPv6, in
// whatever state, until it is gone.
func (d *Diag) Peers(port uint16, v6 bool, visit func(netip.Addr)) error {
	return d.connections(port, v6, ^uint32(1<<stateListen|1<<stateTimeWait), func(m []byte) {
		id := m[4:]
		if m[0] == unix.AF_INET {
			visit(netip.AddrFrom4([4]byte(id[idDestination:])))
		} else {
			visit(netip.AddrFrom16([16]byte(id[idDestination:])).Unmap())
		}
	})
}

// connections asks for the connections of servers at a port that are in one of the states, a bit each.
func (d *Diag) connections(port uint16, v6 bool, states uint32, visit func([]byte)) error {
	id := [idLen]byte{}
	binary.BigEndian.PutUint16(id[idSourcePort:], port)
	family := byte(unix.AF_INET)
	if v6 {
		family = unix.AF_INET6
	}
	d.ask(family, unix.NLM_F_DUMP, id[:])
	d.req[unix.SizeofNlMsghdr+2] = 1 << (extInfo - 1)
	binary.NativeEndian.PutUint32(d.req[unix.SizeofNlMsghdr+4:], states)
	err := d.answers(visit)
	if errors.Is(err, os.ErrNotExist) && v6 {
		err = nil // a kernel without IPv6
	}
	if err != nil {
		return fmt.Errorf("ask for connections at port %d: %w", port, err)
	}
	return nil
}

// add counts the connection of a struct inet_diag_msg and its attributes.
func (u *Unread) add(m []byte) {
	inode, queued := binary.NativeEndian.Uint32(m[68:]), binary.NativeEndian.Uint32(m[56:])
	if queued == 0 {
		return
	}
	age := time.Duration(received(m[diagMessage:])) * time.Millisecond
	switch {
	case inode == 0: // no file is open for it
		u.Queued, u.QueuedFor = u.Queued+1, u.QueuedFor+age
	case age <= unreadMost:
		u.Accepted++
	}
}

// received finds in attributes how many milliseconds ago something came.
func received(b []byte) uint32 {
	for len(b) >= unix.SizeofNlAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofNlAttr || length > len(b) {
			break
		}
		if binary.NativeEndian.Uint16(b[2:]) == extInfo && length >= unix.SizeofNlAttr+infoReceived+4 {
			return binary.NativeEndian.Uint32(b[unix.SizeofNlAttr+infoReceived:])
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return 0
}

// ask prepares a question.
func (d *Diag) ask(family byte, flags uint16, id []byte) {
	d.asked++
	b := d.req[:]
	clear(b)
	binary.NativeEndian.PutUint32(b, diagRequest)
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(b[8:], d.asked)
	b = b[unix.SizeofNlMsghdr:]
	b[0], b[1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[4:], 1<<stateListen)
	copy(b[8:], id)
}

// answers sends the question and calls f with each answer.
func (d *Diag) answers(f func([]byte)) error {
	if _, err := unix.Write(d.fd, d.req[:]); err != nil {
		return err
	}
	dump := binary.NativeEndian.Uint16(d.req[6:])&unix.NLM_F_DUMP != 0
	for {
		n, err := unix.Read(d.fd, d.buffer)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		last, err := d.parse(d.buffer[:n], dump, f)
		if last || err != nil {
			return err
		}
	}
}

// parse reads the messages of one datagram, and says whether no more follow.
func (d *Diag) parse(b []byte, dump bool, f func([]byte)) (last bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		length := int(binary.NativeEndian.Uint32(b))
		if length < unix.SizeofNlMsghdr || length > len(b) {
			return true, errors.New("the kernel's answer is cut off")
		}
		kind, seq, body := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:]), b[unix.SizeofNlMsghdr:length]
		b = b[min((length+3)&^3, len(b)):]
		if seq != d.asked {
			continue // of a question whose answer came too late
		}
		switch {
		case kind == unix.NLMSG_DONE:
			return true, nil
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			if code := -int32(binary.NativeEndian.Uint32(body)); code != 0 {
				return true, unix.Errno(code)
			}
		case kind == unix.SOCK_DIAG_BY_FAMILY && len(body) >= diagMessage && d.asksFor(body[1]):
			f(body)
			last = last || !dump
		}
	}
	return last, nil
}

// asksFor reports whether the question was about sockets in a state.
func (d *Diag) asksFor(state byte) bool {
	return binary.NativeEndian.Uint32(d.req[unix.SizeofNlMsghdr+4:])>>state&1 != 0
}

// listening reads a struct inet_diag_msg.
func listening(m []byte) Listening {
	id := m[4:]
	l := Listening{
		Backlog: int(binary.NativeEndian.Uint32(m[56:])),
		Inode:   binary.NativeEndian.Uint32(m[68:]),
		Device:  binary.NativeEndian.Uint32(id[idDevice:]),
	}
	addr := netip.AddrFrom16([16]byte(id[idSource:]))
	if m[0] == unix.AF_INET {
		addr = netip.AddrFrom4([4]byte(id[idSource:]))
	}
	l.At = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(id[idSourcePort:]))
	return l
}
