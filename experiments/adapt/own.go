// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
)

// own is the server that the command line describes.
var own struct {
	command, path, limits, clients string
	target                         time.Duration
	kept                           bool
}

func init() {
	flag.StringVar(&own.command, "command", "", "for the part own: a shell command that starts a server on $HOST:$PORT, in the foreground")
	flag.StringVar(&own.path, "path", "/", "for the part own: what clients ask for")
	flag.StringVar(&own.limits, "limits", "1,2,4,8,16", "for the part own: fixed limits to compare with")
	flag.StringVar(&own.clients, "crowds", "16,64,200", "for the part own: how many clients there are beside gold ones")
	flag.DurationVar(&own.target, "target", 10*time.Millisecond, "for the part own: one service time, at least 1ms")
	flag.BoolVar(&own.kept, "kept", false, "for the part own: clients use connections again")
}

// judgeOwn compares auto with fixed limits and with none for a server that nobody here knows.
func (b suite) judgeOwn(ctx context.Context) ([]bench.Figure, error) {
	if own.command == "" {
		return nil, errors.New("the part own needs -command, which starts a server")
	}
	limits, err := integers(own.limits)
	if err != nil {
		return nil, fmt.Errorf("-limits: %w", err)
	}
	clients, err := integers(own.clients)
	if err != nil {
		return nil, fmt.Errorf("-crowds: %w", err)
	}
	return b.judge(ctx, kind{
		server: server{name: "own", what: own.command, path: own.path, start: (*stage).own},
		kept:   own.kept, gold: 10, target: cmp.Or(own.target, time.Millisecond), total: 0.95, limits: limits, clients: clients,
	})
}

// own starts the command in the server's namespace, on the server's core.
func (st *stage) own() (*lab.Server, error) {
	at := bench.Web(st.rig)
	cmd := st.rig.Server.Command("/bin/sh", "-c", own.command)
	cmd.Env = append(os.Environ(), "HOST="+at.Addr().String(), "PORT="+strconv.Itoa(int(at.Port())))
	cmd.CPUs = st.ServerCPUs
	return st.rig.Server.Serve(cmd, at)
}

func integers(list string) (numbers []int, err error) {
	for _, word := range strings.Split(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}
