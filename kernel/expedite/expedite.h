/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/expedite: asks the kernel to run a thread immediately when data arrives for it.
 *
 * A flag belongs to an open socket, pipe, eventfd or completion channel, not to a descriptor. It lasts until it is
 * taken back, until the last descriptor of what it belongs to is closed, or until the device is closed: a flag holds
 * nothing open. All fields that are not described are zero.
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
	/* Length of the boost after an arrival, in nanoseconds; 0 is the maximum that the module grants. */
	__u64 slice_ns;
	/*
	 * Maximum share of a CPU, in percent, that all threads together can run boosted within any 100 ms by arrivals
	 * here; 0 is no limit of the flag's own. The module's caps apply as well, so a flag can only be tighter. EINVAL
	 * if it is more than 100, or too small for a single slice.
	 */
	__u32 percent;
	__u32 reserved;
	__u64 more_reserved;
};

/* Waits until something arrives, or is there, at what is flagged and open at @fd. */
struct expedite_wait {
	__s32 fd;
	__u32 reserved;
	/* Time limit in nanoseconds; 0 polls once, all ones is no limit. */
	__u64 timeout_ns;
};

/* Counters of one thread, from when the module first saw it. */
struct expedite_query {
	/* In: the thread; 0 is the caller. */
	__s32 tid;
	__u32 reserved;
	/* Arrivals that were about to wake it. */
	__u64 calls;
	/* Boosts: made immediately, and by the worker of its CPU. */
	__u64 direct;
	__u64 worker;
	/* Not boosted, as it ran already, was boosted already, or is real-time. */
	__u64 running;
	__u64 boosted;
	__u64 realtime;
	/* Not boosted, as the budget of the thread, its user, its CPU or the flag was too low, or memory was short. */
	__u64 denied_thread;
	__u64 denied_user;
	__u64 denied_cpu;
	__u64 denied_flag;
	__u64 denied_memory;
	/* Boosts that ended, and those that ended after another caller had set the thread's class. */
	__u64 drops;
	__u64 replaced;
	/* Nanoseconds that it ran boosted, and that it may run boosted now. */
	__u64 boosted_ns;
	__u64 left_ns;
};

/* EBADF, EOPNOTSUPP (cannot be flagged), EEXIST (is flagged, through this device), ESRCH, EPERM, EINVAL, ENOSPC, ENOMEM. */
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

/* Flags that one open device can hold. */
#define EXPEDITE_FLAGS_MAX 1024

#endif
