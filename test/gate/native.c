/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the kernel does for the gate's programs, as far as they ask it, with the bounds and the
 * return codes of Linux; and what the verifier demands of them where it shows when they run. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

#define __bpf__ /* for the kernel's own types */
#include "headers/kernel.h"
#undef __bpf__
#include "headers/bpf/bpf_helpers.h"

/* Programs and maps are ordinary objects here, found by name. */
#undef SEC
#define SEC(name) __attribute__((used))
#undef __ksym
#define __ksym
/* What is global for the verifier's sake need not be. */
#undef __noinline
#define __noinline static __attribute__((noinline))

/* CO-RE: the types are those of headers/kernel.h. */
#define __BPF_CORE_READ_H__
enum core_type { CORE_SOCK = 1, CORE_INET_SOCK, CORE_CONNECTION_SOCK, CORE_TCP_SOCK, CORE_REQUEST_SOCK };
#define bpf_core_type_id_kernel(type)                                                                        \
  _Generic((type *)0,                                                                                        \
      struct sock *: CORE_SOCK,                                                                              \
      struct inet_sock *: CORE_INET_SOCK,                                                                    \
      struct inet_connection_sock *: CORE_CONNECTION_SOCK,                                                   \
      struct tcp_sock *: CORE_TCP_SOCK,                                                                      \
      struct tcp_request_sock *: CORE_REQUEST_SOCK)
#define bpf_core_field_exists(field) 0
#define bpf_core_field_offset(type, field) offsetof(type, field)
#define BPF_CORE_READ_BITFIELD(s, field) ((s)->field)
#define BPF_CORE_READ_BITFIELD_PROBED(s, field) ((s)->field)

static void *k_map_lookup_elem(void *map, const void *key);
static long k_probe_read_kernel(void *to, __u32 size, const void *from);
static long k_map_update_elem(void *map, const void *key, const void *value, __u64 flags);
static long k_map_delete_elem(void *map, const void *key);
static long k_map_push_elem(void *map, const void *value, __u64 flags);
static void k_spin_lock(struct bpf_spin_lock *lock);
static void k_spin_unlock(struct bpf_spin_lock *lock);
static __u64 k_ktime_get_ns(void);
static __u64 k_jiffies64(void);
static long k_redirect(__u32 ifindex, __u64 flags);
static long k_clone_redirect(struct __sk_buff *skb, __u32 ifindex, __u64 flags);
static long k_skb_load_bytes(const void *skb, __u32 offset, void *to, __u32 length);
static long k_skb_store_bytes(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length,
                              __u64 flags);
static long k_skb_pull_data(struct __sk_buff *skb, __u32 length);
static long k_skb_change_tail(struct __sk_buff *skb, __u32 length, __u64 flags);
static long k_skb_vlan_push(struct __sk_buff *skb, __be16 proto, __u16 tci);
static long k_skb_vlan_pop(struct __sk_buff *skb);
static __s64 k_csum_diff(__be32 *from, __u32 from_size, __be32 *to, __u32 to_size, __wsum seed);
static long k_l4_csum_replace(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 flags);
static struct bpf_sock *k_skc_lookup_tcp(void *ctx, struct bpf_sock_tuple *tuple, __u32 size, __u64 netns,
                                         __u64 flags);
static struct tcp_sock *k_skc_to_tcp_sock(void *sk);
static long k_sk_release(void *sk);
static long k_tcp_check_syncookie(void *sk, void *ip, __u32 ip_size, struct tcphdr *tcp, __u32 size);
static __u64 k_get_socket_cookie(void *ctx);
static __u64 k_get_netns_cookie(void *ctx);
static long k_sock_ops_cb_flags_set(struct bpf_sock_ops *ops, int flags);
static long k_seq_write(struct seq_file *seq, const void *data, __u32 length);
static long k_setsockopt(void *ctx, int level, int name, void *value, int size);
static long k_ringbuf_output(void *ring, void *data, __u64 size, __u64 flags);
static __u32 k_get_prandom_u32(void);
static void *k_sk_storage_get(void *map, void *sk, void *value, __u64 flags);
static long k_xdp_load_bytes(struct xdp_md *ctx, __u32 offset, void *to, __u32 length);
static __u64 k_xdp_get_buff_len(struct xdp_md *ctx);
static int k_next_program(struct __sk_buff *skb, __u32 next);

#define bpf_map_lookup_elem k_map_lookup_elem
#define ONLY_VALUE(type, map) ((type *)k_map_lookup_elem(&(map), &(__u32){0}))
#define bpf_map_update_elem k_map_update_elem
#define bpf_map_delete_elem k_map_delete_elem
#define bpf_map_push_elem k_map_push_elem
#define bpf_ktime_get_ns k_ktime_get_ns
#define bpf_jiffies64 k_jiffies64
#define bpf_redirect k_redirect
#define bpf_clone_redirect k_clone_redirect
#define bpf_skb_load_bytes k_skb_load_bytes
#define bpf_probe_read_kernel k_probe_read_kernel
#define bpf_skb_store_bytes k_skb_store_bytes
#define bpf_skb_pull_data k_skb_pull_data
#define bpf_skb_change_tail k_skb_change_tail
#define bpf_skb_vlan_push k_skb_vlan_push
#define bpf_skb_vlan_pop k_skb_vlan_pop
#define bpf_csum_diff k_csum_diff
#define bpf_l4_csum_replace k_l4_csum_replace
#define bpf_skc_lookup_tcp k_skc_lookup_tcp
#define bpf_skc_to_tcp_sock k_skc_to_tcp_sock
#define bpf_sk_release k_sk_release
#define bpf_tcp_check_syncookie k_tcp_check_syncookie
#define bpf_get_socket_cookie(ctx) k_get_socket_cookie((void *)(ctx))
#define bpf_get_netns_cookie(ctx) k_get_netns_cookie((void *)(ctx))
#define bpf_sock_ops_cb_flags_set k_sock_ops_cb_flags_set
#define bpf_seq_write k_seq_write
#define bpf_setsockopt k_setsockopt
#define bpf_ringbuf_output k_ringbuf_output
#define bpf_get_prandom_u32 k_get_prandom_u32
#define bpf_sk_storage_get k_sk_storage_get
#define bpf_xdp_load_bytes k_xdp_load_bytes
#define bpf_xdp_get_buff_len k_xdp_get_buff_len
/* Like a function's, for the struct has the helper's name. */
#define bpf_spin_lock(lock) k_spin_lock(lock)
#define bpf_spin_unlock(lock) k_spin_unlock(lock)
/* A program does not return from one that it goes on in. */
#define bpf_tail_call(ctx, programs, next) return k_next_program(ctx, next)

#include "programs.bpf.c"

static int k_next_program(struct __sk_buff *skb, __u32 next) {
  switch (next) {
  case NEXT_DECIDE:
    return narthex_gate_decide(skb);
  case NEXT_FINGERPRINT:
    return narthex_gate_fingerprint(skb);
  }
  return narthex_gate_attend(skb);
}

#include "native.h"

struct world the_world;

/* ---- What programs may not do ---- */

static struct bpf_spin_lock *locked;
static int depth; /* of programs within programs */
static int sockets_held[16];

static void fault(const char *format, ...) {
  if (the_world.fault[0])
    return;
  va_list args;
  va_start(args, format);
  vsnprintf(the_world.fault, sizeof(the_world.fault), format, args);
  va_end(args);
}

/* Each helper begins with it: none may be called under a lock. */
static void called(const char *helper) {
  if (__builtin_expect(locked != NULL, 0))
    fault("%s() is called under a lock", helper);
}
#define CALLED() called(__func__)

/* Whether a helper that can fail for want of memory is to do so. */
static bool starved(void) {
  if (!the_world.fail_every || ++the_world.calls % the_world.fail_every)
    return false;
  the_world.failures++;
  return true;
}

static void k_spin_lock(struct bpf_spin_lock *lock) {
  if (locked)
    fault("a lock is taken under a lock");
  locked = lock;
}

static void k_spin_unlock(struct bpf_spin_lock *lock) {
  if (locked != lock)
    fault("a lock is given back that was not taken");
  locked = NULL;
}

#define KERNEL_EINVAL 22
#define KERNEL_EFAULT 14
#define KERNEL_ENOMEM 12
#define KERNEL_ENOENT 2
#define KERNEL_EEXIST 17
#define KERNEL_E2BIG 7

/* ---- Maps ---- */

/* The first field of a map's variable, which nobody reads, leads to its content; so does the
 * content's own. */
struct content {
  struct content *self;
  const char *name;
  __u32 type, key_size, value_size, most, stride, count;
  __u8 *values;
  /* Hash tables alone: elements are numbers from 1. */
  __u32 *bucket, *next, *older, *newer;
  __u8 *keys;
  __u32 free, oldest, newest, buckets;
};

static __u32 cpu;
static struct content *contents[64];
static int content_count;

static bool is_hash(const struct content *c) {
  return c->type == BPF_MAP_TYPE_HASH || c->type == BPF_MAP_TYPE_LRU_HASH;
}

static struct content *content_of(void *map) {
  struct content *c = *(struct content **)map;
  if (!c) {
    fprintf(stderr, "a map is missing in open_maps()\n");
    abort();
  }
  return c;
}

static __u8 *value_of(struct content *c, __u32 number) { return c->values + (size_t)number * c->stride; }

