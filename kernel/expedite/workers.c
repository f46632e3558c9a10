// SPDX-License-Identifier: GPL-2.0
/*
 * One real-time worker for each processor, bound to it: made when the processor comes, gone before it goes. And one that is
 * bound to none, for a processor whose own could not be made, or is just gone.
 */
#include <linux/cpuhotplug.h>
#include <linux/kthread.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "glue.h"

static struct kthread_worker __rcu **workers;
static struct kthread_worker *spare;
static enum cpuhp_state callbacks;

/* On a processor that has come. There is the spare one, so it need not fail. */
static int on_online(unsigned int cpu)
{
	struct kthread_worker *worker = kthread_run_worker_on_cpu(cpu, 0, "expedite/%u");

	if (IS_ERR(worker)) {
		pr_warn("expedite: no worker for processor %u: %ld\n", cpu, PTR_ERR(worker));
		return 0;
	}
	sched_set_fifo(worker->task);
	rcu_assign_pointer(workers[cpu], worker);
	return 0;
}

/* Before a processor goes. What was asked of its worker is done first. */
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
	sched_set_fifo(spare->task);
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
 * Work remembers its worker, and this may be another one than last time: it is made anew. Whoever calls is alone with it,
 * and the last worker has let go of it before it called our function.
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
