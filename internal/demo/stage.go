// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"narthex/internal/lab"
	"narthex/internal/lab/origin"
	"narthex/internal/load"
)

// The cast. The server is the bottleneck: its work for one request takes much longer
// than opening a connection.
const (
	work          = 2 * time.Millisecond
	goldClients   = 10
	bronzeClients = 100
)

// bronzeAddr is the address of the bronze clients. Those of the gold ones are in the network
// that policy.yaml names.
var bronzeAddr = netip.MustParseAddr("10.77.66.1")

// loadTime bounds the clients, should the demo forget them.
const loadTime = time.Minute

// stage is all that the demo makes.
type stage struct {
	rig     *lab.Lab
	narthex *narthex
	server  netip.AddrPort

	serverCPUs, clientCPUs []int
	runs                   []func() // end the clients
}

// newStage makes the namespaces and starts the server.
func newStage(executable string) (*stage, error) {
	rig, err := lab.New("demo", 1)
	if err != nil {
		return nil, err
	}
	st := &stage{rig: rig, server: netip.AddrPortFrom(rig.ServerV4, 80)}
	if err := st.build(executable); err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

func (st *stage) build(executable string) error {
	cpus, err := lab.CPUs()
	if err != nil {
		return err
	}
	st.serverCPUs, st.clientCPUs = cpus[:1], cpus[len(cpus)-1:]
	if err := st.rig.Client.AddAddr(lab.Dev, netip.PrefixFrom(bronzeAddr, 16)); err != nil {
		return err
	}
	// What the server's core receives is its own work, not that of the clients' core.
	if err := st.rig.Server.SetRPS(lab.Dev, st.serverCPUs...); err != nil {
		return err
	}
	dir, err := st.rig.Server.TempDir("demo")
	if err != nil {
		return err
	}
	if st.narthex, err = newNarthex(executable, dir, st.rig.Server.Name(), st.clientCPUs); err != nil {
		return err
	}
	_, err = origin.Start(st.rig.Server, origin.Config{
		Listen: []netip.AddrPort{st.server},
		Work:   work,
		CPUs:   st.serverCPUs,
	})
	return err
}

// startGold starts the clients that matter more.
func (st *stage) startGold(ctx context.Context) (*load.Run, error) {
	return st.start(ctx, goldClients, st.rig.ClientsV4)
}

// startBronze starts the clients that together want more than there is.
func (st *stage) startBronze(ctx context.Context) (*load.Run, error) {
	return st.start(ctx, bronzeClients, []netip.Addr{bronzeAddr})
}

// start starts clients that end with the stage. Each opens a connection for each request.
func (st *stage) start(ctx context.Context, clients int, sources []netip.Addr) (*load.Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	r, err := load.Closed{Clients: clients, Client: load.Client{
		NS:       st.rig.Client,
		CPUs:     st.clientCPUs,
		Target:   st.server,
		Sources:  sources,
		Duration: loadTime,
	}}.Start(ctx)
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
	return errors.Join(err, st.rig.Close())
}
