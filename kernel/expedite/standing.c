// SPDX-License-Identifier: GPL-2.0
/* The standing of a thread: its payer, the limits of its groups, and whether it needs a boost at all. */
#include <linux/capability.h>
#include <linux/cpumask.h>
#include <linux/cred.h>
#include <linux/sched.h>
#include <linux/sched/prio.h>
#include <linux/sched/signal.h>
#include <linux/topology.h>
#include <linux/user_namespace.h>
#ifdef CONFIG_X86
#include <asm/processor.h>
#endif

#include "compat.h"
#include "glue.h"
#include "layout.h"

#if defined(CONFIG_FAIR_GROUP_SCHED) && !defined(TASK_GROUP_PARENT)
#error "this kernel has no type data (CONFIG_DEBUG_INFO_BTF), or pahole does not find it in vmlinux"
#endif
#if defined(CONFIG_CFS_BANDWIDTH) && (!defined(TASK_GROUP_CFS_BANDWIDTH) || !defined(CFS_BANDWIDTH_QUOTA))
#error "the type data (BTF) of this kernel does not describe the limits of task groups"
#endif

/* CPUs that are examined for one arrival. */
#define MAX_CPUS_EXAMINED 64

/*
 * A user may have ids of other users, in user namespaces that this user created. They share the user's account: it is that of
 * the owner of the outermost namespace. In a namespace that root created, the ids are users of their own.
 */
u32 expedite_payer(struct task_struct *task)
{
	const struct cred *cred = rcu_dereference_raw(task->real_cred);
	const struct user_namespace *ns = cred->user_ns;

	if (likely(ns == &init_user_ns))
		return __kuid_val(cred->uid);
	while (ns->parent != &init_user_ns)
		ns = ns->parent;
	return __kuid_val(uid_eq(ns->owner, GLOBAL_ROOT_UID) ? cred->uid : ns->owner);
}

u32 expedite_caller(void)
{
	return expedite_payer(current);
}

/*
 * Returns whether the thread is to run after others, by a positive nice value or by SCHED_IDLE, and may not change this itself. Its
 * children during a boost would have nice value 0, since the kernel resets the class on fork in this way.
 */
bool expedite_is_behind(struct task_struct *task)
{
	const struct cred *cred;

	if (likely(READ_ONCE(task->static_prio) <= DEFAULT_PRIO && READ_ONCE(task->policy) != SCHED_IDLE))
		return false;
	cred = rcu_dereference_raw(task->real_cred);
	return task_rlimit(task, RLIMIT_NICE) < nice_to_rlimit(0) &&
	       !(cred->user_ns == &init_user_ns && cap_raised(cred->cap_effective, CAP_SYS_NICE));
}

#ifdef CONFIG_X86
static bool is_idle(int cpu)
{
	return cpu_online(cpu) && is_idle_task(expedite_running(cpu));
}

/*
 * Returns whether a CPU is idle on which the scheduler places the thread when it wakes: its last one, or one with the same cache
 * that the thread may use. It needs no boost then; one would keep it on its last CPU, and displace the thread that runs there.
 * Called under a spinlock, so no thread is freed meanwhile.
 */
bool expedite_finds_idle_cpu(struct task_struct *task)
{
	int home = task_cpu(task), examined = 0, cpu;

	if (is_idle(home))
		return true;
	if (READ_ONCE(task->nr_cpus_allowed) == 1)
		return false;
	for_each_cpu_and(cpu, topology_core_cpumask(home), task->cpus_ptr) {
		if (++examined > MAX_CPUS_EXAMINED)
			return false;
		if (cpu_data(cpu).topo.llc_id == cpu_data(home).topo.llc_id && is_idle(cpu))
			return true;
	}
	return false;
}
#else
/* On this architecture, modules cannot read which thread runs on another CPU. */
bool expedite_finds_idle_cpu(struct task_struct *task)
{
	return false;
}
#endif

/* Fills in what the groups of the thread say. The caller keeps the task valid, and no group is freed meanwhile. */
void expedite_groups(struct task_struct *task, struct expedite_thread *thread)
{
#ifdef CONFIG_FAIR_GROUP_SCHED
	void *group = READ_ONCE(task->sched_task_group);
	void *parent;

	/* The outermost group has no parent and no limits. */
	for (; group && (parent = READ_ONCE(*(void **)(group + TASK_GROUP_PARENT))); group = parent) {
#ifdef CONFIG_CFS_BANDWIDTH
		if (READ_ONCE(*(u64 *)(group + TASK_GROUP_CFS_BANDWIDTH + CFS_BANDWIDTH_QUOTA)) != U64_MAX)
			thread->group = group;
#endif
#ifdef TASK_GROUP_IDLE
		if (READ_ONCE(*(int *)(group + TASK_GROUP_IDLE)))
			thread->is_behind = true;
#endif
	}
#endif
}
