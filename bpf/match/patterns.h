/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds which request rule matches: first the patterns that each value has, then the way through
 * the graph of rules that ask for several. What it costs depends on the request, and not on how many
 * rules there are. */
#pragma once
#include "compat/verifier.h"
#include "match/values.h"
#include "parse/address.h"
#include "parse/hello.h"
#include "policy/limits.h"

/* Patterns of one value at which words or suffixes may go on. */
#define MAX_REACHED 32

/* Patterns of one field that lead on in the graph. */
#define MAX_HITS 16

/* Nodes of the graph that are still to be visited. */
#define MAX_VISITS 64

struct reached {
  __u32 pattern;
  __u32 end; /* bytes of the value up to there */
};

/* What is known of reading.from. */
enum reading_client {
  CLIENT_NONE,    /* nobody says who it is */
  CLIENT_WEAK,    /* a trusted proxy, of which nobody says whom it speaks for */
  CLIENT_FIRM,    /* the nearest that is not trusted */
  CLIENT_UNKNOWN, /* what is said names nobody */
};

/* What a request says, as far as it has been read. One on each CPU: nothing that is done
 * while it is read leads to another run. */
struct reading {
  struct head_reader head;
  struct text text;
  struct tls_names names;
  __u64 present[MAX_FIELDS / 64];  /* bits: fields that have hits */
  __u64 absent[MAX_FIELDS / 64];   /* bits: fields that have one if the field before has none */
  __u32 hit[MAX_FIELDS][MAX_HITS]; /* patterns */
  __u8 hits[MAX_FIELDS];
  __u8 asks; /* as in struct match */
  __u8 graph;
  __u8 client;         /* enum reading_client */
  __u8 said;           /* 1: an earlier X-Forwarded-For has said something */
  __u8 folded;         /* field of the value at hand in small letters; 0: none */
  __u8 parameters;     /* field of the number of parameters; MAX_FIELDS: nobody asks for it */
  __u8 keyed;          /* 1: rules have a bucket for each value of the field at hand */
  __u8 pad;            /* 0 */
  __u32 trusted[2];    /* entries of the trusted proxies' look-up, of IPv4 and IPv6 */
  struct address from; /* who sends it, as trusted proxies say */
  struct forwarded forwarded;
  __u32 best;           /* lowest rule so far, or NO_MATCH */
  __u32 complex;        /* 1: more matched than there is room for */
  __u32 field;          /* of the header or cookie whose value comes */
  __u32 pos;            /* in the piece at hand */
  __u32 end;            /* of it */
  __u16 longest_suffix; /* as in struct match_field */
  __u16 words;
  __u32 reached_count;
  struct reached reached[MAX_REACHED];
  __u32 suffix_count;
  struct reached suffix[MAX_CHAIN]; /* those of the value that end patterns; `end`: their length */
  struct {
    __u32 at;
    __u32 state;
    __u32 word;
    __u32 output; /* a state in which a word ends at the place, that was not looked at yet; 0: none */
  } scan;         /* for words */
  struct {
    __u64 left[MAX_FIELDS / 64]; /* bits: fields of the node that were not tried yet */
    __u32 node;
    __u32 field;
    __u32 hit; /* of it, the next to be tried */
    __u32 visits;
    __u32 visit[MAX_VISITS];
  } walk;
  struct keys keys;
  __u64 sip[4]; /* of the hash that is being made */
};

/* Key: number of a CPU. What maps have per CPU may not be as large. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct reading);
} readings SEC(".maps");

static __always_inline struct reading *the_reading(void) {
  __u32 cpu = bpf_get_smp_processor_id();
  return bpf_map_lookup_elem(&readings, &cpu);
}

static __always_inline __u64 match_salt(__u32 kind, __u32 field) {
  return (kind << 8 | field) * 0xD1B54A32D192ED03ULL;
}

/* Key of a text. */
static __always_inline __u64 text_key(__u64 hash, __u32 kind, __u32 field) {
  return match_mix(hash + match_salt(kind, field));
}

/* Key of two numbers. */
static __always_inline __u64 pair_key(__u64 seed, __u32 kind, __u32 a, __u32 b) {
  return match_mix((seed ^ ((__u64)a << 32 | b)) + match_salt(kind, 0));
}

/* The tables of the request rules. NULL: there are none. */
static __always_inline const struct match *match_of(struct image *im, const struct header *h) {
  if (!h || !h->match)
    return NULL;
  __u32 cell = h->match;
  const struct page *page = page_of(im, cell);
  return page ? &page->match[cell % PAGE_CELLS] : NULL;
}

