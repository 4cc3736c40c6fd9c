/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The text of one value of a request, in the form in which rules compare it, with the hashes of its
 * beginnings. Calls no helper: it is compiled natively, too, and compared with plain Go. */
#pragma once
#include "parse/http.h"

/* Bytes that a run takes at most. */
#define TEXT_RUN HTTP_AHEAD

/* The hash of a text goes byte by byte from a secret seed on, each step like one of FNV-1a but by a
 * factor of 64 bits, which is secret, too. Who knows neither cannot choose two texts whose hashes meet. */
struct text {
  __u64 factor;  /* odd */
  __u32 length;  /* bytes */
  __u32 segment; /* of a path: where its last segment begins */
  __u8 place;    /* enum text_place */
  __u8 digit;    /* first of an escape */
  __u8 cut;      /* 1: behind a semicolon in a segment, of which nothing is kept */
  __u8 bad;      /* 1: it is too long, or servers could read it in two ways */
  __u8 byte[MAX_TEXT + TEXT_RUN];
  /* Of so many bytes from the beginning. Behind MAX_LITERAL there is what nobody asks for. */
  __u64 hash[2 * (MAX_LITERAL + 1) + TEXT_RUN];
  __u64 tail[MAX_LITERAL + 1]; /* of so many from the end, the last first; see text_tail() */
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
  t->length = t->segment = 0;
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
  if (n >= MAX_TEXT) {
    t->bad = 1;
    return;
  }
  text_put(t, n, text_hash(t, n), b, t->factor);
  t->length = n + 1;
}

static __always_inline bool text_ends_blank(const struct text *t) {
  return t->length && http_is_space(text_byte(t, t->length - 1));
}

/* Blanks that are taken off the end at once, and how often in one turn. */
#define TEXT_BLANKS 16
#define TEXT_TRIMS 32

/* Takes some blanks off the end. */
__noinline int text_trim_some(struct text *t) {
  for (int i = 0; t && i < TEXT_BLANKS && text_ends_blank(t); i++)
    t->length--;
  return 0;
}

/* Takes more of them. */
__noinline int text_trim_more(struct text *t) {
  for (int i = 0; t && i < TEXT_TRIMS && text_ends_blank(t); i++)
    text_trim_some(t);
  return 0;
}

/* Takes blanks off the end. */
static __always_inline void text_trim(struct text *t) {
  for (int i = 0; i < MAX_TEXT / (TEXT_BLANKS * TEXT_TRIMS) && text_ends_blank(t); i++)
    text_trim_more(t);
}

/* What ends a run of bytes that are copied: bits of text_kinds. */
enum text_stop {
  TEXT_STOP_LINE = 1,    /* the end of a line */
  TEXT_STOP_PATH = 2,    /* that, and what a path does not take as it is */
  TEXT_STOP_SPACE = 4,   /* also a space */
  TEXT_STOP_NAME = 8,    /* also a colon and an underscore */
  TEXT_STOP_COOKIE = 16, /* also a semicolon */
  TEXT_STOP_CRUMB = 32,  /* also that and an equals sign */
  TEXT_LOWER = 64,       /* beside a stop: letters become lower-case ones */
  TEXT_CAPITAL = 128,    /* of text_kinds alone: a capital letter */
  TEXT_STOP_QUERY = 256, /* also what a query does not take as it is */
  TEXT_STOP_KEY = 512,   /* also that and an equals sign */
};

#define TEXT_STOP_ALL (63 | TEXT_STOP_QUERY | TEXT_STOP_KEY)
#define TEXT_STOP_BOTH (TEXT_STOP_QUERY | TEXT_STOP_KEY)

