// SPDX-License-Identifier: Apache-2.0

// Package rulesprog is the reader of request rules as the verifier and the kernel see it.
package rulesprog

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package rulesprog Rules ../bpf/rules.bpf.c -- -O2 -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf
