/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Follows the framing of HTTP/1.x (RFC 9112) through the bytes of a connection: where a
 * request's head ends, how long its body is, or where that ends if it comes in chunks, whether
 * the connection outlives it. Calls no helper: the same source is compiled natively and
 * compared with plain Go.
 *
 * It goes by one rule: what two readers could frame differently is not followed. */
#pragma once
#include "abi/types.h"
#include "parse/label.h"

#define HTTP_CHUNK 512
#define HTTP_MAX_LENGTH (1U << 30) /* of a body, or a chunk of one */
#define HTTP_MAX_SIZE_DIGITS 8

/* Readers read ahead without asking whether so many bytes are there: those behind the chunk may be anything,
 * like those behind its length. */
#define HTTP_AHEAD 32

struct http_chunk {
  __u8 byte[HTTP_CHUNK];
  __u8 behind[HTTP_AHEAD];
};

/* Where in a request's head, or in the chunks of its body, the bytes read so far end; all zero
 * before the first. Kept between segments, which may cut them anywhere. `flags` is valid once
 * the head has ended, and `size` final, `length` once http_scan() says HTTP_END; the rest is its
 * own. */
struct http_head {
  __u64 length; /* Content-Length, 0 without one; in a chunk what is left of it */
  __u8 flags;   /* enum http_flag */
  __u8 place;   /* enum http_place */
  __u8 word;    /* enum http_word_id, what is being compared */
  __u8 at;      /* bytes of it that were there, digits of a chunk's size; in a target: 1 if it has begun */
  __u8 set;     /* enum http_set: words that are looked for */
  __u8 labels;  /* 1: Narthex-Class is read; of an answer */
  __u16 seen;   /* enum http_seen */
  __u32 size;   /* bytes of the head, as far as they were read */
  union {
    __u32 read_at;    /* 2^20 ns: when it was; the gate's, in chunks alone */
    __u32 upgrade_at; /* until the head has ended: its bytes up to the value of Upgrade; UPGRADE_TWICE; 0:
                         none */
  };
  union {
    struct label label; /* what that says, once the head has ended; class 0: it is not there */
    struct {            /* of a request, which has no label, once the head has ended */
      __u32 version_at; /* its bytes up to the end of its version, HTTP/1.1; 0: it is another one */
      __u32 keep_at;    /* its bytes up to the end of what begins with "keep-alive" in Connection; 0: nothing
                           does */
    };
  };
};

#define UPGRADE_TWICE (~0U)

enum http_flag {
  HTTP_CLOSES = 1,       /* the connection ends with this request */
  HTTP_CHUNKED = 2,      /* the body comes in chunks, through which http_scan() goes on */
  HTTP_UPGRADE = 4,      /* asks to leave HTTP/1: Upgrade with Connection: upgrade, or CONNECT */
  HTTP_EXPECT = 8,       /* Expect: 100-continue */
  HTTP_HEAD_METHOD = 16, /* the response has no body */
  HTTP_H2C = 32,         /* Upgrade names h2c: asks to go on in HTTP/2 */
  HTTP_ENDLESS = 64,     /* Content-Length is above HTTP_MAX_LENGTH; `length` is 0 and says nothing */
};

enum http_step {
  HTTP_MORE, /* all bytes used, the head goes on, or the chunks do */
  HTTP_END,  /* they ended after `used` bytes */
  HTTP_LOST, /* cannot be followed */
};

enum http_place {
  HTTP_AT_START,     /* before the request line; empty lines may come */
  HTTP_AT_START_LF,  /* after the CR of one */
  HTTP_AT_LINE,      /* at the start of a header line, or of the line that ends the head */
  HTTP_AT_LAST_LF,   /* after the CR of that */
  HTTP_AT_LIST,      /* before an element of a list */
  HTTP_AT_WORD,      /* in what may be http_head.word */
  HTTP_AT_METHOD,    /* in any other method */
  HTTP_AT_TARGET,    /* in or before the target */
  HTTP_AT_VERSION,   /* where it is no longer HTTP/1.1 */
  HTTP_AT_NAME,      /* in any other header's name */
  HTTP_AT_VALUE,     /* in a value that does not matter */
  HTTP_AT_ELEMENT,   /* in any other element of a list */
  HTTP_AT_TOKEN_END, /* after http_head.word in a list: if the element ends here it is that */
  HTTP_AT_CODING,    /* before the one of Transfer-Encoding */
  HTTP_AT_LENGTH,    /* before the digits of Content-Length */
  HTTP_AT_DIGITS,    /* in them */
  HTTP_AT_SPACE,     /* behind them, or the coding */
  HTTP_AT_EOL,       /* where a line must end */
  HTTP_AT_LF,        /* after its CR */
  HTTP_AT_LABEL,     /* in the value of Narthex-Class */
  HTTP_AT_END,       /* behind the head, or the trailer section, which is read like one */
  HTTP_AT_LOST,

  HTTP_AT_CHUNK,        /* before a chunk's size */
  HTTP_AT_CHUNK_DIGITS, /* in it */
  HTTP_AT_CHUNK_SPACE,  /* behind it */
  HTTP_AT_EXTENSION,    /* in what else the line says */
  HTTP_AT_CHUNK_LF,     /* after the line's CR */
  HTTP_AT_DATA,         /* before http_head.length bytes of data, at least one */
  HTTP_AT_DATA_CR,      /* behind them */
  HTTP_AT_DATA_LF,
};

