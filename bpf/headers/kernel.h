/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The part of the kernel's user-space ABI that the programs use, from linux/bpf.h,
 * if_ether.h, ip.h, ipv6.h and tcp.h. The system's own headers differ from one
 * distribution to the next, and with them the BTF of the compiled object, which CI
 * compares. Only what is used is here; field order and types are the ABI's. */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u16 __sum16;
typedef __u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0
#ifndef NULL
#define NULL ((void *)0)
#endif

enum bpf_map_type {
  BPF_MAP_TYPE_HASH = 1,
  BPF_MAP_TYPE_ARRAY = 2,
  BPF_MAP_TYPE_PROG_ARRAY = 3,
  BPF_MAP_TYPE_PERCPU_ARRAY = 6,
  BPF_MAP_TYPE_LRU_HASH = 9,
  BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
  BPF_MAP_TYPE_QUEUE = 22,
  BPF_MAP_TYPE_SK_STORAGE = 24,
  BPF_MAP_TYPE_RINGBUF = 27,
};

enum { BPF_SK_STORAGE_GET_F_CREATE = 1U << 0 };
enum { BPF_F_NO_PREALLOC = 1U << 0, BPF_F_MMAPABLE = 1U << 10, BPF_F_INNER_MAP = 1U << 12 };

enum xdp_action { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

enum tcx_action_base { TCX_NEXT = -1, TCX_PASS = 0, TCX_DROP = 2, TCX_REDIRECT = 7 };

enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2 };
enum { BPF_F_RECOMPUTE_CSUM = 1ULL << 0, BPF_F_INVALIDATE_HASH = 1ULL << 1 };
enum { BPF_F_INGRESS = 1ULL << 0 };
#define BPF_F_CURRENT_NETNS (-1L)

struct bpf_spin_lock {
  __u32 val;
};

struct xdp_md {
  __u32 data;
  __u32 data_end;
  __u32 data_meta;
  __u32 ingress_ifindex;
  __u32 rx_queue_index;
  __u32 egress_ifindex;
};

struct __sk_buff {
  __u32 len;
  __u32 pkt_type;
  __u32 mark;
  __u32 queue_mapping;
  __u32 protocol;
  __u32 vlan_present;
  __u32 vlan_tci;
  __u32 vlan_proto;
  __u32 priority;
  __u32 ingress_ifindex;
  __u32 ifindex;
  __u32 tc_index;
  __u32 cb[5];
  __u32 hash;
  __u32 tc_classid;
  __u32 data;
  __u32 data_end;
  __u32 napi_id;
  __u32 family;
  __u32 remote_ip4;
  __u32 local_ip4;
  __u32 remote_ip6[4];
  __u32 local_ip6[4];
  __u32 remote_port;
  __u32 local_port;
  __u32 data_meta;
  __u64 flow_keys __attribute__((aligned(8)));
  __u64 tstamp;
  __u32 wire_len;
  __u32 gso_segs;
  __u64 sk __attribute__((aligned(8)));
  __u32 gso_size;
};

struct bpf_sock_tuple {
  union {
    struct {
      __be32 saddr;
      __be32 daddr;
      __be16 sport;
      __be16 dport;
    } ipv4;
    struct {
      __be32 saddr[4];
      __be32 daddr[4];
      __be16 sport;
      __be16 dport;
    } ipv6;
  };
};

struct bpf_sock {
  __u32 bound_dev_if;
  __u32 family;
  __u32 type;
  __u32 protocol;
  __u32 mark;
  __u32 priority;
  __u32 src_ip4;
  __u32 src_ip6[4];
  __u32 src_port;
  __be16 dst_port;
  __u32 dst_ip4;
  __u32 dst_ip6[4];
  __u32 state;
};

enum {
  BPF_TCP_ESTABLISHED = 1,
  BPF_TCP_FIN_WAIT1 = 4,
  BPF_TCP_TIME_WAIT = 6,
  BPF_TCP_CLOSE_WAIT = 8,
  BPF_TCP_LAST_ACK = 9,
  BPF_TCP_LISTEN = 10,
  BPF_TCP_NEW_SYN_RECV = 12
};
enum { BPF_TCP_CLOSE = 7 };

struct bpf_sock_ops {
  __u32 op;
  union {
    __u32 args[4];
    __u32 reply;
  };
  __u32 family;
  __u32 remote_ip4; /* these in network byte order */
  __u32 local_ip4;
  __u32 remote_ip6[4];
  __u32 local_ip6[4];
  __u32 remote_port; /* network byte order, in the upper half */
  __u32 local_port;  /* host byte order */
  __u32 is_fullsock;
  __u32 snd_cwnd;
  __u32 srtt_us;
  __u32 bpf_sock_ops_cb_flags;
  __u32 state;
  __u32 rtt_min;
  __u32 snd_ssthresh;
  __u32 rcv_nxt;
  __u32 snd_nxt;
  __u32 snd_una;
  __u32 mss_cache;
  __u32 ecn_flags;
  __u32 rate_delivered;
  __u32 rate_interval_us;
  __u32 packets_out;
  __u32 retrans_out;
  __u32 total_retrans;
  __u32 segs_in;
  __u32 data_segs_in;
  __u32 segs_out;
  __u32 data_segs_out;
  __u32 lost_out;
  __u32 sacked_out;
  __u32 sk_txhash;
  __u64 bytes_received;
  __u64 bytes_acked;
  __u64 sk __attribute__((aligned(8)));
};

enum {
  BPF_SOCK_OPS_TIMEOUT_INIT = 1,
  BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
  BPF_SOCK_OPS_STATE_CB = 10, /* args: the state before, and after */
};

