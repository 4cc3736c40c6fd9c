/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types that appear in no map's definition, named so that they are in the BTF from which
 * Go's are generated. */
#pragma once
#include "abi/types.h"

const struct page *const btf_page __attribute__((unused));
const enum reason *const btf_reason __attribute__((unused));
const enum action *const btf_action __attribute__((unused));
const enum reject *const btf_reject __attribute__((unused));
const enum h2c *const btf_h2c __attribute__((unused));
const enum service_end *const btf_service_end __attribute__((unused));
const enum label_way *const btf_label_way __attribute__((unused));
const enum flow_named *const btf_flow_named __attribute__((unused));
const enum protocol *const btf_protocol __attribute__((unused));
const enum fair *const btf_fair __attribute__((unused));
const enum pool_order *const btf_pool_order __attribute__((unused));
const struct slot *const btf_slot __attribute__((unused));
const struct match *const btf_match __attribute__((unused));
const struct list_page *const btf_list_page __attribute__((unused));
const struct match_entry *const btf_match_entry __attribute__((unused));
const struct match_field *const btf_match_field __attribute__((unused));
const struct match_node *const btf_match_node __attribute__((unused));
const struct pattern *const btf_pattern __attribute__((unused));
const struct request_guard *const btf_request_guard __attribute__((unused));
const struct roots *const btf_roots __attribute__((unused));
const enum rule_kind *const btf_rule_kind __attribute__((unused));
const enum over *const btf_over __attribute__((unused));
const enum when *const btf_when __attribute__((unused));
const enum limit_by *const btf_limit_by __attribute__((unused));
const enum control_mark *const btf_control_mark __attribute__((unused));
const enum event_kind *const btf_event_kind __attribute__((unused));
const enum mirror_fate *const btf_mirror_fate __attribute__((unused));
const struct event *const btf_event __attribute__((unused));
