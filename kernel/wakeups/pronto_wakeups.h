/* SPDX-License-Identifier: GPL-2.0 */
/* What the program and its loader share; crates/expedite/src/wakeups.rs has the same structures. */
#ifndef PRONTO_WAKEUPS_H
#define PRONTO_WAKEUPS_H

/* Changed with the structures. */
#define PRONTO_WAKEUPS_VERSION 1

/* Four counts for each power of two, up to 2^40 ns (18 minutes). */
#define COUNTS 160

struct parameters {
	u32 version;
	/* The process whose threads are recorded, or 0 for all. */
	u32 process;
};

struct times {
	/* Numbers of wake-ups, by the time until the thread ran. */
	u64 counts[COUNTS];
	/* The longest time, in nanoseconds. */
	u64 longest;
};

struct report {
	/* Wake-ups that were not recorded, because too many threads were waiting for a CPU. */
	u64 missed;
	/* Threads that ran in the fair class. */
	struct times ordinary;
	/* Threads that ran in a real-time class: boosted, or by their own choice. */
	struct times real_time;
};

#endif
