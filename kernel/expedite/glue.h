/* SPDX-License-Identifier: GPL-2.0 */
/* Functions of the C files for the Rust ones: for macros, bit fields and structures that Rust cannot access. glue.rs repeats them. */
#ifndef EXPEDITE_GLUE_H
#define EXPEDITE_GLUE_H

#include <linux/types.h>
#include <uapi/linux/eventpoll.h>

struct eventfd_ctx;
struct file;
struct hrtimer;
struct irq_work;
struct kthread_work;
struct kthread_worker;
struct sched_attr;
struct task_struct;
struct wait_queue_entry;
struct wait_queue_head;

/* Maximum number of entries that are examined for one arrival, and of threads that are boosted for it. */
#define EXPEDITE_MAX_ENTRIES 16
#define EXPEDITE_MAX_WAITERS 4

/* Events that are an arrival. An event that only reports room to write is not. */
#define EXPEDITE_ARRIVAL (EPOLLIN | EPOLLPRI | EPOLLERR | EPOLLHUP | EPOLLRDNORM | EPOLLRDBAND | EPOLLRDHUP)

/* A flag was removed: wakes the threads in expedite_sleep(), by an event that the kernel does not use. */
#define EXPEDITE_ENDED EPOLLMSG

/* How a thread waits. */
enum expedite_way {
	EXPEDITE_BY_READ,
	EXPEDITE_BY_POLL,
	EXPEDITE_BY_EPOLL,
	EXPEDITE_BY_URING,
	EXPEDITE_BY_WAIT,
	EXPEDITE_BY_NAME,
};

/* A thread that an arrival is about to wake. */
struct expedite_waiter {
	struct task_struct *task;
	const void *cred;	/* only compared */
	u32 way;
	u32 cpu;
	bool is_boostable;	/* asleep, neither real-time nor ending */
	/* A lock is held without which it cannot leave its wait. So it waits for what has arrived, and for nothing else. */
	bool is_pinned;
};

/* Why a thread may not be boostable. */
struct expedite_obstacles {
	u64 sleeps;		/* how often it has gone to sleep */
	bool is_asleep;
	bool is_switched_out;	/* asleep, and in the last counted sleep */
	bool is_realtime;	/* or has inherited such a priority */
	bool is_ending;		/* or is a kernel thread */
	bool is_behind;		/* is to run after others, expedite_is_behind() */
	bool is_locked;		/* waits for a lock with priority inheritance */
};

/* The kind of object that keeps a wait queue in place while an entry of this module is in it. */
enum expedite_kind {
	EXPEDITE_SOCKET,
	EXPEDITE_EVENTFD,
	EXPEDITE_FILE,
};

struct expedite_hold {
	enum expedite_kind kind;
	void *object;
	struct wait_queue_head *queue;
};

/* Scheduling of a thread before its boost. */
struct expedite_saved {
	u32 policy;
	u32 reset_on_fork;
};

/* State of a thread at one time. */
struct expedite_thread {
	u64 runtime;		/* nanoseconds it has run */
	u64 waited;		/* nanoseconds it has been runnable and did not run */
	u64 arrival;		/* when it was last given a CPU, local_clock() */
	u64 arrivals;		/* how often it was given a CPU */
	u64 sleeps;		/* how often it has gone to sleep */
	u64 migrations;		/* how often it has changed its CPU */
	/* Its outermost group with a limit of CPU time, or NULL. Only compared: the group may be gone. */
	void *group;
	u32 cpu;
	u32 uid;
	bool is_asleep;
	bool is_switched_out;
	bool is_on_cpu;
	bool is_realtime;
	bool is_ending;
	bool is_behind;		/* its group is to run after others, or it is itself */
	bool is_locked;
};

int expedite_arrived(struct wait_queue_entry *ours, unsigned int mode, int flags, void *key);
void expedite_obstacles(struct task_struct *task, struct expedite_obstacles *obstacles);

u32 expedite_payer(struct task_struct *task);
bool expedite_is_behind(struct task_struct *task);
bool expedite_is_switched_out(struct task_struct *task);
bool expedite_finds_idle_cpu(struct task_struct *task);
void expedite_groups(struct task_struct *task, struct expedite_thread *thread);

int expedite_woken(struct wait_queue_entry *entry, unsigned int mode, int flags, void *key);
int expedite_sleep(struct file *file, struct wait_queue_head *queue, const bool *ended, u64 ns);
void expedite_wake_sleepers(struct wait_queue_head *queue);

bool expedite_identify(struct file *file, struct expedite_hold *hold);
int expedite_hold(struct file *file, struct expedite_hold *hold);
void expedite_release(struct expedite_hold *hold);
bool expedite_is_closed(const struct expedite_hold *hold);
unsigned long expedite_queue_lock(struct wait_queue_head *queue);
void expedite_queue_unlock(struct wait_queue_head *queue, unsigned long flags);
void expedite_queue_add(struct wait_queue_head *queue, struct wait_queue_entry *entry);
void expedite_queue_remove(struct wait_queue_head *queue, struct wait_queue_entry *entry);

void expedite_snapshot(struct task_struct *task, struct expedite_thread *thread);
extern const struct sched_attr expedite_boost;

int expedite_raise(struct task_struct *task, struct expedite_saved *saved);
int expedite_lower(struct task_struct *task, const struct expedite_saved *saved);
bool expedite_is_boost(const struct task_struct *task);
void expedite_class(struct task_struct *task, struct expedite_saved *saved);
bool expedite_in_interrupt(void);
u64 expedite_clock(void);
void expedite_trace_drop(struct task_struct *task, u64 ran, u64 slept, bool replaced);
void expedite_put_task(struct task_struct *task);
void expedite_get_task(struct task_struct *task);
struct task_struct *expedite_find_task(pid_t tid);
bool expedite_may_name(struct task_struct *task);
u32 expedite_caller(void);
unsigned long expedite_lock(void);
void expedite_unlock(unsigned long flags);
u32 expedite_cpus(void);
void expedite_thread_init(struct hrtimer *timer, struct irq_work *afterwards);
void expedite_do_afterwards(struct irq_work *afterwards);
void expedite_start(struct hrtimer *timer, u64 ns);
int expedite_workers_start(void);
void expedite_workers_stop(void);
void expedite_queue(struct kthread_work *work, u32 cpu);
int expedite_children_watch(void);
void expedite_children_leave(void);
void expedite_reap_in(unsigned int ms);
void expedite_cancel_reap(void);
bool expedite_module_get(void);
void expedite_module_put(void);
void expedite_wait_for_stragglers(void);

struct wait_queue_head *expedite_trial_queue(void);
bool expedite_trial_is_possible(void);
bool expedite_trial_wait(unsigned int ms);
bool expedite_trial_is_lowered(void);

/* Implemented in Rust. */
u32 expedite_found(const struct expedite_waiter *waiter, struct wait_queue_entry *ours);
void expedite_noted(struct task_struct *task);
bool expedite_own_class(struct task_struct *task, struct expedite_saved *own);
struct task_struct *expedite_named(struct wait_queue_entry *ours);
void expedite_hung_up(struct wait_queue_entry *ours);
u32 expedite_timer(struct hrtimer *timer);
void expedite_work(struct kthread_work *work);
void expedite_afterwards(struct irq_work *afterwards);
unsigned int expedite_reap(void);

#endif
