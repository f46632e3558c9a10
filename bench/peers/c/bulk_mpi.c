/* Open MPI, long messages between two ranks. `mpirun -np 2 bulk_mpi ROUND_MS SENDER_CPU RECEIVER_CPU SIZE:OPEN...`. */
#include "bulk.h"

#include <mpi.h>

static int other;
static MPI_Request sends[MOST_OPEN], receives[MOST_OPEN];

static void post(int slot, void *bytes, size_t length)
{
	MPI_Irecv(bytes, (int)length, MPI_BYTE, other, 0, MPI_COMM_WORLD, &receives[slot]);
}

static size_t take(int slot)
{
	MPI_Status status;
	int length;
	MPI_Wait(&receives[slot], &status);
	MPI_Get_count(&status, MPI_BYTE, &length);
	return (size_t)length;
}

static void transmit(int slot, const void *bytes, size_t length)
{
	MPI_Isend(bytes, (int)length, MPI_BYTE, other, 0, MPI_COMM_WORLD, &sends[slot]);
}

static void settle(int slot)
{
	MPI_Wait(&sends[slot], MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 5 || ranks != 2)
		fail("starting");
	other = 1 - rank;
	for (int slot = 0; slot < MOST_OPEN; slot++)
		sends[slot] = receives[slot] = MPI_REQUEST_NULL;
	pin(argv[2 + rank]);
	if (rank == 0) {
		char version[MPI_MAX_LIBRARY_VERSION_STRING];
		int length;
		MPI_Get_library_version(version, &length);
		version[strcspn(version, ",")] = 0;
		printf("version %s\n", version);
	}
	all_cells(rank == 0, atoi(argv[1]), argc - 4, argv + 4);
	MPI_Finalize();
	return 0;
}
