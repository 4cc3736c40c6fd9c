/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Looks again at flows that are watched, for what no packet tells. */
#pragma once
#include "gate/decide/turn.h"
#include "gate/recognise/syn.h"
#include "room/above.h"

/* Connections that are to be ended: their clients keep a server's workers waiting. Written by the programs;
 * the daemon takes them out, and has the kernel end their sockets, which no program can. When full the oldest
 * is lost: the next look finds it again. */
struct {
  __uint(type, BPF_MAP_TYPE_QUEUE);
  __uint(max_entries, 256);
  __uint(key_size, 0);
  __type(value, struct flow_key);
} stalled SEC(".maps");

/* Less than this of the stack's window is left when the client has to wait for the server. */
#define SHUT_WINDOW 4096

static __always_inline void find_out(struct finding *to, const struct flow *f, const struct watch *seen,
                                     const struct endpoint *sock) {
  bool open = sock->state == BPF_TCP_ESTABLISHED || sock->state == BPF_TCP_CLOSE_WAIT;
  bool still = takes_data(sock) && sock->sequence == seen->received;
  to->arrived = open;
  to->has = open ? sock->sequence : f->body;
  to->half_open = is_opening(sock, f);
  to->received = open ? !before(sock->sequence, to->slot_end) : !to->half_open;
  to->silent = still && sock->answer == seen->sent;
  to->missing = still && open && sock->window >= SHUT_WINDOW;
  to->crowded = sock->crowded;
  to->gap = sock->gap;
  to->mute = to->half_open || sock->silent;
  to->retracted = false;
  to->written = sock->written;
  to->acked = sock->acked;
  to->stalled = false;
}

/* Whether the flow's request is in service, or has been given up, and is in a slot still. */
static __always_inline bool concerns_us(const struct room *r, const struct flow *f) {
  return f->state == FLOW_SERVED && (f->node || !is_forgotten(r, f->epoch));
}

/* Whether the stack has nothing of the request in service. */
static __always_inline bool is_missed(const struct room *r, const struct flow *f,
                                      const struct finding *found) {
  if (!concerns_us(r, f) || f->flags & (FLOW_ANSWERED | FLOW_TUNNEL))
    return false;
  return found->half_open || (found->arrived && found->has == f->start && before(f->start, f->next));
}

/* How long a request stays in service that the stack has dropped, all or a part of which could come again
 * and do no harm, ns. */
#define LONGEST_LACK 2000000000ULL

/* The same in looks, where bytes behind its beginning were dropped. */
#define MOST_LACKS (LONGEST_LACK / WATCH_PERIOD)

/* Takes a request out of service whose client leaves out its body. Under the lock. */
static __always_inline void pause(struct room *r, struct pool *p, struct flow *f, __u64 now) {
  pay(r, p, f, now);
  f->state = FLOW_PAUSED;
  if (leave(r, f->class, f->epoch))
    class_of(r, f->class)->paused++;
}

/* A moment for flow.progressed, never 0. */
static __always_inline __u32 progress_time(__u64 now) { return (__u32)(now >> 20) | 1; }

/* Whether either side has got anything since the last look. Under the lock. */
static __always_inline bool has_progressed(struct flow *f, const struct finding *found, __u64 now) {
  __u32 sum = found->has + found->acked + found->written;
  if (f->progress == sum && f->progressed)
    return false;
  f->progress = sum;
  f->progressed = progress_time(now);
  return true;
}

/* Whether the server has written all of the answer. */
static __always_inline bool has_written(const struct flow *f, const struct finding *found) {
  return f->reply.state == ANSWER_ENDS && !before(found->written, f->reply.read);
}

/* The answer is under way. Once the server has written the last of it, only the client is waited for. So it
 * is, with `auto`, while the client takes nothing of what was written: servers that poll have others to work
 * for. Under the lock. */
static __always_inline void look_at_answer(struct room *r, struct pool *p, struct flow *f,
                                           const struct finding *found, __u64 now) {
  if (!found->arrived || f->flags & FLOW_TUNNEL || f->ends == END_CLOSE)
    return;
  if (has_written(f, found)) {
    end_service(r, p, f, now);
  } else if (f->ends == END_AUTO && !found->progressed && found->written != found->acked) {
    pause(r, p, f, now);
    return_places(p, f);
    f->state = FLOW_IDLE;
  }
}

/* Whether it is the client's turn, and a worker that works for one connection at a time waits for it: the
 * client leaves out a part of its body, or does not take what was written. */
static __always_inline bool keeps_worker(const struct flow *f, const struct finding *found) {
  if (!found->arrived || f->protocol != PROTOCOL_HTTP || f->flags & FLOW_TUNNEL)
    return false;
  if (f->state == FLOW_PAUSED || (f->state == FLOW_SERVED && expects_body(f, found->has)))
    return true;
  return (f->state == FLOW_SERVED || f->state == FLOW_IDLE) && !has_written(f, found) &&
         found->written != found->acked;
}

