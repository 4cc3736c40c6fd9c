/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What request rules make of a request, before it takes its turn. */
#pragma once
#include "gate/mirror.h"
#include "gate/recognise/http.h"
#include "match/reader.h"
#include "policy/bucket.h"

/* Where the request goes on that may go on. */
static __always_inline int next_step(const struct work *w) { return w->grown ? STEP_GATHERED : STEP_TURN; }

/* The client's sequence number up to which the stack has its bytes. */
static __always_inline __u32 request_begin(const struct work *w) {
  const struct slot *slot = w->grown ? slot_of(w->flow.node) : NULL;
  return slot ? slot->sequence : w->s.seq;
}

/* Ends the connection of a request that is not to be served, as w->why says. */
__noinline int on_reject(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_request_scene(&sc, w, f))
    return drop(REASON_RACE);
  __u32 has = request_begin(w), why = w->why;
  if (w->grown) {
    choose_in_slot(skb, w, w->flow.node, w->grown);
    unclaim(&sc);
  }
  if (why == REJECT_MALFORMED || why == REJECT_COMPLEX)
    return reject_unreadable(skb, w, why, has);
  if (!checksum_holds(skb, w))
    return drop(REASON_CHECKSUM);
  if (!delete_flow(&w->key, sc.flow, &w->flow, w->flow.id, w->now))
    return drop(REASON_RACE);
  note_rejection(sc.room, w, why, false);
  if (why == REJECT_DROPPED)
    w->say.length = 0;
  else if (!w->grown)
    return reject_request(skb, w, has);
  return reject_chosen(skb, w, has);
}

/* Makes the request the flow's without having it counted or wait: it goes by every control. */
static __always_inline bool exempt(struct scene *sc) {
  struct work *w = sc->w;
  struct flow *f = sc->flow;
  struct slot *slot = w->grown ? slot_of(w->flow.node) : NULL;
  bpf_spin_lock(&sc->room->lock);
  bool mine = slot ? f->id == w->flow.id && f->state == FLOW_GATHERING : is_ready_for(sc->room, f, w);
  if (mine) {
    if (slot) {
      struct node_link *l = link_of(sc->pool, w->flow.node);
      l->busy = 0;
      withdraw(sc->room, sc->pool, w->flow.node);
      slot->length = w->grown;
    }
    note_turn(f, w);
    f->state = FLOW_IDLE;
    f->flags &= ~FLOW_NEW;
    if (f->flags & FLOW_LOST) /* a body without end */
      f->flags |= FLOW_TUNNEL;
    w->watch = slot && !f->watched;
    f->watched |= w->watch;
  }
  bpf_spin_unlock(&sc->room->lock);
  return mine;
}

/* A request of which a rule says that it passes. */
__noinline int on_exempt(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  if (!w || !open_request_scene(&sc, w, f))
    return w ? drop(REASON_RACE) : TCX_DROP;
  __u32 beyond = exceeds(w) ? w->s.seq + w->s.length - w->flow.next : 0;
  if (w->grown)
    w->grown -= beyond;
  if (!exempt(&sc)) {
    if (w->grown)
      unclaim(&sc);
    return drop(REASON_RACE);
  }
  if (w->grown) {
    watch_flow(w, w->s.seq + w->s.length - beyond);
    return pass_slot(skb, &sc);
  }
  return beyond && !is_lenient(&sc) ? pass_until(skb, w, w->flow.next) : TCX_NEXT;
}

/* Notes whom the service trusts to say who its clients are, and whether the connection's peer is one
 * of them. */
__noinline int read_trust(struct work *w) {
  struct image im;
  struct reading *r = the_reading();
  const struct header *h = open_image(&im);
  const struct service *s = w && r && h ? find_service(&im, h, &w->s.p) : NULL;
  if (!s)
    return 0;
  r->trusted[0] = s->trusted_v4;
  r->trusted[1] = s->trusted_v6;
  return is_trusted(&im, s, &w->s.p);
}

