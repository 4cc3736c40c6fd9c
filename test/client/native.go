// SPDX-License-Identifier: Apache-2.0

// Package client runs what the data path reads of who a client is and what it asks for, namely the
// names in a ClientHello, addresses in text and the PROXY protocol's header, on this machine and in
// the kernel, and compares what it says with plain Go, net/netip and crypto/tls.
package client

/*
#cgo CFLAGS: -std=gnu11 -O2 -Wall -Wextra -Wno-unused -I${SRCDIR}/../../bpf
#include "native.h"
*/
import "C"

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"unsafe"

	_ "narthex/test/source" // compile again when bpf/ changes
	"narthex/test/twin"
)

const (
	chunkSize      = C.HTTP_CHUNK
	chunkRoom      = C.sizeof_struct_http_chunk // with what may be read ahead
	mostText       = C.MAX_TEXT
	mostOfAddress  = C.ADDRESS_MAX_TEXT
	mostOfName     = C.HELLO_NAME - 1
	mostProtocols  = C.HELLO_NAME
	mostProxyBlock = C.PROXY_MAX_BLOCK
)

// Step is what a scan ends with.
type Step = twin.Step

const (
	More = twin.More
	End  = twin.End
	Lost = twin.Lost
)

// steps translates enum http_step.
var steps = twin.Steps{C.HTTP_MORE: More, C.HTTP_END: End, C.HTTP_LOST: Lost}

// Names is what is known of the bytes of a ClientHello.
type Names struct {
	Step
	Server    string
	Protocols string // as they came: each a length, in a byte, and its bytes
	ECH, Cut  bool
}

// says is what the C says in struct tls_names.
func says(step Step, flags uint8, name, protocols []byte) (Names, error) {
	if step == More {
		return Names{Step: More}, nil
	}
	if malformed := flags&C.HELLO_MALFORMED != 0; malformed != (step == Lost) {
		return Names{}, fmt.Errorf("hello_names() says %s, and flags %#x", step, flags)
	}
	if step == Lost {
		if len(name)+len(protocols) > 0 {
			return Names{}, fmt.Errorf("hello_names() says %s, and %q, %q", step, name, protocols)
		}
		return Names{Step: Lost}, nil
	}
	return Names{step, string(name), string(protocols), flags&C.HELLO_ECH != 0, flags&C.HELLO_CUT != 0}, nil
}

// Client is what a PROXY header says of the client.
type Client string

const (
	Own       Client = "nothing"
	Given     Client = "its address"
	Malformed Client = "nonsense"
)

// clients translates enum proxy_client.
var clients = map[int32]Client{C.PROXY_OWN: Own, C.PROXY_ADDRESS: Given, C.PROXY_MALFORMED: Malformed}

// addressOf is what a struct address says.
func addressOf(word [2]uint64, v6 uint8) (netip.Addr, error) {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], word[0])
	binary.BigEndian.PutUint64(b[8:], word[1])
	switch {
	case v6 == 1:
		return netip.AddrFrom16(b), nil
	case v6 != 0 || word[0]<<32 != 0 || word[1] != 0:
		return netip.Addr{}, fmt.Errorf("an IPv4 address of %x, %x, and v6 %d", word[0], word[1], v6)
	}
	return netip.AddrFrom4([4]byte(b[:4])), nil
}

// arena is what the readers read from: a chunk that ends at a page that nobody may touch, or a text.
type arena struct {
	chunk []byte
	text  *C.struct_text
}

func newArena(chunk []byte) *arena { return &arena{chunk, new(C.struct_text)} }

// fill puts at most chunkSize bytes into the chunk, and behind them what must not matter.
func (a *arena) fill(b []byte, behind byte) *C.struct_http_chunk {
	twin.Fill(a.chunk, b, behind)
	return (*C.struct_http_chunk)(unsafe.Pointer(unsafe.SliceData(a.chunk)))
}

// write puts a text into the arena's, with a byte before it and behind it. Returns where it is.
func (a *arena) write(s string, around byte) (begin, end C.__u32) {
	t := unsafe.Slice((*byte)(unsafe.Pointer(&a.text.byte[0])), mostText)
	at := 1
	if len(s) == mostText {
		at = 0
	}
	t[0] = around
	copy(t[at:], s)
	if at+len(s) < mostText {
		t[at+len(s)] = around
	}
	return C.__u32(at), C.__u32(at + len(s))
}

