// SPDX-License-Identifier: Apache-2.0

// Package nettest ties what package lab makes to the life of a test: helpers fail
// the test instead of returning errors, and clean up when it ends.
package nettest

import (
	"net/netip"
	"os"
	"testing"

	"narthex/internal/lab"
)

// Root fails the test unless it runs as root.
func Root(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("this test makes network namespaces, which only root can: run it with sudo")
	}
}

// Namespace makes a namespace for the test.
func Namespace(tb testing.TB, purpose string) *lab.Namespace {
	tb.Helper()
	Root(tb)
	n, err := lab.NewNamespace(purpose)
	Check(tb, err)
	tb.Cleanup(func() { checkClose(tb, n.Close) })
	return n
}

// Lab makes a lab with the given number of clients' addresses.
func Lab(tb testing.TB, clients int) *lab.Lab {
	tb.Helper()
	Root(tb)
	l, err := lab.New("test", clients)
	Check(tb, err)
	tb.Cleanup(func() { checkClose(tb, l.Close) })
	return l
}

// Nginx starts nginx in a namespace, listening on the given addresses.
func Nginx(tb testing.TB, n *lab.Namespace, listen ...netip.AddrPort) *lab.Server {
	tb.Helper()
	s, err := n.StartNginx(lab.NginxConfig{Listen: listen})
	Check(tb, err)
	return s
}

// Sender opens a device for sending frames.
func Sender(tb testing.TB, n *lab.Namespace, dev string) *lab.Raw {
	tb.Helper()
	return raw(tb, dev, n.OpenSender)
}

// Capture opens a device for receiving frames.
func Capture(tb testing.TB, n *lab.Namespace, dev string) *lab.Raw {
	tb.Helper()
	return raw(tb, dev, n.OpenCapture)
}

func raw(tb testing.TB, dev string, open func(string) (*lab.Raw, error)) *lab.Raw {
	tb.Helper()
	r, err := open(dev)
	Check(tb, err)
	tb.Cleanup(func() { checkClose(tb, r.Close) })
	return r
}

// Peer makes a peer at the lab's client device.
func Peer(tb testing.TB, l *lab.Lab, cfg lab.PeerConfig) *lab.Peer {
	tb.Helper()
	p, err := l.NewPeer(cfg)
	Check(tb, err)
	tb.Cleanup(func() { checkClose(tb, p.Close) })
	return p
}

// Check fails the test if there is an error.
func Check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func checkClose(tb testing.TB, closer func() error) {
	tb.Helper()
	if err := closer(); err != nil {
		tb.Error(err)
	}
}
