// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"strings"
	"syscall"
	"testing"

	"narthex/internal/lab/origin"
)

// knownRoom has somebody at the first address answered, and then one request in service that the origin answers when
// told to. What is known of addresses is kept with the place, so that each has its own.
func knownRoom(t *testing.T, p roomPolicy, path string, status int) (r *room, first *visitor) {
	t.Helper()
	s := newScene(t, lo, false)
	s.origin(origin.Config{})
	r = s.enforce(p)
	v := r.visitAs(bronze, 1)
	v.get(path)
	v.wants(status)
	r.await(0, 0)
	first = r.visitAs(bronze, 9)
	first.get("/wait?for=first")
	r.await(1, 0)
	return r, first
}

// serves lets all go who wait, and compares in which order.
func (r *room) serves(all []*visitor, want ...string) {
	r.t.Helper()
	r.letGo("first")
	for _, v := range all {
		v.wants(http.StatusOK)
	}
	r.wasAsked(want...)
}

// Who was answered goes before who was not, and no other address of the network with them; not after an error, and not
// where the class does not say so.
func TestRoomKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bronze, path string
		status       int
		ahead        uint64
	}{
		"answered":              {"known: 10m", "/before", http.StatusOK, 2},
		"in order of arrival":   {"known: 10m, fair: none", "/before", http.StatusOK, 2},
		"by value":              {"known: 10m, fair: {cookie: session}", "/before", http.StatusOK, 2},
		"refused by the server": {"known: 10m", "/wait", http.StatusBadRequest, 0},
		"not asked for":         {"", "/before", http.StatusOK, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r, first := knownRoom(t, roomPolicy{bronze: c.bronze}, c.path, c.status)
			visitors := []*visitor{first}
			for i, path := range []string{"/b1", "/b2", "/a1", "/a2"} {
				visitors = append(visitors, r.queueFrom(byte(2-i/2), path, i+1))
			}
			want := []string{c.path, "/wait?for=first", "/b1", "/b2", "/a1", "/a2"}
			if c.ahead > 0 {
				want = []string{c.path, "/wait?for=first", "/a1", "/a2", "/b1", "/b2"}
			}
			r.serves(visitors, want...)
			if got := r.class(bronze).Ahead; got != c.ahead {
				t.Errorf("%d went ahead, want %d", got, c.ahead)
			}
			r.calm()
		})
	}
}

// What is known outlives the daemon, and a reload.
func TestRoomKnownIsKept(t *testing.T) {
	t.Parallel()
	p := roomPolicy{bronze: "known: 10m"}
	r, first := knownRoom(t, p, "/before", http.StatusOK)
	r.stop(syscall.SIGKILL)
	r.instance.start()
	policy := strings.Replace(p.String(), "listen:", "interfaces: [lo], listen:", 1)
	r.reload(strings.Replace(policy, "known: 10m", "known: 20m", 1))
	b := r.queueFrom(2, "/b", 1)
	a := r.queueFrom(1, "/a", 2)
	r.serves([]*visitor{first, a, b}, "/before", "/wait?for=first", "/a", "/b")
	r.calm()
}

// A full queue makes room for who is known at the cost of who is not, and never the other way.
func TestRoomKnownQueueFull(t *testing.T) {
	t.Parallel()
	r, first := knownRoom(t, roomPolicy{service: "queue: {size: 2}", bronze: "known: 10m, fair: source"}, "/before", http.StatusOK)
	b := r.queueFrom(2, "/b", 1)
	c := r.queueFrom(3, "/c", 2)
	a1 := r.visitAs(bronze, 1)
	a1.get("/a1")
	b.isRejected()
	r.await(1, 2)
	a2 := r.visitAs(bronze, 1)
	a2.get("/a2")
	c.isRejected()
	r.await(1, 2)
	for _, n := range []byte{1, 4} {
		v := r.visitAs(bronze, n)
		v.get("/too-much")
		v.isRejected()
	}
	r.serves([]*visitor{first, a1, a2}, "/before", "/wait?for=first", "/a1", "/a2")
	if got := r.class(bronze).Rejected; got["displaced"] != 2 || got["queue_full"] != 2 {
		t.Errorf("rejected: %v", got)
	}
	r.calm()
}

// An answer lets 50 requests go ahead, however many they are answered themselves.
func TestRoomKnownIsSpent(t *testing.T) {
	t.Parallel()
	r, first := knownRoom(t, roomPolicy{bronze: "known: 10m", service: "queue: {size: 100}"}, "/before", http.StatusOK)
	visitors := []*visitor{first}
	for i := range 52 {
		visitors = append(visitors, r.queueFrom(1, "/a", i+1))
	}
	r.letGo("first")
	for _, v := range visitors {
		v.wants(http.StatusOK)
	}
	if got := r.class(bronze).Ahead; got != 50 {
		t.Errorf("%d went ahead, want 50", got)
	}
	r.calm()
}
