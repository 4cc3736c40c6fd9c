// SPDX-License-Identifier: Apache-2.0

package tls

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// record is one of a handshake.
func record(content string) string {
	return string(binary.BigEndian.AppendUint16([]byte{handshake, 3, 1}, uint16(len(content)))) + content
}

// message is a ClientHello as far as it matters.
func message(size int) string {
	return string(binary.BigEndian.AppendUint32(nil, clientHello<<24|uint32(size))) + strings.Repeat("\x16", size)
}

// hellos are connections with what is known of them by heart.
var hellos = []struct {
	name string
	text string // up to the byte with which the ClientHello ends, or is none
	step Step
}{
	{"one record", record(message(200)), End},
	{"records of one byte", record("\x01") + strings.Repeat(record("\x00"), 2) + record("\x02") + record("a") + record("b"), End},
	{"header in a record of its own", record("\x01\x00\x00\x02") + record("ab"), End},
	{"header in two records", record("\x01\x00") + record("\x00\x02ab"), End},
	{"longest record", record(message(maxRecord - messageHeader)), End},
	{"longest record and another", record(message(maxRecord)[:maxRecord]) + record("abcd"), End},
	{"something behind it in its record", record(message(200) + message(3000)), End},
	{"something behind it in its second record", record(message(200)[:100]) + record(message(200)[100:]+"behind"), End},
	{"empty message", record(message(0)), End},
	{"SSL 3.0", "\x16\x03\x00" + record(message(50))[3:], End},
	{"version to come", "\x16\x03\xff" + record(message(50))[3:], End},
	{"nothing but the header", record(message(200))[:recordHeader+messageHeader], More},
	{"end of the record to come", record(message(200) + "behind")[:recordHeader+messageHeader+200], More},
	{"another record to come", record(message(200)[:100]), More},
	{"longest message", record(message(1<<24 - 1)[:maxRecord]), More},

	{"HTTP", "G", Lost},
	{"alert", "\x15", Lost},
	{"data", "\x17", Lost},
	{"SSL 2.0", "\x80", Lost},
	{"version 2", "\x16\x02", Lost},
	{"DTLS", "\x16\xfe", Lost},
	{"empty record", "\x16\x03\x01\x00\x00", Lost},
	{"record longer than may be", "\x16\x03\x01\x40\x01", Lost},
	{"much longer record", "\x16\x03\x01\xff\xff", Lost},
	{"another message", "\x16\x03\x01\x00\x10\x02", Lost},
	{"hello request", "\x16\x03\x01\x00\x04\x00", Lost},
	{"alert in the middle", record(message(200)[:100]) + "\x15", Lost},
	{"change of cipher in the middle", record(message(200)[:100]) + "\x14", Lost},
	{"empty record in the middle", record(message(200)[:100]) + "\x16\x03\x03\x00\x00", Lost},
	{"version 4 in the middle", record(message(200)[:100]) + "\x16\x04", Lost},
}

// TestHellos checks the hellos, with something behind them, cut in two anywhere and in many.
func TestHellos(t *testing.T) {
	a := testArena(t)
	for _, h := range hellos {
		t.Run(h.name, func(t *testing.T) {
			b := []byte(h.text)
			if h.step == End {
				b = append(b, "\x14\x03\x03\x00\x01\x01\x16\x03\x03"...)
			}
			if got, want := checkStream(t, a, b, 1, 2, 5, 50), (Result{h.step, len(h.text)}); got != want {
				t.Fatalf("%+v, not %+v", got, want)
			}
			if len(b) < 4000 {
				checkCuts(t, a, b)
			}
		})
	}
}

// checkClient checks what a client has sent before it waits for an answer: a ClientHello.
func checkClient(t *testing.T, a *arena, b []byte) {
	t.Helper()
	if got := checkStream(t, a, b, 1, 4, 20, 200); got != (Result{End, len(b)}) {
		t.Errorf("of %d bytes: %+v\n%x", len(b), got, b)
	}
	checkCuts(t, a, b)
}

// TestClients reads what was recorded of clients: s_client and curl with OpenSSL 3.0.19.
// The options that matter are in the names; with fragments it is -max_send_frag 512 and long
// names of protocols.
func TestClients(t *testing.T) {
	a := testArena(t)
	files, err := filepath.Glob("testdata/*.bin")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			checkClient(t, a, b)
		})
	}
}

// sent returns what a Go client sends before it waits for an answer.
func sent(t *testing.T, c *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	result := make(chan error, 1)
	go func() { result <- tls.Client(client, c).Handshake() }()
	defer func() {
		_ = server.Close() // a pipe's never fails
		if err := <-result; err == nil {
			t.Error("the client has shaken hands with nobody")
		}
	}()
	if err := server.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var all, content []byte
	for len(content) < messageHeader || len(content) < messageHeader+int(binary.BigEndian.Uint32(content)&0xffffff) {
		b := make([]byte, recordHeader, recordHeader+1<<16)
		if _, err := io.ReadFull(server, b); err != nil {
			t.Fatal(err)
		}
		b = b[:recordHeader+int(binary.BigEndian.Uint16(b[3:]))]
		if _, err := io.ReadFull(server, b[recordHeader:]); err != nil {
			t.Fatal(err)
		}
		all, content = append(all, b...), append(content, b[recordHeader:]...)
	}
	return all
}

// TestGo reads what Go's client sends.
func TestGo(t *testing.T) {
	a := testArena(t)
	var protocols []string
	for i := range 100 {
		protocols = append(protocols, fmt.Sprintf("%03d%s", i, strings.Repeat("x", 200)))
	}
	for _, c := range []struct {
		name    string
		config  *tls.Config
		least   int // bytes
		records int // at least
	}{
		{"default", &tls.Config{}, 1200, 1}, // with a key share of X25519MLKEM768
		{"without post-quantum", &tls.Config{CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}}, 100, 1},
		{"TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12}, 100, 1},
		{"TLS 1.0", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, 50, 1},
		{"ALPN", &tls.Config{NextProtos: []string{"h2", "http/1.1"}}, 1200, 1},
		{"ALPN over records", &tls.Config{NextProtos: protocols}, 20_000, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.ServerName = "www.example.org"
			b := sent(t, c.config)
			if len(b) < c.least || len(b) <= (c.records-1)*maxRecord {
				t.Errorf("only %d bytes", len(b))
			}
			checkClient(t, a, b)
		})
	}
}

// TestDense reads what takes the most steps for its bytes: a chunk full of it is still read to
// its end.
func TestDense(t *testing.T) {
	a := testArena(t)
	b := []byte(record("\x01\xff\xff\xff") + strings.Repeat(record("a"), 2*chunkSize))
	if got := checkStream(t, a, b, 1, 3, 300); got != (Result{More, len(b)}) {
		t.Errorf("%+v", got)
	}
}