// names is hello_names(), in pieces of a ClientHello.
type names struct {
	n C.struct_tls_names
	a *arena
}

func (n *names) read(b []byte, behind byte) (Names, error) {
	step, ok := steps[uint32(C.native_hello(&n.n, n.a.fill(b, behind), C.__u32(len(b))))]
	if !ok {
		return Names{}, fmt.Errorf("hello_names() returned what it does not define")
	}
	if n.n.sni > mostOfName || n.n.alpn > mostProtocols {
		return Names{}, fmt.Errorf("hello_names() has a name of %d bytes, and %d of protocols", n.n.sni, n.n.alpn)
	}
	return says(step, uint8(n.n.flags), C.GoBytes(unsafe.Pointer(&n.n.name[0]), C.int(n.n.sni)),
		C.GoBytes(unsafe.Pointer(&n.n.protocols[0]), C.int(n.n.alpn)))
}

// fingerprint is ja4_read(), in pieces of a ClientHello, and then ja4_finish().
type fingerprint struct {
	j C.struct_ja4
	a *arena
}

func (f *fingerprint) read(b []byte, behind byte) (Step, error) {
	step, ok := steps[uint32(C.native_ja4(&f.j, f.a.fill(b, behind), C.__u32(len(b))))]
	if !ok {
		return "", fmt.Errorf("ja4_read() returned what it does not define")
	}
	return step, nil
}

func (f *fingerprint) finish() string {
	var to C.struct_ja4_print
	C.native_ja4_finish(&f.j, &to)
	return C.GoStringN((*C.char)(unsafe.Pointer(&to.text[0])), C.JA4_LENGTH)
}

// readAddress is read_address().
func (a *arena) readAddress(s string, around byte) (netip.Addr, bool, error) {
	var to C.struct_address
	begin, end := a.write(s, around)
	if C.native_address(a.text, begin, end, &to) == 0 {
		return netip.Addr{}, false, nil
	}
	addr, err := addressOf([2]uint64{uint64(to.word[0]), uint64(to.word[1])}, uint8(to.v6))
	return addr, true, err
}

// elements is forwarded_last() until there are no more.
func (a *arena) elements(s string, around byte) ([]string, error) {
	begin, end := a.write(s, around)
	f := C.struct_forwarded{first: begin, rest: end}
	var all []string
	for before := end; C.native_forwarded(a.text, &f) != 0; before = f.begin {
		if f.begin < begin || f.end > before || f.begin >= f.end {
			return nil, fmt.Errorf("forwarded_last() finds %d to %d in %d to %d", f.begin, f.end, begin, before)
		}
		all = append(all, s[f.begin-begin:f.end-begin])
	}
	return all, nil
}

// proxy is a struct proxy_head, and the chunk by way of which it gets bytes.
type proxy struct {
	head C.struct_proxy_head
	a    *arena
}

// Scan is proxy_scan().
func (p *proxy) Scan(b []byte, at int) (Step, int, error) {
	used := C.__u32(1 << 31)
	step := C.native_proxy(&p.head, p.a.fill(b, byte(at)), C.__u32(len(b)), &used)
	return steps.After(uint32(step), int(used), len(b))
}

// Skip is proxy_skip().
func (p *proxy) Skip(n int) int { return int(C.native_proxy_skip(&p.head, C.__u32(n))) }

// proxyAddress is proxy_address().
func (a *arena) proxyAddress(b []byte, behind byte) (Client, netip.Addr, error) {
	var to C.struct_address
	said, ok := clients[int32(C.native_proxy_address(a.fill(b, behind), C.__u32(len(b)), &to))]
	if !ok {
		return "", netip.Addr{}, fmt.Errorf("proxy_address() returned what it does not define")
	}
	if said != Given {
		return said, netip.Addr{}, nil
	}
	addr, err := addressOf([2]uint64{uint64(to.word[0]), uint64(to.word[1])}, uint8(to.v6))
	return said, addr, err
}
