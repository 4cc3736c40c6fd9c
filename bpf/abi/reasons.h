/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is counted, and why. */
#pragma once
#include "headers/kernel.h"

/* Why a packet was passed or dropped without a rule. Numbers are never used again: a
 * reason that is retired keeps its number. Append before REASON_LEN. */
enum reason {
  REASON_NOT_IP = 0,        /* passed: neither IPv4 nor IPv6 */
  REASON_NOT_TCP = 1,       /* passed */
  REASON_NOT_SYN = 2,       /* passed: TCP, but not the start of a connection */
  REASON_MALFORMED = 3,     /* passed: headers that no stack accepts */
  REASON_FRAGMENT_TAIL = 4, /* passed: a later fragment, of no use without the first */
  REASON_NO_SERVICE = 5,    /* passed: to no service */
  REASON_NO_RULE = 6,       /* passed: to a service, no rule matches */
  REASON_NO_POLICY = 7,     /* passed: nothing is published yet */
  REASON_MAP_FAULT = 8,     /* passed: a look-up failed that cannot fail */
  REASON_PULL_FAULT = 9,    /* passed: headers could not be read, a helper's fault */
  REASON_FRAGMENT = 10,     /* dropped: first fragment to a service */
  REASON_VLAN_TAGS = 11,    /* dropped: more VLAN tags than two, to a service or beyond reading */
  REASON_EXTENSION = 12,    /* dropped: IPv6 extension headers beyond bounds, to a service's address */
  REASON_SYN_DATA = 13,     /* dropped: SYN with data to a service */
  REASON_SYN_FLAGS = 14,    /* dropped: SYN with FIN or RST to a service */
  REASON_CONTENDED = 15,    /* dropped, beside the rule's count: other CPUs took every token tried for */
  REASON_SOURCES =
      16, /* dropped, beside the rule's count: a new source, and every bucket it might get is in debt */
  REASON_UPPER = 17, /* passed: to a device above this one, where it is decided */
  /* Of the gate, per packet. */
  REASON_HANDSHAKE = 18, /* dropped: end of a handshake; the connection waits for its request */
  REASON_FORGED =
      19,          /* dropped: numbers that nobody sends who got our SYN-ACK, or another head than before */
  REASON_GAP = 20, /* dropped: bytes beyond the next; they will be sent again */
  REASON_PIPELINED = 21,    /* dropped: a request before the answer to the last; it will be sent again */
  REASON_HELD = 22,         /* dropped: further segment of a connection whose request waits */
  REASON_CHECKSUM = 23,     /* dropped: wrong checksum */
  REASON_UNFOLLOWED = 24,   /* dropped: connection ended, for where its next request begins is not known */
  REASON_UNKNOWN_FLOW = 25, /* passed: of a connection older than the gate, or not HTTP where nobody waits */
  REASON_NESTING =
      26, /* more runs within each other than there is memory for: a segment passed, a kick dropped */
  REASON_CLONE_FAULT =
      27, /* a packet could not be made: a release or answer dropped, a SYN passed as it is */
  REASON_ACCEPT_QUEUE = 28, /* dropped: a release that had to wait for room in the accept queue */
  REASON_FAREWELL = 29,     /* dropped: of a connection that was rejected */
  REASON_RACE = 30,         /* dropped: another CPU was faster with the same connection */
  REASON_CUT = 31,          /* passed: as far as the next request */
  REASON_GATHERED = 32,     /* dropped: part of a head, put into its slot and acknowledged */
  REASON_UNWATCHED = 33,    /* beside other counts: more flows to look at again than there are places */
  REASON_BLOCKED = 34,      /* dropped: SYN of a client that a request rule blocks */
  REASON_NO_SNI = 35,       /* beside other counts: a ClientHello without a name that can be read */
  REASON_SHED = 36, /* dropped: SYN of a class of which only a share is let in, as it could not be served */
  REASON_UNTAKEN = 37,  /* beside other counts: a request that was let in, and that the stack has dropped */
  REASON_OUTDATED = 38, /* dropped: a request with timestamps for which the stack would drop it */
  REASON_PARKED = 39, /* beside other counts: a flow between two requests that has given way to another one */
  REASON_NO_SOCKET = 40, /* passed: data of a connection that the stack does not know by these ports */
  REASON_STALLED = 41, /* beside other counts: a connection to be ended, whose client kept a worker waiting */
  REASON_REQUESTS = 42, /* dropped: connection ended, for it has had as many requests as the policy allows */
  REASON_AT_ONCE = 43,  /* dropped: end of a handshake, where a rule allows no more connections at once */
  REASON_NO_PROGRAM =
      44,               /* the next program was missing: a segment passed undecided, or what was due waits */
  REASON_NO_JA4 = 45,   /* passed: a ClientHello without a fingerprint, where request rules ask for it */
  REASON_NO_CLASS = 46, /* passed: an answer that is labelled with a class that the policy does not have */
  REASON_H2C_IGNORED = 47, /* passed: a request whose offer to go on in HTTP/2 its server is not shown */
  REASON_RECALLED = 48,    /* beside other counts: bytes that had come too early come in their turn */
  REASON_ASKED_TO_CLOSE =
      49, /* passed: a request behind whose answer the server is asked to close the connection */
  REASON_LEN
};

/* Verdicts on packets. Where a service is in shadow mode, would_drop counts in place of
 * dropped. Written by the CPU that holds the copy alone. */
struct counts {
  __u64 passed;
  __u64 dropped;
  __u64 would_drop;
};

/* Why a request was answered by us. */
enum reject {
  REJECT_QUEUE_FULL = 0, /* and nobody of a lower class waited */
  REJECT_DISPLACED = 1,  /* made room for one of a higher class */
  REJECT_MAX_WAIT = 2,
  REJECT_NO_SERVER = 3, /* its listener or its connection was gone when its turn came */
  REJECT_CLOSED = 4,    /* the server closed the idle connection while it waited */
  REJECT_NO_SLOT = 5,
  REJECT_NO_FLOW = 6,
  REJECT_TOO_LARGE = 7, /* a head does not fit a slot */
  REJECT_MALFORMED = 8, /* two readers could understand it in two ways, or it is not HTTP/1 */
  REJECT_H2C = 9,       /* it leads to HTTP/2, which is not followed */
  REJECT_RULE = 10,     /* a request rule says so */
  REJECT_DROPPED = 11,  /* the same, by a reset */
  REJECT_BLOCKED = 12,  /* its client, behind a trusted proxy, is blocked */
  REJECT_COMPLEX = 13,  /* it has more patterns at once than are followed */
  REJECT_TARGET = 14,   /* it had waited for the queue's target while overload lasted */
  REJECT_LEN
};
