/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Segments of connections whose request waits: for its turn, or for the rest of its head. */
#pragma once
#include "gate/decide/turn.h"
#include "gate/recognise/marks.h"

/* Whether somebody has sent the segment who does not know what the client has got: before a
 * first request is released nothing more, later no less than when the request was sent. */
static __always_inline bool is_forged(struct __sk_buff *skb, struct work *w, const struct slot *slot) {
  if (w->s.flags & TCP_RST)
    return false;
  if (w->flow.flags & FLOW_NEW)
    return w->s.ack != slot->acknowledged;
  return before(w->s.ack, slot->acknowledged) || is_ahead(skb, w);
}

/* A segment whose client gives up a request that waits, by FIN or RST. */
__noinline int on_give_up(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct slot *slot = w && f ? slot_of(w->flow.node) : NULL;
  if (!slot)
    return TCX_DROP;
  if (!checksum_holds(skb, w))
    return drop(REASON_CHECKSUM);
  struct rejected *r = note_rejected(skb, w);
  r->seq = slot->sequence;
  if (!delete_flow(&w->key, f, &w->flow, w->flow.id, bpf_ktime_get_ns()))
    return drop(REASON_RACE);
  if (!(w->s.flags & TCP_RST))
    return answer(skb, w);
  set_reset(&w->emission, r);
  return emit(skb, w) ? TCX_DROP : TCX_NEXT;
}

/* Claims the slot of a request that waits, so that it stays where it is. */
static __always_inline bool claim(struct scene *sc) {
  struct work *w = sc->w;
  struct flow *f = sc->flow;
  bool mine = false;
  bpf_spin_lock(&sc->room->lock);
  if (is_as_seen(f, &w->flow) && f->next == w->next) {
    struct node_link *l = link_of(sc->pool, f->node);
    mine = (l->state == NODE_WAITING || l->state == NODE_GATHERING) && !l->busy;
    if (mine)
      l->busy = 1;
  }
  bpf_spin_unlock(&sc->room->lock);
  return mine;
}

/* Makes what was added to a slot the flow's. False: the flow has ended meanwhile. */
static __always_inline bool commit_slot(struct scene *sc, struct slot *slot, __u32 length) {
  struct flow *f = sc->flow;
  bpf_spin_lock(&sc->room->lock);
  bool mine = is_as_seen(f, &sc->w->flow) && f->flags == sc->w->flags && f->next == sc->w->next;
  if (mine) {
    note_request(f, &sc->w->flow);
    slot->length = length;
    if (before(slot->passed, sc->w->s.seq + sc->w->keep))
      slot->passed = sc->w->s.seq + sc->w->keep;
  }
  bpf_spin_unlock(&sc->room->lock);
  return mine;
}

/* Adds the next bytes of a held request to its slot. */
static __always_inline void extend(struct __sk_buff *skb, struct scene *sc, struct slot *slot) {
  struct work *w = sc->w;
  __u32 length = slot->length, extended = append_data(skb, w, w->flow.node);
  if ((int)extended <= (int)length)
    return;
  w->s.length = extended - length;
  if (w->flow.flags & FLOW_LOST)
    w->flow.next = w->s.seq + w->s.length;
  else if (w->flow.flags & FLOW_CHUNKS && read_request(skb, w, w->s.seq) == HTTP_LOST)
    return; /* it comes again, and is refused, when the request is in service */
  if (exceeds(w))
    extended -= w->s.seq + w->s.length - w->flow.next;
  commit_slot(sc, slot, extended);
}

/* Whether the segment's data are the next of the request, and of nothing beyond it. */
static __always_inline bool continues(const struct work *w, __u32 end) {
  const struct segment *s = &w->s;
  if (!s->length || s->seq != end)
    return false;
  return w->flow.flags & (FLOW_CHUNKS | FLOW_LOST) || !before(w->flow.next, s->seq + s->length);
}

/* A request begins of whose head this is a piece. The gate puts the pieces together in a slot,
 * and acknowledges them: a client may send one only when it knows that the last has arrived. */
__noinline int on_gather(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_flow_scene(&sc, w, f))
    return TCX_DROP;
  int fate;
  w->keep = w->s.length;
  __u32 node = fill_node(skb, &sc, &fate);
  if (!node)
    return settle(skb, &sc, fate);
  bool fits = w->kept == w->keep;
  if (fits)
    fate = try_gather(&sc, sc.flow, node);
  if (fate == FATE_HELD) {
    count_reason(REASON_GATHERED, true, false);
    return acknowledge(skb, w, w->s.seq + w->s.length, w->s.data + w->s.length);
  }
  free_node(sc.pool, node);
  if (!fits)
    return reject_unreadable(skb, w, REJECT_TOO_LARGE, w->s.seq);
  if (fate == FATE_REJECT)
    report(w, EVENT_REJECT, REJECT_QUEUE_FULL, 0);
  return settle(skb, &sc, fate);
}

