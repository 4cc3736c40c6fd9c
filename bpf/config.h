/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What user space sets before loading. Constants to the verifier: code that a setting
 * makes unreachable is removed. */
#pragma once

/* Number of source sets less one; a power of two less one. */
volatile const __u32 source_set_mask = 0;
