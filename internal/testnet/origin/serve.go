// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"
)

// serve runs the server until a listener fails.
func serve(cfg Config) error {
	debug.SetGCPercent(800) // few pauses; a request leaves little garbage
	handler := newHandler(cfg)
	server, control := newServer(cfg, handler), newServer(cfg, handler)

	var slots chan struct{}
	if cfg.Workers > 0 {
		slots = make(chan struct{}, cfg.Workers)
	}
	ended := make(chan error)
	for _, addr := range cfg.Listen {
		l, err := listen(cfg, addr)
		if err != nil {
			return err
		}
		if slots != nil {
			l = &workers{Listener: l, slots: slots}
		}
		go func() { ended <- server.Serve(l) }()
	}
	for _, addr := range cfg.Control {
		l, err := listen(cfg, addr)
		if err != nil {
			return err
		}
		go func() { ended <- control.Serve(l) }()
	}
	return <-ended
}

func newServer(cfg Config, handler http.Handler) *http.Server {
	s := &http.Server{Handler: handler, IdleTimeout: cfg.IdleTimeout, ConnContext: withConn}
	s.SetKeepAlivesEnabled(!cfg.NoKeepAlive)
	return s
}

// listen opens a listener with a backlog, or with the system's maximum if that is 0.
func listen(cfg Config, addr netip.AddrPort) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(!cfg.NoMPTCP)
	l, err := lc.Listen(context.Background(), "tcp", addr.String())
	if err != nil || cfg.Backlog == 0 {
		return l, err
	}
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	// To listen again changes nothing but the backlog.
	var listenErr error
	if err := raw.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), cfg.Backlog) }); err != nil {
		return nil, err
	}
	if listenErr != nil {
		return nil, fmt.Errorf("set backlog of %s to %d: %w", addr, cfg.Backlog, listenErr)
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
