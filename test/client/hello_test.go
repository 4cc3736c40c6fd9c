// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	seeded "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"narthex/test/draw"
	"narthex/test/twin"
)

// readNames feeds hello_names() bytes, cut as the function says, until it stops; and goes on for a
// piece, which must not change what it says.
func readNames(t testing.TB, a *arena, b []byte, next twin.Cut) Names {
	t.Helper()
	n := names{a: a}
	got := Names{Step: More}
	for at := 0; at < len(b); {
		size := min(next(), len(b)-at, chunkSize)
		said, err := n.read(b[at:at+size], byte(at))
		if err != nil {
			t.Fatalf("%v\n%x", err, b)
		}
		if got.Step != More {
			if said != got {
				t.Fatalf("hello_names() says %+v, and called again %+v\n%x", got, said, b)
			}
			break
		}
		got = said
		at += size
	}
	return got
}

// checkNames holds what hello_names() says of a connection's first bytes against all that is known
// of them. The bytes are cut into pieces of at most the given sizes, too.
func checkNames(t testing.TB, a *arena, b []byte, sizes ...int) Names {
	t.Helper()
	got := readNames(t, a, b, twin.Whole)
	want, complete := oracleNames(b)
	if complete && got != want || !complete && got.Step == End {
		t.Fatalf("hello_names() says %+v\noracle says        %+v, complete %t\n%x", got, want, complete, b)
	}
	if all, lost := content(b); !lost || wholeMessage(all) {
		checkServer(t, b, got)
	}
	for _, size := range sizes {
		if cut := readNames(t, a, b, twin.UpTo(size, b)); cut != got {
			t.Fatalf("in pieces of up to %d bytes, hello_names() says %+v\nin one, %+v\n%x", size, cut, got, b)
		}
	}
	return got
}

// wholeMessage tells if there is a whole message.
func wholeMessage(all []byte) bool {
	return len(all) >= 4 && len(all) >= 4+int(binary.BigEndian.Uint32(all)&0xffffff)
}

var errSeen = errors.New("seen")

// wire is a connection from which come bytes.
type wire struct {
	net.Conn
	io.Reader
}

func (w wire) Read(b []byte) (int, error)       { return w.Reader.Read(b) }
func (w wire) Write(b []byte) (int, error)      { return len(b), nil }
func (w wire) SetWriteDeadline(time.Time) error { return nil }
func (w wire) Close() error                     { return nil }

// checkServer compares with what Go's server takes out of a ClientHello. It has no bound on names,
// and takes any byte in them.
func checkServer(t testing.TB, b []byte, got Names) {
	t.Helper()
	var seen *tls.ClientHelloInfo
	err := tls.Server(wire{Reader: bytes.NewReader(b)}, &tls.Config{
		MinVersion: tls.VersionTLS10,
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			seen = h
			return nil, errSeen
		},
	}).Handshake()
	if seen == nil || len(seen.ServerName) > 255 || strings.Contains(seen.ServerName, "\x00") {
		return
	}
	var protocols []byte
	for _, p := range seen.SupportedProtos {
		if len(protocols)+1+len(p) <= 256 {
			protocols = append(append(protocols, byte(len(p))), p...)
		}
	}
	if got.Step != End || got.Server != seen.ServerName || got.Protocols != string(protocols) {
		t.Fatalf("hello_names() says %+v\ncrypto/tls says %q, %q (%v)\n%x", got, seen.ServerName, seen.SupportedProtos, err, b)
	}
}

// plain is a ClientHello of some extensions, in one record.
func plain(extensions string) []byte {
	r := recipe{}
	body := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + "\x00\x02\x13\x01" + "\x01\x00" + string(r.vector(2, []byte(extensions)))
	return r.records(append([]byte{1}, r.vector(3, []byte(body))...))
}

// Extensions of the hellos below.
const (
	server   = "\x00\x00\x00\x0b\x00\x09\x00\x00\x06a.test"
	alpn     = "\x00\x10\x00\x05\x00\x03\x02h2"
	alpn11   = "\x00\x10\x00\x0e\x00\x0c\x02h2\x08http/1.1"
	ech      = "\xfe\x0d\x00\x02ab"
	grease   = "\x0a\x0a\x00\x00"
	unknown  = "\x12\x34\x00\x03\x00\x00\x00"
	keyShare = "\x00\x33\x00\x06\x00\x04\x1a\x1a\x00\x00"
)

