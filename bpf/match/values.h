/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Reads what the head of an HTTP/1.x request says, value by value: method, host, path, query,
 * headers and cookies. The head has been framed (http.h): its lines are lines, its header names are tokens.
 * Calls no helper: it is compiled natively, too, and compared with plain Go. */
#pragma once
#include "parse/text.h"

struct head_reader {
  __u64 seed;     /* of hashes */
  __u64 host;     /* hash of the host in the target; with HEAD_HOST */
  __u32 letters;  /* bits: first letters of the names of headers that are looked up */
  __u8 place;     /* enum head_place */
  __u8 header;    /* enum head_value: what the value at hand is */
  __u8 flags;     /* enum head_flag */
  __u8 cookies;   /* 1: cookies are looked up */
  __u8 forwarded; /* 1: X-Forwarded-For is */
  __u8 query;     /* 1: the query is read */
  __u16 pieces;   /* of it, that are not empty */
  __u8 pad[4];    /* 0 */
};

enum head_flag {
  HEAD_CONNECT = 1,
  HEAD_HOST = 2,  /* the target says which host, and the header must say the same */
  HEAD_NAMED = 4, /* there was a Host header */
};

/* Whose text is complete. */
enum head_value {
  HEAD_NONE,
  HEAD_METHOD,
  HEAD_HOSTNAME,
  HEAD_PATH,
  HEAD_NAME, /* of a header: whether its value is wanted decides whether head_want() is called */
  HEAD_VALUE,
  HEAD_FORWARDED,
  HEAD_CRUMB, /* name of a cookie: likewise */
  HEAD_COOKIE,
  HEAD_KEY, /* name of a parameter: likewise */
  HEAD_PARAMETER,
  HEAD_PIECES, /* the query has ended: there were so many pieces */
  HEAD_BAD,    /* readers could take it for different things */
  HEAD_END,
};

enum head_place {
  HEAD_AT_METHOD,
  HEAD_AT_TARGET,
  HEAD_AT_SCHEME,
  HEAD_AT_SLASH, /* of two behind the scheme */
  HEAD_AT_SLASHES,
  HEAD_AT_AUTHORITY,
  HEAD_AT_ROOT, /* behind the authority */
  HEAD_AT_PATH,
  HEAD_AT_STAR,
  HEAD_AT_REST, /* of a line that does not matter */
  HEAD_AT_LINE,
  HEAD_AT_NAME,
  HEAD_AT_BLANK, /* before a value */
  HEAD_AT_VALUE,
  HEAD_AT_JAR, /* before a cookie */
  HEAD_AT_CRUMB,
  HEAD_AT_COOKIE,
  HEAD_AT_NO_COOKIE, /* in one that does not matter */
  HEAD_AT_PIECE,     /* before a parameter */
  HEAD_AT_KEY,
  HEAD_AT_PARAMETER,
  HEAD_AT_END,
};

/* A value is complete; the head goes on in a place behind the byte at hand, if that is used. */
static __always_inline int head_done(struct head_reader *h, int place, int value) {
  h->place = place;
  return value;
}

static __always_inline bool text_is(const struct text *t, __u32 length, __u64 first, __u64 second) {
  const http_u64 *w = (const http_u64 *)t->byte;
  if (t->length != length)
    return false;
  __u64 mask = length >= 8 ? ~0ULL : (1ULL << (length * 8 & 63)) - 1;
  __u64 rest = length > 8 && length < 16 ? (1ULL << ((length - 8) * 8 & 63)) - 1 : 0;
  return !((w[0] ^ first) & mask) && !((w[1] ^ second) & rest);
}

static __always_inline int head_method(struct head_reader *h, struct text *t, struct http_reader *r) {
  text_run(t, r, TEXT_STOP_SPACE);
  if (http_used_up(r))
    return HEAD_NONE;
  __u8 b = http_byte(r);
  if (b != ' ' && !http_is_eol(b))
    return HEAD_NONE; /* the run was too short */
  r->pos++;
  if (b != ' ')
    return t->length ? HEAD_BAD : HEAD_NONE; /* empty lines may come before */
  if (text_is(t, 7, HTTP_EIGHT('C', 'O', 'N', 'N', 'E', 'C', 'T', 0), 0))
    h->flags |= HEAD_CONNECT;
  return head_done(h, HEAD_AT_TARGET, HEAD_METHOD);
}

