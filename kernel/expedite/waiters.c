// SPDX-License-Identifier: GPL-2.0
/*
 * Finds the threads that an arrival is about to wake, in the entries of the wait queue, before it wakes them.
 *
 * Only an entry's own callback knows which thread waits. Some callbacks are exported, or known by name. The contents of
 * their entries are public (poll, io_uring), a plain thread (read), or in this kernel's type data (epoll). The module
 * assumes nothing about any other entry.
 */
#include <linux/cleanup.h>
#include <linux/cred.h>
#include <linux/io_uring_types.h>
#include <linux/kallsyms.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/sched/prio.h>
#include <linux/wait.h>

#include "epoll_layout.h"
#include "glue.h"

/* Contents of the entries of one callback. */
enum holds {
	UNKNOWN_CONTENTS = 1,
	A_THREAD,
	A_POLL,
	AN_EPOLL,
	A_URING,
	A_SLEEPER,
};

static const struct {
	const char *name;
	enum holds holds;
} callbacks[] = {
	{ "autoremove_wake_function", A_THREAD },
	{ "default_wake_function", A_THREAD },
	{ "woken_wake_function", A_THREAD },
	{ "receiver_wake_function", A_THREAD },
	{ "pollwake", A_POLL },
#if defined(EPPOLL_ENTRY_BASE) && defined(EPPOLL_ENTRY_WAIT) && defined(EPITEM_EP) && defined(EVENTPOLL_WQ)
#define EPOLL_IS_KNOWN
	{ "ep_poll_callback", AN_EPOLL },
#endif
	{ "io_poll_wake", A_URING },
};

/* Callbacks seen so far: each name is looked up once. Slots are filled from the front and never changed. */
static struct {
	wait_queue_func_t func;
	enum holds holds;
} seen[32];
static atomic_t seen_count;

static enum holds look_up(wait_queue_func_t func)
{
	char name[KSYM_SYMBOL_LEN];
	enum holds holds = UNKNOWN_CONTENTS;
	int i;

	sprint_symbol_no_offset(name, (unsigned long)func);
	for (i = 0; i < ARRAY_SIZE(callbacks); i++)
		if (!strcmp(name, callbacks[i].name))
			holds = callbacks[i].holds;
	i = atomic_fetch_inc(&seen_count);
	if (i < ARRAY_SIZE(seen)) {
		seen[i].holds = holds;
		smp_store_release(&seen[i].func, func);
	} else {
		atomic_set(&seen_count, ARRAY_SIZE(seen));
	}
	return holds;
}

static enum holds known_holds(wait_queue_func_t func)
{
	int i, count = min_t(int, atomic_read(&seen_count), ARRAY_SIZE(seen));

	for (i = 0; i < count; i++)
		if (smp_load_acquire(&seen[i].func) == func)
			return seen[i].holds;
	/* If every slot is taken, no further name is looked up: a look-up for each arrival would cost too much. */
	return count == ARRAY_SIZE(seen) ? UNKNOWN_CONTENTS : look_up(func);
}

/* Checks the condition of a poll or select as its own callback does. */
static struct task_struct *task_in_poll(struct wait_queue_entry *entry, __poll_t events)
{
	struct poll_table_entry *of = container_of(entry, struct poll_table_entry, wait);
	struct poll_wqueues *all = entry->private;

	return events && !(events & of->key) ? NULL : all->polling_task;
}

#ifdef EPOLL_IS_KNOWN
static struct task_struct *task_in_epoll(struct wait_queue_entry *entry)
{
	void *of = (void *)entry - EPPOLL_ENTRY_WAIT;
	void *item = *(void **)(of + EPPOLL_ENTRY_BASE);
	void *epoll = *(void **)(item + EPITEM_EP);
	struct wait_queue_head *queue = epoll + EVENTPOLL_WQ;
	struct wait_queue_entry *first;

	/* ep_poll_callback takes this lock under the same outer lock. It wakes the first entry, which is always a thread. */
	guard(spinlock)(&queue->lock);
	first = list_first_entry_or_null(&queue->head, struct wait_queue_entry, entry);
	return first ? first->private : NULL;
}
#else
static struct task_struct *task_in_epoll(struct wait_queue_entry *entry)
{
	return NULL;
}
#endif

/* The thread that submitted the request waits for it, or its completion interrupts that thread. The lowest bits are tags. */
static struct task_struct *submitting_task(struct wait_queue_entry *entry)
{
	struct io_kiocb *request = (void *)((unsigned long)entry->private & ~3UL);

	return request && request->tctx ? request->tctx->task : NULL;
}

/* Fills in @waiter. The task must be valid: by a reference, or as in expedite_waiters(). */
void expedite_describe(struct task_struct *task, struct expedite_waiter *waiter)
{
	waiter->task = task;
	waiter->cpu = task_cpu(task);
	waiter->uid = __kuid_val(rcu_dereference_raw(task->real_cred)->uid);
	waiter->is_boostable = READ_ONCE(task->__state) != TASK_RUNNING && READ_ONCE(task->prio) >= MAX_RT_PRIO &&
			   !(READ_ONCE(task->flags) & (PF_EXITING | PF_KTHREAD));
}

/*
 * Fills @found with the threads that this arrival wakes, and returns their number. Sets @has_unrecognised if there is a
 * waiter whose thread is not recognised. Called under the lock of the queue. While it is held, the threads are valid without a
 * reference: a held spinlock delays RCU's grace period, before which no waiting thread is freed.
 */
int expedite_waiters(struct wait_queue_entry *ours, void *key, struct expedite_waiter *found, int most,
		     bool *has_unrecognised)
{
	struct wait_queue_head *queue = expedite_queue_of(ours);
	struct wait_queue_entry *entry = ours;
	int count = 0, examined = 0;

	lockdep_assert_held(&queue->lock);
	list_for_each_entry_continue(entry, &queue->head, entry) {
		enum expedite_way way;
		struct task_struct *task = NULL;

		if (entry->func == ours->func)
			continue;
		if (count == most || ++examined > EXPEDITE_MAX_ENTRIES)
			break;
		switch (entry->func == expedite_woken ? A_SLEEPER : known_holds(entry->func)) {
		case A_SLEEPER:
			way = EXPEDITE_BY_WAIT;
			task = entry->private;
			break;
		case A_THREAD:
			way = EXPEDITE_BY_READ;
			task = entry->private;
			break;
		case A_POLL:
			way = EXPEDITE_BY_POLL;
			task = task_in_poll(entry, key_to_poll(key));
			break;
		case AN_EPOLL:
			way = EXPEDITE_BY_EPOLL;
			task = task_in_epoll(entry);
			break;
		case A_URING:
			way = EXPEDITE_BY_URING;
			task = submitting_task(entry);
			break;
		default:
			*has_unrecognised = true;
			continue;
		}
		if (!task)
			continue;
		expedite_describe(task, &found[count]);
		found[count++].way = way;
		/* The kernel wakes one exclusive waiter, and none after it. */
		if (entry->flags & WQ_FLAG_EXCLUSIVE)
			break;
	}
	return count;
}
