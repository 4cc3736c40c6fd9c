// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"narthex/experiments/internal/bench"
)

// A rejection ends a connection. So that each request comes on one that has been served, as many
// are opened before as requests are offered: for less time, if the process may not open so many files.

// mostKept is how many connections this process and the server may have open, with some to spare:
// nginx closes idle ones when there are not many more.
func mostKept() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	return int(min(limit.Max, 60000)) * 8 / 10, nil // of ports there are not many more
}

// kept is a connection that has been served.
type kept struct {
	net.Conn
	r *bufio.Reader
}

// ask asks for a path and returns the status of the answer.
func (k *kept) ask(path string) (status int, err error) {
	if _, err := fmt.Fprintf(k.Conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		return 0, err
	}
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

// open opens connections and has each be served.
func (st *stage) open(ctx context.Context, n int) (all []*kept, err error) {
	for len(all) < n && ctx.Err() == nil {
		var conn net.Conn
		if err := st.rig.Client.Do(func() (err error) {
			conn, err = net.DialTimeout("tcp", bench.Web(st.rig).String(), 5*time.Second)
			return err
		}); err != nil {
			return all, err
		}
		k := &kept{conn, bufio.NewReaderSize(conn, 512)}
		all = append(all, k)
		if status, err := k.ask(openPath); err != nil || status != http.StatusOK {
			return all, fmt.Errorf("open a connection: status %d, error %v", status, err)
		}
	}
	return all, ctx.Err()
}

// offerKept asks on connections that have been served.
func (st *stage) offerKept(ctx context.Context) (*offered, error) {
	return st.withKept(ctx, func(k *kept) (int, error) { return k.ask(limitPath) })
}

// resetKept ends such connections in place of that.
func (st *stage) resetKept(ctx context.Context) (*offered, error) {
	return st.withKept(ctx, func(k *kept) (int, error) {
		return 0, errors.Join(k.Conn.(*net.TCPConn).SetLinger(0), k.Close())
	})
}

// withKept does something with as many connections a second as requests are offered.
func (st *stage) withKept(ctx context.Context, do func(*kept) (status int, err error)) (*offered, error) {
	most, err := mostKept()
	if err != nil {
		return nil, err
	}
	all, err := st.open(ctx, min(most, int(*seconds*limitOffered)))
	defer func() {
		for _, k := range all {
			k.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := st.begin(); err != nil {
		return nil, err
	}
	o := &offered{first: time.Now()}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for i, k := range all {
		time.Sleep(time.Until(o.first.Add(time.Duration(i) * time.Second / limitOffered)))
		o.last = time.Now()
		asking.Go(func() {
			_ = k.SetDeadline(time.Now().Add(10 * time.Second))
			status, err := do(k)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && status == http.StatusOK:
				o.accepted++
			case err == nil && status == http.StatusTooManyRequests:
				o.rejected++
			default:
				o.others++
			}
		})
	}
	asking.Wait()
	return o, ctx.Err()
}
