/* SPDX-License-Identifier: MIT */
/*
 * When it was by the wall clock as the machine's clock showed something.
 *
 * The machine's clock counts what simulated calls take, so that traces repeat. What a program
 * writes down by itself, such as PyTorch's history, is by the wall clock. The machine notes both
 * after each request that its clock has moved with, and at each mark of a stage, where the process
 * that marks says what its clock showed: so each of its entries lies on one side of the mark.
 */
#ifndef RVL_SIMCUDA_TIMES_H
#define RVL_SIMCUDA_TIMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct rvli_times {
    struct rvli_time {
        uint64_t ns; /* the machine's */
        int64_t us;  /* the wall's, since 1970 */
    } * list; /* ns never falls; us does between processes' marks, by what they need to come */
    size_t count, capacity;
    uint64_t step_ns; /* nearer ones are left out: more than 0 once there are very many */
} rvli_times;

/* Notes the wall clock, if the machine's has moved. Where there is no memory, nothing is noted. */
void rvli_times_note(rvli_times *times, uint64_t ns);

/* Notes what the wall clock showed at a mark; us 0: now. No other mark has the same ns. */
void rvli_times_mark(rvli_times *times, uint64_t ns, int64_t us);

/* The wall clock when the machine's showed something: the first moment, or the last. 0: unknown. */
int64_t rvli_times_first(const rvli_times *times, uint64_t ns);
int64_t rvli_times_last(const rvli_times *times, uint64_t ns);

void rvli_times_clear(rvli_times *times);

#endif
