// SPDX-License-Identifier: GPL-2.0
/*
 * Records the times from a wake-up to the moment when the thread gets a CPU, by the class in which it gets it. The kernel's clock and its
 * tracepoints measure; neither the boosted program nor the module takes part.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "pronto_wakeups.h"

char LICENSE[] SEC("license") = "GPL";

/* Threads that may be woken and not yet running. */
#define THREADS 16384

/* Priorities below this one are those of real-time classes. */
#define MAX_RT_PRIO 100

const volatile struct parameters parameters SEC(".rodata.parameters") = { .version = PRONTO_WAKEUPS_VERSION };

struct report report SEC(".data.report");

/* Times of wake-ups in nanoseconds, by the number of the thread. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, THREADS);
	__type(key, u32);
	__type(value, u64);
} woken SEC(".maps");

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *thread)
{
	u64 now = bpf_ktime_get_ns();
	u32 number = thread->pid;

	/* It has not slept yet. */
	if (thread->on_cpu)
		return 0;
	if (parameters.process && thread->tgid != parameters.process)
		return 0;
	if (bpf_map_update_elem(&woken, &number, &now, BPF_ANY))
		__sync_fetch_and_add(&report.missed, 1);
	return 0;
}

/* Returns the place of a time: that of its power of two, and of the two bits below the highest one. */
static u32 place(u64 time)
{
	u32 power = 2;

	if (time < 4)
		return time;
	for (int bit = 32; bit; bit >>= 1) {
		if (time >> (power + bit) != 0 && power + bit < 64)
			power += bit;
	}
	return (power - 1) * 4 + ((time >> (power - 2)) & 3);
}

static void record(struct times *times, u64 time)
{
	u32 at = place(time);

	if (at >= COUNTS)
		at = COUNTS - 1;
	__sync_fetch_and_add(&times->counts[at], 1);
	if (time > times->longest)
		times->longest = time;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempted, struct task_struct *previous, struct task_struct *next)
{
	u32 number = next->pid;
	u64 *since = bpf_map_lookup_elem(&woken, &number), time;

	if (!since)
		return 0;
	time = bpf_ktime_get_ns() - *since;
	bpf_map_delete_elem(&woken, &number);
	if (next->prio < MAX_RT_PRIO)
		record(&report.real_time, time);
	else
		record(&report.ordinary, time);
	return 0;
}
