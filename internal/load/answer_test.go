// SPDX-License-Identifier: Apache-2.0

package load

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestAnswer(t *testing.T) {
	const complete, partial, wrong = "complete", "partial", "wrong"
	for _, c := range []struct {
		text   string
		want   string
		status int
		close  bool
	}{
		{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", complete, 200, false},
		{"HTTP/1.1 200 OK\r\ncontent-length:2\r\nconnection: Close\r\n\r\nhi", complete, 200, true},
		{"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nhi", complete, 200, true},
		{"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\nhi", complete, 200, false},
		{"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", complete, 503, false},
		{"HTTP/1.1 204\r\nContent-Length: 0\r\n\r\n", complete, 204, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", partial, 200, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n", partial, 0, false},
		{"", partial, 0, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nhi", wrong, 200, false},
		{"HTTP/1.1 200 OK\r\n\r\n", wrong, 0, false},
		{"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", wrong, 0, false},
		{"HTTP/1.1 100 Continue\r\n\r\n", wrong, 0, false},
		{"HTTP/1.1 2x0 OK\r\n\r\n", wrong, 0, false},
		{"220 smtp.example.com ESMTP\r\n\r\n", wrong, 0, false},
		{strings.Repeat("x", maxHead+1), wrong, 0, false},
	} {
		var a answer
		ok, err := a.feed([]byte(c.text))
		got := partial
		switch {
		case err != nil:
			got = wrong
		case ok:
			got = complete
		}
		if got != c.want || a.status != c.status || got != wrong && a.close != c.close {
			t.Errorf("%.60q is %s, status %d, close %v; want %s, %d, %v", c.text, got, a.status, a.close, c.want, c.status, c.close)
		}
	}
}

func TestAnswerInPieces(t *testing.T) {
	text := []byte("HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 11\r\n\r\nhello world")
	rapid.Check(t, func(t *rapid.T) {
		var a answer
		for rest := text; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			ok, err := a.feed(rest[:n])
			rest = rest[n:]
			if err != nil || ok != (len(rest) == 0) {
				t.Fatalf("with %d bytes to come: complete %v, error %v", len(rest), ok, err)
			}
		}
	})
}

func TestFIFOKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fifo{after: time.Second}
		start := time.Unix(0, 0)
		var model []*conn
		for step := range rapid.IntRange(1, 50).Draw(t, "steps") {
			if len(model) > 0 && rapid.Bool().Draw(t, "leave") {
				i := rapid.IntRange(0, len(model)-1).Draw(t, "which")
				model[i].leave()
				model = append(model[:i:i], model[i+1:]...)
			} else {
				c := &conn{}
				f.push(c, start.Add(time.Duration(step)))
				model = append(model, c)
			}
			at, ok := f.due()
			if ok != (len(model) > 0) {
				t.Fatalf("something is due: %v, with %d waiting", ok, len(model))
			}
			if ok && !at.Equal(model[0].since.Add(time.Second)) {
				t.Fatalf("due at %v, the first came at %v", at, model[0].since)
			}
		}
		for _, want := range model {
			if f.first != want {
				t.Fatal("out of order")
			}
			f.first.leave()
		}
		if f.first != nil || f.last != nil {
			t.Fatal("not empty at the end")
		}
	})
}
