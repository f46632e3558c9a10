// SPDX-License-Identifier: GPL-2.0
/*
 * A scheduler for all ordinary threads (sched_ext). A flagged thread that is woken preempts the others for a slice, within budgets.
 * All others run in the order of their virtual deadlines. README.md describes the behaviour.
 *
 * Invariants:
 * 1. A thread's `struct thread_state` is changed with the lock of its run queue held, or before it first runs. The kernel calls the
 *    operations in this way.
 * 2. `granted` is the part of a reservation that is neither charged nor returned. It is 0 if the thread is not boosted, and the
 *    accounts of `payer` and `boosted_on` hold it otherwise.
 * 3. The fields of a `struct cpu_state`, except `is_armed` and `has_boosted`, are changed by its own CPU or by its timer. Other CPUs read
 *    them as hints.
 * 4. A thread in a queue has its virtual time on the clock of that queue's CPU.
 * 5. After an entry of `predictions` was removed, and then the weight of its process, no sample sets the weight of that entry.
 */
#define BPF_NO_KFUNC_PROTOTYPES
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "../queues/sockets.h"
#include "pronto_scx.h"

char scheduler_license[] SEC("license") = "GPL";

/* Slice of an ordinary thread. The kernel checks it at its tick only. */
#define SLICE_NS 3000000ULL
/* Time for which no ordinary thread preempts another that began to run. */
#define PROTECTION_NS 1000000ULL
/* Virtual time by which a thread that slept may be ahead of the others, and one with a small weight behind them. */
#define AHEAD_NS SLICE_NS
#define BEHIND_NS 100000000ULL
/* Weight of a thread with nice value 0. */
#define WEIGHT 100
/* The kernel replaces a scheduler that lets a runnable thread wait for longer. */
#define TIMEOUT_MS 10000

/* Constants of the kernel that its type data does not contain. */
#define FLAG_KTHREAD 0x00200000
#define POLICY_IDLE 5
#define PRIORITY_OF_NICE_0 120
#define TIMER_ON_THIS_CPU (1ULL << 1)
#define CLOCK_MONOTONIC 1
#define MAX_GROUPS 16

/* Limit of the processes whose weights follow their queues, and of descriptors and sockets with data that a sample looks at. */
#define PREDICTIONS 1024
#define FILES 4096
#define FILLED 256
/* Sockets with data that a sample recognises if the process has several descriptors of them. */
#define REMEMBERED 16
/* Time after which samples pause, and the length of a pause in times of the samples before: they take a twentieth of a CPU at most. */
#define TURN_NS 2000000ULL
#define PAUSE 19

/* Queues: the number of a CPU, for ordinary threads, or with this bit, for boosted ones that wait for another boosted thread. */
#define BOOSTED (1ULL << 32)

s32 scx_bpf_create_dsq(u64 dsq, s32 node) __ksym;
s32 scx_bpf_dsq_nr_queued(u64 dsq) __ksym;
s32 scx_bpf_select_cpu_dfl(struct task_struct *p, s32 prev_cpu, u64 wake_flags, bool *is_idle) __ksym;
s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, u64 flags) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu) __ksym;
s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
u64 scx_bpf_now(void) __ksym __weak;
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq, u64 slice, u64 flags) __ksym __weak;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags) __ksym __weak;
bool scx_bpf_dsq_move_to_local(u64 dsq) __ksym __weak;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 flags) __ksym __weak;
/* The names of these four in Linux 6.12. */
void scx_bpf_dispatch(struct task_struct *p, u64 dsq, u64 slice, u64 flags) __ksym __weak;
void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags) __ksym __weak;
bool scx_bpf_consume(u64 dsq) __ksym __weak;
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 flags) __ksym __weak;
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) __ksym __weak;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq, u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

const volatile struct parameters parameters SEC(".rodata.parameters") = { .version = PRONTO_SCX_VERSION };
struct report report SEC(".data.report") = {};

/* State of every thread under this scheduler. */
struct thread_state {
	struct budget budget;
	u64 vruntime;
	u64 deadline;
	/* Time up to which its running time is charged. */
	u64 since;
	/* Time at which it began its slice. */
	u64 begun;
	u64 granted;
	u32 payer;
	s32 boosted_on;
	/* CPU on whose clock its virtual time is; -1 before it was first queued. */
	s32 queue;
	u32 is_queued;
	/* It was preempted by a higher class, and goes on with the rest of its slice. */
	u32 is_interrupted;
};