/* Reads whom the PROXY header names that the request begins with. False: it is malformed. */
__noinline int read_proxy(struct __sk_buff *skb, struct work *w, __u32 node) {
  if (!w)
    return 0;
  __u32 at = w->reading.at, left = w->reading.left, size = w->flow.proxy.size;
  if (load_piece(skb, w, node))
    return 0;
  int named = proxy_address(&w->chunk, left - w->reading.left, &w->flow.client);
  if (named == PROXY_ADDRESS)
    w->flow.named |= NAMED_CLIENT;
  w->reading.at = at + size;
  w->reading.left = left < size ? 0 : left - size;
  return named != PROXY_MALFORMED;
}

/* The client of a connection from a trusted proxy, as far as it is known without the request. */
static __always_inline void begin_client(struct work *w, struct reading *r) {
  bool firm = w->flow.named & NAMED_CLIENT && !trusts(r, &w->flow.client);
  r->head.forwarded = !firm;
  if (firm) {
    r->from = w->flow.client;
    r->client = CLIENT_FIRM;
  } else {
    r->head.letters |= LETTER_BIT('x');
  }
}

/* Notes in w->from who the client is. */
static __always_inline void end_client(struct work *w, const struct reading *r) {
  if (r->client != CLIENT_WEAK && r->client != CLIENT_FIRM)
    return;
  w->from.src[0] = r->from.word[0];
  w->from.src[1] = r->from.word[1];
  w->from.v6 = r->from.v6;
  w->named = r->client == CLIENT_FIRM;
  if (!w->named || w->flow.named & NAMED_CLIENT)
    return;
  w->flow.client = r->from;
  w->flow.named |= NAMED_FORWARDED;
}

/* Goes to where the request of w->flow begins, which is whole. Returns the slot that it is in, or 0. */
static __always_inline __u32 begin_reading(struct work *w) {
  __u32 node = w->grown ? w->flow.node : 0;
  const struct slot *slot = slot_of(node);
  w->reading.at = node && slot ? slot->data : w->s.data;
  w->reading.left = node && slot ? w->grown - slot->data : w->s.length;
  return node;
}

/* The head of a request of w->flow, which is in the table, is whole: reads what it says. Returns why it
 * cannot be served, or 0; the rule is in the reading. */
__noinline int read_rules(struct __sk_buff *skb, struct work *w) {
  struct reading *r = the_reading();
  if (!w || !r)
    return 0;
  reading_begin(r);
  __u32 node = begin_reading(w);
  w->from = w->s.p;
  w->named = 0;
  w->proxied = read_trust(w);
  if (w->flow.named & NAMED_HERE && !read_proxy(skb, w, node))
    return REJECT_MALFORMED;
  if (w->proxied)
    begin_client(w, r);
  if (w->flow.protocol == PROTOCOL_TLS)
    read_hello(skb, w, r, node);
  else if (!read_head(skb, w, r, node))
    return REJECT_MALFORMED;
  if (w->proxied)
    end_client(w, r);
  find_joint(w, r);
  return r->complex ? REJECT_COMPLEX : 0;
}

/* The rule that the reading has come to. NULL: none. */
static __always_inline const struct rule *rule_of(struct image *im, const struct reading *r) {
  const struct header *h = open_image(im);
  const struct match *m = h ? match_of(im, h) : NULL;
  if (!m || r->best >= m->rule_count)
    return NULL;
  __u32 cell = m->rules + r->best;
  const struct page *page = page_of(im, cell);
  return page ? &page->cell[cell % PAGE_CELLS].rule : NULL;
}

/* What a rule comes to. */
enum ruling { RULING_GO, RULING_PASS, RULING_REJECT, RULING_DROP, RULING_BLOCKED };

/* Makes places the flow's that limits have given to its request, in place of those that it has. */
static __always_inline void keep_places(struct room *r, struct flow *f, __u64 id, __u64 places) {
  bpf_spin_lock(&r->lock);
  if (f->id == id) {
    __u64 had = f->places;
    f->places = places;
    places = had;
  }
  bpf_spin_unlock(&r->lock);
  leave_places(the_pool(), places);
}

