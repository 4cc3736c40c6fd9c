// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"narthex/internal/lab"
)

// A round is timed over so many of them, and the fastest of some passes counts: others on
// the machine can only make it slower.
const (
	calibrationRounds = 500_000
	calibrationPasses = 5
	measurePath       = "/measure"
)

// rounds knows how long a round takes, in nanoseconds, measured once in the life of the
// process so that all servers of a run do the same work.
type rounds struct {
	mu sync.Mutex
	ns float64
}

var luaRounds, perlRounds rounds

// in is how many rounds there are in a time.
func (r *rounds) in(d time.Duration, measure func() (float64, error)) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ns == 0 {
		var err error
		if r.ns, err = measure(); err != nil {
			return 0, err
		}
	}
	return int(float64(d.Nanoseconds()) / r.ns), nil
}

// measureIn starts a server that answers measurePath with nanoseconds, and asks it.
func measureIn(start func(ns *lab.Namespace, listen netip.AddrPort) error) (ns float64, err error) {
	n, err := lab.NewNamespace("work")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	listen := netip.MustParseAddrPort("127.0.0.1:80")
	if err := start(n, listen); err != nil {
		return 0, err
	}
	status, body, err := get(n, listen, measurePath)
	if err != nil {
		return 0, err
	}
	if ns, err = strconv.ParseFloat(string(body), 64); err != nil || ns <= 0 {
		return 0, fmt.Errorf("the server answers %d %q, not with a time", status, body)
	}
	return ns, nil
}

// get asks a server from within a namespace.
func get(n *lab.Namespace, server netip.AddrPort, path string) (status int, body []byte, err error) {
	var conn net.Conn
	err = n.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", server.String(), time.Second)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, nil, err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, server); err != nil {
		return 0, nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}