// hellos are ClientHellos' extensions with what is known of them by heart.
var hellos = []struct {
	name       string
	extensions string
	want       Names
}{
	{"none", "", Names{Step: End}},
	{"others", grease + unknown + keyShare, Names{Step: End}},
	{"server", server, Names{Step: End, Server: "a.test"}},
	{"protocol", alpn, Names{Step: End, Protocols: "\x02h2"}},
	{"both", server + alpn11, Names{Step: End, Server: "a.test", Protocols: "\x02h2\x08http/1.1"}},
	{"both behind others", grease + alpn11 + unknown + server + keyShare, Names{Step: End, Server: "a.test", Protocols: "\x02h2\x08http/1.1"}},
	{"encrypted", ech + server, Names{Step: End, Server: "a.test", ECH: true}},
	{"name of another type first", "\x00\x00\x00\x0f\x00\x0d\x01\x00\x01x\x00\x00\x06a.test", Names{Step: End, Server: "a.test"}},
	{"name of another type alone", "\x00\x00\x00\x06\x00\x04\x01\x00\x01x", Names{Step: End}},
	{"longest name", "\x00\x00\x01\x04\x01\x02\x00\x00\xff" + strings.Repeat("n", 255), Names{Step: End, Server: strings.Repeat("n", 255)}},
	{"protocols just fit", "\x00\x10\x01\x02\x01\x00\xff" + strings.Repeat("p", 255), Names{Step: End, Protocols: "\xff" + strings.Repeat("p", 255)}},
	{"protocols that do not fit", "\x00\x10\x01\x05\x01\x03\x02h2\xff" + strings.Repeat("p", 255), Names{Step: End, Protocols: "\x02h2", Cut: true}},

	{"two servers", server + server, Names{Step: Lost}},
	{"two names", "\x00\x00\x00\x0b\x00\x09\x00\x00\x01a\x00\x00\x02bc", Names{Step: Lost}},
	{"empty name", "\x00\x00\x00\x05\x00\x03\x00\x00\x00", Names{Step: Lost}},
	{"empty extension", "\x00\x00\x00\x00", Names{Step: Lost}},
	{"empty list of names", "\x00\x00\x00\x02\x00\x00", Names{Step: Lost}},
	{"name with NUL", "\x00\x00\x00\x08\x00\x06\x00\x00\x03a\x00b", Names{Step: Lost}},
	{"name too long", "\x00\x00\x01\x05\x01\x03\x00\x01\x00" + strings.Repeat("n", 256), Names{Step: Lost}},
	{"list longer than the extension", "\x00\x00\x00\x0b\x00\x0a\x00\x00\x06a.test", Names{Step: Lost}},
	{"list shorter than the extension", "\x00\x00\x00\x0b\x00\x08\x00\x00\x05a.test", Names{Step: Lost}},
	{"name longer than the list", "\x00\x00\x00\x0b\x00\x09\x00\x00\x07a.test", Names{Step: Lost}},
	{"name's header cut", "\x00\x00\x00\x04\x00\x02\x00\x00" + server, Names{Step: Lost}},
	{"extension longer than the message", server[:3] + "\x0c" + server[4:], Names{Step: Lost}},
	{"extension's header cut", server + "\x00\x10\x00", Names{Step: Lost}},
	{"two of ALPN", server + alpn + alpn, Names{Step: Lost}},
	{"empty list of protocols", server + "\x00\x10\x00\x02\x00\x00", Names{Step: Lost}},
	{"empty protocol", server + "\x00\x10\x00\x03\x00\x01\x00", Names{Step: Lost}},
	{"protocol longer than the list", server + "\x00\x10\x00\x05\x00\x03\x03h2", Names{Step: Lost}},
}

