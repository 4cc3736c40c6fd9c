// SPDX-License-Identifier: Apache-2.0

// Package benchprog is the data path with programs around it that benchmarks need.
package benchprog

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package benchprog Bench ../bpf/bench.bpf.c -- -O2 -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf
