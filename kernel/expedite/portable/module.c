// SPDX-License-Identifier: GPL-2.0
/* The C half of the portable form: the device, the parameters, and functions that stand for the kernel's Rust code. */
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/printk.h>
#include <linux/rcupdate.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "../glue.h"
#include "module.h"

static_assert(sizeof(struct hrtimer) <= EXPEDITE_ROOM_FOR_TIMER && __alignof__(struct hrtimer) <= 8);
static_assert(sizeof(struct irq_work) <= EXPEDITE_ROOM_FOR_IRQ_WORK && __alignof__(struct irq_work) <= 8);
static_assert(sizeof(struct kthread_work) <= EXPEDITE_ROOM_FOR_KTHREAD_WORK && __alignof__(struct kthread_work) <= 8);
static_assert(offsetof(struct wait_queue_entry, private) == 8 && offsetof(struct wait_queue_entry, func) == 16);
static_assert(sizeof(struct wait_queue_entry) == 40);
static_assert(ARCH_KMALLOC_MINALIGN >= 8);

#if defined(CONFIG_CFI_CLANG) || defined(CONFIG_CFI)
#error "the object has no hashes of function types, which this kernel checks at each indirect call"
#endif

static struct expedite_parameters parameters = {
	.slice_us = 200,
	.thread_percent = 10,
	.user_percent = 25,
	.cpu_percent = 50,
	.user_flags = 4096,
};

#define PARAMETER(name, text)                                  \
	module_param_named(name, parameters.name, uint, 0444); \
	MODULE_PARM_DESC(name, text)

PARAMETER(slice_us, "Length of a boost after an arrival, in microseconds (10 to 5000)");
PARAMETER(thread_percent, "Maximum boosted share of a CPU per thread, in percent, within any 100 ms");
PARAMETER(user_percent, "Maximum boosted share of each CPU for all threads of a user, in percent, within any 100 ms");
PARAMETER(cpu_percent, "Maximum boosted share of each CPU for all threads, in percent, within any 100 ms");
PARAMETER(sleepers_only, "1: boost only threads that use less than 2 % of a CPU in total");
PARAMETER(even_if_idle, "1: boost a thread even while a CPU is idle on which it may run");
PARAMETER(user_flags, "Maximum number of flags of one user");

void *expedite_alloc(size_t size, unsigned int how)
{
	switch (how) {
	case EXPEDITE_MAY_SLEEP:
		return kmalloc(size, GFP_KERNEL);
	case EXPEDITE_MAY_SLEEP_AND_COUNTS:
		return kmalloc(size, GFP_KERNEL_ACCOUNT);
	default:
		return kmalloc(size, GFP_ATOMIC);
	}
}

void expedite_free(void *memory)
{
	kfree(memory);
}

unsigned long expedite_read_user(void *to, unsigned long from, size_t size)
{
	return copy_from_user(to, (const void __user *)from, size);
}

unsigned long expedite_write_user(unsigned long to, const void *from, size_t size)
{
	return copy_to_user((void __user *)to, from, size);
}

/* The lock of all flags. */
static DEFINE_MUTEX(flags_lock);

void expedite_mutex_lock(void)
{
	mutex_lock(&flags_lock);
}

void expedite_mutex_unlock(void)
{
	mutex_unlock(&flags_lock);
}

void expedite_rcu_read_lock(void)
{
	rcu_read_lock();
}

void expedite_rcu_read_unlock(void)
{
	rcu_read_unlock();
}

void expedite_print(bool is_error, const char *text, size_t length)
{
	if (is_error)
		pr_err("expedite: %.*s", (int)length, text);
	else
		pr_info("expedite: %.*s", (int)length, text);
}

/* Rust code found an error of its own, and has printed it. */
void __noreturn expedite_panic(void)
{
	BUG();
}

static int on_open(struct inode *inode, struct file *file)
{
	file->private_data = expedite_open();
	return file->private_data ? 0 : -ENOMEM;
}

static int on_release(struct inode *inode, struct file *file)
{
	expedite_close(file->private_data);
	return 0;
}

static long on_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	return expedite_request(file->private_data, command, argument);
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = on_open,
	.release = on_release,
	.unlocked_ioctl = on_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "expedite",
	.fops = &operations,
};

/* The object was compiled with other sources than this file, if its structures differ. */
static bool fits(void)
{
	return expedite_rooms[0] == EXPEDITE_ROOM_FOR_TIMER && expedite_rooms[1] == EXPEDITE_ROOM_FOR_IRQ_WORK &&
	       expedite_rooms[2] == EXPEDITE_ROOM_FOR_KTHREAD_WORK && expedite_rooms[3] == sizeof(struct expedite_waiter) &&
	       expedite_rooms[4] == sizeof(struct expedite_thread) && expedite_rooms[5] == sizeof(struct expedite_obstacles) &&
	       expedite_rooms[6] == sizeof(struct expedite_parameters) && expedite_rooms[7] == sizeof(struct expedite_hold);
}

static int __init expedite_init(void)
{
	int error;

	if (!fits()) {
		pr_err("expedite: the object of the Rust sources does not fit the C sources: build both again\n");
		return -EINVAL;
	}
	error = expedite_module_start(&parameters);
	if (error)
		return error;
	error = misc_register(&device);
	if (error)
		expedite_module_stop();
	return error;
}

static void __exit expedite_exit(void)
{
	misc_deregister(&device);
	expedite_module_stop();
}

module_init(expedite_init);
module_exit(expedite_exit);

MODULE_AUTHOR("The Pronto authors");
MODULE_DESCRIPTION("Runs a thread immediately when data arrives for it, within a budget");
MODULE_LICENSE("GPL");
