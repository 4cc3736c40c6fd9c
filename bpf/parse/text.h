/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The text of one value of a request, in the form in which rules compare it, with the hashes of its
 * beginnings. Calls no helper: it is compiled natively, too, and compared with plain Go. */
#pragma once
#include "parse/http.h"

/* The hash of a text goes byte by byte from a secret seed on, each step like one of FNV-1a but by a
 * factor of 64 bits, which is secret, too. Who knows neither cannot choose two texts whose hashes meet. */
struct text {
  __u64 factor;   /* odd */
  __u32 length;   /* bytes */
  __u32 segment;  /* of a path: where its last segment begins */
  __u32 segments; /* of a path: how many are kept before that */
  __u8 place;     /* enum text_place */
  __u8 digit;     /* first of an escape */
  __u8 cut;       /* 1: behind a semicolon in a segment, of which nothing is kept */
  __u8 bad;       /* 1: an escape is none, or stands for NUL */
  __u8 byte[MAX_TEXT];
  __u64 hash[MAX_LITERAL + 1]; /* of so many bytes from the beginning */
  __u64 tail[MAX_LITERAL + 1]; /* of so many from the end, the last first; see text_tail() */
  __u16 begin[MAX_TEXT / 2];   /* of the segments of a path that are kept */
};

enum text_place {
  TEXT_AT_PLAIN,
  TEXT_AT_ESCAPE, /* behind a percent sign */
  TEXT_AT_DIGIT,  /* behind that and a digit */
};

/* The number itself, of which clang knows nothing any more, so that it keeps the mask that comes: that
 * is for the verifier. */
static __always_inline __u32 text_opaque(__u32 n) {
  asm volatile("" : "+r"(n));
  return n;
}

/* The finalizer of a hash: each bit of the input changes each of the result with a chance of one half
 * (after MurmurHash3's, Appleby 2011). */
static __always_inline __u64 match_mix(__u64 x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  return x ^ x >> 32;
}

static __always_inline __u64 text_step(__u64 hash, __u8 b, __u64 factor) { return (hash ^ b) * factor; }

static __always_inline __u64 text_hash(const struct text *t, __u32 n) {
  return t->hash[text_opaque(n) & MAX_LITERAL];
}

static __always_inline __u8 text_byte(const struct text *t, __u32 at) {
  return t->byte[text_opaque(at) & (MAX_TEXT - 1)];
}

/* A text begins, empty. */
static __always_inline void text_begin(struct text *t, __u64 seed) {
  t->length = t->segment = t->segments = 0;
  t->place = TEXT_AT_PLAIN;
  t->cut = t->bad = 0;
  t->hash[0] = seed;
}

/* Adds a byte behind the first n, whose hash is given; returns that of both. Beyond MAX_LITERAL
 * bytes no hash is kept, and none is asked for. */
static __always_inline __u64 text_put(struct text *t, __u32 n, __u64 hash, __u8 b, __u64 factor) {
  hash = text_step(hash, b, factor);
  t->byte[text_opaque(n) & (MAX_TEXT - 1)] = b;
  if (n < MAX_LITERAL)
    t->hash[text_opaque(n + 1) & MAX_LITERAL] = hash;
  return hash;
}

static __always_inline void text_add(struct text *t, __u8 b) {
  __u32 n = t->length;
  if (n >= MAX_TEXT)
    return;
  text_put(t, n, text_hash(t, n), b, t->factor);
  t->length = n + 1;
}

/* Blanks that are taken off the end at once. */
#define TEXT_BLANKS 64

/* Takes some blanks off the end. Returns how many. */
__noinline int text_trim_some(struct text *t) {
  int i = 0;
  if (!t)
    return 0;
  for (; i < TEXT_BLANKS && t->length && http_is_space(text_byte(t, t->length - 1)); i++)
    t->length--;
  return i;
}

/* Takes blanks off the end. */
static __always_inline void text_trim(struct text *t) {
  for (int i = 0; i < MAX_TEXT / TEXT_BLANKS && text_trim_some(t) == TEXT_BLANKS; i++)
    ;
}

/* What ends a run of bytes that are copied: bits of text_kinds. */
enum text_stop {
  TEXT_STOP_LINE = 1,    /* the end of a line */
  TEXT_STOP_PATH = 2,    /* that, and what a path does not take as it is */
  TEXT_STOP_SPACE = 4,   /* also a space */
  TEXT_STOP_NAME = 8,    /* also a colon */
  TEXT_STOP_COOKIE = 16, /* also a semicolon */
  TEXT_STOP_CRUMB = 32,  /* also that and an equals sign */
  TEXT_LOWER = 64,       /* beside a stop: letters become lower-case ones */
};

