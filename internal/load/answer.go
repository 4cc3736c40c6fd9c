// SPDX-License-Identifier: Apache-2.0

package load

import (
	"bytes"
	"errors"
	"strconv"
)

// maxHead bounds the head of an answer in bytes.
const maxHead = 64 << 10

var errNotHTTP = errors.New("not an HTTP/1.1 answer with a length")

// answer follows one answer as its bytes arrive. The zero value awaits one.
type answer struct {
	head   []byte // as long as it is incomplete
	status int    // 0 as long as the head is incomplete
	length int    // of the body in bytes
	left   int    // bytes of the body to come
	close  bool   // the server closes the connection afterwards
}

// feed takes the bytes that have arrived. It reports whether the answer is complete.
func (a *answer) feed(b []byte) (complete bool, err error) {
	if a.status == 0 {
		if len(a.head) > 0 {
			a.head = append(a.head, b...)
			b = a.head
		}
		head, body, ok := bytes.Cut(b, []byte("\r\n\r\n"))
		if !ok {
			if len(b) > maxHead {
				return false, errNotHTTP
			}
			if len(a.head) == 0 {
				a.head = append(a.head, b...)
			}
			return false, nil
		}
		if err := a.parse(head); err != nil {
			return false, err
		}
		a.head = nil
		b = body
	}
	a.left -= len(b)
	if a.left < 0 {
		return false, errNotHTTP
	}
	return a.left == 0, nil
}

// parse reads the status and the length.
func (a *answer) parse(head []byte) error {
	line, fields, _ := bytes.Cut(head, []byte("\r\n"))
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.")) {
		return errNotHTTP
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil || status < 200 {
		return errNotHTTP
	}
	length, old := -1, line[7] == '0'
	a.close = old // RFC 9112, 9.3
	for len(fields) > 0 {
		line, fields, _ = bytes.Cut(fields, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return errNotHTTP
			}
		case bytes.EqualFold(name, []byte("Connection")):
			a.close = bytes.EqualFold(value, []byte("close")) || old && !bytes.EqualFold(value, []byte("keep-alive"))
		}
	}
	if length < 0 {
		return errNotHTTP
	}
	a.status, a.length, a.left = status, length, length
	return nil
}
