// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Visits of HTTP services. The names of kinds say what their clients are, or do.
var (
	webKinds = []kind{
		{"browser", 20, (*visit).browse},
		{"one-shot", 20, (*visit).oneShot},
		{"trickle", 6, (*visit).trickle},
		{"pipeline", 6, (*visit).pipeline},
		{"download", 3, (*visit).download},
		{"leaver", 6, (*visit).leave},
		{"half-closer", 3, (*visit).halfClose},
	}
	putKinds  = []kind{{"upload", 16, (*visit).put}}
	echoKinds = []kind{{"upload", 16, (*visit).echo}}
	goKinds   = []kind{
		{"upgrade", 4, (*visit).upgrade},
		{"connect", 4, (*visit).connect},
		{"early", 6, (*visit).early},
		{"worker", 6, (*visit).work},
	}
)

// anySize is mostly a small one.
func (v *visit) anySize() int { return sizes[min(v.rng.IntN(len(sizes)-1), v.rng.IntN(len(sizes)-1))] }

// browse asks again and again on one connection.
func (v *visit) browse() error {
	for range 1 + v.rng.IntN(12) {
		size := v.anySize()
		method, path := http.MethodGet, "/"+fileName(size)
		switch {
		case v.rng.IntN(8) == 0:
			method = http.MethodHead
		case v.service.name == "go" && v.rng.IntN(4) == 0:
			path = fmt.Sprintf("/chunked/%d", size)
		}
		if err := v.send(v.head(method, path)); err != nil {
			return err
		}
		if err := v.body(method, fileName(size), size); err != nil {
			return err
		}
		v.pause(200 * time.Millisecond)
	}
	return nil
}

// oneShot asks once.
func (v *visit) oneShot() error {
	size := v.anySize()
	head := v.head(http.MethodGet, "/"+fileName(size), "Connection: close")
	if v.rng.IntN(5) == 0 {
		head = fmt.Appendf(nil, "GET /%s HTTP/1.0\r\n\r\n", fileName(size))
	}
	if err := v.send(head); err != nil {
		return err
	}
	if err := v.file(size); err != nil {
		return err
	}
	return v.ends()
}

// trickle sends the head in pieces: some few, or the first bytes one by one.
func (v *visit) trickle() error {
	for range 1 + v.rng.IntN(3) {
		size := v.anySize()
		head := v.head(http.MethodGet, "/"+fileName(size))
		if v.rng.IntN(2) == 0 {
			for i := range 20 {
				if err := v.send(head[i : i+1]); err != nil {
					return err
				}
				v.pause(10 * time.Millisecond)
			}
			head = head[20:]
		}
		if err := v.sendSlowly(head, 1+v.rng.IntN(6), 150*time.Millisecond); err != nil {
			return err
		}
		if err := v.file(size); err != nil {
			return err
		}
	}
	return nil
}

// pipeline sends several requests before it reads an answer.
func (v *visit) pipeline() error {
	var heads []byte
	var want []int
	for range 2 + v.rng.IntN(5) {
		size := v.anySize()
		want = append(want, size)
		heads = append(heads, v.head(http.MethodGet, "/"+fileName(size))...)
	}
	if err := v.sendSlowly(heads, 1+v.rng.IntN(3), 50*time.Millisecond); err != nil {
		return err
	}
	for _, size := range want {
		if err := v.file(size); err != nil {
			return err
		}
		v.ahead = true
	}
	return nil
}

// download reads much, slowly at times.
func (v *visit) download() error {
	size := sizes[len(sizes)-1]
	if err := v.send(v.head(http.MethodGet, "/"+fileName(size), "Connection: close")); err != nil {
		return err
	}
	resp, err := v.response(http.MethodGet, http.StatusOK)
	if err != nil {
		return err
	}
	return check(resp.Body, v.rig.seed, fileName(size), size, func(n int) {
		v.step(n)
		if v.rng.IntN(20) == 0 {
			v.pause(50 * time.Millisecond)
		}
	})
}

