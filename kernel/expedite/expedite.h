/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/expedite: asks the kernel to run a thread immediately when data arrives for it.
 *
 * A flag belongs to an open socket, pipe, eventfd or completion channel, not to a descriptor. It lasts until it is
 * taken back, until the last descriptor of what it belongs to is closed, or until the device is closed: a flag holds
 * nothing open. All fields that are not described are zero. From Linux 6.17 on, KVM does not accept a flagged
 * eventfd for an irqfd.
 */
#ifndef EXPEDITE_H
#define EXPEDITE_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Flags what is open at @fd, which must be readable. */
struct expedite_flag {
	__s32 fd;
	/*
	 * The thread to run if the module cannot tell which thread waits; 0 is the caller. Any other thread must have
	 * the same owner as the caller, unless the caller has CAP_SYS_NICE.
	 */
	__s32 tid;
	/* Length of the boost after an arrival, in nanoseconds, at least 10,000; 0 is the maximum that the module grants. */
	__u64 slice_ns;
	/*
	 * Maximum share of a CPU, in percent, that all threads together can run boosted within any 100 ms by arrivals
	 * here; 0 is no limit of the flag's own. The module's caps apply as well, so a flag can only be tighter. EINVAL
	 * if it is more than 100, or too small for a single slice. If several devices flag one file, the flag with the
	 * loosest terms counts: one without options before the others, and of these one without a limit of its own, or
	 * else the one with the highest percentage.
	 */
	__u32 percent;
	/* EXPEDITE_SLEEPERS_ONLY, or 0. */
	__u32 options;
	__u64 reserved;
};

/* As in the paper: boosts only threads that use less than 2 % of a CPU in total, boosted or not. */
#define EXPEDITE_SLEEPERS_ONLY 1

/* Waits until something arrives, or is there, at what is flagged and open at @fd. */
struct expedite_wait {
	__s32 fd;
	__u32 reserved;
	/* Time limit in nanoseconds; 0 polls once, all ones is no limit. */
	__u64 timeout_ns;
};

/* Counters of one thread, from when the module first saw it, or of all threads. */
struct expedite_counts {
	/* Arrivals that were about to wake it. */
	__u64 calls;
	/* Boosts: made immediately, and by the worker of its CPU. */
	__u64 direct;
	__u64 worker;
	/* Not boosted, as it ran already, was boosted already, or is real-time. */
	__u64 running;
	__u64 boosted;
	__u64 realtime;
	/* Not boosted, as a CPU on which it may run was idle. */
	__u64 idle;
	/*
	 * Not boosted, as its group is to run after others (cpu.idle), or it is itself (a positive nice value, or
	 * SCHED_IDLE) and may not change that.
	 */
	__u64 behind;
	/* Not boosted, as it waits for a lock with priority inheritance, whose owner would be boosted instead. */
	__u64 locked;
	/* Not boosted, as the budget of the thread, its user, its CPU, the flag or its group was too low. */
	__u64 denied_thread;
	__u64 denied_user;
	__u64 denied_cpu;
	__u64 denied_flag;
	__u64 denied_group;
	/* Not boosted, as memory was short, or the module stores too many threads or accounts. */
	__u64 denied_memory;
	/* Boosts that ended, and those that ended after another caller had set the thread's class. */
	__u64 drops;
	__u64 replaced;
	/* Nanoseconds that it ran boosted. */
	__u64 boosted_ns;
	/* Nanoseconds that it slept boosted and was charged for, as another thread may have run in its place. */
	__u64 slept_ns;
};

struct expedite_query {
	/* In: the thread; 0 is the caller. */
	__s32 tid;
	__u32 reserved;
	struct expedite_counts counts;
	/* Nanoseconds that it may run boosted now. */
	__u64 left_ns;
};

/* Number of ways of waiting that the module distinguishes. */
#define EXPEDITE_WAYS 6

/* State and counters of the whole module. */
struct expedite_totals {
	__u64 flags;
	__u64 threads;
	__u64 accounts;
	/*
	 * Arrivals by the way in which the thread waited: read, poll or select, epoll, io_uring, EXPEDITE_WAIT, and
	 * those for which the module used the thread that the flag names.
	 */
	__u64 by_way[EXPEDITE_WAYS];
	struct expedite_counts counts;
};

/* The parameters with which the module was loaded; README.md describes each. */
struct expedite_caps {
	__u32 slice_us;
	__u32 thread_percent;
	__u32 user_percent;
	__u32 cpu_percent;
	__u32 sleepers_only;
	__u32 even_if_idle;
	__u32 user_flags;
	__u32 reserved;
};

/*
 * EBADF, EOPNOTSUPP (cannot be flagged), EEXIST (is flagged, through this device), ESRCH, EPERM, EINVAL, ENOMEM; ENOSPC
 * (the device, the file or the user has as many flags as it can have).
 */
#define EXPEDITE_FLAG _IOW('E', 0xe0, struct expedite_flag)
/* The argument is a pointer to the descriptor. EBADF, ENOENT (is not flagged through this device). */
#define EXPEDITE_UNFLAG _IOW('E', 0xe1, __s32)
/* ESRCH, EPERM, ENOENT (nothing has arrived for it lately). */
#define EXPEDITE_QUERY _IOWR('E', 0xe2, struct expedite_query)
/*
 * EBADF, ENOENT (is not flagged through this device), EINVAL, ETIMEDOUT, EINTR (a signal came; it is not restarted),
 * ECANCELED (the flag has ended meanwhile: it was taken back, or the last descriptor was closed). Nothing is held open
 * for it. As with poll, another thread can be faster to take what arrived.
 */
#define EXPEDITE_WAIT _IOW('E', 0xe3, struct expedite_wait)
#define EXPEDITE_TOTALS _IOR('E', 0xe4, struct expedite_totals)
/* Returns whether a file is flagged through this device. As EXPEDITE_UNFLAG, but the flag stays. */
#define EXPEDITE_FIND _IOW('E', 0xe5, __s32)
#define EXPEDITE_CAPS _IOR('E', 0xe6, struct expedite_caps)

/* Flags that one open device can hold, and that one file can have. */
#define EXPEDITE_FLAGS_MAX 1024
#define EXPEDITE_FLAGS_PER_FILE 8

/*
 * The flag of the paper, for fcntl(fd, F_SETFL, ...): the library libexpedite.so replaces fcntl, strips it, and makes the
 * requests above. The kernel does not know it.
 */
#define O_EXPEDITE 0x20000000

#endif
