// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"net/netip"

	"narthex/internal/policy"
)

// decideRequest decides on a request, or on what a TLS connection begins with.
func (d *decision) decideRequest(says *said) {
	at := connection{d.a.Client, d.a.Server}
	if _, cut := d.cut.get(at, d.now); cut {
		d.out.Verdict, d.turn = Unreached, false
		return
	}
	peer := d.a.Client.Addr()
	if !d.ofConnection(peer) {
		return
	}
	room := &d.tables.Services[d.service].Room
	view, refused := says.view(room, d.tables.Requests)
	if refused && (room.Ruled || d.tables.HasRoom(d.service)) {
		d.refuse(Reject, "malformed")
		return
	}
	if view == nil || !room.Ruled {
		return
	}
	w := whose{from: peer}
	if d.tables.Trusts(d.service, peer) {
		w = says.client(d.side, d.service, d.a)
	}
	if w.proxied && w.from != peer && d.byClient(w.from) {
		return
	}
	view.From, view.To, view.Lists = w.from, d.a.Server, d.tables.ListsOf(w.from)
	if d.tables.Requests.Complex(view) {
		d.refuse(Reject, "complex")
		return
	}
	if rule := d.tables.Requests.Match(view); rule >= 0 {
		d.byRule(rule, w, view)
	}
}

// ofConnection begins with the class of the connection. False: it goes by every control.
func (d *decision) ofConnection(peer netip.Addr) bool {
	rule := d.bySourceRule(peer)
	d.turn = rule < 0 || d.policy.Connections[rule].Action != policy.ActionPass
	return d.turn
}

// byClient has the connection rule decide that matches the client of a trusted proxy.
func (d *decision) byClient(from netip.Addr) (decided bool) {
	rule := d.bySourceRule(from)
	if d.isBlocked(from, d.now) {
		d.refuse(Reject, "blocked")
		return true
	}
	if rule < 0 {
		return false
	}
	c := &d.policy.Connections[rule]
	if !d.enforced(c.When) || c.Action != policy.ActionDrop && c.Action != policy.ActionPass {
		return false
	}
	d.by(connectionKind, c.Name)
	if c.Action == policy.ActionDrop {
		d.refuse(Reject, "")
	} else {
		d.turn = d.shadow
	}
	return true
}

// byRule has a request rule decide, and remembers what it says of the client.
func (d *decision) byRule(rule int, w whose, v *policy.RequestView) {
	q := &d.policy.Requests[rule]
	d.by(requestKind, q.Name)
	d.row = d.tables.Answers.Row[rule]
	if q.Class >= 0 {
		d.class = q.Class
	}
	if d.enforced(q.When) {
		d.enforce(rule, w, v)
	}
	refused := d.out.Verdict == Drop || d.out.Verdict == Reject
	switch {
	case d.shadow:
	case refused && q.Block > 0 && (!w.proxied || w.named):
		d.blocked.put(clientOf(w.from), struct{}{}, d.now+int64(q.Block), d.now)
	case !refused && d.out.Verdict != Demote && !w.proxied && q.Learn > 0:
		d.learn(w.from, d.now+int64(q.Learn))
	}
}

// learn remembers a client in its class; one that is remembered in a more important one stays.
func (d *decision) learn(from netip.Addr, until int64) {
	c := clientOf(from)
	if was, ok := d.learned.get(c, d.now); ok && was.class < d.class {
		return
	}
	d.learned.put(c, learned{d.class}, until, d.now)
}

// enforce does what a request rule says.
func (d *decision) enforce(rule int, w whose, v *policy.RequestView) {
	q := &d.policy.Requests[rule]
	out := map[policy.Action]Verdict{policy.ActionDrop: Drop, policy.ActionReject: Reject}[q.Action]
	switch q.Action {
	case policy.ActionPass:
		d.turn = d.shadow
	case policy.ActionPolice:
		if !d.buckets.take(requestBuckets(rule, q, w.from, v), d.now, d.a.Weight) {
			out = map[policy.Over]Verdict{policy.OverReject: Reject, policy.OverDrop: Drop, policy.OverDemote: Demote}[q.Over]
		}
	}
	switch {
	case out == "":
	case out == Demote:
		d.class, d.out.Verdict = len(d.policy.Classes)-1, Demote
	case out == Drop && w.proxied: // the connection of a trusted proxy is never reset
		d.refuse(Reject, "")
	default:
		d.refuse(out, "")
	}
}
