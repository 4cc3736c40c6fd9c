// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"narthex/internal/api"
)

// atOncePolicy bounds what there is at once, of a source and of all.
const atOncePolicy = `
version: 1
services: [{name: web, listen: "*:80", concurrency: %s, queue: {max_wait: 2s, max_service: %s}, service_ends: last_byte}]
requests:
  - {name: member, header: {x-member: "*"}, limits: [{at_once: 1, per: {cookie: session}}]}
  - {name: heavy, path: "/*", limits: [{at_once: 2, per: source}, {at_once: 3}]}
`

// crowd is an origin behind limits of what there is at once.
type crowd struct {
	*ruled
	*scene
	policy string
}

func newCrowd(t *testing.T, concurrency, maxService string) *crowd {
	t.Helper()
	r := newRuled(t, map[string]uint16{"web": 80}, "web")
	c := &crowd{r, r.at(t, "web", false), fmt.Sprintf(atOncePolicy, concurrency, maxService)}
	r.enforce(c.policy)
	return c
}

// asks sends a request for a path from a new connection.
func (c *crowd) asks(w who, path string) *visitor {
	c.scene.t.Helper()
	v := c.visit(w)
	v.get(path)
	return v
}

// refuses checks that a request is turned away at once.
func (c *crowd) refuses(w who, path string) {
	c.scene.t.Helper()
	c.asks(w, path).wants(http.StatusTooManyRequests)
}

// taken is how many places explain says are taken of each limit, of a source.
func (c *crowd) taken(w who, args ...string) (list []int) {
	c.scene.t.Helper()
	args = append([]string{"explain", "--json", "--from", c.addr(w).String(), "--url", "http://" + c.to.String() + "/x"}, args...)
	var e api.ExplainResult
	if err := json.Unmarshal([]byte(must(c.scene.t, c.command(args...)...)), &e); err != nil {
		c.scene.t.Fatal(err)
	}
	for _, d := range e.Decisions {
		if d.Request == nil {
			continue
		}
		for _, l := range d.Request.Limits {
			list = append(list, int(l.AtOnce)-int(l.Bucket.Tokens))
		}
	}
	return list
}

// comesTo waits until so many places are taken of a source's limit, and of that of all.
func (c *crowd) comesTo(w who, own, all int) {
	c.scene.t.Helper()
	var got []int
	if !within(patience, func() bool {
		got = c.taken(w)
		return len(got) == 2 && got[0] == own && got[1] == all
	}) {
		c.scene.t.Errorf("%s: %v places are taken, want %d of the source and %d in all", w, got, own, all)
	}
}

// A limit of what there is at once counts requests that wait and that are in service, and gives each place back once.
func TestRulesAtOnce(t *testing.T) {
	t.Parallel()
	t.Run("in service", func(t *testing.T) {
		c := newCrowd(t, "unlimited", "60s")
		a, b := c.asks(gold, "/wait?for=a"), c.asks(gold, "/wait?for=b")
		c.comesTo(gold, 2, 2)
		c.refuses(gold, "/")
		other := c.asks(bronze, "/wait?for=a")
		c.comesTo(bronze, 1, 3)
		c.refuses(bronze, "/") // of the rule's
		c.comesTo(bronze, 1, 3)
		c.letGo("a")
		a.wants(http.StatusOK)
		other.wants(http.StatusOK)
		c.comesTo(gold, 1, 1)
		for _, from := range []string{"", c.addr(gold).String()} {
			args := []string{"table", "list", "buckets"}
			if from != "" {
				args = append(args, from)
			}
			if table := must(t, c.command(args...)...); !strings.Contains(table, "at once") || !strings.Contains(table, " left") {
				t.Errorf("the table of %q says:\n%s", from, table)
			}
		}
		a.get("/wait?for=c") // the next on a connection that is kept
		c.comesTo(gold, 2, 2)
		c.refuses(gold, "/")
		c.letGo("b")
		c.letGo("c")
		a.wants(http.StatusOK)
		b.wants(http.StatusOK)
		c.comesTo(gold, 0, 0)
		status := must(t, c.command("status")...)
		if !strings.Contains(status, "2 at once") {
			t.Errorf("status says:\n%s", status)
		}
	})
	t.Run("waiting", func(t *testing.T) {
		c := newCrowd(t, "1", "60s")
		first := c.asks(bronze, "/wait?for=a")
		c.awaits("web", 1, 0)
		late := c.asks(gold, "/late")
		c.awaits("web", 1, 1)
		c.comesTo(gold, 1, 2)
		late.wants(http.StatusServiceUnavailable) // after max_wait
		c.comesTo(gold, 0, 1)
		gone := c.asks(gold, "/gone")
		c.comesTo(gold, 1, 2)
		gone.reset()
		c.comesTo(gold, 0, 1)
		c.letGo("a")
		first.wants(http.StatusOK)
		c.comesTo(bronze, 0, 0)
	})
	t.Run("resets and bodies that do not come", func(t *testing.T) {
		c := newCrowd(t, "unlimited", "60s")
		v := c.asks(gold, "/wait?for=a")
		c.comesTo(gold, 1, 1)
		v.reset() // the server works on it still
		w := c.visit(gold)
		w.send(postHead(w.host, "/echo", 10) + "12345")
		c.comesTo(gold, 2, 2)
		time.Sleep(time.Second) // it pauses, and has its place
		c.comesTo(gold, 2, 2)
		c.refuses(gold, "/")
		c.letGo("a")
		c.comesTo(gold, 1, 1)
		w.send("67890")
		w.wants(http.StatusOK)
		c.comesTo(gold, 0, 0)
	})
	t.Run("lost", func(t *testing.T) {
		c := newCrowd(t, "unlimited", "2s")
		v := c.asks(gold, "/wait?for=a")
		c.comesTo(gold, 1, 1)
		c.comesTo(gold, 0, 0) // it is taken for lost
		c.letGo("a")
		v.wants(http.StatusOK)
		c.comesTo(gold, 0, 0)
	})
	t.Run("values", func(t *testing.T) {
		c := newCrowd(t, "unlimited", "60s")
		ask := func(w who, session, path string) *visitor {
			v := c.visit(w)
			v.send(to(path, "X-Member: 1", "Cookie: session="+session))
			return v
		}
		one := ask(gold, "one", "/wait?for=a")
		c.awaits("web", 1, 0)
		ask(bronze, "one", "/").wants(http.StatusTooManyRequests)
		ask(bronze, "two", "/").wants(http.StatusOK)
		if got := c.taken(bronze, "-H", "X-Member: 1", "-H", "Cookie: session=one"); len(got) != 1 || got[0] != 1 {
			t.Errorf("%v places are taken of the value, want 1", got)
		}
		c.letGo("a")
		one.wants(http.StatusOK)
		ask(bronze, "one", "/").wants(http.StatusOK)
	})
}

