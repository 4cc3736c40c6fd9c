// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Lock is held by the one process that may change an instance.
type Lock struct {
	file *os.File
}

// TakenError is how a daemon ends whose instance another process has taken.
type TakenError struct{ Instance string }

func (e *TakenError) Error() string {
	return fmt.Sprintf("instance %q was taken out of force while this process hung (`narthex detach --force`): it ends, and changes nothing", e.Instance)
}

// Held reports whether it is still ours: SeizeLock takes it from a process that hangs.
func (l *Lock) Held() bool { return isAt(l.file, l.file.Name()) }

// SeizeLock takes the lock of an instance also from a process that holds it. That must look
// whether its lock is held before it changes anything.
func SeizeLock(runDir, instance string) (*Lock, error) {
	lock, err := AcquireLock(runDir, instance)
	if !errors.As(err, new(*BusyError)) {
		return lock, err
	}
	if err := os.Remove(lockPath(runDir, instance)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, lockError(lockPath(runDir, instance), err)
	}
	return AcquireLock(runDir, instance)
}

// BusyError is the error of a lock that another process holds.
type BusyError struct {
	Instance string
	PID      int // 0 if it is not known
}

func (e *BusyError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("instance %q is busy: another process holds it; name another with --instance", e.Instance)
	}
	return fmt.Sprintf("instance %q is busy: process %d holds it; stop that one or name another with --instance", e.Instance, e.PID)
}

// AcquireLock takes the lock of an instance or returns a *BusyError at once.
func AcquireLock(runDir, instance string) (*Lock, error) {
	path := lockPath(runDir, instance)
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return nil, lockError(runDir, err)
	}
	for {
		file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, lockError(path, err)
		}
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			defer file.Close()
			return nil, &BusyError{Instance: instance, PID: readPID(file)}
		}
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %q: %w", path, err)
		}
		if !isAt(file, path) {
			file.Close() // its holder removed it between our two steps
			continue
		}
		if err := writePID(file); err != nil {
			file.Close()
			return nil, fmt.Errorf("write lock: %w", err)
		}
		return &Lock{file: file}, nil
	}
}

func lockError(path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("no permission to write %s: run this command as root", path)
	}
	return fmt.Errorf("open lock: %w", err)
}

// Holder returns the process that holds an instance, 0 if there is none or that cannot be
// told. It asks the kernel's list: trying the lock would be in the way of a starting daemon.
func Holder(runDir, instance string) int {
	info, err := os.Stat(lockPath(runDir, instance))
	if err != nil {
		return 0
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	inode := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	return holderIn(string(locks), inode)
}

// holderIn finds the process in lines such as "1: FLOCK ADVISORY WRITE 42 00:19:1234 0 EOF".
func holderIn(locks, inode string) int {
	const kindField, pidField, inodeField = 1, 4, 5
	for line := range strings.Lines(locks) {
		fields := strings.Fields(line)
		if len(fields) > inodeField && fields[kindField] == "FLOCK" && fields[inodeField] == inode {
			pid, _ := strconv.Atoi(fields[pidField])
			return pid
		}
	}
	return 0
}

// Release removes the lock, unless it is another's by now.
func (l *Lock) Release() error {
	if !l.Held() {
		return l.file.Close()
	}
	return errors.Join(os.Remove(l.file.Name()), l.file.Close())
}

// isAt reports whether path still leads to the open file.
func isAt(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(opened, there)
}

func readPID(file *os.File) int {
	const longest = 32
	text, err := io.ReadAll(io.LimitReader(file, longest))
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return pid
}

func writePID(file *os.File) error {
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}
