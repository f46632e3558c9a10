// SPDX-License-Identifier: GPL-2.0
/* A macro of the C headers, which Rust cannot use. */
#include <linux/preempt.h>

int hello_in_interrupt(void);

int hello_in_interrupt(void)
{
	return in_interrupt() != 0;
}
