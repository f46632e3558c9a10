// SPDX-License-Identifier: GPL-2.0
/*
 * Finds the threads that an arrival is about to wake, in the entries of the wait queue, before it wakes them.
 *
 * Only an entry's own callback knows which thread waits. Some callbacks are exported, or known by name. The contents of
 * their entries are public (poll, io_uring), a plain thread (read), or in this kernel's type data (epoll). The module
 * assumes nothing about any other entry.
 *
 * A thread is reported while a lock is held that it needs in order to leave its wait, if there is one. Such a thread cannot
 * wait for anything else meanwhile, for example for a lock with priority inheritance.
 */
#include <linux/kallsyms.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/sched/prio.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "compat.h"
#include "glue.h"
#include "layout.h"
#include "trace.h"

#if !defined(EPPOLL_ENTRY_BASE) || !defined(EPPOLL_ENTRY_WAIT) || !defined(EPITEM_EP) || !defined(EPITEM_EVENT) || \
	!defined(EVENTPOLL_WQ) || !defined(EVENTPOLL_POLL_WAIT) || !defined(EVENTPOLL_LOCK)
#error "the type data (BTF) of this kernel does not describe epoll: pahole, or vmlinux in the headers' folder, is missing"
#endif

/* Of fs/eventpoll.c: flags that are not events, and the depth of nested epolls. */
#define EPOLL_FLAGS (EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE)
#define EPOLL_MAX_NESTS 4

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
	{ "default_wake_function", A_THREAD },
	{ "receiver_wake_function", A_THREAD },
	{ "pollwake", A_POLL },
	{ "ep_poll_callback", AN_EPOLL },
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
	int i, count;

	/* The most frequent ones that are exported. */
	if (func == autoremove_wake_function || func == woken_wake_function)
		return A_THREAD;
	if (func == expedite_woken)
		return A_SLEEPER;
	count = min_t(int, atomic_read(&seen_count), ARRAY_SIZE(seen));

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

/* The thread that submitted the request waits for it, or its completion interrupts that thread. The lowest bits are tags. */
static struct task_struct *submitting_task(struct wait_queue_entry *entry)
{
	struct io_kiocb *request = (void *)((unsigned long)entry->private & ~3UL);

	return request ? expedite_submitter(request) : NULL;
}

/* The search for the threads of one arrival. */
struct search {
	struct wait_queue_entry *ours;
	int found, examined;
	bool has_unrecognised;
	/* Nothing has arrived: boosts nobody, and only notes where boosted threads sleep. */
	bool only_notes;
};

void expedite_obstacles(struct task_struct *task, struct expedite_obstacles *obstacles)
{
	bool is_switched_out = expedite_is_switched_out(task);

	*obstacles = (struct expedite_obstacles){
		/* Read afterwards: the sleep is counted when the thread is switched out. */
		.sleeps = READ_ONCE(task->nvcsw),
		.is_switched_out = is_switched_out,
		.is_asleep = READ_ONCE(task->__state) != TASK_RUNNING,
		.is_realtime = READ_ONCE(task->prio) < MAX_RT_PRIO,
		.is_ending = READ_ONCE(task->flags) & (PF_EXITING | PF_KTHREAD),
		.is_behind = expedite_is_behind(task),
		.is_locked = READ_ONCE(task->pi_blocked_on),
	};
}

static bool is_boostable(struct task_struct *task)
{
	return READ_ONCE(task->__state) != TASK_RUNNING && READ_ONCE(task->prio) >= MAX_RT_PRIO &&
	       !(READ_ONCE(task->flags) & (PF_EXITING | PF_KTHREAD));
}

/*
 * The task must be valid: by a reference, or because a spinlock is held, which delays RCU's grace period. Returns whether the
 * arrival wakes the thread: it is asleep.
 */
static __always_inline bool report(struct search *search, struct task_struct *task, enum expedite_way way,
				   bool is_pinned)
{
	struct expedite_waiter waiter;
	u32 result;

	if (!task)
		return false;
	if (unlikely(search->only_notes)) {
		search->found++;
		if (is_pinned)
			expedite_noted(task);
		return READ_ONCE(task->__state) != TASK_RUNNING;
	}
	waiter.task = task;
	waiter.cred = rcu_access_pointer(task->real_cred);
	waiter.way = way;
	waiter.cpu = task_cpu(task);
	waiter.is_boostable = is_boostable(task);
	waiter.is_pinned = is_pinned;
	search->found++;
	result = expedite_found(&waiter, search->ours);
	trace_expedite_arrival(task, way, result);
	return waiter.is_boostable || READ_ONCE(task->__state) != TASK_RUNNING;
}

static void search_queue(struct search *search, struct wait_queue_head *queue, struct wait_queue_entry *after,
			 __poll_t events, int depth);

