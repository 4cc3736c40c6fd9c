// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab/origin"
	"narthex/test/attack"
)

// patience bounds waits for answers; it is no figure.
const patience = time.Minute

// visit is an ordinary client with one connection.
type visit struct {
	conn net.Conn
	tcp  *net.TCPConn
	r    *bufio.Reader
	to   netip.AddrPort
}

// visit connects to the service.
func (st *stage) visit(ctx context.Context, from netip.Addr) (*visit, error) {
	v, err := st.visitAt(ctx, from, bench.Web(st.rig))
	if err == nil && st.secure {
		v.conn = tls.Client(v.tcp, &tls.Config{InsecureSkipVerify: true}) // the lab's server vouches for itself
		v.r = bufio.NewReader(v.conn)
	}
	return v, err
}

func (st *stage) visitAt(ctx context.Context, from netip.Addr, to netip.AddrPort) (*visit, error) {
	conn, err := attack.Dial(ctx, st.rig.Client, from, to)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &visit{conn, conn, bufio.NewReader(conn), to}, nil
}

// ask sends a request and keeps the connection.
func (v *visit) ask(path string) error {
	_, err := fmt.Fprintf(v.conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, v.to)
	return err
}

// answer reads an answer, which must be a good one.
func (v *visit) answer() (body []byte, err error) {
	resp, err := http.ReadResponse(v.r, nil)
	if err != nil {
		return nil, err
	}
	if body, err = io.ReadAll(resp.Body); err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("answered %s", resp.Status)
	}
	return body, err
}

// victim is the connection as somebody sees it who knows all but the exact next number.
func (v *visit) victim() (attack.Victim, error) {
	seq, ack, err := bench.Numbers(v.tcp)
	return attack.Victim{From: v.tcp.LocalAddr().(*net.TCPAddr).AddrPort(), To: v.to, Next: seq, Ack: ack}, err
}

// tell asks the server past the waiting room.
func (st *stage) tell(ctx context.Context, path string) ([]byte, error) {
	v, err := st.visitAt(ctx, st.rig.ClientsV4[0], st.control)
	if err != nil {
		return nil, err
	}
	defer v.conn.Close()
	if err := v.ask(path); err != nil {
		return nil, err
	}
	return v.answer()
}

// asked are the paths that the server was asked for and that begin so, in order.
func (st *stage) asked(ctx context.Context, prefix string) (paths []string, err error) {
	body, err := st.tell(ctx, "/asked")
	if err != nil {
		return nil, err
	}
	var all []origin.Request
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	for _, r := range all {
		if strings.HasPrefix(r.URI, prefix) {
			paths = append(paths, r.URI)
		}
	}
	return paths, nil
}
