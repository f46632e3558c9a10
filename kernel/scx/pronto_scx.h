/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The structures that the BPF scheduler and its loader share, also in crates/scx/src/shared.rs. The loader compares their sizes and
 * PRONTO_SCX_VERSION before it loads the object.
 */
#ifndef PRONTO_SCX_H
#define PRONTO_SCX_H

#include "budget.h"
#include "predictor.h"

/* Increased with each change of a structure below, or of its meaning. */
#define PRONTO_SCX_VERSION 3

/* Section .rodata.parameters: the loader sets all but `version`. */
struct parameters {
	u32 version;
	u32 cpus;		/* possible CPUs */
	u64 slice;		/* of a boost, in nanoseconds */
	struct terms thread;
	struct terms user;
	struct terms cpu;
};

/* Wake-ups of flagged threads, by result. */
struct counters {
	u64 boosts;
	u64 idle;		/* no boost, because a CPU was idle */
	u64 behind;		/* no boost, because of the thread's nice value, class or group */
	u64 denied_thread;	/* no boost, because this budget was too low */
	u64 denied_user;
	u64 denied_cpu;
	u64 denied_memory;	/* no boost, because there was no account for the user */
	u64 preempted;		/* slices that ended because another thread waited */
	u64 boosted_ns;		/* time that threads ran boosted */
};

/* Section .data.report: written by the scheduler, read by the loader. */
struct report {
	u32 has_exited;
	u32 kind;		/* enum scx_exit_kind */
	s64 code;
	char reason[128];
	char message[1024];
	struct counters counters;
};

/* Value of the map `flags`, whose key is a pidfd: a thread to boost. */
struct flag {
	u32 payer;		/* user whose account pays */
	u32 reserved;
};

/* Value of the map `weights`, whose key is a pidfd of a main thread: a process whose threads have another weight. */
struct weight {
	u32 hundredths;
	u32 reserved;
};

/* Request of the loader: a process whose weight follows its queues. Argument of the program `pronto_predict`. */
struct terms_of_prediction {
	u32 pid;		/* in the first namespace */
	u32 past;		/* the weight of the past, in millionths */
	u32 most;		/* the largest weight, in hundredths */
	u32 counts_sent;	/* data to be sent counts, too */
	u64 period;		/* time between two samples, in nanoseconds */
};

/* Samples of a process, and what followed from them. */
struct prediction_report {
	u64 begun_ns;		/* time of the request (CLOCK_MONOTONIC): another one begins anew */
	u64 level;
	u64 weight;		/* in hundredths */
	u64 sockets;		/* that the last sample has read */
	u64 samples;
	u64 with_received;	/* samples with data that was received */
	u64 with_sent;		/* samples with data to be sent */
	u64 changes;		/* of the weight */
	u64 changed_ns;		/* time of the last change (CLOCK_MONOTONIC) */
	u64 worked_ns;		/* time of all samples, and of the longest one */
	u64 longest_ns;
};

/* Value of the map `predictions`, whose key is the number of a process in the first namespace. */
struct prediction {
	struct prediction_report report;
	struct predictor predictor;
	struct terms_of_prediction terms;
	u64 started;		/* when the process began: another one may get its number */
	u64 due;		/* the next sample */
};

#endif
