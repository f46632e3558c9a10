/*
 * UCX, long tagged messages into posted receives. `bulk_ucx ROUND_MS SENDER_CPU RECEIVER_CPU SIZE:OPEN...`; transports and settings come
 * from UCX's environment variables.
 */
#include "bulk.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

static ucp_worker_h worker;
static ucp_ep_h peer;
static ucs_status_ptr_t sends[MOST_OPEN], receives[MOST_OPEN];
static ucp_tag_recv_info_t infos[MOST_OPEN];

static void post(int slot, void *bytes, size_t length)
{
	ucp_request_param_t param = { .op_attr_mask = UCP_OP_ATTR_FIELD_RECV_INFO,
				      .recv_info.tag_info = &infos[slot] };

	receives[slot] = ucp_tag_recv_nbx(worker, bytes, length, 0, UINT64_MAX, &param);
	if (UCS_PTR_IS_ERR(receives[slot]))
		fail("posting a receive");
}

/* Waits for the end of a request; NULL has ended already. */
static void finish(ucs_status_ptr_t *request)
{
	ucs_status_t status = UCS_OK;

	if (*request) {
		while ((status = ucp_request_check_status(*request)) == UCS_INPROGRESS)
			ucp_worker_progress(worker);
		ucp_request_free(*request);
	}
	*request = NULL;
	if (status != UCS_OK) {
		fprintf(stderr, "%s: ", ucs_status_string(status));
		fail("a message");
	}
}

static size_t take(int slot)
{
	ucs_status_ptr_t request = receives[slot];
	ucp_tag_recv_info_t info;

	if (!request)
		return infos[slot].length;
	ucs_status_t status;
	while ((status = ucp_tag_recv_request_test(request, &info)) == UCS_INPROGRESS)
		ucp_worker_progress(worker);
	if (status != UCS_OK)
		fail("a receive");
	ucp_request_free(request);
	receives[slot] = NULL;
	return info.length;
}

static void transmit(int slot, const void *bytes, size_t length)
{
	ucp_request_param_t param = { .op_attr_mask = 0 };

	sends[slot] = ucp_tag_send_nbx(peer, bytes, length, 0, &param);
	if (UCS_PTR_IS_ERR(sends[slot]))
		fail("a send");
}

static void settle(int slot)
{
	finish(&sends[slot]);
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

static void connect_over(int socket)
{
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG };
	ucp_worker_params_t worker_params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					      .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_context_h context;
	ucp_address_t *mine;
	size_t mine_length, length;

	if (ucp_init(&params, NULL, &context) != UCS_OK)
		fail("ucp_init");
	if (ucp_worker_create(context, &worker_params, &worker) != UCS_OK)
		fail("ucp_worker_create");
	if (ucp_worker_get_address(worker, &mine, &mine_length) != UCS_OK)
		fail("ucp_worker_get_address");
	move(socket, &mine_length, sizeof mine_length, 1);
	move(socket, mine, mine_length, 1);
	move(socket, &length, sizeof length, 0);
	ucp_address_t *theirs = malloc(length);
	move(socket, theirs, length, 0);
	ucp_ep_params_t ep = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = theirs };
	if (ucp_ep_create(worker, &ep, &peer) != UCS_OK)
		fail("ucp_ep_create");
}

int main(int argc, char **argv)
{
	int sockets[2];
	unsigned major, minor, patch;

	if (argc < 5 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		fail("starting");
	pid_t receiver = fork();
	if (receiver == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(argv[3]);
		connect_over(sockets[1]);
		all_cells(0, atoi(argv[1]), argc - 4, argv + 4);
		/* The sender may still wait for the last message. */
		for (;;)
			ucp_worker_progress(worker);
	}
	pin(argv[2]);
	connect_over(sockets[0]);
	ucp_get_version(&major, &minor, &patch);
	printf("version UCX %u.%u.%u\n", major, minor, patch);
	all_cells(1, atoi(argv[1]), argc - 4, argv + 4);
	kill(receiver, SIGKILL);
	waitpid(receiver, NULL, 0);
	return 0;
}
