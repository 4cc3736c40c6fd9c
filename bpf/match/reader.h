/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads the head of a request, in a packet or put together in a slot, and finds its rule. */
#pragma once
#include "emit/slot.h"
#include "match/forwarded.h"
#include "match/graph.h"
#include "match/key.h"
#include "observe/counters.h"

/* What read_values() comes to beside the number of a field whose value is complete. */
#define READ_FORWARDED (MAX_FIELDS + 1)
#define READ_ON (MAX_FIELDS + 2)     /* the piece goes on */
#define READ_NEXT (MAX_FIELDS + 3)   /* the next piece is wanted */
#define READ_FOLDED (MAX_FIELDS + 4) /* the value at hand is asked for in small letters, too */
#define READ_END (MAX_FIELDS + 5)
#define READ_BAD (MAX_FIELDS + 6)

/* A name is complete: of a header, a cookie (HEAD_CRUMB) or a parameter (HEAD_KEY). If rules ask for it, the
 * value behind it is read next. */
__noinline int on_name(struct reading *r, __u32 value) {
  if (!r)
    return 0;
  r->field = match_name(r, value == HEAD_NAME  ? MATCH_HEADER
                           : value == HEAD_KEY ? MATCH_QUERY
                                               : MATCH_COOKIE);
  if (r->field < MAX_FIELDS || value == HEAD_KEY)
    head_want(&r->head, &r->text, value);
  return 0;
}

/* The query has ended: makes a text of as many bytes as it had pieces, so that a beginning is a least number.
 */
__noinline int on_pieces(struct reading *r) {
  if (!r)
    return 0;
  __u64 hash = text_hash(&r->text, 0), factor = r->text.factor;
  __u32 n = BOUND(r->head.pieces, MAX_PARAMETERS);
  for (__u32 i = 0; i < MAX_PARAMETERS && i < n; i++)
    hash = text_put(&r->text, i, hash, PARAMETER_BYTE, factor);
  r->text.length = n;
  return 0;
}

/* Which field a value is of that is complete. MAX_FIELDS: of none that rules ask for. */
static __always_inline __u32 field_of(struct reading *r, __u32 value) {
  __u32 field = MAX_FIELDS;
  switch (value) {
  case HEAD_FORWARDED:
    return READ_FORWARDED;
  case HEAD_METHOD:
    field = FIELD_METHOD;
    break;
  case HEAD_HOSTNAME:
    field = FIELD_HOST;
    break;
  case HEAD_PATH:
    field = FIELD_PATH;
    break;
  case HEAD_VALUE:
  case HEAD_COOKIE:
  case HEAD_PARAMETER:
    return r->field;
  case HEAD_PIECES:
    if (r->parameters < MAX_FIELDS)
      on_pieces(r);
    return r->parameters;
  case HEAD_NAME:
  case HEAD_CRUMB:
  case HEAD_KEY:
    on_name(r, value);
    return MAX_FIELDS;
  }
  return field < FIELD_NAMED && r->asks >> field & 1 ? field : MAX_FIELDS;
}

/* Moves the bytes of a piece to its beginning that are behind the first so many. */
__noinline int move_piece(struct work *w, __u32 by) {
  if (!w || !by)
    return 0;
  /* The last word may have bytes from behind the chunk, which nobody reads. */
  for (__u32 i = 0; i < HTTP_CHUNK; i += 8)
    *(http_u64 *)&w->chunk.byte[i] = *(http_u64 *)&w->chunk.byte[text_opaque(i + by) & (HTTP_CHUNK - 1)];
  return 0;
}

/* Gets the next piece of the head into w->chunk. Returns 0, or -1. */
__noinline int load_piece(struct __sk_buff *skb, struct work *w, __u32 node) {
  if (!w)
    return -1;
  __u32 at = w->reading.at, n = BOUND(w->reading.left, HTTP_CHUNK);
  if (!n)
    return -1;
  w->reading.at = at + n;
  w->reading.left -= n;
  if (!node)
    return bpf_skb_load_bytes(skb, at, &w->chunk, AMOUNT(n, HTTP_CHUNK)) ? -1 : 0;
  struct slot *slot = slot_of(node);
  if (!slot)
    return -1;
  __u32 from = at > slot_size - HTTP_CHUNK ? slot_size - HTTP_CHUNK : at;
  if (from > slot_size - HTTP_CHUNK || at - from > HTTP_CHUNK)
    return -1;
  __builtin_memcpy(&w->chunk, frame_of(slot) + from, HTTP_CHUNK);
  return move_piece(w, at - from);
}

/* Prepares for a request of which no rules ask anything. */
static __always_inline void reading_clear(struct reading *r) {
  __builtin_memset(&r->head, 0, sizeof(r->head));
  r->asks = r->graph = r->folded = r->keyed = 0;
  r->parameters = MAX_FIELDS;
  r->client = CLIENT_NONE;
  r->best = NO_MATCH;
  r->complex = 0;
  for (int i = 0; i < MAX_FIELDS / 64; i++)
    r->present[i] = r->absent[i] = r->keys.valued[i] = 0;
}

