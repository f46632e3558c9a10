/* SPDX-License-Identifier: GPL-2.0 */
/* What the program reports about a socket; crates/coschedule/src/sensor/bpf.rs has the same structure. */
#ifndef PRONTO_QUEUES_H
#define PRONTO_QUEUES_H

#include "sockets.h"

/* Changed with the structure. */
#define PRONTO_QUEUES_VERSION 1

struct parameters {
	u32 version;
};

struct reading {
	/* Number of the socket: that of its link in /proc/PID/fd. */
	u64 inode;
	struct occupancy queues;
	/* AF_INET, AF_INET6 or AF_UNIX. */
	u16 family;
	/* Protocol number of IP; 0 for Unix sockets. */
	u16 protocol;
	/* Ports in host order; 0 for Unix sockets. */
	u16 local_port;
	u16 remote_port;
	/* Addresses of IPv4 are in the first four bytes. */
	u8 local[16];
	u8 remote[16];
};

#endif
