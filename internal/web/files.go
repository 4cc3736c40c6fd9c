// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed page vendor/uplot/uPlot.iife.min.js vendor/uplot/uPlot.min.css vendor/uplot/LICENSE
var embedded embed.FS

// file is a part of the page, as it is and compressed.
type file struct {
	kind          string // media type
	tag           string // ETag
	plain, zipped []byte
}

// kinds are media types by extension: those of the system may differ.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// pageFiles returns what the page consists of, by path: itself at /, and the rest below
// /assets/.
func pageFiles() map[string]file {
	files := map[string]file{}
	for _, dir := range []string{"page", "vendor/uplot"} {
		entries, err := fs.ReadDir(embedded, dir)
		if err != nil {
			panic(err) // it was compiled in
		}
		for _, e := range entries {
			content, err := fs.ReadFile(embedded, path.Join(dir, e.Name()))
			if err != nil {
				panic(err)
			}
			files[pathOf(e.Name())] = newFile(e.Name(), content)
		}
	}
	return files
}

func pathOf(name string) string {
	if name == "index.html" {
		return "/{$}"
	}
	return "/assets/" + name
}

func newFile(name string, content []byte) file {
	kind, known := kinds[path.Ext(name)]
	if !known {
		kind = "text/plain; charset=utf-8"
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		panic(err) // the level is a constant
	}
	// Writing to memory cannot fail.
	_, _ = w.Write(content)
	_ = w.Close()
	return file{kind: kind, tag: fmt.Sprintf(`"%.16x"`, sha256.Sum256(content)), plain: content, zipped: zipped.Bytes()}
}

// ServeHTTP answers with the file. Browsers ask each time whether it has changed: another
// version of the daemon has another page.
func (f file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept-Encoding")
	body, tag := f.plain, f.tag
	if takesGzip(r) && len(f.zipped) < len(f.plain) {
		h.Set("Content-Encoding", "gzip")
		body, tag = f.zipped, strings.TrimSuffix(f.tag, `"`)+`-gzip"`
	}
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		h.Del("Content-Encoding")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.kind)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // the client has gone: nothing to tell it
	}
}

func takesGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" && strings.TrimSpace(quality) != "q=0" {
			return true
		}
	}
	return false
}
