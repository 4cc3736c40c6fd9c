// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

// kind is a server of a kind that people have, with the limits that may be right for it.
type kind struct {
	server
	kept    bool // clients use connections again
	open    bool // clients ask at a rate, so many a second, whatever the answers
	gold    float64
	target  time.Duration // of auto: one service time, at least 1 ms
	total   float64       // of the best total, what auto must bring
	limits  []int
	clients []int
	learns  time.Duration // what it takes until there is a limit; 2 s if 0
}

// pythonApp is what gunicorn serves: what the answer does is put in.
const pythonApp = `
import random, time, threading
database = threading.Semaphore(5)
def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
def query(seconds):
    with database:
        time.sleep(seconds)
def app(environ, start):
    %s
    start('200 OK', [('Content-Length', '8')])
    return [b'narthex\n']
`

const nodeHead = `
const compute = (ms) => { const end = process.hrtime.bigint() + BigInt(Math.round(ms * 1e6)); while (process.hrtime.bigint() < end); };
let n = 0, stopping; const rubbish = [];
let free = 5; const queue = [];
const query = async (ms) => {
  if (free > 0) free--; else await new Promise((go) => queue.push(go));
  await new Promise((done) => setTimeout(done, ms));
  if (queue.length > 0) queue.shift()(); else free++;
};
`

const nodeAnswer = `%s; response.end('narthex\n')`

func (st *stage) gunicorn(workers, threads int, answer string) (*lab.Server, error) {
	return st.gunicornAt(bench.Web(st.rig), workers, threads, answer)
}

func (st *stage) gunicornAt(at netip.AddrPort, workers, threads int, answer string) (*lab.Server, error) {
	return st.rig.Server.StartGunicorn(lab.GunicornConfig{
		Listen: []netip.AddrPort{at}, Workers: workers, Threads: threads, App: fmt.Sprintf(pythonApp, answer), Backlog: backlog, CPUs: st.ServerCPUs,
	})
}

func (st *stage) node(answer string, cpus []int) (*lab.Server, error) {
	return st.rig.Server.StartNode(lab.NodeConfig{Listen: bench.Web(st.rig), Head: nodeHead, Answer: fmt.Sprintf(nodeAnswer, answer), Backlog: backlog, CPUs: cpus})
}

// tuning are the servers by which the controller was tuned, besides simulated ones; heldOut had no part
// in that.
var tuning = []kind{
	{server: server{name: "pool", what: "gunicorn, 8 processes, 2 ms of work and 20 ms of waiting", start: func(st *stage) (*lab.Server, error) {
		return st.gunicorn(8, 0, "compute(0.002); time.sleep(0.02)")
	}}, gold: 10, target: 22 * time.Millisecond, total: 0.95, limits: []int{7, 8, 10}, clients: []int{16, 64, 200}},
	{server: server{name: "thread", what: "Node, 1 ms of work", start: func(st *stage) (*lab.Server, error) {
		return st.node("compute(1)", st.ServerCPUs)
	}}, gold: 10, target: time.Millisecond, total: 0.95, limits: []int{1, 2, 3}, clients: []int{16, 64, 200}},
	{server: server{name: "kept", what: "nginx, 8 KB, kept connections", path: lab.NginxFile, start: func(st *stage) (*lab.Server, error) {
		return st.Nginx(st.rig)
	}}, kept: true, gold: 50, target: time.Millisecond, total: 0.97, limits: []int{8, 64}, clients: []int{32, 100, 1000}},
	{server: server{name: "puma", what: "Puma, 2 processes of 5 threads, 2 ms of work and 10 ms of waiting; threads stay with a connection", start: func(st *stage) (*lab.Server, error) {
		return st.rig.Server.StartPuma(lab.PumaConfig{Listen: bench.Web(st.rig), Workers: 2, Threads: 5, Answer: rubyAnswer, Backlog: backlog, CPUs: st.ServerCPUs})
	}}, kept: true, gold: 10, target: 12 * time.Millisecond, total: 0.95, limits: []int{6, 8, 10}, clients: []int{16, 64, 200}},
	{server: server{name: "stay", what: "Apache, 12 processes that stay with a connection, a script that waits 10 ms", path: lab.CGIPath, start: func(st *stage) (*lab.Server, error) {
		return st.apache(12, waitingScript)
	}}, kept: true, gold: 10, target: 14 * time.Millisecond, total: 0.95, limits: []int{6, 12}, clients: []int{16, 64, 200}},
}

