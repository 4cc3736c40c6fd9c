// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"narthex/internal/lab/origin"
	"narthex/test/nettest"
)

// The example of an agent lowers a rate by the API alone, while requests wait, and leaves nothing behind.
func TestAgentOfOnesOwn(t *testing.T) {
	s := newScene(t, plain, false)
	s.origin(origin.Config{Workers: 8, Sleep: 20 * time.Millisecond, NoKeepAlive: true, NoMPTCP: true})
	r := s.enforce(roomPolicy{service: "concurrency: 8"})
	r.loose = true
	r.reload(pacedPolicy("concurrency: 8", ", rate: 5000/s", "requests: [{name: shed, path: /shed, action: reject, when: overload}]\n"))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	run := r.floodUntil(ctx, bronze, floodClients)
	var said bytes.Buffer
	agent := exec.CommandContext(ctx, "python3", "../../examples/agent.py", "--socket", r.instance.defaultSocket(), "--service", "web", "connections.bronze.rate")
	agent.Stdout, agent.Stderr = &said, &said
	nettest.Check(t, agent.Start())
	eventually(t, "a rate by the agent", func() bool {
		s := r.status()
		return len(s.Overrides) == 1 && s.Overrides[0].Path == "connections.bronze.rate" && s.Rules[1].Dropped > 0
	})
	nettest.Check(t, agent.Process.Signal(syscall.SIGTERM))
	if err := agent.Wait(); err != nil {
		t.Errorf("the agent: %v\n%s", err, &said)
	}
	if s := r.status(); len(s.Overrides) > 0 {
		t.Errorf("the agent leaves %v", s.Overrides)
	}
	end()
	<-run.Done()
}