/* Takes tokens and places for the request from the limits from a cell on. */
__noinline int take_for_request(struct work *w, __u32 cell, __u32 generation) {
  const struct reading *read = the_reading();
  struct room *r = w ? room_of(w->flow.room) : NULL;
  struct flow *f = r ? find_by_key(&flows, &w->key) : NULL;
  if (!read || !f)
    return FAULT;
  if (f->places) /* it was decided on before, and has come again */
    keep_places(r, f, w->flow.id, 0);
  w->places = 0;
  int taken = take_tokens(&w->from, &read->keys, cell, generation, w->now, &w->places);
  if (is_refused(taken))
    leave_places(the_pool(), w->places);
  else if (w->places)
    keep_places(r, f, w->flow.id, w->places);
  return taken;
}

/* Takes a token for the request. */
static __always_inline int ruling_by_rate(const struct rule *rule, struct work *w, __u64 value,
                                          __u32 generation) {
  int taken = rule->limits ? take_for_request(w, rule->limits, generation)
                           : take_limit(rule, &w->from, value, w->now, &w->places);
  if (!is_refused(taken))
    return RULING_GO;
  if (rule->request.over != OVER_DEMOTE)
    return rule->request.over == OVER_DROP ? RULING_DROP : RULING_REJECT;
  w->demoted = 1;
  return RULING_GO;
}

static __always_inline int ruling_of(const struct rule *rule, struct work *w, __u64 value, __u32 generation) {
  w->demoted = 0;
  if (!is_enforced(rule, w->flow.room, w->now))
    return RULING_GO;
  switch (rule->action) {
  case ACTION_POLICE:
    return ruling_by_rate(rule, w, value, generation);
  case ACTION_PASS:
    return RULING_PASS;
  case ACTION_DROP:
    return RULING_DROP;
  case ACTION_REJECT:
    return RULING_REJECT;
  }
  return RULING_GO;
}

/* What the connection rule says that matches the client of a trusted proxy: the proxy's own says nothing of
 * its clients. Their rates are of connections, and theirs are the proxy's. */
__noinline int apply_client(struct work *w) {
  struct image im;
  const struct header *h = open_image(&im);
  const struct room_config *c = w && h ? room_config(&im, h, w->flow.room) : NULL;
  if (!c)
    return RULING_GO;
  const struct service *s = find_service(&im, h, &w->s.p);
  const struct rule *rule = s ? find_rule(&im, s, c, &w->from, listed_in(h, &w->from)) : NULL;
  set_rank(&w->flow, c, source_rank(c, rule, &w->from));
  if (h->blocks && is_blocked(&w->from, w->now))
    return RULING_BLOCKED;
  if (!rule)
    return RULING_GO;
  if (!is_enforced(rule, w->flow.room, w->now))
    return RULING_GO;
  w->by = rule->slot;
  return rule->action == ACTION_DROP ? RULING_REJECT : rule->action == ACTION_PASS ? RULING_PASS : RULING_GO;
}

/* Remembers what the rule says of the request's client. */
__noinline int remember(struct work *w, const struct room_config *c, const struct rule *rule, __u32 refused) {
  if (!w || !c || !rule)
    return 0;
  if (refused && rule->request.block && (!w->proxied || w->named))
    block_client(&w->from, w->now + rule->request.block);
  if (!refused && !w->demoted && !w->proxied && rule->request.learn)
    learn_client(c, &w->from, w->flow.rank, w->now, w->now + rule->request.learn);
  return 0;
}

/* Counts a request for its rule, and remembers what the rule says of its client. */
static __always_inline void settle_rule(struct work *w, const struct room_config *c, const struct rule *rule,
                                        int ruling) {
  bool refused = ruling >= RULING_REJECT;
  __u32 slot = rule->slot;
  count(bpf_map_lookup_elem(&rule_counts, &slot), refused || w->demoted, c->shadow);
  if (!c->shadow && rule->request.block | rule->request.learn)
    remember(w, c, rule, refused);
}

