// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"narthex/internal/lab"
)

// serve runs the server until a listener fails.
func serve(cfg Config) error {
	debug.SetGCPercent(800) // few pauses; a request leaves little garbage
	handler := newHandler(cfg)
	control := newServer(cfg, handler)
	serveOn, err := speaker(cfg, handler)
	if err != nil {
		return err
	}

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
		go func() { ended <- serveOn(l) }()
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

// speaker returns what serves on a listener in the protocol of the configuration.
func speaker(cfg Config, h *handler) (func(net.Listener) error, error) {
	server := newServer(cfg, h)
	switch {
	case cfg.Lines:
		return h.serveLines, nil
	case cfg.TLS:
		cert, key, err := lab.Certificate()
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(cert, key)
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}}
		return func(l net.Listener) error { return server.ServeTLS(l, "", "") }, err
	}
	return server.Serve, nil
}

func newServer(cfg Config, handler http.Handler) *http.Server {
	// Clients that break off, and that speak no TLS, are no news.
	quiet := log.New(io.Discard, "", 0)
	s := &http.Server{Handler: handler, IdleTimeout: cfg.IdleTimeout, ConnContext: withConn, ErrorLog: quiet}
	s.SetKeepAlivesEnabled(!cfg.NoKeepAlive)
	if cfg.H2C {
		s.Protocols = new(http.Protocols)
		s.Protocols.SetHTTP1(true)
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	return s
}

// listen opens a listener with a backlog, or with the system's maximum if that is 0.
func listen(cfg Config, addr netip.AddrPort) (net.Listener, error) {
	var lc net.ListenConfig
	lc.SetMultipathTCP(!cfg.NoMPTCP)
	l, err := lc.Listen(context.Background(), "tcp", addr.String())
	if err != nil {
		return l, err
	}
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return nil, err
	}
	var tuneErr error
	if err := raw.Control(func(fd uintptr) { tuneErr = tune(cfg, int(fd)) }); err != nil {
		return nil, err
	}
	if tuneErr != nil {
		return nil, fmt.Errorf("set up the listener on %s: %w", addr, tuneErr)
	}
	return l, nil
}

func tune(cfg Config, fd int) error {
	if cfg.DeferAccept > 0 {
		seconds := int(max(1, cfg.DeferAccept/time.Second))
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, seconds); err != nil {
			return fmt.Errorf("defer accept: %w", err)
		}
	}
	if cfg.Backlog == 0 {
		return nil
	}
	// To listen again changes nothing but the backlog.
	if err := unix.Listen(fd, cfg.Backlog); err != nil {
		return fmt.Errorf("set backlog to %d: %w", cfg.Backlog, err)
	}
	return nil
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