enum http_seen {
  HTTP_SEEN_CLOSE = 1, /* tokens of Connection */
  HTTP_SEEN_KEEP_ALIVE = 2,
  HTTP_SEEN_SWITCH = 4,  /* "upgrade" */
  HTTP_SEEN_UPGRADE = 8, /* headers */
  HTTP_SEEN_LENGTH = 16, /* Content-Length */
  HTTP_SEEN_CODING = 32, /* Transfer-Encoding */
  HTTP_SEEN_EXPECT = 64, /* 100-continue */
  HTTP_SEEN_OLD = 128,   /* HTTP/1.0 */
  HTTP_SEEN_HEAD = 256,  /* methods */
  HTTP_SEEN_CONNECT = 512,
  HTTP_SEEN_PRI = 1024,
  HTTP_SEEN_H2C_TOKEN = 2048, /* of Upgrade: "h2c" */
  HTTP_SEEN_HOST = 8192,      /* Host */
  HTTP_SEEN_H2C = 4096,       /* that, once the head has ended; or HTTP/2's preface: http_is_preface() */
};

enum http_word_id {
  HTTP_WORD_NONE,
  HTTP_WORD_GET,
  HTTP_WORD_POST,
  HTTP_WORD_HEAD,
  HTTP_WORD_CONNECT,
  HTTP_WORD_PRI,
  HTTP_WORD_11,
  HTTP_WORD_10,
  HTTP_WORD_20,
  HTTP_WORD_CONNECTION, /* from here on behind the request line */
  HTTP_WORD_LENGTH,
  HTTP_WORD_CODING,
  HTTP_WORD_UPGRADE,
  HTTP_WORD_EXPECT,
  HTTP_WORD_HOST,
  HTTP_WORD_LABEL,
  HTTP_WORD_CLOSE,
  HTTP_WORD_KEEP_ALIVE,
  HTTP_WORD_SWITCH,
  HTTP_WORD_CONTINUE,
  HTTP_WORD_CHUNKED,
  HTTP_WORD_H2C,
  HTTP_WORD_LEN
};

#define HTTP_WORDS 32 /* as the verifier sees it */

/* A word that matters. Lower-case letters stand for both cases. */
struct http_word {
  __u8 text[24];
  __u8 size;      /* of the text */
  __u8 next;      /* enum http_place behind it */
  __u8 otherwise; /* enum http_place, from the first byte that differs */
  __u8 other;     /* the word that differs from it only from byte other_at on */
  __u8 other_at;
  __u8 set; /* enum http_set behind it */
  __u16 seen;
};

_Static_assert(sizeof(struct http_word) == 32, "words are read at multiples of 32");

/* What a place's words are found by: their first letter. */
enum http_set { HTTP_METHODS, HTTP_NAMES, HTTP_CONNECTION, HTTP_EXPECTATIONS, HTTP_PROTOCOLS };

#define HTTP_SETS 8 /* as the verifier sees it */

/* One more than there may be words: eight bytes are read from within the last. */
static const struct http_word http_words[HTTP_WORDS + 1] = {
    [HTTP_WORD_GET] = {"GET ", 4, HTTP_AT_TARGET, HTTP_AT_METHOD, 0, 0, 0, 0},
    [HTTP_WORD_POST] = {"POST ", 5, HTTP_AT_TARGET, HTTP_AT_METHOD, HTTP_WORD_PRI, 1, 0, 0},
    [HTTP_WORD_HEAD] = {"HEAD ", 5, HTTP_AT_TARGET, HTTP_AT_METHOD, 0, 0, 0, HTTP_SEEN_HEAD},
    [HTTP_WORD_CONNECT] = {"CONNECT ", 8, HTTP_AT_TARGET, HTTP_AT_METHOD, 0, 0, 0, HTTP_SEEN_CONNECT},
    [HTTP_WORD_PRI] = {"PRI ", 4, HTTP_AT_TARGET, HTTP_AT_METHOD, 0, 0, 0, HTTP_SEEN_PRI},
    [HTTP_WORD_11] = {"HTTP/1.1", 8, HTTP_AT_EOL, HTTP_AT_VERSION, HTTP_WORD_10, 7, 0, 0},
    [HTTP_WORD_10] = {"HTTP/1.0", 8, HTTP_AT_EOL, HTTP_AT_LOST, 0, 0, 0, HTTP_SEEN_OLD},
    [HTTP_WORD_20] = {"HTTP/2.0", 8, HTTP_AT_LOST, HTTP_AT_LOST, 0, 0, 0, HTTP_SEEN_H2C},
    [HTTP_WORD_CONNECTION] = {"connection:", 11, HTTP_AT_LIST, HTTP_AT_NAME, HTTP_WORD_LENGTH, 3,
                              HTTP_CONNECTION, 0},
    [HTTP_WORD_LENGTH] = {"content-length:", 15, HTTP_AT_LENGTH, HTTP_AT_NAME, 0, 0, 0, HTTP_SEEN_LENGTH},
    [HTTP_WORD_CODING] = {"transfer-encoding:", 18, HTTP_AT_CODING, HTTP_AT_NAME, 0, 0, 0, HTTP_SEEN_CODING},
    [HTTP_WORD_UPGRADE] = {"upgrade:", 8, HTTP_AT_LIST, HTTP_AT_NAME, 0, 0, HTTP_PROTOCOLS,
                           HTTP_SEEN_UPGRADE},
    [HTTP_WORD_EXPECT] = {"expect:", 7, HTTP_AT_LIST, HTTP_AT_NAME, 0, 0, HTTP_EXPECTATIONS, 0},
    [HTTP_WORD_HOST] = {"host:", 5, HTTP_AT_VALUE, HTTP_AT_NAME, 0, 0, 0, HTTP_SEEN_HOST},
    [HTTP_WORD_LABEL] = {"narthex-class:", 14, HTTP_AT_LABEL, HTTP_AT_NAME, 0, 0, 0, 0},
    [HTTP_WORD_CLOSE] = {"close", 5, HTTP_AT_TOKEN_END, HTTP_AT_ELEMENT, 0, 0, HTTP_CONNECTION,
                         HTTP_SEEN_CLOSE},
    [HTTP_WORD_KEEP_ALIVE] = {"keep-alive", 10, HTTP_AT_TOKEN_END, HTTP_AT_ELEMENT, 0, 0, HTTP_CONNECTION,
                              HTTP_SEEN_KEEP_ALIVE},
    [HTTP_WORD_SWITCH] = {"upgrade", 7, HTTP_AT_TOKEN_END, HTTP_AT_ELEMENT, 0, 0, HTTP_CONNECTION,
                          HTTP_SEEN_SWITCH},
    [HTTP_WORD_CONTINUE] = {"100-continue", 12, HTTP_AT_TOKEN_END, HTTP_AT_ELEMENT, 0, 0, HTTP_EXPECTATIONS,
                            HTTP_SEEN_EXPECT},
    [HTTP_WORD_CHUNKED] = {"chunked", 7, HTTP_AT_SPACE, HTTP_AT_LOST, 0, 0, 0, 0},
    [HTTP_WORD_H2C] = {"h2c", 3, HTTP_AT_TOKEN_END, HTTP_AT_ELEMENT, 0, 0, HTTP_PROTOCOLS,
                       HTTP_SEEN_H2C_TOKEN},
};

