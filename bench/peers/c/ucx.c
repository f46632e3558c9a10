/*
 * UCX with active messages, or with tagged ones that match posted receives. `ucx am|place|tag ROUND_MS CALLER_CPU SERVER_CPU`; transports
 * and settings come from UCX's environment variables. With `am` each side copies the payload to memory of its own; with `place` the server
 * replies straight from the receive buffer, and the caller reads every byte there.
 */
#include "round.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

enum { CALL, ANSWER, NOTE, SEEN, KINDS }; /* ids, or tags, of messages */
enum { EAGER = 8192 - 256 }; /* longest payload that is copied while it is sent */
enum { UNSEEN = 8192, REPORT = 2048 }; /* most unreported one-way messages; messages between two reports */

static ucp_worker_h worker;
static ucp_ep_h peer;
static unsigned char payload[LONGEST_PAYLOAD];
static uint64_t answered, sent, noted, seen, notes;
static int tagged, in_place;

/* A receive buffer. A message that is sent from it keeps it until the send has completed. */
struct buffer {
	struct buffer *next;
	unsigned kind;
	_Alignas(64) unsigned char bytes[LONGEST_PAYLOAD];
};

/* Buffers that are neither posted nor in use. Those of tagged messages are posted again immediately, by the outermost call. */
static struct buffer *unused;
static int posting;

/* Uses a receive buffer again. */
static void give_back(struct buffer *buffer);

static void sent_cb(void *request, ucs_status_t status, void *user)
{
	if (status != UCS_OK)
		fail("a send");
	ucp_request_free(request);
	if (user)
		give_back(user);
}

/* Sends a message, from a receive buffer unless `from` is NULL. */
static void send_message(unsigned kind, const void *bytes, size_t length, struct buffer *from)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = sent_cb,
		.user_data = from,
	};
	ucs_status_ptr_t request = tagged ? ucp_tag_send_nbx(peer, bytes, length, kind, &param)
					  : ucp_am_send_nbx(peer, kind, NULL, 0, bytes, length, &param);
	if (UCS_PTR_IS_ERR(request))
		fail("a send");
	if (!request && from)
		give_back(from);
}

/* Reads every byte. */
static void read_all(const unsigned char *bytes, size_t length)
{
	uint64_t sum = 0, word;

	for (size_t at = 0; at + sizeof word <= length; at += sizeof word) {
		memcpy(&word, bytes + at, sizeof word);
		sum += word;
	}
	/* The compiler must take the sum for used. */
	__asm__ volatile("" : : "r"(sum));
}

/* A message has arrived. */
static void take(unsigned kind, const void *bytes, size_t length, struct buffer *in)
{
	if (kind == SEEN ? length != sizeof seen : kind == NOTE && length != PAYLOAD)
		fail("the length of a message");
	switch (kind) {
	case CALL:
		send_message(ANSWER, bytes, length, in);
		return;
	case ANSWER:
		if (length != size)
			fail("the length of a reply");
		check(bytes);
		answered++;
		break;
	case NOTE:
		if (++notes % REPORT == 0)
			send_message(SEEN, &notes, sizeof notes, NULL);
		break;
	default:
		memcpy(&seen, bytes, sizeof seen);
	}
	if (in)
		give_back(in);
}

/* A long active message was received into a buffer. */
static void whole_cb(void *request, ucs_status_t status, size_t length, void *user)
{
	struct buffer *buffer = user;

	if (status != UCS_OK)
		fail("a receive");
	ucp_request_free(request);
	take(buffer->kind, buffer->bytes, length, buffer);
}

static struct buffer *unused_buffer(unsigned kind)
{
	struct buffer *buffer = unused;

	if (!buffer)
		fail("finding a buffer");
	unused = buffer->next;
	buffer->kind = kind;
	return buffer;
}

/* Receives a message of which only the announcement has arrived. */
static ucs_status_t fetch(unsigned kind, void *descriptor, size_t length)
{
	struct buffer *buffer = unused_buffer(kind);
	size_t received;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_RECV_INFO,
		.cb.recv_am = whole_cb,
		.user_data = buffer,
		.recv_info.length = &received,
	};
	ucs_status_ptr_t request = ucp_am_recv_data_nbx(worker, descriptor, buffer->bytes, length, &param);

	if (UCS_PTR_IS_ERR(request))
		fail("a receive");
	if (!request)
		take(kind, buffer->bytes, length, buffer);
	return UCS_INPROGRESS;
}