/* Opens the image, and copies what its tables are: to the verifier pages that are looked up differ from each
 * other, so that only one pointer to them is kept, that of the image. False: there are no rules. */
static __always_inline bool open_match(struct image *im, struct match *m) {
  const struct match *found = match_of(im, open_image(im));
  if (!found)
    return false;
  *m = *found;
  im->number = forget(im->number, m->seed);
  return true;
}

/* The same with what is asked of a field. */
static __always_inline bool open_field(struct image *im, struct match *m, struct match_field *f,
                                       __u32 field) {
  if (!open_match(im, m))
    return false;
  __u32 cell = m->fields + field;
  const struct page *page = page_of(im, cell);
  if (!page)
    return false;
  *f = page->field[cell % PAGE_CELLS];
  im->number = forget(im->number, m->seed);
  return true;
}

static __always_inline const struct pattern *pattern_of(const struct image *opened, const struct match *m,
                                                        __u32 number) {
  struct image at = *opened, *im = &at;
  __u32 cell = m->patterns + number / 8;
  const struct page *page = page_of(im, cell);
  return page ? &page->pattern[cell % PAGE_CELLS * 8 + ADDED(number % 8)] : NULL;
}

static __always_inline const struct match_node *node_at(struct image *im, const struct match *m,
                                                        __u32 number) {
  __u32 cell = m->nodes + number / 2;
  const struct page *page = page_of(im, cell);
  return page ? &page->graph[cell % PAGE_CELLS * 2 + ADDED(number % 2)] : NULL;
}

/* The way of a cell of the hash table that has the key, or that is free; MATCH_WAYS: none. */
static __always_inline __u32 find_way(const struct match_entry *e, __u64 key) {
  __u64 way = 0;
  while (way < MATCH_WAYS && e[way].key != key && e[way].key)
    way++;
  return forget(way, key);
}

/* Looks for a key in the cells behind that which it belongs to. Returns the number of its entry and one more;
 * 0: there is none. Rare, as that cell is hardly ever full. */
__noinline int find_behind(__u64 key) {
  struct image im;
  struct match m;
  if (!open_match(&im, &m))
    return 0;
  for (__u32 i = 1; i < MATCH_CELLS; i++) {
    __u32 cell = m.entries + (((__u32)key + i) & m.mask);
    const struct page *page = page_of(&im, cell);
    if (!page)
      return 0;
    const struct match_entry *e = &page->entry[cell % PAGE_CELLS * MATCH_WAYS];
    __u32 way = find_way(e, key);
    if (way < MATCH_WAYS)
      return cell * MATCH_WAYS + way + 1;
  }
  return 0;
}

/* The entry with the key. NULL: there is none. */
static __always_inline const struct match_entry *find_entry(const struct image *opened, const struct match *m,
                                                            __u64 key) {
  struct image at = *opened, *im = &at;
  __u32 cell = m->entries + ((__u32)key & m->mask);
  const struct page *page = page_of(im, cell);
  if (!page)
    return NULL;
  __u32 number = cell * MATCH_WAYS, way = find_way(&page->entry[cell % PAGE_CELLS * MATCH_WAYS], key);
  if (way >= MATCH_WAYS) {
    number = find_behind(key);
    if (!number)
      return NULL;
    way = 0;
    page = page_of(im, --number / MATCH_WAYS);
    if (!page)
      return NULL;
  }
  const struct match_entry *e = &page->entry[(number + way) % (PAGE_CELLS * MATCH_WAYS)];
  return e->key == key ? e : NULL;
}

static __always_inline void note_rule(struct reading *r, __u32 rule) {
  if (rule < r->best)
    r->best = rule;
}

/* A pattern matches that leads on in the graph. */
static __always_inline void note_hit(struct reading *r, __u32 field, __u32 pattern) {
  field &= MAX_FIELDS - 1;
  __u64 bit = 1ULL << (field & 63);
  __u32 n = r->present[field / 64] & bit ? r->hits[field] : 0;
  r->present[field / 64] |= bit;
  for (__u32 i = 0; i < MAX_HITS; i++) {
    if (i >= n)
      break;
    if (r->hit[field][i] == pattern)
      return;
  }
  if (n >= MAX_HITS) {
    r->complex = 1;
    return;
  }
  r->hit[field][n & (MAX_HITS - 1)] = pattern;
  r->hits[field] = n + 1;
}

