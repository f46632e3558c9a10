/* MPI: a message sent while its receiver computes. `mpirun -np 2 overlap COMPUTE_MS TIMES SENDER_CPU RECEIVER_CPU SIZE...`.
 *
 * Prints `version TEXT`, then for each size and repetition a line
 * `SIZE alone|beside SEND_US WAIT_US COMPUTE_US LAST_BYTE_BEFORE_COMPUTE_END COMPUTE_ALONE_US`. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GO, DATA, FIGURES };

static double now_us(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static volatile uint64_t sink;

static void compute(uint64_t steps)
{
	uint64_t value = 0x9e3779b97f4a7c15;
	for (uint64_t i = 0; i < steps; i++) {
		value ^= value << 13;
		value ^= value >> 7;
		value ^= value << 17;
		__asm__ volatile("" : "+r"(value));
	}
	sink = value;
}

static uint64_t steps_for(double us)
{
	const uint64_t trial = 4000000;
	double fastest = 1e18;
	for (int i = 0; i < 5; i++) {
		double since = now_us();
		compute(trial);
		double took = now_us() - since;
		fastest = took < fastest ? took : fastest;
	}
	return us / fastest * trial;
}

static void pin(const char *cpu)
{
	cpu_set_t only;
	CPU_ZERO(&only);
	CPU_SET(atoi(cpu), &only);
	if (sched_setaffinity(0, sizeof only, &only)) {
		perror("pinning");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static void receive(unsigned char *buffer, int size, uint64_t steps, int beside, unsigned char mark)
{
	double figures[4] = {0};
	MPI_Request request;
	double since = now_us();
	if (!beside) {
		/* So that a message alone finds the caches as cold as in Pronto's repetitions. */
		compute(steps);
		figures[3] = now_us() - since;
	}
	MPI_Irecv(buffer, size, MPI_BYTE, 0, DATA, MPI_COMM_WORLD, &request);
	MPI_Send(NULL, 0, MPI_BYTE, 0, GO, MPI_COMM_WORLD);
	since = now_us();
	if (beside)
		compute(steps);
	figures[1] = now_us() - since;
	figures[2] = ((volatile unsigned char *)buffer)[size - 1] == mark;
	since = now_us();
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	figures[0] = now_us() - since;
	if (buffer[size - 1] != mark) {
		fprintf(stderr, "a message of %d bytes is not whole\n", size);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	MPI_Send(figures, 4, MPI_DOUBLE, 0, FIGURES, MPI_COMM_WORLD);
}

static void send(unsigned char *buffer, int size, int beside, int print)
{
	double figures[4];
	MPI_Recv(NULL, 0, MPI_BYTE, 1, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	double since = now_us();
	MPI_Send(buffer, size, MPI_BYTE, 1, DATA, MPI_COMM_WORLD);
	double took = now_us() - since;
	MPI_Recv(figures, 4, MPI_DOUBLE, 1, FIGURES, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (print) {
		printf("%d %s %f %f %f %d %f\n", size, beside ? "beside" : "alone", took, figures[0], figures[1],
		       figures[2] != 0, figures[3]);
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	int rank, ranks;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (argc < 6 || ranks != 2) {
		fprintf(stderr, "starting: %d arguments, %d ranks\n", argc, ranks);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	pin(argv[3 + rank]);
	int times = atoi(argv[2]);
	uint64_t steps = rank == 1 ? steps_for(atof(argv[1]) * 1e3) : 0;
	if (rank == 0) {
		char version[MPI_MAX_LIBRARY_VERSION_STRING];
		int length;
		MPI_Get_library_version(version, &length);
		version[strcspn(version, ",\n")] = 0;
		printf("version %s\n", version);
		fflush(stdout);
	}
	unsigned char mark = 1;
	for (int arg = 5; arg < argc; arg++) {
		int size = atoi(argv[arg]);
		unsigned char *buffer = malloc(size);
		memset(buffer, 0, size);
		/* The first message prepares memory on both sides. */
		for (int i = -1; i < times * 2; i++) {
			int beside = i >= 0 && i % 2 == 1;
			mark = mark == 255 ? 1 : mark + 1;
			if (rank == 0) {
				buffer[size - 1] = mark;
				send(buffer, size, beside, i >= 0);
			} else {
				receive(buffer, size, steps, beside, mark);
			}
		}
		free(buffer);
	}
	MPI_Finalize();
	return 0;
}