/* Which fields are of names that are absent: every second one between the first pair and the last. */
static __always_inline void reading_pairs(struct reading *r, __u32 end) {
  for (__u32 i = 0; i < MAX_FIELDS / 64; i++) {
    __u32 from = i ? 0 : FIELD_PAIRS, to = end < 64 * i ? 0 : end - 64 * i;
    __u64 below = to < 64 ? (1ULL << (to & 63)) - 1 : ~0ULL;
    r->absent[i] = HTTP_EACH(FIELD_PAIRS % 2 ? 0x55 : 0xaa) & below & ~0ULL << from;
  }
}

#define LETTER_BIT(letter) (1U << HTTP_LETTER(letter))

/* Prepares for a request. */
__noinline int reading_begin(struct reading *r) {
  struct image im;
  if (!r)
    return 0;
  reading_clear(r);
  struct match m;
  if (open_match(&im, &m)) {
    r->head.seed = m.seed;
    r->head.cookies = m.cookies;
    r->head.letters = m.letters | (m.cookies ? LETTER_BIT('c') : 0);
    r->asks = m.asks;
    r->graph = m.graph;
    r->head.query = m.query;
    if (m.parameters)
      r->parameters = m.parameters;
    if (m.pairs)
      reading_pairs(r, m.pairs);
  }
  if (r->asks & 1 << FIELD_HOST)
    r->head.letters |= LETTER_BIT('h');
  r->text.factor = match_mix(r->head.seed) | 1;
  text_begin(&r->text, r->head.seed);
  return 0;
}

/* What reading a head takes at most in pieces, turns, of which few do not use a byte, and values that rules
 * ask for. */
#define MAX_VALUES 256
#define MAX_READINGS                                                                                         \
  (MAX_SLOT_SIZE / HTTP_CHUNK + 2 * MAX_SLOT_SIZE / HEAD_TURNS + MAX_VALUES + READING_TURN - 1)

/* Gets the next piece. False: there is none, or it cannot be read. */
static __always_inline bool next_piece(struct __sk_buff *skb, struct work *w, struct reading *r, __u32 node) {
  __u32 before = w->reading.left;
  if (load_piece(skb, w, node))
    return false;
  r->pos = 0;
  r->end = before - w->reading.left;
  return true;
}

/* Turns that are taken at once. */
#define HEAD_TURNS 16

/* Reads on in the piece at hand, up to a value that rules ask for. */
static __always_inline int read_values(struct work *w, struct reading *r) {
  __u32 pos = r->pos, end = r->end;
  for (int i = 0; i < HEAD_TURNS && pos < end; i++) {
    if (r->head.place == HEAD_AT_REST && !r->head.letters)
      return READ_END; /* nothing is asked of what follows */
    __u32 turn = head_turn(&r->head, &r->text, &w->chunk, end << 16 | pos);
    __u32 value = turn >> HEAD_VALUE_SHIFT;
    pos = turn & 0xffff;
    r->pos = pos;
    if (value == HEAD_END)
      return READ_END;
    if (value == HEAD_BAD)
      return READ_BAD;
    __u32 field = value ? field_of(r, value) : MAX_FIELDS;
    if (field != MAX_FIELDS)
      return field;
  }
  return pos < end ? READ_ON : READ_NEXT;
}

/* Makes the value at hand one in small letters. Returns the field that it then is of. */
__noinline int fold_value(struct reading *r) {
  if (!r)
    return READ_BAD;
  for (__u32 i = 0, at = 0; i < MAX_TEXT / FOLD_RUN && at < r->text.length; i++)
    at = text_fold_some(&r->text, at);
  return r->folded & (MAX_FIELDS - 1);
}

/* One reading: of the next piece if `value`, what the last one came to, says so, up to a value that rules ask
 * for. Returns what it comes to. */
__noinline int read_step(struct __sk_buff *skb, struct work *w, struct reading *r, __u32 node, __u32 value) {
  if (!w || !r || (value == READ_NEXT && !next_piece(skb, w, r, node)))
    return READ_BAD;
  value = forget(value == READ_FOLDED ? fold_value(r) : read_values(w, r), r->text.factor);
  if (value < MAX_FIELDS)
    match_value(r, value);
  else if (value == READ_FORWARDED)
    on_forwarded(r);
  if (value < MAX_FIELDS && r->keyed)
    note_key(r, value);
  return value < MAX_FIELDS && r->folded ? READ_FOLDED : value;
}

/* Readings of one turn. */
#define READING_TURN 32

