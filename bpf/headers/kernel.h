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
  BPF_MAP_TYPE_PERCPU_ARRAY = 6,
  BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
};

enum { BPF_F_NO_PREALLOC = 1U << 0, BPF_F_INNER_MAP = 1U << 12 };

enum xdp_action { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

enum tcx_action_base { TCX_NEXT = -1, TCX_PASS = 0, TCX_DROP = 2 };

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
};

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
#define TCP_ACK 0x10

_Static_assert(sizeof(struct ethhdr) == 14, "ethernet header");
_Static_assert(sizeof(struct iphdr) == 20, "IPv4 header");
_Static_assert(sizeof(struct ipv6hdr) == 40, "IPv6 header");
_Static_assert(sizeof(struct tcphdr) == 20, "TCP header");
