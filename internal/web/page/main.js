// SPDX-License-Identifier: Apache-2.0
// The dashboard: views come in, and all that is shown is written anew.

import { watch } from './stream.js';
import { History, keep } from './history.js';
import { charts as defs } from './series.js';
import { Chart } from './chart.js';
import { summary, tiles, levels } from './summary.js';
import * as details from './details.js';
import { clock, ago } from './words.js';

const $ = (id) => document.getElementById(id);
const announceEvery = 10; // seconds, unless it gets worse, lest a screen reader never stops
const least = 60; // seconds that charts show at least

const history = new History();
const far = new History(); // of a longer time, as the daemon has kept it
const looked = () => (state.span > keep ? far : history);
const state = {
  view: null, // the last one
  shown: null, // the one that is shown: the last, or that of when it was paused
  service: decodeURIComponent(location.hash.slice(1)), // empty: all
  span: 300, // seconds that charts show
  at: null, // time that the tables of charts are of, null for now
  pointed: null, // the same while the pointer is on a chart
  paused: false,
  allRules: false,
  connection: 'wait', // live or lost
  theme: '', // changes with the colours
  announced: { t: 0, level: '' },
  version: '',
};

const point = (t) => {
  state.pointed = t;
  draw();
};
const charts = defs.map((def) => new Chart(def, point));
$('charts').prepend(...charts.map((c) => c.figure));

let asked = false;

// draw writes everything before the next picture, once.
function draw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    if (state.shown && !document.hidden) show();
  });
}

function show() {
  const view = state.shown;
  document.body.classList.remove('waiting');
  const now = Date.parse(view.time) / 1000;
  choices(view);
  const order = view.status.classes.map((c) => c.name);
  headline(view);
  tileList(tiles(view, state.service));
  details.services(view);
  details.pools(view, state.service);
  details.classes(view, state.service, order);
  details.rules(view, state.allRules);
  details.sources(view);
  details.decisions(view, state.service);
  details.policy(view, now);
  const from = beginning(now);
  const at = lookBack(from, now);
  const frame = {
    samples: looked().between(from, now), gaps: looked().gaps, service: state.service, classes: order,
    from, to: now, at: state.pointed ?? at, theme: state.theme,
  };
  const rooms = view.status.services.some((s) => s.classes && (!state.service || s.name === state.service));
  for (const chart of charts) {
    chart.figure.hidden = Boolean(chart.def.rooms) && !rooms;
    if (!chart.figure.hidden) chart.update(frame);
  }
}

// choices offers the services that there are now. One that is gone is looked at no more.
function choices(view) {
  const names = view.status.services.map((s) => s.name);
  if (state.service && !names.includes(state.service)) choose('');
  const select = $('service');
  const wanted = ['', ...names];
  if (JSON.stringify([...select.options].map((o) => o.value)) !== JSON.stringify(wanted)) {
    select.replaceChildren(...wanted.map((name) => new Option(name || 'All services', name)));
  }
  select.value = state.service;
  const { host, instance } = view.status;
  $('instance').textContent = [host && `on ${host}`, instance !== 'default' && instance].filter(Boolean).join(', ');
}

function choose(name) {
  state.service = name;
  window.history.replaceState(null, '', name ? `#${encodeURIComponent(name)}` : location.pathname);
  draw();
}

function headline(view) {
  const { level, word, text } = summary(view, state.service);
  $('headline').dataset.level = level;
  $('headline-word').textContent = word;
  $('headline-text').textContent = text;
  const name = view.status.host ? `Narthex on ${view.status.host}` : 'Narthex';
  document.title = level === 'calm' ? name : `${word} – ${name}`;
  const t = performance.now() / 1000;
  const worse = levels.indexOf(level) > levels.indexOf(state.announced.level);
  if (worse || (level !== state.announced.level && t - state.announced.t >= announceEvery)) {
    state.announced = { t, level };
    announce(`${word}. ${text}`);
  }
}

function announce(text) {
  $('announce').textContent = text;
}

function tileList(list) {
  const host = $('tiles');
  while (host.children.length < list.length) {
    const div = document.createElement('div');
    div.append(document.createElement('dt'), document.createElement('dd'), document.createElement('dd'));
    div.lastChild.className = 'beside';
    host.append(div);
  }
  list.forEach(([name, figure, beside, level], i) => {
    const [dt, dd, small] = host.children[i].children;
    dt.textContent = name;
    dd.textContent = figure;
    small.textContent = beside;
    host.children[i].dataset.level = level ?? '';
  });
}

