/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Packets of our own: the rejection to the client, and the reset to the server's stack that
 * ends what it has of the connection. Both are made of a packet that is at hand. */
#pragma once
#include "emit/slot.h"
#include "gate/socket.h"
#include "observe/counters.h"
#include "policy/image.h"

#define MARK_ROOM 0x3ff                    /* of a kick: slot of the service */
#define MARK_KICK (gate_mark | 0x400)      /* do what is due in a room */
#define MARK_OURS (gate_mark | 0x800)      /* let pass */
#define MARK_LOOK (gate_mark | 0x801)      /* look at flows */
#define MARK_ELSEWHERE (gate_mark | 0xc00) /* a kick for what came on an interface that is no more */

_Static_assert(sizeof(struct farewell) == 40, "no padding, which would be of no value to compare");

/* Connections that were rejected. Written and read by the programs. The least recently used
 * is evicted: its client's last packets are answered with a reset, after the rejection. */
struct {
  __uint(type, BPF_MAP_TYPE_LRU_HASH);
  __uint(max_entries, 16384);
  __type(key, struct flow_key);
  __type(value, struct farewell);
} farewells SEC(".maps");

/* No-operation options that make a reset as long as the kernel asks of a packet whose
 * checksum was left to a device, whatever its address family was. */
#define RESET_OPTIONS 40

