// SPDX-License-Identifier: Apache-2.0
// What the page remembers of the views it has seen: of each service, and of all together
// under the empty name.

export const keep = 3600; // seconds
const lapse = 3.5; // seconds between views, beyond which some are missing
const setBack = 5; // seconds by which a clock goes back only if somebody sets it

export class History {
  samples = []; // {t, services: Map of name to reading}, the oldest first
  gaps = []; // {from, to} in Unix seconds: nobody told us

  /** Shows what was kept of a longer time in place of what there is. Views are as far apart as they are on average. */
  load(views) {
    this.samples = views.map((v) => ({ t: Date.parse(v.time) / 1000, interval: v.interval_seconds, services: read(v) }));
    this.gaps = [];
    const spacing = (this.samples.at(-1)?.t - this.samples[0]?.t) / views.length;
    for (let i = 1; i < this.samples.length; i++) {
      const [a, b] = [this.samples[i - 1], this.samples[i]];
      if (b.t - a.t > Math.max(3 * spacing, 1.5 * b.interval)) this.gaps.push({ from: a.t, to: b.t });
    }
  }

  add(view) {
    const t = Date.parse(view.time) / 1000;
    const last = this.samples.at(-1);
    if (last && t <= last.t && last.t - t < setBack) return; // it was told again
    if (last && t <= last.t) {
      this.samples = [];
      this.gaps = [];
    } else if (last && t - last.t > Math.max(lapse, 1.5 * view.interval_seconds, 1.5 * last.interval)) {
      this.gaps.push({ from: last.t, to: t });
    }
    this.samples.push({ t, interval: view.interval_seconds, services: read(view) });
    const oldest = t - keep;
    while (this.samples[0].t < oldest) this.samples.shift();
    while (this.gaps.length && this.gaps[0].to < oldest) this.gaps.shift();
  }

  /** The samples from one time to another, and one before, so that lines begin at the edge. */
  between(from, to) {
    const first = Math.max(0, this.samples.findIndex((s) => s.t >= from) - 1);
    let end = this.samples.length;
    while (end > 0 && this.samples[end - 1].t > to) end--;
    return this.samples.slice(first, end);
  }
}

function read(view) {
  const services = new Map();
  view.services.forEach((live, i) => services.set(live.name, reading(live, view.status.services[i], view.interval_seconds > 0)));
  services.set('', sum([...services.values()]));
  return services;
}

// reading is what charts show of a service. Rates are null if there are none yet.
function reading(live, status, rated) {
  const per = (n) => (rated ? n : null);
  const limit = parseInt(status.limit, 10); // "8 (auto)", or "unlimited"
  return {
    room: status.classes !== undefined,
    rated,
    syns: per(live.syns_per_second - live.syns_dropped_per_second),
    dropped: per(live.syns_dropped_per_second),
    rejected: live.rejected_by ?? {},
    inService: status.in_service ?? 0,
    limit: Number.isNaN(limit) ? null : limit,
    classes: new Map((live.classes ?? []).map((c) => [c.name, {
      served: per(c.served_per_second),
      waiting: c.waiting,
      wait: quantiles(c.wait),
      service: quantiles(c.service),
    }])),
  };
}

const quantiles = (q) => (q.count > 0 ? { p50: q.p50_seconds, p99: q.p99_seconds } : { p50: null, p99: null });

// sum is all services taken as one. Of quantiles there is no sum: the highest stands for all.
function sum(readings) {
  const all = { room: false, rated: true, syns: 0, dropped: 0, rejected: {}, inService: 0, limit: 0, classes: new Map() };
  for (const r of readings) {
    all.syns = plus(all.syns, r.syns);
    all.dropped = plus(all.dropped, r.dropped);
    all.rated &&= r.rated;
    if (!r.room) continue;
    all.room = true;
    all.inService += r.inService;
    all.limit = plus(all.limit, r.limit);
    for (const [reason, n] of Object.entries(r.rejected)) all.rejected[reason] = (all.rejected[reason] ?? 0) + n;
    for (const [name, c] of r.classes) {
      const sofar = all.classes.get(name);
      all.classes.set(name, sofar ? together(sofar, c) : c);
    }
  }
  all.several = readings.filter((r) => r.room).length > 1; // whose limits do not add up
  if (!all.room || all.several) all.limit = null;
  return all;
}

const plus = (a, b) => (a === null || b === null ? null : a + b);
const higher = (a, b) => (a === null ? b : b === null ? a : Math.max(a, b));
const worse = (a, b) => ({ p50: higher(a.p50, b.p50), p99: higher(a.p99, b.p99) });

function together(a, b) {
  return {
    served: plus(a.served, b.served),
    waiting: a.waiting + b.waiting,
    wait: worse(a.wait, b.wait),
    service: worse(a.service, b.service),
  };
}