var heldOut = []kind{
	{server: server{name: "database", what: "gunicorn, 32 threads, 2 ms of work, 5 connections to a database of 20 ms", start: func(st *stage) (*lab.Server, error) {
		return st.gunicorn(1, 32, "compute(0.002); query(0.02)")
	}}, kept: true, gold: 10, target: 22 * time.Millisecond, total: 0.95, limits: []int{5, 6, 8}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "pauses", what: "Node, 1 ms of work and much rubbish, connections kept", start: func(st *stage) (*lab.Server, error) {
		return st.node("compute(0.8); for (let i = 0; i < 2000; i++) rubbish[(n++) % 200000] = {n, text: 'x' + n}", st.ServerCPUs)
	}}, kept: true, gold: 10, target: time.Millisecond, total: 0.95, limits: []int{1, 2, 3}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "bimodal", what: "Node, 1 of 100 takes 50 ms, others 0.5 ms", start: func(st *stage) (*lab.Server, error) {
		return st.node("compute(++n % 100 ? 0.5 : 50)", st.ServerCPUs)
	}}, gold: 10, target: time.Millisecond, total: 0.95, limits: []int{1, 2, 3}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "two-cores", what: "Node, 1 ms of work, on two cores", start: func(st *stage) (*lab.Server, error) {
		return st.node("compute(1)", append(append([]int{}, st.ServerCPUs...), st.ClientCPUs...))
	}}, kept: true, gold: 10, target: time.Millisecond, total: 0.95, limits: []int{1, 2, 3}, clients: []int{16, 64}},
	{server: server{name: "php", what: "nginx, and behind it 8 processes of PHP-FPM, 2 ms of work and 20 ms of waiting", start: (*stage).php},
		gold: 10, target: 22 * time.Millisecond, total: 0.95, limits: []int{7, 8, 10}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "collector", what: "Go, 1 ms of work and much rubbish", start: func(st *stage) (*lab.Server, error) {
		return st.origin(origin.Config{Work: time.Millisecond, Rubbish: 2000})
	}}, gold: 10, target: time.Millisecond, total: 0.95, limits: []int{1, 2, 4}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "open", what: "Node, 1 ms of work, asked at a rate (in place of clients)", start: func(st *stage) (*lab.Server, error) {
		return st.node("compute(1)", st.ServerCPUs)
	}}, open: true, gold: 10, target: time.Millisecond, total: 0.95, limits: []int{1, 2, 3}, clients: []int{400, 1000, 1700}},
	{server: server{name: "loop", what: "Node, 1 ms of work, 5 connections to a database of 20 ms", start: func(st *stage) (*lab.Server, error) {
		return st.node("compute(1); await query(20)", st.ServerCPUs)
	}}, kept: true, gold: 10, target: 21 * time.Millisecond, total: 0.95, limits: []int{5, 6, 8}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "threads", what: "gunicorn, 4 processes of 4 threads, 1 ms of work and 50 ms of waiting", start: func(st *stage) (*lab.Server, error) {
		return st.gunicorn(4, 4, "compute(0.001); time.sleep(0.05)")
	}}, gold: 10, target: 51 * time.Millisecond, total: 0.95, limits: []int{14, 16, 18}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "script", what: "Apache, 32 processes, a script of 5 ms in Perl", path: lab.CGIPath, start: func(st *stage) (*lab.Server, error) {
		return st.apache(32, perlScript)
	}}, gold: 10, target: 10 * time.Millisecond, total: 0.95, limits: []int{1, 2, 3}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "stops", what: "Node, 1 ms of work, and 50 ms of each second nothing", start: func(st *stage) (*lab.Server, error) {
		return st.node("stopping ??= setInterval(() => compute(50), 1000); compute(1)", st.ServerCPUs)
	}}, kept: true, gold: 10, target: time.Millisecond, total: 0.95, limits: []int{1, 2, 3}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "mixed", what: "gunicorn, 8 processes, 2 ms of waiting, 1 of 100 takes 200 ms", start: func(st *stage) (*lab.Server, error) {
		return st.gunicorn(8, 0, "time.sleep(0.002 if random.random() > 0.01 else 0.2)")
	}}, gold: 10, target: 4 * time.Millisecond, total: 0.95, limits: []int{4, 8, 10}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "front", what: "nginx, and behind it gunicorn with 8 processes, 2 ms of work and 20 ms of waiting", start: (*stage).front},
		gold: 10, target: 22 * time.Millisecond, total: 0.95, limits: []int{7, 8, 10}, clients: []int{16, 64, 200, 1000}},
	{server: server{name: "model", what: "Node, which writes as a language model does, 8 answers of 0.6 s at once", ends: "last_byte", start: func(st *stage) (*lab.Server, error) {
		return st.rig.Server.StartNode(lab.NodeConfig{Listen: bench.Web(st.rig), Head: modelHead, Answer: modelAnswer, Backlog: backlog, CPUs: st.ServerCPUs})
	}}, kept: true, gold: 2, target: 600 * time.Millisecond, total: 0.95, limits: []int{6, 8, 10}, clients: []int{16, 64}, learns: 30 * time.Second},
	{server: server{name: "new", what: "nginx, 8 KB, new connections", path: lab.NginxFile, start: func(st *stage) (*lab.Server, error) {
		return st.Nginx(st.rig)
	}}, gold: 50, target: time.Millisecond, total: 0.97, limits: []int{8, 64}, clients: []int{32, 100, 1000}},
}

