/* SPDX-License-Identifier: MIT */
/*
 * When it was by the wall clock as the machine's clock showed something.
 *
 * The machine's clock counts what simulated calls take, so that traces repeat. What a program
 * writes down by itself, such as PyTorch's history, is by the wall clock. The machine notes both
 * after each request that its clock has moved with.
 */
#ifndef RVL_SIMCUDA_TIMES_H
#define RVL_SIMCUDA_TIMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct rvli_times {
    struct rvli_time {
        uint64_t ns; /* the machine's */
        int64_t us;  /* the wall's, since 1970 */
    } * list;        /* both never fall */
    size_t count, capacity;
    uint64_t step_ns; /* nearer ones are left out: more than 0 once there are very many */
} rvli_times;

/* Notes the wall clock. always: also where the machine's clock has not moved, as at a mark. Where
 * there is no memory for it, nothing is noted. */
void rvli_times_note(rvli_times *times, uint64_t ns, int always);

/* The wall clock when the machine's showed something: the first moment, or the last. 0: unknown. */
int64_t rvli_times_first(const rvli_times *times, uint64_t ns);
int64_t rvli_times_last(const rvli_times *times, uint64_t ns);

void rvli_times_clear(rvli_times *times);

#endif
