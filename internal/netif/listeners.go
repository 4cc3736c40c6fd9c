// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Listeners are the addresses and ports of a namespace on which TCP servers listen.
type Listeners []netip.AddrPort

// On reports whether a server would get connections to a port of the address, or of any
// address if it is invalid. A server on [::] counts for IPv4, as it does by default.
func (l Listeners) On(addr netip.Addr, port uint16) bool {
	return slices.ContainsFunc(l, func(at netip.AddrPort) bool { return On(at, addr, port) })
}

// On reports whether a server that listens at an address and port would get connections to
// another one, as Listeners.On does.
func On(at netip.AddrPort, addr netip.Addr, port uint16) bool {
	bound := at.Addr()
	return at.Port() == port && (!addr.IsValid() || bound.Unmap() == addr.Unmap() ||
		bound == netip.IPv6Unspecified() || bound.IsUnspecified() && addr.Unmap().Is4())
}

// ReadListeners reads them. Where the kernel has no sock_diag for TCP it reads /proc/net/tcp,
// which takes long on a host with much memory.
func ReadListeners(ns *Namespace) (Listeners, error) {
	found, err := askListeners(ns)
	if errors.Is(err, fs.ErrNotExist) {
		return readListenersOfProc(ns)
	}
	return found, err
}

func askListeners(ns *Namespace) (found Listeners, err error) {
	d, err := OpenDiag(ns)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	sockets, err := d.Listening(nil)
	for _, s := range sockets {
		found = append(found, s.At)
	}
	return found, err
}

func readListenersOfProc(ns *Namespace) (found Listeners, err error) {
	err = ns.Do(func() error {
		for _, path := range []string{"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"} {
			file, err := os.Open(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a kernel without IPv6
			}
			if err != nil {
				return err
			}
			more, err := parseListeners(file)
			file.Close()
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			found = append(found, more...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read listening sockets: %w", err)
	}
	return found, nil
}

// parseListeners reads the form of /proc/net/tcp, where listening sockets come first: it
// stops at the first other one, for of those there may be very many.
func parseListeners(r io.Reader) (Listeners, error) {
	const (
		localField, stateField = 1, 3
		listening              = "0A"
	)
	var found Listeners
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) <= stateField || fields[0] == "sl" {
			continue
		}
		if fields[stateField] != listening {
			break
		}
		at, err := parseAddrPort(fields[localField])
		if err != nil {
			return nil, fmt.Errorf("parse address %q: %w", fields[localField], err)
		}
		found = append(found, at)
	}
	return found, lines.Err()
}

// parseAddrPort reads an address that was printed as words in host byte order.
func parseAddrPort(s string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(s, ":")
	raw, err := hex.DecodeString(host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, errors.New("neither IPv4 nor IPv6")
	}
	bytes := make([]byte, 0, len(raw))
	for word := range slices.Chunk(raw, 4) {
		bytes = binary.NativeEndian.AppendUint32(bytes, binary.BigEndian.Uint32(word))
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.AddrPortFrom(addr, uint16(number)), nil
}
