// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Raw sends and receives whole Ethernet frames on a device.
type Raw struct {
	fd  int
	dev string
	buf [65536]byte
	oob [128]byte
}

// OpenSender opens a device for sending frames. Nothing can be received on it.
func (n *Namespace) OpenSender(dev string) (*Raw, error) { return n.openRaw(dev, 0) }

// OpenCapture opens a device for sending frames and for receiving every frame that the
// device sends or receives.
func (n *Namespace) OpenCapture(dev string) (*Raw, error) { return n.openRaw(dev, unix.ETH_P_ALL) }

func (n *Namespace) openRaw(dev string, proto uint16) (*Raw, error) {
	r := &Raw{fd: -1, dev: dev}
	err := n.Do(func() error {
		nic, err := net.InterfaceByName(dev)
		if err != nil {
			return err
		}
		// Protocol 0 until it is bound to the device: it would receive from all of them.
		r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.SetsockoptInt(r.fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
			return err
		}
		return unix.Bind(r.fd, &unix.SockaddrLinklayer{Protocol: hostToNet16(proto), Ifindex: nic.Index})
	})
	if err != nil {
		if r.fd >= 0 {
			unix.Close(r.fd)
		}
		return nil, fmt.Errorf("open device %q in %q for raw frames: %w", dev, n.name, err)
	}
	return r, nil
}

// Send puts a frame, from its Ethernet header on and without a checksum at its end, on
// the device. It waits while the socket's buffer is full.
func (r *Raw) Send(frame []byte) error {
	for {
		_, err := unix.Write(r.fd, frame)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("send %d bytes on %q: %w", len(frame), r.dev, err)
		}
		return nil
	}
}

// Receive returns the next frame as it was on the wire: a VLAN tag that the kernel has
// taken out is put back. It returns os.ErrDeadlineExceeded if none comes in time.
func (r *Raw) Receive(timeout time.Duration) ([]byte, error) {
	if err := r.await(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	n, oobn, _, _, err := unix.Recvmsg(r.fd, r.buf[:], r.oob[:], 0)
	if err != nil {
		return nil, fmt.Errorf("receive on %q: %w", r.dev, err)
	}
	frame := slices.Clone(r.buf[:n])
	messages, err := unix.ParseSocketControlMessage(r.oob[:oobn])
	if err != nil {
		return nil, fmt.Errorf("receive on %q: %w", r.dev, err)
	}
	for _, m := range messages {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA {
			continue
		}
		aux := (*unix.TpacketAuxdata)(unsafe.Pointer(&m.Data[0]))
		if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 {
			tag := binary.BigEndian.AppendUint16(nil, aux.Vlan_tpid)
			frame = slices.Insert(frame, 12, binary.BigEndian.AppendUint16(tag, aux.Vlan_tci)...)
		}
	}
	return frame, nil
}

// await waits until there is something to receive.
func (r *Raw) await(deadline time.Time) error {
	for {
		fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(max(0, time.Until(deadline).Milliseconds())))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return fmt.Errorf("wait for a frame on %q: %w", r.dev, err)
		case n > 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("wait for a frame on %q: %w", r.dev, os.ErrDeadlineExceeded)
		}
	}
}

// Close closes the socket.
func (r *Raw) Close() error { return unix.Close(r.fd) }

func hostToNet16(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
