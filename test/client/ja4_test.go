// SPDX-License-Identifier: Apache-2.0

package client

import (
	"crypto/tls"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"narthex/internal/ja4"
	"narthex/test/client/clientprog"
	"narthex/test/draw"
	"narthex/test/twin"
)

// print is the fingerprint of a connection's first bytes, cut as the function says; "" if there is
// none. It goes on for a piece when it knows, which must not change what is said.
func (a *arena) print(t testing.TB, b []byte, next twin.Cut) (Step, string) {
	t.Helper()
	f := fingerprint{a: a}
	step := More
	for at := 0; at < len(b); {
		size := min(next(), len(b)-at, chunkSize)
		said, err := f.read(b[at:at+size], byte(at))
		if err != nil {
			t.Fatalf("%v\n%x", err, b)
		}
		if step != More {
			if said != step {
				t.Fatalf("ja4_read() says %s, and called again %s\n%x", step, said, b)
			}
			break
		}
		step = said
		at += size
	}
	if step != End {
		return step, ""
	}
	return step, f.finish()
}

// checkPrint compares the fingerprint with plain Go's, also in pieces of at most the given sizes.
func checkPrint(t testing.TB, a *arena, b []byte, sizes ...int) (Step, string) {
	t.Helper()
	step, got := a.print(t, b, twin.Whole)
	if want, ok := ja4.Of(b); got != want || ok != (step == End) {
		t.Fatalf("the fingerprint is %q (%s)\nin Go            %q (%t)\n%x", got, step, want, ok, b)
	}
	for _, size := range sizes {
		if _, cut := a.print(t, b, twin.UpTo(size, b)); cut != got {
			t.Fatalf("in pieces of up to %d bytes, the fingerprint is %q\nin one, %q\n%x", size, cut, got, b)
		}
	}
	return step, got
}

// grease is at times one of the values that stand for nothing.
func (r *recipe) number() uint16 {
	v := uint16(r.Below(256))<<8 | uint16(r.Below(256))
	if r.Rarely(6) {
		v = v&0xf0f0 | 0x0a0a
		return draw.Unlikely(r, 4, v&0xf0ff|v<<8&0xf000, v)
	}
	return draw.Unlikely(r, 3, v, v&0xff, v&0xff00, 0x0010, 0x000d)
}

// numbers makes a list of them, behind its length.
func (r *recipe) numbers(width int) []byte {
	var list []byte
	for range draw.Unlikely(r, 12, r.Below(24), 0, 99, 100, 127, 128, 129) % (255 / width * 2) {
		list = binary.BigEndian.AppendUint16(list, r.number())
	}
	return r.vector(width, append(list, draw.Unlikely(r, 64, "", "\x00")...))
}

// offers makes a ClientHello of what fingerprints are made of.
func (r *recipe) offers() []byte {
	b := append([]byte{3, draw.Unlikely[byte](r, 3, 3, 1, 2, 0, 4, 5)}, make([]byte, 32)...)
	b = append(b, r.vector(1, make([]byte, draw.Pick(r, 32, 0)))...)
	b = append(b, r.numbers(2)...)
	b = append(b, r.vector(1, make([]byte, 1))...)
	var all [][]byte
	for _, e := range []struct {
		kind uint16
		make func() []byte
	}{{0, r.serverName}, {16, r.protocols}, {13, func() []byte { return r.numbers(2) }}, {43, func() []byte { return r.numbers(1) }}} {
		for range draw.Unlikely(r, 6, 1, 0, 0, 0, 2) {
			all = append(all, r.extension(e.kind, e.make()))
		}
	}
	for range draw.Unlikely(r, 12, r.Below(12), 0, 99, 123, 128, 129) {
		all = slices.Insert(all, r.Below(len(all)+1), r.extension(r.number(), make([]byte, draw.Pick(r, 0, 1, 5))))
	}
	b = append(b, r.vector(2, slices.Concat(all...))...)
	return r.Damage(r.records(append([]byte{1}, r.vector(3, b)...)), 32)
}

