// SPDX-License-Identifier: Apache-2.0

package packet

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"narthex/test/nettest"
)

// said reads the response that the gate says in the server's place. It says whether it has a page.
func said(t *testing.T, res result, method string) (r *http.Response, body string) {
	t.Helper()
	if res.verdict != tcxRedirect {
		t.Fatalf("verdict %d: nothing is said", int32(res.verdict))
	}
	p := gopacket.NewPacket(res.frame, layers.LayerTypeEthernet, gopacket.Default)
	tcp, _ := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if tcp == nil {
		t.Fatalf("no TCP in %x", res.frame)
	}
	rest := bufio.NewReader(bytes.NewReader(tcp.Payload))
	r, err := http.ReadResponse(rest, &http.Request{Method: method})
	nettest.Check(t, err)
	b, err := io.ReadAll(r.Body)
	nettest.Check(t, err)
	if rest.Buffered() > 0 || r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("Refused-By") != "narthex" {
		t.Errorf("said %q", tcp.Payload)
	}
	return r, string(b)
}

// asker is what a client says of itself.
type asker struct {
	name, request string // with a verb for the path
	page          bool
}

func askers() []asker {
	html := "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n"
	long := func(n int) string { return "Cookie: c=" + strings.Repeat("x", n) + "\r\n" }
	return []asker{
		{"browser", "GET %s HTTP/1.1\r\nHost: x\r\n" + html + "\r\n", true},
		{"small letters", "GET %s HTTP/1.1\r\nhost: x\r\naccept: */*, text/HTML\r\n\r\n", true},
		{"late", "GET %s HTTP/1.1\r\nHost: x\r\n" + long(1200) + html + "\r\n", true},
		{"across pieces", "GET %s HTTP/1.1\r\nHost: x\r\n" + long(455) + html + "\r\n", true},
		{"curl", "GET %s HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n", false},
		{"nothing", "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", false},
		{"another header", "GET %s HTTP/1.1\r\nHost: x\r\nX-Accept: text/html\r\nAccept: */*\r\nX: text/html\r\n\r\n", false},
		{"post", "POST %s HTTP/1.1\r\nHost: x\r\n" + html + "Content-Length: 0\r\n\r\n", false},
		{"head", "HEAD %s HTTP/1.1\r\nHost: x\r\n" + html + "\r\n", false},
	}
}

// Who is refused on arrival, after it has waited, by a rate, or with a head in pieces is told so as it can read.
func TestGateRefusals(t *testing.T) {
	g := newGate(t)
	for _, a := range askers() {
		checks := func(t *testing.T, res result, status int) {
			t.Helper()
			method, _, _ := strings.Cut(a.request, " ")
			r, body := said(t, res, method)
			page := strings.Contains(body, "location.reload()")
			if r.StatusCode != status || page != a.page || (!page && body != "") {
				t.Errorf("%s: %s with %q", a.name, r.Status, body)
			}
		}
		request := fmt.Sprintf(a.request, "/")
		t.Run(a.name+"/arrives", func(t *testing.T) {
			r, _ := g.busy(t, "queue: {size: 0}")
			c := r.client(t)
			checks(t, c.send(c.says(request), arrives.and(rejects("queue_full"))), 503)
		})
		t.Run(a.name+"/waits", func(t *testing.T) {
			r, _ := g.busy(t, "queue: {max_wait: 1ms}")
			c := r.client(t)
			c.drops(c.says(request), waits.and(known))
			checks(t, r.outwaits(t, change{"slots": -1, "flows": -1, "waiting": -1}.and(rejects("max_wait"))), 503)
		})
		t.Run(a.name+"/rate", func(t *testing.T) {
			r := g.ruledRoom(t, "concurrency: 100")
			last := r.client(t)
			for range 2 {
				r.puts(last, "/few")
				last = last.again()
			}
			checks(t, r.run(t, r.in, last.frame(last.says(fmt.Sprintf(a.request, "/few"))), 0), 429)
		})
		t.Run(a.name+"/gathered", func(t *testing.T) {
			r := g.ruledRoom(t, "concurrency: 100")
			c := r.client(t)
			whole := fmt.Sprintf(a.request, "/banned")
			s := c.says(whole[:20])
			r.run(t, r.in, c.frame(s), 0)
			res := r.run(t, r.in, c.frame(after(s, whole[20:])), 0)
			method, _, _ := strings.Cut(a.request, " ")
			if resp, body := said(t, res, method); resp.StatusCode != 503 || body != "" { // it would not help to ask again
				t.Errorf("%s with %q", resp.Status, body)
			}
		})
	}
}
