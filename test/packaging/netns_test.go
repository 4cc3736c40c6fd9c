// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab"
	"narthex/test/nettest"
)

// published is where the host publishes the container's port 80.
const published = "192.0.2.1:8080"

// host is a host with a container behind a bridge, as Docker makes it, and a client.
type host struct {
	host, container, client *lab.Namespace
}

func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{nettest.Namespace(t, "host"), nettest.Namespace(t, "container"), nettest.Namespace(t, "client")}
	at := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	nettest.Check(t, lab.Connect(lab.End{NS: h.host, Dev: "wan", Addrs: at("192.0.2.1/24")}, lab.End{NS: h.client, Dev: "eth0", Addrs: at("192.0.2.2/24")}))
	nettest.Check(t, h.host.AddBridge("docker0"))
	nettest.Check(t, h.host.AddAddr("docker0", at("172.17.0.1/16")[0]))
	h.connect(t)
	rules := `table ip nat {
  chain prerouting { type nat hook prerouting priority dstnat; tcp dport 8080 dnat to 172.17.0.2:80; }
  chain postrouting { type nat hook postrouting priority srcnat; ip saddr 172.17.0.0/16 oifname != "docker0" masquerade; }
}`
	nft := h.host.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(rules)
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	nettest.Check(t, h.host.Do(func() error {
		return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
	}))
	return h
}

// connect plugs the container in.
func (h *host) connect(t *testing.T) {
	t.Helper()
	own := []netip.Prefix{netip.MustParsePrefix("172.17.0.2/16")}
	nettest.Check(t, lab.Connect(lab.End{NS: h.host, Dev: "veth0"}, lab.End{NS: h.container, Dev: "eth0", Addrs: own}))
	nettest.Check(t, h.container.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("172.17.0.1")))
	out, err := h.host.Command("ip", "link", "set", "veth0", "master", "docker0").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// run starts the container's process, by which its namespace is found.
func (h *host) run(t *testing.T) (pid int, kill func()) {
	t.Helper()
	cmd := h.container.Command("sleep", "infinity")
	nettest.Check(t, cmd.Start())
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Signal(syscall.SIGKILL)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(kill)
	return cmd.Process.Pid, kill
}

// ask sends a request from the client to the published port, and gives back its answer.
func (h *host) ask(t *testing.T, path string) <-chan string {
	t.Helper()
	var conn net.Conn
	nettest.Check(t, h.client.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", published, patience)
		return err
	}))
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n", path)
	nettest.Check(t, err)
	answer := make(chan string, 1)
	go func() {
		text, err := io.ReadAll(conn)
		answer <- fmt.Sprint(string(text), errors.Join(err))
	}()
	return answer
}

const containers = `
version: 1
services: [{name: shop, listen: "*:80", concurrency: 1, queue: {max_wait: 30s, max_service: 60s}}]
connections: [{name: wide, rate: 100/s}]
requests: [{name: closed, path: /closed, action: drop}]
`

// A container is protected from the host: what Docker's rules forward to it is policed, and
// waits, in its own namespace.
func TestContainerBehindDNAT(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	dir := open(t)
	policy := write(t, filepath.Join(dir, "shop.yaml"), containers)
	instance := fmt.Sprintf("container-%d", os.Getpid())
	socket := filepath.Join(dir, "shop.sock")
	t.Cleanup(func() { _ = exec.Command(binary, "detach", "--instance", instance).Run() })

	// The server answers /first when it is told to.
	first := make(chan struct{})
	asked := make(chan string, 8)
	var listener net.Listener
	nettest.Check(t, h.container.Do(func() (err error) {
		listener, err = net.Listen("tcp4", "172.17.0.2:80")
		return err
	}))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.Path
		if r.URL.Path == "/first" {
			<-first
		}
		fmt.Fprint(w, "hello from ", r.URL.Path, " to ", r.RemoteAddr)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })

	pid, kill := h.run(t)
	args := func(pid int) []string {
		return []string{binary, "run", "--policy", policy, "--instance", instance, "--socket", socket, "--netns", fmt.Sprintf("/proc/%d/ns/net", pid), "--keep"}
	}
	d := start(t, h.host, socket, args(pid)...)
	one := h.ask(t, "/first")
	if path := <-asked; path != "/first" {
		t.Fatalf("the server was asked for %s", path)
	}
	two := h.ask(t, "/second")
	room := func() (inService, waiting int) {
		s := d.status().Services[0]
		return s.InService, s.Waiting
	}
	eventually(t, "the second request waits", func() bool { in, waiting := room(); return in == 1 && waiting == 1 })
	if len(asked) != 0 {
		t.Errorf("the server was asked for %s", <-asked)
	}
	close(first)
	for what, answer := range map[string]<-chan string{"/first": one, "/second": two} {
		// The server sees the client's own address, as rules do.
		if text := <-answer; !strings.Contains(text, "200 OK") || !strings.Contains(text, what+" to 192.0.2.2:") {
			t.Errorf("answer to %s: %s", what, text)
		}
	}
	if text := <-h.ask(t, "/closed"); strings.Contains(text, "200 OK") {
		t.Errorf("answer to what is closed: %s", text)
	}
	var connected uint64
	for _, r := range d.status().Rules {
		connected += r.Passed
	}
	if connected != 3 {
		t.Errorf("%d connections were policed, want 3", connected)
	}
	h.restarts(t, d, server, kill, args)
}

// restarts stops the container and starts it anew.
func (h *host) restarts(t *testing.T, d *daemon, server *http.Server, kill func(), args func(pid int) []string) {
	t.Helper()
	// While a server listens there is something to protect, whichever process has gone.
	kill()
	nettest.Check(t, h.container.AddAddr("eth0", netip.MustParsePrefix("172.17.0.3/16")))
	eventually(t, "the daemon has seen the new address", func() bool {
		out, _ := exec.Command(binary, "explain", "--from", "192.0.2.2", "--to", "172.17.0.3:80", "--json", "--socket", d.socket).Output()
		return strings.Contains(string(out), `"service": "shop"`)
	})
	if !d.status().Enforcing {
		t.Error("nothing is enforced any more")
	}
	nettest.Check(t, server.Close())
	const gone = 3
	if code := d.code(); code != gone || !strings.Contains(d.log.String(), "is gone") {
		t.Errorf("exit code %d, want %d", code, gone)
	}
	// Nothing of the old container is in the way of the new one.
	h.container = nettest.Namespace(t, "restarted")
	nettest.Check(t, h.host.Delete("veth0"))
	h.connect(t)
	nettest.Nginx(t, h.container, netip.MustParseAddrPort("172.17.0.2:80"))
	pid, _ := h.run(t)
	start(t, h.host, d.socket, args(pid)...)
	if text := <-h.ask(t, "/"); !strings.Contains(text, "200 OK") {
		t.Errorf("answer of the new container: %s", text)
	}
}