static __u32 hash_of(const struct content *c, const void *key) {
  const __u8 *k = key;
  __u64 h = 0x9e3779b97f4a7c15ULL;
  for (__u32 i = 0; i < c->key_size; i += 8) {
    __u64 w = 0;
    memcpy(&w, k + i, c->key_size - i < 8 ? c->key_size - i : 8);
    h = (h ^ w) * 0xff51afd7ed558ccdULL;
    h ^= h >> 29;
  }
  return h & (c->buckets - 1);
}

static __u8 *key_at(struct content *c, __u32 element) { return c->keys + (size_t)element * c->key_size; }

static __u32 find(struct content *c, const void *key) {
  __u32 e = c->bucket[hash_of(c, key)];
  while (e && memcmp(key_at(c, e), key, c->key_size))
    e = c->next[e];
  return e;
}

/* The order of use, for maps that evict. */
static void unlink_used(struct content *c, __u32 e) {
  *(c->older[e] ? &c->newer[c->older[e]] : &c->oldest) = c->newer[e];
  *(c->newer[e] ? &c->older[c->newer[e]] : &c->newest) = c->older[e];
}

static void link_used(struct content *c, __u32 e) {
  c->older[e] = c->newest;
  c->newer[e] = 0;
  *(c->newest ? &c->newer[c->newest] : &c->oldest) = e;
  c->newest = e;
}

static void remove_element(struct content *c, __u32 e) {
  __u32 *at = &c->bucket[hash_of(c, key_at(c, e))];
  while (*at != e)
    at = &c->next[*at];
  *at = c->next[e];
  unlink_used(c, e);
  /* As in the kernel, it is the first to be used again. */
  c->next[e] = c->free;
  c->free = e;
  c->count--;
}

static void *k_map_lookup_elem(void *map, const void *key) {
  struct content *c = content_of(map);
  CALLED();
  if (is_hash(c)) {
    __u32 e = find(c, key);
    if (!e)
      return NULL;
    unlink_used(c, e);
    link_used(c, e);
    return value_of(c, e);
  }
  __u32 index = *(const __u32 *)key;
  if (index >= c->most)
    return NULL;
  if (c->type == BPF_MAP_TYPE_ARRAY_OF_MAPS)
    return *(void **)value_of(c, index);
  if (c->type == BPF_MAP_TYPE_PERCPU_ARRAY)
    index += cpu * c->most;
  return value_of(c, index);
}

/* What is pushed is the daemon's, of which there is none. */
static long k_map_push_elem(void *map, const void *value, __u64 flags) {
  CALLED();
  return map == &stalled && value && flags == BPF_EXIST ? 0 : -22;
}

static long k_map_update_elem(void *map, const void *key, const void *value, __u64 flags) {
  struct content *c = content_of(map);
  CALLED();
  if (!is_hash(c)) {
    fault("%s: arrays are not written by way of a helper", c->name);
    return -KERNEL_EINVAL;
  }
  __u32 e = find(c, key);
  if (e && flags == BPF_NOEXIST)
    return -KERNEL_EEXIST;
  if (!e) {
    if (starved())
      return -KERNEL_ENOMEM;
    if (!c->free && c->type == BPF_MAP_TYPE_LRU_HASH)
      remove_element(c, c->oldest);
    e = c->free;
    if (!e)
      return -KERNEL_E2BIG;
    c->free = c->next[e];
    memcpy(key_at(c, e), key, c->key_size);
    __u32 *bucket = &c->bucket[hash_of(c, key)];
    c->next[e] = *bucket;
    *bucket = e;
    link_used(c, e);
    c->count++;
  }
  memcpy(value_of(c, e), value, c->value_size);
  return 0;
}

static long k_map_delete_elem(void *map, const void *key) {
  struct content *c = content_of(map);
  CALLED();
  __u32 e = is_hash(c) ? find(c, key) : 0;
  if (!e)
    return -KERNEL_ENOENT;
  remove_element(c, e);
  return 0;
}

/* Makes a map empty. */
static void clear_map(struct content *c) {
  __u32 n = c->type == BPF_MAP_TYPE_PERCPU_ARRAY ? c->most * CPUS : c->most;
  if (!is_hash(c)) {
    for (__u32 i = 0; i < n; i++)
      memset(value_of(c, i), 0, c->value_size);
    return;
  }
  memset(c->bucket, 0, c->buckets * sizeof(__u32));
  c->free = c->oldest = c->newest = c->count = 0;
  for (__u32 e = n; e; e--) {
    c->next[e] = c->free;
    c->free = e;
  }
}

static void *must(void *memory) {
  if (!memory)
    abort();
  return memory;
}

/* Bytes between values, that nobody may touch. */
#define REDZONE 64

static void open_map(void *map, const char *name, __u32 type, __u32 key_size, __u32 value_size, __u32 most) {
  struct content *c = *(struct content **)map;
  if (c && c->most == most && c->value_size == value_size) {
    clear_map(c);
    return;
  }
  if (!c) {
    c = must(calloc(1, sizeof(*c)));
    contents[content_count++] = c;
  } else {
    for (__u32 i = 0; i < c->most * CPUS + 1; i++)
      ASAN_UNPOISON_MEMORY_REGION(value_of(c, i), c->stride);
    free(c->values);
    free(c->keys);
    free(c->bucket);
    free(c->next);
    free(c->older);
    free(c->newer);
    c->keys = NULL;
    c->bucket = c->next = c->older = c->newer = NULL;
  }
  *(struct content **)map = c->self = c;
  c->name = name;
  c->type = type;
  c->key_size = key_size;
  c->value_size = value_size;
  c->most = most;
  c->stride = ((value_size + 7) & ~7U) + REDZONE;
  size_t n = (size_t)most * CPUS + 1;
  c->values = must(calloc(n, c->stride));
  for (size_t i = 0; i < n; i++)
    ASAN_POISON_MEMORY_REGION(value_of(c, i) + value_size, c->stride - value_size);
  if (is_hash(c)) {
    for (c->buckets = 16; c->buckets < most; c->buckets *= 2)
      ;
    c->bucket = must(calloc(c->buckets, sizeof(__u32)));
    c->next = must(calloc(most + 1, sizeof(__u32)));
    c->older = must(calloc(most + 1, sizeof(__u32)));
    c->newer = must(calloc(most + 1, sizeof(__u32)));
    c->keys = must(calloc(most + 1, key_size));
  }
  clear_map(c);
}