enum { BPF_SOCK_OPS_STATE_CB_FLAG = 1 << 2 };

#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SO_PRIORITY 12
#define SO_MARK 36

#define ETH_P_IP 0x0800
#define ETH_P_8021Q 0x8100
#define ETH_P_IPV6 0x86DD
#define ETH_P_8021AD 0x88A8

struct ethhdr {
  __u8 h_dest[6];
  __u8 h_source[6];
  __be16 h_proto;
};

struct vlan_hdr {
  __be16 h_vlan_TCI;
  __be16 h_vlan_encapsulated_proto;
};

#define IPPROTO_HOPOPTS 0
#define IPPROTO_TCP 6
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_DSTOPTS 60

#define IP_MF 0x2000
#define IP_OFFSET 0x1fff

struct iphdr {
  __u8 ihl : 4, version : 4; /* little endian */
  __u8 tos;
  __be16 tot_len;
  __be16 id;
  __be16 frag_off;
  __u8 ttl;
  __u8 protocol;
  __sum16 check;
  __be32 saddr;
  __be32 daddr;
};

struct ipv6hdr {
  __u8 priority : 4, version : 4; /* little endian */
  __u8 flow_lbl[3];
  __be16 payload_len;
  __u8 nexthdr;
  __u8 hop_limit;
  __be32 saddr[4];
  __be32 daddr[4];
};

struct ipv6_opt_hdr {
  __u8 nexthdr;
  __u8 hdrlen;
};

struct frag_hdr {
  __u8 nexthdr;
  __u8 reserved;
  __be16 frag_off;
  __be32 identification;
};

#define IP6_MF 0x0001
#define IP6_OFFSET 0xfff8

struct tcphdr {
  __be16 source;
  __be16 dest;
  __be32 seq;
  __be32 ack_seq;
  __u8 ns : 1, reserved : 3, doff : 4; /* little endian */
  __u8 flags;                          /* FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128 */
  __be16 window;
  __sum16 check;
  __be16 urg_ptr;
};

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_PSH 0x08
#define TCP_URG 0x20
#define TCP_ACK 0x10

/* The part of the kernel's own types that the programs read. Their layout is that of the
 * running kernel: field offsets are relocated when the programs are loaded (CO-RE). */
#ifdef __bpf__
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct net {
  __u64 net_cookie;
};

typedef struct {
  struct net *net;
} possible_net_t;

struct in6_addr {
  union {
    __be32 u6_addr32[4];
  } in6_u;
};

struct sock;

struct sock_common {
  __be32 skc_daddr;
  __be32 skc_rcv_saddr;
  __be16 skc_dport;
  __u16 skc_num;
  unsigned short skc_family;
  unsigned char skc_state;
  possible_net_t skc_net;
  struct in6_addr skc_v6_daddr;
  struct in6_addr skc_v6_rcv_saddr;
  struct sock *skc_listener;
};

struct sock {
  struct sock_common __sk_common;
  __u32 sk_ack_backlog;
  __u32 sk_max_ack_backlog;
  __u8 sk_shutdown; /* SHUTDOWN_… */
  __u16 sk_protocol;
  int sk_err;
};

#define SHUTDOWN_BOTH 3

struct inet_sock {
  __be16 inet_sport;
};

struct inet_connection_sock {
  struct {
    __u32 lrcvtime; /* jiffies: when the client last sent data */
  } icsk_ack;
};

struct rb_node {
  struct rb_node *rb_left;
};

struct rb_root {
  struct rb_node *rb_node;
};

struct tcp_options_received {
  __u16 sack_ok : 3;
  __u16 snd_wscale : 4;
  __u16 rcv_wscale : 4;
  int ts_recent_stamp;
  __u32 ts_recent;
};

struct tcp_sock {
  struct tcp_options_received rx_opt;
  __u64 bytes_received;
  __u64 bytes_sent;
  __u32 rcv_nxt;
  __u32 rcv_wnd;
  __u32 rcv_wup;
  __u32 snd_nxt;
  __u32 snd_una;
  __u32 write_seq;
  __u32 lsndtime; /* jiffies: when data were last sent */
  struct rb_root out_of_order_queue;
  __u8 bpf_sock_ops_cb_flags;
};

struct request_sock {
  struct sock_common __req_common;
  __u32 ts_recent;
};

struct inet_request_sock {
  struct request_sock req;
  __u16 snd_wscale : 4;
  __u16 rcv_wscale : 4;
};

struct tcp_request_sock {
  struct inet_request_sock req;
  __u32 rcv_isn;
  __u32 snt_isn;
  __u32 snt_tsval_first; /* since 6.15 */
  __u32 snt_tsval_last;
};

struct seq_file;

struct bpf_iter_meta {
  struct seq_file *seq;
};

struct bpf_iter__tcp {
  struct bpf_iter_meta *meta;
  struct sock_common *sk_common;
};

struct sk_buff {
  struct rb_node rbnode;
  char cb[48];
  unsigned char *head;
  unsigned char *data;
  __u16 csum_start;
  __u16 csum_offset;
  __u8 ip_summed : 2;
};
#pragma clang attribute pop

#define CHECKSUM_UNNECESSARY 1
#define CHECKSUM_PARTIAL 3
#endif

_Static_assert(sizeof(struct ethhdr) == 14, "ethernet header");
_Static_assert(sizeof(struct iphdr) == 20, "IPv4 header");
_Static_assert(sizeof(struct ipv6hdr) == 40, "IPv6 header");
_Static_assert(sizeof(struct tcphdr) == 20, "TCP header");
