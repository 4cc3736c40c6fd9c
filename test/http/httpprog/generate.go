// SPDX-License-Identifier: Apache-2.0

// Package httpprog is the HTTP scanner as the verifier and the kernel see it.
package httpprog

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package httpprog HTTP ../bpf/http.bpf.c -- -O2 -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf
