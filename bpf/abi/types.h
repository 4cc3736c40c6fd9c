/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Types that user space shares; Go's are generated from these. Integers are in host byte order, times in
 * nanoseconds of CLOCK_MONOTONIC, unless a field says otherwise. */
#pragma once
#include "abi/clients.h"
#include "abi/daemon.h"
#include "abi/image.h"
#include "abi/observe.h"
#include "abi/reasons.h"
#include "abi/room.h"
