/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Follows the framing of an HTTP/1.x answer through the server's bytes (RFC 9112): its status line, its
 * head, and its body if that comes in chunks. Segments may cut it anywhere. Calls no helper. */
#pragma once
#include "parse/http.h"

/* What is known of the answer to a flow's last request. */
enum answer_state {
  ANSWER_UNKNOWN = 0, /* nothing: what the server says next is taken for it */
  ANSWER_HEAD = 1,    /* it is still to come, or its head goes on */
  ANSWER_CHUNKS = 2,  /* its body comes in chunks, which go on */
  ANSWER_ENDS = 3,    /* it ends at a sequence number */
  ANSWER_CLOSES = 4,  /* it ends with the connection */
  ANSWER_LOST = 5,    /* it cannot be followed */
};

/* How far an answer has been read. Kept between segments. */
struct http_answer {
  struct http_head head; /* of its headers and chunks; `flags` is valid once the head has ended */
  __u32 read;   /* the server's sequence number up to which it was read; ANSWER_ENDS: where it ends */
  __u16 status; /* as far as its digits were read */
  __u8 at;      /* bytes read of "HTTP/1.1 200", STATUS_SIZE at most */
  __u8 state;   /* enum answer_state */
};

#define STATUS_SIZE 12

#define STATUS_BEGIN HTTP_EIGHT('H', 'T', 'T', 'P', '/', '1', '.', 0)

/* Whether the byte may be the next of a status line. */
static __always_inline bool answer_takes(struct http_answer *a, __u8 byte) {
  __u32 at = a->at, digit = byte - '0';
  if (at < 7)
    return byte == (STATUS_BEGIN >> 8 * at & 0xff);
  if (at == 8)
    return byte == ' ';
  if (digit > 9 || (at == 9 && !digit))
    return false;
  if (at > 8)
    a->status = a->status * 10 + digit;
  else if (!digit)
    a->head.seen |= HTTP_SEEN_OLD;
  return true;
}

/* Reads a status line as most begin, up to its code. False: it begins otherwise. */
static __always_inline bool answer_begins(struct http_answer *a, const http_u64 *w) {
  __u8 first = (w[1] >> 8) - '0', second = (w[1] >> 16) - '0', third = (w[1] >> 24) - '0';
  if (w[0] != HTTP_EIGHT('H', 'T', 'T', 'P', '/', '1', '.', '1') || (__u8)w[1] != ' ')
    return false;
  if (!first || first > 9 || second > 9 || third > 9)
    return false;
  a->status = first * 100 + second * 10 + third;
  a->at = STATUS_SIZE;
  a->head.place = HTTP_AT_VALUE;
  return true;
}

/* Reads on in the status line, up to its code. Returns how many bytes were read. */
__noinline int answer_line(struct http_answer *a, const struct http_chunk *c, __u32 length) {
  if (!a || !c)
    return 0;
  struct http_reader r = http_begin(&a->head, c, 0, length);
  if (!a->at && length >= STATUS_SIZE && answer_begins(a, http_words_at(&r)))
    return STATUS_SIZE;
  for (int i = 0; i < STATUS_SIZE; i++) {
    if (a->at >= STATUS_SIZE || http_used_up(&r))
      break;
    if (!answer_takes(a, http_byte(&r))) {
      a->head.place = HTTP_AT_LOST;
      return r.pos;
    }
    a->at++;
    r.pos++;
  }
  if (a->at == STATUS_SIZE)
    a->head.place = HTTP_AT_VALUE;
  return r.pos;
}

/* Goes on with the answer by the first `length` bytes of the chunk: http_scan() for answers. Whether the
 * answer has a body at all the caller knows. */
static __always_inline int answer_scan(struct http_answer *a, const struct http_chunk *c, __u32 length,
                                       __u32 *used) {
  *used = 0;
  if (length > HTTP_CHUNK)
    return HTTP_LOST;
  __u32 pos = a->at < STATUS_SIZE ? answer_line(a, c, length) : 0;
  if (a->at < STATUS_SIZE) {
    *used = pos;
    return a->head.place == HTTP_AT_LOST ? HTTP_LOST : HTTP_MORE;
  }
  return http_scan_from(&a->head, c, pos, length, used);
}

/* Whether the code says that another answer follows: 100 Continue, 103 Early Hints. */
static __always_inline bool answer_is_interim(const struct http_answer *a) {
  return a->status < 200 && a->status != 101;
}

/* Whether the connection goes on behind the answer, or ends, as the answer says. */
static __always_inline bool answer_closes(const struct http_answer *a) {
  return http_seen_closes(a->head.seen);
}

static __always_inline bool answer_keeps(const struct http_answer *a) {
  return a->head.seen & HTTP_SEEN_KEEP_ALIVE && !(a->head.seen & HTTP_SEEN_CLOSE);
}
