/*
 * One round of long messages, for `pronto-bench bulk`. The sender's messages are in memory of the program, and go into buffers that the
 * receiver has posted. The receiver adds up every byte of a buffer, posts the buffer again, and answers with the sum, which the sender
 * compares. Each cell is an argument `SIZE:OPEN`: messages of SIZE bytes, OPEN of them under way, from OPEN buffers into OPEN buffers.
 * bench/src/bulk/round.rs in Pronto has the format of the output.
 *
 * A program defines the four functions that are declared below, and calls `all_cells` on both sides.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	MOST_OPEN = 16,   /* messages under way */
	NUMBER = 8,       /* place of the number of a message */
	PAGE = 4096,      /* alignment of buffers */
	READ = 1 << 20,   /* bytes of the buffer of which the sums alone are timed */
	READ_TIMES = 16   /* number of these sums */
};

/* Posts a receive for the next message of the other side, of at most `length` bytes. */
static void post(int slot, void *bytes, size_t length);
/* Waits for the message of a posted receive, and returns its length. */
static size_t take(int slot);
/* Starts to send a message. */
static void transmit(int slot, const void *bytes, size_t length);
/* Waits until the bytes of a started message may change; returns immediately if none was started. */
static void settle(int slot);

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

/* Two words, of which baseline instructions add both with one. */
typedef uint64_t pair __attribute__((vector_size(16)));

/* Returns the wrapping sum of the words of `bytes`, whose length is a multiple of 64, in eight lanes: bench/src/bulk/sum.rs. */
static uint64_t add_up(const unsigned char *bytes, size_t length)
{
	pair a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 }, words[4];

	/* Four variables, because a compiler without -O3 keeps an array of lanes in memory, and then takes four times as long. */
	for (size_t at = 0; at < length; at += sizeof words) {
		memcpy(words, bytes + at, sizeof words);
		a += words[0];
		b += words[1];
		c += words[2];
		d += words[3];
	}
	a += b + c + d;
	return a[0] + a[1];
}

/* The current cell. */
static size_t size;
static int open_slots;
static unsigned char *buffers;
static uint64_t sums[MOST_OPEN], answers[MOST_OPEN];
static uint64_t sent, answered;

static void start_message(void)
{
	int slot = (int)(sent % (uint64_t)open_slots);
	unsigned char *message = buffers + (size_t)slot * size;

	/* The number of the message makes each sum another one, so that the sum of an earlier message is wrong. */
	memcpy(message + NUMBER, &sent, sizeof sent);
	post(slot, &answers[slot], sizeof answers[slot]);
	transmit(slot, message, size);
	sent++;
}

static void finish_message(void)
{
	int slot = (int)(answered % (uint64_t)open_slots);

	if (take(slot) != sizeof answers[slot] || answers[slot] != sums[slot] + answered)
		fail("a comparison of a sum with the message");
	settle(slot);
	answered++;
}

/* Sends at least `least` messages, and until `budget` is over. Returns their number. */
static uint64_t pass(uint64_t least, int64_t budget)
{
	uint64_t first = sent;
	int64_t started = now_ns();

	while (sent - first < least || now_ns() - started < budget) {
		if (sent - answered == (uint64_t)open_slots)
			finish_message();
		start_message();
	}
	while (answered < sent)
		finish_message();
	return sent - first;
}

static void send_cell(int64_t budget)
{
	for (int slot = 0; slot < open_slots; slot++) {
		unsigned char *message = buffers + (size_t)slot * size;
		for (size_t at = 0; at < size; at++)
			message[at] = (unsigned char)(at * 7 + at / 4096 + (size_t)slot);
		memset(message + NUMBER, 0, sizeof sent);
		sums[slot] = add_up(message, size);
	}
	sent = answered = 0;
	/* The receiver has posted its buffers. */
	post(0, &answers[0], sizeof answers[0]);
	take(0);
	pass(2 * (uint64_t)open_slots, 0);
	int64_t started = now_ns();
	uint64_t count = pass(2 * (uint64_t)open_slots, budget);
	printf("cell %zu %d %llu %lld\n", size, open_slots, (unsigned long long)count, (long long)(now_ns() - started));
	/* The end: an empty message for each posted buffer. */
	for (int i = 0; i < open_slots; i++) {
		int slot = (int)(sent++ % (uint64_t)open_slots);
		transmit(slot, buffers, 0);
		settle(slot);
	}
}

static void receive_cell(void)
{
	for (int slot = 0; slot < open_slots; slot++)
		post(slot, buffers + (size_t)slot * size, size);
	transmit(0, &answers[0], sizeof answers[0]);
	settle(0);
	for (uint64_t i = 0, ended = 0; ended < (uint64_t)open_slots; i++) {
		int slot = (int)(i % (uint64_t)open_slots);
		unsigned char *message = buffers + (size_t)slot * size;
		size_t length = take(slot);
		if (length == 0) {
			ended++;
			continue;
		}
		if (length != size)
			fail("the length of a message");
		uint64_t sum = add_up(message, length);
		post(slot, message, size);
		settle(slot);
		answers[slot] = sum;
		transmit(slot, &answers[slot], sizeof answers[slot]);
	}
	for (int slot = 0; slot < open_slots; slot++)
		settle(slot);
}

/* Times the sums alone, so that their speed can be compared with that of Pronto's receiver. */
static void time_reading(void)
{
	unsigned char *bytes = aligned_alloc(PAGE, READ);
	uint64_t sum = 0;
	int64_t fastest = INT64_MAX;

	memset(bytes, 7, READ);
	for (int i = 0; i < READ_TIMES; i++) {
		/* The compiler must take the bytes for changed, and the sum for used. */
		__asm__ volatile("" : : "r"(bytes) : "memory");
		int64_t started = now_ns();
		sum += add_up(bytes, READ);
		__asm__ volatile("" : : "r"(sum));
		int64_t took = now_ns() - started;
		fastest = took < fastest ? took : fastest;
	}
	printf("read %d %lld\n", READ, (long long)fastest);
	free(bytes);
}

/* Makes all cells; both sides have the same ones, in the same order. */
static void all_cells(int sends, int64_t budget_ms, int count, char **cells)
{
	if (sends)
		time_reading();
	for (int i = 0; i < count; i++) {
		if (sscanf(cells[i], "%zu:%d", &size, &open_slots) != 2 || size == 0 || size % 64 || open_slots < 1 ||
		    open_slots > MOST_OPEN)
			fail("an argument");
		buffers = aligned_alloc(PAGE, (size * (size_t)open_slots + PAGE - 1) / PAGE * PAGE);
		if (!buffers)
			fail("allocating");
		memset(buffers, 1, size * (size_t)open_slots);
		if (sends)
			send_cell(budget_ms * 1000000);
		else
			receive_cell();
		free(buffers);
	}
	fflush(stdout);
}
