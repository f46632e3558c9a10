// SPDX-License-Identifier: GPL-2.0
/* Threads, their scheduling class, and timers. */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/module.h>
#include <linux/pid.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/clock.h>
#include <linux/sched/prio.h>
#include <linux/sched/task.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <uapi/linux/sched.h>
#include <uapi/linux/sched/types.h>

#include "compat.h"
#include "glue.h"

/*
 * A boosted thread has the lowest real-time priority: above every ordinary thread, below every thread that is real-time on
 * purpose. SCHED_RR, and not SCHED_FIFO, which it differs from only after 100 ms: programs that are real-time choose it less
 * often, and another caller that sets SCHED_FIFO at this priority, as Pronto's own tier does, is recognised.
 */
#define BOOSTED_POLICY SCHED_RR
#define BOOSTED_PRIORITY 1

const struct sched_attr expedite_boost = {
	.size = sizeof(expedite_boost),
	.sched_policy = BOOSTED_POLICY,
	.sched_flags = SCHED_FLAG_RESET_ON_FORK,
	.sched_priority = BOOSTED_PRIORITY,
};

/* Faults that a build for tests plants: raising or lowering a thread does nothing, and reports success. */
#ifdef EXPEDITE_BREAK_raise
#define RAISES false
#else
#define RAISES true
#endif
#ifdef EXPEDITE_BREAK_lower
#define LOWERS false
#else
#define LOWERS true
#endif

/* Nanoseconds that the thread has been runnable and did not run. */
static u64 waited(struct task_struct *task)
{
	u64 queued = READ_ONCE(task->sched_info.last_queued), now = local_clock();

	return READ_ONCE(task->sched_info.run_delay) + (queued && queued < now ? now - queued : 0);
}

/*
 * Returns whether a boosted thread sleeps, and the kernel has counted this sleep (nvcsw). A thread that has only set its state runs, or
 * was preempted, and may find that it need not sleep.
 */
bool expedite_is_switched_out(struct task_struct *task)
{
	return READ_ONCE(task->__state) != TASK_RUNNING && !READ_ONCE(task->on_rq) && !smp_load_acquire(&task->on_cpu);
}

/* The caller has a reference to the task, or the lock of a wait queue. */
void expedite_snapshot(struct task_struct *task, struct expedite_thread *thread)
{
	bool is_switched_out = expedite_is_switched_out(task);

	rcu_read_lock();
	*thread = (struct expedite_thread){
		.runtime = READ_ONCE(task->se.sum_exec_runtime),
		.waited = waited(task),
		.arrival = READ_ONCE(task->sched_info.last_arrival),
		.arrivals = READ_ONCE(task->sched_info.pcount),
		.sleeps = READ_ONCE(task->nvcsw),
		.migrations = READ_ONCE(task->se.nr_migrations),
		.is_switched_out = is_switched_out,
		.is_on_cpu = READ_ONCE(task->on_cpu),
		.cpu = task_cpu(task),
		.is_asleep = READ_ONCE(task->__state) != TASK_RUNNING,
		.is_realtime = READ_ONCE(task->prio) < MAX_RT_PRIO,
		.is_ending = READ_ONCE(task->flags) & (PF_EXITING | PF_KTHREAD),
		.is_behind = expedite_is_behind(task),
		.is_locked = READ_ONCE(task->pi_blocked_on),
	};
	thread->uid = expedite_payer(task);
	expedite_groups(task, thread);
	rcu_read_unlock();
}

/* Returns whether a thread has the class of a boost. */
bool expedite_is_boost(const struct task_struct *task)
{
	return READ_ONCE(task->policy) == BOOSTED_POLICY && READ_ONCE(task->rt_priority) == BOOSTED_PRIORITY &&
	       task->sched_reset_on_fork;
}

/* The class that a thread has now. */
void expedite_class(struct task_struct *task, struct expedite_saved *saved)
{
	saved->policy = READ_ONCE(task->policy);
	saved->reset_on_fork = task->sched_reset_on_fork;
}

/*
 * Raises a thread. Must not be called in an interrupt. Children of a boosted thread are not boosted (children.c).
 *
 * If the thread waited for a lock with priority inheritance, the owner would be raised too, and that code enables interrupts.
 * A caller with a spinlock has checked that the thread waits for what has arrived, and cannot stop (is_pinned).
 */
int expedite_raise(struct task_struct *task, struct expedite_saved *saved)
{
	bool had_interrupts = !irqs_disabled();
	u64 slack = task->timer_slack_ns;
	int result;

	expedite_class(task, saved);
	if (saved->policy == SCHED_FIFO || saved->policy == SCHED_RR || saved->policy == SCHED_DEADLINE)
		return -EBUSY;
	if (READ_ONCE(task->pi_blocked_on))
		return -EDEADLK;
	if (!RAISES)
		return 0;
	result = sched_setattr_nocheck(task, &expedite_boost);
	/* The kernel has set it to 0, as for every real-time thread, and would set the default at the end of the boost. */
	if (!result)
		WRITE_ONCE(task->timer_slack_ns, slack);
	WARN_ON_ONCE(!had_interrupts && !irqs_disabled());
	return result;
}

