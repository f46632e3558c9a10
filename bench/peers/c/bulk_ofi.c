/* libfabric, long messages over a reliable datagram endpoint. `bulk_ofi PROVIDER ROUND_MS SENDER_CPU RECEIVER_CPU SIZE:OPEN...`. */
#include "bulk.h"

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
static struct fi_context sends[MOST_OPEN], receives[MOST_OPEN];
static int sending[MOST_OPEN], arrived[MOST_OPEN];
static size_t lengths[MOST_OPEN];

static void need(int64_t result, const char *what)
{
	if (result) {
		fprintf(stderr, "%s: %s\n", what, fi_strerror((int)-result));
		exit(1);
	}
}

static void progress(void)
{
	struct fi_cq_msg_entry entries[8];
	ssize_t found = fi_cq_read(cq, entries, 8);

	if (found == -FI_EAGAIN)
		return;
	if (found < 0)
		need(found, "fi_cq_read");
	for (ssize_t i = 0; i < found; i++) {
		struct fi_context *context = entries[i].op_context;
		if (context >= sends && context < sends + MOST_OPEN) {
			sending[context - sends] = 0;
		} else {
			arrived[context - receives] = 1;
			lengths[context - receives] = entries[i].len;
		}
	}
}

static void post(int slot, void *bytes, size_t length)
{
	ssize_t result;

	arrived[slot] = 0;
	while ((result = fi_recv(ep, bytes, length, NULL, peer, &receives[slot])) == -FI_EAGAIN)
		progress();
	need(result, "fi_recv");
}

static size_t take(int slot)
{
	while (!arrived[slot])
		progress();
	return lengths[slot];
}

static void transmit(int slot, const void *bytes, size_t length)
{
	ssize_t result;

	sending[slot] = 1;
	while ((result = fi_send(ep, bytes, length, NULL, peer, &sends[slot])) == -FI_EAGAIN)
		progress();
	need(result, "fi_send");
}

static void settle(int slot)
{
	while (sending[slot])
		progress();
}

static void move(int socket, void *bytes, size_t length, int out)
{
	for (size_t done = 0; done < length;) {
		ssize_t n = out ? write(socket, (char *)bytes + done, length - done)
				: read(socket, (char *)bytes + done, length - done);
		if (n <= 0)
			fail("exchanging addresses");
		done += (size_t)n;
	}
}

static void connect_over(int socket, const char *provider)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fi_av_attr av_attr = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq_attr = { .format = FI_CQ_FORMAT_MSG, .size = 4 * MOST_OPEN };
	char name[NAME] = { 0 }, theirs[NAME];
	size_t length = NAME;
	int over_tcp = strncmp(provider, "tcp", 3) == 0;

	hints->caps = FI_MSG;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup(provider);
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	need(fi_getinfo(FI_VERSION(1, 17), over_tcp ? "127.0.0.1" : NULL, NULL, over_tcp ? FI_SOURCE : 0, hints, &info),
	     "fi_getinfo");
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
	/* Both sides are ready before either sends. */
	move(socket, name, 1, 1);
	move(socket, theirs, 1, 0);
}

int main(int argc, char **argv)
{
	int sockets[2];

	if (argc < 6 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		fail("starting");
	pid_t receiver = fork();
	if (receiver == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(argv[4]);
		connect_over(sockets[1], argv[1]);
		all_cells(0, atoi(argv[2]), argc - 5, argv + 5);
		/* The sender may still wait for the last message. */
		for (;;)
			progress();
	}
	pin(argv[3]);
	connect_over(sockets[0], argv[1]);
	uint32_t version = fi_version();
	printf("version libfabric %u.%u\n", FI_MAJOR(version), FI_MINOR(version));
	all_cells(1, atoi(argv[2]), argc - 5, argv + 5);
	kill(receiver, SIGKILL);
	waitpid(receiver, NULL, 0);
	return 0;
}
