// SPDX-License-Identifier: Apache-2.0

// Package peers configures what the experiments compare: the servers that they load, and
// the tools that people protect such servers with today. Each tool is set up as its own
// documentation advises; what it follows is said by its method Follows.
//
// All of them answer HTTP/1.1 with a Content-Length, errors too. They end with the
// namespace they run in, or with Close.
package peers

import (
	"fmt"
	"net/netip"
	"strings"

	"narthex/internal/lab"
)

// Paths of the files that the servers serve, 8192 and 1024 bytes long.
const (
	File8K = lab.File
	File1K = "/1k.html"
)

// Dynamic is the path of what Apache's script answers.
const Dynamic = lab.CGIPath

// In is the path of a file in a folder. Each folder has all files: In("/greedy", File8K)
// is /greedy/8k.html.
func In(folder, file string) string { return folder + file }

// LongPath is a path of File8K that has the given number of characters: 8, or 10 and more.
func LongPath(characters int) string {
	fill := characters - len(File8K) - 1
	switch {
	case characters == len(File8K):
		return File8K
	case fill < 1:
		panic(fmt.Sprintf("no path of %s has %d characters", File8K, characters))
	}
	return "/" + strings.Repeat("a", fill) + File8K
}

// Class is the requests whose path begins with Path and that come from the network From.
// An empty Path is any path, the zero From any network.
type Class struct {
	Path string
	From netip.Prefix
}

// RateLimit limits the requests of a class in number per second.
type RateLimit struct {
	Class
	Rate  int // requests per second
	Burst int // requests that may come at once, where the tool knows of that; 1 if 0
}

// ConcurrencyLimit limits the requests of a class that are served at once.
type ConcurrencyLimit struct {
	Class
	Requests int
}

// Priority gives a class a place in the queue.
type Priority struct {
	Class
	Priority int // -2047 to 2047; the lowest number goes first
}

// lines joins the lines of a configuration.
func lines(l []string) string { return strings.Join(l, "\n") }
