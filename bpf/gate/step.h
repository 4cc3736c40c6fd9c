/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The steps by which a segment is decided on, and how long things may take on their way. */
#pragma once
#include "observe/counters.h"

/* What is to be done with the segment next. A function that has found out what it is returns the next step
 * and does not call it, for calls within calls take stack; recognise() does, and decide_request(). TCX_NEXT,
 * TCX_DROP and TCX_REDIRECT are verdicts, and end it.
 *
 *                       it is known that                            what follows
 * recognise/ */
enum step {
  STEP_UNTRACKED = 100, /* its connection is not in the table        FIRST_REQUEST, UNDERWAY */
  STEP_FIRST_REQUEST,   /* a connection's first request begins       READ, JUDGE, TURN, GATHER */
  STEP_UNDERWAY,        /* its request began before the gate came */
  STEP_WAITING,         /* the flow's request, or its head, waits    READ, JUDGE, GIVE_UP */
  STEP_AGAIN,           /* it has bytes that were read before        BODY, BODY_ALONE, COMPARE, UNFOLLOWED */
  STEP_BODY,            /* it has bytes of the request in service    SERVED, IDLE */
  STEP_BODY_ALONE,      /* the same, and nothing behind them */
  STEP_SERVED,          /* it has bytes behind the request in service, which is not over: IDLE, UNFOLLOWED */
  STEP_PAUSED,          /* a body goes on that was left out          TURN, UNFOLLOWED */
  STEP_IDLE,            /* it has bytes behind the last request      NEXT */
  STEP_NEXT,            /* the same, the connection's class is known NEXT_REQUEST, UNFOLLOWED */
  STEP_NEXT_REQUEST, /* the next request begins                   READ, JUDGE, TURN, GATHER, FIRST_REQUEST */
  STEP_UNFOLLOWED,   /* nobody knows where the next one begins    UNTRACKED */
  STEP_GAP,          /* it comes before others, and is to be read behind them */
  STEP_STREAM,       /* tls, tcp: the client speaks               TURN, FIRST_REQUEST */
  /* decide/: w->flow is in the table; w->grown: its request is in its slot, which is claimed */
  STEP_READ,     /* a head is whole, and rules may say something     JUDGE */
  STEP_JUDGE,    /* what it says is read, or does not matter         TURN, GATHERED, EXEMPT, REJECT */
  STEP_COMPARE,  /* a head came again: it must come to the same rule */
  STEP_TURN,     /* the request takes its turn */
  STEP_GATHER,   /* a piece of a head, the first */
  STEP_GATHERED, /* as TURN, in its slot */
  STEP_EXEMPT,   /* its rule says that it passes */
  STEP_REJECT,   /* its rule says that it does not; w->why is the reason */
  STEP_GIVE_UP,  /* its client has given it up */
  /* of the server's segments */
  STEP_STALE, /* the flow went on meanwhile: look again */
};

/* Steps of recognise/ from one to the last at most; those that lead to a flow count as one: AGAIN, BODY,
 * SERVED, IDLE, NEXT, UNFOLLOWED, FIRST_REQUEST. Of decide/: READ or JUDGE, REJECT. */
#define LONGEST_WAY 7
#define LONGEST_DECISION 2

static __always_inline bool is_recognising(int step) { return step >= STEP_UNTRACKED && step < STEP_READ; }

/* How long what was released may need to the stack, ns. */
#define ON_ITS_WAY 100000000ULL

static __always_inline int drop(__u32 reason) {
  count_reason(reason, true, false);
  return TCX_DROP;
}

static __always_inline int let_pass(__u32 reason) {
  count_reason(reason, false, false);
  return TCX_NEXT;
}