struct cpu_state {
	struct bpf_timer timer;
	/* Virtual time: the latest at which a thread began to run. */
	u64 clock;
	/* Of the thread that runs, or that goes on after threads of a higher class: begin of its slice, deadline, and end of its boost. */
	u64 begun;
	u64 deadline;
	u64 until;
	/* Time at which the boost of the thread that runs ended while no other thread waited; 0 if it did not. */
	u64 ended;
	u32 is_running;
	u32 is_boosted;
	/* The timer runs for a woken thread that waits until the one that runs may be preempted. */
	u32 is_armed;
	/* A boosted thread may wait in the queue for them. Changed with the lock of the run queue held. */
	u32 has_boosted;
	/* The CPU whose queue was last compared with this one. */
	u32 compared;
};

/* Boosted time of a user on a CPU, or of all users on it. */
struct account {
	struct bpf_spin_lock lock;
	struct budget budget;
	/* Time that boosted threads may still run. */
	u64 reserved;
};

struct account_key {
	u32 user;
	s32 cpu;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread_state);
} threads SEC(".maps");

/* Written by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct flag);
} flags SEC(".maps");

/* For the main threads of processes. Written by the loader, or for processes with an entry in `predictions`. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct weight);
} weights SEC(".maps");

/* The loader sets the sizes of the next three. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct account);
} cpu_accounts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct account_key);
	__type(value, struct account);
} user_accounts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PREDICTIONS);
	__type(key, u32);
	__type(value, struct prediction);
} predictions SEC(".maps");

/* The timer of the samples, which runs while there are predictions. */
struct sampler {
	struct bpf_timer timer;
	/* After a pause: only samples that were due at this time are taken, so that all processes have their turn. */
	u64 until;
	/* Number of requests. */
	u32 asked;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sampler);
} samplers SEC(".maps");

#define count(name) __sync_fetch_and_add(&report.counters.name, 1)

/* Copies terms out of the parameters, which are volatile. */
#define terms_of(holder) \
	(struct terms) { parameters.holder.epoch, parameters.holder.grant, parameters.holder.floor }

static bool before(u64 one, u64 other)
{
	return (s64)(one - other) < 0;
}

static u64 now_ns(void)
{
	return bpf_ksym_exists(scx_bpf_now) ? scx_bpf_now() : bpf_ktime_get_ns();
}

static void insert(struct task_struct *p, u64 queue, u64 slice, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, queue, slice, flags);
	else
		scx_bpf_dispatch(p, queue, slice, flags);
}

static void insert_in_order(struct task_struct *p, u64 queue, u64 slice, u64 deadline, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime))
		scx_bpf_dsq_insert_vtime(p, queue, slice, deadline, flags);
	else
		scx_bpf_dispatch_vtime(p, queue, slice, deadline, flags);
}

/* Takes the first thread of a queue that may run on this CPU. */
static bool take(u64 queue)
{
	return bpf_ksym_exists(scx_bpf_dsq_move_to_local) ? scx_bpf_dsq_move_to_local(queue) : scx_bpf_consume(queue);
}

/* Moves a thread from the queue of an iterator. */
static bool move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 queue, u64 flags)
{
	return bpf_ksym_exists(scx_bpf_dsq_move) ? scx_bpf_dsq_move(it, p, queue, flags) :
						   scx_bpf_dispatch_from_dsq(it, p, queue, flags);
}

static struct thread_state *thread_of(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, 0, 0);
}