// leave asks and does not wait for the end of the answer.
func (v *visit) leave() error {
	head := v.head(http.MethodGet, "/"+fileName(100_000))
	if err := v.send(head[:len(head)-v.rng.IntN(2)*v.rng.IntN(len(head))]); err != nil {
		return err
	}
	v.pause(300 * time.Millisecond)
	if v.rng.IntN(2) == 0 {
		_ = v.raw.SetLinger(0) // with an RST
	}
	return nil
}

// halfClose ends its half of the connection behind the request, for an answer that fits into
// the server's buffer: nginx would not go on with a longer one.
func (v *visit) halfClose() error {
	size := sizes[v.rng.IntN(5)]
	if err := v.send(v.head(http.MethodGet, "/"+fileName(size))); err != nil {
		return err
	}
	v.pause(50 * time.Millisecond)
	if err := v.raw.CloseWrite(); err != nil {
		return err
	}
	err := v.file(size)
	if err == io.EOF && v.answered == 0 {
		return nil // the request was held: its client is taken to have left
	}
	if err != nil {
		return err
	}
	return v.ends()
}

// upload is a body on its way.
type upload struct {
	name    string
	size    int
	chunked bool
	waits   bool // for 100 Continue
	pauses  time.Duration
}

func (v *visit) newUpload(i int) upload {
	size := []int{0, 1, 300, 5000, 20_000, 200_000}[v.rng.IntN(6)]
	return upload{
		name: fmt.Sprintf("%s-%d", v.name, i), size: size,
		chunked: v.rng.IntN(2) == 0, waits: v.rng.IntN(4) == 0 && size > 0,
		pauses: []time.Duration{0, 0, 30 * time.Millisecond, 900 * time.Millisecond}[v.rng.IntN(4)],
	}
}

// head is the request's.
func (u upload) head(v *visit, method, path string) []byte {
	fields := []string{fmt.Sprintf("Content-Length: %d", u.size)}
	if u.chunked {
		fields[0] = "Transfer-Encoding: chunked"
	}
	if u.waits {
		fields = append(fields, "Expect: 100-continue")
	}
	return v.head(method, path, fields...)
}

// wire is the body as it is sent.
func (u upload) wire(v *visit) []byte {
	body := take(v.rig.seed, u.name, u.size)
	if !u.chunked {
		return body
	}
	var b strings.Builder
	for len(body) > 0 {
		n := 1 + v.rng.IntN(min(len(body), 8192))
		extension := ""
		if v.rng.IntN(8) == 0 {
			extension = ";narthex=1"
		}
		fmt.Fprintf(&b, "%x%s\r\n%s\r\n", n, extension, body[:n])
		body = body[n:]
	}
	b.WriteString("0\r\n")
	if v.rng.IntN(8) == 0 {
		b.WriteString("X-Trailer: narthex\r\n")
	}
	return []byte(b.String() + "\r\n")
}

// send sends head and body. What is refused may end before all of it was sent.
func (u upload) send(v *visit, method, path string) error {
	head, body := u.head(v, method, path), u.wire(v)
	if !u.waits {
		if u.pauses == 0 {
			return v.send(append(head, body...))
		}
		if err := v.send(head); err != nil {
			return err
		}
		return v.sendSlowly(body, 2+v.rng.IntN(3), u.pauses)
	}
	if err := v.send(head); err != nil {
		return err
	}
	// As curl does: it waits for a second, then sends all the same.
	_ = v.conn.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = v.r.Peek(1)
	return v.sendSlowly(body, 1+v.rng.IntN(3), u.pauses)
}

// exchange sends an upload while it reads the answer, by a function that does.
func (v *visit) exchange(u upload, method, path string, read func() error) error {
	sent := make(chan error, 1)
	if u.waits {
		// Only one may read.
		sent <- u.send(v, method, path)
	} else {
		go func() { sent <- u.send(v, method, path) }()
	}
	select {
	case err := <-sent:
		sent <- err
	case <-time.After(5 * time.Second): // an answer may have to be read first
	}
	readErr := read()
	if readErr != nil {
		_ = v.raw.SetWriteDeadline(time.Now()) // nobody reads it any more
		<-sent
		return readErr
	}
	return <-sent
}

