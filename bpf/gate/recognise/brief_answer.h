/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the server's segments mean for requests of flows in short form. */
#pragma once
#include "gate/brief.h"
#include "gate/recognise/response.h"

/* Reads the beginning of an answer. Returns enum news; NEWS_NONE: only the long form can follow it. */
static __always_inline int read_brief_answer(struct __sk_buff *skb, struct work *w,
                                             const struct brief_flow *b) {
  struct flow *f = &w->flow;
  f->protocol = PROTOCOL_HTTP;
  f->ends = b->ends;
  f->flags = b->flags & BRIEF_CLOSES ? FLOW_CLOSES : 0;
  f->head.seen = 0;
  f->head.flags = b->flags & BRIEF_HEAD ? HTTP_HEAD_METHOD : 0;
  f->answer = b->answer;
  f->reply = (struct http_answer){.state = ANSWER_HEAD, .read = b->answer};
  follow_answer(skb, w);
  return f->reply.state == ANSWER_ENDS ? answer_news(skb, w) : NEWS_NONE;
}

/* A segment with data or an end from the server. 0: the flow has the long form now, or is to have it. */
__noinline int on_brief_out(struct __sk_buff *skb, struct work *w, struct brief_flow *b) {
  if (!w || !b)
    return 1;
  struct room *r = room_of(b->room);
  __u64 since = b->since;
  __u32 end = w->s.seq + w->s.length;
  w->flow.room = b->room;
  if (b->socket_priority)
    skb->priority = b->socket_priority;
  __u32 more = before(b->sent, end) ? end - b->sent : 0;
  if (before(b->sent, end_of(&w->s))) /* nobody else writes that, as in note_sent() */
    b->sent = end_of(&w->s);
  if (since == BRIEF_GONE || !r) /* who has the long form counts it */
    return 0;
  if (more)
    count_bytes(class_of(r, b->class), &b->got, w->s.ack, more);
  if (!since || !w->s.length || !before(b->answer, end))
    return 1; /* of the socket's end sockops tells */
  if (!(b->flags & BRIEF_ANSWERED)) {
    int news = w->s.seq == b->answer ? read_brief_answer(skb, w, b) : NEWS_NONE;
    if (news != NEWS_OVER && news != NEWS_BEGUN) {
      lengthen(w, b);
      return 0;
    }
    if (b->since != since) /* it is another's by now, or has the long form */
      return 0;
    b->answer_end = w->flow.reply.read;
    if (news == NEWS_BEGUN)
      b->flags |= BRIEF_ANSWERED;
  } else {
    w->flow.reply.state = ANSWER_ENDS;
    w->flow.reply.read = b->answer_end;
  }
  if (b->flags & BRIEF_ANSWERED && !is_written(skb, w))
    return 1;
  return end_brief(r, b, since, 0);
}