_Static_assert(HTTP_WORD_LEN <= HTTP_WORDS, "a word is found by as many bits");

#define HTTP_LETTER(byte) ((byte) & 31)

/* Which word may begin with a letter; the comparison tells. */
static const __u8 http_first[HTTP_SETS][32] = {
    [HTTP_METHODS][HTTP_LETTER('G')] = HTTP_WORD_GET,
    [HTTP_METHODS][HTTP_LETTER('P')] = HTTP_WORD_POST,
    [HTTP_METHODS][HTTP_LETTER('H')] = HTTP_WORD_HEAD,
    [HTTP_METHODS][HTTP_LETTER('C')] = HTTP_WORD_CONNECT,
    [HTTP_NAMES][HTTP_LETTER('c')] = HTTP_WORD_CONNECTION,
    [HTTP_NAMES][HTTP_LETTER('t')] = HTTP_WORD_CODING,
    [HTTP_NAMES][HTTP_LETTER('u')] = HTTP_WORD_UPGRADE,
    [HTTP_NAMES][HTTP_LETTER('e')] = HTTP_WORD_EXPECT,
    [HTTP_NAMES][HTTP_LETTER('h')] = HTTP_WORD_HOST,
    [HTTP_NAMES][HTTP_LETTER('n')] = HTTP_WORD_LABEL,
    [HTTP_CONNECTION][HTTP_LETTER('c')] = HTTP_WORD_CLOSE,
    [HTTP_CONNECTION][HTTP_LETTER('k')] = HTTP_WORD_KEEP_ALIVE,
    [HTTP_CONNECTION][HTTP_LETTER('u')] = HTTP_WORD_SWITCH,
    [HTTP_EXPECTATIONS][HTTP_LETTER('1')] = HTTP_WORD_CONTINUE,
    [HTTP_PROTOCOLS][HTTP_LETTER('h')] = HTTP_WORD_H2C,
};

/* Eight bytes at once, the first in the lowest bits. BPF has no ctz, but a multiplication. */
typedef __u64 __attribute__((may_alias)) http_u64;
typedef __u32 __attribute__((may_alias)) http_u32;
#define HTTP_EACH(byte) (0x0101010101010101ULL * (byte))
#define HTTP_FOUR(a, b, c, d) ((__u32)(a) | (__u32)(b) << 8 | (__u32)(c) << 16 | (__u32)(d) << 24)
#define HTTP_EIGHT(a, b, c, d, e, f, g, h) (HTTP_FOUR(a, b, c, d) | (__u64)HTTP_FOUR(e, f, g, h) << 32)

/* The number of zero bytes before the first that is not zero. */
static __always_inline __u32 http_zeros(__u64 w) {
  return (((((w - 1) & ~w) >> 7) & HTTP_EACH(1)) * HTTP_EACH(1)) >> 56;
}

/* Not zero in the first byte that is below `least`, which is at most 0x80; zero in those
 * before it. */
static __always_inline __u64 http_below(__u64 w, __u8 least) {
  return (w - HTTP_EACH(least)) & ~w & HTTP_EACH(0x80);
}

/* The same for the first that cannot be in a name: controls, space, and beyond ASCII; or
 * that ends it. */
static __always_inline __u64 http_no_name(__u64 w) {
  __u64 colon = w ^ HTTP_EACH(':');
  return (((w - HTTP_EACH(0x21)) | w) | ((colon - HTTP_EACH(1)) & ~colon)) & HTTP_EACH(0x80);
}

/* What is read, and how far it has been. */
struct http_reader {
  struct http_head *head;
  const struct http_chunk *chunk;
  __u32 pos;
  __u32 length;
  __u32 unknown; /* anything */
};

static __always_inline bool http_used_up(const struct http_reader *r) { return r->pos >= r->length; }

