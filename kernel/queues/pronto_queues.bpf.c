// SPDX-License-Identifier: GPL-2.0
/*
 * Reports the queues of the sockets of a process: iterators of one process, which the reader of their files runs. They change nothing, and
 * hold no socket between two reads.
 *
 * Sockets are read without their locks, as sock_diag does. The sizes are those of sock_diag. Messages are what the kernel keeps as one
 * packet: a byte stream may have merged several small ones.
 */
#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "pronto_queues.h"

char LICENSE[] SEC("license") = "GPL";

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

/* Packets of a queue that are looked at for their lengths, on kernels that keep no sum. */
#define PACKETS 64

const volatile struct parameters parameters SEC(".rodata.parameters") = { .version = PRONTO_QUEUES_VERSION };

/* libbpf has this since version 1.4, the kernel since Linux 6.2. */
#ifndef bpf_core_cast
extern void *bpf_rdonly_cast(const void *object, u32 type) __ksym __weak;
#define bpf_core_cast(object, type) ((type *)bpf_rdonly_cast(object, bpf_core_type_id_kernel(type)))
#endif

/* A field that Unix sockets have since Linux 6.17. */
struct unix_sock___summed {
	int inq_len;
} __attribute__((preserve_access_index));

/* Bytes of memory of written data that the receiver or the device has not freed; the socket itself counts as one. */
static u32 written(const struct sock *sk)
{
	int count = sk->sk_wmem_alloc.refs.counter;

	return count > 1 ? count - 1 : 0;
}

static u32 at_least_one(u32 messages, u32 bytes)
{
	if (!bytes)
		return 0;
	return messages ? messages : 1;
}

static void read_tcp(const struct sock *sk, struct reading *reading)
{
	const struct tcp_sock *tcp = bpf_core_cast(sk, struct tcp_sock);
	s32 received = tcp->rcv_nxt - tcp->copied_seq, sent = tcp->write_seq - tcp->snd_una;

	if (received > 0) {
		reading->received_bytes = received;
		reading->received_messages = at_least_one(sk->sk_receive_queue.qlen, received);
	}
	if (sent > 0) {
		reading->sent_bytes = sent;
		reading->sent_messages = at_least_one(tcp->packets_out + sk->sk_write_queue.qlen, sent);
	}
}

static void read_udp(const struct sock *sk, struct reading *reading)
{
	const struct udp_sock *udp = bpf_core_cast(sk, struct udp_sock);
	s32 received = sk->sk_backlog.rmem_alloc.counter - udp->forward_deficit;

	reading->received_bytes = received > 0 ? received : 0;
	reading->received_messages = sk->sk_receive_queue.qlen + udp->reader_queue.qlen;
	reading->sent_bytes = written(sk);
	reading->sent_messages = at_least_one(0, reading->sent_bytes);
}

/* Returns the lengths of the first packets. */
static u32 lengths(const struct sk_buff_head *queue)
{
	const void *end = queue;
	const struct sk_buff *packet = queue->next;
	u32 sum = 0;

	for (int count = 0; count < PACKETS && packet && packet != end; count++) {
		sum += packet->len;
		packet = packet->next;
	}
	return sum;
}

static void read_unix(const struct sock *sk, struct reading *reading)
{
	if (!sk->sk_receive_queue.qlen)
		reading->received_bytes = 0;
	else if (bpf_core_field_exists(struct unix_sock___summed, inq_len) && sk->sk_type == SOCK_STREAM)
		reading->received_bytes = BPF_CORE_READ((const struct unix_sock___summed *)sk, inq_len);
	else
		reading->received_bytes = lengths(&sk->sk_receive_queue);
	reading->received_messages = sk->sk_receive_queue.qlen;
	reading->sent_bytes = written(sk);
	reading->sent_messages = at_least_one(0, reading->sent_bytes);
}