/* The target's first byte says of which form it is (RFC 9112, 3.2). */
static __always_inline int head_target(struct head_reader *h, struct text *t, struct http_reader *r) {
  __u8 b = http_byte(r);
  text_begin(t, h->seed);
  if (b == '/') {
    path_begin(t, h->seed);
    h->place = HEAD_AT_PATH;
    r->pos++;
  } else if (b == '*' && !(h->flags & HEAD_CONNECT)) {
    text_add(t, '*');
    h->place = HEAD_AT_STAR;
    r->pos++;
  } else {
    h->place = h->flags & HEAD_CONNECT ? HEAD_AT_AUTHORITY : HEAD_AT_SCHEME;
  }
  return HEAD_NONE;
}

static __always_inline int head_star(struct head_reader *h, struct http_reader *r) {
  return http_byte(r) == ' ' ? head_done(h, HEAD_AT_REST, HEAD_PATH) : HEAD_BAD;
}

static __always_inline int head_scheme(struct head_reader *h, struct text *t, struct http_reader *r) {
  text_run(t, r, TEXT_STOP_NAME | TEXT_STOP_PATH | TEXT_LOWER);
  if (t->length > 5)
    return HEAD_BAD;
  if (http_used_up(r))
    return HEAD_NONE;
  bool known = text_is(t, 4, HTTP_FOUR('h', 't', 't', 'p'), 0) ||
               text_is(t, 5, HTTP_EIGHT('h', 't', 't', 'p', 's', 0, 0, 0), 0);
  if (http_byte(r) != ':' || !known)
    return HEAD_BAD;
  r->pos++;
  h->place = HEAD_AT_SLASH;
  return HEAD_NONE;
}

static __always_inline int head_slash(struct head_reader *h, struct text *t, struct http_reader *r) {
  if (http_byte(r) != '/')
    return HEAD_BAD;
  r->pos++;
  text_begin(t, h->seed);
  h->place = h->place == HEAD_AT_SLASH ? HEAD_AT_SLASHES : HEAD_AT_AUTHORITY;
  return HEAD_NONE;
}

static __always_inline int head_authority(struct head_reader *h, struct text *t, struct http_reader *r) {
  text_run(t, r, TEXT_STOP_PATH | TEXT_LOWER);
  if (http_used_up(r) || (t->length < MAX_TEXT && !(text_kinds[http_byte(r)] & TEXT_STOP_PATH)))
    return HEAD_NONE; /* the run was too short */
  __u32 end = host_end(t);
  bool connect = h->flags & HEAD_CONNECT, port = end + 1 < t->length;
  if (!host_settle(t) || (connect && (http_byte(r) != ' ' || !port)))
    return HEAD_BAD;
  h->flags |= HEAD_HOST;
  h->host = text_hash(t, t->length);
  return head_done(h, connect ? HEAD_AT_REST : HEAD_AT_ROOT, HEAD_HOSTNAME);
}

/* Behind the authority a path begins, also one that is not there. */
static __always_inline int head_root(struct head_reader *h, struct text *t, struct http_reader *r) {
  __u8 b = http_byte(r);
  if (b != '/' && !path_ends(b))
    return HEAD_BAD;
  path_begin(t, h->seed);
  h->place = HEAD_AT_PATH;
  r->pos += b == '/';
  return HEAD_NONE;
}

static __always_inline int head_path(struct head_reader *h, struct text *t, struct http_reader *r) {
  bool ended = path_turn(t, r);
  if (t->bad)
    return HEAD_BAD;
  if (!ended)
    return HEAD_NONE;
  bool queried = h->query && http_byte(r) == '?';
  r->pos += queried;
  return head_done(h, queried ? HEAD_AT_PIECE : HEAD_AT_REST, HEAD_PATH);
}

/* Before a parameter, or the end of the query. */
static __always_inline int head_piece(struct head_reader *h, struct text *t, struct http_reader *r) {
  __u8 b = http_byte(r);
  text_begin(t, h->seed);
  if (b == '&') {
    r->pos++;
    return HEAD_NONE;
  }
  if (text_kinds[b] & TEXT_STOP_SPACE)
    return head_done(h, HEAD_AT_REST, HEAD_PIECES);
  h->pieces++;
  h->place = HEAD_AT_KEY;
  return HEAD_NONE;
}

/* In the name of a parameter, or in its value, which is read in any case: an escape in it may be bad. */
static __always_inline int head_parameter(struct head_reader *h, struct text *t, struct http_reader *r) {
  bool key = h->place == HEAD_AT_KEY, ended = query_turn(t, r, key ? TEXT_STOP_KEY : TEXT_STOP_QUERY);
  if (t->bad)
    return HEAD_BAD;
  if (!ended)
    return HEAD_NONE;
  r->pos += key && http_byte(r) == '=';
  return head_done(h, key ? HEAD_AT_PARAMETER : HEAD_AT_PIECE, key ? HEAD_KEY : HEAD_PARAMETER);
}