static struct cpu_state *cpu_of(u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* Weights are those of nice values, multiplied by that of the process, if it has one. */
static u64 weight_of(struct task_struct *p)
{
	struct task_struct *leader = p->group_leader;
	struct weight *weight = leader ? bpf_task_storage_get(&weights, leader, 0, 0) : NULL;
	u64 hundredths = weight ? weight->hundredths : WEIGHT_LEAST;

	/* The others keep their part, whatever the loader has written. */
	if (hundredths < WEIGHT_LEAST)
		hundredths = WEIGHT_LEAST;
	if (hundredths > WEIGHT_MOST)
		hundredths = WEIGHT_MOST;
	return (p->scx.weight ?: 1) * hundredths;
}

static u64 virtual_time(struct task_struct *p, u64 span)
{
	return span * WEIGHT * WEIGHT_LEAST / weight_of(p);
}

static void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

/* Returns the account of a user on a CPU, and opens it if necessary. */
static struct account *user_account(u32 user, s32 cpu, u64 now)
{
	struct account_key key = { .user = user, .cpu = cpu };
	struct account fresh = {}, *account = bpf_map_lookup_elem(&user_accounts, &key);
	struct terms terms = terms_of(user);

	if (account)
		return account;
	budget_begin(&fresh.budget, &terms, now);
	/* Fails if another CPU was faster, or the map is full. */
	bpf_map_update_elem(&user_accounts, &key, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&user_accounts, &key);
}

static bool reserve(struct account *account, struct terms terms, u64 slice, u64 now)
{
	u64 free;

	bpf_spin_lock(&account->lock);
	budget_refill(&account->budget, &terms, now);
	free = budget_allowance(&account->budget, &terms, account->reserved);
	if (free >= slice)
		account->reserved += slice;
	bpf_spin_unlock(&account->lock);
	return free >= slice;
}

static void settle(struct account *account, u64 spent, u64 returned)
{
	bpf_spin_lock(&account->lock);
	budget_charge(&account->budget, spent);
	account->reserved = budget_difference(account->reserved, returned);
	bpf_spin_unlock(&account->lock);
}

/* Charges boosted time, and returns a part of the reservation. */
static void pay(struct thread_state *thread, u64 spent, u64 returned)
{
	struct account_key key = { .user = thread->payer, .cpu = thread->boosted_on };
	u32 cpu = thread->boosted_on;
	struct account *account;

	budget_charge(&thread->budget, spent);
	thread->granted = budget_difference(thread->granted, returned);
	account = bpf_map_lookup_elem(&user_accounts, &key);
	if (account)
		settle(account, spent, returned);
	account = bpf_map_lookup_elem(&cpu_accounts, &cpu);
	if (account)
		settle(account, spent, returned);
	if (spent)
		__sync_fetch_and_add(&report.counters.boosted_ns, spent);
}

static void end_boost(struct thread_state *thread)
{
	if (thread->granted)
		pay(thread, 0, thread->granted);
}

/* Accounts for the time that a thread ran on a CPU since the last call. */
static void account_for(struct task_struct *p, struct thread_state *thread, struct cpu_state *cpu, u64 now)
{
	u64 ran = budget_difference(now, thread->since);
	u64 boosted = ran;

	if (cpu->ended)
		boosted = budget_difference(cpu->ended, thread->since);
	thread->since = now;
	thread->vruntime += virtual_time(p, ran);
	if (!before(thread->vruntime, thread->deadline))
		thread->deadline = thread->vruntime + virtual_time(p, SLICE_NS);
	if (thread->granted)
		pay(thread, boosted, boosted < thread->granted ? boosted : thread->granted);
}

/* Moves a thread's virtual time to the clock of a CPU. */
static void translate(struct thread_state *thread, struct cpu_state *cpu, s32 number)
{
	struct cpu_state *other;
	u64 offset;

	if (thread->queue == number)
		return;
	other = thread->queue < 0 ? NULL : cpu_of(thread->queue);
	offset = cpu->clock - (other ? other->clock : 0);
	thread->vruntime += offset;
	thread->deadline += offset;
	thread->queue = number;
}

/* Limits the virtual time by which a thread is ahead of the others on its CPU, or behind them. */
static void place(struct task_struct *p, struct thread_state *thread, struct cpu_state *cpu, s32 number)
{
	u64 earliest, latest;

	translate(thread, cpu, number);
	earliest = cpu->clock - AHEAD_NS;
	latest = cpu->clock + BEHIND_NS;
	if (before(thread->vruntime, earliest)) {
		thread->vruntime = earliest;
		thread->deadline = earliest + virtual_time(p, SLICE_NS);
	}
	if (before(latest, thread->vruntime))
		thread->vruntime = latest;
	if (before(latest, thread->deadline))
		thread->deadline = latest;
}

/* Returns whether a thread is to run after others: by its nice value, its class, or a group with cpu.idle. */
static bool is_behind(struct task_struct *p)
{
	struct task_group *group;
	u32 level;

	if (p->static_prio > PRIORITY_OF_NICE_0 || p->policy == POLICY_IDLE)
		return true;
	if (!bpf_core_field_exists(struct task_group, idle))
		return false;
	group = BPF_CORE_READ(p, sched_task_group);
	for (level = 0; level < MAX_GROUPS && group; level++) {
		if (BPF_CORE_READ(group, idle))
			return true;
		group = BPF_CORE_READ(group, parent);
	}
	return false;
}

/* Boosts a woken thread if its budgets permit it. Returns false if it is to be queued like any other. */
static bool boost(struct task_struct *p, struct thread_state *thread, const struct flag *flag, struct cpu_state *cpu, u32 number,
		  u64 enq_flags, u64 now)
{
	struct terms own = terms_of(thread);
	u64 slice = parameters.slice;
	struct account *user, *all;

	if (is_behind(p)) {
		count(behind);
		return false;
	}
	/* The reservation of a boost that did not end properly. */
	end_boost(thread);
	budget_refill(&thread->budget, &own, now);
	if (budget_allowance(&thread->budget, &own, 0) < slice) {
		count(denied_thread);
		return false;
	}
	user = user_account(flag->payer, number, now);
	all = bpf_map_lookup_elem(&cpu_accounts, &number);
	if (!user || !all) {
		count(denied_memory);
		return false;
	}
	if (!reserve(user, terms_of(user), slice, now)) {
		count(denied_user);
		return false;
	}
	if (!reserve(all, terms_of(cpu), slice, now)) {
		settle(user, 0, slice);
		count(denied_cpu);
		return false;
	}
	thread->granted = slice;
	thread->payer = flag->payer;
	thread->boosted_on = number;
	count(boosts);
	if (cpu->is_boosted) {
		cpu->has_boosted = true;
		insert(p, BOOSTED | number, slice, enq_flags);
	} else {
		insert(p, SCX_DSQ_LOCAL, slice, enq_flags | SCX_ENQ_PREEMPT);
	}
	return true;
}

/*
 * Returns whether a woken ordinary thread may preempt the one that runs on a CPU. If it may later, the timer preempts then. One timer
 * is enough for all threads that wait for it.
 */
static bool may_preempt(const struct thread_state *thread, struct cpu_state *cpu, u64 now)
{
	u64 ends = cpu->begun + PROTECTION_NS;

	if (!cpu->is_running)
		return false;
	if (cpu->is_boosted)
		return !before(now, cpu->until);
	if (!before(thread->deadline, cpu->deadline))
		return false;
	if (!before(now, ends))
		return true;
	if (!cpu->is_armed) {
		cpu->is_armed = true;
		bpf_timer_start(&cpu->timer, ends - now, 0);
	}
	return false;
}

SEC("struct_ops/pronto_select_cpu")
s32 BPF_PROG(pronto_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle) {
		if (bpf_task_storage_get(&flags, p, 0, 0))
			count(idle);
		insert(p, SCX_DSQ_LOCAL, SLICE_NS, 0);
	}
	return cpu;
}

