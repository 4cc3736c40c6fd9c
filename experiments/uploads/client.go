// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/test/attack"
)

// upload is a request with a body.
type upload struct {
	size      int  // bytes of the body; 0: a GET
	chunked   bool // in chunks of 32 KiB, as Go's clients send them
	keepAlive bool
}

const chunkSize = 32 << 10

// message is the request's bytes, and what the server is to answer.
func (u upload) message(to netip.AddrPort) (text []byte, want string) {
	body := make([]byte, u.size)
	for i := range body {
		body[i] = byte(i * 7 / 3)
	}
	var b bytes.Buffer
	method := "POST"
	if u.size == 0 {
		method = "GET"
	}
	fmt.Fprintf(&b, "%s /sum HTTP/1.1\r\nHost: %s\r\n", method, to)
	if !u.keepAlive {
		b.WriteString("Connection: close\r\n")
	}
	switch {
	case u.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n")
		for rest := body; len(rest) > 0; {
			piece := rest[:min(len(rest), chunkSize)]
			fmt.Fprintf(&b, "%x\r\n%s\r\n", len(piece), piece)
			rest = rest[len(piece):]
		}
		b.WriteString("0\r\n\r\n")
	case u.size > 0:
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", len(body))
		b.Write(body)
	default:
		b.WriteString("\r\n")
	}
	return b.Bytes(), origin.Sum(int64(u.size), crc32.ChecksumIEEE(body))
}

// crowd is clients that upload, each one body after the other.
type crowd struct {
	ns      *lab.Namespace
	to      netip.AddrPort
	sources []netip.Addr
	upload  upload
	clients int

	done    atomic.Uint64 // uploads that were answered with the right sum
	refused atomic.Uint64
	broken  atomic.Uint64 // connections that ended before the answer
	mu      sync.Mutex
	wrong   error           // an answer that was another
	took    []time.Duration // of the uploads that are done
	wait    sync.WaitGroup
	cancel  context.CancelFunc
}

func (c *crowd) start(ctx context.Context) {
	ctx, c.cancel = context.WithCancel(ctx)
	text, want := c.upload.message(c.to)
	for i := range c.clients {
		c.wait.Go(func() { c.visit(ctx, c.sources[i%len(c.sources)], text, want) })
	}
}

// end ends the clients.
func (c *crowd) end() error {
	c.cancel()
	c.wait.Wait()
	return c.wrong
}

func (c *crowd) visit(ctx context.Context, from netip.Addr, text []byte, want string) {
	for ctx.Err() == nil {
		conn, err := attack.Dial(ctx, c.ns, from, c.to)
		if err != nil {
			c.broken.Add(1)
			time.Sleep(time.Millisecond)
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
		c.ask(ctx, conn, text, want)
		stop()
		_ = conn.Close()
	}
}

// ask uploads until the connection ends.
func (c *crowd) ask(ctx context.Context, conn *net.TCPConn, text []byte, want string) {
	r := bufio.NewReader(conn)
	for ctx.Err() == nil {
		began := time.Now()
		status, got, err := exchange(conn, r, text)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.broken.Add(1)
			return
		case status != http.StatusOK:
			c.refused.Add(1)
			return
		case got != want:
			c.mu.Lock()
			c.wrong = errors.Join(c.wrong, fmt.Errorf("the server has got %s in place of %s", got, want))
			c.mu.Unlock()
			return
		}
		c.done.Add(1)
		c.mu.Lock()
		c.took = append(c.took, time.Since(began))
		c.mu.Unlock()
		if !c.upload.keepAlive {
			return
		}
	}
}

// exchange sends a request while it reads the answer, which may come before the request's end.
func exchange(conn *net.TCPConn, r *bufio.Reader, text []byte) (status int, body string, err error) {
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(text)
		sent <- err
	}()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		_ = conn.SetDeadline(time.Unix(1, 0))
		return 0, "", errors.Join(err, <-sent)
	}
	text, err = io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		_ = conn.SetDeadline(time.Unix(1, 0))
	}
	if failed := <-sent; resp.StatusCode == http.StatusOK {
		err = errors.Join(err, failed)
	}
	return resp.StatusCode, string(text), err
}
