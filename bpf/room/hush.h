/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* For how long servers of a tls or tcp service are silent within their answers, of which the end cannot be read. */
#pragma once
#include "room/state.h"

/* 2^20 ns. As long as nothing is known, and at the most: a silence of the other looks. */
#define MOST_HUSH 190

/* The least: one look finds who is silent, the next that he still is. */
#define LEAST_HUSH 2

/* The longest for which it pays to look so often. */
#define LONG_HUSH 64

/* How long it is not shortened again, 2^30 ns. */
#define HUSH_FOR 2

/* Bytes that are no answer over TLS, but an alert and a frame by which the server ends the connection. */
#define LAST_WORDS 64

/* A moment for flow.progressed, never 0. */
static __always_inline __u32 progress_time(__u64 now) { return (__u32)(now >> 20) | 1; }

static __always_inline __u32 hush_of(const struct room *r) { return r->hush ? r->hush : MOST_HUSH; }

static __always_inline void set_hush(struct room *r, __u32 hush, __u64 now) {
  r->hush = hush;
  r->hushed = now >> 30;
}

/* A server has gone on speaking that was silent since then. Without the lock: whoever is later is right. */
static __always_inline void note_gap(struct room *r, __u32 since, __u64 now) {
  __u32 gap = progress_time(now) - since;
  __u32 hush = gap < MOST_HUSH / 2 ? 2 * gap : MOST_HUSH;
  if (hush >= hush_of(r))
    set_hush(r, hush, now);
}

/* A server has been silent for long enough. If none has gone on for a while, half of it will do. */
static __always_inline void shorten_hush(struct room *r, __u64 now) {
  if ((__u16)((__u16)(now >> 30) - r->hushed) < HUSH_FOR)
    return;
  __u32 half = hush_of(r) / 2;
  set_hush(r, half > LEAST_HUSH ? half : LEAST_HUSH, now);
}
