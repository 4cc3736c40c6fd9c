// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestSamplesGoOn beyond the time that a server gives a client to send its request.
func TestSamplesGoOn(t *testing.T) {
	b := newBench(t)
	server := httptest.NewUnstartedServer(http.HandlerFunc(b.serveSamples))
	server.Config.ReadTimeout = 20 * time.Millisecond
	server.Start()
	defer server.Close()
	defer b.end() // before that, which waits for the answer
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for began := time.Now(); time.Since(began) < 10*server.Config.ReadTimeout; {
		time.Sleep(server.Config.ReadTimeout / 4)
		b.mu.Lock()
		b.publish(observation{service: "web"})
		b.mu.Unlock()
		if !lines.Scan() {
			t.Fatalf("it ends after %v: %v", time.Since(began), lines.Err())
		}
	}
}