/* The byte at hand; not to be asked for when all is used up. */
static __always_inline __u8 http_byte(const struct http_reader *r) {
  __u32 at = r->pos;
  asm volatile("" : "+r"(at)); /* so that clang keeps the mask, which is for the verifier */
  return r->chunk->byte[at & (HTTP_CHUNK - 1)];
}

/* The bytes at hand, as words. What is beyond the length is anything. */
static __always_inline const http_u64 *http_words_at(const struct http_reader *r) {
  __u32 at = r->pos;
  asm volatile("" : "+r"(at));
  return (const http_u64 *)(r->chunk->byte + (at & (HTTP_CHUNK - 1)));
}

/* Eight of them. */
static __always_inline __u64 http_bytes(const struct http_reader *r) { return *http_words_at(r); }

/* A reader at a position of a chunk's so many bytes. */
static __always_inline struct http_reader http_begin(struct http_head *h, const struct http_chunk *c,
                                                     __u32 pos, __u32 length) {
  struct http_reader r = {h, c, pos, length, *(const volatile http_u32 *)c->byte};
  return r;
}

/* The number itself. The verifier follows each way that the code can go, and gives up one only
 * where it knows no more than it did when it was there before. So it is made to forget what
 * it found out of the number. */
static __always_inline __u32 http_forget(const struct http_reader *r, __u32 number) {
  number ^= r->unknown;
  asm volatile("" : "+r"(number));
  return number ^ r->unknown;
}

static __always_inline void http_advance(struct http_reader *r, __u32 n) {
  r->pos = http_forget(r, r->pos + n);
}

/* Stops at the end, if it was beyond. */
static __always_inline void http_stop(struct http_reader *r) {
  if (http_used_up(r))
    r->pos = r->length;
}

/* The functions that find go on to a byte, or to the end; or they give up for now, after
 * some bytes that it is not among, so that the verifier's way through them is short. */

/* Goes on by the number of bytes before the first of sixteen that was found. */
static __always_inline void http_go_to(struct http_reader *r, __u64 first, __u64 second) {
  __u32 n = http_zeros(first);
  http_advance(r, n + (http_zeros(second) & -(n >> 3)));
  http_stop(r);
}

/* The first byte below `least`. A step of fixed size need not wait for what is in the bytes;
 * where in them that byte is, is looked for only when it is there. */
static __always_inline void http_find_below(struct http_reader *r, __u8 least) {
  const http_u64 *w = http_words_at(r);
  for (int i = 0; i < 8; i++) {
    if (http_below(w[0], least) | http_below(w[1], least) || r->pos + 16 >= r->length)
      break;
    r->pos += 16;
    w = http_words_at(r);
  }
  http_go_to(r, http_below(w[0], least), http_below(w[1], least));
}

/* The first byte that cannot be in a name. */
static __always_inline void http_find_no_name(struct http_reader *r) {
  const http_u64 *w = http_words_at(r);
  http_go_to(r, http_no_name(w[0]), http_no_name(w[1]));
}

/* What methods are of: tchar of RFC 9110, 5.6.2, but for lower-case letters, which some servers take for
 * capital ones. */
static __always_inline bool http_is_method(__u8 b) {
  __u64 set = b < 64 ? 0x03ff6cfa00000000 : b < 128 ? 0x50000001c7fffffe : 0;
  return set >> (b & 63) & 1;
}

static __always_inline bool http_is_eol(__u8 b) { return b == '\r' || b == '\n'; }

static __always_inline bool http_is_space(__u8 b) { return b == ' ' || b == '\t'; }

/* Prepares for the word of a set that may begin with the byte. */
static __always_inline int http_expect(struct http_head *h, __u32 set, __u8 byte, int otherwise) {
  __u8 word = http_first[set & (HTTP_SETS - 1)][HTTP_LETTER(byte)];
  h->word = word;
  h->at = 0;
  return word ? HTTP_AT_WORD : otherwise;
}

/* The functions below go on in one place each and return in which they stop. Each uses at
 * least a byte or stops in another place that will. */

static __always_inline int http_lf(struct http_reader *r, int next) {
  __u8 b = http_byte(r);
  r->pos++;
  return b == '\n' ? next : HTTP_AT_LOST;
}

/* Reads the end of a line: CR LF. `cut` is the place between the two. Of an LF alone some servers say that it
 * ends a line, others that it does not. */
static __always_inline int http_eol(struct http_reader *r, int cut, int next) {
  if (http_byte(r) != '\r')
    return HTTP_AT_LOST;
  r->pos++;
  return http_used_up(r) ? cut : http_lf(r, next);
}

static __always_inline int http_start(struct http_reader *r) {
  __u8 b = http_byte(r);
  if (http_is_eol(b))
    return http_eol(r, HTTP_AT_START_LF, HTTP_AT_START);
  if (b == ' ')
    return HTTP_AT_LOST;
  if (r->length - r->pos >= 4 && (__u32)http_bytes(r) == HTTP_FOUR('G', 'E', 'T', ' ')) {
    r->pos += 4;
    return HTTP_AT_TARGET;
  }
  return http_expect(r->head, HTTP_METHODS, b, HTTP_AT_METHOD);
}

static __always_inline int http_line(struct http_reader *r) {
  __u8 b = http_byte(r);
  if (http_is_eol(b))
    return http_eol(r, HTTP_AT_LAST_LF, HTTP_AT_END);
  if (b == ':')
    return HTTP_AT_LOST;
  return http_expect(r->head, HTTP_NAMES, b, HTTP_AT_NAME);
}

static __always_inline int http_list(struct http_reader *r) {
  __u8 b = http_byte(r);
  if (http_is_space(b) || b == ',') {
    r->pos++;
    if (http_used_up(r))
      return HTTP_AT_LIST;
    b = http_byte(r);
  }
  if (http_is_space(b) || b == ',')
    return HTTP_AT_LIST;
  return http_is_eol(b) ? HTTP_AT_EOL : http_expect(r->head, r->head->set, b, HTTP_AT_ELEMENT);
}

/* Tells whether two of what was seen frame the body differently. HTTP/1.0 knows no
 * Transfer-Encoding (RFC 9112, 6.1). */
static __always_inline bool http_at_odds(__u16 seen) {
  return seen & HTTP_SEEN_CODING && seen & (HTTP_SEEN_LENGTH | HTTP_SEEN_OLD);
}

/* Narthex-Class is there: the last one counts, and what is behind the chunks does not. */
static __always_inline int http_begin_label(struct http_head *h) {
  if (!h->labels || h->flags & HTTP_CHUNKED)
    return HTTP_AT_VALUE;
  h->at = LABEL_BEGINS;
  h->label = (struct label){.class = LABEL_BASIS};
  return HTTP_AT_LABEL;
}

/* The word is there. */
static __always_inline int http_found(struct http_head *h, const struct http_word *w) {
  if (w->next == HTTP_AT_TOKEN_END)
    return HTTP_AT_TOKEN_END;
  /* Behind the chunks some servers go by Connection and its like, others do not. */
  if (w->next == HTTP_AT_LIST && h->flags & HTTP_CHUNKED)
    return HTTP_AT_LOST;
  if (w->next == HTTP_AT_LABEL)
    return http_begin_label(h);
  h->at = 0;
  h->set = w->set;
  __u16 seen = w->seen;
  if (seen & h->seen & HTTP_SEEN_HOST)
    return HTTP_AT_LOST;
  if (seen & (HTTP_SEEN_LENGTH | HTTP_SEEN_CODING)) {
    /* Once the coding was seen nothing more may come of either, in the trailer section too. */
    if (seen & h->seen || http_at_odds(seen | h->seen))
      return HTTP_AT_LOST;
  }
  h->seen |= seen;
  return w->next;
}

/* Notes where the word ends that is there, of those in whose place others may be written. */
static __always_inline void http_note(struct http_head *h, const struct http_word *w, __u32 end) {
  if (w->seen & HTTP_SEEN_UPGRADE)
    h->upgrade_at = h->upgrade_at ? UPGRADE_TWICE : end;
  if (w->seen & HTTP_SEEN_KEEP_ALIVE && !h->labels)
    h->keep_at = end;
  if (h->word == HTTP_WORD_11)
    h->version_at = end;
}

/* Compares with the word as far as the bytes at hand go, eight of them at most. */
static __always_inline int http_compare(struct http_reader *r) {
  struct http_head *h = r->head;
  const struct http_word *w = &http_words[h->word & (HTTP_WORDS - 1)];
  __u32 at = h->at & 31, n = r->length - r->pos;
  __u64 text = *(const http_u64 *)((const __u8 *)w + at);
  /* Lower-case letters have both bits 5 and 6, and the first tells upper case from them. */
  __u64 letter = text >> 1 & text & HTTP_EACH(0x20);
  __u32 same = http_zeros((http_bytes(r) ^ text) & ~letter);
  if (n > w->size - at)
    n = w->size - at;
  if (same > n)
    same = n;
  http_advance(r, same);
  h->at = at + same;
  if (h->at >= w->size) {
    http_note(h, w, h->size + r->pos);
    return http_found(h, w);
  }
  if (same == n || same == 8)
    return HTTP_AT_WORD;
  if (!w->other || h->at != w->other_at)
    return w->otherwise;
  h->word = w->other;
  return HTTP_AT_WORD;
}

static __always_inline int http_word(struct http_reader *r) {
  int place = HTTP_AT_WORD;
  for (int i = 0; i < 3 && place == HTTP_AT_WORD && !http_used_up(r); i++)
    place = http_compare(r);
  return place;
}

static __always_inline int http_method(struct http_reader *r) {
  __u8 b = http_byte(r);
  if (b == ' ') {
    r->pos++;
    r->head->at = 0;
    return HTTP_AT_TARGET;
  }
  if (!http_is_method(b))
    return HTTP_AT_LOST;
  r->pos++;
  return HTTP_AT_METHOD;
}

/* Goes on with the version; at once, if it is there and the usual one. */
static __always_inline int http_version(struct http_reader *r) {
  if (r->length - r->pos >= 8 && http_bytes(r) == HTTP_EIGHT('H', 'T', 'T', 'P', '/', '1', '.', '1')) {
    r->pos += 8;
    r->head->version_at = r->head->size + r->pos;
    return HTTP_AT_EOL;
  }
  r->head->word = HTTP_WORD_11;
  r->head->at = 0;
  return HTTP_AT_WORD;
}

/* Of other versions HTTP/2.0 is told from the rest, in its preface. */
static __always_inline int http_other_version(struct http_head *h) {
  if (h->at != 5 || !(h->seen & HTTP_SEEN_PRI))
    return HTTP_AT_LOST;
  h->word = HTTP_WORD_20;
  return HTTP_AT_WORD;
}

