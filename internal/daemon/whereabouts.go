// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"narthex/internal/api"
	"narthex/internal/host"
	"narthex/internal/netif"
	"narthex/internal/policy"
)

// locateEvery is how often to look where servers listen and what their processes may use.
const locateEvery = 10 * time.Second

// whereabouts are where the servers of a service listen, and what their processes may use.
type whereabouts struct {
	*host.Place // nil: not known
	accept      []acceptQueue
}

// hidden reports whether servers listen whose processes cannot be seen: what they may use is not
// known.
func (w *whereabouts) hidden() bool {
	return len(w.accept) > 0 && (w.Place == nil || len(w.CPUs) == 0)
}

// acceptQueue is that of the sockets that share an address.
type acceptQueue struct {
	at      netip.AddrPort
	device  uint32
	sockets int
	pick    uint16 // which of them is asked
}

// mostAsked bounds how many of the sockets that share an address are asked at a time.
const mostAsked = 8

// backlog returns how many connections are to be accepted by the service's servers. Of sockets
// that share an address some are asked at a time, others each time, and speak for all.
func (a *agent) backlog(s *steered) (sum int) {
	if s.place == nil {
		return 0
	}
	for i := range s.place.accept {
		q := &s.place.accept[i]
		asked, found := min(q.sockets, mostAsked), 0
		for range asked {
			q.pick++
			n, err := a.queue(*q)
			if err != nil {
				a.report("read the accept queues", err)
			}
			found += n
		}
		sum += found * q.sockets / asked
	}
	return sum
}

// locator finds the whereabouts of services.
type locator struct {
	listening func(into []netif.Listening) ([]netif.Listening, error)
	finder    *host.Finder
	sockets   []netif.Listening
	holders   map[uint32][]host.Holder
}

// locate returns the whereabouts of each service that is steered, and the cgroups of all that are followed.
func (l *locator) locate(steered, followed []policy.ServiceTable) (all []*whereabouts, cgroups map[string]string, err error) {
	if l.sockets, err = l.listening(l.sockets[:0]); err != nil {
		return nil, nil, err
	}
	wanted := map[uint32]bool{}
	for _, s := range slices.Concat(steered, followed) {
		for _, i := range l.socketsOf(&s) {
			wanted[l.sockets[i].Inode] = true
		}
	}
	if l.stale(wanted) {
		l.holders = l.finder.Holders(wanted)
		for inode := range wanted { // those that nobody holds, or nobody that can be seen, count as looked for
			l.holders[inode] = append([]host.Holder{}, l.holders[inode]...)
		}
	}
	all = make([]*whereabouts, len(steered))
	for i := range steered {
		all[i] = l.whereaboutsOf(&steered[i])
	}
	return all, l.cgroups(followed), nil
}

// socketsOf returns the indexes of the listening sockets of a service.
func (l *locator) socketsOf(s *policy.ServiceTable) (list []int) {
	for i := range l.sockets {
		serves := func(at policy.Listen) bool { return netif.On(l.sockets[i].At, at.Addr, at.Port) }
		if slices.ContainsFunc(s.Listen, serves) {
			list = append(list, i)
		}
	}
	return list
}

// stale reports whether processes have to be looked for: there is a new socket, or a process
// has let go of one. To look takes long, for it looks at all files of all processes.
func (l *locator) stale(wanted map[uint32]bool) bool {
	for inode := range wanted {
		holders, known := l.holders[inode]
		if !known || slices.ContainsFunc(holders, func(h host.Holder) bool { return !l.finder.Holds(h, inode) }) {
			return true
		}
	}
	return false
}

// processesOf returns the processes that have a listening socket of a service.
func (l *locator) processesOf(s *policy.ServiceTable) (pids []int) {
	for _, i := range l.socketsOf(s) {
		for _, h := range l.holders[l.sockets[i].Inode] {
			if !slices.Contains(pids, h.PID) {
				pids = append(pids, h.PID)
			}
		}
	}
	return pids
}

// cgroups returns the cgroup of each service whose processes are in one, by its name.
func (l *locator) cgroups(services []policy.ServiceTable) map[string]string {
	groups := map[string]string{}
	for i := range services {
		if group := l.finder.Group(l.processesOf(&services[i])); group != "" {
			groups[services[i].Name] = group
		}
	}
	return groups
}

func (l *locator) whereaboutsOf(s *policy.ServiceTable) *whereabouts {
	w := &whereabouts{}
	for _, i := range l.socketsOf(s) {
		w.add(&l.sockets[i])
	}
	if pids := l.processesOf(s); len(pids) > 0 {
		w.Place = l.finder.Place(pids)
	}
	return w
}

func (w *whereabouts) add(s *netif.Listening) {
	same := func(q acceptQueue) bool { return q.at == s.At && q.device == s.Device }
	if i := slices.IndexFunc(w.accept, same); i >= 0 {
		w.accept[i].sockets++
		return
	}
	w.accept = append(w.accept, acceptQueue{at: s.At, device: s.Device, sockets: 1})
}

// locate keeps the whereabouts of services up to date until ctx is done.
func (a *agent) locate(ctx context.Context, l *locator) {
	for {
		a.place(l)
		select {
		case <-ctx.Done():
			return
		case <-a.moved:
		case <-time.After(locateEvery):
		}
	}
}

// place finds where services are now.
func (a *agent) place(l *locator) {
	a.mu.Lock()
	var tables []policy.ServiceTable
	for _, s := range a.services {
		tables = append(tables, s.table)
	}
	followed := a.followed
	a.mu.Unlock()
	if len(tables)+len(followed) == 0 {
		return
	}
	all, cgroups, err := l.locate(tables, followed)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.report("find out where servers listen", err)
		return
	}
	a.cgroups = cgroups
	for i, w := range all {
		at := slices.IndexFunc(a.services, func(s *steered) bool { return s.table.Name == tables[i].Name })
		if at < 0 {
			w.close()
			continue
		}
		a.services[at].move(w)
	}
}

// cpu returns what the processes of a service have used, nil where that is not known.
func (a *agent) cpu(service string) *api.CPUStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	group := a.cgroups[service]
	if group == "" {
		return nil
	}
	used := a.usage(group)
	if used == host.Unknown {
		return nil
	}
	return &api.CPUStatus{Cgroup: group, Seconds: used.Seconds()}
}

// cpuOf adds up what the cgroups of services have used, each of them once.
func cpuOf(indexes []int, services []api.ServiceStatus) (sum *float64) {
	counted := map[string]bool{}
	for _, i := range indexes {
		c := services[i].CPU
		if c == nil || counted[c.Cgroup] {
			continue
		}
		counted[c.Cgroup] = true
		if sum == nil {
			sum = new(float64)
		}
		*sum += c.Seconds
	}
	return sum
}

// move takes new whereabouts over. If what the processes may use is as it was, the old
// stays: readings of it go on.
func (s *steered) move(w *whereabouts) {
	old := s.place
	if old != nil && old.Place != nil && w.Place != nil && old.Same(w.Place) {
		old.Follow(w.Place)
		w.close()
		old.accept = w.accept
		return
	}
	s.place = w
	if old != nil {
		old.close()
	}
}

func (w *whereabouts) close() {
	if w.Place != nil {
		w.Place.Close()
	}
}