// beginning returns since when charts show: no longer than there is something to show, but for
// a minute.
function beginning(now) {
  const first = looked().samples[0]?.t ?? now;
  return Math.max(now - state.span, Math.min(first, now - least));
}

// lookBack returns the time that is looked at, or null for now, and shows it.
function lookBack(from, now) {
  const slider = $('time');
  slider.min = Math.round(from - now);
  if (state.at !== null) {
    state.at = Math.max(state.at, from);
    slider.value = Math.round(state.at - now);
  } else {
    slider.value = 0;
  }
  const text = state.at === null ? 'now' : `${clock(state.at)}, ${ago(now - state.at)} before`;
  slider.setAttribute('aria-valuetext', text);
  $('time-text').textContent = text;
  $('now').disabled = state.at === null;
  return state.at;
}

function connection(how, text) {
  state.connection = how;
  tellConnection();
  const banner = $('banner');
  banner.hidden = how !== 'lost';
  document.body.classList.toggle('stale', how === 'lost');
  if (how === 'lost') {
    const since = state.view ? ` What is shown is of ${clock(Date.parse(state.view.time) / 1000)}.` : '';
    banner.textContent = text + since;
    announce(text);
  }
}

function tellConnection() {
  const paused = state.paused && state.connection !== 'lost';
  $('connection').dataset.state = paused ? 'paused' : state.connection;
  const time = state.shown ? clock(Date.parse(state.shown.time) / 1000) : '';
  $('connection-text').textContent = paused ? `paused at ${time}` : { wait: 'connecting', live: `live ${time}`, lost: 'connection lost' }[state.connection];
}

function receive(view) {
  const gaps = history.gaps.length;
  history.add(view);
  state.view = view;
  if (!state.paused) state.shown = view;
  if (state.connection === 'lost') announce('Connected again.');
  if (history.gaps.length > gaps) {
    const gap = history.gaps.at(-1);
    announce(`Connected again. Of ${ago(gap.to - gap.from)} there are no figures.`);
  }
  connection('live');
  state.version ||= view.status.version;
  if (state.version !== view.status.version) {
    $('banner').hidden = false;
    $('banner').textContent = `Narthex is now ${view.status.version}: load this page again for its dashboard.`;
  }
  draw();
}

$('service').addEventListener('change', (e) => choose(e.target.value));
$('services').addEventListener('click', (e) => {
  const name = e.target.dataset.choose;
  if (name !== undefined) choose(name);
});
$('window').addEventListener('change', (e) => {
  state.span = Number(e.target.value);
  loadFar();
  draw();
});
$('pause').addEventListener('click', (e) => {
  state.paused = !state.paused;
  e.target.setAttribute('aria-pressed', String(state.paused));
  if (!state.paused) state.shown = state.view;
  tellConnection();
  draw();
});
$('time').addEventListener('input', (e) => {
  const back = Number(e.target.value);
  state.at = back === 0 || !state.shown ? null : Date.parse(state.shown.time) / 1000 + back;
  draw();
});
$('now').addEventListener('click', () => {
  state.at = null;
  $('time').focus();
  draw();
});
$('rules-more').addEventListener('click', () => {
  state.allRules = !state.allRules;
  draw();
});
window.addEventListener('hashchange', () => choose(decodeURIComponent(location.hash.slice(1))));
document.addEventListener('visibilitychange', draw);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (e) => {
  state.theme = e.matches ? 'dark' : 'light';
  draw();
});

const ask = (hours) => fetch(`/history?hours=${hours}`).then((r) => (r.ok ? r.json() : [])).catch(() => []);

// loadFar asks for what was kept of a longer time, while that is looked at.
function loadFar() {
  if (state.span <= keep || state.paused) return;
  const { span } = state;
  ask(span / 3600).then((views) => {
    if (state.span !== span || state.paused) return;
    far.load(views);
    draw();
  });
}
setInterval(loadFar, 60_000);

// What the daemon remembers of the last hour comes first: a page that is opened in the middle of an
// incident shows how it began.
ask(1).then((views) => {
  for (const view of views) history.add(view);
  watch({
    view: receive,
    lost: (why) => connection('lost', why),
  });
});