SEC("struct_ops/pronto_enqueue")
void BPF_PROG(pronto_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 number = scx_bpf_task_cpu(p);
	struct thread_state *thread = thread_of(p);
	struct cpu_state *cpu = cpu_of(number);
	bool is_woken = enq_flags & SCX_ENQ_WAKEUP;
	const struct flag *flag;
	u64 now;
	s32 idle;

	/* The kernel's own threads of one CPU do short work that others wait for. */
	if (!thread || !cpu || ((p->flags & FLAG_KTHREAD) && p->nr_cpus_allowed == 1)) {
		insert(p, SCX_DSQ_LOCAL, SLICE_NS, enq_flags);
		return;
	}
	now = now_ns();
	flag = is_woken ? bpf_task_storage_get(&flags, p, 0, 0) : NULL;
	idle = scx_bpf_test_and_clear_cpu_idle(number) ? number : scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (idle >= 0) {
		if (flag)
			count(idle);
		insert(p, SCX_DSQ_LOCAL_ON | idle, SLICE_NS, enq_flags);
		return;
	}
	place(p, thread, cpu, number);
	thread->is_queued = true;
	if (flag && boost(p, thread, flag, cpu, number, enq_flags, now))
		return;
	if (is_woken && may_preempt(thread, cpu, now))
		insert(p, SCX_DSQ_LOCAL, SLICE_NS, enq_flags | SCX_ENQ_PREEMPT);
	else
		insert_in_order(p, number, SLICE_NS, thread->deadline, enq_flags);
}