/* Goes on with some readings, as read_step() with one. */
__noinline int read_turn(struct __sk_buff *skb, struct work *w, struct reading *r, __u32 node, __u32 value) {
  for (int i = 0; i < READING_TURN && value < READ_END; i++)
    value = read_step(skb, w, r, node, value);
  return value;
}

/* Reads the head at w->reading, in the packet or, unless `node` is 0, in the frame in its slot. The rule is
 * in the reading. False: it may be read in two ways. */
static __always_inline bool read_head(struct __sk_buff *skb, struct work *w, struct reading *r, __u32 node) {
  int value = READ_NEXT;
  for (int i = 0; i < MAX_READINGS / READING_TURN && value < READ_END; i++)
    value = read_turn(skb, w, r, node, value);
  r->complex |= value < READ_END;
  return value != READ_BAD;
}

/* Finds the rule of what has been read, if that is one that asks for several fields, for whom the request is
 * from or for where it is to. */
static __always_inline void find_joint(const struct work *w, struct reading *r) {
  if (!r->graph)
    return;
  note_absent(r);
  note_lists(r, &w->from);
  note_places(r, &w->from, &w->s.p);
  walk_graph(r);
}

#define NAME_RUN 4

/* Adds bytes of a ClientHello's name, or of one of its protocols, to the text. Returns where it came to. */
__noinline int copy_name(struct reading *r, __u32 from, __u32 end, __u32 field) {
  if (!r)
    return 0;
  struct text *t = &r->text;
  const __u8 *bytes = field == FIELD_SNI ? r->names.name : r->names.protocols;
  __u32 n = t->length;
  __u64 hash = text_hash(t, n), factor = t->factor;
  for (int i = 0; i < NAME_RUN && from < end; i++) {
    __u8 b = bytes[text_opaque(from) & (HELLO_NAME - 1)];
    hash = text_put(t, n, hash, field == FIELD_SNI ? text_lower(b) : b, factor);
    n++;
    from++;
  }
  t->length = n;
  return from;
}

/* Reads a value of a ClientHello as a text. */
__noinline int read_name(struct reading *r, __u32 from, __u32 length, __u32 field) {
  if (!r)
    return 0;
  __u32 end = from + length;
  text_begin(&r->text, r->head.seed);
  for (int i = 0; i < HELLO_NAME / NAME_RUN && from < end; i++)
    from = copy_name(r, from, end, field);
  if (field == FIELD_SNI && r->text.length && text_byte(&r->text, r->text.length - 1) == '.')
    r->text.length--;
  return 0;
}

/* Protocols of a ClientHello that are looked at. */
#define MAX_PROTOCOLS 32

/* Reads the next protocol, from r->pos on. False: there is none. */
__noinline int next_protocol(struct reading *r) {
  if (!r || r->pos >= r->names.alpn)
    return 0;
  __u32 length = r->names.protocols[r->pos & (HELLO_NAME - 1)];
  read_name(r, r->pos + 1, length, FIELD_ALPN);
  r->pos += 1 + length;
  return 1;
}

/* Reads the fingerprint of a ClientHello as a text. */
__noinline int read_print(const struct work *w, struct reading *r) {
  if (!w || !r)
    return 0;
  text_begin(&r->text, r->head.seed);
  __u64 hash = text_hash(&r->text, 0), factor = r->text.factor;
  for (__u32 i = 0; i < JA4_LENGTH; i++)
    hash = text_put(&r->text, i, hash, w->print.text[i], factor);
  r->text.length = JA4_LENGTH;
  return 0;
}

/* Reads a ClientHello as read_head() does a head. What is none says nothing. A function of its own for what
 * it has in the stack. */
__noinline int read_hello(struct __sk_buff *skb, struct work *w, struct reading *r, __u32 node) {
  int step = HTTP_MORE;
  if (!w || !r)
    return 0;
  __builtin_memset(&r->names, 0, sizeof(r->names));
  for (int i = 0; i < MAX_FIELDS / 64; i++)
    r->absent[i] = 0; /* that is asked of heads */
  for (int i = 0; i < MAX_SLOT_SIZE / HTTP_CHUNK + 2 && step == HTTP_MORE; i++) {
    if (!next_piece(skb, w, r, node))
      break;
    step = hello_names(&r->names, &w->chunk, r->end);
  }
  bool named = step == HTTP_END && r->names.sni;
  if (!named)
    count_reason(REASON_NO_SNI, false, false);
  if (named && r->asks >> FIELD_SNI & 1) {
    read_name(r, 0, r->names.sni, FIELD_SNI);
    match_text(r, FIELD_SNI);
  }
  r->pos = step == HTTP_END && r->asks >> FIELD_ALPN & 1 ? 0 : HELLO_NAME;
  for (int i = 0; i < MAX_PROTOCOLS && next_protocol(r); i++)
    match_text(r, FIELD_ALPN);
  if (w->printed) {
    read_print(w, r);
    match_text(r, FIELD_JA4);
  }
  return 0;
}