/* Whether the client has done so for longer than its class may, while others wait. Under the lock. */
static __always_inline bool has_stalled(const struct flow *f, const struct finding *found, __u64 now) {
  return found->waited_for && progress_time(now) - f->progressed >= found->stall && keeps_worker(f, found);
}

/* Whether the server may have begun to answer, and works on that: the little that has passed does not say
 * whether it is an interim answer. */
static __always_inline bool may_answer(const struct flow *f) {
  return f->ends == END_LAST_BYTE && f->reply.state == ANSWER_HEAD && f->reply.at;
}

/* Under the lock. */
static __always_inline void look_at_service(struct room *r, struct pool *p, struct flow *f,
                                            const struct finding *found, __u64 now) {
  if (f->protocol != PROTOCOL_HTTP) {
    /* Where nothing waits, a ClientHello is not put together: it is the client who owes its rest. */
    bool owes = f->flags & FLOW_HEAD && found->has == f->next;
    if (found->silent && (owes || f->flags & FLOW_ANSWERED) && f->ends != END_CLOSE)
      end_service(r, p, f, now);
  } else if (f->flags & FLOW_ANSWERED) {
    look_at_answer(r, p, f, found, now);
  } else if (found->missing && !f->moves && found->has != f->start && expects_body(f, found->has) &&
             !may_answer(f)) {
    if (!before(found->has, f->body) || f->lacks >= MOST_LACKS)
      pause(r, p, f, now);
  }
  bool lacks = found->arrived && before(found->has, f->body);
  f->lacks = lacks ? f->lacks + (f->lacks < MOST_LACKS) : 0;
}

/* How long a request that the stack has dropped keeps its place: shortly, where it can take its turn as if it
 * had not come. What must fit bytes beyond it that the stack has can only be that request again. */
static __always_inline __u64 patience_with(const struct finding *found) {
  return found->gap ? LONGEST_LACK : ON_ITS_WAY;
}

/* The stack has not got the request that is in the flow's slot. It is put there again, and at last rejected,
 * which counts as a turn of its own. Under the lock. */
static __always_inline void insist(struct room *r, struct pool *p, struct flow *f, bool missed, __u64 now) {
  if (link_of(p, f->node)->state != NODE_KEPT)
    return;
  if (!missed || now - f->since < LONGEST_LACK) {
    make_due_again(r, p, f->node);
    return;
  }
  pause(r, p, f, now);
  class_of(r, f->class)->arrived++;
  class_of(r, f->class)->held++;
  f->state = FLOW_HELD;
  make_due(r, p, f->node, REJECT_NO_SERVER);
}

/* Whether the client has sent nothing since the stack has what was in its request's slot, though more is to
 * come: the acknowledgement may be lost that told it to go on. */
static __always_inline bool is_unaware(const struct flow *f, const struct finding *found) {
  return f->state == FLOW_SERVED && found->missing && !f->moves && found->has == found->slot_end &&
         expects_body(f, found->has);
}

/* Does what the finding leads to. Returns a node that is to be freed, or 0. Under the lock. */
static __always_inline __u32 look_at(struct room *r, struct pool *p, struct flow *f, const struct flow *was,
                                     struct finding *found, __u64 now) {
  __u32 node = 0;
  if (f->state == FLOW_SERVED && f->since != was->since)
    return 0; /* it has entered service since: the finding is of what was before, and it stays watched */
  bool missed = is_missed(r, f, found);
  found->progressed = has_progressed(f, found, now);
  if (found->arrived)
    f->flags &= ~FLOW_COOKIE;
  if (f->node && f->state != FLOW_HELD && f->state != FLOW_GATHERING) {
    if (found->received && !is_unaware(f, found))
      node = part_node(r, p, f);
    else
      insist(r, p, f, missed && !found->crowded, now);
  } else if (missed && !f->moves && !(f->flags & FLOW_ACKED) && now - f->since >= patience_with(found)) {
    found->retracted = !found->gap;
    if (found->gap)
      pause(r, p, f, now);
    else
      retract(r, p, f, found->half_open);
  }
  if (f->state == FLOW_SERVED && !is_forgotten(r, f->epoch))
    look_at_service(r, p, f, found, now);
  f->moves = 0;
  f->watched = concerns_us(r, f) && (missed || wants_watch(f, found->has));
  if (found->stall) {
    found->stalled = has_stalled(f, found, now);
    f->watched |= f->state == FLOW_SERVED || keeps_worker(f, found);
  }
  return node;
}

/* A request was retracted: where there is nothing else of its connection, that begins anew. */
static __always_inline void forget_retracted(struct work *w, struct flow *f, const struct finding *found) {
  if (!found->mute || (w->flow.protocol == PROTOCOL_HTTP && !found->half_open))
    return;
  w->flow.state = FLOW_IDLE;
  w->flow.moves = 0;
  delete_flow(&w->look.key, f, &w->flow, w->look.id, w->now);
}

/* Looks at what the stack has of the flow of w->look. Returns the slot of its service if something may
 * have become due there; MAX_SERVICES: nothing. w->found.due: there is something to be done. */