#define DECLARED(map, field) (sizeof(*(map).field) / sizeof(int))
#define OPEN_SIZED(map, value_size, most)                                                                    \
  open_map(&(map), #map, DECLARED(map, type), sizeof(*(map).key), value_size, most)
#define OPEN(map, most) OPEN_SIZED(map, sizeof(*(map).value), most)

static struct content image_content;

static void open_maps(const struct sizes *s) {
  OPEN(interface_groups, 16);
  OPEN(gates, 16);
  OPEN(answers, 1 + LONGEST_PAGE / ANSWER_STRIDE);
  OPEN(connection_counts, DECLARED(connection_counts, max_entries));
  OPEN(upper_devices, 16);
  OPEN(gate_ports, DECLARED(gate_ports, max_entries));
  OPEN(reason_counts, DECLARED(reason_counts, max_entries));
  OPEN(source_secret, 1);
  OPEN(known_sources, DECLARED(known_sources, max_entries));
  OPEN(rooms, 1);
  OPEN(pool, 1);
  OPEN(flows, s->flows);
  OPEN(brief_flows, s->flows);
  OPEN(early_bytes, DECLARED(early_bytes, max_entries));
  OPEN(seats, seat_mask + 1);
  OPEN(farewells, s->farewells);
  OPEN(chunk_marks, 4096);
  OPEN(chunk_gaps, 4096);
  OPEN(openings, 16);
  OPEN(ghosts, DECLARED(ghosts, max_entries));
  OPEN(state_changes, 1);
  OPEN(audience, 1);
  OPEN(event_budgets, 1);
  OPEN(mirror, 1);
  OPEN(mirror_budgets, 1);
  OPEN(mirrored_records, MIRROR_RECORDS);
  OPEN(works, DECLARED(works, max_entries));
  OPEN(nesting, 1);
  OPEN(watches, 1);
  open_map(&slots, "slots", BPF_MAP_TYPE_ARRAY, sizeof(__u32), sizeof(struct slot) + s->slot_size,
           s->slots + 1);
  open_map(&policy_image, "policy_image", BPF_MAP_TYPE_ARRAY_OF_MAPS, sizeof(__u32), sizeof(void *), 1);
}

/* ---- Packets ---- */

/* Programs see the address of a packet's bytes in 32 bits, so that these are below 2^32. They
 * end at a page that nobody may touch. */
#define LINEAR 4096

struct packet_buffer {
  struct __sk_buff skb; /* what programs see; first */
  struct sk_buff kernel;
  __u8 *linear;  /* LINEAR bytes, and the page behind them */
  __u32 visible; /* of the frame's bytes */
  __u32 partial; /* see struct meta */
  __u32 verified;
  bool own;
  __u8 frame[MOST_PACKET + 64];
};

#define LEVELS 16
static struct packet_buffer *buffers[LEVELS];

/* Packets that were sent to an interface's ingress: the kernel takes them when it has done
 * with that at hand. */
struct backlog {
  __u32 count;
  struct {
    struct meta meta;
    __u32 length;
    __u8 frame[MOST_PACKET];
  } packet[MOST_OUTS];
};
static struct backlog *backlog;
static __u32 out_used;
#define OUT_BYTES (4 << 20)

static struct packet_buffer *buffer_of(const void *skb) { return (struct packet_buffer *)skb; }

/* Shows the program the bytes that it sees as they are now, where they were not before: what
 * it kept of pointers to them is no good. */
static void show(struct packet_buffer *b) {
  if (b->visible > b->skb.len)
    b->visible = b->skb.len;
  if (b->visible > LINEAR)
    b->visible = LINEAR;
  __u8 *at = b->linear + LINEAR - b->visible;
  memcpy(at, b->frame, b->visible);
  b->skb.data = (__u32)(unsigned long)at;
  b->skb.data_end = (__u32)(unsigned long)(b->linear + LINEAR);
}

static struct packet_buffer *take_buffer(void) {
  if (depth >= LEVELS)
    abort();
  struct packet_buffer *b = buffers[depth];
  if (b)
    return b;
  b = buffers[depth] = must(calloc(1, sizeof(*b)));
  b->linear =
      mmap(NULL, LINEAR + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  if (b->linear == MAP_FAILED || mprotect(b->linear + LINEAR, 4096, PROT_NONE))
    abort();
  return b;
}

static void fill_buffer(struct packet_buffer *b, const __u8 *frame, __u32 length, const struct meta *m) {
  if (length > MOST_PACKET)
    abort();
  memset(&b->skb, 0, sizeof(b->skb));
  memcpy(b->frame, frame, length);
  b->skb.len = length;
  b->skb.mark = m->mark;
  b->skb.priority = m->priority;
  b->skb.ifindex = m->ifindex;
  b->skb.gso_size = m->gso_size;
  b->skb.sk = m->sender;
  b->skb.vlan_present = m->vlan_present;
  b->skb.vlan_proto = m->vlan_proto;
  b->skb.vlan_tci = m->vlan_tci;
  b->partial = m->partial;
  b->verified = m->verified;
  b->own = false;
  b->visible = m->linear && m->linear < length ? m->linear : length;
  show(b);
}

static struct meta meta_of(const struct packet_buffer *b) {
  return (struct meta){
      .mark = b->skb.mark,
      .priority = b->skb.priority,
      .linear = b->visible,
      .gso_size = b->skb.gso_size,
      .partial = b->partial,
      .verified = b->verified,
      .ifindex = b->skb.ifindex,
      .vlan_present = b->skb.vlan_present,
      .vlan_proto = b->skb.vlan_proto,
      .vlan_tci = b->skb.vlan_tci,
  };
}

static __u64 sum_of(const __u8 *at, __u32 length) {
  __u64 sum = 0;
  for (; length >= 4; at += 4, length -= 4) {
    __u32 w;
    memcpy(&w, at, 4);
    sum += w;
  }
  __u32 w = 0;
  memcpy(&w, at, length);
  return sum + w;
}

static void put_out(struct packet_buffer *b, enum place place) {
  if (the_world.out_count >= MOST_OUTS || out_used + b->skb.len > OUT_BYTES) {
    fault("more packets come of one than there is room for");
    return;
  }
  struct out *o = &the_world.out[the_world.out_count++];
  *o = (struct out){.place = place, .at = out_used, .length = b->skb.len, .own = b->own, .meta = meta_of(b)};
  memcpy(the_world.out_bytes + out_used, b->frame, b->skb.len);
  /* The device completes the checksum. */
  if (place == TO_WIRE && b->partial && b->partial + 18 <= b->skb.len) {
    __u8 *tcp = the_world.out_bytes + out_used + b->partial;
    __u16 check = ~fold(sum_of(tcp, b->skb.len - b->partial));
    memcpy(tcp + 16, &check, 2);
  }
  out_used += (b->skb.len + 63) & ~63U;
}

static void put_backlog(struct packet_buffer *b, __u32 ifindex) {
  if (backlog->count >= MOST_OUTS) {
    fault("more packets come of one than there is room for");
    return;
  }
  __u32 i = backlog->count++;
  backlog->packet[i].length = b->skb.len;
  backlog->packet[i].meta = meta_of(b);
  backlog->packet[i].meta.ifindex = ifindex;
  memcpy(backlog->packet[i].frame, b->frame, b->skb.len);
}

static struct {
  __u32 ifindex;
  __u64 flags;
} redirection; /* the kernel has one per CPU, too */

static long k_redirect(__u32 ifindex, __u64 flags) {
  CALLED();
  redirection.ifindex = ifindex;
  redirection.flags = flags;
  return flags & ~(__u64)BPF_F_INGRESS ? TCX_DROP : TCX_REDIRECT;
}

static int run_out(struct packet_buffer *b);

/* Sends a packet on. Returns what dev_queue_xmit() does. What is for no device is gone. */
static long send_on(struct packet_buffer *b, __u32 ifindex, __u64 flags) {
  if (!ifindex)
    return 0;
  if (flags & BPF_F_INGRESS) {
    put_backlog(b, ifindex);
    return 0;
  }
  b->skb.ifindex = ifindex;
  return run_out(b) == TCX_DROP ? 1 : 0;
}

static int checked(int verdict, const char *program) {
  if (locked)
    fault("%s ends under a lock", program);
  locked = NULL;
  if (sockets_held[depth])
    fault("%s ends with a socket in its hands", program);
  sockets_held[depth] = 0;
  if (verdict != TCX_NEXT && verdict != TCX_DROP && verdict != TCX_REDIRECT)
    fault("%s returns %d", program, verdict);
  return verdict;
}

static int run_out(struct packet_buffer *b) {
  depth++;
  int verdict = checked(narthex_gate_out(&b->skb), "narthex_gate_out");
  depth--;
  if (verdict == TCX_NEXT)
    put_out(b, TO_WIRE);
  else if (verdict == TCX_REDIRECT)
    send_on(b, redirection.ifindex, redirection.flags);
  return verdict;
}

static long k_clone_redirect(struct __sk_buff *skb, __u32 ifindex, __u64 flags) {
  struct packet_buffer *b = buffer_of(skb);
  CALLED();
  if (flags & ~(__u64)BPF_F_INGRESS || ifindex != IFINDEX)
    return -KERNEL_EINVAL;
  if (starved())
    return -KERNEL_ENOMEM;
  the_world.kicks++;
  depth++;
  struct packet_buffer *clone = take_buffer();
  struct meta m = meta_of(b);
  fill_buffer(clone, b->frame, skb->len, &m);
  clone->own = true;
  long result = send_on(clone, ifindex, flags);
  depth--;
  /* The program that comes next in the same run has its own redirection yet to say. */
  redirection.ifindex = 0;
  show(b);
  return result;
}

static long k_skb_load_bytes(const void *skb, __u32 offset, void *to, __u32 length) {
  const struct packet_buffer *b = buffer_of(skb);
  CALLED();
  if (!length)
    fault("bpf_skb_load_bytes() of no bytes");
  if (offset > b->skb.len || length > b->skb.len - offset) {
    memset(to, 0, length);
    return -KERNEL_EFAULT;
  }
  memcpy(to, b->frame + offset, length);
  return 0;
}

static long k_skb_store_bytes(struct __sk_buff *skb, __u32 offset, const void *from, __u32 length,
                              __u64 flags) {
  struct packet_buffer *b = buffer_of(skb);
  CALLED();
  if (!length)
    fault("bpf_skb_store_bytes() of no bytes");
  if (flags & ~(__u64)(BPF_F_RECOMPUTE_CSUM | BPF_F_INVALIDATE_HASH))
    return -KERNEL_EINVAL;
  if (offset > skb->len || length > skb->len - offset)
    return -KERNEL_EFAULT;
  memcpy(b->frame + offset, from, length);
  /* The kernel makes what is written linear. */
  if (b->visible < offset + length)
    b->visible = offset + length;
  skb->data = skb->data_end = 0;
  return 0;
}

static long k_skb_pull_data(struct __sk_buff *skb, __u32 length) {
  struct packet_buffer *b = buffer_of(skb);
  CALLED();
  if (length > skb->len || starved())
    return -KERNEL_ENOMEM;
  if (!length)
    length = skb->len;
  if (b->visible < length)
    b->visible = length;
  show(b);
  return 0;
}

/* The most that the helper makes of a packet: BPF_SKB_MAX_LEN. */
#define MOST_TAIL 16064

static long k_skb_change_tail(struct __sk_buff *skb, __u32 length, __u64 flags) {
  struct packet_buffer *b = buffer_of(skb);
  CALLED();
  __u32 least = sizeof(struct ethhdr);
  if (b->partial)
    least = b->partial + 18;
  if (flags || length > MOST_TAIL || length < least)
    return -KERNEL_EINVAL;
  if (starved())
    return -KERNEL_ENOMEM;
  if (length > skb->len)
    memset(b->frame + skb->len, 0, length - skb->len);
  skb->len = length;
  skb->gso_size = 0;
  b->visible = length; /* it was made writable, and so linear */
  skb->data = skb->data_end = 0;
  return 0;
}

static bool has_tag(const struct packet_buffer *b) {
  __be16 proto;
  memcpy(&proto, b->frame + 12, 2);
  return b->skb.len >= 18 && (proto == bpf_htons(ETH_P_8021Q) || proto == bpf_htons(ETH_P_8021AD));
}

/* Puts the tag beside the packet into it. */
static void insert_tag(struct packet_buffer *b) {
  __be16 proto = b->skb.vlan_proto, tci = bpf_htons(b->skb.vlan_tci);
  memmove(b->frame + 16, b->frame + 12, b->skb.len - 12);
  memcpy(b->frame + 12, &proto, 2);
  memcpy(b->frame + 14, &tci, 2);
  b->skb.len += 4;
  b->visible += 4;
  if (b->partial)
    b->partial += 4;
}

static long k_skb_vlan_push(struct __sk_buff *skb, __be16 proto, __u16 tci) {
  struct packet_buffer *b = buffer_of(skb);
  CALLED();
  if (starved())
    return -KERNEL_ENOMEM;
  if (proto != bpf_htons(ETH_P_8021Q) && proto != bpf_htons(ETH_P_8021AD))
    proto = bpf_htons(ETH_P_8021Q);
  if (skb->vlan_present)
    insert_tag(b);
  skb->vlan_present = 1;
  skb->vlan_proto = proto;
  skb->vlan_tci = tci;
  skb->data = skb->data_end = 0;
  return 0;
}

static long k_skb_vlan_pop(struct __sk_buff *skb) {
  struct packet_buffer *b = buffer_of(skb);
  CALLED();
  if (starved())
    return -KERNEL_ENOMEM;
  if (skb->vlan_present)
    skb->vlan_present = skb->vlan_proto = skb->vlan_tci = 0;
  if (has_tag(b)) {
    __be16 proto, tci;
    memcpy(&proto, b->frame + 12, 2);
    memcpy(&tci, b->frame + 14, 2);
    memmove(b->frame + 12, b->frame + 16, skb->len - 16);
    skb->len -= 4;
    if (b->partial)
      b->partial -= 4;
    skb->vlan_present = 1;
    skb->vlan_proto = proto;
    skb->vlan_tci = bpf_ntohs(tci);
  }
  skb->data = skb->data_end = 0;
  return 0;
}

static __s64 k_csum_diff(__be32 *from, __u32 from_size, __be32 *to, __u32 to_size, __wsum seed) {
  CALLED();
  if ((from_size | to_size) & 3 || from_size > 512 || to_size > 512)
    return -KERNEL_EINVAL;
  __u64 sum = (__u64)seed + sum_of((void *)to, to_size);
  for (__u32 i = 0; i < from_size / 4; i++)
    sum += (__u32)~from[i];
  sum = (sum & 0xffffffff) + (sum >> 32);
  sum = (sum & 0xffffffff) + (sum >> 32);
  return sum;
}

static long k_l4_csum_replace(struct __sk_buff *skb, __u32 offset, __u64 from, __u64 to, __u64 flags) {
  struct packet_buffer *b = buffer_of(skb);
  CALLED();
  if ((flags ? flags != 2 : from) || offset & 1 || offset + 2 > skb->len)
    return -KERNEL_EINVAL;
  __u16 check;
  memcpy(&check, b->frame + offset, 2);
  if (flags) /* of a field of two bytes */
    to = (__u64)(__u16)~from + (__u16)to;
  if (!flags || !b->partial)
    check = ~fold((__u64)(__u16)~check + (__u32)to);
  memcpy(b->frame + offset, &check, 2);
  skb->data = skb->data_end = 0;
  return 0;
}

void *bpf_cast_to_kern_ctx(void *skb) {
  struct packet_buffer *b = buffer_of(skb);
  b->kernel.head = b->frame;
  b->kernel.data = b->frame + 32; /* the headroom is of no matter */
  b->kernel.ip_summed = b->partial ? CHECKSUM_PARTIAL : b->verified ? CHECKSUM_UNNECESSARY : 0;
  b->kernel.csum_start = b->partial + 32;
  b->kernel.csum_offset = 16;
  return &b->kernel;
}

/* ---- Time ---- */

static __u64 k_ktime_get_ns(void) {
  CALLED();
  return ++the_world.now; /* no two moments are the same */
}

static __u64 k_jiffies64(void) {
  CALLED();
  return the_world.now / 4000000;
}

/* ---- Sockets ---- */

/* A socket as programs see it. What struct sock is of another type than the one that they
 * ask for is told by the number of the type. */
struct kernel_socket {
  struct bpf_sock seen; /* first */
  struct sock sk;
  struct inet_sock inet;
  struct inet_connection_sock connection;
  struct tcp_sock tcp;
  struct tcp_request_sock request;
  struct net net;
  struct sk_buff kept; /* the first of the segments beyond rcv_nxt */
};

static struct kernel_socket kernel_sockets[MOST_SOCKETS];

#define NETNS_COOKIE 4711

static void put_address(__be32 *v4, struct in6_addr *v6, const __u64 a[2], bool is_v6) {
  if (!is_v6) {
    *v4 = bpf_htonl(a[0] >> 32);
    return;
  }
  for (int i = 0; i < 2; i++) {
    v6->in6_u.u6_addr32[2 * i] = bpf_htonl(a[i] >> 32);
    v6->in6_u.u6_addr32[2 * i + 1] = bpf_htonl((__u32)a[i]);
  }
}

/* Makes the kernel's socket of that of the world. */
static struct kernel_socket *kernel_socket(__u32 number) {
  const struct socket *s = &the_world.socket[number];
  struct kernel_socket *k = &kernel_sockets[number];
  memset(k, 0, sizeof(*k));
  k->seen.state = s->state;
  k->net.net_cookie = NETNS_COOKIE;
  struct sock_common *c = &k->sk.__sk_common;
  c->skc_net.net = &k->net;
  c->skc_family = s->key.v6 ? AF_INET6 : AF_INET;
  c->skc_state = s->state;
  c->skc_dport = bpf_htons(s->key.peer_port);
  put_address(&c->skc_daddr, &c->skc_v6_daddr, s->key.peer, s->key.v6);
  put_address(&c->skc_rcv_saddr, &c->skc_v6_rcv_saddr, s->key.local, s->key.v6);
  k->inet.inet_sport = bpf_htons(s->key.local_port);
  k->sk.sk_err = s->err;
  k->sk.sk_shutdown = s->shut ? SHUTDOWN_BOTH : 0;
  k->sk.sk_ack_backlog = s->backlog;
  k->sk.sk_max_ack_backlog = s->max_backlog;
  k->tcp.rcv_nxt = s->rcv_nxt;
  k->tcp.snd_nxt = k->tcp.write_seq = s->snd_nxt;
  k->tcp.snd_una = s->snd_una;
  memcpy(k->kept.cb, &s->beyond, sizeof(s->beyond));
  k->tcp.out_of_order_queue.rb_node = s->gap ? &k->kept.rbnode : NULL;
  k->tcp.rcv_wup = s->rcv_nxt;
  k->tcp.rcv_wnd = s->window;
  k->tcp.bytes_received = s->received;
  k->tcp.lsndtime = s->said;
  k->tcp.bytes_sent = s->said;
  k->connection.icsk_ack.lrcvtime = s->heard;
  k->tcp.rx_opt.rcv_wscale = k->request.req.rcv_wscale = WINDOW_SCALE;
  k->tcp.rx_opt.snd_wscale = k->request.req.snd_wscale = 0;
  k->request.rcv_isn = s->rcv_nxt - 1;
  k->request.snt_isn = s->snd_nxt - 1;
  if (s->state == BPF_TCP_NEW_SYN_RECV)
    k->request.req.req.__req_common.skc_listener = (struct sock *)kernel_socket(s->listener);
  return k;
}

/* The program has for a socket what struct meta says of it. */
static struct tcp_sock *k_skc_to_tcp_sock(void *sk) {
  unsigned long number = (unsigned long)sk - 1;
  if (number >= MOST_SOCKETS || the_world.socket[number].state == BPF_TCP_NEW_SYN_RECV)
    return NULL;
  return &kernel_socket(number)->tcp;
}

/* Copies what is in a slot, or in a segment that a socket keeps. The world has casts, so that nobody asks for
 * copies of the kernel's other objects. */
static long k_probe_read_kernel(void *to, __u32 size, const void *from) {
  struct content *c = content_of(&slots);
  const __u8 *at = from;
  for (int i = 0; i < MOST_SOCKETS; i++) {
    const __u8 *kept = (const __u8 *)&kernel_sockets[i].kept;
    if (at >= kept && at < kept + sizeof(struct sk_buff)) {
      memcpy(to, from, size);
      return 0;
    }
  }
  if (at >= value_of(c, 0) && at < value_of(c, c->most)) {
    memcpy(to, from, size);
    return 0;
  }
  fault("a copy of what a cast shows");
  memset(to, 0, size);
  return -KERNEL_EFAULT;
}

void *bpf_rdonly_cast(const void *object, __u32 type) {
  unsigned long number = ((const char *)object - (const char *)kernel_sockets) / sizeof(kernel_sockets[0]);
  if (number >= MOST_SOCKETS) {
    fault("a cast of what is no socket");
    return NULL;
  }
  struct kernel_socket *k = &kernel_sockets[number];
  switch (type) {
  case CORE_SOCK:
    return &k->sk;
  case CORE_INET_SOCK:
    return &k->inet;
  case CORE_CONNECTION_SOCK:
    return &k->connection;
  case CORE_TCP_SOCK:
    return &k->tcp;
  case CORE_REQUEST_SOCK:
    return &k->request;
  }
  return NULL;
}

static struct bpf_sock *k_skc_lookup_tcp(void *ctx, struct bpf_sock_tuple *tuple, __u32 size, __u64 netns,
                                         __u64 flags) {
  CALLED();
  if (netns != (__u64)BPF_F_CURRENT_NETNS || flags || !ctx)
    return NULL;
  struct packet p = {.v6 = size == sizeof(tuple->ipv6)};
  if (p.v6) {
    for (int i = 0; i < 2; i++) {
      p.src[i] = word(tuple->ipv6.saddr[2 * i], tuple->ipv6.saddr[2 * i + 1]);
      p.dst[i] = word(tuple->ipv6.daddr[2 * i], tuple->ipv6.daddr[2 * i + 1]);
    }
    p.sport = bpf_ntohs(tuple->ipv6.sport);
    p.dport = bpf_ntohs(tuple->ipv6.dport);
  } else {
    p.src[0] = word(tuple->ipv4.saddr, 0);
    p.dst[0] = word(tuple->ipv4.daddr, 0);
    p.sport = bpf_ntohs(tuple->ipv4.sport);
    p.dport = bpf_ntohs(tuple->ipv4.dport);
  }
  struct flow_key key;
  incoming_key(&key, &p);
  int found = -1;
  for (int i = 0; i < MOST_SOCKETS; i++) {
    const struct socket *s = &the_world.socket[i];
    if (!s->state || s->state == BPF_TCP_CLOSE)
      continue;
    if (s->state == BPF_TCP_LISTEN && s->key.local_port == key.local_port && found < 0)
      found = i;
    else if (s->key.peer_port == key.peer_port && !memcmp(&s->key, &key, sizeof(key)))
      found = i;
  }
  if (found < 0)
    return NULL;
  sockets_held[depth]++;
  return &kernel_socket(found)->seen;
}

static long k_sk_release(void *sk) {
  CALLED();
  if (!sk || !sockets_held[depth])
    fault("a socket is given back that was not taken");
  sockets_held[depth]--;
  return 0;
}

/* What is stored with each socket, for as long as it is that one. */
static struct stored {
  __u64 cookie;
  struct parked value;
} stored[MOST_SOCKETS];

static void *k_sk_storage_get(void *map, void *sk, void *value, __u64 flags) {
  CALLED();
  unsigned long number = ((const char *)sk - (const char *)kernel_sockets) / sizeof(kernel_sockets[0]);
  __u32 state = ((const struct bpf_sock *)sk)->state;
  if (map == &socket_places && !flags)
    return NULL; /* no rule here bounds connections */
  if (map != &parked_sockets || value || number >= MOST_SOCKETS || !sockets_held[depth])
    fault("bpf_sk_storage_get() of what is no socket");
  if (state == BPF_TCP_NEW_SYN_RECV || state == BPF_TCP_TIME_WAIT)
    return NULL; /* it is no whole socket */
  struct stored *s = &stored[number];
  if (s->cookie == the_world.socket[number].cookie)
    return &s->value;
  if (flags != BPF_SK_STORAGE_GET_F_CREATE || starved())
    return NULL;
  *s = (struct stored){.cookie = the_world.socket[number].cookie};
  return &s->value;
}

static __u32 cookie_hash(__u32 saddr, __u32 daddr, __be16 sport, __be16 dport, __u32 isn) {
  __u64 h = saddr * 0x9e3779b97f4a7c15ULL ^ daddr;
  h = (h ^ (__u64)sport << 16 ^ dport) * 0xff51afd7ed558ccdULL;
  h = (h ^ isn ^ h >> 31) * 0xc4ceb9fe1a85ec53ULL;
  return h >> 32;
}

static __u32 folded_address(const __u64 a[2]) {
  return bpf_htonl(a[0] >> 32) ^ bpf_htonl((__u32)a[0]) ^ bpf_htonl(a[1] >> 32) ^ bpf_htonl((__u32)a[1]);
}

__u32 world_cookie(const struct flow_key *k, __u32 isn) {
  return cookie_hash(folded_address(k->peer), folded_address(k->local), bpf_htons(k->peer_port),
                     bpf_htons(k->local_port), isn);
}

static long k_tcp_check_syncookie(void *sk, void *ip, __u32 ip_size, struct tcphdr *tcp, __u32 size) {
  CALLED();
  if (((struct bpf_sock *)sk)->state != BPF_TCP_LISTEN || size < sizeof(*tcp))
    return -KERNEL_EINVAL;
  if (!the_world.cookies || !(tcp->flags & TCP_ACK) || tcp->flags & (TCP_RST | TCP_SYN))
    return -KERNEL_ENOENT;
  __u32 saddr = 0, daddr = 0;
  if (((struct iphdr *)ip)->version == 4) {
    if (ip_size < sizeof(struct iphdr))
      return -KERNEL_EINVAL;
    saddr = ((struct iphdr *)ip)->saddr;
    daddr = ((struct iphdr *)ip)->daddr;
  } else {
    if (ip_size < sizeof(struct ipv6hdr))
      return -KERNEL_EINVAL;
    for (int i = 0; i < 4; i++) {
      saddr ^= ((struct ipv6hdr *)ip)->saddr[i];
      daddr ^= ((struct ipv6hdr *)ip)->daddr[i];
    }
  }
  __u32 want = cookie_hash(saddr, daddr, tcp->source, tcp->dest, bpf_ntohl(tcp->seq) - 1);
  return bpf_ntohl(tcp->ack_seq) - 1 == want ? 0 : -KERNEL_ENOENT;
}

/* The cookies of sockets that tell sockops of their states. */
static __u64 telling[MOST_SOCKETS];

/* What sockops is called with. */
static struct bpf_sock_ops socket_call;

static __u64 k_get_socket_cookie(void *ctx) {
  CALLED();
  const char *sk = ctx == &socket_call ? (const char *)socket_call.sk : ctx;
  unsigned long number = (sk - (const char *)kernel_sockets) / sizeof(kernel_sockets[0]);
  return number < MOST_SOCKETS ? the_world.socket[number].cookie : 0;
}

static long k_sock_ops_cb_flags_set(struct bpf_sock_ops *ops, int flags) {
  CALLED();
  ops->bpf_sock_ops_cb_flags = flags;
  return 0;
}

static long k_seq_write(struct seq_file *seq, const void *data, __u32 length) {
  CALLED();
  fault("nobody reads the iterator");
  return seq && data ? length : 0;
}

static __u64 k_get_netns_cookie(void *ctx) {
  CALLED();
  return ctx ? NETNS_COOKIE : 0;
}

/* How often a number was asked for at random, and a program of the tracepoint was run. */
static __u32 draws, traces;

static __u32 k_get_prandom_u32(void) {
  CALLED();
  return draws++;
}

static long k_ringbuf_output(void *ring, void *data, __u64 size, __u64 flags) {
  CALLED();
  const struct event *e = data;
  const struct mirrored *m = data;
  bool is_event = ring == &events && size == sizeof(*e) && e->kind < EVENT_KIND_LEN;
  bool is_copy = ring == &mirror_ring && size >= offsetof(struct mirrored, head) &&
                 size == offsetof(struct mirrored, head) + m->length && m->length <= MIRROR_HEAD &&
                 m->fate < MIRROR_FATE_LEN;
  if (flags || !(is_event || is_copy))
    fault("bpf_ringbuf_output() of %llu bytes", (unsigned long long)size);
  return starved() ? -1 : 0;
}

static long k_setsockopt(void *ctx, int level, int name, void *value, int size) {
  CALLED();
  return ctx && value && level == SOL_SOCKET && (name == SO_MARK || name == SO_PRIORITY) && size == 4
             ? 0
             : -KERNEL_EINVAL;
}

/* SYN policing is tested elsewhere. */
static long k_xdp_load_bytes(struct xdp_md *ctx, __u32 offset, void *to, __u32 length) {
  return ctx && offset && to && length ? 0 : -KERNEL_EFAULT;
}
static __u64 k_xdp_get_buff_len(struct xdp_md *ctx) { return ctx ? 0 : 1; }

/* ---- The world ---- */

static struct page *pages[2];
static int page_in_force;

#define SERVICE_CELL 1
#define ROOM_CELL 8
#define ANSWER_CELL 56
#define RULE_CELL 64
#define GATE_MARK 0x5a5a1000

/* As many seats as user space makes. */
static __u32 seats_for(const struct sizes *s) {
  __u32 n = SEAT_WAYS;
  while (n < 2 * s->flows)
    n *= 2;
  return n;
}

/* Sets what user space sets before loading. */
static void configure(const struct sizes *s) {
  *(__u32 *)&slot_count = s->slots;
  *(__u32 *)&slot_size = s->slot_size;
  *(__u32 *)&seat_mask = seats_for(s) - 1;
  *(__u32 *)&flow_count = s->flows;
  *(__u32 *)&gate_mark = GATE_MARK;
  *(__u64 *)&net_cookie = NETNS_COOKIE;
}

static void put_rules(struct page *page, const struct policy *p) {
  for (__u32 i = 0; i <= p->room.ranks; i++) {
    struct rule *r = &page->cell[RULE_CELL + i].rule;
    bool exempt = i == p->room.ranks;
    __u64 second = exempt ? 255 : i;
    r->guard.key = second << 48;
    r->guard.mask = 0xffULL << 48;
    r->guard.miss = exempt ? ENTRY_NONE : RULE_CELL + i + 1;
    r->action = exempt ? ACTION_PASS : ACTION_CLASSIFY;
    r->class = exempt ? NO_CLASS : i;
  }
}

/* The longest page, from the second part of the texts on. */
static void put_page(void) {
  char lines[LONGEST_PAGE + MAX_PIECE + PAGE_LINE]; /* the last line goes on */
  for (__u32 at = 0; at < LONGEST_PAGE + MAX_PIECE; at += PAGE_LINE)
    snprintf(&lines[at], PAGE_LINE + 1, "%0*u\n", PAGE_LINE - 1, at);
  for (__u32 i = 0; i < LONGEST_PAGE / ANSWER_STRIDE; i++) {
    struct answer_part *part = (void *)value_of(content_of(&answers), 1 + i);
    memcpy(part->text, &lines[i * ANSWER_STRIDE], sizeof(part->text));
  }
}

/* Texts of the answers of each row. */
static void put_answers(struct page *page, const struct policy *p) {
  const char *texts[] = {
      p->rejection, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
      "HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"};
  struct answer_part *part = (void *)value_of(content_of(&answers), 0);
  struct header *h = &page->cell[0].header;
  h->answers = ANSWER_CELL;
  h->answer_count = 3;
  h->kinds = 1;
  for (__u32 i = 0; i < 3; i++) {
    struct refusal *r = &page->refusal[ANSWER_CELL * 4 + i];
    r->text = i * 1024;
    r->length = r->head = strlen(texts[i]);
    memcpy(&part->text[r->text], texts[i], r->length);
  }
  put_page();
  if (!p->page)
    return;
  struct refusal *r = &page->refusal[ANSWER_CELL * 4];
  r->text = ANSWER_STRIDE;
  r->length = p->page;
  r->head = 1;
}

void world_policy(const struct policy *p) {
  page_in_force = !page_in_force;
  struct page *page = pages[page_in_force];
  if (!page)
    page = pages[page_in_force] = must(calloc(1, sizeof(*page)));
  memset(page, 0, 128 * sizeof(page->cell[0]));
  struct header *h = &page->cell[0].header;
  h->listen_v4 = h->listen_v6 = SERVICE_CELL;
  h->generation = p->generation;
  h->rooms = ROOM_CELL;
  h->room_count = 1;
  struct service *s = &page->cell[SERVICE_CELL].service;
  s->guard.word = 2;
  s->guard.key = (__u64)p->port << 48;
  s->guard.mask = 0xffffULL << 48;
  s->group = GROUP_ANY;
  s->root_v4 = s->root_v6 = RULE_CELL;
  s->gate = 1;
  page->room[ROOM_CELL / ROOM_CELLS] = p->room;
  put_rules(page, p);
  put_answers(page, p);
  struct content *c = &image_content;
  *c = (struct content){.self = c, .name = "image", .type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .most = 1};
  c->value_size = c->stride = sizeof(*page);
  c->values = (__u8 *)page;
  *(void **)value_of(content_of(&policy_image), 0) = c;
  /* What is copied has the long form. */
  struct mirror_control *m = (void *)value_of(content_of(&mirror), 0);
  *m = (struct mirror_control){.until = p->room.brief ? 0 : ~0ULL >> 1};
}

void world_open(const struct sizes *s, const struct policy *p) {
  __u8 *bytes = the_world.out_bytes;
  memset(&the_world, 0, sizeof(the_world));
  the_world.out_bytes = bytes ? bytes : must(malloc(OUT_BYTES));
  if (!backlog)
    backlog = must(calloc(1, sizeof(*backlog)));
  the_world.now = 1000000000000;
  configure(s);
  open_maps(s);
  __u32 zero = 0;
  *(__u64 *)k_map_lookup_elem(&audience, &zero) = ~0ULL >> 1; /* somebody listens */
  world_policy(p);
  __u32 index = p->port / 64;
  *(__u64 *)k_map_lookup_elem(&gate_ports, &index) = 1ULL << p->port % 64;
  memset(stored, 0, sizeof(stored));
  memset(telling, 0, sizeof(telling));
  draws = traces = left_seat = 0;
}

static void begin(void) {
  the_world.out_count = 0;
  out_used = 0;
  backlog->count = 0;
  if (depth || locked)
    abort();
}

/* Takes what was sent to the ingress: it may lead to more. */
static void take_backlog(void) {
  for (__u32 i = 0; i < backlog->count; i++) {
    struct packet_buffer *b = take_buffer();
    fill_buffer(b, backlog->packet[i].frame, backlog->packet[i].length, &backlog->packet[i].meta);
    b->own = true;
    int verdict = checked(narthex_gate_in(&b->skb), "narthex_gate_in");
    if (verdict != TCX_NEXT)
      fault("a packet of the gate's own does not pass the gate: %d", verdict);
    put_out(b, TO_STACK);
  }
  __u32 zero = 0;
  for (cpu = 0; cpu < CPUS; cpu++)
    if (*(__u32 *)k_map_lookup_elem(&nesting, &zero))
      fault("a run was entered and not left");
  cpu = 0;
}

int world_in(const __u8 *frame, __u32 length, const struct meta *m) {
  begin();
  struct packet_buffer *b = take_buffer();
  fill_buffer(b, frame, length, m);
  int verdict = checked(narthex_gate_in(&b->skb), "narthex_gate_in");
  if (verdict == TCX_NEXT)
    put_out(b, TO_STACK);
  b->own = true;
  if (verdict == TCX_REDIRECT)
    send_on(b, redirection.ifindex, redirection.flags);
  take_backlog();
  return verdict;
}

int world_out(const __u8 *frame, __u32 length, const struct meta *m) {
  begin();
  struct packet_buffer *b = take_buffer();
  fill_buffer(b, frame, length, m);
  int verdict = run_out(b);
  take_backlog();
  return verdict;
}

/* The daemon's packet: long enough for a frame's header, and no more. */
static const __u8 daemon_frame[64];

void world_tick(void) {
  begin();
  struct packet_buffer *b = take_buffer();
  struct meta m = {.ifindex = IFINDEX};
  fill_buffer(b, daemon_frame, sizeof(daemon_frame), &m);
  checked(narthex_gate_tick(&b->skb), "narthex_gate_tick");
  take_backlog();
}

static void sweep(const __u8 *k) {
  struct packet_buffer *b = take_buffer();
  struct meta m = {.ifindex = IFINDEX};
  fill_buffer(b, k, sizeof(struct flow_key), &m);
  checked(narthex_gate_sweep(&b->skb), "narthex_gate_sweep");
}

static void sweep_all(struct content *m) {
  for (__u32 i = 0; i < m->buckets; i++)
    for (__u32 e = m->bucket[i], after; e; e = after) {
      after = m->next[e];
      sweep(key_at(m, e));
    }
}

void world_sweep(void) {
  begin();
  sweep_all(content_of(&brief_flows));
  sweep_all(content_of(&flows));
  take_backlog();
}

static bool tells(__u32 socket) {
  return telling[socket] && telling[socket] == the_world.socket[socket].cookie;
}

/* Runs the programs that hear of sockets by the tracepoint; the first of them misses some changes, as it does
 * where it would run within itself. */
static void trace_state(__u32 socket, int state) {
  __u64 ctx[3] = {(unsigned long)&kernel_socket(socket)->sk, BPF_TCP_ESTABLISHED, state};
  if (++traces % 3)
    narthex_sock_state(ctx);
  narthex_sock_missed(ctx);
  checked(TCX_NEXT, "narthex_sock_state");
}

/* Calls sockops for a connection. */
static void call_sockops(__u32 socket, const struct flow_key *k, __u32 op) {
  struct in6_addr peer, local;
  struct bpf_sock_ops *ops = &socket_call;
  ops->op = op;
  ops->family = k->v6 ? AF_INET6 : AF_INET;
  put_address(&ops->remote_ip4, &peer, k->peer, k->v6);
  put_address(&ops->local_ip4, &local, k->local, k->v6);
  if (k->v6) {
    memcpy(ops->remote_ip6, &peer, sizeof(peer));
    memcpy(ops->local_ip6, &local, sizeof(local));
  }
  ops->remote_port = bpf_htonl(k->peer_port);
  ops->local_port = k->local_port;
  ops->sk = (unsigned long)&kernel_socket(socket)->sk;
  narthex_sockops(ops);
  checked(TCX_NEXT, "narthex_sockops");
}

/* Tells of a state that the socket is about to have, or has. */
static void tell_state(__u32 socket, int state) {
  if (!tells(socket)) {
    trace_state(socket, state);
    return;
  }
  socket_call = (struct bpf_sock_ops){.args = {BPF_TCP_ESTABLISHED, state}};
  call_sockops(socket, &the_world.socket[socket].key, BPF_SOCK_OPS_STATE_CB);
}

bool world_ends(__u32 socket, __u32 state) {
  begin();
  if (!tells(socket))
    return false;
  the_world.socket[socket].state = state;
  tell_state(socket, BPF_TCP_CLOSE);
  take_backlog();
  return true;
}

void world_closed(__u32 socket) {
  begin();
  the_world.socket[socket].state = BPF_TCP_CLOSE;
  if (!tells(socket))
    trace_state(socket, BPF_TCP_CLOSE);
  take_backlog();
}

void world_released(__u32 socket) {
  begin();
  tell_state(socket, BPF_TCP_FIN_WAIT1);
  take_backlog();
}

void world_destroyed(__u32 socket, __u64 cookie) {
  begin();
  __u64 now = the_world.socket[socket].cookie;
  __u64 ctx[1] = {(unsigned long)&kernel_socket(socket)->sk};
  the_world.socket[socket].cookie = cookie;
  narthex_sock_release(ctx);
  the_world.socket[socket].cookie = now;
  checked(TCX_NEXT, "narthex_sock_release");
  take_backlog();
}

void world_established(__u32 socket, const struct flow_key *k) {
  begin();
  socket_call = (struct bpf_sock_ops){.bpf_sock_ops_cb_flags = 1};
  call_sockops(socket, k, BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB);
  if (socket_call.bpf_sock_ops_cb_flags != (1 | BPF_SOCK_OPS_STATE_CB_FLAG))
    fault("a socket's flags become %#x", socket_call.bpf_sock_ops_cb_flags);
  telling[socket] = the_world.socket[socket].cookie;
}

/* ---- Looking at it ---- */

struct room *world_room(void) { return room_of(0); }

__u64 world_reason(__u32 reason, __u32 dropped) {
  struct counts *c = k_map_lookup_elem(&reason_counts, &reason);
  return !c ? 0 : dropped ? c->dropped : c->passed;
}

/* What is known of a flow in short form. */
static bool world_brief(const struct flow_key *k, struct known *to) {
  const struct brief_flow *b = k_map_lookup_elem(&brief_flows, k);
  if (!b)
    return false;
  *to = (struct known){.state = b->since ? FLOW_SERVED : FLOW_IDLE,
                       .flags = b->flags & BRIEF_CLOSES ? FLOW_CLOSES : 0,
                       .next = b->next,
                       .start = b->start,
                       .body = b->next,
                       .answer = b->answer,
                       .class = b->class,
                       .watched = b->watched};
  return true;
}

bool world_flow(const struct flow_key *k, struct known *to) {
  struct flow *f = k_map_lookup_elem(&flows, k);
  if (!f)
    return world_brief(k, to);
  struct slot *s = f->node ? slot_of(f->node) : NULL;
  *to = (struct known){.state = f->state,
                       .flags = f->flags,
                       .next = f->next,
                       .start = f->start,
                       .body = f->body,
                       .answer = f->answer,
                       .node = f->node,
                       .class = f->class,
                       .watched = f->watched,
                       .withheld = f->withheld && f->state == FLOW_HELD,
                       .early = f->early};
  if (s) {
    to->slot_start = s->sequence;
    to->slot_end = s->sequence + s->length - s->data;
  }
  return true;
}

static void is_wrong(struct census *c, const char *format, ...) {
  if (c->wrong[0])
    return;
  va_list args;
  va_start(args, format);
  vsnprintf(c->wrong, sizeof(c->wrong), format, args);
  va_end(args);
}

static __u8 *seen_nodes;

/* Walks through a list, whose nodes must have the state. Returns how many there are. */
static __u32 walk_list(struct census *c, struct pool *p, const char *name, __u32 head, __u32 tail,
                       __u8 state) {
  __u32 count = 0, prev = 0;
  for (__u32 n = head; n; prev = n, n = p->link[n].in[BY_ARRIVAL].next) {
    if (n > slot_count || seen_nodes[n]) {
      is_wrong(c, "list %s: node %u is in two places, or none", name, n);
      return count;
    }
    seen_nodes[n] = 1;
    count++;
    if (p->link[n].in[BY_ARRIVAL].prev != prev)
      is_wrong(c, "list %s: node %u comes after %u, and says after %u", name, n, prev,
               p->link[n].in[BY_ARRIVAL].prev);
    if (p->link[n].state != state)
      is_wrong(c, "list %s: node %u has the state %u", name, n, p->link[n].state);
    if (p->link[n].busy)
      is_wrong(c, "list %s: node %u is still being written", name, n);
  }
  if (tail != prev)
    is_wrong(c, "list %s: the last is %u, and said to be %u", name, prev, tail);
  return count;
}

/* Walks through those of a line with the same value, of which one is in the line. Returns how many there are.
 */
static __u32 walk_value(struct census *c, struct pool *p, __u32 front, __u32 class) {
  __u32 count = 0, prev = 0, value = p->link[front].value, line = p->link[front].line;
  if (!value)
    return 1;
  for (__u32 n = line_of(p, value)->head; n && count <= slot_count;
       prev = n, n = p->link[n].in[OF_VALUE].next, count++) {
    const struct node_link *l = &p->link[n];
    if (l->line != line || l->value != value || l->class != class || l->state != NODE_WAITING ||
        l->in[OF_VALUE].prev != prev)
      is_wrong(c, "value %u of line %u: node %u after %u is of value %u of line %u, in state %u, after %u",
               value, line, n, prev, l->value, l->line, l->state, l->in[OF_VALUE].prev);
  }
  if (line_of(p, value)->head != front || line_of(p, value)->tail != prev ||
      line_of(p, value)->waiting != count)
    is_wrong(c, "value %u of line %u, with node %u in that, has %u up to %u, and says %u up to %u", value,
             line, front, count, prev, line_of(p, value)->waiting, line_of(p, value)->tail);
  return count;
}

/* Walks through a line. Returns how many wait in it. */
static __u32 walk_line(struct census *c, struct pool *p, const struct line *line, __u32 number, __u32 class) {
  __u32 count = 0, prev = 0;
  for (__u32 n = line->head; n && count <= slot_count; prev = n, n = p->link[n].in[IN_LINE].next) {
    const struct node_link *l = &p->link[n];
    if (l->line != number || l->class != class || l->state != NODE_WAITING || l->in[IN_LINE].prev != prev)
      is_wrong(c, "line %u of class %u: node %u after %u is of line %u and class %u, in state %u, after %u",
               number, class, n, prev, l->line, l->class, l->state, l->in[IN_LINE].prev);
    count += walk_value(c, p, n, class);
  }
  if (line->most && !line_of(p, line->most)->waiting)
    is_wrong(c, "nobody has value %u, which has most of line %u", line->most, number);
  if (count != line->waiting || prev != line->tail)
    is_wrong(c, "line %u has %u up to %u, and says %u up to %u", number, count, prev, line->waiting,
             line->tail);
  return count;
}

/* Walks through the lines of a class, by their turns. */
static void walk_turns(struct census *c, struct pool *p, const struct class_room *q, __u32 class) {
  __u32 lines = 0, waiting = 0;
  for (__u32 t = 0; t <= TURNS; t++) {
    __u32 prev = 0;
    for (__u32 n = q->turn[t].head; n && lines <= slot_count; prev = n, n = p->link[n].in[IN_TURN].next) {
      const struct line *line = line_of(p, p->link[n].line);
      bool known = is_known(p, p->link[n].line), here = known ? !t : line->turn + 1 == t;
      if (line->head != n || !here || p->link[n].in[IN_TURN].prev != prev)
        is_wrong(c, "turn %u of class %u: node %u after %u is not at the front of line %u", t, class, n, prev,
                 p->link[n].line);
      waiting += walk_line(c, p, line, p->link[n].line, class);
      lines++;
    }
    if (q->turn[t].tail != prev || (t && !!prev != (q->turns >> (t - 1) & 1)))
      is_wrong(c, "turn %u of class %u ends with %u, and is said to end with %u", t, class, prev,
               q->turn[t].tail);
  }
  if (lines != q->lines || waiting != q->waiting)
    is_wrong(c, "class %u has %u in %u lines, and says %u in %u", class, waiting, lines, q->waiting,
             q->lines);
  if (q->most && is_known(p, q->most))
    is_wrong(c, "line %u of class %u is known, and said to have most", q->most, class);
  if (q->most && !line_of(p, q->most)->waiting)
    is_wrong(c, "nobody is in line %u, which has most of class %u", q->most, class);
}

/* Looks whether each line has as many nodes as are said to be of it. */
static void check_users(struct census *c, struct pool *p) {
  static __u32 users[LINE_SETS * LINE_WAYS];
  for (__u32 n = 1; n <= p->fresh; n++) {
    if (p->link[n].line)
      users[p->link[n].line - 1]++;
    if (p->link[n].value)
      users[p->link[n].value - 1]++;
  }
  for (__u32 i = 2; i <= 2 * p->fresh + 1; i++) {
    __u32 line = i % 2 ? p->link[i / 2].value : p->link[i / 2].line;
    if (!line)
      continue;
    __u32 *found = &users[line - 1];
    if (*found && *found != (*owner_of(p, line) & LINE_USE))
      is_wrong(c, "line %u has %u nodes, and says %llu", line, *found, *owner_of(p, line) & LINE_USE);
    *found = 0;
  }
}

static void walk_free(struct census *c, struct pool *p) {
  __u32 free = 0;
  for (__u32 n = p->free; n; n = p->link[n].in[BY_ARRIVAL].next, free++) {
    if (n > slot_count || seen_nodes[n]) {
      is_wrong(c, "free node %u is in two places, or none", n);
      return;
    }
    seen_nodes[n] = 1;
    if (p->link[n].state != NODE_FREE || p->link[n].line || p->link[n].value)
      is_wrong(c, "free node %u has the state %u, and line %u", n, p->link[n].state, p->link[n].line);
  }
  if (free + p->used != p->fresh)
    is_wrong(c, "%u free nodes, %u used, of %u that were ever used", free, p->used, p->fresh);
  __u32 from = 0;
  for (__u32 i = 0; i < SOURCE_GROUPS; i++)
    from += p->used_from[i];
  if (p->used_by[0] != p->used || from != p->used)
    is_wrong(c, "%u nodes are used, %u by the service, %u from all groups", p->used, p->used_by[0], from);
}

/* The node of a flow is in the list that its state says, or in that of those which are to be
 * rejected or put before the stack again, or is kept; and its slot names the flow. */
static void check_flow(struct census *c, struct pool *p, struct flow *f) {
  c->states[f->state & 7]++;
  if (!f->id)
    is_wrong(c, "a flow is being deleted for ever");
  if (f->seat && seat_at(f->seat - 1)->id != f->id)
    is_wrong(c, "the seat of a flow is another one's");
  bool waits = f->state == FLOW_HELD || f->state == FLOW_GATHERING;
  if (!f->node && !waits)
    return;
  struct slot *s = slot_of(f->node);
  if (!s || !f->node || s->flow != f->id) {
    is_wrong(c, "node %u of a flow is another one's", f->node);
    return;
  }
  __u8 state = p->link[f->node].state;
  if (!waits && state == NODE_KEPT && !seen_nodes[f->node]) {
    seen_nodes[f->node] = 1;
    c->kept++;
  }
  bool right = waits ? state == (f->state == FLOW_HELD ? NODE_WAITING : NODE_GATHERING) || state == NODE_DUE
                     : state == NODE_KEPT || (state == NODE_DUE && p->link[f->node].again);
  if (!right || seen_nodes[f->node] != 1)
    is_wrong(c, "node %u of a flow in state %u has the state %u, and is in %u places", f->node, f->state,
             state, seen_nodes[f->node]);
  seen_nodes[f->node] = 2;
}

/* Looks whether as many flows in short form have a request in service as the room and its classes say. */
static void check_briefs(struct census *c, struct pool *p, struct room *r) {
  struct content *m = content_of(&brief_flows);
  __u32 in_service[CLASS_SLOTS] = {}, all = 0;
  for (__u32 i = 0; i < m->buckets; i++)
    for (__u32 e = m->bucket[i]; e; e = m->next[e]) {
      const struct brief_flow *b = (void *)value_of(m, e);
      in_service[b->class & (CLASS_SLOTS - 1)] += !!b->since;
      all += !!b->since;
      c->states[b->since ? FLOW_SERVED : FLOW_IDLE]++;
      if (b->since == BRIEF_GONE)
        is_wrong(c, "a flow in short form is being deleted for ever");
      if (k_map_lookup_elem(&flows, key_at(m, e)))
        is_wrong(c, "a connection has a flow in short and in long form");
    }
  for (int i = 0; i < CLASS_SLOTS; i++)
    if (in_service[i] != r->class[i].brief.begun - r->class[i].brief.served)
      is_wrong(c, "%u flows in short form are in service of class %d, and it says %llu of %llu",
               in_service[i], i, r->class[i].brief.served, r->class[i].brief.begun);
  if (all != r->brief || p->briefs != m->count)
    is_wrong(c, "%u of %u flows in short form are in service, and %u of %u are counted", all, m->count,
             r->brief, p->briefs);
  c->in_service += all;
  c->flows += m->count;
}

void world_census(struct census *c) {
  struct room *r = world_room();
  struct pool *p = the_pool();
  struct content *m = content_of(&flows);
  memset(c, 0, sizeof(*c));
  seen_nodes = must(realloc(seen_nodes, slot_count + 1));
  memset(seen_nodes, 0, slot_count + 1);
  __u32 waiting = 0, in_service = 0, entered = 0;
  for (int i = 0; i < CLASS_SLOTS; i++) {
    struct class_room *q = &r->class[i];
    __u32 kept = walk_list(c, p, "kept", q->head[LIST_KEPT], q->tail[LIST_KEPT], NODE_WAITING);
    __u32 n = kept + walk_list(c, p, "new", q->head[LIST_NEW], q->tail[LIST_NEW], NODE_WAITING),
          in_epochs = 0;
    for (int e = 0; e < EPOCHS; e++)
      in_epochs += r->entered[e][i];
    if (n != q->waiting)
      is_wrong(c, "class %d has %u in its list and %u waiting", i, n, q->waiting);
    walk_turns(c, p, q, i);
    if (in_epochs != q->in_service)
      is_wrong(c, "class %d has %u in its epochs and %u in service", i, in_epochs, q->in_service);
    if (!!n != !!(r->waiting_classes & (1U << i)) || !!kept != !!(r->kept_classes & (1U << i)))
      is_wrong(c, "class %d has %u waiting, %u in kept connections, and its bits say else", i, n, kept);
    waiting += q->waiting;
    in_service += q->in_service;
    entered += in_epochs;
  }
  c->in_lists = waiting + walk_list(c, p, "due", r->due_head, r->due_tail, NODE_DUE);
  __u32 gathering = walk_list(c, p, "gatherers", r->gather_head, r->gather_tail, NODE_GATHERING);
  c->in_lists += gathering;
  if (gathering != r->gathering)
    is_wrong(c, "%u gather, the room says %u", gathering, r->gathering);
  c->waiting = r->waiting;
  c->gathering = gathering;
  c->in_service = r->in_service;
  c->used = p->used;
  c->flows = m->count;
  if (waiting != r->waiting || in_service != r->in_service)
    is_wrong(c, "the classes have %u waiting and %u in service, the room %u and %u", waiting, in_service,
             r->waiting, r->in_service);
  if (p->flows != c->flows || r->flows != c->flows)
    is_wrong(c, "there are %u flows, %u are counted, %u of the room", c->flows, p->flows, r->flows);
  for (__u32 b = 0; b < m->buckets; b++)
    for (__u32 e = m->bucket[b]; e; e = m->next[e])
      check_flow(c, p, (struct flow *)value_of(m, e));
  check_briefs(c, p, r);
  walk_free(c, p);
  check_users(c, p);
  if (c->used != c->in_lists + c->kept)
    is_wrong(c, "%u nodes are used, %u are in lists and %u kept", c->used, c->in_lists, c->kept);
  struct watch_ring *ring = the_watches();
  c->watched = ring->end - ring->first;
}

bool world_mirrors(__u64 high, __u64 low, bool v6, __u32 mask, __u32 seed) {
  const struct mirror_control m = {.until = 1, .mask = mask, .seed = seed};
  const __u64 source[2] = {high, v6 ? 0 : low};
  return is_chosen(&m, source);
}

/* ---- The order in a class ---- */

struct served {
  __u64 end;
  __u32 contender; /* number + 1; 0: the place is free */
  __u32 line;
  __u32 owner;
};

/* Has a request of a contender wait. */
static void contend(struct class_room *c, const struct contender *all, __u32 who) {
  static __u64 number = 1000;
  struct pool *p = the_pool();
  const struct contender *k = &all[who];
  const __u64 spread = 0x9e3779b97f4a7c15;
  __u64 source = (k->fresh ? number++ : k->network ? k->network + 100 : who + 1) * spread;
  __u32 node = take_node(p, 0, 0);
  link_of(p, node)->ifindex = who;
  if (!node || !join_line(node, source & ~LINE_KNOWN, false))
    abort();
  if (k->network && !join_line(node, source ^ ((k->made_up ? number++ : who + 1) * 0xd1342543de82ef95), true))
    abort();
  line_up(c, p, node, false);
  link_of(p, node)->state = NODE_WAITING;
  c->waiting++;
}

/* Lets the next request into a place. */
static void let_in(struct class_room *c, const struct contender *all, struct served *s, __u64 now) {
  struct pool *p = the_pool();
  for (int i = 0; i < MOST_PUT_OFF && put_off(c, p, front_of(c)); i++)
    ;
  __u32 node = front_of(c);
  if (!node)
    return;
  charge_release(c, p, node);
  unline(c, p, node);
  c->waiting--;
  const struct node_link *l = link_of(p, node);
  *s = (struct served){now + all[l->ifindex].cost, l->ifindex + 1, l->line, *owner_of(p, l->line) >> 32};
  free_node(p, node);
}

void world_contest(struct census *seen, struct contender *all, __u32 count, __u32 places, __u32 requests) {
  static struct class_room room, *c = &room;
  static struct served place[64];
  memset(c, 0, sizeof(*c));
  memset(place, 0, sizeof(place));
  for (__u32 i = 0; i < count; i++)
    for (__u32 n = 0; n < all[i].connections; n++)
      contend(c, all, i);
  for (__u64 now = 0; requests; requests--) {
    struct served *first = NULL;
    for (__u32 i = 0; i < places; i++) {
      if (!place[i].contender)
        let_in(c, all, &place[i], now);
      if (place[i].contender && (!first || place[i].end < first->end))
        first = &place[i];
    }
    struct contender *who = &all[first->contender - 1];
    now = first->end;
    count_service(c, who->cost);
    charge(c, the_pool(), first->line, first->owner, who->cost);
    who->served += who->cost;
    contend(c, all, first->contender - 1);
    first->contender = 0;
    if (requests % 100 == 1)
      walk_turns(seen, the_pool(), c, 0);
  }
}
