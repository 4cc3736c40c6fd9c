// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	"narthex/experiments/internal/bench"
	"narthex/internal/api"
)

// class is what the waiting room has counted of one class.
type class struct{ api.RoomClassStatus }

// let is how many requests were let in.
func (c class) let() uint64 { return c.Admitted + c.Released }

// readRoom reads the classes of the waiting room.
func readRoom(ctx context.Context, n *bench.Narthex) (map[string]class, error) {
	s, err := n.Status(ctx)
	if err != nil {
		return nil, err
	}
	if len(s.Services) == 0 || s.Services[0].RoomStatus == nil {
		return nil, errors.New("status: no waiting room")
	}
	classes := map[string]class{}
	for _, c := range s.Services[0].Classes {
		classes[c.Name] = class{c}
	}
	return classes, nil
}
