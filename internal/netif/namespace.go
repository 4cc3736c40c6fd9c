// SPDX-License-Identifier: Apache-2.0

package netif

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// namedNamespaces is where ip-netns(8) keeps the namespaces that have a name.
const namedNamespaces = "/run/netns"

// Namespace is a network namespace. The zero value is that of the process.
type Namespace struct {
	file  *os.File
	dir   *os.Root      // where the file is
	calls chan call     // to the thread that is in the namespace
	ended chan struct{} // is closed when no more calls are taken
}

// call is a function that is to be run in a namespace.
type call struct {
	f    func() error
	done chan<- error
}

// OpenNamespace opens a network namespace by its name or, if there is a slash in it, by
// the path of its file. The empty name is the namespace of the process.
func OpenNamespace(name string) (*Namespace, error) {
	if name == "" {
		return &Namespace{}, nil
	}
	path := name
	if !strings.Contains(name, "/") {
		path = filepath.Join(namedNamespaces, name)
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("network namespace %q does not exist: create it with `ip netns add`, or name another", name)
	}
	if err != nil {
		return nil, advise(fmt.Errorf("open network namespace %q: %w", name, err))
	}
	kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || kind != unix.CLONE_NEWNET {
		file.Close()
		return nil, fmt.Errorf("%q is no network namespace: name one of `ip netns list`, or a path such as /proc/PID/ns/net", name)
	}
	dir, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("open network namespace %q: %w", name, err)
	}
	n := &Namespace{file: file, dir: dir, calls: make(chan call), ended: make(chan struct{})}
	if err := n.enter(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// enter starts a thread that stays in the namespace until Close. To enter takes
// CAP_SYS_ADMIN, which the process may give up then.
func (n *Namespace) enter() error {
	entered := make(chan error, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, so that no other one can find
		// itself in the wrong namespace.
		runtime.LockOSThread()
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			entered <- enterError(n.file.Name(), err)
			return
		}
		entered <- nil
		for {
			select {
			case c := <-n.calls:
				c.done <- c.f()
			case <-n.ended:
				return
			}
		}
	}()
	return <-entered
}

// Close lets the namespace go.
func (n *Namespace) Close() error {
	if n.file == nil {
		return nil
	}
	close(n.ended)
	return errors.Join(n.dir.Close(), n.file.Close())
}

// Do runs f on a thread that is in the namespace, one at a time: f must not call Do. Only the
// network namespace is another: files and mounts are those of the process.
func (n *Namespace) Do(f func() error) error {
	if n.file == nil {
		return f()
	}
	done := make(chan error, 1)
	select {
	case n.calls <- call{f, done}:
		return <-done
	case <-n.ended:
		return fmt.Errorf("enter network namespace %q: %w", n.file.Name(), os.ErrClosed)
	}
}

// Gone reports whether the file that the namespace was opened by is gone, or stands for
// another namespace now. Of a process's file, in /proc, it is gone when the process is.
func (n *Namespace) Gone() bool {
	if n.file == nil {
		return false
	}
	// Not by its path: after the process another one may have its number. Nor through the
	// link, for that takes the right to trace the process.
	there, err := n.dir.Lstat(filepath.Base(n.file.Name()))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return true
	}
	if err != nil || there.Mode().Type() == fs.ModeSymlink {
		return false
	}
	opened, err := n.file.Stat()
	return err == nil && !os.SameFile(opened, there)
}

func enterError(name string, err error) error {
	return advise(fmt.Errorf("enter network namespace %q: %w", name, err))
}

// advise says which privilege is missing.
func advise(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: run as root, or with CAP_SYS_ADMIN", err)
	}
	return err
}

// Cookie returns a number that no other network namespace has until the next boot.
func (n *Namespace) Cookie() (cookie uint64, err error) {
	err = n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("identify network namespace: %w", err)
	}
	return cookie, nil
}
