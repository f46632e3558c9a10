// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting through the device. The module recognises such a waiting thread whatever the kernel's callbacks are called, and
 * the thread holds nothing open meanwhile.
 */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/wait.h>

#include "glue.h"

struct sleeper {
	struct wait_queue_entry entry;
	bool has_arrived;
};

int expedite_woken(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key)
{
	struct sleeper *sleeper = container_of(entry, struct sleeper, entry);
	__poll_t events = key_to_poll(key);

	if (events && !(events & (EXPEDITE_ARRIVAL | EXPEDITE_ENDED)))
		return 0;
	if (!events || events & EXPEDITE_ARRIVAL)
		WRITE_ONCE(sleeper->has_arrived, true);
	return default_wake_function(entry, mode, flags, key);
}

/*
 * Sleeps until something arrives, or until @ended is set and expedite_wake_sleepers() was called. Drops the reference to
 * @file before it sleeps, immediately and not on return to user space, so that closing the file meanwhile takes effect. The
 * caller keeps @queue in place.
 */
int expedite_sleep(struct file *file, struct wait_queue_head *queue, const bool *ended, u64 ns)
{
	struct sleeper sleeper = { .entry = { .private = current, .func = expedite_woken } };
	ktime_t until = ktime_add_safe(ktime_get(), ns_to_ktime(min_t(u64, ns, KTIME_MAX)));
	bool is_late = false;
	int result;

	add_wait_queue(queue, &sleeper.entry);
	if (file->f_op->poll(file, NULL) & EXPEDITE_ARRIVAL)
		WRITE_ONCE(sleeper.has_arrived, true);
	__fput_sync(file);
	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (READ_ONCE(*ended))
			result = -ECANCELED;
		else if (READ_ONCE(sleeper.has_arrived))
			result = 0;
		else if (signal_pending(current))
			result = -EINTR;
		else if (is_late)
			result = -ETIMEDOUT;
		else {
			is_late = !schedule_hrtimeout_range(ns == U64_MAX ? NULL : &until, current->timer_slack_ns,
							    HRTIMER_MODE_ABS);
			continue;
		}
		break;
	}
	__set_current_state(TASK_RUNNING);
	remove_wait_queue(queue, &sleeper.entry);
	return result;
}

/* Makes the threads in expedite_sleep() check @ended again. No other waiter treats this event as an arrival. */
void expedite_wake_sleepers(struct wait_queue_head *queue)
{
	__wake_up(queue, TASK_INTERRUPTIBLE, 0, poll_to_key(EXPEDITE_ENDED));
}
