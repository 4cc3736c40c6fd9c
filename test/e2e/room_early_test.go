// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"net"
	"net/http"
	"testing"

	"narthex/internal/testnet/nettest"
)

// halves is a server of which one answer stops in the middle, and another does not begin,
// until it is told to go on.
func halves(s *scene) (goOn, begin chan struct{}) {
	s.t.Helper()
	var l net.Listener
	nettest.Check(s.t, s.server.Do(func() (err error) {
		l, err = net.Listen("tcp", s.to.String())
		return err
	}))
	goOn, begin = make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/halves", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "hello")
		_ = http.NewResponseController(w).Flush()
		<-goOn
		_, _ = io.WriteString(w, "world")
	})
	mux.HandleFunc("/busy", func(http.ResponseWriter, *http.Request) { <-begin })
	mux.HandleFunc("/next", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") })
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(l) }()
	s.t.Cleanup(func() { _ = server.Close() })
	return goOn, begin
}

// Who asks while the answer before pauses is held like anybody; when that answer goes on,
// nothing of the waiting room falls into it.
func TestRoomAskedInAPause(t *testing.T) {
	t.Parallel()
	s := sharedScene(t, plain, false)
	goOn, begin := halves(s)
	r := s.enforce(roomPolicy{service: "queue: {max_wait: 3s}"})
	early, other := r.visit(bronze), r.visit(gold)
	early.get("/halves")
	r.await(0, 0) // its answer has begun
	other.get("/busy")
	r.await(1, 0)
	if _, err := early.r.Peek(1); err != nil {
		t.Fatal(err)
	}
	early.get("/next")
	r.await(1, 1)
	goOn <- struct{}{}
	if _, body := early.wants(http.StatusOK); string(body) != "helloworld" {
		t.Errorf("the answer is %q", body)
	}
	if n := r.class(bronze).GaveUp; n != 1 {
		t.Errorf("%d were left to come again, want 1", n)
	}
	begin <- struct{}{}
	other.wants(http.StatusOK)
	if _, body := early.wants(http.StatusOK); string(body) != "next" {
		t.Errorf("the next answer is %q", body)
	}
	early.conn.Close()
	other.conn.Close()
	r.await(0, 0)
}