#define TEXT_STOP_ALL 63

static const __u8 text_kinds[256] = {
    ['\r'] = TEXT_STOP_ALL,
    ['\n'] = TEXT_STOP_ALL,
    [' '] = TEXT_STOP_PATH | TEXT_STOP_SPACE,
    ['%'] = TEXT_STOP_PATH,
    ['/'] = TEXT_STOP_PATH,
    ['#'] = TEXT_STOP_PATH,
    ['?'] = TEXT_STOP_PATH,
    [';'] = TEXT_STOP_PATH | TEXT_STOP_COOKIE | TEXT_STOP_CRUMB,
    ['='] = TEXT_STOP_CRUMB,
    [':'] = TEXT_STOP_NAME,
};

static __always_inline __u8 text_lower(__u8 b) { return b >= 'A' && b <= 'Z' ? b | 0x20 : b; }

/* Bytes that a run takes at most. */
#define TEXT_RUN 32

/* Whether a run goes on over the byte: a path's slash behind a segment that surely stays. */
static __always_inline bool path_passes(struct text *t, __u32 n, __u8 b) {
  __u8 last = text_byte(t, n - 1);
  if (b != '/' || last == '/' || last == '.')
    return false;
  t->begin[t->segments & (MAX_TEXT / 2 - 1)] = t->segment;
  t->segments++;
  t->segment = n + 1;
  return true;
}

/* Bytes that a run takes, of what is at hand and what there is room for. */
static __always_inline __u32 text_room(const struct text *t, __u32 span) {
  __u32 n = (span >> 16) - (span & 0xffff), room = MAX_TEXT - t->length;
  n = n < room ? n : room;
  return n < TEXT_RUN ? n : TEXT_RUN;
}

/* Copies bytes of the chunk up to one that stops it, the end, or TEXT_RUN of them. `span` is where
 * that begins, and in its upper half where it ends. Returns where it came to. */
static __always_inline __u32 text_take(struct text *t, const struct http_chunk *c, __u32 span, __u32 stop) {
  __u32 pos = span & 0xffff, n = t->length, count = text_room(t, span);
  __u64 hash = text_hash(t, n), factor = t->factor;
  for (__u32 i = 0; i < TEXT_RUN; i++) {
    if (i >= count)
      break;
    __u8 b = c->byte[text_opaque(pos) & (HTTP_CHUNK - 1)];
    if (text_kinds[b] & stop && !(stop == TEXT_STOP_PATH && path_passes(t, n, b)))
      break;
    hash = text_put(t, n, hash, stop & TEXT_LOWER ? text_lower(b) : b, factor);
    n++;
    pos++;
  }
  t->length = n;
  return pos;
}

/* Global, so that the verifier looks at it once. */
__noinline int text_copy(struct text *t, const struct http_chunk *c, __u32 span, __u32 stop) {
  return t && c ? text_take(t, c, span, stop) : 0;
}

/* The same in a path, for speed. */
__noinline int path_copy(struct text *t, const struct http_chunk *c, __u32 span) {
  return t && c ? text_take(t, c, span, TEXT_STOP_PATH) : 0;
}

/* The same without copying. */
__noinline int text_pass(const struct http_chunk *c, __u32 span, __u32 stop) {
  if (!c)
    return 0;
  __u32 pos = span & 0xffff, end = span >> 16;
  for (int i = 0; i < TEXT_RUN && pos < end; i++) {
    if (text_kinds[c->byte[pos & (HTTP_CHUNK - 1)]] & stop)
      break;
    pos++;
  }
  return pos;
}

static __always_inline void text_run(struct text *t, struct http_reader *r, __u32 stop) {
  r->pos = text_copy(t, r->chunk, r->length << 16 | r->pos, stop);
}

static __always_inline void text_skip(struct http_reader *r, __u32 stop) {
  r->pos = text_pass(r->chunk, r->length << 16 | r->pos, stop);
}

/* A path begins, behind its first slash. */
static __always_inline void path_begin(struct text *t, __u64 seed) {
  text_begin(t, seed);
  text_add(t, '/');
  t->segment = 1;
}

/* A path's last segment has ended: takes it away again if it is ".", and with it the one before
 * if it is "..". True: it is kept. */
