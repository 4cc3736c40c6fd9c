// SPDX-License-Identifier: Apache-2.0

package reading

import (
	"strings"
	"testing"

	"narthex/test/nettest"
)

// started starts the six servers.
func started(t *testing.T) Config {
	t.Helper()
	cfg := Config{Seed: 1, Heads: 2000, Workers: 4}
	nettest.Check(t, Start(nettest.Namespace(t, "reading"), &cfg))
	return cfg
}

// TestReading compares how six servers read heads with how the data path does. Heads that all of them read in the same way
// are let in, but for few.
func TestReading(t *testing.T) {
	cfg := started(t)
	out, err := Run(cfg)
	nettest.Check(t, err)
	t.Log(out)
	for _, d := range out.Differences {
		t.Errorf("%v", &d)
	}
	if most := out.Heads / 1000; len(out.Strict) > most {
		t.Errorf("%d heads are refused that all servers read in the same way, more than %d: numbers %d", len(out.Strict), most, out.Strict)
	}
	for _, s := range cfg.Servers {
		if served := out.Served[s.Name]; served < out.Passed/2 {
			t.Errorf("%s has served %d of %d requests: there is too little to compare", s.Name, served, out.Passed)
		}
	}
	if out.Passed < out.Heads/5 || out.Refused < out.Heads/5 {
		t.Errorf("of %d heads %d are let in and %d refused: there is too little to compare", out.Heads, out.Passed, out.Refused)
	}
}

// TestBrowsers: what browsers, tools and libraries send is let in, served by all, and read in the same way by all.
func TestBrowsers(t *testing.T) {
	cfg := started(t)
	var streams []string
	for _, b := range Browsers {
		for _, target := range []string{"", "/", "/a/b.html?x=/../y&z=%zz", "/%C3%A9t%C3%A9/?q=a+b", "/a;jsessionid=1.n/b", "/a//b/", "/~x/(1)/'a'/$b,c:d@e=f!*"} {
			if _, rest, _ := strings.Cut(b, " HTTP/"); target != "" {
				b = b[:strings.Index(b, " ")+1] + target + " HTTP/" + rest
			}
			streams = append(streams, b)
		}
	}
	cfg.Heads, cfg.stream = len(streams), func(_, number uint64) []byte { return []byte(streams[number]) }
	out, err := Run(cfg)
	nettest.Check(t, err)
	for _, d := range out.Differences {
		t.Errorf("%v", &d)
	}
	if out.Passed != out.Heads {
		t.Errorf("of %d heads %d are let in", out.Heads, out.Passed)
	}
	for _, s := range cfg.Servers {
		if out.Served[s.Name] != out.Heads {
			t.Errorf("%s has served %d of %d requests", s.Name, out.Served[s.Name], out.Heads)
		}
	}
}

// evaded are streams that a server has read otherwise than the data path before, with what must become of them now.
var evaded = []struct {
	name, stream string
	passes       bool
}{
	{"a length behind a line feed alone", "POST /x HTTP/1.1\r\nHost: x\r\nX: y\nContent-Length: 40\r\n\r\nGET /noaccess HTTP/1.1\r\nHost: x\r\n\r\n", false},
	{"a trailer that ends in a line feed", "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\n\r\n", false},
	{"Connection in a trailer", "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nConnection: close\r\n\r\n", false},
	{"a byte beyond ASCII in a chunk's extension", "POST /x HTTP/1.1\r\nHost: x\r\nExpect:\r\nTransfer-Encoding: chunked\r\n\r\n1;\xff\r\nx\r\n0\r\n\r\n", false},
	{"a method in small letters", "get / HTTP/1.1\r\nHost: x\r\n\r\n", false},
	{"a fragment", "GET /x#.php HTTP/1.1\r\nHost: x\r\n\r\n", false},
	{"a segment that is taken away", "GET /noaccess/../x HTTP/1.1\r\nHost: x\r\n\r\n", false},
	{"dots before a semicolon", "GET /noaccess/.;/x HTTP/1.1\r\nHost: x\r\n\r\n", false},
	{"a byte beyond ASCII", "GET /caf\xe9 HTTP/1.1\r\nHost: x\r\n\r\n", false},
	{"a target of another host", "GET http://x/ HTTP/1.1\r\nHost: secret.example\r\n\r\n", false},
	{"CONNECT without a port", "CONNECT noaccess HTTP/1.1\r\nHost: noaccess\r\n\r\n", false},
	{"an underscore", "GET / HTTP/1.1\r\nHost: x\r\nX_Rule: yes\r\n\r\n", true},
	{"Connection says both, in two headers", "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", true},
	{"Connection says both, in one header", "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, close\r\n\r\n", true},
	{"a part of a word", "GET / HTTP/1.0\r\nHost: x\r\nConnection: xkeep-alive\r\n\r\n", true},
	{"CONNECT to a path", "CONNECT /x HTTP/1.1\r\nHost: x\r\n\r\n", true},
	{"CONNECT to a host", "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n", true},
	{"CONNECT, answered without content", "CONNECT /empty HTTP/1.1\r\nHost: x\r\n\r\n", true},
}

// TestEvaded has all servers read them.
func TestEvaded(t *testing.T) {
	cfg := started(t)
	cfg.Heads, cfg.stream = len(evaded), func(_, number uint64) []byte { return []byte(evaded[number].stream) }
	out, err := Run(cfg)
	nettest.Check(t, err)
	for _, d := range out.Differences {
		t.Errorf("%s: %v", evaded[d.Number].name, &d)
	}
	reader, err := NewReader()
	nettest.Check(t, err)
	for _, e := range evaded {
		gate, ok, err := reader.Read([]byte(e.stream))
		if err != nil || !ok || (gate.Refused == "") != e.passes {
			t.Errorf("%s: %+v, %v, %v, want it let in: %v", e.name, gate, ok, err, e.passes)
		}
	}
}

// askedToClose is a request as the data path shows it to a server that is to close the connection behind its answer.
func askedToClose(head string) string {
	if at := strings.Index(strings.ToLower(head), "\r\nconnection: keep-alive\r\n"); at >= 0 {
		at += len("\r\nconnection: ")
		return head[:at] + "     close" + head[at+len("keep-alive"):]
	}
	return strings.Replace(head, " HTTP/1.1\r\n", " HTTP/1.0\r\n", 1)
}

// TestAskedToClose: what browsers, tools and libraries send is answered by all, who close the connection behind it, if
// they are asked to as the data path does. What comes behind it they do not answer.
func TestAskedToClose(t *testing.T) {
	cfg := started(t)
	asked := 0
	for _, head := range Browsers {
		if low := strings.ToLower(head); strings.Contains(low, "upgrade:") || strings.Contains(low, "connection: close") || strings.Contains(head, "HTTP/1.0") {
			continue
		}
		asked++
		for _, s := range cfg.Servers {
			for shown, want := range map[string]int{head: 2, askedToClose(head): 1} {
				e, err := s.twice(cfg.ns, shown)
				nettest.Check(t, err)
				if e.Err != "" || len(e.Answers) != want || e.Answers[0].Status != 200 {
					t.Errorf("%s: %q: %d answers (%+v, %s), want %d", s.Name, shown, len(e.Answers), e.Answers, e.Err, want)
				}
			}
		}
	}
	if asked < len(Browsers)/2 {
		t.Errorf("%d of %d heads let a server be asked", asked, len(Browsers))
	}
}
