// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

// Clients that are rejected come again after this; 32 of them make not quite 8,000
// connections/s.
const (
	rejectClients = 32
	rejectThink   = 4 * time.Millisecond
)

// reject: what a 503 costs that Narthex sends, while a request that does not end occupies the
// server, and one that nginx sends by limit_req.
func (b suite) reject(ctx context.Context) (figures []bench.Figure, err error) {
	st, err := b.stage("reject")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	server, err := st.origin(origin.Config{})
	if err != nil {
		return nil, err
	}
	nginx := netip.AddrPortFrom(st.rig.ServerV4, 8080)
	if _, err := st.Serve(st.limitReq(nginx)); err != nil {
		return nil, err
	}
	t := bench.NewTable(*runs,
		bench.Figure{What: "work per rejection, Narthex / nginx", Wanted: bench.AtMost(0.5)},
		bench.Figure{What: "CPU time of the server meanwhile", Unit: "%", Wanted: bench.AtMost(0.1)},
		bench.Figure{What: "work per rejection by Narthex", Unit: "µs"},
		bench.Figure{What: "work per rejection by nginx", Unit: "µs"},
		bench.Figure{What: "rejections/s by Narthex", Unit: "/s"},
		bench.Figure{What: "rejections/s by nginx", Unit: "/s"},
	)
	for t.Next() {
		var costs, rates [2]float64
		var cpu float64
		var why []string
		for _, byNarthex := range bench.Turned(t, false, true) {
			i, target := 0, nginx
			measure := st.Once
			if byNarthex {
				i, target = 1, bench.Web(st.rig)
				measure = func(ctx context.Context, settle, length time.Duration, clients ...bench.Starter) (*bench.Sample, error) {
					s, used, err := st.rejectAll(ctx, server.PID(), settle, length, clients...)
					cpu = 100 * used
					return s, err
				}
			}
			client := st.bronzeClients()
			client.Target, client.Path = target, lab.NginxFile
			s, err := measure(ctx, warmUp, length(), load.Closed{Client: client, Clients: rejectClients, Think: rejectThink})
			if err != nil {
				return t.Done(), err
			}
			r := s.Reports[0]
			st.Progress("  by Narthex %t: %s; cores %.0f %%, %.0f %%", byNarthex, bench.Outcomes(r), 100*s.ServerBusy, 100*s.ClientBusy)
			rejected := r.Statuses[http.StatusServiceUnavailable]
			why = append(why, invalid(s, false), notAllRejected(r, rejected))
			costs[i], rates[i] = s.Work.Seconds()*1e6/float64(rejected), float64(rejected)/r.Elapsed.Seconds()
		}
		if t.Refuse(why...) {
			continue
		}
		t.Add(costs[1]/costs[0], cpu, costs[1], costs[0], rates[1], rates[0])
	}
	return t.Done(), nil
}

// notAllRejected says what else became of requests, if one in a thousand was not rejected.
func notAllRejected(r *load.Report, rejected uint64) string {
	ended := r.Outcomes[load.OK] + bench.Failed(r)
	if rejected > 0 && ended-rejected <= ended/1000 {
		return ""
	}
	return fmt.Sprintf("%d of %d requests were rejected: %s", rejected, ended, bench.Outcomes(r))
}

// rejectAll measures clients while another request occupies the server and nobody may wait.
// It returns the share of the time in which the server's process was at work.
func (st *stage) rejectAll(ctx context.Context, server int, settle, length time.Duration, clients ...bench.Starter) (s *bench.Sample, used float64, err error) {
	n, err := st.narthex(ctx, room{concurrency: 1, queue: "size: 0"})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	blocker := st.goldClients()
	blocker.Path, blocker.Timeout = "/wait?for=nobody", time.Minute
	blocked, err := bench.Gather(ctx, load.Closed{Client: blocker, Clients: 1})
	if err != nil {
		return nil, 0, err
	}
	defer blocked.End()
	if err := bench.Sleep(ctx, 200*time.Millisecond); err != nil {
		return nil, 0, err
	}
	c, err := bench.Gather(ctx, clients...)
	if err != nil {
		return nil, 0, err
	}
	defer c.End()
	if err := bench.Sleep(ctx, settle); err != nil {
		return nil, 0, err
	}
	before, err := lab.ProcessCPU(server)
	if err != nil {
		return nil, 0, err
	}
	if s, err = st.Measure(ctx, c, 0, length); err != nil {
		return nil, 0, err
	}
	after, err := lab.ProcessCPU(server)
	return s, (after - before).Seconds() / length.Seconds(), err
}

const limitReqConf = `
daemon off;
user root;
worker_processes 1;
pid %[1]s/nginx.pid;
error_log stderr crit;
events { worker_connections 8192; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	limit_req_zone $server_port zone=all:1m rate=1r/m;
	limit_req_status 503;
	server {
		listen %[2]s backlog=%[3]d;
		root %[1]s;
		limit_req zone=all;
	}
}
`

// limitReq starts an nginx that rejects all requests but one a minute.
func (st *stage) limitReq(listen netip.AddrPort) (*lab.Server, error) {
	dir, err := st.rig.Server.TempDir("limit-req")
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, limitReqConf, dir, listen, backlog), 0o600); err != nil {
		return nil, err
	}
	cmd := st.rig.Server.Command(lab.NginxBinary, "-p", dir, "-c", conf, "-e", "stderr")
	cmd.CPUs = st.ServerCPUs
	return st.rig.Server.Serve(cmd, listen)
}