static __always_inline int http_target(struct http_reader *r) {
  __u32 start = r->pos;
  http_find_below(r, ' ' + 1);
  if (r->pos > start)
    r->head->at = 1;
  if (http_used_up(r) || http_byte(r) > ' ')
    return HTTP_AT_TARGET;
  if (http_byte(r) != ' ' || !r->head->at)
    return HTTP_AT_LOST;
  r->pos++;
  return http_version(r);
}

/* Goes ahead to the colon, but stays: the name is read again with the value, so that the
 * search for the line's end need not wait for that for the colon. */
static __always_inline int http_name(struct http_reader *r) {
  struct http_reader ahead = *r;
  http_find_no_name(&ahead);
  __u8 b = http_byte(&ahead);
  if (http_used_up(&ahead) || (b > ' ' && b < 0x80 && b != ':')) {
    r->pos = ahead.pos;
    return HTTP_AT_NAME;
  }
  return b == ':' ? HTTP_AT_VALUE : HTTP_AT_LOST;
}

static __always_inline int http_value(struct http_reader *r) {
  http_find_below(r, ' ');
  if (http_used_up(r))
    return HTTP_AT_VALUE;
  __u8 b = http_byte(r);
  if (b == '\t')
    r->pos++;
  return b == '\t' || b >= ' ' ? HTTP_AT_VALUE : HTTP_AT_EOL;
}

static __always_inline int http_element(struct http_reader *r) {
  __u8 b = http_byte(r);
  if (b < ' ' && b != '\t')
    return HTTP_AT_EOL;
  r->pos++;
  return b == ',' ? HTTP_AT_LIST : HTTP_AT_ELEMENT;
}

static __always_inline int http_token_end(struct http_reader *r) {
  __u8 b = http_byte(r);
  if (http_is_space(b)) {
    r->pos++;
    return HTTP_AT_TOKEN_END;
  }
  if (b != ',' && !http_is_eol(b))
    return HTTP_AT_ELEMENT;
  r->head->seen |= http_words[r->head->word & (HTTP_WORDS - 1)].seen;
  return b == ',' ? HTTP_AT_LIST : HTTP_AT_EOL;
}

/* Transfer-Encoding: space, and nothing but the one coding. */
static __always_inline int http_coding(struct http_reader *r) {
  if (http_is_space(http_byte(r))) {
    r->pos++;
    return HTTP_AT_CODING;
  }
  r->head->word = HTTP_WORD_CHUNKED;
  r->head->at = 0;
  return HTTP_AT_WORD;
}

/* Content-Length: a space, a digit, or what is behind them. */
static __always_inline int http_length_byte(struct http_reader *r, int place) {
  struct http_head *h = r->head;
  __u8 b = http_byte(r);
  if (http_is_space(b)) {
    r->pos++;
    return place == HTTP_AT_DIGITS ? HTTP_AT_SPACE : place;
  }
  if (b < '0' || b > '9' || place == HTTP_AT_SPACE)
    return place == HTTP_AT_LENGTH ? HTTP_AT_LOST : HTTP_AT_EOL;
  r->pos++;
  if (h->length <= HTTP_MAX_LENGTH) /* else it stays what it is, which is too much */
    h->length = h->length * 10 + (b - '0');
  return HTTP_AT_DIGITS;
}

#define HTTP_DIGITS 8

/* Content-Length: space, digits, space, one after the other; some at once. */
static __always_inline int http_length(struct http_reader *r, int place) {
  for (int i = 0; i < HTTP_DIGITS && !http_used_up(r); i++) {
    asm volatile(""
                 : "+r"(i)); /* so that clang leaves it a loop: code that is seldom run is slow to come by */
    place = http_length_byte(r, place);
    if (place != HTTP_AT_LENGTH && place != HTTP_AT_DIGITS)
      break;
  }
  return place;
}

/* A byte of Narthex-Class. */
static __always_inline int http_label(struct http_reader *r) {
  __u8 b = http_byte(r);
  if (b < ' ' && b != '\t')
    return HTTP_AT_EOL;
  r->pos++;
  r->head->at = label_next(&r->head->label, r->head->at, b);
  return HTTP_AT_LABEL;
}

/* Where the places are in which a byte at a time is read. */
static __always_inline int http_at_rare(struct http_reader *r, int place) {
  switch (place) {
  case HTTP_AT_START_LF:
    return http_lf(r, HTTP_AT_START);
  case HTTP_AT_LAST_LF:
    return http_lf(r, HTTP_AT_END);
  case HTTP_AT_LF:
    return http_lf(r, HTTP_AT_LINE);
  case HTTP_AT_METHOD:
    return http_method(r);
  case HTTP_AT_VERSION:
    return http_other_version(r->head);
  case HTTP_AT_ELEMENT:
    return http_element(r);
  case HTTP_AT_TOKEN_END:
    return http_token_end(r);
  case HTTP_AT_CODING:
    return http_coding(r);
  case HTTP_AT_LENGTH:
  case HTTP_AT_DIGITS:
  case HTTP_AT_SPACE:
    return http_length(r, place);
  case HTTP_AT_LABEL:
    return http_label(r);
  }
  return place;
}

#define HTTP_PLACE_SHIFT 16

/* Goes on in the places in which a byte at a time is read. Returns how far it came and the place there.
 * Global, so that the verifier looks at these places once, and not for each way to them. */
__noinline int http_rare_turn(struct http_head *h, const struct http_chunk *c, __u32 pos, __u32 length) {
  if (!h || !c)
    return 0;
  struct http_reader r = http_begin(h, c, pos, length & 0xffff);
  int place = http_at_rare(&r, length >> HTTP_PLACE_SHIFT);
  return place << HTTP_PLACE_SHIFT | (__u16)r.pos;
}

