// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sysctl sets a setting below /proc/sys/net, such as "ipv4/tcp_syncookies".
func (n *Namespace) Sysctl(key, value string) error {
	// /proc/sys/net shows the namespace of the thread that opens the file.
	return n.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/"+key, []byte(value), 0); err != nil {
			return fmt.Errorf("set net/%s to %q in %q: %w", key, value, n.name, err)
		}
		return nil
	})
}

// ReadSysctl returns a setting below /proc/sys/net.
func (n *Namespace) ReadSysctl(key string) (value string, err error) {
	err = n.Do(func() error {
		b, err := os.ReadFile("/proc/sys/net/" + key)
		value = strings.TrimSpace(string(b))
		return err
	})
	return value, err
}

// PrepareClient lets clients in the namespace open connections at a high rate for long.
// Without it a client that closes first runs out of ports in TIME_WAIT within seconds,
// and the figures are nonsense.
func (n *Namespace) PrepareClient() error {
	// Milliseconds. Before 6.14 it is a second for all.
	if err := n.Sysctl("ipv4/tcp_tw_reuse_delay", "1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, s := range [][2]string{
		{"ipv4/tcp_tw_reuse", "1"},
		{"ipv4/ip_local_port_range", "1024 65535"},
		{"ipv4/tcp_max_tw_buckets", "1000"},
	} {
		if err := n.Sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}

// Offload is a feature of a device, named as ethtool -K names it.
type Offload string

// The offloads that decide what a packet's bytes hold.
const (
	RxChecksum Offload = "rx"
	TxChecksum Offload = "tx"
	GRO        Offload = "gro"
	GSO        Offload = "gso"
	TSO        Offload = "tso"
	RxVLAN     Offload = "rxvlan"
	TxVLAN     Offload = "txvlan"
)

// offloads holds the ethtool commands that set and get each feature, and for the VLAN
// features, which share a command, the flag.
var offloads = map[Offload]struct{ set, get, flag uint32 }{
	RxChecksum: {unix.ETHTOOL_SRXCSUM, unix.ETHTOOL_GRXCSUM, 0},
	TxChecksum: {unix.ETHTOOL_STXCSUM, unix.ETHTOOL_GTXCSUM, 0},
	GRO:        {unix.ETHTOOL_SGRO, unix.ETHTOOL_GGRO, 0},
	GSO:        {unix.ETHTOOL_SGSO, unix.ETHTOOL_GGSO, 0},
	TSO:        {unix.ETHTOOL_STSO, unix.ETHTOOL_GTSO, 0},
	RxVLAN:     {unix.ETHTOOL_SFLAGS, unix.ETHTOOL_GFLAGS, 1 << 8},
	TxVLAN:     {unix.ETHTOOL_SFLAGS, unix.ETHTOOL_GFLAGS, 1 << 7},
}

// SetOffload switches a feature of a device. It is an error if the device does not obey.
func (n *Namespace) SetOffload(dev string, o Offload, on bool) error {
	cmd, ok := offloads[o]
	if !ok {
		return fmt.Errorf("switch offload %q of %q: no such offload", o, dev)
	}
	return n.Do(func() error {
		was, err := ethtool(dev, cmd.get, 0)
		if err != nil {
			return fmt.Errorf("read offload %q of %q: %w", o, dev, err)
		}
		want := was &^ max(cmd.flag, 1)
		if on {
			want |= max(cmd.flag, 1)
		}
		if _, err := ethtool(dev, cmd.set, want); err != nil {
			return fmt.Errorf("switch offload %q of %q: %w", o, dev, err)
		}
		if is, err := ethtool(dev, cmd.get, 0); err != nil || is != want {
			return fmt.Errorf("switch offload %q of %q: it stays at %#x instead of %#x (error: %v)", o, dev, is, want, err)
		}
		return nil
	})
}

// ethtool does one SIOCETHTOOL call of the form that carries a single number.
func ethtool(dev string, cmd, value uint32) (uint32, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	arg := struct{ cmd, data uint32 }{cmd, value}
	req := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte // the rest of struct ifreq
	}{data: unsafe.Pointer(&arg)}
	copy(req.name[:unix.IFNAMSIZ-1], dev)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return 0, errno
	}
	return arg.data, nil
}

// SetRPS has the given cores do the protocol work for what a device receives. On a veth
// that work is otherwise done on the sender's core. An XDP program still runs there.
// Without cores it switches RPS off.
func (n *Namespace) SetRPS(dev string, cpus ...int) error {
	var mask uint64
	for _, cpu := range cpus {
		mask |= 1 << cpu
	}
	if err := n.WriteSysfs("class/net/"+dev+"/queues/rx-0/rps_cpus", fmt.Sprintf("%x", mask)); err != nil {
		return fmt.Errorf("set receive packet steering of %q to cores %v: %w", dev, cpus, err)
	}
	return nil
}

// WriteSysfs writes to a file of the namespace's sysfs, such as class/net/eth0/threaded.
func (n *Namespace) WriteSysfs(path, value string) error {
	return n.Do(func() error { return writeSysfs(path, value) })
}

// writeSysfs writes to a file of the sysfs that belongs to this thread's network
// namespace. /sys shows the one it was mounted in, so this mounts another, detached.
func writeSysfs(path, value string) error {
	sb, err := unix.Fsopen("sysfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(sb)
	if err := unix.FsconfigCreate(sb); err != nil {
		return err
	}
	mnt, err := unix.Fsmount(sb, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(mnt)
	fd, err := unix.Openat(mnt, path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}
