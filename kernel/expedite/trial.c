// SPDX-License-Identifier: GPL-2.0
/* The trial when the module is loaded: the calling thread waits, and a kernel thread announces an arrival. */
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/sched.h>
#include <linux/sched/prio.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "glue.h"

/* A boost lasts 10 ms at most; a machine may stop for some time. Milliseconds. */
#define LOWERED_AFTER 1000

static DECLARE_WAIT_QUEUE_HEAD(queue);
static bool has_arrived;

static void announce(struct work_struct *work)
{
	WRITE_ONCE(has_arrived, true);
	wake_up_poll(&queue, EPOLLIN);
}

static DECLARE_DELAYED_WORK(arrival, announce);

struct wait_queue_head *expedite_trial_queue(void)
{
	return &queue;
}

/*
 * Returns whether the calling thread can be boosted on a kernel that is supported: it is not real-time, and neither it nor its group is to
 * run after others.
 */
bool expedite_trial_is_possible(void)
{
	struct expedite_thread thread;

	expedite_snapshot(current, &thread);
	return !thread.is_realtime && !thread.is_behind;
}

/*
 * Waits for an arrival in the queue, which comes after @ms. Returns whether it made the calling thread real-time. The arrival is too early
 * if the thread does not sleep yet.
 */
bool expedite_trial_wait(unsigned int ms)
{
	bool is_raised = false;
	DEFINE_WAIT(wait);

	WRITE_ONCE(has_arrived, false);
	prepare_to_wait(&queue, &wait, TASK_UNINTERRUPTIBLE);
	schedule_delayed_work(&arrival, msecs_to_jiffies(ms));
	while (!READ_ONCE(has_arrived)) {
		schedule();
		is_raised = READ_ONCE(current->prio) < MAX_RT_PRIO;
		prepare_to_wait(&queue, &wait, TASK_UNINTERRUPTIBLE);
	}
	finish_wait(&queue, &wait);
	cancel_delayed_work_sync(&arrival);
	return is_raised;
}

/* Returns whether the calling thread is an ordinary one within the time in which every boost ends. */
bool expedite_trial_is_lowered(void)
{
	unsigned long end = jiffies + msecs_to_jiffies(LOWERED_AFTER);

	while (READ_ONCE(current->prio) < MAX_RT_PRIO && time_before(jiffies, end))
		msleep(1);
	return READ_ONCE(current->prio) >= MAX_RT_PRIO;
}
