/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <stdlib.h>
#include <string.h>

#define __bpf__ /* for the kernel's own types */
#include "headers/kernel.h"
#undef __bpf__
#include "headers/bpf/bpf_endian.h"
#include "headers/bpf/bpf_helpers.h"

#undef SEC
#define SEC(name) __attribute__((used))
#undef __ksym
#define __ksym
/* What is global for the verifier's sake need not be. */
#undef __noinline
#define __noinline static __attribute__((noinline))

/* CO-RE: nothing that is run here asks for it. */
#define __BPF_CORE_READ_H__
#define bpf_core_type_id_kernel(type) 0
#define BPF_CORE_READ_BITFIELD(s, field) ((s)->field)
#define BPF_CORE_READ_BITFIELD_PROBED(s, field) ((s)->field)

static void *k_map_lookup_elem(void *map, const void *key);
static long k_skb_load_bytes(const void *skb, __u32 offset, void *to, __u32 length);
static long k_probe_read_kernel(void *to, __u32 size, const void *from);
static __u32 k_get_smp_processor_id(void) { return 0; }
#define bpf_map_lookup_elem k_map_lookup_elem
#define ONLY_VALUE(type, map) ((type *)k_map_lookup_elem(&(map), &(__u32){0}))
#define bpf_skb_load_bytes k_skb_load_bytes
#define bpf_probe_read_kernel k_probe_read_kernel
#define bpf_get_smp_processor_id k_get_smp_processor_id

#include "abi/config.h"

#include "match/reader.h"
#include "native.h"

void *bpf_cast_to_kern_ctx(void *ctx) { return ctx; }

static long k_probe_read_kernel(void *to, __u32 size, const void *from) {
  memcpy(to, from, size);
  return 0;
}

static struct page *image_pages;
static __u32 image_count;
static int inner_map; /* by its address */
static struct secret secret = {{KEY_FIRST, KEY_SECOND}};

/* What is not there in the kernel's form is not next to each other here, so that a sanitizer sees what
 * goes beyond an end. */
static struct reading *reading_memory;
static struct work *work_memory;
static __u8 *slot_memory;

static const __u8 *packet;
static __u32 packet_length;

static void *k_map_lookup_elem(void *map, const void *key) {
  __u32 index = *(const __u32 *)key;
  if (map == &policy_image)
    return index ? NULL : &inner_map;
  if (map == &inner_map)
    return index < image_count ? &image_pages[index] : NULL;
  if (map == &readings)
    return reading_memory;
  if (map == &source_secret)
    return &secret;
  if (map == &slots)
    return index == 1 ? slot_memory : NULL;
  abort();
}

static long k_skb_load_bytes(const void *skb, __u32 offset, void *to, __u32 length) {
  (void)skb;
  if (!length || offset > packet_length || length > packet_length - offset)
    return -14;
  memcpy(to, packet + offset, length);
  return 0;
}

/* Sizes are constants to programs, which user space sets. */
static void set_sizes(void) { *(volatile __u32 *)&slot_size = MAX_SLOT_SIZE; }

void native_image(void *pages, __u32 count) {
  image_pages = pages;
  image_count = count;
  if (reading_memory)
    return;
  set_sizes();
  reading_memory = calloc(1, sizeof(*reading_memory));
  work_memory = calloc(1, sizeof(*work_memory));
  slot_memory = calloc(1, sizeof(struct slot) + MAX_SLOT_SIZE);
  if (!reading_memory || !work_memory || !slot_memory)
    abort();
}

__u32 native_frame(const __u8 *bytes, __u32 length, __u32 piece) {
  static struct http_chunk chunk;
  struct http_head h = {};
  for (__u32 at = 0; at < length;) {
    __u32 n = length - at < piece ? length - at : piece, used = 0;
    memcpy(chunk.byte, bytes + at, n);
    int step = http_scan(&h, &chunk, n, &used);
    if (step == HTTP_END || (step == HTTP_MORE && http_in_body(&h)))
      return h.size;
    if (step == HTTP_LOST)
      return 0;
    at += used;
  }
  return 0;
}

/* Bytes before a head in its packet or slot. */
#define BEFORE 66

struct found native_match(const __u8 *head, __u32 length, bool slot, struct between ends) {
  static __u8 bytes[0x10000];
  struct reading *r = reading_memory;
  struct work *w = work_memory;
  struct found found = {NO_MATCH, true, false};
  if (length > (slot ? MAX_SLOT_SIZE : sizeof(bytes)) - BEFORE)
    abort();
  if (slot) {
    memcpy(frame_of((struct slot *)slot_memory) + BEFORE, head, length);
  } else {
    memcpy(bytes + BEFORE, head, length);
    packet = bytes;
    packet_length = BEFORE + length;
  }
  reading_begin(r);
  w->reading.at = BEFORE;
  w->reading.left = length;
  found.refused = !read_head(NULL, w, r, slot);
  w->from = w->s.p = (struct packet){
      .src = {ends.client[0], ends.client[1]},
      .dst = {ends.server[0], ends.server[1]},
      .dport = ends.port,
      .v6 = ends.v6,
  };
  find_joint(w, r);
  found.rule = r->best;
  found.complex = r->complex;
  return found;
}

__u64 native_key(__u8 key) {
  struct rule rule = {.key = key};
  return key_of(&reading_memory->keys, &rule);
}

/* Puts the text at hand behind `at` bytes. */
static __u32 note(__u8 *out, __u32 at, __u32 room, int value, const struct text *t) {
  static const __u8 kinds[] = {
      [HEAD_METHOD] = VALUE_METHOD, [HEAD_HOSTNAME] = VALUE_HOST, [HEAD_PATH] = VALUE_PATH,
      [HEAD_NAME] = VALUE_NAME,     [HEAD_VALUE] = VALUE_HEADER,  [HEAD_CRUMB] = VALUE_CRUMB,
      [HEAD_COOKIE] = VALUE_COOKIE, [HEAD_KEY] = VALUE_KEY,       [HEAD_PARAMETER] = VALUE_PARAMETER,
  };
  if (room - at < t->length + 3)
    abort();
  out[at] = kinds[value];
  out[at + 1] = t->length;
  out[at + 2] = t->length >> 8;
  memcpy(out + at + 3, t->byte, t->length);
  return at + 3 + t->length;
}

int native_read(const __u8 *head, __u32 length, __u32 piece, bool cookies, __u8 *out, __u32 room) {
  struct http_chunk *chunk = &work_memory->chunk;
  struct reading *r = reading_memory;
  struct head_reader *h = &r->head;
  struct text *t = &r->text;
  __u32 size = 0;
  *h = (struct head_reader){.seed = 1, .letters = ~0U, .cookies = cookies, .query = cookies};
  t->factor = 0x100000001b3;
  text_begin(t, h->seed);
  for (__u32 at = 0; at < length; at += piece) {
    __u32 n = length - at < piece ? length - at : piece;
    memcpy(chunk->byte, head + at, n);
    for (__u32 pos = 0; pos < n;) {
      __u32 turn = head_turn(h, t, chunk, n << 16 | pos);
      int value = turn >> HEAD_VALUE_SHIFT;
      pos = turn & 0xffff;
      if (value == HEAD_BAD)
        return READ_REFUSED;
      if (value == HEAD_END)
        return size;
      if (value && value != HEAD_PIECES)
        size = note(out, size, room, value, t);
      if (value == HEAD_NAME || value == HEAD_CRUMB || value == HEAD_KEY)
        head_want(h, t, value);
    }
  }
  return READ_ENDLESS;
}