// echo sends bodies that come back.
func (v *visit) echo() error {
	for i := range 1 + v.rng.IntN(3) {
		u := v.newUpload(i)
		if err := v.exchange(u, http.MethodPost, "/echo", func() error { return v.body(http.MethodPost, u.name, u.size) }); err != nil {
			return fmt.Errorf("%+v: %w", u, err)
		}
		v.pause(100 * time.Millisecond)
	}
	return nil
}

// put leaves a body with nginx, fetches it and has it forgotten.
func (v *visit) put() error {
	u := v.newUpload(0)
	path := "/put/" + u.name
	err := v.exchange(u, http.MethodPut, path, func() error {
		resp, err := v.response(http.MethodPut, http.StatusCreated)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	})
	if err != nil {
		return fmt.Errorf("%+v: %w", u, err)
	}
	if err := v.send(v.head(http.MethodGet, path)); err != nil {
		return err
	}
	if err := v.body(http.MethodGet, u.name, u.size); err != nil {
		return fmt.Errorf("%+v, fetched: %w", u, err)
	}
	if err := v.send(v.head(http.MethodDelete, path)); err != nil {
		return err
	}
	_, err = v.response(http.MethodDelete, http.StatusNoContent)
	return err
}

// early reads the answer before it has sent all of the body, and asks once more.
func (v *visit) early() error {
	u := v.newUpload(0)
	u.waits = false
	if err := v.exchange(u, http.MethodPost, "/early", func() error { return v.body(http.MethodPost, fileName(1000), 1000) }); err != nil {
		return fmt.Errorf("%+v: %w", u, err)
	}
	if err := v.send(v.head(http.MethodGet, "/"+fileName(100))); err != nil {
		return err
	}
	return v.file(100)
}

// work has the server take its time.
func (v *visit) work() error {
	for range 1 + v.rng.IntN(4) {
		if err := v.send(v.head(http.MethodGet, fmt.Sprintf("/wait/%d", v.rng.IntN(60)))); err != nil {
			return err
		}
		if err := v.file(100); err != nil {
			return err
		}
	}
	return nil
}

func (v *visit) upgrade() error {
	if err := v.send(v.head(http.MethodGet, "/upgrade", "Connection: Upgrade", "Upgrade: narthex")); err != nil {
		return err
	}
	if _, err := v.response(http.MethodGet, http.StatusSwitchingProtocols); err != nil {
		return err
	}
	return v.tunnel()
}

func (v *visit) connect() error {
	head := fmt.Appendf(nil, "CONNECT narthex.example:1 HTTP/1.1\r\nHost: narthex.example:1\r\n\r\n")
	if err := v.send(head); err != nil {
		return err
	}
	if _, err := v.response(http.MethodConnect, http.StatusOK); err != nil {
		return err
	}
	return v.tunnel()
}

// tunnel says things that come back, for less than half a second.
func (v *visit) tunnel() error {
	for i := range 1 + v.rng.IntN(6) {
		name, size := fmt.Sprintf("%s-%d", v.name, i), 1+v.rng.IntN(3000)
		if err := v.send(take(v.rig.seed, name, size)); err != nil {
			return err
		}
		_ = v.conn.SetReadDeadline(time.Now().Add(silenceLimit))
		if err := v.bytes(v.r, name, size, false); err != nil {
			return fmt.Errorf("in the tunnel: %w", err)
		}
		v.pause(60 * time.Millisecond)
	}
	if err := v.raw.CloseWrite(); err != nil {
		return err
	}
	if err := v.ends(); err != nil {
		return errors.Join(errors.New("in the tunnel"), err)
	}
	return nil
}
