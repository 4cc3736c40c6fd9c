// SPDX-License-Identifier: Apache-2.0

// Package clientprog is what is read of a client as the verifier and the kernel see it.
package clientprog

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package clientprog Client ../bpf/client.bpf.c -- -O2 -mcpu=v3 -Wall -Wextra -Werror -I../../../bpf
