// SPDX-License-Identifier: Apache-2.0
// How numbers and times are said.

const grouped = new Intl.NumberFormat('en');

/** Exact: 1234567 is 1,234,567. */
export const count = (n) => grouped.format(n ?? 0);

/** A rate or a number that is no whole one, three digits or more of it. */
export function rate(n) {
  if (n === null || n === undefined) return '–';
  const a = Math.abs(n);
  if (a === 0) return '0';
  if (a < 0.1) return n.toFixed(2);
  if (a < 9.95) return n.toFixed(1);
  return grouped.format(Math.round(n));
}

/** A duration in seconds, as narthex status writes it. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return '–';
  const micros = seconds * 1e6;
  const millis = seconds * 1e3;
  if (micros < 999.5) return `${Math.round(micros)}µs`;
  if (millis < 9.95) return `${millis.toFixed(1)}ms`;
  if (millis < 999.5) return `${Math.round(millis)}ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)}s`;
  return `${Math.round(seconds)}s`;
}

/** A duration on an axis. */
export function tick(seconds) {
  if (seconds >= 1) return `${+seconds.toPrecision(2)} s`;
  if (seconds >= 1e-3) return `${+(seconds * 1e3).toPrecision(2)} ms`;
  return `${+(seconds * 1e6).toPrecision(2)} µs`;
}

/** A number on an axis. */
export function short(n) {
  if (Math.abs(n) >= 1e6) return `${+(n / 1e6).toPrecision(3)}M`;
  if (Math.abs(n) >= 1e4) return `${+(n / 1e3).toPrecision(3)}k`;
  return `${+n.toPrecision(4)}`;
}

const pad = (n) => String(n).padStart(2, '0');

/** The time of day of a Unix time in seconds. */
export function clock(t) {
  const d = new Date(t * 1000);
  return `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
}

/** The day and hour. */
export function day(t) {
  const d = new Date(t * 1000);
  return `${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${pad(d.getHours())}h`;
}

/** Date and time of day. */
export function moment(t) {
  const d = new Date(t * 1000);
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${clock(t)}`;
}

/** How long ago, in its largest unit or two. */
export function ago(seconds) {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** 1 request, 2 requests. */
export const many = (n, noun) => `${typeof n === 'string' ? n : count(n)} ${noun}${n === 1 || n === '1' ? '' : 's'}`;

/** A list in a sentence. */
export function list(words) {
  if (words.length < 2) return words.join('');
  return `${words.slice(0, -1).join(', ')} and ${words.at(-1)}`;
}
