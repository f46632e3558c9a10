/* libfabric, messages over a reliable datagram endpoint. `ofi PROVIDER ROUND_MS CALLER_CPU SERVER_CPU [inject]`.
 *
 * With `inject`, messages as short as the provider injects are sent so: without a completion, and the buffer is free again immediately. */
#include "round.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NAME = 256 };

static struct fid_ep *ep;
static struct fid_cq *cq;
static fi_addr_t peer;
static struct fi_context sends[WINDOW], receives[WINDOW];
static unsigned char payload[LONGEST_PAYLOAD], in[WINDOW][LONGEST_PAYLOAD];
static int free_sends[WINDOW], free_count;
/* The receive buffer that a send of the server uses, which is posted again when the send has completed. */
static int sent_from[WINDOW];
static int is_server;
/* Longest message that is injected. */
static size_t inject_size;
static uint64_t answered;

static void need(int64_t result, const char *what)
{
	if (result) {
		fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-result));
		exit(1);
	}
}

static void receive(int slot)
{
	ssize_t result;
	while ((result = fi_recv(ep, in[slot], LONGEST_PAYLOAD, NULL, peer, &receives[slot])) == -FI_EAGAIN)
		;
	need(result, "fi_recv");
}

static void progress(void);

/* Sends the payload, or what the server has received in a buffer. */
static void transmit(const unsigned char *bytes, size_t length, int from)
{
	ssize_t result;
	if (length <= inject_size) {
		while ((result = fi_inject(ep, bytes, length, peer)) == -FI_EAGAIN)
			fi_cq_read(cq, NULL, 0);
		need(result, "fi_inject");
		if (from >= 0)
			receive(from);
		return;
	}
	while (free_count == 0)
		progress();
	int slot = free_sends[--free_count];
	sent_from[slot] = from;
	while ((result = fi_send(ep, bytes, length, NULL, peer, &sends[slot])) == -FI_EAGAIN)
		/* Drives the provider; its completions are left for the next poll. */
		fi_cq_read(cq, NULL, 0);
	need(result, "fi_send");
}

static void progress(void)
{
	struct fi_cq_msg_entry entries[8];
	ssize_t found = fi_cq_read(cq, entries, 8);
	if (found == -FI_EAGAIN)
		return;
	if (found < 0)
		need(found, "fi_cq_read");
	/* Sends first, because a reply needs a slot. */
	for (ssize_t i = 0; i < found; i++) {
		struct fi_context *context = entries[i].op_context;
		if (context < sends || context >= sends + WINDOW)
			continue;
		int slot = (int)(context - sends);
		free_sends[free_count++] = slot;
		if (sent_from[slot] >= 0)
			receive(sent_from[slot]);
	}
	for (ssize_t i = 0; i < found; i++) {
		struct fi_context *context = entries[i].op_context;
		if (context < receives || context >= receives + WINDOW)
			continue;
		int slot = (int)(context - receives);
		if (is_server) {
			transmit(in[slot], entries[i].len, slot);
		} else {
			check(in[slot]);
			answered++;
			receive(slot);
		}
	}
}

static void move(int socket, void *bytes, size_t length, int outwards)
{
	for (size_t done = 0; done < length;) {
		ssize_t n = outwards ? write(socket, (char *)bytes + done, length - done)
				     : read(socket, (char *)bytes + done, length - done);
		if (n <= 0)
			fail("exchanging addresses");
		done += (size_t)n;
	}
}

static void connect_over(int socket, const char *provider, int injects)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_MSG, .size = 4 * WINDOW };
	char name[NAME] = { 0 }, theirs[NAME];
	size_t length = NAME;

	hints->caps = FI_MSG;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup(provider);
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	need(fi_getinfo(FI_VERSION(1, 17), strncmp(provider, "tcp", 3) ? NULL : "127.0.0.1", NULL,
			strncmp(provider, "tcp", 3) ? 0 : FI_SOURCE, hints, &info),
	     "fi_getinfo");
	if (injects)
		inject_size = info->tx_attr->inject_size;
	need(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	need(fi_domain(fabric, info, &domain, NULL), "fi_domain");
	need(fi_endpoint(domain, info, &ep, NULL), "fi_endpoint");
	need(fi_av_open(domain, &av_attr, &av, NULL), "fi_av_open");
	need(fi_cq_open(domain, &cq_attr, &cq, NULL), "fi_cq_open");
	need(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
	need(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	need(fi_enable(ep), "fi_enable");
	need(fi_getname(&ep->fid, name, &length), "fi_getname");
	move(socket, name, NAME, 1);
	move(socket, theirs, NAME, 0);
	if (fi_av_insert(av, theirs, 1, &peer, 0, NULL) != 1)
		fail("fi_av_insert");
	for (int slot = 0; slot < WINDOW; slot++) {
		receive(slot);
		free_sends[free_count++] = slot;
	}
	/* Both sides are ready before either sends. */
	move(socket, name, 1, 1);
	move(socket, theirs, 1, 0);
}

static void call(void)
{
	uint64_t before = answered;
	transmit(payload, size, -1);
	while (answered == before)
		progress();
}

static void load(int calls)
{
	uint64_t first = answered, sent = answered;
	while (answered - first < (uint64_t)calls) {
		while (sent - first < (uint64_t)calls && sent - answered < WINDOW) {
			transmit(payload, PAYLOAD, -1);
			sent++;
		}
		progress();
	}
}

int main(int argc, char **argv)
{
	int sockets[2];

	int injects = argc == 6 && !strcmp(argv[5], "inject");

	if (argc != 5 + injects || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		fail("starting");
	memset(payload, BYTE, sizeof payload);
	pid_t server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(argv[4]);
		is_server = 1;
		connect_over(sockets[1], argv[1], injects);
		for (;;)
			progress();
	}
	pin(argv[3]);
	connect_over(sockets[0], argv[1], injects);
	uint32_t version = fi_version();
	printf("version libfabric %u.%u\n", FI_MAJOR(version), FI_MINOR(version));
	round_of(atoi(argv[2]), call, load, NULL);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	return 0;
}
