// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"io"
	"net"
	"testing"
	"time"
)

// TestConnectionsForMetricsAreBounded has as many as there is room for and one more; and that one
// when another has gone.
func TestConnectionsForMetricsAreBounded(t *testing.T) {
	m := newMachine(t, "eth0")
	cfg := m.config(m.write("p.yaml", onePolicy))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Metrics = free.Addr().String()
	free.Close()
	r := m.start(cfg)
	// answered reports whether the daemon answers on a connection, which it keeps open.
	answered := func(conn net.Conn) bool {
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		_, err := conn.Read(make([]byte, 1))
		return err == nil
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", cfg.Metrics)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	var all []net.Conn
	for i := range metricsConnections {
		all = append(all, dial())
		if !answered(all[i]) {
			t.Fatalf("connection %d is not answered", i)
		}
	}
	if answered(dial()) {
		t.Error("one too many is answered")
	}
	all[0].Close()
	eventually(t, "there is a place again", func() bool { return answered(dial()) })
	r.end()
}

// TestServerForMetricsGivesUpSoon bounds how long somebody may hold a place.
func TestServerForMetricsGivesUpSoon(t *testing.T) {
	s := newMetricsServer(nil, newMachine(t).config("").Log)
	for what, limit := range map[string]time.Duration{"header": s.ReadHeaderTimeout, "request": s.ReadTimeout, "answer": s.WriteTimeout, "idle": s.IdleTimeout} {
		if limit <= 0 || limit > 15*time.Second {
			t.Errorf("%s: %v", what, limit)
		}
	}
}
