// SPDX-License-Identifier: GPL-2.0
/* Compares expedite.h with the numbers in abi.rs: they contain direction, size and command number. And the module's version. */
#include <linux/build_bug.h>
#include <linux/module.h>
#include <linux/stddef.h>

#include "expedite.h"

static_assert(EXPEDITE_FLAG == 0x402045e0);
static_assert(EXPEDITE_UNFLAG == 0x400445e1);
static_assert(EXPEDITE_QUERY == 0xc0a845e2);
static_assert(EXPEDITE_WAIT == 0x401045e3);
static_assert(EXPEDITE_TOTALS == 0x80e045e4);
static_assert(EXPEDITE_FIND == 0x400445e5);
static_assert(EXPEDITE_CAPS == 0x802045e6);
static_assert(EXPEDITE_FLAGS_MAX == 1024);
static_assert(EXPEDITE_FLAGS_PER_FILE == 8);
static_assert(EXPEDITE_WAYS == 6);
static_assert(offsetof(struct expedite_flag, slice_ns) == 8);
static_assert(offsetof(struct expedite_flag, percent) == 16);
static_assert(offsetof(struct expedite_flag, options) == 20);
static_assert(offsetof(struct expedite_query, counts) == 8);
static_assert(offsetof(struct expedite_query, left_ns) == 160);
static_assert(offsetof(struct expedite_wait, timeout_ns) == 8);
static_assert(offsetof(struct expedite_caps, user_flags) == 24);
static_assert(offsetof(struct expedite_totals, counts) == 72);

/* /sys/module/expedite/version; README.md describes the two forms. */
MODULE_VERSION("0.1.0 " EXPEDITE_FORM);