// rubyAnswer computes and waits.
const rubyAnswer = `time = -> { Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) }; till = time.() + 0.002; nil while time.() < till; sleep 0.01`

// A language model takes a step for all answers that it has, 20 ms for up to 8 of them and in proportion for more.
const (
	modelHead = `
const token = 'data: ' + JSON.stringify({object: 'chat.completion.chunk', choices: [{index: 0, delta: {content: ' token'}}], padding: 'x'.repeat(80)}) + '\n\n';
let answers = [];
const step = () => setTimeout(() => {
  for (const a of answers) { a.response.write(token); if (--a.left == 0) a.response.end(); }
  answers = answers.filter((a) => a.left > 0 && !a.response.destroyed);
  step();
}, 20 * Math.max(1, answers.length / 8));
step();
`
	modelAnswer = `const left = 15 + Math.floor(Math.random() * 30); response.setHeader('Content-Length', left * token.length); answers.push({response, left})`
)

// perlScript computes for 5 ms.
const perlScript = `#!/usr/bin/perl
1 while (times)[0] < 0.005;
print "Content-Type: text/plain\r\nContent-Length: 8\r\n\r\nnarthex\n";
`

// waitingScript costs what its process does, and waits.
const waitingScript = `#!/bin/sh
sleep 0.01
printf 'Content-Type: text/plain\r\nContent-Length: 8\r\n\r\nnarthex\n'
`

// phpApp works and waits.
const phpApp = `$end = hrtime(true) + 2e6; while (hrtime(true) < $end); usleep(20000); header("Content-Length: 8"); echo "narthex\n";`

// php starts nginx with PHP-FPM behind it.
func (st *stage) php() (*lab.Server, error) {
	at := netip.MustParseAddrPort("127.0.0.1:9000")
	if _, err := st.rig.Server.StartPHP(lab.PHPConfig{Listen: at, Workers: 8, Script: phpApp, CPUs: st.ServerCPUs}); err != nil {
		return nil, err
	}
	return st.rig.Server.StartNginx(lab.NginxConfig{
		Listen: []netip.AddrPort{bench.Web(st.rig)}, Backlog: backlog, CPUs: st.ServerCPUs,
		Server: fmt.Sprintf("location / { fastcgi_pass %s; fastcgi_param SCRIPT_FILENAME %s; fastcgi_param REQUEST_METHOD GET; }", at, lab.PHPScript),
	})
}

// front starts nginx with gunicorn behind it.
func (st *stage) front() (*lab.Server, error) {
	at := netip.MustParseAddrPort("127.0.0.1:9000")
	if _, err := st.gunicornAt(at, 8, 0, "compute(0.002); time.sleep(0.02)"); err != nil {
		return nil, err
	}
	return st.rig.Server.StartNginx(lab.NginxConfig{
		Listen: []netip.AddrPort{bench.Web(st.rig)}, Backlog: backlog, CPUs: st.ServerCPUs, Server: fmt.Sprintf("location / { proxy_pass http://%s; }", at),
	})
}

// judge compares auto with fixed limits and with none, for each number of clients.
func (b suite) judge(ctx context.Context, k kind) (figures []bench.Figure, err error) {
	st, err := b.prepare(ctx, k.server)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	for _, n := range k.clients {
		if *only > 0 && n != *only {
			continue
		}
		more, err := st.judgeWith(ctx, k, n)
		if err != nil {
			return figures, err
		}
		figures = append(figures, more...)
	}
	return figures, nil
}