/* Returns whether a deadline is earlier than those of all threads in a queue. */
static bool precedes(u64 deadline, u64 queue)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *head;
	bool precedes = true;

	bpf_iter_scx_dsq_new(&it, queue, 0);
	head = bpf_iter_scx_dsq_next(&it);
	if (head)
		precedes = before(deadline, head->scx.dsq_vtime);
	bpf_iter_scx_dsq_destroy(&it);
	return precedes;
}

/* Takes a thread from the queues of another CPU. */
static bool take_from_others(u32 number)
{
	u32 i;

	bpf_for(i, 1, parameters.cpus) {
		u32 other = number + i;

		if (other >= parameters.cpus)
			other -= parameters.cpus;
		if (take(BOOSTED | other) || take(other))
			return true;
	}
	return false;
}

/* Compares the queue with that of one other CPU, another one each time, and takes a thread if that queue is longer by two. */
static bool balance(struct cpu_state *cpu, u32 number, s32 queued)
{
	u32 other = cpu->compared + 1;

	if (other >= parameters.cpus)
		other = 0;
	cpu->compared = other;
	return other != number && scx_bpf_dsq_nr_queued(other) >= queued + 2 && take(other);
}

SEC("struct_ops/pronto_dispatch")
void BPF_PROG(pronto_dispatch, s32 number, struct task_struct *prev)
{
	struct cpu_state *cpu = cpu_of(number);
	struct thread_state *thread = NULL;
	s32 queued;

	if (!cpu)
		return;
	if (prev && (prev->scx.flags & SCX_TASK_QUEUED)) {
		thread = thread_of(prev);
		if (thread) {
			account_for(prev, thread, cpu, now_ns());
			end_boost(thread);
			cpu->is_boosted = false;
			cpu->ended = 0;
			cpu->deadline = thread->deadline;
		}
	}
	if (cpu->has_boosted) {
		if (take(BOOSTED | number))
			return;
		cpu->has_boosted = false;
	}
	if (!thread) {
		/* The usual case, as short as possible: the last thread sleeps. */
		if (!take(number))
			take_from_others(number);
		return;
	}
	queued = scx_bpf_dsq_nr_queued(number);
	if (queued > 0) {
		if (balance(cpu, number, queued) || (!precedes(thread->deadline, number) && take(number)))
			return;
	} else if (take_from_others(number)) {
		return;
	}
	/* It runs on. */
	if (before(cpu->clock, thread->vruntime))
		cpu->clock = thread->vruntime;
	thread->begun = thread->since;
	cpu->begun = thread->begun;
	if (prev)
		set_slice(prev, SLICE_NS);
}

SEC("struct_ops/pronto_running")
void BPF_PROG(pronto_running, struct task_struct *p)
{
	s32 number = bpf_get_smp_processor_id();
	struct thread_state *thread = thread_of(p);
	struct cpu_state *cpu = cpu_of(number);

	if (!thread || !cpu)
		return;
	if (thread->is_queued)
		translate(thread, cpu, number);
	else
		place(p, thread, cpu, number);
	thread->is_queued = false;
	thread->since = now_ns();
	if (before(cpu->clock, thread->vruntime))
		cpu->clock = thread->vruntime;
	if (!thread->is_interrupted)
		thread->begun = thread->since;
	thread->is_interrupted = false;
	cpu->begun = thread->begun;
	cpu->deadline = thread->deadline;
	cpu->ended = 0;
	cpu->is_running = true;
	cpu->is_boosted = thread->granted > 0;
	if (cpu->is_boosted) {
		u64 left = p->scx.slice;

		cpu->until = thread->since + left;
		bpf_timer_start(&cpu->timer, left, TIMER_ON_THIS_CPU);
	}
}

SEC("struct_ops/pronto_stopping")
void BPF_PROG(pronto_stopping, struct task_struct *p, bool is_runnable)
{
	struct thread_state *thread = thread_of(p);
	struct cpu_state *cpu = cpu_of(bpf_get_smp_processor_id());

	if (!thread || !cpu)
		return;
	account_for(p, thread, cpu, now_ns());
	/* The kernel lets a thread with a rest of its slice go on before all others. */
	thread->is_interrupted = is_runnable && p->scx.slice && !cpu->ended;
	if (!thread->is_interrupted)
		end_boost(thread);
	/* A woken thread may go before it all the same. */
	cpu->is_running = thread->is_interrupted;
	cpu->is_boosted = false;
	cpu->ended = 0;
}

SEC("struct_ops/pronto_quiescent")
void BPF_PROG(pronto_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct thread_state *thread;

	/* A thread that goes to sleep runs, and has stopped. */
	if (deq_flags & SCX_DEQ_SLEEP)
		return;
	thread = thread_of(p);
	if (!thread)
		return;
	thread->is_queued = false;
	thread->is_interrupted = false;
	end_boost(thread);
}

/* Lets the first thread of a queue preempt the one that runs on a CPU. Returns false if the queue is empty. */
static bool preempt_from(u64 queue, u32 number)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *head;
	bool is_moved = false;

	bpf_iter_scx_dsq_new(&it, queue, 0);
	head = bpf_iter_scx_dsq_next(&it);
	if (head)
		is_moved = move(&it, head, SCX_DSQ_LOCAL_ON | number, SCX_ENQ_PREEMPT);
	bpf_iter_scx_dsq_destroy(&it);
	return is_moved;
}

/*
 * The end of a boost. The next thread in order preempts the boosted one. If there is none, the boosted one goes on as an ordinary
 * thread.
 */
static void end_of_slice(struct cpu_state *cpu, u32 number, u64 now)
{
	if (before(now, cpu->until)) {
		bpf_timer_start(&cpu->timer, cpu->until - now, TIMER_ON_THIS_CPU);
		return;
	}
	if (preempt_from(BOOSTED | number, number) || preempt_from(number, number)) {
		count(preempted);
	} else {
		cpu->ended = now;
		cpu->is_boosted = false;
	}
}

/* The end of the time for which the thread that runs is protected, if it still precedes none of those that wait. */
static void end_of_protection(struct cpu_state *cpu, u32 number, u64 now)
{
	u64 ends = cpu->begun + PROTECTION_NS;

	if (!cpu->is_running || precedes(cpu->deadline, number))
		return;
	if (before(now, ends)) {
		/* Another thread has begun meanwhile. */
		cpu->is_armed = true;
		bpf_timer_start(&cpu->timer, ends - now, 0);
	} else {
		preempt_from(number, number);
	}
}

static int handle_timer(void *map, int *key, struct cpu_state *cpu)
{
	u64 now = now_ns();

	cpu->is_armed = false;
	bpf_rcu_read_lock();
	if (cpu->is_boosted)
		end_of_slice(cpu, *key, now);
	else
		end_of_protection(cpu, *key, now);
	bpf_rcu_read_unlock();
	return 0;
}

/* A walk through the open files of a process, and what its sockets contain. */
struct walk {
	u64 files;
	u64 received;
	u64 sent;
	u32 sockets;
	u32 filled;
	u64 remembered[REMEMBERED];
};

static bool is_remembered(const struct walk *walk, u64 socket)
{
	for (int at = 0; at < REMEMBERED; at++)
		if (walk->remembered[at] == socket)
			return true;
	return false;
}

/* Adds the socket of an open file, if it has one. The verifier checks a function that is not static by itself, and so only once. */
__noinline int add_file(struct walk *walk, u64 file)
{
	struct occupancy queues = {};
	const struct sock *sk;

	if (!walk || !file)
		return 0;
	sk = socket_of(bpf_core_cast((void *)file, struct file));
	if (!sk || !read_queues(sk, &queues))
		return 0;
	walk->sockets++;
	if (!is_filled(&queues) || is_remembered(walk, (u64)sk))
		return 0;
	walk->remembered[walk->filled++ % REMEMBERED] = (u64)sk;
	walk->received = level_plus(walk->received, level_of(queues.received_bytes, queues.received_messages));
	walk->sent = level_plus(walk->sent, level_of(queues.sent_bytes, queues.sent_messages));
	return 0;
}

static long look(u32 chunk, struct walk *walk)
{
	u64 files[CHUNK] = {};

	bpf_probe_read_kernel(files, sizeof(files), (void *)(walk->files + chunk * sizeof(files)));
	for (int at = 0; at < CHUNK; at++)
		add_file(walk, files[at]);
	return walk->filled >= FILLED;
}