static __always_inline int head_rest(struct head_reader *h, struct http_reader *r) {
  http_find_below(r, ' ');
  if (http_used_up(r))
    return HEAD_NONE;
  if (http_byte(r) == '\n')
    h->place = HEAD_AT_LINE;
  r->pos++;
  return HEAD_NONE;
}

static __always_inline int head_line(struct head_reader *h, struct text *t, struct http_reader *r) {
  __u8 b = http_byte(r);
  if (http_is_eol(b))
    return head_done(h, HEAD_AT_END, HEAD_END);
  text_begin(t, h->seed);
  h->place = h->letters >> HTTP_LETTER(b == '_' ? '-' : b) & 1 ? HEAD_AT_NAME : HEAD_AT_REST;
  return HEAD_NONE;
}

/* What a header is that is known by name. */
static __always_inline int head_known(const struct head_reader *h, const struct text *t) {
  if (text_is(t, 4, HTTP_FOUR('h', 'o', 's', 't'), 0))
    return HEAD_HOSTNAME;
  if (h->cookies && text_is(t, 6, HTTP_EIGHT('c', 'o', 'o', 'k', 'i', 'e', 0, 0), 0))
    return HEAD_COOKIE;
  if (h->forwarded && text_is(t, 15, HTTP_EIGHT('x', '-', 'f', 'o', 'r', 'w', 'a', 'r'),
                              HTTP_EIGHT('d', 'e', 'd', '-', 'f', 'o', 'r', 0)))
    return HEAD_FORWARDED;
  return HEAD_VALUE;
}

static __always_inline int head_name(struct head_reader *h, struct text *t, struct http_reader *r) {
  text_run(t, r, TEXT_STOP_NAME | TEXT_LOWER);
  if (http_used_up(r))
    return HEAD_NONE;
  __u8 b = http_byte(r);
  r->pos += b == '_' || b == ':';
  if (b == '_') /* as CGI and its like have it */
    text_add(t, '-');
  if (b != ':')
    return HEAD_NONE;
  h->header = head_known(h, t);
  if (h->header == HEAD_HOSTNAME) {
    if (h->flags & HEAD_NAMED)
      return HEAD_BAD;
    h->flags |= HEAD_NAMED;
  }
  h->place = h->header == HEAD_COOKIE ? HEAD_AT_JAR : HEAD_AT_BLANK;
  if (h->header == HEAD_VALUE)
    return head_done(h, HEAD_AT_REST, HEAD_NAME);
  text_begin(t, h->seed);
  return HEAD_NONE;
}

static __always_inline int head_blank(struct head_reader *h, struct http_reader *r) {
  if (http_is_space(http_byte(r)))
    r->pos++;
  else
    h->place = HEAD_AT_VALUE;
  return HEAD_NONE;
}

/* The value of a header is there. */
static __always_inline int head_given(struct head_reader *h, struct text *t) {
  h->place = HEAD_AT_REST;
  text_trim(t);
  if (h->header != HEAD_HOSTNAME)
    return h->header;
  bool named = h->flags & HEAD_HOST;
  if (!t->length)
    return named ? HEAD_BAD : HEAD_NONE;
  if (!host_settle(t) || (named && text_hash(t, t->length) != h->host))
    return HEAD_BAD;
  return named ? HEAD_NONE : HEAD_HOSTNAME;
}

static __always_inline int head_value(struct head_reader *h, struct text *t, struct http_reader *r) {
  text_run(t, r, TEXT_STOP_LINE | (h->header == HEAD_HOSTNAME ? TEXT_LOWER : 0));
  if (http_used_up(r) || !http_is_eol(http_byte(r)))
    return HEAD_NONE;
  return head_given(h, t);
}

/* Before a cookie, or the end of the line. */
static __always_inline int head_jar(struct head_reader *h, struct text *t, struct http_reader *r) {
  __u8 b = http_byte(r);
  if (http_is_eol(b)) {
    h->place = HEAD_AT_REST;
  } else if (http_is_space(b) || b == ';') {
    r->pos++;
  } else {
    text_begin(t, h->seed);
    h->place = HEAD_AT_CRUMB;
  }
  return HEAD_NONE;
}

static __always_inline int head_crumb(struct head_reader *h, struct text *t, struct http_reader *r) {
  text_run(t, r, TEXT_STOP_CRUMB);
  if (http_used_up(r))
    return HEAD_NONE;
  __u8 b = http_byte(r);
  if (http_is_eol(b) || b == ';')
    h->place = HEAD_AT_JAR; /* it has no name */
  if (b != '=')
    return HEAD_NONE;
  r->pos++;
  return head_done(h, HEAD_AT_NO_COOKIE, HEAD_CRUMB);
}

