// SPDX-License-Identifier: GPL-2.0
/* What Rust cannot say here: a macro that needs the C headers. */
#include <linux/preempt.h>

int hello_in_interrupt(void);

int hello_in_interrupt(void)
{
	return in_interrupt() != 0;
}