func (st *stage) judgeWith(ctx context.Context, k kind, clients int) ([]bench.Figure, error) {
	var total, median, tail, limits bench.Figure
	name := func(what string) string { return fmt.Sprintf("%d clients: %s", clients, what) }
	total = bench.Figure{What: name("total, of the best"), Wanted: bench.AtLeast(k.total)}
	median = bench.Figure{What: name("gold's median beyond the best's, in targets or 0.3 times"), Wanted: bench.AtMost(1)}
	tail = bench.Figure{What: name("gold's p99, likewise"), Wanted: bench.AtMost(1)}
	limits = bench.Figure{What: name("limit of auto, 0 for none")}
	for range rounds() {
		var fixedOnes []point
		most := 0.0
		for _, l := range append([]limit{unlimited}, fixedLimits(k.limits)...) {
			p, err := st.serveKind(ctx, k, l, clients)
			if err != nil {
				return nil, err
			}
			fixedOnes = append(fixedOnes, p)
			most = max(most, p.rate)
		}
		auto, err := st.serveKind(ctx, k, auto, clients)
		if err != nil {
			return nil, err
		}
		good := best(fixedOnes)
		beyond := func(got, best float64) float64 {
			return (got - best) / max(0.3*best, float64(k.target)/float64(time.Millisecond))
		}
		total.Samples = append(total.Samples, auto.rate/most)
		median.Samples = append(median.Samples, beyond(auto.p50, good.p50))
		tail.Samples = append(tail.Samples, beyond(auto.p99, good.p99))
		limits.Samples = append(limits.Samples, finite(auto.inForce))
		total.Note += fmt.Sprintf("best limit %s: %s/s, %s and %s ms; auto: %s/s, %s and %s ms; none: %s/s, %s and %s ms. ", good.limit, bench.Number(good.rate), bench.Number(good.p50), bench.Number(good.p99),
			bench.Number(auto.rate), bench.Number(auto.p50), bench.Number(auto.p99), bench.Number(fixedOnes[0].rate), bench.Number(fixedOnes[0].p50), bench.Number(fixedOnes[0].p99))
	}
	return []bench.Figure{total, median, tail, limits}, nil
}

func fixedLimits(numbers []int) (limits []limit) {
	for _, n := range numbers {
		limits = append(limits, fixed(n))
	}
	return limits
}

// serveKind measures from two seconds after the clients came.
func (st *stage) serveKind(ctx context.Context, k kind, l limit, clients int) (p point, err error) {
	// What sets itself begins with the limit that was in force: none here.
	if err := errors.Join(st.set(ctx, unlimited), st.set(ctx, l)); err != nil {
		return p, err
	}
	var others bench.Starter = load.Closed{Client: st.client(st.others), Clients: clients, KeepAlive: k.kept}
	if k.open {
		others = st.open(float64(clients), 1)
	}
	c, err := bench.Gather(ctx, st.gold(k.gold), others)
	if err != nil {
		return p, err
	}
	defer func() { c.End(); err = errors.Join(err, st.rest(ctx)) }()
	protected := cmp.Or(k.learns, 2*time.Second)
	w := st.watch(ctx, 100*time.Millisecond, fmt.Sprintf("%s %d %s", k.name, clients, l))
	defer func() { err = errors.Join(err, w.end()) }()
	got, err := st.measure(ctx, c, protected, length())
	if err != nil {
		return p, err
	}
	if err := w.end(); err != nil {
		return p, err
	}
	p = point{limit: l, rate: got.reports.Rate(), sample: got, inForce: medianLimit(w.between(protected, time.Hour))}
	r := got.reports[0]
	p.p50, p.p99 = bench.Quantile(r, 0.5, patience), bench.Quantile(r, 0.99, patience)
	st.Progress("  %s, %d clients, limit %s (%s): %s/s, gold %s and %s ms, cores %.0f %% and %.0f %%, others %.2f; %s", k.name, clients, l, limitText(p.inForce),
		bench.Number(p.rate), bench.Number(p.p50), bench.Number(p.p99), 100*got.serverBusy, 100*got.clientBusy, got.others, outcomes(got.reports[1:]))
	if math.IsNaN(p.p99) {
		return p, fmt.Errorf("%s: gold got no answer", k.name)
	}
	return p, nil
}
