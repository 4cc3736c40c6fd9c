// SPDX-License-Identifier: Apache-2.0

package client

import (
	"testing"

	"narthex/test/draw"
)

// mostBytes spans many chunks, and a record that is as long as may be.
const mostBytes = 20_000

// FuzzHello changes bytes of ClientHellos.
func FuzzHello(f *testing.F) {
	for _, h := range hellos {
		f.Add(plain(h.extensions))
	}
	a := testArena(f)
	f.Fuzz(func(t *testing.T, b []byte) { checkNames(t, a, b[:min(len(b), mostBytes)], 1, 4, 20, 200) })
}

// FuzzHelloRecipe changes decisions on how they are made, and so keeps to what is nearly valid.
func FuzzHelloRecipe(f *testing.F) {
	draw.Add(f, 100)
	a := testArena(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		r := recipe{choices}
		checkNames(t, a, r.hello(), 1, 4, 20, 200)
	})
}

// FuzzAddress changes bytes of an address.
func FuzzAddress(f *testing.F) {
	for _, c := range addresses {
		f.Add(c.text)
	}
	a := testArena(f)
	f.Fuzz(func(t *testing.T, s string) { checkAddress(t, a, s[:min(len(s), mostText)]) })
}

// FuzzForwarded changes bytes of a list.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{"", "192.0.2.1", "192.0.2.1, 198.51.100.7", " a b ,\tc\t, ,d,,"} {
		f.Add(s)
	}
	a := testArena(f)
	f.Fuzz(func(t *testing.T, s string) { checkElements(t, a, s[:min(len(s), mostText)]) })
}

// FuzzProxy changes bytes of a PROXY header.
func FuzzProxy(f *testing.F) {
	for _, h := range headers {
		f.Add([]byte(h.text))
	}
	a := testArena(f)
	f.Fuzz(func(t *testing.T, b []byte) { checkProxy(t, a, b[:min(len(b), mostBytes)], 1, 4, 20, 200) })
}

// FuzzProxyRecipe changes decisions on how it is made.
func FuzzProxyRecipe(f *testing.F) {
	draw.Add(f, 100)
	a := testArena(f)
	f.Fuzz(func(t *testing.T, choices []byte) {
		r := recipe{choices}
		checkProxy(t, a, r.proxy(), 1, 4, 20, 200)
	})
}