/* Reads the queues of a process. Its table of files is read without references, as kernel/queues does. */
static void walk_files(struct task_struct *leader, struct walk *walk)
{
	const struct files_struct *files = leader->files;
	u32 most;

	if (!files)
		return;
	walk->files = (u64)files->fdt->fd;
	most = files->fdt->max_fds;
	if (most > FILES)
		most = FILES;
	bpf_loop((most + CHUNK - 1) / CHUNK, look, walk, 0);
}

/* Gives a process the weight that was predicted, unless it has it: a main thread that executes another program is a new one. */
static void weigh(struct task_struct *leader, u32 pid, u32 hundredths, u64 begun)
{
	struct weight *weight = bpf_task_storage_get(&weights, leader, 0, 0);
	struct prediction *now;

	if (hundredths == WEIGHT_LEAST) {
		if (weight)
			bpf_task_storage_delete(&weights, leader);
		return;
	}
	if (!weight)
		weight = bpf_task_storage_get(&weights, leader, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	/* Without memory, the next sample tries it again. */
	if (!weight)
		return;
	weight->hundredths = hundredths;
	/* Invariant 5. */
	now = bpf_map_lookup_elem(&predictions, &pid);
	if ((!now || now->report.begun_ns != begun) && weight->hundredths == hundredths)
		bpf_task_storage_delete(&weights, leader);
}

static void sample(struct task_struct *leader, u32 pid, struct prediction *prediction)
{
	u64 begun = bpf_ktime_get_ns(), entry = prediction->report.begun_ns, took;
	struct predictor next = prediction->predictor;
	struct walk walk = {};

	walk_files(leader, &walk);
	predictor_advance(&next, level_plus(walk.received, prediction->terms.counts_sent ? walk.sent : 0), prediction->terms.past);
	predictor_weigh(&next, prediction->terms.most);
	/* The loader may have replaced the entry meanwhile. */
	if (prediction->report.begun_ns != entry)
		return;
	weigh(leader, pid, next.weight, entry);
	if (next.weight != prediction->predictor.weight) {
		prediction->report.changes++;
		prediction->report.changed_ns = bpf_ktime_get_ns();
	}
	prediction->predictor = next;
	prediction->report.level = next.level;
	prediction->report.weight = next.weight;
	prediction->report.sockets = walk.sockets;
	prediction->report.samples++;
	prediction->report.with_received += walk.received > 0;
	prediction->report.with_sent += walk.sent > 0;
	took = bpf_ktime_get_ns() - begun;
	prediction->report.worked_ns += took;
	if (took > prediction->report.longest_ns)
		prediction->report.longest_ns = took;
}

/* The samples that are due now, and the time of the next one. */
struct turn {
	u64 begun;
	/* Samples that are due later are not taken. */
	u64 until;
	u64 next;
	/* There is a next one. The verifier follows a count through all its values. */
	bool has_next;
	/* The time is over, and other samples are left. */
	bool is_cut;
};

static long take_turn(void *map, u32 *pid, struct prediction *prediction, struct turn *turn)
{
	struct task_struct *leader;
	u64 now;

	if (!before(turn->until, prediction->due)) {
		leader = bpf_task_from_pid(*pid);
		if (!leader) {
			bpf_map_delete_elem(map, pid);
			return 0;
		}
		if (leader->start_boottime != prediction->started) {
			bpf_task_release(leader);
			bpf_map_delete_elem(map, pid);
			return 0;
		}
		sample(leader, *pid, prediction);
		bpf_task_release(leader);
		now = bpf_ktime_get_ns();
		prediction->due += prediction->terms.period;
		/* A late sample does not make the next ones follow without a pause. */
		if (before(prediction->due, now))
			prediction->due = now + prediction->terms.period;
		if (now - turn->begun > TURN_NS) {
			turn->is_cut = true;
			return 1;
		}
	}
	if (!turn->has_next || before(prediction->due, turn->next))
		turn->next = prediction->due;
	turn->has_next = true;
	return 0;
}

static int handle_sampler(void *map, int *key, struct sampler *sampler)
{
	u64 begun = bpf_ktime_get_ns(), now, earliest;
	struct turn turn = { .begun = begun, .until = sampler->until ? sampler->until : begun };
	u32 asked = sampler->asked;

	bpf_for_each_map_elem(&predictions, take_turn, &turn, 0);
	sampler->until = turn.is_cut ? turn.until : 0;
	now = bpf_ktime_get_ns();
	earliest = now + PAUSE * (now - begun);
	if (turn.is_cut || (turn.has_next && before(turn.next, earliest)))
		turn.next = earliest;
	if (turn.is_cut || turn.has_next)
		bpf_timer_start(&sampler->timer, turn.next - now, 0);
	/* A process that was added meanwhile may have been missed. */
	if (sampler->asked != asked)
		bpf_timer_start(&sampler->timer, 0, 0);
	return 0;
}

/* Lets the weight of a process follow its queues. The loader runs it. Returns an error number of the kernel, negative. */
SEC("syscall")
int pronto_predict(struct terms_of_prediction *terms)
{
	struct prediction fresh = { .terms = *terms, .predictor = PREDICTOR_NEW };
	struct sampler *sampler;
	struct task_struct *leader;
	u32 key = 0;
	long error;

	sampler = bpf_map_lookup_elem(&samplers, &key);
	if (!sampler)
		return -22; /* EINVAL */
	leader = bpf_task_from_pid(fresh.terms.pid);
	if (!leader)
		return -3; /* ESRCH */
	fresh.started = leader->start_boottime;
	error = leader->pid == leader->tgid ? 0 : -22; /* EINVAL */
	bpf_task_release(leader);
	if (error)
		return error;
	fresh.report.weight = WEIGHT_LEAST;
	fresh.report.begun_ns = bpf_ktime_get_ns();
	fresh.due = fresh.report.begun_ns;
	error = bpf_map_update_elem(&predictions, &fresh.terms.pid, &fresh, BPF_ANY);
	if (error)
		return error;
	__sync_fetch_and_add(&sampler->asked, 1);
	error = bpf_timer_start(&sampler->timer, 0, 0);
	if (error)
		bpf_map_delete_elem(&predictions, &fresh.terms.pid);
	return error;
}

SEC("struct_ops.s/pronto_init_task")
s32 BPF_PROG(pronto_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct thread_state *thread = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct terms terms = terms_of(thread);

	if (!thread)
		return -12; /* ENOMEM */
	budget_begin(&thread->budget, &terms, now_ns());
	thread->queue = -1;
	return 0;
}

SEC("struct_ops.s/pronto_init")
s32 BPF_PROG(pronto_init)
{
	struct terms terms = terms_of(cpu);
	u64 now = now_ns();
	u32 i, first = 0;
	struct sampler *sampler = bpf_map_lookup_elem(&samplers, &first);

	if (!sampler || bpf_timer_init(&sampler->timer, &samplers, CLOCK_MONOTONIC) ||
	    bpf_timer_set_callback(&sampler->timer, handle_sampler))
		return -22; /* EINVAL */
	bpf_for(i, 0, parameters.cpus) {
		struct cpu_state *cpu = cpu_of(i);
		u32 key = i;
		struct account *account = bpf_map_lookup_elem(&cpu_accounts, &key);
		s32 error;

		if (!cpu || !account)
			return -22; /* EINVAL */
		budget_begin(&account->budget, &terms, now);
		error = bpf_timer_init(&cpu->timer, &cpus, CLOCK_MONOTONIC);
		if (!error)
			error = bpf_timer_set_callback(&cpu->timer, handle_timer);
		if (!error)
			error = scx_bpf_create_dsq(i, -1);
		if (!error)
			error = scx_bpf_create_dsq(BOOSTED | i, -1);
		if (error)
			return error;
	}
	return 0;
}

SEC("struct_ops.s/pronto_exit")
void BPF_PROG(pronto_exit, struct scx_exit_info *info)
{
	report.kind = info->kind;
	report.code = info->exit_code;
	bpf_probe_read_kernel_str(report.reason, sizeof(report.reason), info->reason);
	bpf_probe_read_kernel_str(report.message, sizeof(report.message), info->msg);
	__sync_fetch_and_add(&report.has_exited, 1);
}

SEC(".struct_ops.link")
struct sched_ext_ops pronto = {
	.select_cpu = (void *)pronto_select_cpu,
	.enqueue = (void *)pronto_enqueue,
	.dispatch = (void *)pronto_dispatch,
	.running = (void *)pronto_running,
	.stopping = (void *)pronto_stopping,
	.quiescent = (void *)pronto_quiescent,
	.init_task = (void *)pronto_init_task,
	.init = (void *)pronto_init,
	.exit = (void *)pronto_exit,
	.timeout_ms = TIMEOUT_MS,
	.name = "pronto",
};