/* A state in which patterns may go on has been reached. */
static __always_inline void note_reached(struct reading *r, __u32 pattern, __u32 end) {
  __u32 n = r->reached_count;
  for (__u32 i = 0; i < MAX_REACHED; i++) {
    if (i >= n)
      break;
    if (r->reached[i].pattern == pattern)
      return;
  }
  if (n >= MAX_REACHED) {
    r->complex = 1;
    return;
  }
  r->reached[n & (MAX_REACHED - 1)] = (struct reached){pattern, end};
  r->reached_count = n + 1;
}

/* Notes what a pattern is good for that ends after so many bytes of the value. Global, like most of these,
 * for the verifier's sake. */
__noinline int note_pattern(struct reading *r, __u32 field, __u32 number, __u32 flags, __u32 end) {
  if (!r)
    return 0;
  if (flags & PATTERN_EDGE)
    note_hit(r, field, number);
  if (flags & (PATTERN_TAIL | PATTERN_WORD))
    note_reached(r, number, end);
  return 0;
}

/* Notes what an entry of a whole value, or of a pattern's end, is good for. */
static __always_inline void note_entry(struct reading *r, __u32 field, const struct match_entry *e) {
  note_rule(r, e->rule);
  if (e->to)
    note_pattern(r, field, e->to, PATTERN_EDGE, 0);
}

/* Steps of a binary search. */
#define MATCH_STEPS 11

/* The length at an index of the list that begins at a cell. */
static __always_inline __u32 length_at(const struct image *opened, __u32 list, __u32 index) {
  struct image at = *opened, *im = &at;
  __u32 cell = list + index / 32;
  const struct page *page = page_of(im, cell);
  return page ? page->length[cell % PAGE_CELLS * 32 + ADDED(index % 32)] : 0;
}

/* A search for the longest beginning of the value that patterns have, or the longest end. */
struct search {
  __u32 kind; /* MATCH_PREFIX or MATCH_SUFFIX */
  __u32 field;
  __u32 lengths; /* cell of them, ascending */
  __u32 count;
  __u32 rule; /* what was found: of the longest so far */
  __u32 to;
};

/* A binary search over the lengths that there are (Waldvogel et al., SIGCOMM 1997). */
static __always_inline void find_longest(struct reading *r, const struct image *im, const struct match *m,
                                         struct search *s) {
  __u32 low = 0, high = s->count;
  for (int i = 0; i < MATCH_STEPS && low < high; i++) {
    __u32 middle = forget((low + high) / 2, s->lengths), n = length_at(im, s->lengths, middle);
    const struct match_entry *e = NULL;
    if (n <= r->text.length) {
      __u64 hash =
          s->kind == MATCH_PREFIX ? text_hash(&r->text, n) : r->text.tail[text_opaque(n) & MAX_LITERAL];
      e = find_entry(im, m, text_key(hash, s->kind, s->field));
    }
    if (e) {
      s->rule = e->rule;
      s->to = e->to;
      low = forget(middle + 1, s->lengths);
    } else {
      high = middle;
    }
  }
}

/* The value's beginnings, and the value as a whole (MATCH_PREFIX), or its ends (MATCH_SUFFIX). Returns the
 * pattern of the longest that leads on, or 0. */
__noinline int match_ends(struct reading *r, __u32 field, __u32 kind) {
  struct image im;
  struct match m;
  struct match_field f;
  if (!r || !open_field(&im, &m, &f, field))
    return 0;
  bool front = kind == MATCH_PREFIX;
  struct search s = {kind, field, f.suffixes, f.suffix_count, NO_MATCH, 0};
  if (front) {
    r->words = f.words;
    r->folded = f.folded;
    r->keyed = f.keyed;
    r->longest_suffix = f.longest_suffix;
    s = (struct search){kind, field, f.prefixes, f.prefix_count, f.rule, f.pattern};
  }
  find_longest(r, &im, &m, &s);
  note_rule(r, s.rule);
  __u32 n = r->text.length;
  if (!front || !f.exact || n > MAX_LITERAL)
    return s.to;
  const struct match_entry *e = find_entry(&im, &m, text_key(text_hash(&r->text, n), MATCH_EXACT, field));
  if (e)
    note_entry(r, field, e);
  return s.to;
}

