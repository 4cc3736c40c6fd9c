// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"testing"

	"narthex/internal/lab/origin"
)

// fairRoom has one request in service that the origin answers when told to, and clients of as many addresses as
// it takes.
func fairRoom(t *testing.T, p roomPolicy) (r *room, first *visitor) {
	t.Helper()
	s := sharedScene(t, lo, false)
	s.origin(origin.Config{})
	r = s.enforce(p)
	first = r.visit(bronze)
	first.get("/wait?for=first")
	r.await(1, 0)
	return r, first
}

// queueFrom has somebody at the n-th address ask, and waits until so many wait.
func (r *room) queueFrom(n byte, path string, waiting int) *visitor {
	r.t.Helper()
	v := r.visitAs(bronze, n)
	v.get(path)
	r.await(1, waiting)
	return v
}

// Who asks for one thing does not wait for another source's many.
func TestRoomFair(t *testing.T) {
	t.Parallel()
	for fair, want := range map[string][]string{
		"source":           {"/a1", "/b1", "/a2", "/a3", "/a4"},
		"none":             {"/a1", "/a2", "/a3", "/a4", "/b1"},
		"{v4: 24, v6: 48}": {"/a1", "/a2", "/a3", "/a4", "/b1"}, // both are in one
	} {
		t.Run(fair, func(t *testing.T) {
			r, first := fairRoom(t, roomPolicy{bronze: "fair: " + fair})
			visitors := []*visitor{first}
			for i := range 4 {
				visitors = append(visitors, r.queueFrom(1, fmt.Sprintf("/a%d", i+1), i+1))
			}
			visitors = append(visitors, r.queueFrom(2, "/b1", 5))
			r.letGo("first")
			for _, v := range visitors {
				v.wants(http.StatusOK)
			}
			r.wasAsked(append([]string{"/wait?for=first"}, want...)...)
			r.calm()
		})
	}
}

// A full queue makes room for who has less in it, at the cost of who has most.
func TestRoomFairQueueFull(t *testing.T) {
	t.Parallel()
	r, first := fairRoom(t, roomPolicy{service: "queue: {size: 3}", bronze: "fair: source"})
	b1 := r.queueFrom(2, "/b1", 1)
	a1 := r.queueFrom(1, "/a1", 2)
	a2 := r.queueFrom(1, "/a2", 3)
	a3 := r.visitAs(bronze, 1)
	a3.get("/a3")
	a3.isRejected()
	c1 := r.visitAs(bronze, 3)
	c1.get("/c1")
	a1.isRejected()
	r.await(1, 3)
	d1 := r.visitAs(bronze, 4)
	d1.get("/d1")
	d1.isRejected() // nobody has more than one
	r.letGo("first")
	for _, v := range []*visitor{first, b1, a2, c1} {
		v.wants(http.StatusOK)
	}
	r.wasAsked("/wait?for=first", "/b1", "/a2", "/c1")
	if got := r.class(bronze).Rejected; got["displaced"] != 1 || got["queue_full"] != 2 {
		t.Errorf("rejected: %v", got)
	}
	r.calm()
}

// as has somebody at one address ask for a path with a value that tells them from others there.
func (r *room) as(by, value, path string) *visitor {
	r.t.Helper()
	v := r.visitAs(bronze, 1)
	host, more := v.host, ""
	switch by {
	case "host":
		host = value + ".example"
	case "{cookie: session}":
		more = "Cookie: a=b; session=" + value + "\r\n"
	case "{header: x-key}":
		more = "X-Key: " + value + "\r\n"
	}
	v.send("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n")
	return v
}

// What divides the share of a source takes turns there; what has no value, too.
func TestRoomFairByValue(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"{cookie: session}", "{header: x-key}", "host"} {
		t.Run(by, func(t *testing.T) {
			r, first := fairRoom(t, roomPolicy{bronze: "fair: " + by})
			visitors := []*visitor{first}
			for i := range 3 {
				visitors = append(visitors, r.as(by, "a", fmt.Sprintf("/a%d", i+1)))
				r.await(1, i+1)
			}
			visitors = append(visitors, r.as(by, "b", "/b1"))
			r.await(1, 4)
			visitors = append(visitors, r.as("", "", "/none"))
			r.await(1, 5)
			r.letGo("first")
			for _, v := range visitors {
				v.wants(http.StatusOK)
			}
			r.wasAsked("/wait?for=first", "/a1", "/b1", "/none", "/a2", "/a3")
			r.calm()
		})
	}
}

// A full queue makes room for a value that has less in it than another of its source; not for one that is made up where
// all others have one each.
func TestRoomFairByValueQueueFull(t *testing.T) {
	t.Parallel()
	const by = "{cookie: session}"
	r, first := fairRoom(t, roomPolicy{service: "queue: {size: 3}", bronze: "fair: " + by})
	a1 := r.as(by, "a", "/a1")
	r.await(1, 1)
	a2 := r.as(by, "a", "/a2")
	r.await(1, 2)
	b1 := r.as(by, "b", "/b1")
	r.await(1, 3)
	c1 := r.as(by, "c", "/c1")
	a1.isRejected()
	r.await(1, 3)
	d1 := r.as(by, "d", "/d1")
	d1.isRejected()
	r.letGo("first")
	for _, v := range []*visitor{first, a2, b1, c1} {
		v.wants(http.StatusOK)
	}
	r.calm()
}

// While overload lasts who has waited for the target is told so; who comes when it is over may wait again.
func TestRoomTarget(t *testing.T) {
	t.Parallel()
	r, first := fairRoom(t, roomPolicy{service: "queue: {target: 200ms}"})
	low := r.queueFrom(1, "/low", 1)
	high := r.queue(gold, "/high", 2)
	low.isRejected()
	high.isRejected()
	r.letGo("first")
	first.wants(http.StatusOK)
	for _, w := range []who{gold, bronze} {
		if got := r.class(w).Rejected; got["target"] != 1 || len(got) != 1 {
			t.Errorf("class %v: rejected %v", w, got)
		}
	}
	r.wasAsked("/wait?for=first")
	r.calm()
}