static const __u16 text_kinds[256] = {
    ['\r'] = TEXT_STOP_ALL,
    ['\n'] = TEXT_STOP_ALL,
    [' '] = TEXT_STOP_PATH | TEXT_STOP_SPACE | TEXT_STOP_BOTH,
    ['%'] = TEXT_STOP_PATH | TEXT_STOP_BOTH,
    ['/'] = TEXT_STOP_PATH,
    ['#'] = TEXT_STOP_PATH | TEXT_STOP_BOTH,
    ['&'] = TEXT_STOP_BOTH,
    ['+'] = TEXT_STOP_BOTH,
    ['?'] = TEXT_STOP_PATH,
    [';'] = TEXT_STOP_PATH | TEXT_STOP_COOKIE | TEXT_STOP_CRUMB,
    ['='] = TEXT_STOP_CRUMB | TEXT_STOP_KEY,
    [':'] = TEXT_STOP_NAME,
    ['_'] = TEXT_STOP_NAME,
    ['A' ... 'Z'] = TEXT_CAPITAL,
    [0x80 ... 0xff] = TEXT_STOP_PATH,
};

static __always_inline __u8 text_lower(__u8 b) { return b >= 'A' && b <= 'Z' ? b | 0x20 : b; }

_Static_assert(TEXT_CAPITAL / 4 == ('a' ^ 'A'), "the bit that makes a capital letter a lower-case one");

/* Has a loop of a known number of turns written out, for speed. */
#ifdef __bpf__
#define TEXT_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define TEXT_UNROLLED
#endif

/* Where a run reads and writes. */
struct text_cursor {
  const __u8 *from;
  __u8 *to;
  __u64 *hash;
  __u64 last;  /* hash of what is there */
  __u32 count; /* of bytes that it may take */
};

/* Bytes that a run takes, of what is at hand and what there is room for. */
static __always_inline __u32 text_room(const struct text *t, __u32 span) {
  __u32 n = (span >> 16) - (span & 0xffff), room = MAX_TEXT - t->length;
  n = n < room ? n : room;
  return n < TEXT_RUN ? n : TEXT_RUN;
}

/* `span` is where the bytes of the chunk begin, and in its upper half where they end. */
static __always_inline struct text_cursor text_cursor(struct text *t, const struct http_chunk *c,
                                                      __u32 span) {
  __u32 n = t->length, over = (MAX_LITERAL - n) >> 31;
  struct text_cursor x = {
      .from = &c->byte[text_opaque(span & 0xffff) & (HTTP_CHUNK - 1)],
      .to = &t->byte[text_opaque(n) & (MAX_TEXT - 1)],
      .hash =
          &t->hash[(text_opaque((n & MAX_LITERAL) + over * (MAX_LITERAL + 1)) & (2 * MAX_LITERAL + 1)) + 1],
      .last = text_hash(t, n),
      .count = text_room(t, span),
  };
  return x;
}

/* Adds a byte, the one of that number that the run takes. */
static __always_inline void text_next(struct text_cursor *x, __u32 i, __u8 b, __u64 factor) {
  x->to[i] = b;
  x->hash[i] = x->last = text_step(x->last, b, factor);
}

/* Copies bytes up to one that stops it, the end, or TEXT_RUN of them. Returns how many. Unrolled, for
 * speed. */
__noinline int text_copy(struct text *t, const struct http_chunk *c, __u32 span, __u32 stop) {
  if (!t || !c)
    return 0;
  struct text_cursor x = text_cursor(t, c, span);
  __u64 factor = t->factor;
  __u32 capitals = stop & TEXT_LOWER ? TEXT_CAPITAL : 0, i = 0;
  TEXT_UNROLLED
  for (; i < TEXT_RUN; i++) {
    __u8 b = x.from[i];
    __u32 kind = text_kinds[b];
    if (i >= x.count || kind & stop)
      break;
    text_next(&x, i, b | (kind & capitals) / 4, factor);
  }
  t->length += i;
  return i;
}

/* The same in a path: a slash behind a segment that surely stays is taken, too. */
__noinline int path_copy(struct text *t, const struct http_chunk *c, __u32 span) {
  if (!t || !c)
    return 0;
  struct text_cursor x = text_cursor(t, c, span);
  __u64 factor = t->factor;
  __u32 n = t->length, i = 0;
  __u8 last = text_byte(t, n - 1);
  TEXT_UNROLLED
  for (; i < TEXT_RUN; i++) {
    __u8 b = x.from[i];
    if (i >= x.count)
      break;
    if (text_kinds[b] & TEXT_STOP_PATH) {
      if (b != '/' || last == '/' || last == '.')
        break;
      t->segment = n + i + 1;
    }
    text_next(&x, i, b, factor);
    last = b;
  }
  t->length = n + i;
  return i;
}