// TestHellos checks the hellos, with something behind them, cut in two anywhere and in many.
func TestHellos(t *testing.T) {
	a := testArena(t)
	for _, h := range hellos {
		t.Run(h.name, func(t *testing.T) {
			b := plain(h.extensions)
			if got := checkNames(t, a, b); got != h.want {
				t.Fatalf("%+v, not %+v", got, h.want)
			}
			checkClient(t, a, b)
		})
	}
}

// TestNoExtensions reads a ClientHello that ends before there could be any.
func TestNoExtensions(t *testing.T) {
	a := testArena(t)
	whole := plain("")
	b := slices.Clone(whole[:len(whole)-2])
	b[4], b[8] = b[4]-2, b[8]-2
	if got := checkNames(t, a, b, 1, 7); got != (Names{Step: End}) {
		t.Errorf("%+v", got)
	}
}

// checkClient reads a ClientHello, which is whole, in pieces, and anew in other records.
func checkClient(t *testing.T, a *arena, b []byte) Names {
	t.Helper()
	want := checkNames(t, a, b, 1, 4, 20, 200)
	for first := 1; first < len(b); first += 1 + len(b)/600 {
		if got := readNames(t, a, b, twin.After(first, chunkSize)); got != want {
			t.Fatalf("cut after %d of %d bytes: %+v, not %+v", first, len(b), got, want)
		}
		if got := readNames(t, a, b[:first], twin.Whole); want.Step == End && got.Step != More {
			t.Fatalf("of %d bytes %d: %+v", len(b), first, got)
		}
	}
	message, _ := content(b)
	for i := range byte(12) {
		r := recipe{draw.Recipe{i, i * 7, i * 11, i * 13, i * 17}}
		if got := checkNames(t, a, r.records(message), 50); got != want {
			t.Fatalf("in other records %+v, not %+v", got, want)
		}
	}
	return want
}

// TestRecordings reads what was recorded of clients, for another test.
func TestRecordings(t *testing.T) {
	a := testArena(t)
	files, err := filepath.Glob("../tls/testdata/*.bin")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := checkClient(t, a, b); got.Step != End || got.Server == "" {
			t.Errorf("%s: %+v", file, got)
		}
	}
}

// tap keeps what a client sends.
type tap struct {
	net.Conn
	sent *bytes.Buffer
}

func (c tap) Write(b []byte) (int, error) {
	c.sent.Write(b)
	return c.Conn.Write(b)
}

