/*
 * One round: single calls, calls with several open, and, if the library has them, one-way messages; printed for `pronto-bench peers`
 * in the format that bench/peers/src/main.rs describes. The instrument is that of Pronto's experiments: a short warm-up, calls timed
 * singly, then batches of about 100 us between two clock readings.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	WINDOW = 32,      /* open requests under load */
	PAYLOAD = 32,     /* length of requests and replies under load, bytes */
	LONGEST_PAYLOAD = 65536,
	BYTE = 7,         /* value of each byte */
	WARM_UP = 32,
	BATCH_NS = 100000,
	AT_A_TIME = 2000, /* calls of a load between two clock readings */
	LONGEST = 1 << 20 /* longest recorded call, ns */
};

/* Lengths of single calls after the first ones, which have PAYLOAD bytes. */
static const int more_sizes[] = { 224, 4096, 65536 };

/* Length of the current calls. */
static size_t size = PAYLOAD;

static void fail(const char *what)
{
	fprintf(stderr, "%s failed\n", what);
	exit(1);
}

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void pin(const char *cpu)
{
	cpu_set_t only;
	CPU_ZERO(&only);
	CPU_SET(atoi(cpu), &only);
	if (sched_setaffinity(0, sizeof only, &only))
		fail("pinning");
}

/* An echo is compared at both ends: a comparison of all bytes of a page would take as long as a copy. */
static void check(const unsigned char *bytes)
{
	for (size_t at = 0; at < PAYLOAD; at++)
		if (bytes[at] != BYTE || bytes[size - 1 - at] != BYTE)
			fail("an echo differs from what was sent, which");
}

/* Makes single calls for some time. */
static void singly(int64_t budget, void (*call)(void))
{
	static uint32_t counts[LONGEST + 1];
	int64_t started, before, median = 0;
	uint64_t calls = 0, below = 0;

	memset(counts, 0, sizeof counts);
	for (int i = 0; i < WARM_UP; i++)
		call();
	started = now_ns();
	while (now_ns() - started < budget / 2) {
		before = now_ns();
		call();
		int64_t took = now_ns() - before;
		counts[took > LONGEST ? LONGEST : took]++;
		calls++;
	}
	while (below * 2 < calls)
		below += counts[median++];
	int64_t batch = BATCH_NS / median + 1;
	while (now_ns() - started < budget) {
		before = now_ns();
		for (int64_t i = 0; i < batch; i++)
			call();
		printf("batch %lld %lld\n", (long long)batch, (long long)(now_ns() - before));
	}
	for (int ns = 0; ns <= LONGEST; ns++)
		if (counts[ns])
			printf("single %d %u\n", ns, counts[ns]);
}

/* `call` makes one call; `load` makes a number of calls with WINDOW of them open; `stream` (or NULL) sends one-way messages. */
static void round_of(int64_t budget_ms, void (*call)(void), void (*load)(int), void (*stream)(int))
{
	int64_t part = budget_ms * 1000000 / (stream ? 3 : 2);
	int64_t started;
	uint64_t calls;

	singly(part, call);
	for (int kind = 0; kind < (stream ? 2 : 1); kind++) {
		void (*many)(int) = kind ? stream : load;
		many(AT_A_TIME);
		calls = 0;
		started = now_ns();
		while (now_ns() - started < part) {
			many(AT_A_TIME);
			calls += AT_A_TIME;
		}
		printf("%s %llu %lld\n", kind ? "stream" : "load", (unsigned long long)calls,
		       (long long)(now_ns() - started));
	}
	for (size_t i = 0; i < sizeof more_sizes / sizeof *more_sizes; i++) {
		size = more_sizes[i];
		printf("size %zu\n", size);
		singly(part / 2, call);
	}
	fflush(stdout);
}
