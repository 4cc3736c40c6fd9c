// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"narthex/internal/daemon/openapi"
)

// temporaryDir is the folder in which an instance's socket is made. Its name is the same
// each time, so that what a killed daemon left is found.
func temporaryDir(socket, instance string) string {
	return filepath.Join(filepath.Dir(socket), ".narthex-"+instance)
}

// temporaryName is the socket's name in there.
const temporaryName = "s"

// removeTemporary removes what a daemon left that was killed while it made its socket, and
// nothing else that may have the same name.
func removeTemporary(socket, instance string) {
	root, err := os.OpenRoot(filepath.Dir(socket)) // not to be led elsewhere by a link
	if err != nil {
		return
	}
	defer root.Close()
	name := filepath.Base(temporaryDir(socket, instance))
	_ = root.Remove(filepath.Join(name, temporaryName))
	_ = root.Remove(name)
}

// listenControl makes the control socket. It appears under its name all at once and with
// its mode, for it is made in a folder that is closed to others. A socket that nobody
// answers on is replaced; the caller holds the instance's lock.
func listenControl(path, instance string, mode os.FileMode) (*net.UnixListener, error) {
	private := temporaryDir(path, instance)
	made := filepath.Join(private, temporaryName)
	longest := max(len(path), len(made))
	if longest >= len(unix.RawSockaddrUnix{}.Path) {
		return nil, fmt.Errorf("the path of the control socket %q is too long: name a shorter one with --socket", path)
	}
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no folder %q for the control socket: make it or name another path with --socket", filepath.Dir(path))
	}
	if err := checkReplaceable(path); err != nil {
		return nil, err
	}
	removeTemporary(path, instance)
	if err := os.Mkdir(private, 0o700); err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	defer removeTemporary(path, instance)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	listener.SetUnlinkOnClose(false) // it moves
	err = os.Chmod(made, mode)
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		listener.Close()
		return nil, fmt.Errorf("make control socket: %w", err)
	}
	return listener, nil
}

// checkReplaceable refuses to replace what is not a dead socket.
func checkReplaceable(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make control socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%q is there already and is no socket: remove it or name another path with --socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
	}
	if err == nil || !errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("another process listens on %q: stop it or name another path with --socket", path)
	}
	return nil
}

type peerKey struct{}

// peer is the process at the other end of a connection.
type peer struct {
	name string         // of the user, for the log
	may  openapi.Access // all of it if it is root's or the daemon's user's; none if that is not known
}

// groups are those whose members may use the control socket; noGroup: none.
type groups struct{ read, write int }

const noGroup = -1

// groupless is a socket for root alone.
var groupless = groups{noGroup, noGroup}

// openTo is the mode of the socket: whoever may connect is told by peerAt then.
func (g groups) openTo() os.FileMode {
	if g.read == noGroup && g.write == noGroup {
		return 0o600
	}
	return 0o666
}

// access is what a member of some groups may do.
func (g groups) access(of []uint32) openapi.Access {
	in := func(group int) bool { return group != noGroup && slices.Contains(of, uint32(group)) }
	switch {
	case in(g.write):
		return openapi.AccessWrite
	case in(g.read):
		return openapi.AccessRead
	}
	return openapi.AccessNone
}

// findGroup returns the number of a group, named or as a number.
func findGroup(option, name string) (int, error) {
	if name == "" {
		return noGroup, nil
	}
	if g, err := user.LookupGroup(name); err == nil {
		name = g.Gid
	}
	n, err := strconv.ParseUint(name, 10, 31)
	if err != nil {
		return noGroup, fmt.Errorf("--%s %s: there is no such group: make it with `groupadd --system %s`, or name another", option, name, name)
	}
	return int(n), nil
}

// withPeer notes on a connection's context who is at the other end.
func (g groups) withPeer(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, g.peerAt(conn))
}

// peerOf returns who sent a request.
func peerOf(r *http.Request) peer {
	p, _ := r.Context().Value(peerKey{}).(peer)
	return p
}

func (g groups) peerAt(conn net.Conn) peer {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return peer{}
	}
	var cred *unix.Ucred
	var credErr error
	var in []uint32
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		in = groupsAt(int(fd))
	})
	if err != nil || credErr != nil {
		return peer{}
	}
	p := peer{userName(cred.Uid, loginOf(cred.Pid)), g.access(append(in, cred.Gid))}
	if allowedUser(cred.Uid, os.Geteuid()) {
		p.may = openapi.AccessRoot
	}
	return p
}

// mostGroups is how many groups of a peer are looked at; a user in more is a member of its first alone.
const mostGroups = 1024

// groupsAt are the groups of the process that has connected, but for its first.
func groupsAt(fd int) []uint32 {
	list := make([]uint32, mostGroups)
	size := uint32(len(list)) * 4
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
		uintptr(unsafe.Pointer(&list[0])), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil
	}
	return list[:size/4]
}

func allowedUser(peer uint32, own int) bool {
	return peer == 0 || int64(peer) == int64(own)
}
