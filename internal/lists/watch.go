// SPDX-License-Identifier: Apache-2.0

package lists

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Version is a file as it was read.
type Version struct {
	Path     string
	Bytes    int64
	Modified time.Time
}

// Watch calls changed with the paths of files that are others than they were, until the context ends. It
// hears of that by inotify on their folders, and looks itself every so often, for some file systems tell
// nothing, and links may lead elsewhere.
func Watch(ctx context.Context, files []Version, often time.Duration, changed func(path string)) {
	w := watch{before: map[string]stamp{}}
	for _, f := range files {
		w.before[f.Path] = stampOf(f.Path)
		if s := w.before[f.Path]; s.size != f.Bytes || !time.Unix(s.modified.Unix()).Equal(f.Modified) {
			w.before[f.Path] = stamp{} // it has changed since
		}
	}
	heard := make(chan struct{}, 1)
	if fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err == nil {
		events := os.NewFile(uintptr(fd), "inotify")
		for _, f := range files {
			// A folder that cannot be watched is looked at all the same.
			_, _ = unix.InotifyAddWatch(fd, filepath.Dir(f.Path), unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_CREATE|unix.IN_DELETE|unix.IN_MOVED_FROM)
		}
		go hear(events, heard)
		defer events.Close() // ends hear
	}
	w.look(changed)
	ticker := time.NewTicker(often)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-heard:
		case <-ticker.C:
		}
		w.look(changed)
	}
}

// hear passes on that there are events. What they are the files say.
func hear(events *os.File, heard chan<- struct{}) {
	var buffer [4096]byte
	for {
		if _, err := events.Read(buffer[:]); err != nil {
			return
		}
		select {
		case heard <- struct{}{}:
		default:
		}
	}
}

// stamp tells versions of a file apart; zero: it is not there.
type stamp struct {
	device, inode uint64
	size          int64
	modified      unix.Timespec
}

func stampOf(path string) stamp {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil {
		return stamp{}
	}
	return stamp{uint64(s.Dev), s.Ino, s.Size, s.Mtim}
}

// settled is for how long a file must be as it is, so that what is being written is not read.
const settled = 300 * time.Millisecond

type watch struct{ before map[string]stamp }

// look tells of the files that are others than before, once they stay as they are.
func (w *watch) look(changed func(string)) {
	for path, before := range w.before {
		now := stampOf(path)
		for now != before {
			time.Sleep(settled)
			if again := stampOf(path); again != now {
				now = again
				continue
			}
			w.before[path] = now
			changed(path)
			break
		}
	}
}
