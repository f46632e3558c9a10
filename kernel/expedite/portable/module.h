/* SPDX-License-Identifier: GPL-2.0 */
/* The seam between module.c and the Rust object of the portable form. bindings.rs, ../portable_main.rs and ../engine.rs repeat it. */
#ifndef EXPEDITE_MODULE_H
#define EXPEDITE_MODULE_H

#include <linux/types.h>

/* The parameters of the module. */
struct expedite_parameters {
	u32 slice_us;
	u32 thread_percent;
	u32 user_percent;
	u32 cpu_percent;
	u32 sleepers_only;
	u32 even_if_idle;
	u32 user_flags;
};

/* How memory is allocated. */
enum expedite_memory {
	EXPEDITE_MAY_SLEEP,
	EXPEDITE_MAY_SLEEP_AND_COUNTS,
	EXPEDITE_MAY_NOT_SLEEP,
};

/* Room for structures of the kernel in those of Rust, bytes. */
#define EXPEDITE_ROOM_FOR_TIMER 128
#define EXPEDITE_ROOM_FOR_IRQ_WORK 64
#define EXPEDITE_ROOM_FOR_KTHREAD_WORK 128

void *expedite_alloc(size_t size, unsigned int how);
void expedite_free(void *memory);
unsigned long expedite_read_user(void *to, unsigned long from, size_t size);
unsigned long expedite_write_user(unsigned long to, const void *from, size_t size);
void expedite_mutex_lock(void);
void expedite_mutex_unlock(void);
void expedite_rcu_read_lock(void);
void expedite_rcu_read_unlock(void);
void expedite_print(bool is_error, const char *text, size_t length);
void __noreturn expedite_panic(void);

/* Sizes of structures on the other side, for comparison: the three rooms, waiter, thread, obstacles, parameters, hold. */
extern const u32 expedite_rooms[8];

/* Implemented in Rust. */
int expedite_module_start(const struct expedite_parameters *parameters);
void expedite_module_stop(void);
void *expedite_open(void);
void expedite_close(void *device);
int expedite_request(void *device, unsigned int command, unsigned long argument);

#endif
