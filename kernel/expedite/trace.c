// SPDX-License-Identifier: GPL-2.0
/* The tracepoints, for the Rust files. */
#define CREATE_TRACE_POINTS
#include "trace.h"

#include "glue.h"

void expedite_trace_drop(struct task_struct *task, u64 ran, u64 slept, bool replaced)
{
	trace_expedite_drop(task, ran, slept, replaced);
}
