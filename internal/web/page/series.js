// SPDX-License-Identifier: Apache-2.0
// What each chart shows: its lines or layers, and their values in a reading of a service.

import { rate, count, span, short, tick } from './words.js';

const most = 8; // colours that can be told apart

// layers of classes, the most important first; those beyond the last colour as one.
function byClass(value) {
  return {
    of: 'class',
    names: (readings, order) => {
      const seen = new Set(readings.flatMap((r) => [...r.classes.keys()]));
      return order.filter((c) => seen.has(c));
    },
    value: (r, name) => (r.classes.has(name) ? value(r.classes.get(name)) : r.room ? 0 : null),
    colour: (name, i, order) => `--c${Math.min(order.indexOf(name), most - 1)}`,
  };
}

const reasons = ['queue_full', 'max_wait', 'displaced', 'rule', 'dropped', 'blocked', 'malformed', 'no_server'];

/** The charts, in the order of the page. */
export const charts = [
  {
    id: 'served', title: 'Served, by class', unit: 'per second', kind: 'stack', rooms: true,
    ...byClass((c) => c.served), say: rate, axis: short,
  },
  {
    id: 'rejected', title: 'Turned away, by reason', unit: 'requests per second', kind: 'stack', rooms: true,
    of: 'reason', empty: 'Nobody was turned away.',
    names: (readings) => {
      const seen = new Set(readings.flatMap((r) => Object.keys(r.rejected)));
      return [...reasons.filter((r) => seen.delete(r)), ...[...seen].sort()];
    },
    value: (r, name) => (r.rated ? r.rejected[name] ?? 0 : null),
    colour: (name) => {
      const known = reasons.indexOf(name);
      return known < 0 ? '--other' : `--r${known}`;
    },
    say: rate, axis: short,
  },
  {
    id: 'waiting', title: 'Waiting, by class', unit: 'now', kind: 'stack', rooms: true,
    ...byClass((c) => c.waiting), say: (n) => (n === null ? '–' : Number.isInteger(n) ? count(n) : rate(n)), axis: short,
  },
  {
    id: 'inservice', title: 'In service, and the limit', unit: 'at once', kind: 'lines', rooms: true,
    of: 'requests',
    names: (readings) => (readings.at(-1)?.several ? ['in service'] : ['in service', 'limit']), // limits do not add up
    value: (r, name) => (name === 'limit' ? r.limit : r.inService),
    colour: (name) => (name === 'limit' ? '--limit' : '--inservice'),
    stepped: (name) => name === 'limit',
    filled: (name) => name !== 'limit',
    say: (n) => (n === null ? '–' : Number.isInteger(n) ? count(n) : rate(n)), axis: short,
    missing: { limit: 'none' },
  },
  {
    id: 'wait', title: 'Time waiting, by class', unit: 'p50 solid, p99 dashed', kind: 'quantiles', rooms: true,
    ...byClass((c) => c.wait), say: span, axis: tick,
  },
  {
    id: 'service-time', title: 'Time in service, by class', unit: 'p50 solid, p99 dashed', kind: 'quantiles', rooms: true,
    ...byClass((c) => c.service), say: span, axis: tick,
  },
  {
    id: 'syns', title: 'Connections (SYNs)', unit: 'per second', kind: 'stack',
    of: 'SYNs',
    names: () => ['let in', 'dropped'],
    value: (r, name) => (name === 'dropped' ? r.dropped : r.syns),
    colour: (name) => (name === 'dropped' ? '--r0' : '--inservice'),
    say: rate, axis: short,
  },
];

const none = { p50: null, p99: null };

/**
 * The values of a chart: its times, with a break in each gap, and a list of values for each
 * name; of quantiles two.
 */
export function values(chart, samples, gaps, service, order) {
  const readings = samples.map((s) => s.services.get(service)).filter(Boolean);
  const names = chart.names(readings, order);
  const times = [];
  const rows = names.map(() => (chart.kind === 'quantiles' ? { p50: [], p99: [] } : []));
  const push = (t, of) => {
    times.push(t);
    names.forEach((name, i) => {
      const v = of(name);
      if (chart.kind !== 'quantiles') {
        rows[i].push(v);
        return;
      }
      rows[i].p50.push((v ?? none).p50 || null);
      rows[i].p99.push((v ?? none).p99 || null);
    });
  };
  const breaks = gaps.map((g) => g.from);
  for (const s of samples) {
    const r = s.services.get(service);
    push(s.t, (name) => (r ? chart.value(r, name) : null));
    if (breaks.includes(s.t)) push(s.t + 0.5, () => null);
  }
  return { names, times, rows };
}
