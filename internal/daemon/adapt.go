// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"sync"
	"time"

	"narthex/internal/host"
	"narthex/internal/netif"
	"narthex/internal/policy"
)

// procRoot is where the kernel tells of processes and of itself.
const procRoot = "/proc"

// groupBuffer holds what is read of a cgroup at once.
const groupBuffer = 4 << 10

// newAgent returns the agent of an engine, which has nothing to steer yet.
func newAgent(e *engine) *agent {
	a := &agent{
		log: e.log, read: e.dp.ReadRoom, steer: e.dp.Steer, path: e.dp,
		machine: func() *host.Reading { return &host.Reading{} },
		queue:   func(acceptQueue) (int, error) { return 0, nil },
		unread:  func(uint16, bool) (netif.Unread, error) { return netif.Unread{}, nil },
		usage:   func(string) time.Duration { return host.Unknown },
		clock:   monotonic, wall: time.Now, spent: threadTime,
		wake: make(chan struct{}, 1), moved: make(chan struct{}, 1), ended: make(chan struct{}),
		buffer: make([]byte, groupBuffer), paced: map[policy.AutoRuleName]pacedAt{}, watchers: map[chan<- observation]bool{},
	}
	a.end = sync.OnceFunc(func() { close(a.ended) })
	return a
}

// adapt lets limits set themselves until ctx is done.
func (e *engine) adapt(ctx context.Context, running *sync.WaitGroup) {
	machine := host.Open(procRoot)
	e.agent.machine = machine.Read
	queues, err := e.net.Diag()
	if err == nil {
		e.agent.queue = func(q acceptQueue) (int, error) { return queues.Backlog(q.at, q.device, q.pick) }
		e.agent.unread = queues.Unread
	} else {
		e.log.Warn("accept queues and unread requests are not known: limits set themselves without them", "error", err)
	}
	running.Go(func() {
		e.agent.run(ctx, e.beat)
		machine.Close()
		if queues != nil {
			queues.Close()
		}
	})
	running.Go(func() { e.locate(ctx) })
}

// beat lets the agent do what is due while nothing else changes the data path.
func (e *engine) beat() time.Duration {
	e.acting.Lock()
	defer e.acting.Unlock()
	return e.agent.beat()
}

// locate finds out where the servers of services are until ctx is done.
func (e *engine) locate(ctx context.Context) {
	sockets, err := e.net.Diag()
	if err != nil {
		e.log.Warn("servers are not known: limits set themselves without what their CPUs do", "error", err)
		return
	}
	defer sockets.Close()
	finder := host.NewFinder(procRoot)
	e.agent.mu.Lock()
	e.agent.usage = finder.Usage
	e.agent.mu.Unlock()
	e.agent.locate(ctx, &locator{listening: sockets.Listening, finder: finder})
}
