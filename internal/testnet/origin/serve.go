// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// serve runs the server until a listener fails.
func serve(cfg Config) error {
	debug.SetGCPercent(800) // few pauses; a request leaves little garbage
	rounds := int(float64(cfg.Work.Nanoseconds()) * calibrate())
	body := bytes.Repeat([]byte("narthex\n"), (cfg.Body+7)/8)[:cfg.Body]
	server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		burn(rounds)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) // an error here is the client's
	})}

	var slots chan struct{}
	if cfg.Workers > 0 {
		slots = make(chan struct{}, cfg.Workers)
	}
	ended := make(chan error)
	for _, addr := range cfg.Listen {
		l, err := listen(addr.String(), cfg.Backlog)
		if err != nil {
			return err
		}
		if slots != nil {
			l = &workers{Listener: l, slots: slots}
		}
		go func() { ended <- server.Serve(l) }()
	}
	return <-ended
}

// listen opens a listener with a backlog, or with the system's maximum if it is 0.
func listen(addr string, backlog int) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil || backlog == 0 {
		return l, err
	}
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	// To listen again changes nothing but the backlog.
	var listenErr error
	if err := raw.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), backlog) }); err != nil {
		return nil, err
	}
	if listenErr != nil {
		return nil, fmt.Errorf("set backlog of %s to %d: %w", addr, backlog, listenErr)
	}
	return l, nil
}

// workers accepts a connection only once a slot is free, as a server with a fixed number
// of processes does: the others wait in the accept queue.
type workers struct {
	net.Listener
	slots chan struct{}
}

// Accept waits for a slot, then for a connection.
func (w *workers) Accept() (net.Conn, error) {
	w.slots <- struct{}{}
	conn, err := w.Listener.Accept()
	if err != nil {
		<-w.slots
		return nil, err
	}
	return &worker{Conn: conn, free: sync.OnceFunc(func() { <-w.slots })}, nil
}

// worker is a connection that holds a slot.
type worker struct {
	net.Conn
	free func()
}

// Close closes the connection and frees its slot.
func (w *worker) Close() error {
	defer w.free()
	return w.Conn.Close()
}