static __always_inline int http_rare(struct http_reader *r, int place) {
  __u32 turn = http_rare_turn(r->head, r->chunk, r->pos, r->length | (__u32)place << HTTP_PLACE_SHIFT);
  r->pos = turn & 0xffff;
  return turn >> HTTP_PLACE_SHIFT;
}

/* Goes through the places in the order in which they mostly come, as far as the bytes at
 * hand go, and returns the last. */
static __always_inline int http_places(struct http_reader *r, int place) {
  if (place == HTTP_AT_LINE)
    place = http_line(r);
  else if (place == HTTP_AT_START)
    place = http_start(r);
  else if (place == HTTP_AT_LIST)
    place = http_list(r);
  if (place == HTTP_AT_WORD)
    place = http_word(r);
  if (place == HTTP_AT_NAME)
    place = http_name(r);
  if (place == HTTP_AT_VALUE)
    place = http_value(r);
  else if (place == HTTP_AT_TARGET)
    place = http_target(r);
  if (http_used_up(r))
    return place;
  if (place != HTTP_AT_EOL)
    place = http_rare(r, place);
  if (place != HTTP_AT_EOL || http_used_up(r))
    return place;
  return http_eol(r, HTTP_AT_LF, HTTP_AT_LINE);
}

/* Places that a turn goes through at most. Of two one after the other at least one uses a
 * byte, which says how many turns a chunk takes; of those in
 * the request's chunks each uses one. */
#define HTTP_TURN 3
/* Turns of a round, and rounds that a chunk takes: one loop within another is less to the verifier than one
 * of as many turns. */
#define HTTP_ROUND 16
#define HTTP_ROUNDS (HTTP_CHUNK / (HTTP_TURN / 2 * HTTP_ROUND))

/* One turn of http_scan(): goes on from `pos`, which is below the length. Returns how far
 * it came and the place there. Not inlined, and not static, for the verifier's sake: it
 * looks at a global function once, and not once for each turn. */
__noinline int http_turn(struct http_head *h, const struct http_chunk *c, __u32 pos, __u32 length) {
  if (!h || !c)
    return 0;
  struct http_reader r = http_begin(h, c, pos, length);
  int place = h->place;
  for (int i = 0; i < HTTP_TURN && place < HTTP_AT_END && !http_used_up(&r); i++) {
    place = http_forget(&r, http_places(&r, place));
    http_advance(&r, 0);
    r.length = http_forget(&r, r.length);
  }
  h->place = place;
  return place << HTTP_PLACE_SHIFT | (__u16)r.pos;
}

/* RFC 9112, 9.3. */
static __always_inline bool http_seen_closes(__u16 seen) {
  return seen & HTTP_SEEN_CLOSE || (seen & (HTTP_SEEN_OLD | HTTP_SEEN_KEEP_ALIVE)) == HTTP_SEEN_OLD;
}

/* Says in flags what was seen of the head. Returns the place in which the request goes on. */
static __always_inline int http_finish(struct http_head *h) {
  __u16 seen = h->seen;
  __u8 flags = 0;
  if (http_seen_closes(seen))
    flags |= HTTP_CLOSES;
  if (seen & HTTP_SEEN_CODING)
    flags |= HTTP_CHUNKED;
  if (seen & HTTP_SEEN_CONNECT || (seen & HTTP_SEEN_UPGRADE && seen & HTTP_SEEN_SWITCH))
    flags |= HTTP_UPGRADE;
  if (seen & HTTP_SEEN_EXPECT)
    flags |= HTTP_EXPECT;
  if (seen & HTTP_SEEN_HEAD)
    flags |= HTTP_HEAD_METHOD;
  if (seen & HTTP_SEEN_H2C_TOKEN) {
    flags |= HTTP_H2C;
    h->seen = seen | HTTP_SEEN_H2C;
  }
  if (h->length > HTTP_MAX_LENGTH) {
    flags |= HTTP_ENDLESS;
    h->length = 0;
  }
  h->flags = flags;
  if (flags & HTTP_CHUNKED)
    h->place = HTTP_AT_CHUNK;
  return h->place;
}

/* How many of the next n bytes of the connection are data of a chunk, which need not be read:
 * they count as if they had been. */
static __always_inline __u32 http_skip(struct http_head *h, __u32 n) {
  if (h->place != HTTP_AT_DATA)
    return 0;
  if (n >= h->length) {
    n = h->length;
    h->place = HTTP_AT_DATA_CR;
  }
  h->length -= n;
  return n;
}

/* Whether the head has ended and its body, in chunks, has not. */
static __always_inline bool http_in_body(const struct http_head *h) {
  return h->flags & HTTP_CHUNKED && h->place != HTTP_AT_END && h->place != HTTP_AT_LOST;
}

/* Whether the request line has been read, up to the end of its version. Says nothing of what is
 * lost. */
static __always_inline bool http_past_line(const struct http_head *h) {
  switch (h->place) {
  case HTTP_AT_START:
  case HTTP_AT_START_LF:
  case HTTP_AT_METHOD:
  case HTTP_AT_TARGET:
  case HTTP_AT_VERSION:
    return false;
  case HTTP_AT_WORD:
    return h->word >= HTTP_WORD_CONNECTION;
  }
  return true;
}

/* Whether what made it lost is the request line with which HTTP/2 begins (RFC 9113, 3.4), whatever
 * its target. */
static __always_inline bool http_is_preface(const struct http_head *h) {
  return h->seen & HTTP_SEEN_H2C && !(h->flags & HTTP_H2C);
}

