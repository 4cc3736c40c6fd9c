// SPDX-License-Identifier: Apache-2.0

package origin

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// longestWait bounds how long a request waits to be let go.
const longestWait = time.Minute

// handler answers requests.
type handler struct {
	cfg    Config
	rounds int // of work per request
	slower pace
	body   []byte

	mu    sync.Mutex
	asked []Request
	at    int                      // requests that it works on
	most  int                      // the same, at most so far
	gates map[string]chan struct{} // by name; closed once told to go

	rubbish []*object
	made    int
}

func newHandler(cfg Config) *handler {
	h := &handler{
		cfg:   cfg,
		body:  bytes.Repeat([]byte("narthex\n"), (cfg.Body+7)/8)[:cfg.Body],
		gates: map[string]chan struct{}{},
	}
	if cfg.Work > 0 {
		h.rounds = int(float64(cfg.Work.Nanoseconds()) * calibrate())
	}
	return h
}

// object is something that the collector has to look at.
type object struct {
	name *string
	next *object
}

// litter makes objects that take the place of older ones.
func (h *handler) litter() {
	const most = 1 << 20
	h.mu.Lock()
	defer h.mu.Unlock()
	for range h.cfg.Rubbish {
		name := strconv.Itoa(h.made)
		o := &object{name: &name}
		if len(h.rubbish) < most {
			h.rubbish = append(h.rubbish, o)
		} else {
			o.next = &object{}
			h.rubbish[h.made%most] = o
		}
		h.made++
	}
}

// ServeHTTP does not clean paths, unlike http.ServeMux.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/go":
		h.open(r.FormValue("for"))
		return
	case "/asked":
		h.mu.Lock()
		asked := slices.Clone(h.asked)
		h.mu.Unlock()
		answerJSON(w, asked)
		return
	case "/slower":
		h.slower.set(r)
		return
	case "/most":
		h.mu.Lock()
		most := h.most
		h.mu.Unlock()
		answerJSON(w, most)
		return
	case "/forget":
		h.mu.Lock()
		h.asked = nil
		h.mu.Unlock()
		return
	}
	h.note(r)
	h.begin()
	defer h.end()
	if r.Method == http.MethodConnect {
		connect(w, r)
		return
	}
	switch r.URL.Path {
	case "/wait":
		h.wait(w, r)
	case "/stream":
		h.stream(w, r)
	case "/echo":
		echo(w, r)
	case "/sum":
		sum(w, r)
	case "/early":
		h.early(w, r)
	case "/upgrade":
		upgrade(w, r)
	case "/socket":
		socket(w, r)
	default:
		burn(h.rounds * h.slower.work())
		h.litter()
		time.Sleep(h.cfg.Sleep * time.Duration(h.slower.sleep()))
		answer(w, h.body)
	}
}

// maxAsked bounds the record: load generators ask for more than anybody wants to read.
const maxAsked = 10000

// note records that a request has come.
func (h *handler) note(r *http.Request) {
	from, _ := netip.ParseAddrPort(r.RemoteAddr) // always one
	h.record(Request{from, r.Method, r.RequestURI})
}

// noteLine records that a line has come.
func (h *handler) noteLine(conn net.Conn, line string) {
	from, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	h.record(Request{From: from, URI: line})
}

func (h *handler) record(r Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.asked) < maxAsked {
		h.asked = append(h.asked, r)
	}
}

// begin and end count requests that it works on.
func (h *handler) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at++
	h.most = max(h.most, h.at)
}

func (h *handler) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at--
}

// wait does not end when the client goes: a server that works does not notice either.
func (h *handler) wait(w http.ResponseWriter, r *http.Request) {
	if name := r.FormValue("for"); name != "" {
		if !h.waitFor(name) {
			w.WriteHeader(http.StatusGatewayTimeout)
			return
		}
	} else {
		ms, err := strconv.Atoi(r.FormValue("ms"))
		if err != nil {
			http.Error(w, "say how many ms to wait, or for what", http.StatusBadRequest)
			return
		}
		time.Sleep(time.Duration(ms) * time.Millisecond)
	}
	answer(w, h.body)
}

// stream does not end when the client goes either.
func (h *handler) stream(w http.ResponseWriter, r *http.Request) {
	_, _ = w.Write(h.body)
	_ = http.NewResponseController(w).Flush()
	h.waitFor(r.FormValue("for"))
	_, _ = w.Write(h.body)
}

// waitFor waits until the name is told to go, and returns false if that takes too long.
func (h *handler) waitFor(name string) bool {
	select {
	case <-h.gate(name):
		return true
	case <-time.After(longestWait):
		return false
	}
}

// gate returns what is closed once the name is told to go.
func (h *handler) gate(name string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gates[name] == nil {
		h.gates[name] = make(chan struct{})
	}
	return h.gates[name]
}

func (h *handler) open(name string) {
	gate := h.gate(name)
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-gate: // already open
	default:
		close(gate)
	}
}

// echo reads the whole body before it answers.
func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !slices.Contains(r.TransferEncoding, "chunked") {
		answer(w, body)
		return
	}
	_, _ = w.Write(body)
	_ = http.NewResponseController(w).Flush() // so that it goes in chunks
}

// sum reads the whole body and answers with its length and its checksum (CRC-32, IEEE).
func sum(w http.ResponseWriter, r *http.Request) {
	crc := crc32.NewIEEE()
	n, err := io.Copy(crc, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, []byte(Sum(n, crc.Sum32())))
}

// Sum is what /sum answers to a body of so many bytes.
func Sum(length int64, crc uint32) string { return fmt.Sprintf("%d %08x", length, crc) }

// answer sends a body of known length. An error is the client's.
func answer(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

func answerJSON(w http.ResponseWriter, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, body)
}

type connKey struct{}

// withConn makes a request's connection known to its handler.
func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

func socket(w http.ResponseWriter, r *http.Request) {
	s, err := readSocket(r.Context().Value(connKey{}).(net.Conn))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answerJSON(w, s)
}

func readSocket(c net.Conn) (s Socket, err error) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	if w, ok := c.(*worker); ok {
		c = w.Conn
	}
	sc, ok := c.(syscall.Conn)
	if !ok {
		return s, fmt.Errorf("%T has no socket", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return s, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if s.Priority, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PRIORITY); failed == nil {
			s.Mark, failed = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK)
		}
	})
	if err == nil {
		err = failed
	}
	return s, err
}
