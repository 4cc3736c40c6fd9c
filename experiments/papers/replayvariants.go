// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"narthex/experiments/internal/bench"
	"narthex/internal/lab"
)

// unlimited are the variants in which nobody is limited: each is measured once a round, since the
// rate is nothing to them.
func (sh *shop) unlimited() []variant {
	at := []float64{sh.tightest()}
	return []variant{
		{name: shopAlone, start: nobody, xs: at, measure: func(ctx context.Context, _ float64) (outcome, error) {
			return sh.run(ctx, sh.web())
		}},
		{name: shopBare, start: nobody, xs: at, measure: func(ctx context.Context, _ float64) (outcome, error) {
			return sh.crowded(ctx, sh.web())
		}},
	}
}

// gauged measures what the server can do: that is what limits of the variant are shares of.
func (sh *shop) gauged(ctx context.Context) (stop func() error, err error) {
	if err := sh.gauge(ctx); err != nil {
		return nil, err
	}
	return nobody(ctx)
}

// policed is Narthex with a policy for each rate; one daemon puts all of them in force.
func (sh *shop) policed(name string, policy func(rate float64) string) variant {
	v := variant{name: name, ours: true}
	var put func(context.Context, string) error
	v.start = func(ctx context.Context) (func() error, error) {
		if err := sh.gauge(ctx); err != nil {
			return nil, err
		}
		n, err := sh.narthex(ctx, policy(sh.rate(sh.xs[0])))
		if err != nil {
			return nil, err
		}
		put = func(ctx context.Context, text string) error {
			path, err := bench.WritePolicy(sh.rig.Server, text)
			if err != nil {
				return err
			}
			_, err = n.Swap(ctx, path)
			return err
		}
		return n.Stop, nil
	}
	v.measure = func(ctx context.Context, x float64) (outcome, error) {
		rate := sh.rate(x)
		if err := put(ctx, policy(rate)); err != nil {
			return outcome{}, err
		}
		return sh.limited(ctx, sh.web(), rate)
	}
	return v
}

// filtered is a firewall before the server, with a rule for each rate.
func (sh *shop) filtered(name string, apply func(rate float64) (stop func() error, err error)) variant {
	v := variant{name: name, start: sh.gauged}
	v.measure = func(ctx context.Context, x float64) (o outcome, err error) {
		rate := sh.rate(x)
		stop, err := apply(rate)
		if err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return sh.limited(ctx, sh.web(), rate)
	}
	return v
}

// fronted is a proxy, or a server of its own, that clients ask instead of the server; it starts
// anew for each rate.
func (sh *shop) fronted(name string, start func(rate float64) (*lab.Server, error)) variant {
	v := variant{name: name, start: sh.gauged}
	v.measure = func(ctx context.Context, x float64) (o outcome, err error) {
		rate := sh.rate(x)
		front, err := start(rate)
		if err != nil {
			return o, err
		}
		sh.servers = append(sh.servers, front)
		defer func() {
			sh.servers = sh.servers[:len(sh.servers)-1]
			err = errors.Join(err, front.Close())
		}()
		return sh.limited(ctx, sh.behind(), rate)
	}
	return v
}
