/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is said to who is refused, by what its request says of its client. */
#pragma once
#include "match/reader.h"

/* Pieces of a head in which Accept is looked for. */
#define ACCEPT_PIECES 8

/* Eight bytes as they are compared: letters small, and line feeds likewise. */
#define ACCEPT_NAME 0x2a6163636570743aULL /* "\naccept:" */
#define ACCEPT_HTML 0x6578742f68746d6cULL /* "ext/html" */

/* 1 for 0, else 0; not by a branch, which would be two ways to the verifier. */
static __always_inline __u64 is_zero(__u64 x) {
  __u64 negative = -x;
  asm volatile("" : "+r"(negative));
  return ~(x | negative) >> 63;
}

/* Bytes that are read at once. */
#define ACCEPT_TURN 32

/* Goes on in w->chunk, from a byte on. */
__noinline int read_accept(struct work *w, __u32 from) {
  if (!w || from > HTTP_CHUNK - ACCEPT_TURN)
    return 0;
  __u64 last = w->accept.last, inside = w->accept.inside, html = w->accept.html, end = w->accept.end;
  for (__u32 i = 0; i < ACCEPT_TURN; i++) {
    __u64 c = w->chunk.byte[from + i];
    last = last << 8 | c | 0x20;
    inside = (inside & ~is_zero(c ^ '\n')) | is_zero(last ^ ACCEPT_NAME);
    html |= inside & is_zero(last ^ ACCEPT_HTML) & (from + i - end) >> 63;
  }
  w->accept.last = last;
  w->accept.inside = inside;
  w->accept.html = html;
  return 0;
}

static __always_inline bool begins_get(const struct http_chunk *c) {
  return c->byte[0] == 'G' && c->byte[1] == 'E' && c->byte[2] == 'T' && c->byte[3] == ' ';
}

/* Whether the request at w->reading, in a slot or, 0, in the packet, is a GET that accepts HTML; with `any`,
 * whether it is a GET. */
__noinline int takes_page(struct __sk_buff *skb, struct work *w, __u32 node, __u32 any) {
  if (!w)
    return 0;
  __u32 before = w->flow.named & NAMED_HERE ? w->flow.proxy.size : 0;
  if (w->reading.left < before)
    return 0;
  w->reading.at += before;
  w->reading.left -= before;
  w->accept.last = w->accept.inside = w->accept.html = 0;
  for (int i = 0; i < ACCEPT_PIECES; i++) {
    __u32 left = w->reading.left;
    if (load_piece(skb, w, node) || (!i && !begins_get(&w->chunk)))
      return 0;
    if (any)
      return 1;
    w->accept.end = left - w->reading.left;
    /* All of them: the verifier would go a way for each end that is not known. */
    for (__u32 at = 0; at < HTTP_CHUNK; at += ACCEPT_TURN)
      read_accept(w, at);
    if (w->accept.html)
      return 1;
  }
  return 0;
}

/* Notes in w->say what the service of w->flow says to the request at w->reading, by w->row. */
__noinline int choose_answer(struct __sk_buff *skb, struct work *w, __u32 node) {
  struct image im;
  const struct header *h = open_image(&im);
  if (!w)
    return 0;
  w->say.length = 0;
  const struct refusal *a =
      h && w->flow.protocol == PROTOCOL_HTTP ? find_answer(&im, h, w->flow.room, w->row) : NULL;
  if (!a)
    return 0;
  bool head = w->flow.head.flags & HTTP_HEAD_METHOD;
  __u32 page = a->page, length = a->page_length, any = a->any;
  w->say.text = a->text;
  w->say.length = head ? a->head : a->length;
  if (length && !head && takes_page(skb, w, node, any)) {
    w->say.text = page;
    w->say.length = length;
  }
  return 0;
}

/* The same for a request whose first bytes up to a length are in a slot. */
static __always_inline void choose_in_slot(struct __sk_buff *skb, struct work *w, __u32 node, __u32 length) {
  const struct slot *slot = slot_of(node);
  w->reading.at = slot ? slot->data : 0;
  w->reading.left = slot ? length - slot->data : 0;
  choose_answer(skb, w, node);
}

/* Has a rejection say what was chosen: nothing, by a reset, where that could not be told from the rest of
 * another answer. */
static __always_inline void say_chosen(struct work *w, struct rejected *r, bool in_answer) {
  r->text = w->say.text;
  r->length = in_answer ? 0 : w->say.length;
  r->reset = !r->length;
}
