// SPDX-License-Identifier: GPL-2.0
/*
 * Decides which descriptors can be flagged, and holds the object that keeps their wait queue in place.
 *
 * Where possible that is not the open file: a file that the module holds would stay open when its owner closes it, and a
 * connection would not end. A socket's queue is in its inode and an eventfd's in its context, so the module holds those. Of
 * pipes and completion channels it can only hold the file; such flags are checked every few milliseconds.
 */
#include <linux/eventfd.h>
#include <linux/fs.h>
#include <linux/file.h>
#include <linux/kallsyms.h>
#include <linux/net.h>
#include <linux/poll.h>
#include <net/sock.h>

#include "glue.h"

/* Collects the wait queues of a file. */
struct found_queues {
	struct poll_table_struct table;
	struct wait_queue_head *queue;
	int count;
};

static void note_queue(struct file *file, struct wait_queue_head *queue, struct poll_table_struct *table)
{
	struct found_queues *queues = container_of(table, struct found_queues, table);

	queues->queue = queue;
	queues->count++;
}

/* Returns the one queue on which arrivals are announced, or NULL if there are several. */
static struct wait_queue_head *only_queue(struct file *file)
{
	struct found_queues queues = {};

	init_poll_funcptr(&queues.table, note_queue);
	queues.table._key = EPOLLIN;
	file->f_op->poll(file, &queues.table);
	return queues.count == 1 ? queues.queue : NULL;
}

static int hold_socket(struct socket *sock, struct file *file, struct expedite_hold *hold)
{
	unsigned short family = sock->sk ? READ_ONCE(sock->sk->sk_family) : AF_UNSPEC;

	if (family != AF_UNIX && family != AF_INET && family != AF_INET6)
		return -EOPNOTSUPP;
	/* The queue must be the one in the inode. */
	if (only_queue(file) != &sock->wq.wait)
		return -EOPNOTSUPP;
	ihold(SOCK_INODE(sock));
	*hold = (struct expedite_hold){ EXPEDITE_SOCKET, sock, &sock->wq.wait };
	return 0;
}

static bool is_completion_channel(struct file *file)
{
	char name[KSYM_SYMBOL_LEN];

	/* After this prefix comes the name of the module. */
	sprint_symbol_no_offset(name, (unsigned long)file->f_op->poll);
	return strstarts(name, "ib_uverbs_comp_event_poll");
}

/* Fills in kind and object of the hold on a file, without a reference. Returns false if it is of no kind that can be flagged. */
bool expedite_identify(struct file *file, struct expedite_hold *hold)
{
	struct socket *sock = sock_from_file(file);
	struct eventfd_ctx *eventfd;

	if (sock) {
		*hold = (struct expedite_hold){ EXPEDITE_SOCKET, sock };
		return true;
	}
	eventfd = eventfd_ctx_fileget(file);
	if (!IS_ERR(eventfd)) {
		/* The file keeps it. */
		eventfd_ctx_put(eventfd);
		*hold = (struct expedite_hold){ EXPEDITE_EVENTFD, eventfd };
		return true;
	}
	*hold = (struct expedite_hold){ EXPEDITE_FILE, file };
	return file->f_op->poll && file->f_mode & FMODE_READ &&
	       (S_ISFIFO(file_inode(file)->i_mode) || is_completion_channel(file));
}

/* Takes a reference to the object that keeps the wait queue of @file, if that file is of a kind that can be flagged. */
int expedite_hold(struct file *file, struct expedite_hold *hold)
{
	if (!expedite_identify(file, hold))
		return -EOPNOTSUPP;
	if (hold->kind == EXPEDITE_SOCKET)
		return hold_socket(hold->object, file, hold);
	hold->queue = only_queue(file);
	if (!hold->queue)
		return -EOPNOTSUPP;
	if (hold->kind == EXPEDITE_EVENTFD)
		/* It was an eventfd a moment ago, so this cannot fail. */
		hold->object = eventfd_ctx_fileget(file);
	else
		get_file(file);
	return 0;
}

/* Drops the reference of expedite_hold(). May sleep. */
void expedite_release(struct expedite_hold *hold)
{
	switch (hold->kind) {
	case EXPEDITE_SOCKET:
		iput(SOCK_INODE((struct socket *)hold->object));
		break;
	case EXPEDITE_EVENTFD:
		eventfd_ctx_put(hold->object);
		break;
	case EXPEDITE_FILE:
		fput(hold->object);
		break;
	}
	hold->object = NULL;
}

/* Returns whether only the module holds it open. The end of an eventfd is reported by a hang-up event instead. */
bool expedite_is_closed(const struct expedite_hold *hold)
{
	switch (hold->kind) {
	case EXPEDITE_SOCKET:
		return !READ_ONCE(((struct socket *)hold->object)->file);
	case EXPEDITE_EVENTFD:
		return false;
	case EXPEDITE_FILE:
		return file_count((struct file *)hold->object) == 1;
	}
	return false;
}

unsigned long expedite_queue_lock(struct wait_queue_head *queue)
{
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	return flags;
}

void expedite_queue_unlock(struct wait_queue_head *queue, unsigned long flags)
{
	spin_unlock_irqrestore(&queue->lock, flags);
}

/* Puts an entry before all that are added later, so that it is called before them. */
void expedite_queue_add(struct wait_queue_head *queue, struct wait_queue_entry *entry)
{
	add_wait_queue_priority(queue, entry);
}

/* Takes an entry out of its queue, whose lock is held. */
void expedite_queue_remove(struct wait_queue_head *queue, struct wait_queue_entry *entry)
{
	__remove_wait_queue(queue, entry);
}
