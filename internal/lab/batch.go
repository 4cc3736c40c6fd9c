// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MaxBatch is how many frames SendBatch sends at most.
const MaxBatch = 64

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	hdr unix.Msghdr
	_   uint32 // bytes sent of it
	_   [4]byte
}

// SendBatch puts up to MaxBatch frames on the device with one system call. It returns how
// many the device took; it can be fewer without an error.
func (r *Raw) SendBatch(frames [][]byte) (sent int, err error) {
	var (
		messages [MaxBatch]mmsghdr
		vectors  [MaxBatch]unix.Iovec
	)
	frames = frames[:min(len(frames), MaxBatch)]
	for i, f := range frames {
		vectors[i].Base = &f[0]
		vectors[i].SetLen(len(f))
		messages[i].hdr.Iov = &vectors[i]
		messages[i].hdr.SetIovlen(1)
	}
	for {
		n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(r.fd), uintptr(unsafe.Pointer(&messages)), uintptr(len(frames)), 0, 0, 0)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOBUFS, unix.ENETDOWN: // as a wire loses frames
			return 0, nil
		default:
			return 0, fmt.Errorf("send %d frames on %q: %w", len(frames), r.dev, errno)
		}
	}
}
