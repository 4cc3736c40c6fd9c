/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Request rules. Their tables are found by keyed hashes of what a request says; docs/decisions has why,
 * internal/policy how they are built. */
#pragma once
#include "abi/policy.h"

/* What rules ask of a request. Headers, cookies and parameters that rules name are further fields, as is the
 * number of parameters. */
enum field {
  FIELD_HOST = 0,
  FIELD_PATH = 1,
  FIELD_METHOD = 2,
  FIELD_SNI = 3,
  FIELD_ALPN = 4,
  FIELD_JA4 = 5,
  FIELD_NAMED = 6, /* the first of those */
  FIELD_PAIRS = 6, /* the first of names that rules want absent: theirs, and behind it that of its absence */
};

#define MAX_FIELDS 128

/* Bytes of the JA4 fingerprint of a ClientHello: ten, and twice an underscore and twelve. */
#define JA4_LENGTH 36

struct ja4_print {
  __u8 text[JA4_LENGTH];
};

/* Bytes of a pattern between two stars, or before the first or behind the last, at most. */
#define MAX_LITERAL 1023

/* Bytes of a value that is compared at most: what fits a slot. */
#define MAX_TEXT 16384

/* Of the parameters of a query so many are counted. Their number is compared as a text of as many bytes. */
#define MAX_PARAMETERS 64
#define PARAMETER_BYTE '1'

/* What a key of the hash table is of. */
enum match_kind {
  MATCH_EXACT = 0,  /* field, text */
  MATCH_PREFIX = 1, /* field, text: a pattern begins so, or a longer one does */
  MATCH_SUFFIX = 2, /* the same from the end */
  MATCH_TAIL = 3,   /* pattern, suffix: the suffix ends it */
  MATCH_WORD = 4,   /* pattern, word: the word goes on with it */
  MATCH_OUTPUT = 5, /* state of the automaton: a word ends there */
  MATCH_EDGE = 6,   /* node of the graph, pattern */
  MATCH_HEADER = 7, /* name in lower case */
  MATCH_COOKIE = 8, /* name */
  MATCH_QUERY = 9,  /* name of a parameter */
};

/* An entry of the hash table. Four are a cell, from which a key may be up to MATCH_CELLS - 1 cells
 * on; an entry with a key of 0 is free and ends the search. */
struct match_entry {
  __u64 key;
  __u32 rule; /* first rule that asks for this alone, or NO_MATCH; of OUTPUT: the word */
  __u32 to;   /* pattern, 0: none; of OUTPUT: next state with a word; of EDGE: node; of names: field */
};

#define MATCH_WAYS 4
#define MATCH_CELLS 4
#define NO_MATCH 0xffffffffU

enum pattern_flag {
  PATTERN_EDGE = 1, /* rules that ask for more than one field ask for it */
  PATTERN_TAIL = 2, /* of a suffix: it ends others; of others: suffixes may end them */
  PATTERN_WORD = 4, /* words may go on with it */
};

/* A pattern as far as it is common to several. Number 0 is none. */
struct pattern {
  __u32 up;     /* the next shorter prefix, or suffix, that has a flag; 0: none */
  __u16 length; /* bytes of a prefix, suffix or word */
  __u16 flags;  /* enum pattern_flag */
};

/* Patterns that one value may have at once at most: `check` refuses policies in which more of them
 * are each other's prefixes, or suffixes. */
#define MAX_CHAIN 16

/* What is asked of a field. */
struct match_field {
  __u32 rule;     /* first rule that asks only that it is there, or NO_MATCH */
  __u32 pattern;  /* the empty prefix: "*", or what begins with a star; 0: none */
  __u32 prefixes; /* cell of the lengths of prefixes, ascending, 32 a cell */
  __u32 suffixes;
  __u16 prefix_count;
  __u16 suffix_count;
  __u16 longest_suffix;
  __u8 exact;   /* 1: there are patterns without a star */
  __u8 words;   /* 1: there are words to look for */
  __u8 folded;  /* field of the same value in small letters; 0: none */
  __u8 keyed;   /* 1: rules have a bucket for each of its values */
  __u8 pad[38]; /* 0 */
};

/* A node of the graph that rules with several fields are paths through. */
struct match_node {
  __u64 fields[MAX_FIELDS / 64]; /* bits: fields that lead on */
  __u32 rule;                    /* first rule that has all it asks for here, or NO_MATCH */
  __u32 first;                   /* first rule here or further on */
  __u8 pad[8];                   /* 0 */
};

/* All of the request rules. */
struct match {
  __u64 seed;  /* secret, with which hashes begin */
  __u32 rules; /* cell of the first rule; one a cell, in file order */
  __u32 rule_count;
  __u32 entries;   /* cell of the hash table, which begins a page unless it fits into one */
  __u32 mask;      /* of its cells: a power of 2, less 1 */
  __u32 fields;    /* cell of the first struct match_field; one a cell */
  __u32 patterns;  /* cell of pattern 0; eight a cell */
  __u32 nodes;     /* cell of the graph's root; two a cell */
  __u32 classes;   /* cell of a byte's class in the automaton; 256 bytes */
  __u32 states;    /* cell of the automaton: states[state * width + class], of 32 bits, 16 a cell */
  __u16 width;     /* classes of bytes */
  __u8 headers;    /* 1: rules name headers */
  __u8 cookies;    /* 1: rules name cookies */
  __u8 graph;      /* 1: there are rules with several fields, or with none */
  __u8 asks;       /* bits: fields below FIELD_NAMED that rules ask for */
  __u8 query;      /* 1: rules name parameters of the query, or ask how many there are */
  __u8 parameters; /* field of their number; 0: none */
  __u32 letters;   /* bits: first letters, of 5 bits each, of the names of headers that rules name */
  __u8 pairs;      /* the end of the fields from FIELD_PAIRS on that are pairs; 0: there are none */
  __u8 lists;      /* field of the first list; 0: rules ask for none */
  __u8 list_count; /* fields of lists */
  __u8 pad2;       /* 0 */
  __u32 places;    /* cell of struct places; 0: rules ask neither whom a request is from nor where it is to */
};

/* Where the look-ups begin of the sets of addresses that rules ask for. */
struct places {
  __u32 from_v4; /* entries: (client's address) → struct sets */
  __u32 from_v6;
  __u32 to_v4; /* entries: (destination, port) → struct sets */
  __u32 to_v6;
  __u8 from; /* field; 0: no rule asks */
  __u8 to;
  __u8 pad[6]; /* 0 */
};

/* Sets that one address is in at most: `check` refuses more. */
#define MAX_SETS 10

/* The sets that an address is in. */
struct sets {
  struct guard guard;
  __u32 pattern[MAX_SETS]; /* of its field, ascending; 0: no more */
};

/* In an entry of the automaton: words end in the state, see MATCH_OUTPUT. */
#define STATE_OUTPUT (1U << 31)
