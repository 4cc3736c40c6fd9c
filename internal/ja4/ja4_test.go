// SPDX-License-Identifier: Apache-2.0

package ja4

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
)

// unhex turns a list of numbers, as published with fingerprints, into bytes.
func unhex(t *testing.T, list string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(list, ",", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func vector(size int, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b)))[4-size:], b...)
}

// sample is a ClientHello in words.
type sample struct {
	version, ciphers, extensions, signatures, versions string
	protocol                                           string
}

// bytes makes the ClientHello, in one record. Extensions stand in the order that is given.
func (s sample) bytes(t *testing.T) []byte {
	t.Helper()
	var extensions []byte
	for kind := range slices.Chunk(unhex(t, s.extensions), 2) {
		var content []byte
		switch binary.BigEndian.Uint16(kind) {
		case 0x0000:
			content = vector(2, append([]byte{0}, vector(2, []byte("a.example"))...))
		case 0x0010:
			content = vector(2, append(vector(1, []byte(s.protocol)), "\x08http/1.1"...))
		case 0x000d:
			content = vector(2, unhex(t, s.signatures))
		case 0x002b:
			content = vector(1, unhex(t, s.versions))
		}
		extensions = append(append(extensions, kind...), vector(2, content)...)
	}
	body := append(unhex(t, s.version), make([]byte, 32)...)
	body = append(append(body, vector(1, make([]byte, 32))...), vector(2, unhex(t, s.ciphers))...)
	body = append(append(body, 1, 0), vector(2, extensions)...)
	return append([]byte{22, 3, 1}, vector(2, append([]byte{1}, vector(3, body)...))...)
}

// What Chrome and others offer, as it is published with its fingerprint.
const (
	chromeCiphers    = "1a1a,1301,1302,1303,c02b,c02f,c02c,c030,cca9,cca8,c013,c014,009c,009d,002f,0035"
	chromeSignatures = "0403,0804,0401,0503,0805,0501,0806,0601"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		name string
		sample
		want string
	}{
		{"published by FoxIO", sample{"0303", chromeCiphers,
			"3a3a,001b,0000,0033,0010,4469,0017,002d,000d,0005,0023,0012,002b,ff01,000b,000a,0015,4a4a", chromeSignatures, "0a0a,0304,0303", "h2"},
			"t13d1516h2_8daaf6152771_e5627efa2ab1"},
		{"with ECH, in Chrome's order of 2025", sample{"0303", chromeCiphers,
			"5a5a,002d,0033,0010,fe0d,0017,44cd,0000,000b,000a,002b,ff01,0023,0012,0005,000d,001b,8a8a", chromeSignatures, "caca,0304,0303", "h2"},
			"t13d1516h2_8daaf6152771_d8a2da3f94cd"},
		{"published by shigshag.com", sample{"0303", "1301,1302,1303,c02b,c02c,c02f,c030,cca8,cca9,00ff",
			"0000,000a,000b,000d,0010,0017,0023,002b,002d,0033,0005", "0503,0403,0807,0806,0805,0804,0601,0501,0401", "0304,0303", "h2"},
			"t13d1011h2_61a7ad8aa9b6_3fcd1a44f3e3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, ok := Of(c.bytes(t)); !ok || got != c.want {
				t.Errorf("%s, not %s", got, c.want)
			}
		})
	}
}

// TestBeginning checks what stands in front of the hashes.
func TestBeginning(t *testing.T) {
	many := strings.Repeat("0001,", 100) + "0001"
	for _, c := range []struct {
		name string
		sample
		want string
	}{
		{"no version list", sample{"0303", "1301", "0000", "", "", ""}, "t12d010100"},
		{"TLS 1.1", sample{"0302", "1301", "", "", "", ""}, "t11i010000"},
		{"TLS 1.0", sample{"0301", "", "", "", "", ""}, "t10i000000"},
		{"SSL 3.0", sample{"0300", "", "", "", "", ""}, "ts3i000000"},
		{"unknown", sample{"0305", "", "", "", "", ""}, "t00i000000"},
		{"an empty version list", sample{"0303", "", "002b", "", "", ""}, "t00i000100"},
		{"nothing but GREASE", sample{"0303", "fafa", "0a0a,2a2a", "", "", ""}, "t12i000000"},
		{"what is nearly GREASE", sample{"0303", "1a2a,0a1b", "0a0b", "", "", ""}, "t12i020100"},
		{"more than two digits", sample{"0303", many, many, "", "", ""}, "t12i999900"},
		{"one letter", sample{"0303", "", "0010", "", "", "x"}, "t12i0001xx"},
		{"capitals", sample{"0303", "", "0010", "", "", "H/Q"}, "t12i0001HQ"},
		{"no letter in front", sample{"0303", "", "0010", "", "", "\xabz"}, "t12i0001aa"},
		{"no letter behind", sample{"0303", "", "0010", "", "", "h2\n"}, "t12i00016a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, ok := Of(c.bytes(t)); !ok || got[:10] != c.want {
				t.Errorf("%s, not %s", got, c.want)
			}
		})
	}
}

func TestOfNone(t *testing.T) {
	good := sample{"0303", "1301", "0000", "", "", ""}.bytes(t)
	for n := range good {
		if got, ok := Of(good[:n]); ok {
			t.Errorf("of %d of %d bytes: %s", n, len(good), got)
		}
	}
	for name, s := range map[string]sample{
		"too many ciphers":    {"0303", strings.Repeat("0001", Most+1), "", "", "", ""},
		"too many extensions": {"0303", "", strings.Repeat("0001", Most+1), "", "", ""},
		"too many signatures": {"0303", "", "000d", strings.Repeat("0001", Most+1), "", ""},
		"half a cipher":       {"0303", "130102", "", "", "", ""},
		"two names":           {"0303", "", "00000000", "", "", ""},
		"two version lists":   {"0303", "", "002b002b", "", "0304", ""},
		"an empty protocol":   {"0303", "", "0010", "", "", ""},
	} {
		if got, ok := Of(s.bytes(t)); ok {
			t.Errorf("%s: %s", name, got)
		}
	}
}
