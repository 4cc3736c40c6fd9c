// SPDX-License-Identifier: Apache-2.0

// Package nettest ties what package testnet makes to the life of a test: helpers fail
// the test instead of returning errors, and clean up when it ends.
package nettest

import (
	"net/netip"
	"os"
	"testing"

	"narthex/internal/testnet"
)

// Root fails the test unless it runs as root.
func Root(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Fatal("this test makes network namespaces, which only root can: run it with sudo")
	}
}

// Namespace makes a namespace for the test.
func Namespace(tb testing.TB, purpose string) *testnet.Namespace {
	tb.Helper()
	Root(tb)
	n, err := testnet.New(purpose)
	Check(tb, err)
	tb.Cleanup(func() { checkClose(tb, n.Close) })
	return n
}

// Lab makes a lab with the given number of clients' addresses.
func Lab(tb testing.TB, clients int) *testnet.Lab {
	tb.Helper()
	Root(tb)
	l, err := testnet.NewLab("test", clients)
	Check(tb, err)
	tb.Cleanup(func() { checkClose(tb, l.Close) })
	return l
}

// Nginx starts nginx in a namespace, listening on the given addresses.
func Nginx(tb testing.TB, n *testnet.Namespace, listen ...netip.AddrPort) *testnet.Server {
	tb.Helper()
	s, err := n.StartNginx(testnet.NginxConfig{Listen: listen})
	Check(tb, err)
	return s
}

// Sender opens a device for sending frames.
func Sender(tb testing.TB, n *testnet.Namespace, dev string) *testnet.Raw {
	tb.Helper()
	return raw(tb, dev, n.OpenSender)
}

// Capture opens a device for receiving frames.
func Capture(tb testing.TB, n *testnet.Namespace, dev string) *testnet.Raw {
	tb.Helper()
	return raw(tb, dev, n.OpenCapture)
}

func raw(tb testing.TB, dev string, open func(string) (*testnet.Raw, error)) *testnet.Raw {
	tb.Helper()
	r, err := open(dev)
	Check(tb, err)
	tb.Cleanup(func() { checkClose(tb, r.Close) })
	return r
}

// Peer makes a peer at the lab's client device.
func Peer(tb testing.TB, l *testnet.Lab, cfg testnet.PeerConfig) *testnet.Peer {
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