/* Notes the prefixes of the value, from the longest on. */
__noinline int match_prefixes(struct reading *r, __u32 field, __u32 number) {
  struct image im;
  struct match m;
  if (!r || !open_match(&im, &m))
    return 0;
  for (int i = 0; i < MAX_CHAIN && number; i++) {
    const struct pattern *p = pattern_of(&im, &m, number);
    if (!p)
      return 0;
    if (p->flags)
      note_pattern(r, field, number, p->flags, p->length);
    number = p->up;
  }
  return 0;
}

/* Notes the suffixes of the value, from the longest on. */
__noinline int match_suffixes(struct reading *r, __u32 field, __u32 number) {
  struct image im;
  struct match m;
  if (!r || !open_match(&im, &m))
    return 0;
  r->suffix_count = 0;
  for (__u32 i = 0; i < MAX_CHAIN && number; i++) {
    const struct pattern *p = pattern_of(&im, &m, number);
    if (!p)
      return 0;
    if (p->flags & PATTERN_EDGE)
      note_pattern(r, field, number, PATTERN_EDGE, 0);
    if (p->flags & PATTERN_TAIL) {
      r->suffix[r->suffix_count & (MAX_CHAIN - 1)] = (struct reached){number, p->length};
      r->suffix_count++;
    }
    number = p->up;
  }
  return 0;
}

/* Whether a suffix ends the pattern of a state that has been reached. */
__noinline int match_pair(struct reading *r, __u32 field, __u32 tail, __u32 state) {
  struct image im;
  struct match m;
  if (!r || !open_match(&im, &m))
    return 0;
  const struct reached *suffix = &r->suffix[tail & (MAX_CHAIN - 1)];
  const struct reached *s = &r->reached[state & (MAX_REACHED - 1)];
  if (s->end + suffix->end > r->text.length)
    return 0;
  __u64 key = pair_key(m.seed, MATCH_TAIL, s->pattern, suffix->pattern);
  const struct match_entry *e = find_entry(&im, &m, key);
  if (e)
    note_entry(r, field, e);
  return 0;
}

/* Tries a suffix with all states that have been reached. */
__noinline int match_tail(struct reading *r, __u32 field, __u32 tail) {
  if (!r)
    return 0;
  for (__u32 i = 0; i < MAX_REACHED && i < r->reached_count; i++)
    match_pair(r, field, tail, i);
  return 0;
}

/* Whether the word, which ends at a place in the value, goes on with a state. */
__noinline int match_word(struct reading *r, __u32 field, __u32 state, __u32 end) {
  struct image im;
  struct match m;
  if (!r || !open_match(&im, &m))
    return 0;
  const struct pattern *word = pattern_of(&im, &m, r->scan.word);
  const struct reached *s = &r->reached[state & (MAX_REACHED - 1)];
  if (!word || s->end + word->length > end)
    return 0;
  const struct match_entry *e = find_entry(&im, &m, pair_key(m.seed, MATCH_WORD, s->pattern, r->scan.word));
  if (!e)
    return 0;
  note_rule(r, e->rule);
  const struct pattern *p = pattern_of(&im, &m, e->to);
  if (p && e->to)
    note_pattern(r, field, e->to, p->flags, end);
  return 0;
}

/* A word ends in the state; sets the next in which one does, which is a shorter one. */
__noinline int match_output(struct reading *r, __u32 state) {
  struct image im;
  struct match m;
  if (!r || !open_match(&im, &m))
    return 0;
  const struct match_entry *e = find_entry(&im, &m, pair_key(m.seed, MATCH_OUTPUT, state, 0));
  if (!e)
    return 0;
  r->scan.word = e->rule;
  return e->to;
}

/* Bytes of which the automaton reads so many at once. */
#define MATCH_RUN 16

/* Reads on for words, up to one. Returns the state in which it ends; 0: none has, see scan.at. */
__noinline int match_scan(struct reading *r) {
  struct image im;
  struct match m;
  if (!r || !open_match(&im, &m))
    return 0;
  __u32 at = r->scan.at, state = r->scan.state, width = m.width;
  const struct page *page = page_of(&im, m.classes);
  if (!page)
    return 0;
  for (__u64 i = 0; i < MATCH_RUN && at < r->text.length; i++) {
    __u32 byte = (m.classes % PAGE_CELLS) * 64 + text_byte(&r->text, at);
    __u32 index = state * width + page->byte[byte & (PAGE_CELLS * 64 - 1)];
    const struct page *states = page_of(&im, m.states + index / 16);
    if (!states)
      return 0;
    state = states->state[(m.states + index / 16) % PAGE_CELLS * 16 + ADDED(index % 16)];
    at = forget(at + 1, width);
    if (state & STATE_OUTPUT)
      break;
    state = forget(state, width);
  }
  r->scan.at = at;
  r->scan.state = state & ~STATE_OUTPUT;
  return state & STATE_OUTPUT ? r->scan.state : 0;
}