static ucs_status_t on_am(void *kind, const void *header, size_t header_length, void *data, size_t length,
			  const ucp_am_recv_param_t *param)
{
	unsigned what = (unsigned)(uintptr_t)kind;

	(void)header, (void)header_length;
	if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)
		return fetch(what, data, length);
	/* A reply must not be sent from here if it is too long to be copied while it is sent. */
	if ((what == CALL && (!in_place || length > EAGER)) || (what == ANSWER && !in_place)) {
		struct buffer *buffer = unused_buffer(what);
		memcpy(buffer->bytes, data, length);
		take(what, buffer->bytes, length, buffer);
		return UCS_OK;
	}
	if (what == ANSWER)
		read_all(data, length);
	take(what, data, length, NULL);
	return UCS_OK;
}

static void post(struct buffer *buffer);

static void received_cb(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info, void *user)
{
	struct buffer *buffer = user;

	if (status != UCS_OK)
		fail("a receive");
	ucp_request_free(request);
	take(buffer->kind, buffer->bytes, info->length, buffer);
}

static void give_back(struct buffer *buffer)
{
	buffer->next = unused;
	unused = buffer;
	if (!tagged || posting)
		return;
	for (posting = 1; unused;) {
		buffer = unused;
		unused = buffer->next;
		post(buffer);
	}
	posting = 0;
}

static void post(struct buffer *buffer)
{
	ucp_tag_recv_info_t info;
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_RECV_INFO,
		.cb.recv = received_cb,
		.user_data = buffer,
		.recv_info.tag_info = &info,
	};
	ucs_status_ptr_t request = ucp_tag_recv_nbx(worker, buffer->bytes, LONGEST_PAYLOAD, buffer->kind,
						    UINT64_MAX, &param);
	if (UCS_PTR_IS_ERR(request))
		fail("posting a receive");
	/* Without a request, the message had arrived already. */
	if (!request)
		take(buffer->kind, buffer->bytes, info.length, buffer);
}

static void receive_am(unsigned kind)
{
	ucp_am_handler_param_t param = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
			      UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = kind,
		.cb = on_am,
		.arg = (void *)(uintptr_t)kind,
	};
	if (ucp_worker_set_am_recv_handler(worker, &param) != UCS_OK)
		fail("a handler");
}

static void receive_tagged(unsigned kind)
{
	static struct buffer buffers[KINDS][WINDOW];

	for (int i = 0; i < WINDOW; i++) {
		buffers[kind][i].kind = kind;
		give_back(&buffers[kind][i]);
	}
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
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				.features = tagged ? UCP_FEATURE_TAG : UCP_FEATURE_AM };
	ucp_worker_params_t worker_params = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					      .thread_mode = UCS_THREAD_MODE_SINGLE };
	ucp_context_h context;
	ucp_address_t *mine;
	size_t mine_length, length;

	if (ucp_init(&params, NULL, &context) != UCS_OK)
		fail("ucp_init");
	if (ucp_worker_create(context, &worker_params, &worker) != UCS_OK)
		fail("ucp_worker_create");
	for (unsigned kind = 0; kind < KINDS && !tagged; kind++)
		receive_am(kind);
	for (int i = 0; i < 2 * WINDOW && !tagged; i++)
		give_back(aligned_alloc(64, sizeof(struct buffer)));
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
	for (unsigned kind = 0; kind < KINDS && tagged; kind++)
		receive_tagged(kind);
}

static void call(void)
{
	uint64_t before = answered;
	send_message(CALL, payload, size, NULL);
	while (answered == before)
		ucp_worker_progress(worker);
}

static void load(int calls)
{
	uint64_t first = answered;
	for (sent = answered; answered - first < (uint64_t)calls;) {
		while (sent - first < (uint64_t)calls && sent - answered < WINDOW) {
			send_message(CALL, payload, PAYLOAD, NULL);
			sent++;
		}
		ucp_worker_progress(worker);
	}
}

static void stream(int messages)
{
	for (int i = 0; i < messages; i++) {
		while (noted - seen >= UNSEEN)
			ucp_worker_progress(worker);
		send_message(NOTE, payload, PAYLOAD, NULL);
		noted++;
		if (i % 16 == 0)
			ucp_worker_progress(worker);
	}
}

int main(int argc, char **argv)
{
	int sockets[2];
	unsigned major, minor, patch;

	if (argc != 5 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		fail("starting");
	tagged = strcmp(argv[1], "tag") == 0;
	in_place = strcmp(argv[1], "place") == 0;
	memset(payload, BYTE, sizeof payload);
	pid_t server = fork();
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pin(argv[4]);
		connect_over(sockets[1]);
		for (;;)
			ucp_worker_progress(worker);
	}
	pin(argv[3]);
	connect_over(sockets[0]);
	ucp_get_version(&major, &minor, &patch);
	printf("version UCX %u.%u.%u\n", major, minor, patch);
	round_of(atoi(argv[2]), call, load, stream);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	return 0;
}
