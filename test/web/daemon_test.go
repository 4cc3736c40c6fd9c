// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"narthex/internal/daemon"
	"narthex/internal/lab"
	"narthex/internal/metrics"
	"narthex/internal/web"
	"narthex/test/nettest"
)

const roomPolicy = `version: 1
services: [{name: shop, listen: "*:80", concurrency: 2, queue: {size: 5}}]
classes: [{name: gold, priority: 1}, {name: bronze, priority: 2}]
default_class: bronze
requests: [{name: members, cookie: {session: "*"}, class: gold}]
`

// TestRealDaemon looks at a real daemon, in front of a server that answers nobody until the
// test has seen who waits: two are with it, five wait, and the rest is turned away.
func TestRealDaemon(t *testing.T) {
	rig := nettest.Lab(t, 1)
	release := stuckServer(t, rig.Server)
	address, end := runDaemon(t, rig.Server)
	p := open(t, &server{address: address}, desktop)
	p.text("#headline-word", "Calm")

	visit(t, rig, 10, "")
	visit(t, rig, 2, "session=1")
	p.text("#headline-text", "2 of 2 in service")
	p.until("document.querySelector('#tiles div:nth-child(4) dd').textContent === '5'")
	p.text("#headline-word", "Overload")
	p.text("#rejected", "queue_full")
	p.text("#classes", "gold")
	p.text("#rules", "members")
	p.text("#sources", rig.ClientsV4[0].String())
	p.text("#inservice", "limit")
	p.text("#policy", "eth0")
	p.picture("real", true)
	release()
	p.text("#headline-text", "nobody waits")
	p.until("Number(document.querySelector('#tiles div:nth-child(2) dd').textContent) > 0")
	p.clean(&server{address: address})
	end()
	p.text("#banner", "trying again")
}

// stuckServer answers nobody until release is called, and then everybody at once.
func stuckServer(t *testing.T, ns *lab.Namespace) (release func()) {
	t.Helper()
	var listener net.Listener
	nettest.Check(t, ns.Do(func() (err error) {
		listener, err = net.Listen("tcp", ":80")
		return err
	}))
	stuck := make(chan struct{})
	release = sync.OnceFunc(func() { close(stuck) })
	s := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stuck })}
	go s.Serve(listener)
	t.Cleanup(func() { release(); s.Close() })
	return release
}

// visit has clients ask again and again until the test ends.
func visit(t *testing.T, rig *lab.Lab, clients int, cookie string) {
	t.Helper()
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = rig.Client.Do(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	client := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	ctx, cancel := context.WithCancel(context.Background())
	var visitors sync.WaitGroup
	for range clients {
		visitors.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("http://%s/", rig.ServerV4), nil)
				if cookie != "" {
					r.Header.Set("Cookie", cookie)
				}
				if resp, err := client.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				select { // it is no flood
				case <-ctx.Done():
				case <-time.After(100 * time.Millisecond):
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); visitors.Wait() })
}

// silent is a service manager that listens to nobody.
type silent struct{}

func (silent) Notify(string)           {}
func (silent) Watchdog() time.Duration { return 0 }

// runDaemon runs a daemon in this process, in front of a namespace's server. end ends it.
func runDaemon(t *testing.T, ns *lab.Namespace) (address string, end func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "narthex") // short enough for a socket, unlike TempDir
	nettest.Check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "policy.yaml")
	nettest.Check(t, os.WriteFile(file, []byte(roomPolicy), 0o600))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	nettest.Check(t, err)
	address = free.Addr().String()
	free.Close()
	var log bytes.Buffer
	instance := fmt.Sprintf("web-%d", os.Getpid())
	cfg := daemon.Config{
		Instance: instance, Policy: file, NetNS: ns.Name(), RunDir: dir, Socket: daemon.SocketPath(dir, instance), Metrics: address, Version: "v1",
		Log: slog.New(slog.NewTextHandler(&log, nil)), Kernel: daemon.BPF(), OpenNetwork: daemon.OpenNamespace, Notifier: silent{},
		MetricsHandler: metrics.Handler, Dashboard: web.Handler,
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- daemon.Run(ctx, cfg) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the daemon ended: %v\n%s", err, &log)
		}
	})
	t.Cleanup(end)
	for stop := time.Now().Add(2 * patience); ; time.Sleep(10 * time.Millisecond) {
		if resp, err := http.Get("http://" + address + "/"); err == nil {
			resp.Body.Close()
			return address, end
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("the daemon ended: %v\n%s", err, &log)
		default:
		}
		if time.Now().After(stop) {
			t.Fatal("the daemon does not answer")
		}
	}
}
