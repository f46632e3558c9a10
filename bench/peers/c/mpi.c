/* Open MPI, send and receive between two ranks. `mpirun -np 2 mpi ROUND_MS CALLER_CPU SERVER_CPU`. */
#include "round.h"

#include <mpi.h>

enum { CALL, ANSWER, NOTE, SEEN, END };

static unsigned char payload[LONGEST_PAYLOAD], answers[WINDOW][LONGEST_PAYLOAD];

static void call(void)
{
	MPI_Send(payload, (int)size, MPI_BYTE, 1, CALL, MPI_COMM_WORLD);
	MPI_Recv(answers[0], (int)size, MPI_BYTE, 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	check(answers[0]);
}

static void load(int calls)
{
	static MPI_Request sends[WINDOW], receives[WINDOW];
	for (int i = 0; i < calls + WINDOW; i++) {
		int slot = i % WINDOW;
		if (i >= WINDOW) {
			MPI_Wait(&receives[slot], MPI_STATUS_IGNORE);
			MPI_Wait(&sends[slot], MPI_STATUS_IGNORE);
			check(answers[slot]);
		}
		if (i < calls) {
			MPI_Irecv(answers[slot], PAYLOAD, MPI_BYTE, 1, ANSWER, MPI_COMM_WORLD, &receives[slot]);
			MPI_Isend(payload, PAYLOAD, MPI_BYTE, 1, CALL, MPI_COMM_WORLD, &sends[slot]);
		}
	}
}

static void stream(int messages)
{
	for (int i = 0; i < messages; i++)
		MPI_Send(payload, PAYLOAD, MPI_BYTE, 1, i + 1 < messages ? NOTE : SEEN, MPI_COMM_WORLD);
	MPI_Recv(answers[0], 0, MPI_BYTE, 1, SEEN, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void serve(void)
{
	static unsigned char bytes[LONGEST_PAYLOAD];
	MPI_Status status;
	int length;
	for (;;) {
		MPI_Recv(bytes, LONGEST_PAYLOAD, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
		MPI_Get_count(&status, MPI_BYTE, &length);
		if (status.MPI_TAG == END)
			return;
		if (status.MPI_TAG == CALL)
			MPI_Send(bytes, length, MPI_BYTE, 0, ANSWER, MPI_COMM_WORLD);
		else if (status.MPI_TAG == SEEN)
			MPI_Send(bytes, 0, MPI_BYTE, 0, SEEN, MPI_COMM_WORLD);
	}
}

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc != 4 || ranks != 2)
		fail("starting");
	memset(payload, BYTE, sizeof payload);
	pin(argv[2 + rank]);
	if (rank == 1) {
		serve();
	} else {
		char version[MPI_MAX_LIBRARY_VERSION_STRING];
		int length;
		MPI_Get_library_version(version, &length);
		version[strcspn(version, ",")] = 0;
		printf("version %s\n", version);
		round_of(atoi(argv[1]), call, load, stream);
		MPI_Send(payload, 0, MPI_BYTE, 1, END, MPI_COMM_WORLD);
	}
	MPI_Finalize();
	return 0;
}