/* Rejects a request that is in no list any more. */
static __always_inline int reject_whole(struct __sk_buff *skb, struct scene *sc, __u32 begin) {
  struct work *w = sc->w;
  __u32 node = w->flow.node;
  bool mine = delete_flow(&w->key, sc->flow, &w->flow, w->flow.id, w->now);
  choose_in_slot(skb, w, node, w->grown);
  free_node(sc->pool, node);
  if (mine)
    report(w, EVENT_REJECT, REJECT_QUEUE_FULL, 0);
  return mine ? reject_chosen(skb, w, begin) : drop(REASON_RACE);
}

/* The head of the request of w->flow has ended with this segment, which makes its slot w->grown
 * bytes long: takes its turn. */
__noinline int on_gathered(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_claimed_scene(&sc, w, f))
    return drop(REASON_RACE);
  __u32 node = w->flow.node;
  struct slot *slot = slot_of(node);
  if (!slot)
    return TCX_DROP;
  w->keep = exceeds(w) ? w->flow.next - w->s.seq : w->s.length;
  w->watch = 0;
  w->earns = known_source(w, sc.config->rank[w->flow.rank & (MAX_RANKS - 1)].known);
  int fate = take_turn(w, node, w->grown - (w->s.length - w->keep));
  keep_behind(skb, &sc, fate);
  if (fate == FATE_LOST) {
    unclaim(&sc);
    return drop(REASON_RACE);
  }
  if (fate == FATE_REJECT)
    return reject_whole(skb, &sc, slot->sequence);
  if (fate == FATE_HELD) {
    report(w, EVENT_HOLD, 0, 0);
    count_reason(REASON_GATHERED, true, false);
    return acknowledge(skb, w, w->s.seq + w->keep, slot->length);
  }
  report(w, EVENT_ADMIT, 0, 0);
  watch_flow(w, w->s.seq + w->keep);
  return pass_slot(skb, &sc);
}

/* Adds a piece of a head to its slot, which is claimed. */
static __always_inline int add_piece(struct __sk_buff *skb, struct scene *sc, struct slot *slot) {
  struct work *w = sc->w;
  __u32 length = slot->length, begin = slot->sequence, came = w->s.length;
  w->now = bpf_ktime_get_ns();
  w->keep = came;
  int extended = append_data(skb, w, w->flow.node);
  if (extended < 0) {
    unclaim(sc);
    return drop(REASON_CHECKSUM);
  }
  refresh_slot(skb, w, w->flow.node);
  w->s.length = extended - length;
  int step = read_request(skb, w, w->s.seq);
  __u32 why = why_unreadable(skb, sc, step, w->flow.node);
  if (w->flow.flags & FLOW_HEAD && w->s.length < came)
    why = REJECT_TOO_LARGE;
  if (!why && !(w->flow.flags & FLOW_HEAD)) {
    ask_if_due(skb, sc, step, w->flow.node);
    w->grown = extended;
    return has_rules(sc, step) ? STEP_READ : STEP_JUDGE;
  }
  bool mine = !why && commit_slot(sc, slot, extended);
  unclaim(sc);
  if (mine) {
    count_reason(REASON_GATHERED, true, false);
    return acknowledge(skb, w, w->s.seq + w->s.length, extended);
  }
  if (!why)
    return drop(REASON_RACE);
  w->s.length = came;
  return reject_unreadable(skb, w, why, begin);
}

/* A further segment while the head of the flow's request comes in pieces. */
static __always_inline int more_of_head(struct __sk_buff *skb, struct scene *sc, struct slot *slot) {
  struct work *w = sc->w;
  __u32 begin = slot->sequence, end = end_of_slot(slot);
  if (!w->s.length)
    return w->flow.flags & FLOW_NEW ? drop(REASON_HELD) : TCX_NEXT;
  if (w->s.seq == end)
    return claim(sc) ? add_piece(skb, sc, slot) : drop(REASON_RACE);
  /* Again, or too early: the client has to know where we are. */
  count_reason(before(end, w->s.seq) ? REASON_GAP : REASON_HELD, true, false);
  return w->s.seq - begin < 0x10000 ? acknowledge(skb, w, end, slot->length) : TCX_DROP;
}

/* Whether all of the request is in its slot, which ends there. */
static __always_inline bool is_whole(const struct work *w, __u32 end) {
  return !(w->flow.flags & (FLOW_CHUNKS | FLOW_LOST)) && !before(end, w->flow.next);
}

/* Whether the client asks whether it may go on: an empty segment from before what was acknowledged. */
static __always_inline bool is_probe(const struct work *w, __u32 end) {
  return w->flow.flags & FLOW_ACKED && !w->s.length && before(w->s.seq, end);
}

/* Tells the client how far its request is in its slot, if it is owed that. One that was told nothing may have
 * sent more than the slot takes. It sends what is lost of that when something new is acknowledged: that is
 * left to the server's stack. */
