// SPDX-License-Identifier: GPL-2.0
/* A module that breaks the kernel it is loaded into, in the way that `fault=` names. With it the lab shows that it notices:
 * `oops` and `hang` in every kernel, `sleep` and `order` in one that is built for debugging.
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

/* Writes where nothing is mapped. */
static void oops(void)
{
	volatile int *nowhere = NULL;

	*nowhere = 1;
}

/* Waits for what nobody will do, in a way that no signal ends. */
static void hang(void)
{
	for (;;) {
		set_current_state(TASK_UNINTERRUPTIBLE);
		schedule();
	}
}

/* Sleeps where sleeping is forbidden; this once it goes well. */
static void sleep_in_atomic_context(void)
{
	spin_lock(&held);
	msleep(1);
	spin_unlock(&held);
}

/* Takes two locks in one order, then in the other. Nobody waits, but two threads that did so could, for ever. */
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
