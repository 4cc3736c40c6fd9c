// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"narthex/experiments/internal/bench"
	"narthex/internal/testnet"
)

// unlimited are the variants in which nobody is limited: each is measured once a round, since the
// rate is nothing to them.
func (sh *shop) unlimited() []variant {
	never := func(context.Context) (func() error, error) { return func() error { return nil }, nil }
	at := []float64{sh.tightest()}
	return []variant{
		{name: shopAlone, start: never, xs: at, measure: func(ctx context.Context, _ float64) (outcome, error) {
			return sh.run(ctx, sh.web())
		}},
		{name: shopBare, start: never, xs: at, measure: func(ctx context.Context, _ float64) (outcome, error) {
			return sh.crowded(ctx, sh.web())
		}},
	}
}

// policed is Narthex with a policy for each rate; one daemon puts all of them in force.
func (sh *shop) policed(name string, policy func(rate float64) string) variant {
	v := variant{name: name, ours: true}
	var put func(context.Context, string) error
	v.start = func(ctx context.Context) (func() error, error) {
		n, err := sh.narthex(ctx, policy(sh.xs[0]))
		if err != nil {
			return nil, err
		}
		put = func(ctx context.Context, text string) error {
			path, err := bench.WritePolicy(sh.lab.Server, text)
			if err != nil {
				return err
			}
			_, err = n.Swap(ctx, path)
			return err
		}
		return n.Stop, nil
	}
	v.measure = func(ctx context.Context, rate float64) (outcome, error) {
		if err := put(ctx, policy(rate)); err != nil {
			return outcome{}, err
		}
		return sh.crowded(ctx, sh.web())
	}
	return v
}

// filtered is a firewall before the server, with a rule for each rate.
func (sh *shop) filtered(name string, apply func(rate float64) (stop func() error, err error)) variant {
	v := variant{name: name, start: func(context.Context) (func() error, error) { return func() error { return nil }, nil }}
	v.measure = func(ctx context.Context, rate float64) (o outcome, err error) {
		stop, err := apply(rate)
		if err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return sh.crowded(ctx, sh.web())
	}
	return v
}

// fronted is a proxy, or a server of its own, that clients ask instead of the server; it starts
// anew for each rate.
func (sh *shop) fronted(name string, start func(rate float64) (*testnet.Server, error)) variant {
	v := variant{name: name, start: func(context.Context) (func() error, error) { return func() error { return nil }, nil }}
	v.measure = func(ctx context.Context, rate float64) (o outcome, err error) {
		front, err := start(rate)
		if err != nil {
			return o, err
		}
		sh.servers = append(sh.servers, front)
		defer func() {
			sh.servers = sh.servers[:len(sh.servers)-1]
			err = errors.Join(err, front.Close())
		}()
		return sh.crowded(ctx, sh.behind())
	}
	return v
}