// TestRandomFingerprints compares with plain Go on what is nearly valid, and asks that each result occurs.
func TestRandomFingerprints(t *testing.T) {
	const all = 5_000
	a := testArena(t)
	seen, steps := map[string]bool{}, map[Step]int{}
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{61}), all, 600) {
		r := recipe{choices}
		b := r.offers()
		if r.Rarely(8) {
			b = b[:len(b)/2]
		}
		step, got := checkPrint(t, a, b, draw.Pick(&r, 1, 4, 20, 200))
		seen[got] = true
		steps[step]++
	}
	t.Log(len(seen), steps)
	if len(seen) < all/4 || min(steps[More], steps[End], steps[Lost]) < all/50 {
		t.Errorf("only %d fingerprints, %v", len(seen), steps)
	}
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{62}), all, 150) {
		r := recipe{choices}
		checkPrint(t, a, r.hello(), 20)
	}
}

// recorded are the fingerprints of what was recorded of clients.
var recorded = map[string]string{
	"curl.bin": "t13d3112h2_e8f1e7e78f70_b26ce05bbdd6", "openssl.bin": "t13d311000_e8f1e7e78f70_1f22a2ca17c4",
	"openssl-1.2.bin": "t12d2808h2_d943125447b4_e7e480e5a997", "openssl-fragments.bin": "t13d3111px_e8f1e7e78f70_1f22a2ca17c4",
}

// TestFingerprints reads hellos of clients, cut in two anywhere.
func TestFingerprints(t *testing.T) {
	a := testArena(t)
	files, err := filepath.Glob("../tls/testdata/*.bin")
	if err != nil || len(files) != 4 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	check := func(name string, b []byte) {
		_, want := checkPrint(t, a, b, 1, 4, 20, 200)
		if want == "" {
			t.Errorf("%s has no fingerprint", name)
		}
		for first := 1; first < len(b); first++ {
			if _, got := a.print(t, b, twin.After(first, chunkSize)); got != want {
				t.Fatalf("%s cut after %d of %d bytes: %s, not %s", name, first, len(b), got, want)
			}
		}
		if known, ok := recorded[filepath.Base(name)]; ok && want != known {
			t.Errorf("%s: %s, not %s", name, want, known)
		}
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		check(file, b)
	}
	serve := &tls.Config{Certificates: []tls.Certificate{certificate(t)}}
	for _, c := range []*tls.Config{{}, {MaxVersion: tls.VersionTLS12}, {NextProtos: []string{"h2", "http/1.1"}}} {
		c.ServerName, c.InsecureSkipVerify = "www.example.org", true
		check("Go", helloOf(t, shakeHands(t, c, serve)))
	}
}

// TestKernelFingerprint compares what the kernel's form says with what the native form does.
func TestKernelFingerprint(t *testing.T) {
	k, a := loadKernel(t), testArena(t)
	for choices := range draw.Recipes(rand.NewChaCha8([32]byte{63}), 2_000, 600) {
		r := recipe{choices}
		b := r.offers()
		b = b[:min(len(b), twin.MostFrame)]
		wantStep, want := a.print(t, b, twin.Whole)
		var to clientprog.ClientJa4Print
		step := steps[run(t, k.ClientJa4, b, k.Fingerprint, &to)]
		got := ""
		if step == End {
			got = string(to.Text[:])
		}
		if step != wantStep || got != want {
			t.Fatalf("the fingerprint is in the kernel %q (%s)\nnatively                     %q (%s)\n%x", got, step, want, wantStep, b)
		}
	}
}

// FuzzFingerprint changes bytes of ClientHellos.
func FuzzFingerprint(f *testing.F) {
	for _, h := range hellos {
		f.Add(plain(h.extensions))
	}
	a := testArena(f)
	f.Fuzz(func(t *testing.T, b []byte) { checkPrint(t, a, b[:min(len(b), mostBytes)], 1, 4, 20, 200) })
}

// FuzzFingerprintRecipe changes decisions on how they are made.
func FuzzFingerprintRecipe(f *testing.F) {
	draw.Add(f, 100)
	a := testArena(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		r := recipe{choices}
		checkPrint(t, a, r.offers(), 1, 4, 20, 200)
	})
}