/* 16: none. */
static __always_inline __u32 http_hex(__u8 b) {
  if (b >= '0' && b <= '9')
    return b - '0';
  b |= 0x20;
  return b >= 'a' && b <= 'f' ? b - 'a' + 10 : 16;
}

/* A digit of a chunk's size, or what is behind it. */
static __always_inline int http_size(struct http_head *h, int place, __u8 b) {
  __u32 digit = http_hex(b);
  if (place != HTTP_AT_CHUNK_SPACE && digit < 16) {
    h->at = place == HTTP_AT_CHUNK ? 1 : h->at + 1;
    h->length = h->length << 4 | digit;
    return h->at > HTTP_MAX_SIZE_DIGITS || h->length > HTTP_MAX_LENGTH ? HTTP_AT_LOST : HTTP_AT_CHUNK_DIGITS;
  }
  if (place == HTTP_AT_CHUNK)
    return HTTP_AT_LOST;
  if (http_is_space(b))
    return HTTP_AT_CHUNK_SPACE;
  if (b == ';')
    return HTTP_AT_EXTENSION;
  return b == '\r' ? HTTP_AT_CHUNK_LF : HTTP_AT_LOST;
}

/* A byte around the data of chunks. Their lines end in CR LF and in nothing else: of a bare LF
 * some readers say that it ends one, others that it does not. */
static __always_inline int http_around(struct http_head *h, int place, __u8 b) {
  switch (place) {
  case HTTP_AT_CHUNK:
  case HTTP_AT_CHUNK_DIGITS:
  case HTTP_AT_CHUNK_SPACE:
    return http_size(h, place, b);
  case HTTP_AT_EXTENSION:
    if (b == '\r')
      return HTTP_AT_CHUNK_LF;
    return (b >= ' ' && b < 0x80) || b == '\t' ? HTTP_AT_EXTENSION : HTTP_AT_LOST;
  case HTTP_AT_CHUNK_LF:
    if (b != '\n')
      return HTTP_AT_LOST;
    return h->length ? HTTP_AT_DATA : HTTP_AT_LINE;
  case HTTP_AT_DATA_CR:
    return b == '\r' ? HTTP_AT_DATA_LF : HTTP_AT_LOST;
  case HTTP_AT_DATA_LF:
    return b == '\n' ? HTTP_AT_CHUNK : HTTP_AT_LOST;
  }
  return HTTP_AT_LOST;
}

/* http_turn() in the chunks: goes on until they end, and the trailer section begins. `pos` may
 * be the length. */
__noinline int http_chunk_turn(struct http_head *h, const struct http_chunk *c, __u32 pos, __u32 length) {
  if (!h || !c)
    return 0;
  struct http_reader r = http_begin(h, c, pos, length);
  for (int i = 0; i < HTTP_TURN && h->place > HTTP_AT_LOST && !http_used_up(&r); i++) {
    __u32 skipped = http_skip(h, length - r.pos);
    if (!skipped) {
      h->place = http_around(h, h->place, http_byte(&r));
      skipped = 1;
    }
    http_advance(&r, skipped);
  }
  return h->place << HTTP_PLACE_SHIFT | (__u16)r.pos;
}

/* Goes on for some turns, in the head or in the chunks. */
__noinline int http_round(struct http_head *h, const struct http_chunk *c, __u32 pos, __u32 length) {
  __u32 turn = pos;
  for (int i = 0; h && i < HTTP_ROUND && (turn & 0xffff) < length; i++) {
    if (h->place == HTTP_AT_END || h->place == HTTP_AT_LOST)
      break;
    turn = h->place > HTTP_AT_LOST ? http_chunk_turn(h, c, turn & 0xffff, length)
                                   : http_turn(h, c, turn & 0xffff, length);
  }
  return turn & 0xffff;
}

/* Goes on from `pos` until the head, or the chunks with their trailer section, or the bytes end. */
static __always_inline __u32 http_run(struct http_head *h, const struct http_chunk *c, __u32 pos,
                                      __u32 length) {
  for (int i = 0; i < HTTP_ROUNDS && pos < length; i++) {
    if (h->place == HTTP_AT_END || h->place == HTTP_AT_LOST)
      break;
    pos = http_round(h, c, pos, length);
  }
  return pos;
}

/* Goes on with the request by the bytes of the chunk from `pos` on, which is behind none or some of its
 * `length` bytes. `used` is how many of those were read: all, or those up to the end of the head, or of the
 * body if that comes in chunks, or to what makes it lost. */
static __always_inline int http_scan_from(struct http_head *h, const struct http_chunk *c, __u32 pos,
                                          __u32 length, __u32 *used) {
  pos = http_run(h, c, pos, length);
  if (!(h->flags & HTTP_CHUNKED)) {
    h->size += pos;
    if (h->place == HTTP_AT_END && http_finish(h) > HTTP_AT_LOST)
      pos = http_run(h, c, pos, length);
  }
  *used = pos;
  if (h->place == HTTP_AT_END)
    return HTTP_END;
  if (h->place == HTTP_AT_LOST)
    return HTTP_LOST;
  return pos < length ? HTTP_LOST : HTTP_MORE; /* never lost: see HTTP_ROUNDS */
}

/* The same from the chunk's beginning on. */
static __always_inline int http_scan(struct http_head *h, const struct http_chunk *c, __u32 length,
                                     __u32 *used) {
  *used = 0;
  return length > HTTP_CHUNK ? HTTP_LOST : http_scan_from(h, c, 0, length, used);
}