static __always_inline int head_cookie(struct head_reader *h, struct text *t, struct http_reader *r) {
  text_run(t, r, TEXT_STOP_COOKIE);
  if (http_used_up(r))
    return HEAD_NONE;
  __u8 b = http_byte(r);
  if (b != ';' && !http_is_eol(b))
    return HEAD_NONE;
  text_trim(t);
  return head_done(h, HEAD_AT_JAR, HEAD_COOKIE);
}

static __always_inline int head_no_cookie(struct head_reader *h, struct http_reader *r) {
  text_skip(r);
  if (http_used_up(r))
    return HEAD_NONE;
  __u8 b = http_byte(r);
  if (b == ';' || http_is_eol(b))
    h->place = HEAD_AT_JAR;
  return HEAD_NONE;
}

/* The value is wanted whose name has just come. */
static __always_inline void head_want(struct head_reader *h, struct text *t, int name) {
  text_begin(t, h->seed);
  if (name != HEAD_KEY)
    h->place = name == HEAD_CRUMB ? HEAD_AT_COOKIE : HEAD_AT_BLANK;
}

static __always_inline int head_in_target(struct head_reader *h, struct text *t, struct http_reader *r) {
  switch (h->place) {
  case HEAD_AT_METHOD:
    return head_method(h, t, r);
  case HEAD_AT_TARGET:
    return head_target(h, t, r);
  case HEAD_AT_SCHEME:
    return head_scheme(h, t, r);
  case HEAD_AT_SLASH:
  case HEAD_AT_SLASHES:
    return head_slash(h, t, r);
  case HEAD_AT_AUTHORITY:
    return head_authority(h, t, r);
  case HEAD_AT_ROOT:
    return head_root(h, t, r);
  case HEAD_AT_STAR:
    return head_star(h, r);
  }
  return HEAD_BAD;
}

static __always_inline int head_in_cookies(struct head_reader *h, struct text *t, struct http_reader *r) {
  switch (h->place) {
  case HEAD_AT_JAR:
    return head_jar(h, t, r);
  case HEAD_AT_CRUMB:
    return head_crumb(h, t, r);
  case HEAD_AT_COOKIE:
    return head_cookie(h, t, r);
  }
  return head_no_cookie(h, r);
}

static __always_inline int head_in_header(struct head_reader *h, struct text *t, struct http_reader *r) {
  return h->place == HEAD_AT_BLANK ? head_blank(h, r) : head_value(h, t, r);
}

static __always_inline int head_in_query(struct head_reader *h, struct text *t, struct http_reader *r) {
  int value = h->place == HEAD_AT_PIECE ? head_piece(h, t, r) : HEAD_NONE;
  return h->place == HEAD_AT_PIECE || value ? value : head_parameter(h, t, r);
}

/* Goes on to the next line, and to its name's end, as far as the bytes at hand go; or in a header. */
static __always_inline int head_in_lines(struct head_reader *h, struct text *t, struct http_reader *r) {
  int value = HEAD_NONE;
  if (h->place == HEAD_AT_BLANK || h->place == HEAD_AT_VALUE)
    return head_in_header(h, t, r);
  if (h->place == HEAD_AT_REST)
    head_rest(h, r);
  if (h->place == HEAD_AT_LINE && !http_used_up(r))
    value = head_line(h, t, r);
  if (h->place == HEAD_AT_NAME && !http_used_up(r))
    value = head_name(h, t, r);
  return value;
}

#define HEAD_VALUE_SHIFT 16

/* Goes on from `pos`, which is below the length, in one place or two. Returns how far it came, and
 * what is complete there. Global, so that the verifier looks at it once. */
__noinline int head_turn(struct head_reader *h, struct text *t, const struct http_chunk *c, __u32 at) {
  if (!h || !t || !c)
    return 0;
  struct http_reader r = http_begin(NULL, c, at & 0xffff, at >> 16);
  int value = HEAD_NONE;
  if (h->place < HEAD_AT_PATH || h->place == HEAD_AT_STAR)
    value = head_in_target(h, t, &r);
  else if (h->place == HEAD_AT_PATH)
    value = head_path(h, t, &r);
  else if (h->place < HEAD_AT_JAR)
    value = head_in_lines(h, t, &r);
  else if (h->place < HEAD_AT_PIECE)
    value = head_in_cookies(h, t, &r);
  else if (h->place < HEAD_AT_END)
    value = head_in_query(h, t, &r);
  else
    value = HEAD_END;
  return value << HEAD_VALUE_SHIFT | (__u16)r.pos;
}