static void read_addresses(const struct sock *sk, struct reading *reading)
{
	/* A connection that was reset has no skc_num any more. */
	reading->local_port = bpf_ntohs(bpf_core_cast(sk, struct inet_sock)->inet_sport);
	reading->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	if (reading->family == AF_INET) {
		u32 local = sk->__sk_common.skc_rcv_saddr, remote = sk->__sk_common.skc_daddr;

		__builtin_memcpy(reading->local, &local, sizeof(local));
		__builtin_memcpy(reading->remote, &remote, sizeof(remote));
	} else {
		BPF_CORE_READ_INTO(&reading->local, sk, __sk_common.skc_v6_rcv_saddr);
		BPF_CORE_READ_INTO(&reading->remote, sk, __sk_common.skc_v6_daddr);
	}
}

/* States of sockets that can hold data. */
static bool can_hold_data(const struct sock *sk)
{
	u8 state = sk->__sk_common.skc_state;

	return state == TCP_ESTABLISHED || state == TCP_CLOSE || state == TCP_CLOSE_WAIT;
}

static bool is_filled(const struct reading *reading)
{
	return reading->received_bytes || reading->received_messages || reading->sent_bytes;
}

static int report(struct seq_file *seq, const struct file *file, const struct sock *sk, bool all)
{
	struct reading reading = {};

	if (!can_hold_data(sk))
		return 0;
	reading.family = sk->__sk_common.skc_family;
	if (reading.family == AF_UNIX) {
		read_unix(sk, &reading);
	} else if (reading.family == AF_INET || reading.family == AF_INET6) {
		reading.protocol = sk->sk_protocol;
		if (reading.protocol == IPPROTO_TCP)
			read_tcp(sk, &reading);
		else if (reading.protocol == IPPROTO_UDP)
			read_udp(sk, &reading);
		else
			return 0;
	} else {
		return 0;
	}
	if (!all && !is_filled(&reading))
		return 0;
	reading.inode = file->f_inode->i_ino;
	if (reading.family != AF_UNIX)
		read_addresses(sk, &reading);
	bpf_seq_write(seq, &reading, sizeof(reading));
	return 0;
}

/* Reports all sockets of the process. */
SEC("iter/task_file")
int every(struct bpf_iter__task_file *ctx)
{
	struct file *file = ctx->file;
	struct socket *socket;
	const struct sock *sk;

	if (!file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket)
		return 0;
	sk = socket->sk;
	if (!sk)
		return 0;
	return report(ctx->meta->seq, file, sk, true);
}

/* Open files that are looked at together. */
#define CHUNK 16

/* A walk through the open files of a process. */
struct walk {
	struct seq_file *seq;
	u64 files;
};

static long look(u32 chunk, struct walk *walk)
{
	u64 files[CHUNK] = {};

	bpf_probe_read_kernel(files, sizeof(files), (void *)(walk->files + chunk * sizeof(files)));
	for (int at = 0; at < CHUNK; at++) {
		const struct file *file = bpf_core_cast((void *)files[at], struct file);
		const struct socket *socket;
		const struct sock *sk;

		if (!files[at] || (file->f_inode->i_mode & S_IFMT) != S_IFSOCK)
			continue;
		/* A file of a path that names a socket, and was not connected, has none. */
		socket = bpf_core_cast(file->private_data, struct socket);
		if (!file->private_data)
			continue;
		sk = socket->sk;
		if (sk)
			report(walk->seq, file, sk, false);
	}
	return 0;
}

/*
 * Reports the sockets with data in a queue, which are few in most samples. It walks through the table of open files itself, which takes a
 * fifth of the time of an iterator of files: that one takes a reference to each. A file that is closed meanwhile may be read as it was before,
 * or as the next one at its address is.
 */
SEC("iter/task")
int filled(struct bpf_iter__task *ctx)
{
	struct task_struct *thread = ctx->task;
	const struct fdtable *table;
	struct walk walk;

	/* Threads share the files of their process, with rare exceptions. */
	if (!thread || !thread->files || (thread != thread->group_leader && thread->files == thread->group_leader->files))
		return 0;
	table = thread->files->fdt;
	walk.seq = ctx->meta->seq;
	walk.files = (u64)table->fd;
	bpf_loop((table->max_fds + CHUNK - 1) / CHUNK, look, &walk, 0);
	return 0;
}