static const __u8 reset_options[RESET_OPTIONS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                  1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* The option of RFC 2018 with one block, network byte order, behind two that mean nothing. */
struct sack {
  __be32 option;
  __be32 left;
  __be32 right;
};

#define SACK_OPTION 0x0101050a

/* Writes what w->emission says of bytes that have come beyond others. */
static __always_inline int put_sack(struct __sk_buff *skb, const struct emission *e, __u32 at) {
  struct sack s = {bpf_htonl(SACK_OPTION), bpf_htonl(e->left), bpf_htonl(e->right)};
  return bpf_skb_store_bytes(skb, at, &s, sizeof(s), BPF_F_RECOMPUTE_CSUM);
}

/* Writes the piece of a text that w->emission says. */
static __always_inline int put_text(struct __sk_buff *skb, const struct emission *e, __u32 at) {
  __u32 number = e->text / ANSWER_STRIDE;
  const struct answer_part *part = bpf_map_lookup_elem(&answers, &number);
  return part ? bpf_skb_store_bytes(skb, at, &part->text[e->text % ANSWER_STRIDE],
                                    AMOUNT(e->length, MAX_PIECE), BPF_F_RECOMPUTE_CSUM)
              : -1;
}

static __always_inline int put_ipv4(struct __sk_buff *skb, const struct emission *e) {
  __be32 peer = bpf_htonl(e->key.peer[0] >> 32), local = bpf_htonl(e->key.local[0] >> 32);
  struct iphdr ip = {
      .version = 4,
      .ihl = 5,
      .frag_off = bpf_htons(0x4000), /* do not fragment */
      .ttl = 64,
      .protocol = IPPROTO_TCP,
      .saddr = e->to_server ? peer : local,
      .daddr = e->to_server ? local : peer,
  };
  return bpf_skb_store_bytes(skb, e->l3, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline void put_words(__be32 to[4], const __u64 from[2]) {
  for (int i = 0; i < 2; i++) {
    to[2 * i] = bpf_htonl(from[i] >> 32);
    to[2 * i + 1] = bpf_htonl((__u32)from[i]);
  }
}

static __always_inline int put_ipv6(struct __sk_buff *skb, const struct emission *e) {
  struct ipv6hdr ip = {.version = 6, .nexthdr = IPPROTO_TCP, .hop_limit = 64};
  put_words(e->to_server ? ip.saddr : ip.daddr, e->key.peer);
  put_words(e->to_server ? ip.daddr : ip.saddr, e->key.local);
  return bpf_skb_store_bytes(skb, e->l3, &ip, sizeof(ip), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline int put_tcp(struct __sk_buff *skb, const struct emission *e, __u32 l4, __u32 options) {
  __be16 peer = bpf_htons(e->key.peer_port), local = bpf_htons(e->key.local_port);
  struct tcphdr tcp = {
      .source = e->to_server ? peer : local,
      .dest = e->to_server ? local : peer,
      .seq = bpf_htonl(e->seq),
      .ack_seq = bpf_htonl(e->ack),
      .doff = (sizeof(struct tcphdr) + options) / 4,
      .flags = e->flags,
      .window = bpf_htons(e->window),
  };
  if (bpf_skb_store_bytes(skb, l4, &tcp, sizeof(tcp), BPF_F_RECOMPUTE_CSUM))
    return -1;
  if (e->to_server)
    return bpf_skb_store_bytes(skb, l4 + sizeof(tcp), reset_options, RESET_OPTIONS, BPF_F_RECOMPUTE_CSUM);
  if (!e->times.option)
    return 0;
  struct timestamps t = {e->times.option, e->times.echo, e->times.value};
  return bpf_skb_store_bytes(skb, l4 + sizeof(tcp), &t, sizeof(t), BPF_F_RECOMPUTE_CSUM);
}

static __always_inline int swap_macs(struct __sk_buff *skb) {
  __u8 from[12], to[12];
  if (bpf_skb_load_bytes(skb, 0, from, 12))
    return -1;
  __builtin_memcpy(to, from + 6, 6);
  __builtin_memcpy(to + 6, from, 6);
  return bpf_skb_store_bytes(skb, 0, to, 12, BPF_F_RECOMPUTE_CSUM);
}

/* Has the run end with the packet going to a device's egress, or ingress. */
static __always_inline int send_out(struct work *w, __u32 ifindex, __u32 flags) {
  w->out.ifindex = ifindex;
  w->out.flags = flags;
  return TCX_REDIRECT;
}

/* Writes the headers of w->emission, with so many bytes of TCP options. A function of its own for what it
 * has in the stack, which has to be free when they are sealed. */
__noinline int put_headers(struct __sk_buff *skb, struct work *w, __u32 l4, __u32 options) {
  if (!w)
    return -1;
  const struct emission *e = &w->emission;
  if ((e->turns && swap_macs(skb)) || (e->key.v6 ? put_ipv6(skb, e) : put_ipv4(skb, e)))
    return -1;
  return put_tcp(skb, e, l4, options);
}

/* Makes the packet, whose frame is one of the client's up to the IP header, what w->emission says. */
__noinline int emit(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return -1;
  const struct emission *e = &w->emission;
  __u32 l4 = e->l3 + (e->key.v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
  __u32 times = e->times.option ? TIMESTAMP_SIZE : 0, beyond = e->beyond ? sizeof(struct sack) : 0;
  __u32 options = e->to_server ? RESET_OPTIONS : times + beyond;
  __u32 data = l4 + sizeof(struct tcphdr) + options;
  if (bpf_skb_change_tail(skb, data + e->length, 0) || put_headers(skb, w, l4, options))
    return -1;
  if ((e->length && put_text(skb, e, data)) || (e->beyond && put_sack(skb, e, data - sizeof(struct sack))))
    return -1;
  struct extent x = {.l3 = e->l3, .l4 = l4, .end = data + e->length, .send = !e->to_server};
  return seal(skb, &x, &e->key, w);
}

/* The reset that ends what the stack has of a rejected connection. */
static __always_inline void set_reset(struct emission *e, const struct rejected *r) {
  e->key = r->key;
  e->times.option = 0;
  e->l3 = r->l3;
  e->seq = r->seq;
  e->ack = r->ack;
  e->length = 0;
  e->window = 0xffff;
  e->flags = TCP_RST | TCP_ACK;
  e->to_server = 1;
  e->turns = e->beyond = 0;
}

/* An acknowledgement of what the client has sent, in the server's place. */
static __always_inline void set_acknowledgement(struct emission *e, const struct rejected *r) {
  e->key = r->key;
  e->times = r->times;
  e->l3 = r->l3;
  e->seq = r->ack;
  e->ack = r->end;
  e->length = 0;
  e->window = 0xffff;
  e->flags = TCP_ACK;
  e->to_server = 0;
  e->turns = 1;
  e->beyond = 0;
}

/* Segments that are sent at once at most (RFC 6928). */
#define MAX_FLIGHT 10

/* Whether a text takes one segment, which is sent whatever the client's window. */
static __always_inline bool is_short(const struct farewell *f) { return f->end - f->seq <= MAX_PIECE + 1; }

/* Where the window ends that the segment with a TCP header there says, which acknowledges `got`. */
static __always_inline __u32 edge_of(struct __sk_buff *skb, const struct farewell *f, __u32 l4, __u32 got) {
  __be16 window = 0;
  if (is_short(f))
    return f->end;
  bpf_skb_load_bytes(skb, l4 + WINDOW_AT, &window, 2);
  return got + ((__u32)bpf_ntohs(window) << (f->scale & 15));
}

/* Sets f->sent to how far a text goes on from a sequence number, for a client that has got it up to another
 * and whose window ends at `edge`: there is as much in flight as it has acknowledged, and something more. */
static __always_inline void plan_flight(struct farewell *f, __u32 from, __u32 got, __u32 edge) {
  __u32 until = 2 * got - f->base, most = from + MAX_FLIGHT * MAX_PIECE;
  if (is_short(f) || before(edge, until))
    until = edge;
  if (before(most, until))
    until = most;
  if (before(f->end, until))
    until = f->end;
  f->sent = before(until, from) ? from : until;
}

/* How many of the client's last bytes are not acknowledged at first while something is left to be said: if
 * all that is under way to it is lost, it sends them again, and is told again. Then one is acknowledged, or
 * it would wait for twice as long the next time. Any request has as many. */
#define KEPT_BYTES 12

/* Makes w->emission the next segment of w->farewell's flight. Returns whether there is another. */
__noinline int set_piece(struct work *w) {
  if (!w)
    return 0;
  struct emission *e = &w->emission;
  const struct farewell *f = &w->farewell;
  bool left = e->seq != f->end;
  __u32 end = left && f->sent == f->end, length = f->sent - e->seq - end;
  bool more = length > MAX_PIECE;
  e->length = more ? MAX_PIECE : length;
  e->flags = TCP_ACK;
  if (more)
    end = 0;
  else if (length)
    e->flags |= TCP_PSH;
  if (end)
    e->flags |= f->reset ? TCP_RST : TCP_FIN;
  e->ack = w->rejected.end - (left && !end ? f->kept : 0);
  return more;
}

/* Makes the packet the segments of w->farewell's flight from w->emission.seq on, one after another. Returns a
 * verdict: what becomes of the last. Others that are lost are sent again as if they were lost on their way.
 */
static __always_inline int send_flight(struct __sk_buff *skb, struct work *w, __u32 ifindex) {
  struct emission *e = &w->emission;
  skb->mark = 0;
  for (int i = 0; i < MAX_FLIGHT; i++) {
    int more = set_piece(w);
    if (emit(skb, w))
      break;
    if (!more)
      return send_out(w, ifindex, 0);
    bpf_clone_redirect(skb, ifindex, 0);
    e->seq += MAX_PIECE;
    e->text += MAX_PIECE;
    e->turns = 0;
  }
  count_reason(REASON_CLONE_FAULT, true, false);
  return TCX_DROP;
}

/* Resets a connection at the stack by a clone of the packet. 0, or it was not sent. */
static __always_inline int reset_stack(struct __sk_buff *skb, struct work *w) {
  const struct rejected *r = &w->rejected;
  struct emission *e = &w->emission;
  set_reset(e, r);
  /* If the stack has not got what passed, the reset must not be behind that. */
  if (find_socket(skb, &r->key, &w->socket) && takes_data(&w->socket))
    e->seq = w->socket.sequence;
  skb->mark = MARK_OURS;
  return emit(skb, w) || bpf_clone_redirect(skb, r->ifindex, BPF_F_INGRESS);
}

/* Remembers what the client of w->rejected has to be told, in w->farewell as well. The packet is its segment.
 */
__noinline int note_farewell(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  const struct rejected *r = &w->rejected;
  struct farewell *f = &w->farewell;
  f->seq = f->heard = r->ack;
  f->end = r->ack + r->length + 1;
  f->client = f->spoken = r->end;
  f->text = r->text;
  f->base = r->ack - MAX_FLIGHT * MAX_PIECE;
  f->kept = KEPT_BYTES;
  f->reset = r->reset;
  f->repeated = 0;
  f->scale = is_short(f) ? 0 : find_agreed(skb, &r->key) >> PEER_SCALE & OWN_SCALE;
  plan_flight(f, r->ack, r->ack, edge_of(skb, f, r->l4, r->ack));
  struct farewell copy = *f;
  return put_by_key(&farewells, &r->key, &copy, BPF_ANY);
}

/* Ends a connection as w->rejected says, of which the packet is a segment: resets it at the stack, and makes
 * the packet the answer, or the beginning of that. Returns a verdict. */
__noinline int answer(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return TCX_DROP;
  const struct rejected *r = &w->rejected;
  note_farewell(skb, w);
  if (!r->no_peer && reset_stack(skb, w)) {
    count_reason(REASON_CLONE_FAULT, true, false);
    return TCX_DROP;
  }
  set_acknowledgement(&w->emission, r);
  w->emission.text = r->text;
  return send_flight(skb, w, r->ifindex);
}

/* Notes in w->rejected what has to be known of a packet to answer it in the server's place. Global, for the
 * verifier to follow it once. */
__noinline int note_packet(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return 0;
  struct rejected *r = &w->rejected;
  r->key = w->key;
  r->l3 = w->s.l3;
  r->l4 = w->s.l4;
  r->seq = w->s.seq;
  r->end = end_of(&w->s);
  r->ack = w->s.ack;
  r->ifindex = skb->ifindex;
  r->length = r->reset = 0;
  r->no_peer = is_only_cookie(&w->flow);
  if (!read_timestamps(skb, &w->s, &r->times))
    r->times.option = 0;
  return 0;
}

static __always_inline struct rejected *note_rejected(struct __sk_buff *skb, struct work *w) {
  note_packet(skb, w);
  return &w->rejected;
}

/* Bytes that a slot takes whose frame is so long. */
static __always_inline __u32 room_behind(__u32 length) {
  __u32 most = slot_size - APPEND_LEAST;
  return length < most ? most - length : 0;
}

/* Acknowledges what the packet's client has sent up to a sequence number, where its slot's frame ends which
 * is so long: the client may send what the slot still takes. Of a head it may always send more, for it is
 * refused when it is too long. Returns a verdict. */
__noinline int acknowledge(struct __sk_buff *skb, struct work *w, __u32 end, __u32 length) {
  if (!w)
    return TCX_DROP;
  note_rejected(skb, w)->end = end;
  set_acknowledgement(&w->emission, &w->rejected);
  __u32 window = room_behind(length) >> (find_agreed(skb, &w->key) & OWN_SCALE);
  w->emission.window = window ?: any_of(w->flow.flags & FLOW_HEAD);
  if (!emit(skb, w))
    return send_out(w, skb->ifindex, 0);
  count_reason(REASON_CLONE_FAULT, true, false);
  return TCX_DROP;
}

/* Tells the client of a segment that comes before others, and is dropped, what its stack would be told: what
 * is missing, so that it is sent again at once. The segment must come again as well, for which its client
 * keeps it until it is acknowledged (RFC 2018, 8). Returns a verdict. */
__noinline int tell_of_gap(struct __sk_buff *skb, struct work *w) {
  if (!w)
    return TCX_DROP;
  struct endpoint *sock = &w->socket;
  struct emission *e = &w->emission;
  count_reason(REASON_GAP, true, false);
  find_socket(skb, &w->key, sock);
  __u32 has = sock->sequence, end = end_of(&w->s);
  if (sock->state != BPF_TCP_ESTABLISHED || !before(has, w->s.seq) || before(has + sock->window, end) ||
      before(w->s.ack, sock->acked) || before(last_sent(w), w->s.ack))
    return TCX_DROP;
  note_rejected(skb, w)->end = has;
  set_acknowledgement(e, &w->rejected);
  e->seq = last_sent(w);
  __u32 agreed = find_agreed(skb, &w->key);
  e->window = sock->window >> (agreed & OWN_SCALE);
  e->beyond = agreed & AGREED_SACK ? 1 : 0;
  e->left = w->s.seq;
  e->right = end;
  return emit(skb, w) ? TCX_DROP : send_out(w, skb->ifindex, 0);
}