/* Not zero in the first byte of the word that is a certain one, zero in those before it. */
static __always_inline __u64 text_find(__u64 w, __u8 b) {
  w ^= HTTP_EACH(b);
  return (w - HTTP_EACH(1)) & ~w & HTTP_EACH(0x80);
}

/* Runs that are taken at once. */
#define TEXT_RUNS 4

static __always_inline void text_run(struct text *t, struct http_reader *r, __u32 stop) {
  for (int i = 0; i < TEXT_RUNS; i++) {
    __u32 n = text_copy(t, r->chunk, r->length << 16 | r->pos, stop);
    http_advance(r, n);
    if (n < TEXT_RUN)
      break;
  }
}

/* Goes on to the end of a cookie, or gives up for now. */
static __always_inline void text_skip(struct http_reader *r) {
  for (int i = 0; i < 16 && r->pos < r->length; i++) {
    __u64 w = http_bytes(r), found = text_find(w, ';') | text_find(w, '\r') | text_find(w, '\n');
    http_advance(r, http_zeros(found));
    if (found)
      break;
  }
  http_stop(r);
}

/* A path begins, behind its first slash. */
static __always_inline void path_begin(struct text *t, __u64 seed) {
  text_begin(t, seed);
  text_add(t, '/');
  t->segment = 1;
}

/* A path's last segment has ended: takes it away again if it is of dots. True: it is kept. Not all servers
 * take away the segment before "..", nor are dots before a semicolon such to all. */
static __always_inline bool path_keeps(struct text *t) {
  __u32 n = t->length, begin = t->segment, length = n - begin;
  bool cut = t->cut;
  t->cut = 0;
  if (length == 0)
    return false;
  if (length > 2 || text_byte(t, begin) != '.' || text_byte(t, n - 1) != '.')
    return true;
  t->bad |= cut || (length == 2 && begin > 1);
  t->length = begin;
  return false;
}