static __always_inline int answer_waiting(struct __sk_buff *skb, struct work *w, __u32 end, __u32 length) {
  const struct segment *s = &w->s;
  if (!(w->flow.flags & FLOW_ACKED))
    return TCX_DROP;
  if (!(w->flow.flags & FLOW_NEW)) {
    if (!before(s->seq, end) || (s->length && !is_whole(w, end)))
      return TCX_DROP;
    if (!is_whole(w, end))
      end = s->seq + 1;
  } else if (!s->length && !before(s->seq, end)) {
    return TCX_DROP;
  }
  return acknowledge(skb, w, end, length);
}

/* The client of a new connection asks how far we are, or may wait for that: from now on it is told. */
static __always_inline void owe_word(struct scene *sc) {
  struct work *w = sc->w;
  if (w->flow.protocol != PROTOCOL_HTTP || w->flow.flags & FLOW_ACKED)
    return;
  bpf_spin_lock(&sc->room->lock);
  if (is_as_seen(sc->flow, &w->flow))
    sc->flow->flags |= FLOW_ACKED;
  bpf_spin_unlock(&sc->room->lock);
  w->flags |= FLOW_ACKED;
  w->flow.flags |= FLOW_ACKED;
}

/* The same while the request waits for its turn. */
static __always_inline int more_of_request(struct __sk_buff *skb, struct scene *sc, struct slot *slot) {
  struct work *w = sc->w;
  const struct segment *s = &w->s;
  __u32 begin = slot->sequence, end = end_of_slot(slot), length = slot->length;
  if (claim(sc)) {
    if (s->seq == begin || s->seq == end)
      refresh_slot(skb, w, w->flow.node);
    w->keep = s->length;
    if (w->flow.flags & FLOW_NEW && !is_whole(w, end) &&
        (before(s->seq, end) || (s->length && awaits_word(w))))
      owe_word(sc);
    if (continues(w, end)) /* what does not will be sent again */
      extend(skb, sc, slot);
    length = slot->length;
    end = end_of_slot(slot);
    unclaim(sc);
  }
  if (!(w->flow.flags & FLOW_NEW) && !s->length && !(s->flags & TCP_FIN) && !is_probe(w, end))
    return TCX_NEXT; /* acknowledges the answer before */
  count_reason(REASON_HELD, true, false);
  return answer_waiting(skb, w, end, length);
}

/* The same where the stack has the request but for its beginning. What of it frames the next is read in its
 * order. */
static __always_inline int more_of_rest(struct __sk_buff *skb, struct scene *sc, struct slot *slot) {
  struct work *w = sc->w;
  const struct segment *s = &w->s;
  bool open = w->flow.flags & (FLOW_CHUNKS | FLOW_LOST), read = open || w->flow.head.flags & HTTP_CHUNKED;
  if (s->flags & TCP_FIN || (s->length && before(s->seq, slot->sequence + LEAST_WITHHELD)))
    return drop(REASON_HELD);
  if (!s->length)
    return TCX_NEXT; /* acknowledges the answer before */
  if ((read && s->seq != w->flow.next) || (!open && !before(s->seq, w->flow.next)))
    return drop(before(w->flow.next, s->seq) ? REASON_GAP : REASON_HELD);
  if (!checksum_holds(skb, w))
    return drop(REASON_CHECKSUM);
  if (w->flow.flags & FLOW_CHUNKS)
    set_mark(w, s->seq);
  if (w->flow.flags & FLOW_LOST)
    w->flow.next = s->seq + s->length;
  else if (open && read_request(skb, w, s->seq) == HTTP_LOST)
    return drop(REASON_HELD); /* it comes again, and is refused, when the request is in service */
  w->keep = exceeds(w) ? w->flow.next - s->seq : s->length;
  if (!commit_slot(sc, slot, slot->length) && read)
    return drop(REASON_RACE);
  return w->keep < s->length ? pass_until(skb, w, w->flow.next) : TCX_NEXT;
}

/* A further segment of a flow whose request is in a slot. */
__noinline int on_waiting(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_flow_scene(&sc, w, f))
    return TCX_DROP;
  const struct segment *s = &w->s;
  struct slot *slot = slot_of(w->flow.node);
  if (!slot)
    return TCX_DROP;
  __u32 end = w->flow.withheld ? slot->passed : end_of_slot(slot);
  if (is_forged(skb, w, slot))
    return drop(REASON_FORGED);
  if (s->flags & TCP_RST)
    return s->seq == end || s->seq == slot->sequence ? STEP_GIVE_UP : drop(REASON_FORGED);
  if (s->flags & TCP_FIN && s->seq == end && !s->length)
    return STEP_GIVE_UP;
  if (w->flow.withheld && w->flow.state == FLOW_HELD)
    return more_of_rest(skb, &sc, slot);
  return w->flow.state == FLOW_GATHERING ? more_of_head(skb, &sc, slot) : more_of_request(skb, &sc, slot);
}
