// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"fmt"
	"maps"
	"strings"

	"narthex/internal/datapath"
	"narthex/internal/netif"
	"narthex/internal/policy"
)

// fewest is how many connections without a SYN tell that they come another way: when a daemon starts there may be
// some whose SYN came before.
const fewest = 3

// detours are services whose connections, or requests, do not pass the programs as they reach the servers: mostly
// because a rule of the machine changes their port.
type detours struct {
	before map[string]passage // by service, at the last look
	found  map[string]string  // at the last look at which there were any connections; what to say of it
}

// passage is how much has come for a service.
type passage struct {
	syns, connections uint64
	strays            uint64 // segments with data for no socket, of all services
}

func (p passage) since(old passage) passage {
	if p.syns < old.syns || p.connections < old.connections { // counters began anew
		return p
	}
	return passage{p.syns - old.syns, p.connections - old.connections, p.strays - old.strays}
}

func passageOf(stats datapath.Stats, service int) passage {
	return passage{nth(stats.Services, service).Matched(), nth(stats.Connections, service), stats.Reasons["no_socket"].Passed}
}

// detour says what is wrong with the way on which so much has come for a service, if anything is.
func detour(s policy.ServiceTable, p passage, listeners netif.Listeners) string {
	silent := silentOf(s, listeners)
	switch {
	case p.connections >= fewest && p.connections > 2*p.syns:
		return fmt.Sprintf("%d connections were established with the server of service %s, and %d SYNs for it were seen: "+
			"they come from another port, by a rule of this machine (REDIRECT, DNAT), or by an interface that is not policed, and go by undecided; "+
			"let the server listen on the port that clients ask for", p.connections, s.Name, p.syns)
	case len(silent) > 0 && p.syns > 0 && p.strays >= fewest:
		return fmt.Sprintf("requests for %s of service %s come, and no server listens there: a rule of this machine (REDIRECT, DNAT) sends them to another port; "+
			"SYNs are policed and requests go by undecided; let the server listen on the port that clients ask for", strings.Join(silent, " or "), s.Name)
	}
	return ""
}

// notes say which services there are now of which something comes another way.
func (d *detours) notes(services []policy.ServiceTable, stats datapath.Stats, listeners netif.Listeners) (list []string) {
	for i, s := range services {
		note := detour(s, passageOf(stats, i).since(d.before[s.Name]), listeners)
		if note == "" {
			note = d.found[s.Name]
		}
		if note != "" {
			list = append(list, note)
		}
	}
	return list
}

// look takes what has come since the last look, and returns what is new of it.
func (d *detours) look(services []policy.ServiceTable, stats datapath.Stats, listeners netif.Listeners) (news []string) {
	before, found := map[string]passage{}, maps.Clone(d.found)
	if found == nil {
		found = map[string]string{}
	}
	for i, s := range services {
		now := passageOf(stats, i)
		before[s.Name] = now
		came := now.since(d.before[s.Name])
		if came.syns == 0 && came.connections == 0 {
			continue
		}
		note := detour(s, came, listeners)
		if note != "" && found[s.Name] == "" {
			news = append(news, note)
		}
		found[s.Name] = note
	}
	*d = detours{before, found}
	return news
}

// lookForDetours logs what comes another way, once.
func (e *engine) lookForDetours() error {
	listeners, err := e.net.Listeners()
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	stats, err := e.dp.Stats()
	if err != nil {
		return err
	}
	for _, note := range e.detours.look(e.current.tables.Services, stats, listeners) {
		e.log.Warn("something comes another way", "what", note)
	}
	return nil
}
