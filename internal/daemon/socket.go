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
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
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
func listenControl(path, instance string) (*net.UnixListener, error) {
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
	err = os.Chmod(made, 0o600)
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
	name    string // of the user, for the log
	allowed bool   // it is root's or the daemon's user's; false, too, if that is not known
}

// withPeer notes on a connection's context who is at the other end.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, peerAt(conn))
}

// peerOf returns who sent a request.
func peerOf(r *http.Request) peer {
	p, _ := r.Context().Value(peerKey{}).(peer)
	return p
}

func peerAt(conn net.Conn) peer {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return peer{}
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || credErr != nil {
		return peer{}
	}
	return peer{userName(cred.Uid, loginOf(cred.Pid)), allowedUser(cred.Uid, os.Geteuid())}
}

func allowedUser(peer uint32, own int) bool {
	return peer == 0 || int64(peer) == int64(own)
}
