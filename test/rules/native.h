/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The source that reads heads and finds their rules, compiled for this machine. One thread. */
#pragma once
#include "headers/kernel.h"

#include "abi/types.h"

/* What reading a head comes to. */
struct found {
  __u32 rule; /* or NO_MATCH */
  bool refused;
  bool complex;
};

/* Takes pages of a policy image for that in force. They are not copied. */
void native_image(void *pages, __u32 count);

/* Length of the head that the bytes begin with, as the framing pass sees it, in pieces of that many
 * bytes. 0: it does not accept one. */
__u32 native_frame(const __u8 *bytes, __u32 length, __u32 piece);

/* Between whom a request is, as in struct packet. */
struct between {
  __u64 client[2];
  __u64 server[2];
  __u16 port;
  __u8 v6;
};

/* Finds the rule of a head, in a packet or in a slot, between a client and a destination. */
struct found native_match(const __u8 *head, __u32 length, bool slot, struct between ends);

/* Of the hashes of values. */
#define KEY_FIRST 0x0706050403020100ULL
#define KEY_SECOND 0x0f0e0d0c0b0a0908ULL

/* The hash by which a bucket is found under a rule with that key for the head that native_match() has read.
 */
__u64 native_key(__u8 key);

/* What a value is. */
enum value {
  VALUE_METHOD = 1,
  VALUE_HOST,
  VALUE_PATH,
  VALUE_NAME, /* of a header; its value comes next */
  VALUE_HEADER,
  VALUE_CRUMB, /* name of a cookie; its value comes next */
  VALUE_COOKIE,
  VALUE_KEY, /* name of a parameter; its value comes next */
  VALUE_PARAMETER,
};

#define READ_REFUSED (-1)
#define READ_ENDLESS (-2) /* the head does not end */

/* Reads all values of a head in pieces of that many bytes; cookies and
 * parameters one by one, or cookies as a header and the query not at all. Puts each into `out`: its kind, two
 * bytes of length, its bytes. Returns their length, or one of the above. */
int native_read(const __u8 *head, __u32 length, __u32 piece, bool cookies, __u8 *out, __u32 room);
