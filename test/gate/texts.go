// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"fmt"
	"strings"
)

// request is what a client asks.
type request struct {
	text    []byte
	head    int  // bytes of its head
	closes  bool // the connection ends with it
	expect  bool // waits for an interim answer
	tunnel  bool // asks for a tunnel
	chunked bool
	lost    bool // cannot be followed
}

// requests are those that clients choose from.
var requests = makeRequests()

func makeRequests() (all []request) {
	add := func(head string, body string, set func(*request)) {
		r := request{text: []byte(head + "\r\n" + body), head: len(head) + 2}
		if set != nil {
			set(&r)
		}
		all = append(all, r)
	}
	get := func(pad int) string {
		h := "GET / HTTP/1.1\r\nHost: x\r\n"
		for i := 0; len(h) < pad; i++ {
			h += fmt.Sprintf("X-%d: %s\r\n", i, strings.Repeat("v", min(pad, 300)))
		}
		return h
	}
	for _, pad := range []int{0, 0, 0, 0, 80, 500, 1400, 1900, 3000, 9000} {
		add(get(pad), "", nil)
	}
	post := func(n int, more string) string {
		return fmt.Sprintf("POST /p HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n", more, n)
	}
	for _, n := range []int{0, 1, 2, 10, 200, 1000, 1448, 3000, 16000, 40000} {
		add(post(n, ""), body(n), nil)
	}
	add(post(300, "Expect: 100-continue\r\n"), body(300), func(r *request) { r.expect = true })
	add(get(0)+"Connection: close\r\n", "", func(r *request) { r.closes = true })
	add("GET / HTTP/1.0\r\n\r\n"[:16], "", func(r *request) { r.closes = true })
	add(post(700, "Connection: close\r\n"), body(700), func(r *request) { r.closes = true })
	return all
}

// odd are requests that are followed differently from one version of the gate to the next, or
// not at all.
var odd = makeOdd()

func makeOdd() (all []request) {
	chunks := func(sizes ...int) string {
		b := strings.Builder{}
		for _, n := range sizes {
			fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body(n))
		}
		return b.String() + "0\r\n\r\n"
	}
	for _, c := range []string{chunks(), chunks(1), chunks(5, 1, 300), chunks(2000, 2000, 3), chunks(16000)} {
		h := "POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
		all = append(all, request{text: []byte(h + "\r\n" + c), head: len(h) + 2, chunked: true})
	}
	up := "GET /u HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
	all = append(all, request{text: []byte(up), head: len(up), tunnel: true})
	for _, text := range []string{
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"GET / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabcde",
		"GET / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
		"GET / HTTP/2.0\r\n\r\n",
	} {
		all = append(all, request{text: []byte(text), head: len(text), lost: true})
	}
	return all
}

// body is so many bytes, of which no two stretches are alike.
func body(n int) string {
	b := bytes.Buffer{}
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "%d.", i*7919)
	}
	return b.String()[:n]
}

// answer is what the server says.
type answer struct {
	text   []byte
	closes bool
}

var answers = []answer{
	{[]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), false},
	{[]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), false},
	{[]byte("HTTP/1.1 200 OK\r\nContent-Length: 6000\r\n\r\n" + body(6000)), false},
	{[]byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"), true},
	{[]byte("HTTP/1.0 200 OK\r\n\r\nbye"), true},
	{[]byte("HTTP/1.1 200 OK\r\nContent-Length: 6000\r\nConnection: close\r\n\r\n" + body(6000)), true},
	{[]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"), false},
	{[]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\nBB8;x=y\r\n" + body(3000) + "\r\n0\r\nTrailer: x\r\n\r\n"), false},
	{[]byte("HTTP/1.1 103 Early Hints\r\nLink: <" + body(700) + ">\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"), false},
	{[]byte("HTTP/1.1 304 Not Modified\r\nContent-Length: 6000\r\n\r\n"), false},
}

var (
	interim  = []byte("HTTP/1.1 100 Continue\r\n\r\n")
	switched = []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
	rejected = []byte("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
)