/*
 * Lowers a thread to its earlier class, with the nice value and the slice that it has now: they can be set while it is
 * boosted, and take effect then. Returns 1 if another caller has set its class meanwhile; that class stays.
 */
int expedite_lower(struct task_struct *task, const struct expedite_saved *saved)
{
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = saved->policy,
		.sched_flags = saved->reset_on_fork ? SCHED_FLAG_RESET_ON_FORK : 0,
		.sched_nice = PRIO_TO_NICE(task->static_prio),
		.sched_runtime = task->se.custom_slice ? task->se.slice : 0,
	};

	if (!expedite_is_boost(task))
		return 1;
	if (!LOWERS)
		return 0;
	if (!sched_setattr_nocheck(task, &attr))
		return 0;
	/* Its earlier class does not accept it any more. */
	attr.sched_policy = SCHED_NORMAL;
	return sched_setattr_nocheck(task, &attr);
}

bool expedite_in_interrupt(void)
{
	return in_interrupt();
}

u64 expedite_clock(void)
{
	return local_clock();
}

void expedite_get_task(struct task_struct *task)
{
	get_task_struct(task);
}

void expedite_put_task(struct task_struct *task)
{
	put_task_struct(task);
}

/* Returns a thread by its number in the caller's namespace, 0 for the caller, with a reference; or NULL. */
struct task_struct *expedite_find_task(pid_t tid)
{
	struct task_struct *task;

	if (!tid)
		return get_task_struct(current);
	rcu_read_lock();
	task = pid_task(find_vpid(tid), PIDTYPE_PID);
	if (task)
		get_task_struct(task);
	rcu_read_unlock();
	return task;
}

/* A caller that may set the scheduling of a thread may name it: its owner, or a caller with CAP_SYS_NICE over it. */
bool expedite_may_name(struct task_struct *task)
{
	const struct cred *theirs;
	bool may;

	rcu_read_lock();
	theirs = __task_cred(task);
	may = uid_eq(current_euid(), theirs->euid) || uid_eq(current_euid(), theirs->uid);
	may = may || ns_capable(theirs->user_ns, CAP_SYS_NICE);
	rcu_read_unlock();
	return may;
}

/* The one lock of all boost state, the innermost. */
static DEFINE_RAW_SPINLOCK(state_lock);

unsigned long expedite_lock(void)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&state_lock, flags);
	return flags;
}

void expedite_unlock(unsigned long flags)
{
	raw_spin_unlock_irqrestore(&state_lock, flags);
}

u32 expedite_cpus(void)
{
	return nr_cpu_ids;
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	u32 ns = expedite_timer(timer);

	if (!ns)
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ns_to_ktime(ns));
	return HRTIMER_RESTART;
}

void expedite_thread_init(struct hrtimer *timer, struct irq_work *afterwards)
{
	hrtimer_setup(timer, on_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_HARD);
	/* In an interrupt also where other work of this kind is done by a thread, which a boosted thread would delay. */
	*afterwards = IRQ_WORK_INIT_HARD(expedite_afterwards);
}

/* Runs @afterwards in an interrupt of this CPU as soon as interrupts are enabled: after the current wake-up. */
void expedite_do_afterwards(struct irq_work *afterwards)
{
	irq_work_queue(afterwards);
}

void expedite_start(struct hrtimer *timer, u64 ns)
{
	hrtimer_start(timer, ns_to_ktime(ns), HRTIMER_MODE_REL_HARD);
}

static void reap(struct work_struct *work);
static DECLARE_DELAYED_WORK(reaper, reap);

static void reap(struct work_struct *work)
{
	expedite_reap_in(expedite_reap());
}

/* Runs the reaper after @ms at the latest; 0 means that there is nothing to check. */
void expedite_reap_in(unsigned int ms)
{
	unsigned long delay = msecs_to_jiffies(ms);

	if (ms && !schedule_delayed_work(&reaper, delay) &&
	    time_before(jiffies + delay, READ_ONCE(reaper.timer.expires))) {
		cancel_delayed_work(&reaper);
		schedule_delayed_work(&reaper, delay);
	}
}

void expedite_cancel_reap(void)
{
	cancel_delayed_work_sync(&reaper);
}

/* Takes a reference to this module for an open device: the misc devices of Rust have no owner. */
bool expedite_module_get(void)
{
	return try_module_get(THIS_MODULE);
}

void expedite_module_put(void)
{
	module_put(THIS_MODULE);
}

/* Waits until no thread that has dropped its module reference is still in this module's code. */
void expedite_wait_for_stragglers(void)
{
	synchronize_rcu_tasks();
}
