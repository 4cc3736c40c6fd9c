// SPDX-License-Identifier: Apache-2.0

package generator

//go:generate go tool bpf2go -cc clang-19 -strip llvm-strip-19 -target bpfel -go-package generator -type counts clients bpf/clients.bpf.c -- -O2 -mcpu=v3 -Wall -Wextra -Werror -I../../bpf/headers/bpf
