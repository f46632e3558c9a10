/* The C half of src/ucx.rs: a UCX worker with one peer, whose messages are active messages of one kind. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

enum { MESSAGE = 1 }; /* id of the active messages */

/* Called for each message, within foreign_ucx_progress. */
typedef void (*arrived_fn)(void *user, const void *bytes, size_t length, int rendezvous);

struct worker {
	ucp_context_h context;
	ucp_worker_h ucp;
	ucp_address_t *address;
	size_t address_length;
	ucp_ep_h peer; /* NULL without one */
	arrived_fn arrived;
	void *user;
	atomic_uint unsent;
};

/* A message on its way out. */
struct departure {
	struct worker *worker;
	unsigned char bytes[];
};

/* A message whose bytes are on their way into memory of its own. */
struct transfer {
	struct worker *worker;
	size_t length;
	unsigned char bytes[];
};

static void fetched(void *request, ucs_status_t status, size_t length, void *user)
{
	struct transfer *transfer = user;

	if (status == UCS_OK)
		transfer->worker->arrived(transfer->worker->user, transfer->bytes, length, 1);
	if (request)
		ucp_request_free(request);
	free(transfer);
}

static ucs_status_t on_message(void *arg, const void *header, size_t header_length, void *data, size_t length,
			       const ucp_am_recv_param_t *param)
{
	struct worker *worker = arg;
	struct transfer *transfer;
	ucs_status_ptr_t request;

	(void)header, (void)header_length;
	if (!(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV)) {
		worker->arrived(worker->user, data, length, 0);
		return UCS_OK;
	}
	transfer = malloc(sizeof *transfer + length);
	if (!transfer)
		return UCS_ERR_NO_MEMORY;
	transfer->worker = worker;
	transfer->length = length;
	ucp_request_param_t receive = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_RECV_INFO,
		.cb.recv_am = fetched,
		.user_data = transfer,
		.recv_info.length = &transfer->length,
	};
	request = ucp_am_recv_data_nbx(worker->ucp, data, transfer->bytes, length, &receive);
	if (UCS_PTR_IS_ERR(request)) {
		free(transfer);
		return UCS_PTR_STATUS(request);
	}
	if (!request)
		fetched(NULL, UCS_OK, transfer->length, transfer);
	return UCS_INPROGRESS;
}

/* Returns a thread-safe worker that can wake a sleeping thread, or NULL. */
struct worker *foreign_ucx_open(arrived_fn arrived, void *user)
{
	struct worker *worker = calloc(1, sizeof *worker);
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP };
	ucp_worker_params_t threads = { .field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
					.thread_mode = UCS_THREAD_MODE_MULTI };
	ucp_worker_attr_t attributes = { .field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE };
	ucp_am_handler_param_t handler = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
			      UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = MESSAGE,
		.cb = on_message,
		.arg = worker,
	};

	if (!worker)
		return NULL;
	worker->arrived = arrived;
	worker->user = user;
	if (ucp_init(&params, NULL, &worker->context) != UCS_OK)
		goto no_context;
	if (ucp_worker_create(worker->context, &threads, &worker->ucp) != UCS_OK)
		goto no_worker;
	/* A UCX that was built without threads creates a worker for one thread. */
	if (ucp_worker_query(worker->ucp, &attributes) != UCS_OK || attributes.thread_mode != UCS_THREAD_MODE_MULTI)
		goto no_address;
	if (ucp_worker_set_am_recv_handler(worker->ucp, &handler) != UCS_OK)
		goto no_address;
	if (ucp_worker_get_address(worker->ucp, &worker->address, &worker->address_length) != UCS_OK)
		goto no_address;
	return worker;
no_address:
	ucp_worker_destroy(worker->ucp);
no_worker:
	ucp_cleanup(worker->context);
no_context:
	free(worker);
	return NULL;
}

void foreign_ucx_close(struct worker *worker)
{
	if (worker->peer) {
		ucp_request_param_t force = { .op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
					      .flags = UCP_EP_CLOSE_FLAG_FORCE };
		ucs_status_ptr_t request = ucp_ep_close_nbx(worker->peer, &force);
		if (UCS_PTR_IS_PTR(request)) {
			while (ucp_request_check_status(request) == UCS_INPROGRESS)
				ucp_worker_progress(worker->ucp);
			ucp_request_free(request);
		}
	}
	ucp_worker_release_address(worker->ucp, worker->address);
	ucp_worker_destroy(worker->ucp);
	ucp_cleanup(worker->context);
	free(worker);
}

const void *foreign_ucx_address(struct worker *worker, size_t *length)
{
	*length = worker->address_length;
	return worker->address;
}

int foreign_ucx_connect(struct worker *worker, const void *address)
{
	ucp_ep_params_t params = { .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, .address = address };

	return ucp_ep_create(worker->ucp, &params, &worker->peer) == UCS_OK ? 0 : -1;
}

static void sent(void *request, ucs_status_t status, void *user)
{
	struct departure *departure = user;

	(void)status;
	ucp_request_free(request);
	departure->worker->unsent--;
	free(departure);
}

/* Sends a copy of the bytes. Returns 0 if the message has left, 1 if it needs more progress, -1 after a failure. */
int foreign_ucx_send(struct worker *worker, const void *bytes, size_t length)
{
	struct departure *departure = malloc(sizeof *departure + length);
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = sent,
		.user_data = departure,
	};
	ucs_status_ptr_t request;

	if (!departure)
		return -1;
	departure->worker = worker;
	memcpy(departure->bytes, bytes, length);
	/* Counted first: another thread may complete the message before this one returns. */
	worker->unsent++;
	request = ucp_am_send_nbx(worker->peer, MESSAGE, NULL, 0, departure->bytes, length, &param);
	if (UCS_PTR_IS_PTR(request)) {
		/* A thread that sleeps on the descriptor must progress the message and arm the worker again. */
		ucp_worker_signal(worker->ucp);
		return 1;
	}
	worker->unsent--;
	free(departure);
	return request ? -1 : 0;
}

/* Returns the number of messages that need more progress to leave. */
unsigned foreign_ucx_unsent(struct worker *worker)
{
	return worker->unsent;
}

/* Processes the available events. Returns their number. */
unsigned foreign_ucx_progress(struct worker *worker)
{
	return ucp_worker_progress(worker->ucp);
}

/* Requests that the next event makes the descriptor readable. Returns 0 if it will, 1 if there is an event already, -1 after a failure. */
int foreign_ucx_arm(struct worker *worker)
{
	switch (ucp_worker_arm(worker->ucp)) {
	case UCS_OK:
		return 0;
	case UCS_ERR_BUSY:
		return 1;
	default:
		return -1;
	}
}

/* Returns the descriptor to sleep on, or -1. */
int foreign_ucx_descriptor(struct worker *worker)
{
	int descriptor;

	return ucp_worker_get_efd(worker->ucp, &descriptor) == UCS_OK ? descriptor : -1;
}

/* Makes the descriptor readable. Returns -1 after a failure. */
int foreign_ucx_signal(struct worker *worker)
{
	return ucp_worker_signal(worker->ucp) == UCS_OK ? 0 : -1;
}
