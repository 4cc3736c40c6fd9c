// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Visits of services that speak TLS, and of those that speak lines.
var (
	tlsKinds  = []kind{{"tls browser", 3, (*visit).browseTLS}, {"tls one-shot", 2, (*visit).oneShotTLS}}
	lineKinds = []kind{{"lines", 4, (*visit).lines}, {"line", 2, (*visit).oneLine}}
)

// handshake speaks TLS from here on, in one of the sizes that a ClientHello has.
func (v *visit) handshake() error {
	cfg := &tls.Config{InsecureSkipVerify: true} // the lab's server vouches for itself
	if v.rng.IntN(2) == 0 {                      // half of the length
		cfg.CurvePreferences = []tls.CurveID{tls.X25519}
	}
	if v.rng.IntN(4) == 0 {
		cfg.MaxVersion = tls.VersionTLS12
	}
	conn := tls.Client(v.raw, cfg)
	v.service.pace.begin(v)
	_ = v.raw.SetDeadline(time.Now().Add(answerLimit))
	err := conn.HandshakeContext(v.ctx)
	v.service.pace.end(v)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	v.conn, v.r = conn, bufio.NewReader(conn)
	return nil
}

// browseTLS asks several times on one connection, which goes to sleep meanwhile.
func (v *visit) browseTLS() error {
	if err := v.handshake(); err != nil {
		return err
	}
	for range 1 + v.rng.IntN(5) {
		size := v.anySize()
		if err := v.sendSlowly(v.head(http.MethodGet, "/"+fileName(size)), 1+v.rng.IntN(2), 300*time.Millisecond); err != nil {
			return err
		}
		if err := v.file(size); err != nil {
			return err
		}
		v.pause(800 * time.Millisecond)
	}
	return nil
}

func (v *visit) oneShotTLS() error {
	if err := v.handshake(); err != nil {
		return err
	}
	return v.oneShot()
}

// greets reads what the server says first, if it does.
func (v *visit) greets() error {
	if v.service.name != "mail" {
		return nil
	}
	if err := v.awaitByte(); err != nil {
		return err
	}
	line, err := v.r.ReadString('\n')
	if err == nil && line != greeting {
		return wrong{fmt.Sprintf("%q, not the greeting", line)}
	}
	return err
}

// oneLine asks for one thing and leaves.
func (v *visit) oneLine() error {
	if err := v.greets(); err != nil {
		return err
	}
	return v.get(v.anySize())
}

func (v *visit) get(size int) error {
	if err := v.sendSlowly(fmt.Appendf(nil, "get %d\n", size), 1+v.rng.IntN(2), 20*time.Millisecond); err != nil {
		return err
	}
	if size == 0 {
		return nil
	}
	if err := v.awaitByte(); err != nil {
		return err
	}
	v.answered++
	return v.bytes(v.r, fileName(size), size, false)
}

// lines says this and that, with pauses in which the connection goes to sleep.
func (v *visit) lines() error {
	if err := v.greets(); err != nil {
		return err
	}
	for i := range 1 + v.rng.IntN(5) {
		var err error
		switch v.rng.IntN(3) {
		case 0:
			err = v.get(v.anySize())
		case 1:
			err = v.echoLines(fmt.Sprintf("%s-%d", v.name, i))
		case 2:
			err = v.wait(v.rng.IntN(700))
		}
		if err != nil {
			return err
		}
		v.pause(800 * time.Millisecond)
	}
	if err := v.send([]byte("quit\n")); err != nil {
		return err
	}
	return v.ends()
}

// echoLines has bytes come back, the last of them after a pause.
func (v *visit) echoLines(name string) error {
	size := 1 + v.rng.IntN(30_000)
	b := append(fmt.Appendf(nil, "echo %d\n", size), take(v.rig.seed, name, size)...)
	if err := v.sendSlowly(b, 1+v.rng.IntN(3), 400*time.Millisecond); err != nil {
		return err
	}
	if err := v.awaitByte(); err != nil {
		return err
	}
	v.answered++
	return v.bytes(v.r, name, size, false)
}

// wait has the server be silent, for longer than a connection that is not in service.
func (v *visit) wait(ms int) error {
	if err := v.send(fmt.Appendf(nil, "wait %d\n", ms)); err != nil {
		return err
	}
	if err := v.awaitByte(); err != nil {
		return err
	}
	v.answered++
	b := make([]byte, 3)
	if _, err := io.ReadFull(v.r, b); err != nil {
		return err
	}
	if string(b) != "ok\n" {
		return wrong{fmt.Sprintf("%q, not ok", b)}
	}
	return nil
}
