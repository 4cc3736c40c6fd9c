// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"narthex/internal/load"
	"narthex/internal/testnet"
	"narthex/internal/testnet/origin"
)

// The cast. The server is the bottleneck: its work for one request takes much longer
// than opening a connection.
const (
	work              = 500 * time.Microsecond
	workers           = 50  // connections that the server serves at once
	backlog           = 511 // connections that it lets wait
	preferredClients  = 10
	preferredPatience = 2 * time.Second // for a connection, then another attempt
	greedyRate        = 2500            // connections per second
	greedySources     = 8
	greedyPatience    = 1500 * time.Millisecond // after which it gives up on a connection
)

// loadTime bounds the clients, should the demo forget them.
const loadTime = time.Minute

// greedyNet holds the addresses of the greedy client, which policy.yaml names.
var greedyNet = netip.MustParsePrefix("10.77.66.0/24")

// stage is all that the demo makes.
type stage struct {
	lab     *testnet.Lab
	narthex *narthex
	server  netip.AddrPort
	greedy  []netip.Addr

	serverCPUs, clientCPUs []int
	runs                   []func() // end the clients
}

// newStage makes the namespaces and starts the server.
func newStage(executable string) (*stage, error) {
	lab, err := testnet.NewLab("demo", 1)
	if err != nil {
		return nil, err
	}
	st := &stage{lab: lab, server: netip.AddrPortFrom(lab.ServerV4, 80)}
	if err := st.build(executable); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

func (st *stage) build(executable string) error {
	cpus, err := testnet.CPUs()
	if err != nil {
		return err
	}
	st.serverCPUs, st.clientCPUs = cpus[:1], cpus[len(cpus)-1:]
	addr := greedyNet.Addr()
	for range greedySources {
		addr = addr.Next()
		if err := st.lab.Client.AddAddr(testnet.Dev, netip.PrefixFrom(addr, 16)); err != nil {
			return err
		}
		st.greedy = append(st.greedy, addr)
	}
	// What the server's core receives is its own work, not that of the clients' core.
	if err := st.lab.Server.SetRPS(testnet.Dev, st.serverCPUs...); err != nil {
		return err
	}
	dir, err := st.lab.Server.TempDir("demo")
	if err != nil {
		return err
	}
	if st.narthex, err = newNarthex(executable, dir, st.lab.Server.Name(), st.clientCPUs); err != nil {
		return err
	}
	_, err = origin.Start(st.lab.Server, origin.Config{
		Listen:  []netip.AddrPort{st.server},
		Work:    work,
		Workers: workers,
		Backlog: backlog,
		CPUs:    st.serverCPUs,
	})
	return err
}

// startPreferred starts the client that deserves service.
func (st *stage) startPreferred(ctx context.Context) (*load.Run, error) {
	c := st.client(st.lab.ClientsV4)
	c.ConnectTimeout = preferredPatience
	return st.keep(ctx, load.Closed{Client: c, Clients: preferredClients})
}

// startGreedy starts the client that wants more than there is.
func (st *stage) startGreedy(ctx context.Context) (*load.Run, error) {
	c := st.client(st.greedy)
	c.ConnectTimeout, c.Timeout = greedyPatience, greedyPatience
	return st.keep(ctx, load.Open{Client: c, Rate: greedyRate})
}

func (st *stage) client(sources []netip.Addr) load.Client {
	return load.Client{
		NS:       st.lab.Client,
		CPUs:     st.clientCPUs,
		Target:   st.server,
		Sources:  sources,
		Duration: loadTime,
	}
}

// keep starts clients that end with the stage.
func (st *stage) keep(ctx context.Context, clients interface {
	Start(context.Context) (*load.Run, error)
}) (*load.Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	r, err := clients.Start(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	st.runs = append(st.runs, func() {
		cancel()
		<-r.Done()
	})
	return r, nil
}

// close ends everything and removes it.
func (st *stage) close() error {
	for _, end := range st.runs {
		end()
	}
	var err error
	if st.narthex != nil {
		err = st.narthex.stop()
	}
	return errors.Join(err, st.lab.Close())
}
