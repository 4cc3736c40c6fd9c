// SPDX-License-Identifier: Apache-2.0

package datapath

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package datapath -type reason -type action -type limit_by -type header -type guard -type service -type rule -type pace -type node -type page -type counts -type source -type source_set -type known_set -type secret -type rule_slot -type service_slot -type note -type reject -type service_end -type protocol -type fair -type pool_order -type rank -type room_config -type room -type class_room -type class_slot -type slot -type match -type match_entry -type match_field -type match_node -type sets -type places -type pattern -type list_page -type list_header -type list_counts -type request_guard -type roots -type rule_kind -type over -type when -type refusal -type answer_part -type control -type event -type event_kind -type mirror_control -type mirrored -type mirror_fate narthex ../../bpf/programs.bpf.c -- -O2 -mcpu=v3 -Wall -Wextra -Werror -I../../bpf