// Counts outlive the daemon, a reload and a change of the bound, and come back to nothing.
func TestRulesAtOnceOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "8", "60s")
	a, b := c.asks(gold, "/wait?for=a"), c.asks(gold, "/wait?for=b")
	c.comesTo(gold, 2, 2)
	c.stop(syscall.SIGKILL)
	c.refuses(gold, "/")
	c.letGo("a")
	a.wants(http.StatusOK)
	a.get("/wait?for=c")
	eventually(t, "the server has it", func() bool { return strings.Contains(strings.Join(c.asked(), " "), "for=c") })
	c.start()
	c.comesTo(gold, 2, 2)
	c.refuses(gold, "/")
	must(t, c.command("set", "requests.heavy.limits.1.at_once", "3")...)
	d := c.asks(gold, "/wait?for=d")
	c.comesTo(gold, 3, 3)
	c.reload(c.policy + "\n# again\n") // which takes the change back
	c.comesTo(gold, 3, 3)
	for name, v := range map[string]*visitor{"b": b, "c": a, "d": d} {
		c.letGo(name)
		v.wants(http.StatusOK)
	}
	c.comesTo(gold, 0, 0)
}

// Clients that do what they can to lose or to gain places never have the server work for more of them at once, and
// leave nothing behind.
func TestRulesAtOnceOfHostileClients(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, "2", "60s")
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(i), 1))
			for range 40 {
				v, err := c.dialFrom([]who{gold, bronze, free}[i%3], 1, 0, 0)
				if err != nil {
					continue
				}
				for range 1 + dice.IntN(3) {
					path := fmt.Sprintf("/wait?ms=%d", dice.IntN(20))
					text := getRequest(v.host, path)
					switch dice.IntN(4) {
					case 0:
						text = postHead(v.host, path, 9) + "1234"
					case 1:
						text += text // pipelined
					case 2:
						text = text[:dice.IntN(len(text))]
					}
					_, _ = v.conn.Write([]byte(text))
					time.Sleep(time.Duration(dice.IntN(30)) * time.Millisecond)
				}
				if dice.IntN(2) == 0 {
					if conn, err := tcpConn(v.conn); err == nil {
						_ = conn.SetLinger(0)
					}
				}
				v.conn.Close()
			}
		})
	}
	all.Wait()
	for _, w := range []who{gold, bronze, free} {
		c.comesTo(w, 0, 0)
	}
	body, err := get(c.server, c.tell, "/most", netip.Addr{}, patience)
	var most int
	if err != nil || json.Unmarshal(body, &most) != nil || most > 3 {
		t.Errorf("the server worked on %q at once, of 3 that it may (%v)", body, err)
	}
	c.asks(gold, "/").wants(http.StatusOK)
}
