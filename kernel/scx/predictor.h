/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The predictor and the weight of crates/sched-policy (policy/frequency.rs, level.rs and weight.rs), for BPF. The test
 * crates/scx/tests/predictor.rs compiles this file for user space and compares it with those.
 *
 * The file that includes this one defines u32 and u64.
 */
#ifndef PRONTO_SCX_PREDICTOR_H
#define PRONTO_SCX_PREDICTOR_H

/* Bits of the fraction of a packet in a level, and in what a byte of a packet of 4096 adds. */
#define LEVEL_FRACTION 32
#define LEVEL_OF_BYTE 20

#define LEVEL_MOST (~0ULL)

/* Samples that are averaged before the formula begins. */
#define PREDICTOR_AVERAGED 4

#define MILLION 1000000ULL

/* Bounds of a weight, in hundredths of the one that the nice value gives. */
#define WEIGHT_LEAST 100
#define WEIGHT_MOST 1000

/* Priority of a process in the paper: this number of packets doubles its weight. */
#define PREDICTOR_PRIORITY 20

/* A step of a weight, in hundredths. */
#define PREDICTOR_STEP 5

/* The frequency of a process, and the weight that it gives. */
struct predictor {
	u64 level;
	u64 sum;
	u32 seen;
	u32 weight;
};

#define PREDICTOR_NEW ((struct predictor){ .weight = WEIGHT_LEAST })

static __attribute__((always_inline)) inline u64 level_plus(u64 one, u64 other)
{
	return one > LEVEL_MOST - other ? LEVEL_MOST : one + other;
}

/* Level of a queue: its bytes, and a packet for each message. */
static __attribute__((always_inline)) inline u64 level_of(u32 bytes, u32 messages)
{
	return level_plus((u64)bytes << LEVEL_OF_BYTE, (u64)messages << LEVEL_FRACTION);
}

/* Returns a share of a level. Neither product leaves 64 bits. */
static __attribute__((always_inline)) inline u64 level_share(u64 level, u32 millionths)
{
	return level / MILLION * millionths + level % MILLION * millionths / MILLION;
}

/* Adds a sample. `past` is the paper's P, in millionths. */
static __attribute__((always_inline)) inline void predictor_advance(struct predictor *predictor, u64 current, u32 past)
{
	if (past > MILLION)
		past = MILLION;
	if (predictor->seen >= PREDICTOR_AVERAGED) {
		predictor->level = level_plus(level_share(predictor->level, past), level_share(current, MILLION - past));
		return;
	}
	predictor->seen++;
	predictor->sum = level_plus(predictor->sum, current);
	predictor->level = predictor->sum / predictor->seen;
}

/* Sets the weight that follows from the frequency: at most `most`. It rises immediately, and falls by a whole step. */
static __attribute__((always_inline)) inline void predictor_weigh(struct predictor *predictor, u32 most)
{
	u64 level = predictor->level;
	u64 gained = (level > LEVEL_MOST / WEIGHT_LEAST ? LEVEL_MOST : level * WEIGHT_LEAST) / PREDICTOR_PRIORITY;
	u64 exact = (((u64)WEIGHT_LEAST << LEVEL_FRACTION) + gained) >> LEVEL_FRACTION;
	u64 stepped;

	if (exact > most)
		exact = most;
	stepped = exact == most ? most : exact / PREDICTOR_STEP * PREDICTOR_STEP;
	if (stepped < predictor->weight && exact + PREDICTOR_STEP > predictor->weight && predictor->weight <= most)
		return;
	predictor->weight = stepped;
}

#endif
