// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"narthex/test/attack"
	"narthex/test/nettest"
)

// queues are tries to fill queues: with those who wait, or with who has gone.
var queues = []hostile{
	{name: "ask and reset", inexact: true, begin: leavers(attack.ByRST, 0)},
	{name: "ask and close", inexact: true, begin: leavers(attack.ByFIN, 0)},
	{name: "wait and leave", inexact: true, begin: leavers(attack.AnyWay, 50*time.Millisecond)},
	{name: "wait behind others and leave", inexact: true, begin: func(r *round) {
		answer := r.block()
		leavers(attack.AnyWay, 50*time.Millisecond)(r)
		c := r.crowd(queueSize)
		c.From[0] = r.addr(r.attackers, bronze, 1)
		r.attack(attack.Leavers{Crowd: c, Request: request("x", "/8k.html"), Way: attack.AnyWay, After: 50 * time.Millisecond})
		r.atEnd(answer)
	}},
	{name: "queue full of the class that is blocked", begin: func(r *round) {
		answer := r.block()
		wait := r.askAll(bronze, 80, 2*queueSize)
		r.arrived("bronze", 1+2*queueSize)
		r.atEnd(func() {
			answer()
			served, rejected := wait()
			if served+rejected != 2*queueSize || rejected < queueSize {
				r.t.Errorf("of %d that asked %d were served and %d rejected", 2*queueSize, served, rejected)
			}
		})
	}},
	{name: "queue full of the lowest class", begin: fills(mob)},
	{name: "queue full of the highest class", crowded: true, begin: fills(gold)},
	{name: "more held than a backlog of 5", begin: backlog(5, 8005, 40)},
	{name: "more held than a backlog of 128", begin: backlog(128, 8128, 300)},
	{name: "more held than a backlog of 4096", begin: backlog(4096, 12096, 4300)},
}

// leavers are clients that ask and leave, in a way, after up to so long.
func leavers(way attack.Way, after time.Duration) func(r *round) {
	return func(r *round) {
		r.attack(attack.Leavers{Crowd: r.crowd(5 * concurrency), Request: closing("x", "/8k.html"), Way: way, After: after})
	}
}

// fills has clients of a kind occupy the service as far as they may, and then fill the queue.
func fills(w who) func(r *round) {
	return func(r *round) {
		class, places := map[who]string{gold: "gold", mob: "mob"}[w], map[who]int{gold: concurrency, mob: concurrency - 1}[w]
		var inside []*visitor
		for i := range places {
			v := r.visit(i%2, w, 80)
			nettest.Check(r.t, v.get("/wait?for="+r.name))
			inside = append(inside, v)
		}
		r.inService(class, places)
		wait := r.askAll(w, 80, 2*queueSize)
		r.arrived(class, uint64(places+2*queueSize))
		r.atEnd(func() {
			r.letGo(r.name)
			for _, v := range inside {
				_ = v.conn.SetDeadline(time.Now().Add(patience))
				nettest.Check(r.t, whole(v.answer()))
				v.conn.Close()
			}
			if served, rejected := wait(); served+rejected != 2*queueSize || rejected < queueSize {
				r.t.Errorf("of %d that asked %d were served and %d rejected", 2*queueSize, served, rejected)
			}
		})
	}
}

// arrived waits until so many of a class have come since the round began.
func (r *round) arrived(class string, n uint64) {
	r.t.Helper()
	was := r.before.class("web", class).Arrived
	eventually(r.t, fmt.Sprintf("%d of %s have come", n, class), func() bool { return r.read().class("web", class).Arrived >= was+n })
}

// backlog holds more than a listener's backlog, all of whom are served in the end.
func backlog(size int, port uint16, clients int) func(r *round) {
	return func(r *round) {
		r.serve(port, size)
		first := r.visit(0, mob, port)
		nettest.Check(r.t, first.get("/wait?for="+r.name))
		service := fmt.Sprintf("b%d", size)
		eventually(r.t, "the first is in service", func() bool { return r.read().class(service, "mob").InService == 1 })
		wait := r.askAll(mob, port, clients)
		eventually(r.t, fmt.Sprintf("%d wait", clients), func() bool { return r.read().class(service, "mob").Waiting == clients })
		r.letGo(r.name)
		_ = first.conn.SetDeadline(time.Now().Add(patience))
		nettest.Check(r.t, whole(first.answer()))
		first.conn.Close()
		if served, rejected := wait(); served != clients || rejected != 0 {
			r.t.Errorf("of %d that waited %d were served and %d rejected", clients, served, rejected)
		}
	}
}

// askAll has that many clients ask once, on both links. The function that it returns waits
// for their answers, which are the file or a rejection.
func (r *round) askAll(w who, port uint16, clients int) (wait func() (served, rejected int)) {
	r.t.Helper()
	var (
		all              sync.WaitGroup
		mu               sync.Mutex
		served, rejected int
		failed           error
	)
	for i := range clients {
		all.Go(func() {
			status, body, err := r.askOnce(w, port, i)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && status == http.StatusServiceUnavailable:
				rejected++
			default:
				if err := whole(status, body, err); err != nil {
					failed = errors.Join(failed, err)
				} else {
					served++
				}
			}
		})
	}
	return func() (int, int) {
		r.t.Helper()
		all.Wait()
		nettest.Check(r.t, failed)
		return served, rejected
	}
}

func (r *round) askOnce(w who, port uint16, i int) (status int, body []byte, err error) {
	v, err := r.dialIn(r.clients[i%2], r.addr(i%2, w, 1), r.to(i%2, port))
	if err != nil {
		return 0, nil, err
	}
	defer v.conn.Close()
	if _, err := v.conn.Write([]byte(closing("x", r.file(1000+i)))); err != nil {
		return 0, nil, err
	}
	return v.answer()
}
