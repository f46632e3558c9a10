/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The queues of a socket, and the sockets of a process, for BPF programs. The file that includes this one includes vmlinux.h and
 * bpf_core_read.h before.
 *
 * Sockets are read without their locks, as sock_diag does. The sizes are those of sock_diag. Messages are what the kernel keeps as one
 * packet: a byte stream may have merged several small ones.
 */
#ifndef PRONTO_QUEUES_SOCKETS_H
#define PRONTO_QUEUES_SOCKETS_H

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

/* Open files that are looked at together. */
#define CHUNK 16

/* Packets of a queue that are looked at for their lengths, on kernels that keep no sum. */
#define PACKETS 64

/* Contents of the queues of a socket. */
struct occupancy {
	u32 received_bytes;
	u32 received_messages;
	u32 sent_bytes;
	u32 sent_messages;
};

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

static void read_tcp(const struct sock *sk, struct occupancy *queues)
{
	const struct tcp_sock *tcp = bpf_core_cast(sk, struct tcp_sock);
	s32 received = tcp->rcv_nxt - tcp->copied_seq, sent = tcp->write_seq - tcp->snd_una;

	if (received > 0) {
		queues->received_bytes = received;
		queues->received_messages = at_least_one(sk->sk_receive_queue.qlen, received);
	}
	if (sent > 0) {
		queues->sent_bytes = sent;
		queues->sent_messages = at_least_one(tcp->packets_out + sk->sk_write_queue.qlen, sent);
	}
}

static void read_udp(const struct sock *sk, struct occupancy *queues)
{
	const struct udp_sock *udp = bpf_core_cast(sk, struct udp_sock);
	s32 received = sk->sk_backlog.rmem_alloc.counter - udp->forward_deficit;

	queues->received_bytes = received > 0 ? received : 0;
	queues->received_messages = sk->sk_receive_queue.qlen + udp->reader_queue.qlen;
	queues->sent_bytes = written(sk);
	queues->sent_messages = at_least_one(0, queues->sent_bytes);
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

static void read_unix(const struct sock *sk, struct occupancy *queues)
{
	if (!sk->sk_receive_queue.qlen)
		queues->received_bytes = 0;
	else if (bpf_core_field_exists(struct unix_sock___summed, inq_len) && sk->sk_type == SOCK_STREAM)
		queues->received_bytes = BPF_CORE_READ((const struct unix_sock___summed *)sk, inq_len);
	else
		queues->received_bytes = lengths(&sk->sk_receive_queue);
	queues->received_messages = sk->sk_receive_queue.qlen;
	queues->sent_bytes = written(sk);
	queues->sent_messages = at_least_one(0, queues->sent_bytes);
}

/* States of sockets that can hold data. */
static bool can_hold_data(const struct sock *sk)
{
	u8 state = sk->__sk_common.skc_state;

	return state == TCP_ESTABLISHED || state == TCP_CLOSE || state == TCP_CLOSE_WAIT;
}

static bool is_filled(const struct occupancy *queues)
{
	return queues->received_bytes || queues->received_messages || queues->sent_bytes;
}

/* Reads the queues of a socket. Returns false if it can hold no data, or is of another kind. */
static bool read_queues(const struct sock *sk, struct occupancy *queues)
{
	u16 family = sk->__sk_common.skc_family;

	if (!can_hold_data(sk))
		return false;
	if (family == AF_UNIX) {
		read_unix(sk, queues);
		return true;
	}
	if (family != AF_INET && family != AF_INET6)
		return false;
	if (sk->sk_protocol == IPPROTO_TCP)
		read_tcp(sk, queues);
	else if (sk->sk_protocol == IPPROTO_UDP)
		read_udp(sk, queues);
	else
		return false;
	return true;
}

/* Returns the socket of an open file, or NULL. */
static const struct sock *socket_of(const struct file *file)
{
	if ((file->f_inode->i_mode & S_IFMT) != S_IFSOCK)
		return NULL;
	/* A file of a path that names a socket, and was not connected, has none. */
	if (!file->private_data)
		return NULL;
	return bpf_core_cast(file->private_data, struct socket)->sk;
}

#endif
