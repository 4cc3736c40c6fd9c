// SPDX-License-Identifier: Apache-2.0
// How things are, in a word and a sentence, and the state of each service.

import { count, rate, span, list } from './words.js';

/** How things can be, the best first. */
export const levels = ['calm', 'policing', 'busy', 'overload', 'down'];
const words = { calm: 'Calm', policing: 'Turning away', busy: 'Busy', overload: 'Overload', down: 'Attention' };

// reasons for which requests are turned away because there are too many.
const overloaded = ['queue_full', 'max_wait', 'displaced', 'no_slot', 'no_flow'];

/** How a service is: {level, word, text}. */
export function stateOf(status, live) {
  const level = levelOf(status, live);
  return { level, word: words[level], text: sentence(status, live, level) };
}

function levelOf(status, live) {
  if (status.interfaces.length === 0 || !status.listening) return 'down';
  const crowded = overloaded.some((r) => live.rejected_by?.[r] > 0);
  if (status.adaptation?.overload || crowded) return 'overload';
  if ((status.waiting ?? 0) > 0) return 'busy';
  if (live.rejected_per_second > 0 || live.syns_dropped_per_second > 0) return 'policing';
  return 'calm';
}

function sentence(status, live, level) {
  if (status.interfaces.length === 0) return 'no interface is policed: it is not protected';
  const said = [];
  if (!status.listening) said.push(`no server listens on ${list(status.silent ?? [])}`);
  if (status.classes) {
    said.push(`${count(status.in_service)}${limited(status)} in service`);
    said.push(status.waiting > 0 ? `${count(status.waiting)} waiting${longest(live)}` : 'nobody waits');
  }
  if (live.rejected_per_second > 0) said.push(`${rate(live.rejected_per_second)}/s turned away (${mostly(live.rejected_by)})`);
  if (live.syns_dropped_per_second > 0) said.push(`${rate(live.syns_dropped_per_second)}/s of ${rate(live.syns_per_second)}/s SYNs dropped`);
  if (said.length === 0) said.push(level === 'calm' ? 'nobody is turned away' : '');
  if (status.mode === 'shadow') said.push('shadow mode: nothing is held or dropped');
  return said.join(', ');
}

function limited(status) {
  const limit = parseInt(status.limit, 10);
  return Number.isNaN(limit) ? '' : ` of ${count(limit)}`;
}

// longest says how long the last of those who were let in had waited, by class.
function longest(live) {
  const waits = live.classes.filter((c) => c.wait.count > 0).slice(0, 2).map((c) => `${c.name} ${span(c.wait.p50_seconds)}`);
  return waits.length ? ` (${waits.join(', ')})` : '';
}

function mostly(by) {
  const reasons = Object.entries(by ?? {}).sort((a, b) => b[1] - a[1]).map(([r]) => r);
  return reasons.length > 1 ? `mostly ${reasons[0]}` : reasons.join('');
}

/** How an instance is, of which one service or all are looked at. */
export function summary(view, chosen) {
  if (!view.status.enforcing) return { level: 'down', word: 'Not enforcing', text: 'No interface is policed.' };
  const states = view.status.services
    .map((s, i) => ({ name: s.name, ...stateOf(s, view.services[i]) }))
    .filter((s) => !chosen || s.name === chosen);
  if (states.length === 0) return { level: 'calm', word: words.calm, text: 'The policy has no service.' };
  const worst = states.reduce((a, b) => (levels.indexOf(b.level) > levels.indexOf(a.level) ? b : a));
  const alike = states.filter((s) => s.level === worst.level);
  if (alike.length === 1 || states.length === 1) return { ...worst, text: `${worst.name}: ${worst.text}.` };
  return { ...worst, text: `${list(alike.map((s) => s.name))}${alike.length < states.length ? ` of ${count(states.length)} services` : ''}. ${totals(view)}.` };
}

function totals(view) {
  const sum = (f) => view.services.reduce((n, s) => n + f(s), 0);
  const waiting = view.status.services.reduce((n, s) => n + (s.waiting ?? 0), 0);
  const away = sum((s) => s.rejected_per_second);
  return `${rate(sum((s) => s.served_per_second))}/s served, ${waiting ? `${count(waiting)} waiting` : 'nobody waits'}${away > 0 ? `, ${rate(away)}/s turned away` : ''}`;
}

// limitOf says what bounds who is in service: of services in one pool its limit. Others do not add up.
function limitOf(rooms, pools) {
  const shared = rooms.length > 1 && pools.find((p) => !p.pool && rooms.every((s) => within(p, s.name, pools)));
  if (shared) return `limit ${shared.limit} of pool ${shared.name}`;
  const limits = rooms.map((s) => parseInt(s.limit, 10));
  if (limits.every(Number.isNaN)) return 'no limit';
  if (rooms.length === 1) return `limit ${count(limits[0])}`;
  const full = rooms.filter((s, i) => s.in_service >= limits[i]).length;
  return `${full === 0 ? 'none' : count(full)} of ${count(rooms.length)} services at its limit`;
}

const within = (pool, name, pools) => pool.members.some((m) => m.name === name || pools.some((p) => p.name === m.name && within(p, name, pools)));

/** The tiles: [name, figure, what it is beside, level]. */
export function tiles(view, chosen) {
  const rated = view.interval_seconds > 0;
  const all = view.status.services.map((s, i) => [s, view.services[i]]).filter(([s]) => !chosen || s.name === chosen);
  const sum = (f) => all.reduce((n, [s, live]) => n + (f(s, live) ?? 0), 0);
  const per = (f) => (rated ? `${rate(sum(f))}` : '–');
  const limit = limitOf(all.map(([s]) => s).filter((s) => s.classes), view.status.pools ?? []);
  const signal = all.length === 1 && all[0][0].adaptation?.auto ? `, by ${all[0][0].adaptation.signal}` : '';
  const away = sum((s, live) => live.rejected_per_second);
  const dropped = sum((s, live) => live.syns_dropped_per_second);
  const by = {};
  for (const [, live] of all) for (const [r, n] of Object.entries(live.rejected_by ?? {})) by[r] = (by[r] ?? 0) + n;
  const waiting = sum((s) => s.waiting);
  return [
    ['Arrived', per((s, live) => live.arrived_per_second), 'per second'],
    ['Served', per((s, live) => live.served_per_second), 'per second'],
    ['In service', count(sum((s) => s.in_service)), limit + signal],
    ['Waiting', count(waiting), `room for ${count(sum((s) => s.queue_size))}`, waiting > 0 ? 'busy' : ''],
    ['Turned away', per((s, live) => live.rejected_per_second), away > 0 ? `per second, ${mostly(by)}` : 'per second', away > 0 ? 'bad' : ''],
    ['SYNs dropped', per((s, live) => live.syns_dropped_per_second), `of ${per((s, live) => live.syns_per_second)} per second`, dropped > 0 ? 'bad' : ''],
  ];
}
