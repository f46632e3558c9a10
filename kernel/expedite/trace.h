/* SPDX-License-Identifier: GPL-2.0 */
/* Tracepoints: /sys/kernel/tracing/events/expedite. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM expedite

#if !defined(EXPEDITE_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define EXPEDITE_TRACE_H

#include <linux/sched.h>
#include <linux/tracepoint.h>

/* Results of an arrival, as expedite_found() returns them: the reasons of threads/tally.rs, and the boost. */
#define EXPEDITE_OUTCOMES \
	{ 0, "denied_thread" }, { 1, "denied_user" }, { 2, "denied_cpu" }, { 3, "denied_flag" }, { 4, "denied_group" }, \
	{ 5, "denied_memory" }, { 6, "running" }, { 7, "boosted_already" }, { 8, "realtime" }, { 9, "idle" }, { 10, "behind" }, \
	{ 11, "locked" }, { 12, "boost" }

/* Ways of waiting: enum expedite_way. */
#define EXPEDITE_WAYS_OF_WAITING \
	{ 0, "read" }, { 1, "poll" }, { 2, "epoll" }, { 3, "io_uring" }, { 4, "wait" }, { 5, "named" }

/* Data has arrived for a thread that waits at a flagged file. */
TRACE_EVENT(expedite_arrival,
	TP_PROTO(struct task_struct *task, unsigned int way, unsigned int outcome),
	TP_ARGS(task, way, outcome),
	TP_STRUCT__entry(
		__field(pid_t, pid)
		__field(unsigned int, cpu)
		__field(unsigned int, way)
		__field(unsigned int, outcome)
	),
	TP_fast_assign(
		__entry->pid = task->pid;
		__entry->cpu = task_cpu(task);
		__entry->way = way;
		__entry->outcome = outcome;
	),
	TP_printk("pid=%d cpu=%u way=%s result=%s", __entry->pid, __entry->cpu,
		  __print_symbolic(__entry->way, EXPEDITE_WAYS_OF_WAITING),
		  __print_symbolic(__entry->outcome, EXPEDITE_OUTCOMES))
);

/* A boost has ended: the thread was lowered, or another caller had set its class. */
TRACE_EVENT(expedite_drop,
	TP_PROTO(struct task_struct *task, u64 ran, u64 slept, bool replaced),
	TP_ARGS(task, ran, slept, replaced),
	TP_STRUCT__entry(
		__field(pid_t, pid)
		__field(u64, ran)
		__field(u64, slept)
		__field(bool, replaced)
	),
	TP_fast_assign(
		__entry->pid = task->pid;
		__entry->ran = ran;
		__entry->slept = slept;
		__entry->replaced = replaced;
	),
	TP_printk("pid=%d ran_ns=%llu slept_ns=%llu replaced=%d", __entry->pid, __entry->ran, __entry->slept, __entry->replaced)
);

#endif

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