/* A slash in a path, as such or by an escape. */
static __always_inline void path_slash(struct text *t) {
  if (!path_keeps(t))
    return;
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

/* A byte in or behind an escape. True: the escape ends with it, and stands for the byte in t->digit. */
static __always_inline bool text_escape(struct text *t, __u8 b) {
  __u32 digit = http_hex(b);
  bool second = t->place == TEXT_AT_DIGIT;
  t->bad |= digit > 15;
  t->digit = second ? t->digit << 4 | digit : digit;
  t->place = second ? TEXT_AT_PLAIN : TEXT_AT_DIGIT;
  return second;
}

/* Whether the byte is not of the path any more: query, fragment, or what comes behind the target. */
static __always_inline bool path_ends(__u8 b) { return b <= ' ' || b == '?' || b == '#'; }

/* Goes on with a path by the bytes at hand. True: it has ended before r->pos. */
static __always_inline bool path_turn(struct text *t, struct http_reader *r) {
  for (int i = 0; i < TEXT_RUNS && t->place == TEXT_AT_PLAIN && !t->cut; i++) {
    __u32 n = path_copy(t, r->chunk, r->length << 16 | r->pos);
    http_advance(r, n);
    if (n < TEXT_RUN)
      break;
  }
  if (http_used_up(r))
    return false;
  __u8 b = http_byte(r);
  /* Some servers cut fragments off, and some make two bytes of one beyond ASCII. */
  t->bad |= b == '#' || b >= 0x80;
  if (path_ends(b)) {
    __u32 length = t->length - t->segment;
    /* Of dots at the end some servers make a path with a slash at its end, some one without. */
    t->bad |= t->place != TEXT_AT_PLAIN || (!path_keeps(t) && length);
    return true;
  }
  r->pos++;
  if (t->place == TEXT_AT_PLAIN && b == '%') {
    t->place = TEXT_AT_ESCAPE;
  } else if (t->place == TEXT_AT_PLAIN) {
    path_byte(t, b);
  } else if (text_escape(t, b)) {
    t->bad |= !t->digit;
    path_byte(t, t->digit);
  }
  return false;
}

/* Goes on with the name of a parameter of a query, or with its value (WHATWG URL Standard,
 * application/x-www-form-urlencoded). True: it has ended before r->pos. */
static __always_inline bool query_turn(struct text *t, struct http_reader *r, __u32 stop) {
  if (t->place == TEXT_AT_PLAIN)
    text_run(t, r, stop);
  if (http_used_up(r))
    return false;
  __u8 b = http_byte(r);
  if (t->place != TEXT_AT_PLAIN) {
    r->pos++;
    if (text_escape(t, b))
      text_add(t, t->digit);
  } else if (b == '%' || b == '+') {
    r->pos++;
    if (b == '+')
      text_add(t, ' ');
    else
      t->place = TEXT_AT_ESCAPE;
  } else {
    t->bad |= b == '#'; /* some servers cut fragments off */
    return text_kinds[b] & stop;
  }
  return false;
}

/* Letters that are folded at once. */
#define FOLD_RUN 32

/* Makes capital letters small ones, from the byte at a place on, as far as some go. Returns where to. */
__noinline int text_fold_some(struct text *t, __u32 at) {
  if (!t)
    return 0;
  __u64 hash = text_hash(t, at), factor = t->factor;
  for (int i = 0; i < FOLD_RUN && at < t->length; i++) {
    hash = text_put(t, at, hash, text_lower(text_byte(t, at)), factor);
    at++;
  }
  return at;
}

/* What hosts are of: names, or addresses between brackets. */
enum host_kind { HOST_NAME, HOST_ADDRESS };

/* Bits of the bytes that they may have: - . _ 0-9 a-z, and % . 0-9 : a-f. */
static const __u64 host_sets[2][4] = {
    [HOST_NAME] = {0x3ff600000000000, 0x7fffffe80000000, 0x0, 0x0},
    [HOST_ADDRESS] = {0x7ff402000000000, 0x7e00000000, 0x0, 0x0},
};

#define MAX_HOST 255

/* Bytes of a host that are looked at once. */
#define HOST_RUN 16

/* Whether all bytes between two places may be in a host of that kind, as far as some go. */
__noinline int host_takes_some(const struct text *t, __u32 from, __u32 to, __u32 kind) {
  if (!t)
    return 0;
  __u64 takes = 1;
  for (__u32 i = 0; i < HOST_RUN; i++) {
    if (from >= to)
      break;
    __u8 b = text_byte(t, from);
    takes &= host_sets[kind & 1][b >> 6] >> (b & 63);
    from++;
  }
  return takes;
}

/* Whether all of them may. */
__noinline int host_takes(const struct text *t, __u32 from, __u32 to, __u32 kind) {
  for (__u32 i = 0; i <= MAX_HOST / HOST_RUN; i++) {
    if (from >= to)
      break;
    if (!host_takes_some(t, from, to, kind))
      return 0;
    from += HOST_RUN;
  }
  return !!t;
}

/* Goes back over digits at the end of a host, from behind so many of its bytes, as far as some go. Returns
 * where to. */
__noinline int host_digits(const struct text *t, __u32 n) {
  for (int i = 0; t && i < HOST_RUN; i++) {
    __u8 b = text_byte(t, n - 1);
    if (n == 0 || b < '0' || b > '9')
      break;
    n--;
  }
  return n;
}

/* Where the host ends in a text that may have a port behind it. */
__noinline int host_end(const struct text *t) {
  if (!t)
    return 0;
  __u32 n = t->length;
  for (int i = 0; i <= MAX_HOST / HOST_RUN; i++) {
    __u32 before = host_digits(t, n);
    if (n - before < HOST_RUN) {
      n = before;
      break;
    }
    n = before;
  }
  return n && text_byte(t, n - 1) == ':' ? n - 1 : t->length;
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
