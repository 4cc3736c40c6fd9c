// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
	"narthex/internal/lab/reexec"
)

// origin is a server of ours, in a process of its own. Over HTTP it has the files, and
//
//	/echo         answers with the body of the request, once it has all of it, with a length as the request had
//	/early        answers with the file /f/1000 before it reads the body of the request
//	/chunked/SIZE answers with a file in chunks
//	/wait/MS      answers with the file /f/100 after so many milliseconds
//	/upgrade      switches to another protocol, in which it echoes
//
// and CONNECT makes a tunnel in which it echoes. With lines it is told what to say:
//
//	get SIZE      the bytes of a file
//	echo SIZE     the bytes that come next
//	wait MS       ok, after so many milliseconds
//	quit          nothing more
type origin struct {
	Listen []netip.AddrPort
	Seed   uint64
	TLS    bool
	Lines  bool
	Greets bool // with lines: speaks first
	Defers bool // TCP_DEFER_ACCEPT
}

const greeting = "220 ready\n"

func init() {
	reexec.Register("soak-origin", func(config []byte) error {
		var o origin
		if err := json.Unmarshal(config, &o); err != nil {
			return err
		}
		return o.run()
	})
}

// startOrigin starts one and waits until it accepts connections.
func (l *rig) startOrigin(s *service, o origin) (*lab.Server, error) {
	o.Listen, o.Seed = l.listens(s), l.seed
	program, env, err := reexec.Command("soak-origin", o)
	if err != nil {
		return nil, err
	}
	cmd := l.Server.Command(program)
	cmd.Env = env
	server, err := l.Server.Serve(cmd, o.Listen...)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	return server, nil
}

// descriptors are enough for all connections of two floods to a service without a limit, where the machine
// allows that many.
const descriptors = 1 << 18

func (o origin) run() error {
	if err := raise(unix.RLIMIT_NOFILE, descriptors); err != nil {
		return fmt.Errorf("open up to %d files: %w", descriptors, err)
	}
	serve := o.serveLines
	if !o.Lines {
		server := &http.Server{Handler: o, ErrorLog: log.New(io.Discard, "", 0), ReadTimeout: 20 * time.Second}
		serve = server.Serve
		if o.TLS {
			cert, key, err := lab.Certificate()
			if err != nil {
				return err
			}
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				return err
			}
			server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
			serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
	}
	ended := make(chan error)
	for _, addr := range o.Listen {
		l, err := net.Listen("tcp", addr.String())
		if err == nil && o.Defers {
			err = deferAccept(l)
		}
		if err != nil {
			return err
		}
		go func() { ended <- serve(l) }()
	}
	return <-ended
}

// deferAccept has connections that say nothing accepted after two seconds only.
func deferAccept(l net.Listener) error {
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 2) })
	if err != nil {
		return err
	}
	return failed
}

// ServeHTTP answers a request.
func (o origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verb, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	number, _ := strconv.Atoi(rest) // 0 where there is none
	switch {
	case r.Method == http.MethodConnect:
		tunnel(w, "HTTP/1.1 200 Connection established\r\n\r\n")
	case verb == "upgrade":
		tunnel(w, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
	case verb == "echo":
		echo(w, r)
	case verb == "early":
		o.early(w, r)
	case verb == "chunked":
		_ = http.NewResponseController(w).Flush()
		_, _ = io.CopyN(w, stream(o.Seed, fileName(number)), int64(number))
	case verb == "wait":
		time.Sleep(time.Duration(number) * time.Millisecond)
		o.file(w, r, 100)
	case verb == "f":
		o.file(w, r, number)
	default:
		http.NotFound(w, r)
	}
}

// file answers with a file's content. It is not read from the file: the flood of connections may have left
// no descriptor for that.
func (o origin) file(w http.ResponseWriter, r *http.Request, size int) {
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(take(o.Seed, fileName(size), size)))
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	} else {
		_ = http.NewResponseController(w).Flush() // so that it goes in chunks
	}
	_, _ = w.Write(body)
}

func (o origin) early(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	_ = c.EnableFullDuplex() // else package http reads the body first
	w.Header().Set("Content-Length", "1000")
	_, _ = w.Write(take(o.Seed, fileName(1000), 1000))
	_ = c.Flush()
	_, _ = io.Copy(io.Discard, r.Body)
}

// tunnel sends the head and then back whatever comes, until the client ends its half.
func tunnel(w http.ResponseWriter, head string) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, head); err == nil {
		_, _ = io.Copy(conn, rw.Reader)
	}
}

// lineTimeout is how long a conversation line by line may take.
const lineTimeout = 30 * time.Second

func (o origin) serveLines(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, unix.EMFILE) {
			time.Sleep(time.Millisecond) // as package net/http does: some will be closed
			continue
		}
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(lineTimeout))
			o.talk(conn)
		}()
	}
}

// talk does what a client says, line by line.
func (o origin) talk(conn net.Conn) {
	if o.Greets {
		_, _ = io.WriteString(conn, greeting)
	}
	r := bufio.NewReader(conn)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, _ := strconv.Atoi(rest)
		switch verb {
		case "get":
			_, err = io.CopyN(conn, stream(o.Seed, fileName(number)), int64(number))
		case "echo":
			_, err = io.CopyN(conn, r, int64(number))
		case "wait":
			time.Sleep(time.Duration(number) * time.Millisecond)
			_, err = io.WriteString(conn, "ok\n")
		default:
			return
		}
		if err != nil {
			return
		}
	}
}

// raise raises a limit of this process, as far as it may.
func raise(resource int, to uint64) error {
	err := unix.Setrlimit(resource, &unix.Rlimit{Cur: to, Max: to})
	if !errors.Is(err, unix.EPERM) {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(resource, &limit); err != nil {
		return err
	}
	limit.Cur = min(limit.Max, to)
	return unix.Setrlimit(resource, &limit)
}