// shakeHands lets a client and a server do so, as far as they get, and returns what the client has sent.
func shakeHands(t *testing.T, client, server *tls.Config) []byte {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // it has served its purpose
	done := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = tls.Server(c, server).Write([]byte("x"))
			err = errors.Join(err, c.Close())
		}
		done <- err
	}()
	near, err := net.DialTimeout("tcp", l.Addr().String(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := near.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	_, err = tls.Client(tap{near, &b}, client).Read(make([]byte, 1)) // before it, the ticket
	err = errors.Join(err, near.Close())
	t.Log(err, <-done) // where they do not get on they say why
	return b.Bytes()
}

// helloOf is the ClientHello with which begins what a client has sent, in its records.
func helloOf(t *testing.T, b []byte) []byte {
	t.Helper()
	for n := 5; n <= len(b); n += 5 {
		n += int(binary.BigEndian.Uint16(b[n-2:]))
		if all, _ := content(b[:n]); wholeMessage(all) {
			return b[:n]
		}
	}
	t.Fatalf("no ClientHello in %x", b)
	return nil
}

// certificate makes one of nobody in particular.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// encrypted is an ECHConfigList (RFC 9849, 4) with the name that is to be seen.
func encrypted(t *testing.T, public string) []byte {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r := recipe{}
	b := append([]byte{1, 0, 0x20}, r.vector(2, key.PublicKey().Bytes())...) // DHKEM(X25519, HKDF-SHA256)
	b = append(b, r.vector(2, []byte{0, 1, 0, 1})...)                        // HKDF-SHA256, AES-128-GCM
	b = append(append(b, 64), r.vector(1, []byte(public))...)
	b = append(b, 0, 0)
	return r.vector(2, append([]byte{0xfe, 0x0d}, r.vector(2, b)...))
}

// TestGo reads what Go's client sends.
func TestGo(t *testing.T) {
	a := testArena(t)
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("%03d%s", i, strings.Repeat("x", 200)))
	}
	serve := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	long := strings.Repeat("label.", 40) + "example"
	const name = "www.example.org"
	for _, c := range []struct {
		name    string
		config  *tls.Config
		want    Names
		least   int // bytes
		records int // at least
	}{
		{"default", &tls.Config{}, Names{Server: name}, 1200, 1}, // with a key share of X25519MLKEM768
		{"TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12}, Names{Server: name}, 100, 1},
		{"TLS 1.0", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, Names{Server: name}, 50, 1},
		{"ALPN", &tls.Config{NextProtos: []string{"h2", "http/1.1"}}, Names{Server: name, Protocols: "\x02h2\x08http/1.1"}, 1200, 1},
		{"ALPN over records", &tls.Config{NextProtos: many}, Names{Server: name, Protocols: "\xcb" + many[0], Cut: true}, 20_000, 2},
		{"long name", &tls.Config{ServerName: long}, Names{Server: long}, 1200, 1},
		{"address", &tls.Config{ServerName: "192.0.2.1"}, Names{}, 1200, 1},
		{"encrypted", &tls.Config{EncryptedClientHelloConfigList: encrypted(t, "public.example")}, Names{Server: "public.example", ECH: true}, 1400, 1},
		{"ticket 1.3", &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(1)}, Names{Server: name}, 1350, 1},
		{"ticket 1.2", &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(1), MaxVersion: tls.VersionTLS12}, Names{Server: name}, 250, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.config.ServerName == "" {
				c.config.ServerName = name
			}
			c.config.InsecureSkipVerify = c.config.EncryptedClientHelloConfigList == nil
			if c.config.ClientSessionCache != nil {
				shakeHands(t, c.config, serve)
			}
			b := helloOf(t, shakeHands(t, c.config, serve))
			if len(b) < c.least || len(b) <= (c.records-1)<<14 {
				t.Errorf("only %d bytes", len(b))
			}
			c.want.Step = End
			if got := checkClient(t, a, b); got != c.want {
				t.Errorf("%+v, not %+v", got, c.want)
			}
		})
	}
}

// dense takes the most steps for its bytes.
func dense() []byte {
	r := recipe{}
	message, _ := content(plain(strings.Repeat(grease, 4000) + server))
	var b []byte
	for _, c := range message {
		b = append(b, r.records([]byte{c})...)
	}
	return b
}

// TestDense reads it to its end nevertheless.
func TestDense(t *testing.T) {
	a := testArena(t)
	if got := checkNames(t, a, dense(), 1, 3, 300); got != (Names{Step: End, Server: "a.test"}) {
		t.Errorf("%+v", got)
	}
	many := plain(strings.Repeat(grease, 16000) + server)
	if got := checkNames(t, a, many, 1, 3, 300); got != (Names{Step: End, Server: "a.test"}) {
		t.Errorf("%+v", got)
	}
}

// TestRandomHellos compares hello_names() with the oracle and with crypto/tls on what is nearly
// valid, and asks that each result occurs, so that it is known to reach the depths.
func TestRandomHellos(t *testing.T) {
	const all = 5_000
	a := testArena(t)
	seen := map[string]int{}
	for choices := range draw.Recipes(seeded.NewChaCha8([32]byte{1}), all, 150) {
		r := recipe{choices}
		b := r.hello()
		if r.Rarely(8) {
			b = b[:len(b)/2]
		}
		got := checkNames(t, a, b, draw.Pick(&r, 1, 4, 20, 200))
		seen[string(got.Step)]++
		for what, is := range map[string]bool{"server": got.Server != "", "protocols": got.Protocols != "", "cut": got.Cut, "ech": got.ECH} {
			if is {
				seen[what]++
			}
		}
	}
	t.Log(seen)
	for _, what := range []string{string(More), string(End), string(Lost), "server", "protocols", "cut", "ech"} {
		if seen[what] < all/50 {
			t.Errorf("only %d of %d: %s", seen[what], all, what)
		}
	}
}
