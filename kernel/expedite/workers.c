// SPDX-License-Identifier: GPL-2.0
/*
 * One real-time worker per CPU, bound to it: created when the CPU comes online, destroyed before it goes offline. One more
 * that is not bound, for a CPU whose own could not be created or was just destroyed.
 */
#include <linux/cpuhotplug.h>
#include <linux/kthread.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <uapi/linux/sched/types.h>

#include "compat.h"
#include "glue.h"

/* One above boosted threads, so that they can be lowered, and below almost every thread that is real-time on purpose. */
#define WORKER_PRIORITY 2

static struct kthread_worker __rcu **workers;
static struct kthread_worker *spare;
static enum cpuhp_state callbacks;

static void make_real_time(struct kthread_worker *worker)
{
	struct sched_attr attr = {
		.size = sizeof(attr),
		.sched_policy = SCHED_FIFO,
		.sched_priority = WORKER_PRIORITY,
	};

	WARN_ON_ONCE(sched_setattr_nocheck(worker->task, &attr));
}

/* Runs on a CPU that has come online. The spare worker serves if there is an error, so this does not fail. */
static int on_online(unsigned int cpu)
{
	struct kthread_worker *worker = kthread_run_worker_on_cpu(cpu, 0, "expedite/%u");

	if (IS_ERR(worker)) {
		pr_warn("expedite: no worker for CPU %u: %ld\n", cpu, PTR_ERR(worker));
		return 0;
	}
	make_real_time(worker);
	rcu_assign_pointer(workers[cpu], worker);
	return 0;
}

/* Runs before a CPU goes offline. Its worker finishes its queued work first. */
static int on_offline(unsigned int cpu)
{
	struct kthread_worker *worker = rcu_replace_pointer(workers[cpu], NULL, true);

	if (worker) {
		synchronize_rcu_expedited();
		kthread_destroy_worker(worker);
	}
	return 0;
}

int expedite_workers_start(void)
{
	int state;

	workers = kcalloc(nr_cpu_ids, sizeof(*workers), GFP_KERNEL);
	if (!workers)
		return -ENOMEM;
	spare = kthread_run_worker(0, "expedite/any");
	if (IS_ERR(spare)) {
		kfree(workers);
		return PTR_ERR(spare);
	}
	make_real_time(spare);
	state = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "expedite:worker", on_online, on_offline);
	if (state < 0) {
		kthread_destroy_worker(spare);
		kfree(workers);
		return state;
	}
	callbacks = state;
	return 0;
}

void expedite_workers_stop(void)
{
	cpuhp_remove_state(callbacks);
	kthread_destroy_worker(spare);
	kfree(workers);
}

/*
 * A work item stores its worker, and this may be another one than last time, so it is initialised again. Only the caller
 * accesses it, and the last worker dropped it before it called expedite_work().
 */
void expedite_queue(struct kthread_work *work, u32 cpu)
{
	struct kthread_worker *worker;

	rcu_read_lock();
	worker = cpu < nr_cpu_ids ? rcu_dereference(workers[cpu]) : NULL;
	kthread_init_work(work, expedite_work);
	kthread_queue_work(worker ?: spare, work);
	rcu_read_unlock();
}
