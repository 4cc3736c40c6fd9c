// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// MaxPageBytes is the largest page that answers have.
const MaxPageBytes = 32 << 10

// Page is what an answer has for people to read. The zero Page is Narthex's own.
type Page struct {
	None    bool
	File    string // as in the policy; empty: Narthex's own
	Type    string // Content-Type
	Body    string
	Repeats bool // it asks again by itself, which is for GETs alone
}

// pageTypes are the types of pages by the endings of their files; others are told by what is in them.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8", ".txt": "text/plain; charset=utf-8",
	".json": "application/json", ".xml": "application/xml",
}

// noPage is what a policy has in place of a page where there is to be none.
const noPage = "none"

// parsePage reads the page that a policy of that file names.
func parsePage(policy string) func(string) (Page, error) {
	return func(name string) (Page, error) {
		if name == noPage {
			return Page{None: true}, nil
		}
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(policy), name)
		}
		body, err := readPage(path)
		if err != nil {
			return Page{}, fmt.Errorf("page %s: %w", quote(name), err)
		}
		kind := pageTypes[strings.ToLower(filepath.Ext(name))]
		if kind == "" {
			kind = http.DetectContentType([]byte(body))
		}
		return Page{File: name, Type: kind, Body: body, Repeats: repeats(body)}, nil
	}
}

// readPage reads a page; it does not wait for a pipe.
func readPage(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", pageCause(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", errors.New("it is no regular file; name one")
	}
	body, err := io.ReadAll(io.LimitReader(f, MaxPageBytes+1))
	switch {
	case err != nil:
		return "", err
	case len(body) == 0:
		return "", fmt.Errorf("it is empty; write what is to be read, or %q in its place", noPage)
	case len(body) > MaxPageBytes:
		return "", fmt.Errorf("it has %d bytes; a page has at most %d (%d KiB): make it smaller, and have it name images instead of having them", max(info.Size(), int64(len(body))), MaxPageBytes, MaxPageBytes>>10)
	}
	return string(body), nil
}

// pageCause adds what to do to why a page cannot be read.
func pageCause(err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return fmt.Errorf("cannot read %s: %w; write its name as from the policy's folder, or a whole path", path.Path, path.Err)
	}
	return err
}

// repeats says whether a page asks again by itself.
func repeats(body string) bool {
	text := strings.ToLower(body)
	return strings.Contains(text, "http-equiv") && strings.Contains(text, "refresh") || strings.Contains(text, "reload(")
}
