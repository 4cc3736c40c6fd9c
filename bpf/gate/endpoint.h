/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#pragma once
#include "abi/types.h"

/* What the stack knows of a connection. */
struct endpoint {
  __u32 state;    /* BPF_TCP_…; 0: there is none */
  __u32 sequence; /* of the next byte that the stack has not got from the client */
  __u32 answer;   /* of the next byte that the stack will send */
  __u32 window;   /* bytes that it would take from the client */
  __u32 crowded;  /* the accept queue is full */
  __u32 orphaned; /* request socket: its listener listens no more */
  __u32 silent;   /* established: its client has said nothing yet */
  __u32 unsent;   /* established: the server has said more than the stack has sent */
  __u32 gap;      /* established: the stack has bytes of the client beyond others that it has not */
};

/* Whether the endpoint's numbers are known: its connection takes data from the client. */
static __always_inline bool takes_data(const struct endpoint *e) {
  return e->state == BPF_TCP_ESTABLISHED || e->state == BPF_TCP_CLOSE_WAIT ||
         e->state == BPF_TCP_NEW_SYN_RECV;
}
