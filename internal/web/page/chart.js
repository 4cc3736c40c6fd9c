// SPDX-License-Identifier: Apache-2.0
// A chart, drawn by uPlot, with a table of its figures: what is drawn can be read as well.

/* global uPlot */
import { values } from './series.js';
import { table } from './tables.js';
import { clock, day } from './words.js';

const height = () => (matchMedia('(max-width: 640px)').matches ? 150 : 170);

export class Chart {
  /** onPoint is called with the time under the pointer, or null when it leaves. */
  constructor(def, onPoint) {
    this.def = def;
    this.onPoint = onPoint;
    this.figure = document.createElement('figure');
    this.figure.className = 'card chart';
    this.figure.id = def.id;
    this.figure.setAttribute('aria-labelledby', `${def.id}-title`);
    const caption = document.createElement('figcaption');
    const title = document.createElement('h2');
    title.id = `${def.id}-title`;
    const unit = document.createElement('small');
    unit.textContent = def.unit;
    title.append(`${def.title} `, unit);
    caption.append(title);
    this.plot = document.createElement('div');
    this.plot.className = 'plot';
    this.plot.setAttribute('aria-hidden', 'true');
    this.legend = document.createElement('div');
    this.figure.append(caption, this.plot, this.legend);
    new ResizeObserver(() => this.resize()).observe(this.plot);
  }

  /** Draws a frame: see main.js. */
  update(frame) {
    this.frame = frame;
    this.values = values(this.def, frame.samples, frame.gaps, frame.service, frame.classes);
    const key = JSON.stringify([this.values.names, frame.theme]);
    if (key !== this.key) {
      this.key = key;
      this.build();
    }
    this.uplot.setData(this.data());
    this.tell();
  }

  resize() {
    const width = this.plot.clientWidth;
    if (this.uplot && width > 0 && (width !== this.uplot.width || height() !== this.uplot.height)) {
      this.uplot.setSize({ width, height: height() });
    }
  }

  colour(name) {
    return frameColour(this.def.colour(name, this.values.names.indexOf(name), this.frame.classes));
  }

  // data returns what uPlot draws. Layers are drawn from the highest to the lowest, each down
  // to the axis.
  data() {
    const { times, rows, names } = this.values;
    if (this.def.kind === 'quantiles') return [times, ...rows.flatMap((r) => [r.p50, r.p99])];
    if (this.def.kind === 'lines') return [times, ...rows];
    const layers = [];
    let below = times.map(() => 0);
    for (let i = 0; i < names.length; i++) {
      below = rows[i].map((v, k) => (v === null ? null : v + (below[k] ?? 0)));
      layers.unshift(below);
    }
    return [times, ...layers];
  }

  series() {
    const { names } = this.values;
    switch (this.def.kind) {
      case 'quantiles':
        return names.flatMap((name) => {
          const stroke = this.colour(name);
          return [{ stroke, width: 2, points: { show: false } }, { stroke, width: 1.5, dash: [5, 4], points: { show: false } }];
        });
      case 'lines':
        return names.map((name) => {
          const stroke = this.colour(name);
          const stepped = this.def.stepped(name);
          return {
            stroke, width: 2, points: { show: false },
            ...(stepped && { dash: [6, 4], paths: uPlot.paths.stepped({ align: 1 }) }),
            ...(this.def.filled(name) && { fill: mix(stroke, 0.25) }),
          };
        });
      default:
        return names.toReversed().map((name) => {
          const stroke = this.colour(name);
          return { stroke, width: 1.5, fill: mix(stroke, 0.62), points: { show: false } };
        });
    }
  }

  build() {
    this.uplot?.destroy();
    const ink = frameColour('--quiet');
    const grid = { stroke: frameColour('--grid'), width: 1 };
    const log = this.def.kind === 'quantiles';
    const y = {
      scale: 'y', stroke: ink, grid, ticks: { show: false }, size: log ? 62 : 50, gap: 6, font: '11px system-ui, sans-serif', space: 28,
      values: (u, splits) => splits.map((v) => (v === null ? null : this.def.axis(v))),
    };
    if (log) {
      y.splits = (u) => decades(u.scales.y.min, u.scales.y.max);
      y.filter = (u, splits) => splits;
    }
    const x = {
      stroke: ink, grid: { show: false }, ticks: { stroke: grid.stroke, width: 1, size: 4 }, size: 24, gap: 4, font: '11px system-ui, sans-serif',
      incrs: [5, 10, 15, 30, 60, 120, 180, 300, 900, 1800, 3600, 7200, 14400, 43200, 86400], space: 64,
      values: (u, splits) => splits.map(u.scales.x.max - u.scales.x.min > 2 * 86400 ? day : clock),
    };
    this.uplot = new uPlot({
      width: this.plot.clientWidth || 300, height: height(),
      legend: { show: false }, cursor: { show: false }, padding: [8, 26, 0, 0],
      scales: {
        x: { time: true, range: () => [this.frame.from, this.frame.to] },
        y: log ? { distr: 3, range: (u, min, max) => decadesAround(min, max) } : { range: (u, min, max) => [0, top(max)] },
      },
      axes: [x, y],
      series: [{}, ...this.series()],
      hooks: { drawClear: [(u) => this.drawGaps(u)], draw: [(u) => this.drawTime(u)] },
    }, this.data(), this.plot);
    const { over } = this.uplot;
    over.addEventListener('mousemove', (e) => this.onPoint(this.uplot.posToVal(e.offsetX, 'x')));
    over.addEventListener('mouseleave', () => this.onPoint(null));
  }