static __always_inline bool path_keeps(struct text *t) {
  __u32 n = t->length, begin = t->segment, length = n - begin;
  t->cut = 0;
  if (length == 0)
    return false;
  if (length > 2 || text_byte(t, begin) != '.' || text_byte(t, n - 1) != '.')
    return true;
  if (length == 2 && t->segments) {
    t->segments--;
    t->segment = begin = t->begin[t->segments & (MAX_TEXT / 2 - 1)];
  }
  t->length = begin;
  return false;
}

/* A slash in a path, as such or by an escape. */
static __always_inline void path_slash(struct text *t) {
  if (!path_keeps(t))
    return;
  t->begin[t->segments & (MAX_TEXT / 2 - 1)] = t->segment;
  t->segments++;
  text_add(t, '/');
  t->segment = t->length;
}

/* A byte of a path, as such or by an escape. */
static __always_inline void path_byte(struct text *t, __u8 b) {
  if (b == '/')
    path_slash(t);
  else if (b == ';')
    t->cut = 1;
  else if (!t->cut)
    text_add(t, b);
}

/* A byte in or behind an escape. */
static __always_inline void path_escape(struct text *t, __u8 b) {
  __u32 digit = http_hex(b);
  if (digit > 15) {
    t->bad = 1;
  } else if (t->place == TEXT_AT_ESCAPE) {
    t->digit = digit;
    t->place = TEXT_AT_DIGIT;
  } else {
    digit |= t->digit << 4;
    t->place = TEXT_AT_PLAIN;
    t->bad |= !digit;
    path_byte(t, digit);
  }
}

/* Whether the byte is not of the path any more: query, fragment, or what comes behind the target. */
static __always_inline bool path_ends(__u8 b) { return b <= ' ' || b == '?' || b == '#'; }

/* Goes on with a path by the bytes at hand. True: it has ended before r->pos. */
static __always_inline bool path_turn(struct text *t, struct http_reader *r) {
  if (t->place == TEXT_AT_PLAIN && !t->cut)
    r->pos = path_copy(t, r->chunk, r->length << 16 | r->pos);
  if (http_used_up(r))
    return false;
  __u8 b = http_byte(r);
  if (path_ends(b)) {
    __u32 length = t->length - t->segment;
    /* Of dots at the end some servers make a path with a slash at its end, some one without. */
    t->bad |= t->place != TEXT_AT_PLAIN || (!path_keeps(t) && length);
    return true;
  }
  r->pos++;
  if (t->place != TEXT_AT_PLAIN)
    path_escape(t, b);
  else if (b == '%')
    t->place = TEXT_AT_ESCAPE;
  else
    path_byte(t, b);
  return false;
}

/* What hosts are of: names, or addresses between brackets. */
enum host_kind { HOST_NAME, HOST_ADDRESS };

/* Bits of the bytes that they may have: - . _ 0-9 a-z, and % . 0-9 : a-f. */
static const __u64 host_sets[2][4] = {
    [HOST_NAME] = {0x3ff600000000000, 0x7fffffe80000000, 0x0, 0x0},
    [HOST_ADDRESS] = {0x7ff402000000000, 0x7e00000000, 0x0, 0x0},
};

#define MAX_HOST 255

/* Whether all bytes between two places may be in a host of that kind. */
__noinline int host_takes(const struct text *t, __u32 from, __u32 to, __u32 kind) {
  if (!t)
    return 0;
  __u64 takes = 1;
  for (__u32 i = 0; i < MAX_HOST; i++) {
    if (from >= to)
      break;
    __u8 b = text_byte(t, from);
    takes &= host_sets[kind & 1][b >> 6] >> (b & 63);
    from++;
  }
  return takes;
}

/* Where the host ends in a text that may have a port behind it. */
__noinline int host_end(const struct text *t) {
  if (!t)
    return 0;
  __u32 n = t->length;
  for (int i = 0; i < MAX_HOST; i++) {
    __u8 b = text_byte(t, n - 1);
    if (n == 0 || (b != ':' && (b < '0' || b > '9')))
      break;
    n--;
    if (b == ':')
      return n;
  }
  return t->length;
}

/* Makes of a text that came as a host what it names: without a port, and without the dot of the
 * root. False: it may name different hosts to different readers. */
__noinline int host_settle(struct text *t) {
  if (!t || t->length > MAX_HOST)
    return 0;
  __u32 n = host_end(t);
  if (n > 1 && t->byte[0] == '[') {
    t->length = n;
    return text_byte(t, n - 1) == ']' && host_takes(t, 1, n - 1, HOST_ADDRESS);
  }
  t->length = n && text_byte(t, n - 1) == '.' ? n - 1 : n;
  return t->length && host_takes(t, 0, n, HOST_NAME);
}
