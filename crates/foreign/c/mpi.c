/* The C half of src/mpi.rs, built once for each MPI: the open requests of a process, in one table. */
#include <mpi.h>
#include <stddef.h>
#include <string.h>

enum { SLOTS = 64 };

static MPI_Request requests[SLOTS];

/* Returns 0, or -1 if this MPI cannot be called by several threads at a time. */
int foreign_mpi_open(void)
{
	int provided;

	for (int i = 0; i < SLOTS; i++)
		requests[i] = MPI_REQUEST_NULL;
	if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
		return -1;
	return provided == MPI_THREAD_MULTIPLE ? 0 : -1;
}

void foreign_mpi_close(void)
{
	MPI_Finalize();
}

int foreign_mpi_rank(void)
{
	int rank;

	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	return rank;
}

/* Writes a line with the name and version of the library. Returns its length. */
int foreign_mpi_version(char *text, int room)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(version, &length);
	length = (int)strcspn(version, ",\n");
	length = length < room ? length : room;
	memcpy(text, version, (size_t)length);
	return length;
}

static MPI_Request *free_slot(void)
{
	for (int i = 0; i < SLOTS; i++)
		if (requests[i] == MPI_REQUEST_NULL)
			return &requests[i];
	return NULL;
}

/* Starts a send. Returns the slot of its request, or -1. */
int foreign_mpi_send(const void *bytes, int length, int peer, int tag)
{
	MPI_Request *slot = free_slot();

	if (!slot || MPI_Isend(bytes, length, MPI_BYTE, peer, tag, MPI_COMM_WORLD, slot) != MPI_SUCCESS)
		return -1;
	return (int)(slot - requests);
}

/* Starts a receive. Returns the slot of its request, or -1. */
int foreign_mpi_receive(void *bytes, int length, int peer, int tag)
{
	MPI_Request *slot = free_slot();

	if (!slot || MPI_Irecv(bytes, length, MPI_BYTE, peer, tag, MPI_COMM_WORLD, slot) != MPI_SUCCESS)
		return -1;
	return (int)(slot - requests);
}

/* Makes progress. Writes the slots of requests that have completed, up to 64, and frees them. Returns their number, or -1. */
int foreign_mpi_poll(int *slots)
{
	MPI_Status statuses[SLOTS];
	int count;

	if (MPI_Testsome(SLOTS, requests, &count, slots, statuses) != MPI_SUCCESS)
		return -1;
	return count == MPI_UNDEFINED ? 0 : count;
}
