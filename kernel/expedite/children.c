// SPDX-License-Identifier: GPL-2.0
/*
 * Children of boosted threads start with the scheduling that their parent has without its boost.
 *
 * The kernel would give them the default one (SCHED_FLAG_RESET_ON_FORK), without the parent's nice value. If the boost begins while the
 * kernel makes the child, it would even give the child the priority of the boost, for good (kernel/sched/core.c, sched_fork).
 */
#include <linux/sched.h>
#include <linux/sched/prio.h>
#include <linux/sched/rt.h>
#include <linux/tracepoint.h>
#include <uapi/linux/sched.h>
#include <uapi/linux/sched/types.h>

#include "glue.h"

/* The kernel announces each new task here, made by the current thread, before the task can run. Modules have to look it up. */
#define ANNOUNCES_CHILDREN "task_newtask"

static struct tracepoint *announcement;

static void set(struct task_struct *child, const struct sched_attr *attr)
{
	u64 slack = child->timer_slack_ns;

	WARN_ON_ONCE(sched_setattr_nocheck(child, attr));
	child->timer_slack_ns = slack;
}

/* Gives @child the scheduling of @own, with the nice value and the slice of @parent. */
static void correct(struct task_struct *parent, struct task_struct *child, const struct expedite_saved *own)
{
	int nice = PRIO_TO_NICE(READ_ONCE(parent->static_prio));
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = own->policy,
		.sched_nice = own->reset_on_fork && nice < 0 ? 0 : nice,
		.sched_runtime = !own->reset_on_fork && parent->se.custom_slice ? parent->se.slice : 0,
	};

	/* The kernel changes nothing if the policy and the nice value are right, also if the priority is not. */
	if (rt_prio(child->prio) && child->policy == own->policy)
		set(child, &expedite_boost);
	set(child, &attr);
}

static bool differs(const struct task_struct *child, const struct task_struct *parent)
{
	return unlikely(child->policy != parent->policy || child->prio != parent->prio ||
			child->static_prio != parent->static_prio || child->se.custom_slice != parent->se.custom_slice);
}

static void on_child(void *unused, struct task_struct *child, u64 clone_flags)
{
	struct task_struct *parent = current;
	struct expedite_saved own;
	unsigned long irqs;
	bool is_known;

	/* The class of the parent changes under this lock: a half-changed one could seem to be that of the child, or another caller's. */
	raw_spin_lock_irqsave(&parent->pi_lock, irqs);
	is_known = differs(child, parent) && expedite_own_class(parent, &own);
	raw_spin_unlock_irqrestore(&parent->pi_lock, irqs);
	if (!is_known)
		return;
	/* It has become real-time by another caller, and its children with it. */
	if (own.policy == SCHED_FIFO || own.policy == SCHED_RR || own.policy == SCHED_DEADLINE)
		return;
	correct(parent, child, &own);
}

static void find(struct tracepoint *tracepoint, void *unused)
{
	if (!strcmp(tracepoint->name, ANNOUNCES_CHILDREN))
		announcement = tracepoint;
}

int expedite_children_watch(void)
{
	int result;

	for_each_kernel_tracepoint(find, NULL);
	if (!announcement) {
		pr_err("expedite: this kernel has no tracepoint " ANNOUNCES_CHILDREN "\n");
		return -ENODEV;
	}
	result = tracepoint_probe_register(announcement, on_child, NULL);
	if (result)
		announcement = NULL;
	return result;
}

void expedite_children_leave(void)
{
	if (!announcement)
		return;
	tracepoint_probe_unregister(announcement, on_child, NULL);
	tracepoint_synchronize_unregister();
}