static unsigned long lock_epoll(void *epoll)
{
	unsigned long flags;

#ifdef EVENTPOLL_LOCK_IS_RW
	/* Threads in epoll_wait take it for writing. */
	read_lock_irqsave((rwlock_t *)(epoll + EVENTPOLL_LOCK), flags);
#else
	spin_lock_irqsave((spinlock_t *)(epoll + EVENTPOLL_LOCK), flags);
#endif
	return flags;
}

static void unlock_epoll(void *epoll, unsigned long flags)
{
#ifdef EVENTPOLL_LOCK_IS_RW
	read_unlock_irqrestore((rwlock_t *)(epoll + EVENTPOLL_LOCK), flags);
#else
	spin_unlock_irqrestore((spinlock_t *)(epoll + EVENTPOLL_LOCK), flags);
#endif
}

/*
 * Does what ep_poll_callback does, under the same locks, except that it reports threads instead of waking them: the first
 * thread in epoll_wait, and what waits for the epoll itself. An item that is disabled or waits for other events wakes none.
 * Returns whether the thread in epoll_wait is woken.
 */
static bool search_epoll(struct search *search, struct wait_queue_entry *entry, __poll_t events, int depth)
{
	void *of = (void *)entry - EPPOLL_ENTRY_WAIT;
	void *item = *(void **)(of + EPPOLL_ENTRY_BASE);
	void *epoll = *(void **)(item + EPITEM_EP);
	const struct epoll_event *event = item + EPITEM_EVENT;
	struct wait_queue_head *threads = epoll + EVENTPOLL_WQ;
	struct wait_queue_head *pollers = epoll + EVENTPOLL_POLL_WAIT;
	unsigned long flags = lock_epoll(epoll);
	bool has_woken = false, wakes = event->events & ~EPOLL_FLAGS && (!events || events & event->events);

	if (wakes) {
		struct wait_queue_entry *first;

		first = list_first_entry_or_null(&threads->head, struct wait_queue_entry, entry);
		if (first)
			has_woken = report(search, first->private, EXPEDITE_BY_EPOLL, true);
		wakes = waitqueue_active(pollers);
	}
	unlock_epoll(epoll, flags);
	if (!wakes || depth == EPOLL_MAX_NESTS)
		return has_woken;
	spin_lock_irqsave_nested(&pollers->lock, flags, depth + 1);
	search_queue(search, pollers, NULL, EPOLLIN | events, depth + 1);
	spin_unlock_irqrestore(&pollers->lock, flags);
	return has_woken;
}

/* Searches the entries after @after, or all. The lock of the queue is held. */
static void search_queue(struct search *search, struct wait_queue_head *queue, struct wait_queue_entry *after,
			 __poll_t events, int depth)
{
	struct wait_queue_entry *entry = after ?: list_entry(&queue->head, struct wait_queue_entry, entry);

	lockdep_assert_held(&queue->lock);
	list_for_each_entry_continue(entry, &queue->head, entry) {
		bool wakes = false;

		if (search->found >= EXPEDITE_MAX_WAITERS || ++search->examined > EXPEDITE_MAX_ENTRIES)
			return;
		switch (known_holds(entry->func)) {
		case A_SLEEPER:
			wakes = report(search, entry->private, EXPEDITE_BY_WAIT, true);
			break;
		case A_THREAD:
			wakes = report(search, entry->private, EXPEDITE_BY_READ, true);
			break;
		case A_POLL:
			wakes = report(search, task_in_poll(entry, events), EXPEDITE_BY_POLL, true);
			break;
		case AN_EPOLL:
			wakes = search_epoll(search, entry, events, depth);
			break;
		case A_URING:
			wakes = report(search, submitting_task(entry), EXPEDITE_BY_URING, false);
			break;
		default:
			search->has_unrecognised = true;
			continue;
		}
		/* The kernel wakes one exclusive waiter, and none after it. */
		if (wakes && entry->flags & WQ_FLAG_EXCLUSIVE)
			return;
	}
}

/*
 * The callback of a hook, whose queue calls it under its lock before it wakes any thread. Calls expedite_found() with each thread
 * that this arrival wakes. If there is none, and a waiter whose thread is not recognised, calls it with the thread that the flag
 * names. A wake-up by another event ends a sleep, too: that of a thread in read() on a Unix socket ends when the peer has read
 * what the thread sent. Such threads are reported to expedite_noted().
 */
int expedite_arrived(struct wait_queue_entry *ours, unsigned int mode, int flags, void *key)
{
	struct search search = { .ours = ours };
	__poll_t events = key_to_poll(key);

	/* A wake-up without events may be for any event. */
	search.only_notes = events && !(events & EXPEDITE_ARRIVAL);
	if (events & EPOLLHUP)
		expedite_hung_up(ours);
	search_queue(&search, ours->private, ours, events, 0);
	if (!search.found && search.has_unrecognised && !search.only_notes)
		report(&search, expedite_named(ours), EXPEDITE_BY_NAME, false);
	return 0;
}