  // drawGaps marks when nobody told us anything.
  drawGaps(u) {
    const { ctx, bbox } = u;
    for (const gap of this.frame.gaps) {
      const left = Math.max(bbox.left, u.valToPos(gap.from, 'x', true));
      const right = Math.min(bbox.left + bbox.width, u.valToPos(gap.to, 'x', true));
      if (right <= left) continue;
      ctx.save();
      ctx.fillStyle = frameColour('--gap');
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
      const text = 'no data';
      ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.fillStyle = frameColour('--quiet');
      ctx.textAlign = 'center';
      if (ctx.measureText(text).width + 8 < right - left) ctx.fillText(text, (left + right) / 2, bbox.top + 14 * devicePixelRatio);
      ctx.restore();
    }
  }

  // drawTime marks the time that the tables are of, if it is not now.
  drawTime(u) {
    if (this.frame.at === null) return;
    const { ctx, bbox } = u;
    const x = Math.round(u.valToPos(this.frame.at, 'x', true));
    if (x < bbox.left || x > bbox.left + bbox.width) return;
    ctx.save();
    ctx.strokeStyle = frameColour('--ink');
    ctx.lineWidth = devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }

  // tell writes the figures: at the time that is looked at, and of the time that is shown.
  tell() {
    const { def } = this;
    const { names, times, rows } = this.values;
    const at = nearest(times, this.frame.at);
    const when = this.frame.at === null ? 'now' : clock(this.frame.at);
    const first = this.frame.samples[0]?.t < this.frame.from ? 1 : 0;
    const mark = (name) => ({ text: name, swatch: this.def.colour(name, 0, this.frame.classes), dashed: def.stepped?.(name) });
    const say = (name, v) => (v === null || v === undefined ? def.missing?.[name] ?? '–' : def.say(v));
    const spec = { label: `${def.title}, ${def.unit}`, compact: true, none: def.empty };
    if (def.kind === 'quantiles') {
      spec.columns = [def.of, `p50 ${when}`, `p99 ${when}`, 'highest p99'];
      spec.rows = names.map((name, i) => [
        mark(name), say(name, rows[i].p50[at]), say(name, rows[i].p99[at]), say(name, highest(rows[i].p99.slice(first))),
      ]);
    } else {
      spec.columns = [def.of, when, 'mean', 'highest'];
      spec.rows = names.map((name, i) => {
        const shown = rows[i].slice(first);
        return [mark(name), say(name, rows[i][at]), say(name, mean(shown)), say(name, highest(shown))];
      });
    }
    table(this.legend, spec);
  }
}

// nearest returns the index of the sample of a time, or of the last one.
function nearest(times, at) {
  if (at === null) return times.length - 1;
  let best = -1;
  times.forEach((t, i) => {
    if (best < 0 || Math.abs(t - at) < Math.abs(times[best] - at)) best = i;
  });
  return best;
}

const known = (list) => list.filter((v) => v !== null);

function mean(list) {
  const all = known(list);
  return all.length ? all.reduce((a, b) => a + b, 0) / all.length : null;
}

function highest(list) {
  const all = known(list);
  return all.length ? all.reduce((a, b) => Math.max(a, b)) : null;
}

// top leaves some room above the highest value.
const top = (max) => (max > 0 ? max * 1.08 : 1);

const decadeBelow = (v) => 10 ** Math.floor(Math.log10(v) + 1e-9);
const decadeAbove = (v) => 10 ** Math.ceil(Math.log10(v) - 1e-9);

// decadesAround returns the powers of ten around values, at least two apart.
function decadesAround(min, max) {
  if (!(min > 0)) return [1e-3, 1];
  const low = decadeBelow(min);
  return [low, Math.max(decadeAbove(max), low * 100)];
}

function decades(min, max) {
  const list = [];
  for (let v = min; v <= max * 1.001; v *= 10) list.push(v);
  return list;
}

/** The value of a colour of style.css. */
export function frameColour(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

// mix returns a colour over the card's own, such as #aabbcc.
function mix(colour, share) {
  const parts = (c) => [1, 3, 5].map((i) => parseInt(c.slice(i, i + 2), 16));
  const under = parts(frameColour('--card'));
  return `rgb(${parts(colour).map((v, i) => Math.round(v * share + under[i] * (1 - share))).join(' ')})`;
}