/* Follows the word that ends with a state, in all the states reached before. Returns the next state with a
 * word that ends there, which is a shorter one; 0: there is none. */
__noinline int match_words_at(struct reading *r, __u32 field, __u32 state, __u32 end) {
  if (!r)
    return 0;
  __u32 count = r->reached_count;
  r->scan.word = 0;
  state = match_output(r, state);
  for (__u32 s = 0; s < MAX_REACHED && s < count && r->scan.word; s++)
    match_word(r, field, s, end);
  return state;
}

/* Scans that a value may take with the words that they come to, and those of one turn: one loop within
 * another is less to the verifier than one with as many turns. */
#define MAX_SCANS (2 * (MAX_TEXT / MATCH_RUN + 64))
#define SCAN_TURN 32

/* Whether there may be more words in the value. */
static __always_inline bool may_have_words(const struct reading *r) {
  return r->scan.output || r->scan.at < r->text.length;
}

/* Finds words of the value from r->scan on. Returns whether there may be more. */
__noinline int match_words(struct reading *r, __u32 field) {
  for (int i = 0; r && i < SCAN_TURN && may_have_words(r); i++) {
    __u32 output = r->scan.output;
    r->scan.output = output ? match_words_at(r, field, output, r->scan.at) : match_scan(r);
  }
  return r && may_have_words(r);
}

/* Bytes that are hashed at once. */
#define TAIL_RUN 32

/* Hashes the value from its end on: from the last `n` bytes, whose hash is known, TAIL_RUN more. */
__noinline int text_tail(struct text *t, __u32 n) {
  if (!t)
    return 0;
  __u64 hash = t->tail[n & MAX_LITERAL], factor = t->factor;
  for (int i = 0; i < TAIL_RUN && n < t->length && n < MAX_LITERAL; i++) {
    n++;
    hash = text_step(hash, text_byte(t, t->length - n), factor);
    t->tail[text_opaque(n) & MAX_LITERAL] = hash;
  }
  return n;
}

/* Finds the patterns at the end of the value, the longest of which has so many bytes. */
__noinline int match_back(struct reading *r, __u32 field, __u32 longest) {
  if (!r)
    return 0;
  __u32 n = 0;
  r->text.tail[0] = r->head.seed;
  for (int i = 0; i < MAX_LITERAL / TAIL_RUN + 1 && n < longest && n < r->text.length; i++)
    n = text_tail(&r->text, n);
  __u32 pattern = match_ends(r, field, MATCH_SUFFIX);
  if (!pattern)
    return 0;
  match_suffixes(r, field, pattern);
  for (__u32 tail = 0; tail < MAX_CHAIN && tail < r->suffix_count; tail++)
    match_tail(r, field, tail);
  return 0;
}

/* Finds the patterns of a field that the text has. */
static __always_inline void match_value(struct reading *r, __u32 field) {
  r->reached_count = r->suffix_count = r->words = r->longest_suffix = 0;
  __u32 pattern = match_ends(r, field, MATCH_PREFIX);
  if (pattern)
    match_prefixes(r, field, pattern);
  r->scan.at = r->scan.state = r->scan.output = 0;
  bool more = r->words;
  for (int i = 0; i < MAX_SCANS / SCAN_TURN && more; i++)
    more = match_words(r, field);
  r->complex |= more;
  if (r->longest_suffix)
    match_back(r, field, r->longest_suffix);
}

/* The same, where it is not called for each value of a head. */
__noinline int match_text(struct reading *r, __u32 field) {
  if (r)
    match_value(r, field);
  return 0;
}

/* Which field the text, which is a name, is of. MAX_FIELDS: of none. */
__noinline int match_name(struct reading *r, __u32 kind) {
  struct image im;
  struct match m;
  if (!r || !open_match(&im, &m) || r->text.length > MAX_LITERAL)
    return MAX_FIELDS;
  const struct match_entry *e = find_entry(&im, &m, text_key(text_hash(&r->text, r->text.length), kind, 0));
  return e ? e->to : MAX_FIELDS;
}
