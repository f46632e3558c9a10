/* SPDX-License-Identifier: GPL-2.0 */
/* Names of newer kernels, for older ones: down to Linux 6.12. */
#ifndef EXPEDITE_COMPAT_H
#define EXPEDITE_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/io_uring_types.h>
#include <linux/kthread.h>
#include <linux/sched.h>
#include <linux/version.h>
#ifdef CONFIG_X86
#include <asm/current.h>
#endif

/* The thread that submitted a request of io_uring. */
static inline struct task_struct *expedite_submitter(struct io_kiocb *request)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
	return request->tctx ? request->tctx->task : NULL;
#else
	return request->task;
#endif
}

#ifdef CONFIG_X86
/* The thread that runs on a CPU. */
static inline struct task_struct *expedite_running(int cpu)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 15, 0)
	return READ_ONCE(per_cpu(current_task, cpu));
#else
	return READ_ONCE(per_cpu(pcpu_hot, cpu).current_task);
#endif
}
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
				 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 14, 0)
/* Here, creating a worker starts it. */
#define kthread_run_worker kthread_create_worker
#define kthread_run_worker_on_cpu(cpu, flags, name) kthread_create_worker_on_cpu(cpu, flags, name, cpu)
#endif

#endif
