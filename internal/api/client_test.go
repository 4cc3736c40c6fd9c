// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

func TestDaemonThatDoesNotAnswer(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket) // the kernel takes connections for it
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = NewClient(socket).Stop(t.Context(), StopRequest{})
	want := HungError{PID: os.Getpid()}
	var hung *HungError
	if !errors.As(err, &hung) || *hung != want {
		t.Errorf("error %v, want %v", err, &want)
	}
}

// What is asked of a daemon that is busy is waited for, and that it is busy is said.
func TestBusyDaemon(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan int, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PathAlive, func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET "+PathStatus, func(w http.ResponseWriter, _ *http.Request) {
		told <- <-told
		_, _ = io.WriteString(w, `{"instance": "busy"}`)
	})
	server := &http.Server{Handler: mux}
	go server.Serve(listener)
	defer server.Close()
	c := NewClient(socket)
	c.Busy = func(pid int) { told <- pid }
	status, err := c.Status(t.Context())
	if pid := <-told; err != nil || status.Instance != "busy" || pid != os.Getpid() {
		t.Errorf("status %+v, %v; process %d is busy", status, err, pid)
	}
}
