/* The C half of src/comm/mpi.rs: the functions of MPI that the jobs use, on MPI_COMM_WORLD. Each returns 0 or an error code of MPI. */
#include <mpi.h>

enum { MOST = 8 }; /* messages of an exchange, in each direction */

/* Kinds of a reduction: SumU32, SumF64, MaxF64. */
enum { SUM_U32, SUM_F64, MAX_F64 };

struct message {
	void *bytes;
	int length;
	int peer;
	int tag;
};

int jobs_mpi_open(int *rank, int *size)
{
	int code = MPI_Init(NULL, NULL);

	if (code == MPI_SUCCESS)
		code = MPI_Comm_rank(MPI_COMM_WORLD, rank);
	return code == MPI_SUCCESS ? MPI_Comm_size(MPI_COMM_WORLD, size) : code;
}

int jobs_mpi_close(void)
{
	return MPI_Finalize();
}

/* Ends all ranks. */
void jobs_mpi_abort(void)
{
	MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Sends and receives up to MOST messages each. Writes the lengths of the received ones. */
int jobs_mpi_exchange(const struct message *sends, int send_count, const struct message *receives, int receive_count,
		      int *lengths)
{
	MPI_Request requests[2 * MOST];
	MPI_Status statuses[2 * MOST];
	int code = MPI_SUCCESS;

	if (send_count > MOST || receive_count > MOST)
		return -1;
	for (int i = 0; i < receive_count && code == MPI_SUCCESS; i++)
		code = MPI_Irecv(receives[i].bytes, receives[i].length, MPI_BYTE, receives[i].peer, receives[i].tag,
				 MPI_COMM_WORLD, &requests[i]);
	for (int i = 0; i < send_count && code == MPI_SUCCESS; i++)
		code = MPI_Isend(sends[i].bytes, sends[i].length, MPI_BYTE, sends[i].peer, sends[i].tag, MPI_COMM_WORLD,
				 &requests[receive_count + i]);
	/* Open requests would use memory of the caller. */
	if (code != MPI_SUCCESS)
		MPI_Abort(MPI_COMM_WORLD, 1);
	code = MPI_Waitall(send_count + receive_count, requests, statuses);
	for (int i = 0; i < receive_count && code == MPI_SUCCESS; i++)
		code = MPI_Get_count(&statuses[i], MPI_BYTE, &lengths[i]);
	return code;
}

int jobs_mpi_allreduce(void *values, int count, int kind)
{
	MPI_Datatype type = kind == SUM_U32 ? MPI_UINT32_T : MPI_DOUBLE;

	return MPI_Allreduce(MPI_IN_PLACE, values, count, type, kind == MAX_F64 ? MPI_MAX : MPI_SUM, MPI_COMM_WORLD);
}

int jobs_mpi_all_to_all(const void *send, const int *send_counts, const int *send_offsets, void *receive,
			const int *receive_counts, const int *receive_offsets)
{
	return MPI_Alltoallv(send, send_counts, send_offsets, MPI_BYTE, receive, receive_counts, receive_offsets, MPI_BYTE,
			     MPI_COMM_WORLD);
}

int jobs_mpi_barrier(void)
{
	return MPI_Barrier(MPI_COMM_WORLD);
}
