// SPDX-License-Identifier: Apache-2.0
// The lists below and above the charts: services, classes, rules, sources, decisions, policy.

import { table } from './tables.js';
import { stateOf } from './summary.js';
import { count, rate, span, moment, clock, ago } from './words.js';

const $ = (id) => document.getElementById(id);
const shownDecisions = 8;
const shownRules = 12;
const shownClasses = 8; // also those that have had nothing to do
const least = 0.05; // per second: what is less is 0 in a table

/** The services of an instance that has several, each with a button that chooses it. */
export function services(view) {
  const { status } = view;
  $('services-card').hidden = status.services.length < 2;
  if (status.services.length < 2) return;
  table($('services'), {
    label: 'Services',
    columns: ['service', 'state', 'in service', 'limit', 'waiting', 'arrived/s', 'served/s', 'turned away/s', 'SYNs dropped/s'],
    rows: status.services.map((s, i) => {
      const live = view.services[i];
      const { level, word } = stateOf(s, live);
      const room = s.classes !== undefined;
      return [
        { text: s.name, choose: s.name }, { text: s.mode === 'shadow' ? `${word} (shadow)` : word, level },
        room ? count(s.in_service) : '–', room ? s.limit : '–', room ? count(s.waiting) : '–',
        room ? rate(live.arrived_per_second) : '–', room ? rate(live.served_per_second) : '–',
        away(room ? live.rejected_per_second : null), away(live.syns_dropped_per_second),
      ];
    }),
  });
}

const away = (n) => ({ text: rate(n), level: n > 0 ? 'bad' : '' });

/** What services share: a row for each pool, and below it one for each member. */
export function pools(view, chosen) {
  const all = (view.status.pools ?? []).map((p, i) => [p, view.pools[i]]);
  const shown = all.filter(([p]) => !chosen || p.members.some((m) => m.name === chosen || all.some(([q]) => q.name === m.name && q.members.some((n) => n.name === chosen))));
  $('pools-card').hidden = shown.length === 0;
  if (shown.length === 0) return;
  const shares = (p) => p.between === 'shares';
  table($('pools'), {
    label: 'Pools',
    columns: ['pool and member', 'share', 'wanted', 'due', 'got', 'in service', 'waiting', 'served/s', 'served in all', 'place-seconds'],
    rows: shown.flatMap(([p, live]) => [
      [
        { text: p.name, note: `${p.pool ? `in ${p.pool}, ` : ''}limit ${p.limit}, between ${p.between}` }, p.share ? count(p.share) : '–',
        count(sum(p.members, (m) => m.wanted)), '–', rate(sum(live.members, (m) => m.places)), count(p.in_service), waits(p.waiting),
        rate(sum(live.members, (m) => m.served_per_second)), count(sum(p.members, (m) => m.served)), count(Math.round(sum(p.members, (m) => m.used_seconds))),
      ],
      ...p.members.map((m, k) => [
        { text: `– ${m.name}` }, shares(p) ? count(m.share) : '–', count(m.wanted), m.due === undefined ? '–' : rate(m.due), rate(live.members[k].places),
        count(m.in_service), waits(m.waiting), rate(live.members[k].served_per_second), count(m.served), count(Math.round(m.used_seconds)),
      ]),
    ]),
  });
}

const sum = (list, of) => list.reduce((n, one) => n + of(one), 0);
const waits = (n) => ({ text: count(n), level: n > 0 ? 'busy' : '' });

