// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/test/attack"
	"narthex/test/nettest"
)

// visitor is a client with one connection.
type visitor struct {
	conn *net.TCPConn
	host string
	r    *bufio.Reader
	ends bool // the server has said that it ends the connection
}

func (s *scene) dialIn(ns *lab.Namespace, from netip.Addr, to netip.AddrPort) (*visitor, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := attack.Dial(ctx, ns, from, to)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &visitor{conn, to.String(), bufio.NewReader(conn), false}, nil
}

// visit connects a client of a kind on a link.
func (s *scene) visit(link int, w who, port uint16) *visitor {
	s.t.Helper()
	v, err := s.dialIn(s.clients[link], s.addr(link, w, 1), s.to(link, port))
	nettest.Check(s.t, err)
	s.t.Cleanup(func() { v.conn.Close() })
	return v
}

// get asks for a path.
func (v *visitor) get(path string) error {
	_, err := io.WriteString(v.conn, request(v.host, path))
	return err
}

func request(host, path string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, host)
}

// closing is a request whose answer ends the connection.
func closing(host, path string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host)
}

// answer reads one answer.
func (v *visitor) answer() (status int, body []byte, err error) {
	resp, err := http.ReadResponse(v.r, nil)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	v.ends = resp.Close
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// fetch asks for a path and reads the answer.
func (v *visitor) fetch(path string) (status int, body []byte, err error) {
	if err := v.get(path); err != nil {
		return 0, nil, err
	}
	return v.answer()
}

var content = lab.FileContent()

// whole checks an answer.
func whole(status int, body []byte, err error) error {
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return fmt.Errorf("status %d", status)
	case !bytes.Equal(body, content):
		return fmt.Errorf("a wrong body of %d bytes, %.40q…", len(body), body)
	}
	return nil
}

// workers are ordinary clients that work while there is an attack. All they ask for must
// be answered, whole and right.
type workers struct {
	t      *testing.T
	cancel context.CancelFunc
	all    sync.WaitGroup
	served [numWorkers]atomic.Uint64
}

const (
	numWorkers = 4
	// think is how long they wait between requests: a test, not a load.
	think = 10 * time.Millisecond
)

// work starts the ordinary clients: on each link one that keeps its connection, and one that
// does not.
func (s *scene) work() *workers {
	ctx, cancel := context.WithCancel(context.Background())
	w := &workers{t: s.t, cancel: cancel}
	for i := range numWorkers {
		w.all.Go(func() {
			if err := s.worker(ctx, i, &w.served[i]); err != nil {
				s.t.Errorf("ordinary client %d, after %d requests: %v", i, w.served[i].Load(), err)
			}
		})
	}
	s.t.Cleanup(w.stop)
	return w
}

// worker asks until the context ends. Its requests are told apart by their queries.
func (s *scene) worker(ctx context.Context, i int, served *atomic.Uint64) error {
	link, keep := i%2, i < 2
	var v *visitor
	for n := 0; ctx.Err() == nil; n++ {
		if v == nil {
			var err error
			if v, err = s.dialIn(s.clients[link], s.addr(link, gold, 1), s.to(link, 80)); err != nil {
				return err
			}
		}
		_ = v.conn.SetDeadline(time.Now().Add(patience))
		if err := whole(v.fetch(fmt.Sprintf("%s?run=%d&client=%d&n=%d", lab.File, s.runs, i, n))); err != nil {
			return errors.Join(err, v.conn.Close())
		}
		served.Add(1)
		if !keep || v.ends {
			v.conn.Close()
			v = nil
		}
		time.Sleep(think)
	}
	if v != nil {
		v.conn.Close()
	}
	return nil
}

// goOn waits until each of them has been served a few times more.
func (w *workers) goOn() {
	w.t.Helper()
	const more = 3
	for i := range w.served {
		before := w.served[i].Load()
		eventually(w.t, "ordinary clients are served", func() bool { return w.t.Failed() || w.served[i].Load() >= before+more })
	}
}

// stop ends the ordinary clients.
func (w *workers) stop() {
	w.cancel()
	w.all.Wait()
}
