// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"slices"
	"syscall"
	"testing"

	"narthex/internal/lab/origin"
)

// What the server works on while nobody comes near the limit, or while there is none, is counted when a lower limit
// comes: nobody enters beside it. Pipelined requests wait for the answer before them.
func TestRoomLowerLimitComes(t *testing.T) {
	t.Parallel()
	lower := roomPolicy{service: "concurrency: 2, queue: {max_wait: 20s}"}
	wakes := map[string]func(r *room){
		"another limit":   func(r *room) { r.reload(lower.String()) },
		"an adopted room": func(r *room) { r.stop(syscall.SIGKILL); r.start(); r.reload(lower.String()) },
	}
	for _, limit := range []string{"40", "unlimited"} {
		for name, wake := range wakes {
			t.Run(limit+", "+name, func(t *testing.T) {
				s := sharedScene(t, plain, false)
				s.origin(origin.Config{})
				wakesUp(t, s.enforce(roomPolicy{service: "concurrency: " + limit + ", queue: {max_wait: 20s}"}), wake)
			})
		}
	}
}

// wakesUp has requests begin, resets the connection of one, and has a lower limit come.
func wakesUp(t *testing.T, r *room, wake func(r *room)) {
	const clients = 20
	var all []*visitor
	for range clients {
		v := r.visit(bronze)
		for range 2 {
			v.get("/kept")
			v.wants(http.StatusOK)
		}
		all = append(all, v)
	}
	r.await(0, 0)
	for _, v := range all {
		v.get("/wait?for=first")
	}
	r.await(clients, 0)
	all[0].reset()
	r.await(clients, 0)
	wake(r)
	late := r.visit(gold)
	late.get("/late")
	r.await(clients, 1)
	for _, v := range all[1:] {
		v.send(getRequest(v.host, "/second"))
	}
	r.await(clients, 1)
	r.letGo("first")
	late.wants(http.StatusOK)
	for _, v := range all[1:] {
		v.wants(http.StatusOK)
		v.wants(http.StatusOK)
	}
	asked := r.asked()
	for uri, want := range map[string]int{"/kept": 2 * clients, "/wait?for=first": clients, "/second": clients - 1, "/late": 1} {
		if got := len(asked) - len(slices.DeleteFunc(slices.Clone(asked), func(u string) bool { return u == uri })); got != want {
			t.Errorf("the server was asked %d times for %s, want %d", got, uri, want)
		}
	}
	if got := r.class(bronze); got.Arrived-got.GaveUp != 4*clients-1 {
		t.Errorf("%+v, want %d arrived and stayed", got, 4*clients-1)
	}
	r.calm()
}
