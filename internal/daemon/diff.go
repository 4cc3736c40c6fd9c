// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"slices"

	"narthex/internal/api"
	"narthex/internal/policy"
)

// diff says what a reload of a policy would change.
func (e *engine) diff(req api.DiffRequest) (api.DiffResult, error) {
	defer memory.spend()()
	next, err := e.lockWith(req.File)
	if err != nil {
		return api.DiffResult{}, err
	}
	defer e.mu.Unlock()
	result := diffOf(e.current, next)
	rooms, err := e.dp.Rooms()
	if err != nil {
		return api.DiffResult{}, fmt.Errorf("read waiting rooms: %w", err)
	}
	for i, s := range e.current.policy.Services {
		if i < len(rooms) && rooms[i].Waiting > 0 {
			result.Waiting = append(result.Waiting, waitEffect(s.Name, rooms[i].Waiting, next.policy))
		}
	}
	return result, nil
}

func diffOf(from, to *enforceable) api.DiffResult {
	return api.DiffResult{
		Difference: *policy.Diff(from.policy, to.policy), Ended: api.List(slices.Clone(from.overrides)),
		Waiting: []string{}, Warnings: to.warningLines(),
	}
}

// waitEffect says what would become of those who wait at a service.
func waitEffect(service string, waiting int, next *policy.Policy) string {
	text := fmt.Sprintf("service %s: %d wait", service, waiting)
	if waiting == 1 {
		text = fmt.Sprintf("service %s: 1 waits", service)
	}
	at := slices.IndexFunc(next.Services, func(s policy.Service) bool { return s.Name == service })
	switch {
	case at < 0:
		return text + " and would be let in, for the service is in the policy no more"
	case next.Services[at].Shadow:
		return text + " and would be let in, for shadow mode holds nobody"
	case next.Services[at].Concurrency.Mode == policy.ConcurrencyUnlimited:
		return text + " and would be let in, for nothing but a class's max bounds it any more"
	}
	return text + " and would keep their class and place"
}

// OfflineDiff says what changes from one policy file to another, whatever is in force.
func OfflineDiff(from, to string) (api.DiffResult, error) {
	old, err := load(from, policy.ReadFile)
	if err != nil {
		return api.DiffResult{}, err
	}
	next, err := load(to, policy.ReadFile)
	if err != nil {
		return api.DiffResult{}, err
	}
	return diffOf(old, next), nil
}