/** The classes of the services that are looked at. */
export function classes(view, chosen, order) {
  const several = view.status.services.filter((s) => s.classes).length > 1 && !chosen;
  const rows = [];
  view.status.services.forEach((s, i) => {
    if (!s.classes || (chosen && s.name !== chosen)) return;
    s.classes.forEach((c, k) => {
      const live = view.services[i].classes[k];
      if (s.classes.length > shownClasses && c.arrived === 0 && c.in_service === 0 && c.waiting === 0) return;
      rows.push([
        { text: several ? `${s.name} ${c.name}` : c.name, swatch: `--c${Math.min(order.indexOf(c.name), 7)}` },
        c.max ? `${count(c.in_service)} of ${count(c.max)}` : count(c.in_service), { text: count(c.waiting), level: c.waiting > 0 ? 'busy' : '' },
        rate(live.arrived_per_second), rate(live.served_per_second), away(live.rejected_per_second),
        rate(live.bytes_in_per_second), rate(live.bytes_out_per_second), pair(live.wait), pair(live.service), count(c.served), count(Object.values(c.rejected).reduce((a, b) => a + b, 0)),
      ]);
    });
  });
  table($('classes'), {
    label: 'Classes',
    columns: ['class', 'in service', 'waiting', 'arrived/s', 'served/s', 'turned away/s', 'bytes in/s', 'bytes out/s', 'wait p50 / p99', 'service p50 / p99', 'served in all', 'turned away in all'],
    rows, none: 'No class has had a request.',
  });
}

const pair = (q) => (q.count > 0 ? `${span(q.p50_seconds)} / ${span(q.p99_seconds)}` : '–');

/** The rules that matched most, twelve of them or all that the view has. */
export function rules(view, all) {
  const known = new Map();
  for (const r of view.status.rules) known.set(`connection ${r.name}`, r);
  for (const r of view.status.requests) known.set(`request ${r.name}`, r);
  table($('rules'), {
    label: 'Rules',
    columns: ['rule', 'matched/s', 'turned away/s', 'matched in all', 'turned away in all'],
    rows: view.rules.slice(0, all ? undefined : shownRules).map((r) => {
      const s = known.get(`${r.kind} ${r.name}`);
      return [
        { text: r.name, note: does(r.kind, s) }, rate(r.matched_per_second), away(r.dropped_per_second),
        s ? count(s.matched) : '–', s ? count(s.dropped + s.would_drop) : '–',
      ];
    }),
    none: 'No rule has matched.',
  });
  const more = $('rules-more');
  more.hidden = view.rules.length <= shownRules;
  more.setAttribute('aria-expanded', String(all));
  more.textContent = all ? 'Show fewer' : `Show all ${view.rules.length}`;
}

// does says what a rule does, in a few words.
function does(kind, s) {
  if (!s) return kind;
  const said = [kind];
  if (s.rate) said.push(`${s.rate}${s.per === 'rule' ? '' : ` per ${s.per}`}`);
  else if (s.action !== 'classify') said.push(s.action);
  if (s.class) said.push(`class ${s.class}`);
  if (s.when) said.push(`when ${s.when}`);
  if (s.overridden) said.push('set by hand');
  return said.join(', ');
}

/** Who is turned away most. */
export function sources(view) {
  table($('sources'), {
    label: 'Sources turned away',
    columns: ['source', 'turned away/s', 'seen/s', 'rule', 'reason'],
    rows: view.sources.filter((s) => s.turned_away_per_second >= least).map((s) => [s.client, away(s.turned_away_per_second), rate(s.seen_per_second), s.rule || '–', s.reason || '–']),
    none: 'Nobody was turned away lately.',
  });
}

/** How limits are steered, and how they have changed. */
export function decisions(view, chosen) {
  const mine = view.status.services.filter((s) => !chosen || s.name === chosen);
  const steered = mine.filter((s) => s.adaptation);
  const changes = mine.flatMap((s) => s.limit_changes.map((c) => ({ ...c, service: s.name, t: Date.parse(c.at) / 1000 })))
    .sort((a, b) => b.t - a.t).slice(0, shownDecisions);
  table($('steering'), {
    label: 'Limits that set themselves',
    columns: ['service', 'limit', 'set by', 'bounds', 'overload'],
    rows: steered.map(({ name, limit, adaptation: a }) => [
      name, limit, a.auto ? a.signal : 'policy', `${count(a.floor)} to ${a.ceiling ? count(a.ceiling) : 'any'}`,
      { text: a.overload ? a.degree.toFixed(2) : 'none', level: a.overload ? 'bad' : '', note: kept(a) },
    ]),
    none: changes.length ? 'No limit sets itself.' : 'No limit sets itself, and none has been changed.',
  });
  const lines = changes.map((c) => [clock(c.t), `${mine.length > 1 ? `${c.service}: ` : ''}${c.old === c.new ? c.new : `${c.old} → ${c.new}`}`,
    c.by === 'agent' ? c.reason : `${c.reason}, by ${c.by}`]);
  write($('decisions'), lines, decision);
}

