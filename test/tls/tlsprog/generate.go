// SPDX-License-Identifier: Apache-2.0

// Package tlsprog is the scanner for the beginning of a TLS connection as the verifier and the
// kernel see it.
package tlsprog

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package tlsprog TLS ../bpf/tls.bpf.c -- -O2 -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf
