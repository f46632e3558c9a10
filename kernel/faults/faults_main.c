// SPDX-License-Identifier: GPL-2.0
/*
 * A module that breaks the kernel in the way that `fault=` selects. The lab's tests use it to check that the lab detects
 * each fault: `oops` and `hang` in every kernel, `sleep` and `order` in one that is built for debugging.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/delay.h>
#include <linux/spinlock.h>

static char *fault = "";
module_param(fault, charp, 0);
MODULE_PARM_DESC(fault, "oops, hang, sleep or order");

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static DEFINE_SPINLOCK(held);

/* Writes to an unmapped address. */
static void oops(void)
{
	volatile int *nowhere = NULL;

	*nowhere = 1;
}

/* Sleeps for ever, uninterruptible by signals. */
static void hang(void)
{
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		schedule();
	}
}

/* Sleeps under a spinlock, which is forbidden. In this case it does no harm. */
static void sleep_in_atomic_context(void)
{
	spin_lock(&held);
	msleep(1);
	spin_unlock(&held);
}

/* Takes two locks in one order, then in the other. One thread does not deadlock, but two threads could. */
static void two_orders(void)
{
	mutex_lock(&first);
	mutex_lock(&second);
	mutex_unlock(&second);
	mutex_unlock(&first);
	mutex_lock(&second);
	mutex_lock(&first);
	mutex_unlock(&first);
	mutex_unlock(&second);
}

static int __init faults_init(void)
{
	pr_info("faults: %s\n", fault);
	if (!strcmp(fault, "oops"))
		oops();
	else if (!strcmp(fault, "hang"))
		hang();
	else if (!strcmp(fault, "sleep"))
		sleep_in_atomic_context();
	else if (!strcmp(fault, "order"))
		two_orders();
	else
		return -EINVAL;
	return 0;
}

static void __exit faults_exit(void)
{
}

module_init(faults_init);
module_exit(faults_exit);
MODULE_DESCRIPTION("Breaks the kernel on request");
MODULE_LICENSE("GPL");