const kept = (a) => a.keep.filter((k) => k.share < 1).map((k) => `${Math.round(100 * k.share)}% of ${k.class} SYNs let in`).join(', ');

function decision([time, change, reason]) {
  const li = document.createElement('li');
  const t = document.createElement('time');
  t.textContent = time;
  const b = document.createElement('b');
  b.textContent = change;
  const span = document.createElement('span');
  span.textContent = reason;
  li.append(t, b, span);
  return li;
}

/** The policy in force, and what is to be said about it. */
export function policy(view, now) {
  const { status } = view;
  const loaded = Date.parse(status.policy.loaded_at) / 1000;
  const facts = [['file', status.policy.file], ['SHA-256', status.policy.hash]];
  if (status.policy.loaded_at) facts.push(['in force since', `${moment(loaded)}, ${ago(now - loaded)} ago`]);
  const change = status.policy.last_change;
  if (change) facts.push(['last change', `${moment(Date.parse(change.at) / 1000)}: ${change.what}${change.by ? ` by ${change.by}` : ''}`]);
  facts.push(['set by hand', status.overrides.map((o) => `${o.path} = ${o.value}`).join(', ') || 'nothing']);
  facts.push(['interfaces', interfaces(status) || 'none']);
  facts.push(['per-source buckets', `${count(status.sources.used)} of ${count(status.sources.size)} in use`]);
  const room = status.waiting_room;
  facts.push(['slots', `${count(room.slots - room.free_slots)} of ${count(room.slots)} in use, ${count(room.used_flows)} of ${count(room.flows)} connections followed`]);
  facts.push(['daemon', `${status.version}, for ${ago(now - Date.parse(status.started_at) / 1000)}${status.adopted ? ', took over what was in force' : ''}`]);
  write($('policy'), facts, ([name, value]) => {
    const div = document.createElement('div');
    const dt = document.createElement('dt');
    dt.textContent = name;
    const dd = document.createElement('dd');
    dd.textContent = value;
    div.append(dt, dd);
    return div;
  });
  write($('notes'), [...passing(status), ...status.warnings, ...status.notes], (text) => {
    const p = document.createElement('p');
    p.className = 'remark';
    p.textContent = text;
    return p;
  });
}

// passing says what will not stay as it is.
function passing(status) {
  const said = [];
  const { unconfirmed } = status.policy;
  if (unconfirmed) said.push(`The policy before comes back at ${clock(Date.parse(unconfirmed.until) / 1000)} unless this one is confirmed: narthex confirm.`);
  const { trial } = status;
  if (trial && !trial.ended) {
    said.push(`${trial.candidate.file} is tried out beside this policy: of ${count(trial.seen)} SYNs and requests it decides ${count(trial.different)} otherwise. narthex shadow shows which.`);
  }
  return said;
}

function interfaces(status) {
  const modes = new Map(status.services.flatMap((s) => s.interfaces.map((i) => [i.name, i.mode])));
  return [...modes].map(([name, mode]) => `${name} (${mode})`).join(', ');
}

// write makes elements of items, unless they are what is shown.
function write(host, items, make) {
  const key = JSON.stringify(items);
  if (host.dataset.shown === key) return;
  host.dataset.shown = key;
  host.replaceChildren(...items.map(make));
}