__noinline int look_again(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return MAX_SERVICES;
  w->found.due = false;
  struct flow *f = find_by_key(&flows, &w->look.key);
  if (!f)
    look_at_brief(w);
  if (!f || f->id != w->look.id)
    return MAX_SERVICES;
  struct endpoint *sock = &w->socket;
  w->flow = *f; /* before the socket: what the socket says is of this request, or of a later one */
  find_socket(skb, &w->look.key, sock);
  w->now = bpf_ktime_get_ns();
  if (is_over(&w->flow, sock->state, w->now)) { /* its end was missed */
    delete_flow(&w->look.key, f, &w->flow, w->look.id, w->now);
    return w->flow.room;
  }
  const struct slot *slot = slot_of(w->flow.node);
  w->found.slot_end = slot ? end_of_slot(slot) : 0;
  find_out(&w->found, &w->flow, &w->look, sock);
  w->found.due = true;
  return w->flow.room;
}

/* How long clients of a class may keep a worker waiting, 2^20 ns; 0: as long as they like. */
static __always_inline __u32 stall_of(const struct room_config *c, __u32 class) {
  __u32 stall = 0;
  for (__u32 i = 0; i < MAX_RANKS; i++)
    if (i < c->ranks && c->rank[i].class == class)
      stall = c->stall[i];
  return stall;
}

/* Has the connection of w->look ended. */
static __always_inline void give_to_daemon(struct work *w) {
  struct flow_key key = w->look.key;
  count_reason(REASON_STALLED, false, false);
  bpf_map_push_elem(&stalled, &key, BPF_EXIST);
}

/* Does what the look at the flow of w->look, as w->flow was then, leads to. */
__noinline int act_on_look(struct work *w) {
  struct scene sc;
  if (!w || !open_scene(&sc, w->flow.room))
    return 0;
  struct flow *f = find_by_key(&flows, &w->look.key);
  if (!f)
    return 0;
  struct finding *found = &w->found;
  __u32 node = 0;
  bool again = false;
  found->stall = stall_of(sc.config, w->flow.class);
  found->waited_for = found->stall && is_waited_for(sc.room);
  bpf_spin_lock(&sc.room->lock);
  if (f->id == w->look.id) {
    node = look_at(sc.room, sc.pool, f, &w->flow, found, w->now);
    again = f->watched;
  }
  bpf_spin_unlock(&sc.room->lock);
  if (node)
    free_node(sc.pool, node);
  if (found->stalled)
    give_to_daemon(w);
  if (found->retracted) {
    count_reason(REASON_UNTAKEN, false, false);
    forget_retracted(w, f, found);
  }
  if (again) {
    w->look.received = w->socket.sequence;
    w->look.sent = w->socket.answer;
    push_watch(w, w->now);
  }
  return 0;
}

/* What a packet of a service sees to when it has been decided on. */
enum need {
  NEED_ROOM = 1,  /* something is due in its room */
  NEED_ABOVE = 2, /* or may be in what that shares places with */
  NEED_LOOKS = 4  /* flows are to be looked at */
};

/* What a room seems to need, a set of enum need; it must be seen to then, for it is asked once per tick. */
static __always_inline __u32 needs_of_room(__u32 slot) {
  struct room *r = room_of(slot);
  return r ? (seems_due(r) ? NEED_ROOM : 0) | (r->pooled ? NEED_ABOVE : 0) : 0;
}

static __always_inline void see_to_room(struct __sk_buff *skb, __u32 slot, __u32 needs) {
  if (needs & NEED_ROOM)
    attend(skb, slot);
  if (needs & NEED_ABOVE)
    attend_above(skb, slot);
}

/* Flows that a packet looks at at most. */
#define MAX_LOOKS 4

/* Looks at flows whose time has come. Returns how many it were. */
__noinline int look_round(struct __sk_buff *skb, struct work *w) {
  struct watch_ring *ring = the_watches();
  if (!w)
    return 0;
  for (int i = 0; i < MAX_LOOKS; i++) {
    __u64 now = bpf_ktime_get_ns();
    if (!pop_watch(ring, w, now, skb->ifindex))
      return i;
    __u32 ifindex = w->look.ifindex;
    if (ifindex != skb->ifindex) {
      if (kick_elsewhere(skb, MARK_LOOK, ifindex))
        continue;
      if (!pop_watch(ring, w, now, 0)) /* that interface is no more */
        continue;
    }
    __u32 slot = look_again(skb, w);
    if (w->found.due)
      act_on_look(w);
    see_to_room(skb, slot, needs_of_room(slot));
  }
  return MAX_LOOKS;
}

/* What a room seems to need, and flows that are watched. */
static __always_inline __u32 what_is_needed(__u32 slot) {
  return needs_of_room(slot) | (seems_watchful(the_watches()) ? NEED_LOOKS : 0);
}

static __always_inline void see_to(struct __sk_buff *skb, struct work *w, __u32 slot, __u32 needs) {
  see_to_room(skb, slot, needs);
  if (needs & NEED_LOOKS)
    look_round(skb, w);
}
