/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Some servers keep a worker with a connection for its next request. While that waits here the worker does
 * nothing, and what was let in waits for one. Such a server is asked to close the connection behind its
 * answer (RFC 9112, 9.6), by what it reads of the request: another value of Connection where that is
 * "keep-alive", or HTTP/1.0, which does not go on unless that is asked for. Where neither can be written all
 * stays as it is. */
#pragma once
#include "gate/decide/upgrade.h"
#include "observe/counters.h"

/* What is written over "keep-alive". */
static const char close_text[] = "     close";
#define CLOSE_SIZE 10
#define VERSION_SIZE 8

/* Whether eight bytes are how "keep-alive" begins, in letters of either case. */
static __always_inline bool is_keep_alive(__u64 text) {
  return (text | HTTP_EACH(0x20)) == HTTP_EIGHT('k', 'e', 'e', 'p', '-', 'a', 'l', 'i');
}

static __always_inline bool is_version_11(__u64 text) {
  return text == HTTP_EIGHT('H', 'T', 'T', 'P', '/', '1', '.', '1');
}

/* Writes that over the bytes of the segment from an offset on, from its TCP header. */
static __always_inline bool close_in_segment(struct __sk_buff *skb, const struct work *w, __u32 at) {
  __u8 words[CLOSE_SIZE + 2];
  __u32 odd = at & 1;
  if (bpf_skb_load_bytes(skb, w->s.l4 + at - odd, words, sizeof(words)))
    return false;
  for (int i = 0; i < CLOSE_SIZE; i++)
    words[odd + i] = close_text[i];
  bool done = true;
  for (int i = 0; i < CLOSE_SIZE + 2 && done; i += 2)
    done = (i == CLOSE_SIZE && !odd) || put_word(skb, w, at - odd + i, words[i] << 8 | words[i + 1]);
  return done;
}

/* The request's first bytes are those of the segment. */
static __always_inline bool ask_in_segment(struct __sk_buff *skb, struct work *w, __u32 end, bool keeps) {
  __u32 size = keeps ? CLOSE_SIZE : VERSION_SIZE, data = w->s.data - w->s.l4;
  __u64 text;
  if (end < size || end > 0x10000 || end + 2 > w->s.length ||
      bpf_skb_load_bytes(skb, w->s.data + end - size, &text, sizeof(text)))
    return false;
  if (keeps)
    return is_keep_alive(text) && close_in_segment(skb, w, data + end - size);
  return is_version_11(text) && put_byte(skb, w, data + end - 1, '0');
}

/* The same in the slot in which it was put together. */
static __always_inline bool ask_in_slot(__u32 node, __u32 end, bool keeps) {
  struct slot *slot = slot_of(node);
  __u32 size = keeps ? CLOSE_SIZE : VERSION_SIZE;
  if (!slot || end < size)
    return false;
  __u32 at = BOUND(slot->data + end - size, MAX_SLOT_SIZE - CLOSE_SIZE);
  if (at + CLOSE_SIZE > slot_size)
    return false;
  __u8 *text = frame_of(slot) + at;
  __u64 begin;
  __builtin_memcpy(&begin, text, sizeof(begin));
  if (keeps ? !is_keep_alive(begin) : !is_version_11(begin))
    return false;
  for (int i = 0; i < CLOSE_SIZE && keeps; i++)
    text[i] = close_text[i];
  if (!keeps)
    text[VERSION_SIZE - 1] = '0';
  break_seal(slot);
  return true;
}

/* Has a server be asked, by the request of w->flow, whose head is whole: in the segment, or in the node's
 * slot. */
__noinline int ask_to_close(struct __sk_buff *skb, struct work *w, __u32 node) {
  if (!w)
    return 0;
  const struct http_head *h = &w->flow.head;
  bool keeps = h->seen & HTTP_SEEN_KEEP_ALIVE && h->keep_at;
  __u32 end = keeps ? h->keep_at : h->version_at;
  /* HTTP/1.0 knows neither chunks nor 100 (Continue). */
  if (!end || h->flags & (HTTP_CLOSES | HTTP_UPGRADE) || (!keeps && h->flags & (HTTP_CHUNKED | HTTP_EXPECT)))
    return 0;
  end += w->flow.named & NAMED_HERE ? w->flow.proxy.size : 0;
  if (!(node ? ask_in_slot(node, end, keeps) : ask_in_segment(skb, w, end, keeps)))
    return 0;
  count_reason(REASON_ASKED_TO_CLOSE, false, false);
  return 1;
}

/* Whether the server is to be asked. The clock is read only where the mark is there. */
static __always_inline bool asks_to_close(const struct scene *sc) {
  return sc->room->control.marks & CONTROL_CLOSES && closes_each(sc->room, bpf_ktime_get_ns()) &&
         !sc->config->shadow && sc->w->flow.protocol == PROTOCOL_HTTP;
}

/* Does so for a request of which `step` says what was read. */
static __always_inline void ask_if_due(struct __sk_buff *skb, const struct scene *sc, int step, __u32 node) {
  if (step != HTTP_LOST && !(sc->w->flow.flags & FLOW_HEAD) && asks_to_close(sc))
    ask_to_close(skb, sc->w, node);
}
