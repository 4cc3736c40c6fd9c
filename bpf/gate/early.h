/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What clients that pipeline send behind a request that is not over. It has to take its turn, so the stack is
 * not shown it; its client would send it again only a fifth of a second after the answer before. So it is
 * kept, and comes in place of the segment by which its client acknowledges the whole of that answer. It is a
 * copy of what the client still has: it may be lost at any time. docs/decisions/0069 */
#pragma once
#include "emit/slot.h"
#include "gate/scene.h"

#define EARLY_ROOM 4096 /* bytes of a connection */
#define EARLY_ENTRIES 1024
#define EARLY_SHIFT 54 /* 64 less the bits of an entry's number */

/* Bytes behind flow.next. Host byte order. */
struct early {
  __u64 flow;                /* id; 0: nobody's */
  __u32 start;               /* the client's sequence number of the first */
  __u32 length;              /* EARLY_ROOM at most */
  __u32 busy;                /* 1: a CPU has it */
  __u32 pad;                 /* 0 */
  __u8 byte[2 * EARLY_ROOM]; /* for the verifier, to which a beginning and a length are any */
};

/* Key: a hash of the flow's id, which is nobody's choice: who comes to an entry later has it. */
struct {
  __uint(type, BPF_MAP_TYPE_ARRAY);
  __uint(max_entries, EARLY_ENTRIES);
  __type(key, __u32);
  __type(value, struct early);
} early_bytes SEC(".maps");

/* The entry of a flow, for this CPU alone. NULL: another one has it. */
static __always_inline struct early *claim_early(__u64 flow) {
  __u32 index = flow * 0x9e3779b97f4a7c15ULL >> EARLY_SHIFT;
  struct early *e = bpf_map_lookup_elem(&early_bytes, &index);
  return e && !__sync_val_compare_and_swap(&e->busy, 0, 1) ? e : NULL;
}

static __always_inline void unclaim_early(struct early *e) { __sync_lock_test_and_set(&e->busy, 0); }

/* Puts the segment's bytes from a sequence number on behind those that are there, as far as there is room. */
static __always_inline void add_early(struct __sk_buff *skb, const struct segment *s, struct early *e,
                                      __u32 from) {
  __u32 at = BOUND(e->length, EARLY_ROOM - 1), n = s->seq + s->length - from;
  if (e->length >= EARLY_ROOM || from - s->seq >= s->length)
    return;
  if (n > EARLY_ROOM - at)
    n = EARLY_ROOM - at;
  if (!bpf_skb_load_bytes(skb, s->data + (from - s->seq), e->byte + at, AMOUNT(n, EARLY_ROOM)))
    e->length = at + n;
}

/* Whether the entry has bytes of the flow up to a sequence number. */
static __always_inline bool has_early(const struct early *e, const struct flow *f, __u32 end) {
  return e->flow == f->id && end - e->start <= e->length;
}

/* Keeps the segment's bytes from a sequence number on, if they are the first behind the request, or behind
 * what is kept. */
__noinline int keep_early(struct __sk_buff *skb, struct work *w, __u32 from) {
  if (!w)
    return 0;
  const struct flow *f = &w->flow;
  const struct segment *s = &w->s;
  if (f->protocol != PROTOCOL_HTTP || before(s->ack, f->answer) || before(f->sent, s->ack) ||
      !checksum_holds(skb, w))
    return 0;
  struct early *e = claim_early(f->id);
  if (!e)
    return 0;
  bool whole = has_early(e, f, s->seq + s->length), next = from == f->next;
  if (!whole && !next && has_early(e, f, from))
    add_early(skb, s, e, e->start + e->length);
  if (!whole && next) {
    e->flow = f->id;
    e->start = from;
    e->length = 0;
    add_early(skb, s, e, from);
  }
  unclaim_early(e);
  struct flow *entry = next ? find_by_key(&flows, &w->key) : NULL;
  if (entry && entry->id == f->id)
    entry->early = 1;
  return 0;
}

/* Drops a segment with a request that comes before its turn, and keeps that. */
static __always_inline int drop_early(struct __sk_buff *skb, struct work *w) {
  keep_early(skb, w, w->s.seq);
  return drop(REASON_PIPELINED);
}

/* Makes the segment one that has the entry's bytes from an offset on. */
static __always_inline bool fill_early(struct __sk_buff *skb, struct work *w, const struct early *e,
                                       __u32 offset) {
  struct segment *s = &w->s;
  __u32 n = e->length - offset, end = s->data + n;
  __be32 seq = bpf_htonl(w->flow.next);
  if (bpf_skb_change_tail(skb, end, 0))
    return false;
  asm volatile("" : "+r"(offset)); /* so that clang keeps the mask, which is for the verifier */
  if (bpf_skb_store_bytes(skb, s->data, e->byte + (offset & (EARLY_ROOM - 1)), AMOUNT(n, EARLY_ROOM),
                          BPF_F_RECOMPUTE_CSUM) ||
      bpf_skb_store_bytes(skb, s->l4 + 4, &seq, sizeof(seq), BPF_F_RECOMPUTE_CSUM))
    return false;
  struct extent x = {.l3 = s->l3, .l4 = s->l4, .end = end};
  if (seal(skb, &x, &w->key, w))
    return false;
  s->seq = w->flow.next;
  s->length = n;
  return true;
}

/* Whether the server, which has sent up to a sequence number, still owes a part of the answer. */
static __always_inline bool is_owed(const struct http_answer *a, __u32 sent) {
  return is_read_on(a) || a->state == ANSWER_CLOSES || (a->state == ANSWER_ENDS && before(sent, a->read));
}

/* Whether the segment acknowledges all that the server has said, and the stack has all that was let in: what
 * is behind may take its turn. */
static __always_inline bool may_recall(struct __sk_buff *skb, struct work *w) {
  const struct endpoint *sock = &w->socket;
  find_socket(skb, &w->key, &w->socket);
  return sock->state == BPF_TCP_ESTABLISHED && !sock->gap && sock->sequence == w->flow.next &&
         w->s.ack == sock->written && w->s.ack == last_sent(w) && !is_owed(&w->flow.reply, w->s.ack);
}

/* A segment of a flow, `f`, of which bytes are kept. TCX_NEXT: it is to be looked at, and may have others
 * now. */
__noinline int recall_early(struct __sk_buff *skb, struct work *w, struct flow *f) {
  if (!w || !f || w->s.flags & (TCP_RST | TCP_FIN))
    return TCX_NEXT;
  w->flow = *f;
  if (w->s.length && before(w->flow.next, w->s.seq))
    keep_early(skb, w, w->s.seq);
  bool comes_again = w->flow.next - w->s.seq < w->s.length; /* from there on */
  if (w->flow.state != FLOW_IDLE || w->flow.flags & FLOW_NEW || comes_again || !may_recall(skb, w) ||
      !checksum_holds(skb, w))
    return TCX_NEXT;
  struct early *e = claim_early(w->flow.id);
  if (!e)
    return TCX_NEXT;
  int verdict = TCX_NEXT;
  __u32 offset = w->flow.next - e->start;
  bool some = e->flow == w->flow.id && offset < e->length;
  if (!some)
    f->early = 0;
  else if (fill_early(skb, w, e, offset))
    count_reason(REASON_RECALLED, false, false);
  else
    verdict = drop(REASON_CLONE_FAULT);
  unclaim_early(e);
  return verdict;
}
