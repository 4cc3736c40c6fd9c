// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// rotating is a file of lines and the one before, which it replaces when it is full. It is not for several
// goroutines at once.
type rotating struct {
	path    string
	most    int64  // bytes of each of the two
	first   string // line that each begins with; empty: none
	file    *os.File
	written int64
	cut     bool // the last line may not be whole
}

// open opens the file, or makes one. It leaves alone what is no file of its kind.
func (r *rotating) open() error {
	if err := r.mayReplace(); err != nil {
		return err
	}
	file, err := os.OpenFile(r.path, os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o640)
	if err != nil {
		return err
	}
	r.file = file
	if err = r.look(); err != nil {
		r.close()
	}
	return err
}

// close closes the file, if it is open.
func (r *rotating) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}

// mayReplace finds out whether the file before, if there is one, is ours.
func (r *rotating) mayReplace() error {
	err := readLines(r.path+".1", r.first, func([]byte) error { return errEnough })
	if err == nil || errors.Is(err, errEnough) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// look finds out what the file has, and begins one that is empty.
func (r *rotating) look() error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errForeign(r.path)
	}
	r.written, r.cut = info.Size(), false
	if r.written == 0 {
		return r.begin()
	}
	head := make([]byte, len(r.first))
	if n, _ := r.file.ReadAt(head, 0); n < len(head) || string(head) != r.first {
		return errForeign(r.path)
	}
	end := make([]byte, 1)
	_, err = r.file.ReadAt(end, r.written-1)
	r.cut = end[0] != '\n'
	return err
}

// begin writes the first line, all of it or nothing.
func (r *rotating) begin() error {
	if r.first == "" {
		return nil
	}
	err := r.put([]byte(r.first))
	if err != nil {
		err = errors.Join(err, r.file.Truncate(0))
	}
	return err
}

var errEnough = errors.New("enough")

func errForeign(path string) error { return fmt.Errorf("%q is no file of ours", path) }

// write writes a line that ends in a line break.
func (r *rotating) write(line []byte) error {
	if r.file != nil && r.written+int64(len(line)) > r.most {
		r.close()
		if err := os.Rename(r.path, r.path+".1"); err != nil {
			return err
		}
	}
	if r.file == nil {
		if err := r.open(); err != nil {
			return err
		}
	}
	if r.cut {
		line = append([]byte{'\n'}, line...)
	}
	return r.put(line)
}

func (r *rotating) put(text []byte) error {
	n, err := r.file.Write(text)
	r.written += int64(n)
	if n > 0 {
		r.cut = n < len(text)
	}
	return err
}

// read calls tell with the lines of both files, the oldest first, also those that are not whole.
func (r *rotating) read(tell func(line []byte) error) error {
	for _, path := range []string{r.path + ".1", r.path} {
		err := readLines(path, r.first, tell)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func readLines(path, first string, tell func(line []byte) error) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(errForeign(path), err)
	}
	const longest = 4 << 20
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, longest)
	if first != "" && (!lines.Scan() || lines.Text()+"\n" != first) {
		return errForeign(path)
	}
	for lines.Scan() {
		if err := tell(lines.Bytes()); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil // it is broken from here on
	}
	return lines.Err()
}
