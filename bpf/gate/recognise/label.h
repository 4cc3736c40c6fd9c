/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What an application says of whose a connection's next requests are. */
#pragma once
#include "gate/decide/turn.h"
#include "policy/clients.h"

/* Rank of the class whose name has the hash; MAX_RANKS: the policy has none. */
static __always_inline __u32 rank_of_label(struct image *im, const struct header *h, __u32 ranks,
                                           __u32 class) {
  __u32 cell = h->labels, rank = 0;
  const struct page *page = cell ? page_of(im, cell) : NULL;
  if (!page)
    return MAX_RANKS;
  const __u32 *name = page->state + cell % PAGE_CELLS * MAX_RANKS;
  while (rank < MAX_RANKS && (rank >= ranks || name[rank] != class))
    rank++;
  return forget(rank, class);
}

/* Whose the answer of w->flow is: its client. False: a trusted proxy's, which did not say who that is. */
static __always_inline bool answered_client(struct packet *to, struct image *im, const struct header *h,
                                            const struct work *w) {
  to->src[0] = w->s.p.dst[0];
  to->src[1] = w->s.p.dst[1];
  to->dst[0] = w->s.p.src[0];
  to->dst[1] = w->s.p.src[1];
  to->dport = w->s.p.sport;
  to->v6 = w->s.p.v6;
  const struct service *s = find_service(im, h, to);
  if (!s || !is_trusted(im, s, to))
    return s != NULL;
  to->src[0] = w->flow.client.word[0];
  to->src[1] = w->flow.client.word[1];
  to->v6 = w->flow.client.v6;
  return w->flow.named & (NAMED_CLIENT | NAMED_FORWARDED);
}

/* What Narthex-Class says in the answer of w->flow, whose head has been read: rank + 1 of the class that the
 * next requests are of; 0: it names none of the policy. */
__noinline int read_label(struct work *w) {
  struct image im;
  struct packet client = {};
  const struct header *h = open_image(&im);
  const struct room_config *c = w && h ? room_config(&im, h, w->flow.room) : NULL;
  if (!c)
    return 0;
  struct label *l = &w->flow.reply.head.label;
  __u32 rank = rank_of_label(&im, h, c->ranks, l->class), lasts = l->lasts;
  l->class = 0; /* once */
  if (rank >= MAX_RANKS) {
    count_reason(REASON_NO_CLASS, false, false);
    return 0;
  }
  __u64 now = bpf_ktime_get_ns();
  if (lasts && !c->shadow && answered_client(&client, &im, h, w))
    remember_client(c, &client, rank, now + lasts * 1000000000ULL);
  return rank + 1;
}

/* What SO_MARK or SO_PRIORITY of the socket that sends a segment says, if it is another than before: as
 * read_label(). */
__noinline int read_socket_label(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct said said;
  struct bpf_sock *sk = (void *)skb->sk;
  sk = sk ? bpf_sk_fullsock(sk) : NULL;
  if (!w || !f || !sk || !find_room(w->flow.room, &said))
    return 0;
  const struct room_config *c = said.config;
  __u32 mark = sk->mark, priority = sk->priority;
  bool marked = mark != f->seen_mark, other = priority != f->seen_priority;
  f->seen_mark = mark;
  f->seen_priority = priority;
  if (marked && c->mark && mark - c->mark < c->ranks)
    return mark - c->mark + 1;
  if (!other || priority >= SOCKET_PRIORITIES)
    return 0;
  asm volatile("" : "+r"(priority)); /* so that clang keeps the mask, which is for the verifier */
  return c->of_priority[priority & (SOCKET_PRIORITIES - 1)];
}

/* Notes in w->labelled what the application says with a segment of w->flow: rank + 1 of the class that the
 * connection's next requests are of; 0: nothing. */
__noinline int read_labels(struct __sk_buff *skb, struct work *w, struct flow *f, __u32 ways) {
  if (!w)
    return 0;
  int rank = ways & LABELS_SOCKET ? read_socket_label(skb, w, f) : 0;
  if (w->flow.reply.head.label.class && w->flow.reply.state > ANSWER_HEAD)
    rank = read_label(w) ?: rank;
  w->labelled = rank;
  return 0;
}