/* Applies the rule to w->flow and what is remembered of the client. */
static __always_inline int apply_rule(struct scene *sc) {
  struct work *w = sc->w;
  struct image im;
  struct reading *r = the_reading();
  if (!r)
    return RULING_GO;
  w->flow.rule = r->best;
  const struct rule *rule = rule_of(&im, r);
  if (!rule)
    return RULING_GO;
  __u64 value = key_of(&r->keys, rule);
  int ruling = ruling_of(rule, w, value, im.generation);
  w->by = rule->slot;
  w->debt = rule->action == ACTION_POLICE && heard_at(true) ? debt_of(rule, &w->from, value, w->now) : 0;
  if (w->demoted)
    set_rank(&w->flow, sc->config, sc->config->ranks - 1);
  else if (rule->class != NO_CLASS)
    set_rank(&w->flow, sc->config, rule->class);
  settle_rule(w, sc->config, rule, ruling);
  if (ruling >= RULING_REJECT)
    w->row = rule->request.answer;
  if (w->demoted)
    report(w, EVENT_DEMOTE, 0, sc->config->shadow);
  return ruling;
}

static __always_inline __u32 why_of(const struct work *w, int ruling) {
  if (ruling == RULING_BLOCKED)
    return REJECT_BLOCKED;
  return ruling == RULING_DROP && !w->proxied ? REJECT_DROPPED : REJECT_RULE;
}

/* Notes for a copy of the request what was decided of it. */
static __always_inline void note_fate(struct work *w, __u32 why) {
  w->why = why;
  w->fate = w->demoted ? MIRROR_DEMOTE : MIRROR_PASS;
  if (why)
    w->fate = why == REJECT_DROPPED ? MIRROR_DROP : MIRROR_REJECT;
}

/* Does with the request what has been read of it, or its rule, says. */
__noinline int apply_rules(struct work *w, struct flow *f) {
  struct scene sc;
  if (!w)
    return TCX_NEXT;
  __u32 why = w->why;
  if (!open_request_scene(&sc, w, f))
    return drop(REASON_RACE); /* the flow has ended: what comes again is decided anew */
  w->now = bpf_ktime_get_ns();
  set_rank(&w->flow, sc.config, w->flow.home);
  w->flow.rule = NO_MATCH;
  int ruling = RULING_GO;
  if (why)
    ruling = RULING_REJECT;
  else if (w->proxied)
    ruling = apply_client(w);
  if (ruling == RULING_GO)
    ruling = apply_rule(&sc);
  if (ruling >= RULING_REJECT)
    why = why ? why : why_of(w, ruling);
  if (ruling == RULING_BLOCKED)
    w->row = ROW_BLOCKED;
  note_fate(w, why);
  if (ruling == RULING_PASS)
    return sc.config->shadow ? next_step(w) : STEP_EXEMPT;
  if (ruling == RULING_GO)
    return next_step(w);
  if (is_lenient(&sc)) {
    report(w, EVENT_REJECT, why, 1);
    return next_step(w);
  }
  return STEP_REJECT;
}

/* A request begins, and all of its head is there: what its rule says of it, which who tries out another
 * policy gets a copy of. */
__noinline int on_judge(struct __sk_buff *skb, struct work *w, struct flow *f) {
  if (!w)
    return TCX_NEXT;
  __u32 level = run_level();
  bool copies = is_mirrored() && begin_mirror(skb, w, level);
  int step = w->read ? apply_rules(w, f) : next_step(w);
  if (copies)
    end_mirror(w, level);
  return step;
}

/* The whole of a request's head again, of which the stack has nothing, after read_rules(): the rule must be
 * the one by which it was decided. */
__noinline int on_compare(struct __sk_buff *skb, struct work *w, struct flow *f) {
  struct scene sc;
  struct reading *r = the_reading();
  if (!w || !r || !open_flow_scene(&sc, w, f))
    return drop(REASON_RACE);
  if (w->why || r->best != w->flow.rule)
    return close_checked(skb, w, REASON_FORGED);
  if (!note_read(&sc, w->next))
    return drop(REASON_RACE);
  return exceeds(w) ? pass_until(skb, w, w->flow.next) : TCX_NEXT;
}
