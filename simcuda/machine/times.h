/* SPDX-License-Identifier: MIT */
/*
 * Pairs of machine time and wall clock.
 *
 * The machine's clock counts the duration of simulated calls, so that traces repeat. What a
 * program records itself, such as PyTorch's history, uses the wall clock. The machine notes both
 * clocks after each request that advances its own, and at each mark of a stage. At a mark, the
 * process sends its own wall clock, so each entry of its history lies on one side of the mark.
 */
#ifndef RVL_SIMCUDA_TIMES_H
#define RVL_SIMCUDA_TIMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct rvli_times {
    struct rvli_time {
        uint64_t ns; /* machine time */
        int64_t us;  /* wall clock, since 1970 */
    } * list; /* ns never decreases; us may, between marks of different processes, by their delay on
                 the way */
    size_t count, capacity;
    uint64_t step_ns; /* entries that are nearer are left out; above 0 only after many entries */
} rvli_times;

/* Notes the wall clock if machine time has advanced. Ignored without host memory. */
void rvli_times_note(rvli_times *times, uint64_t ns);

/* Notes the wall clock at a mark. us 0: now. No other mark has this ns. */
void rvli_times_mark(rvli_times *times, uint64_t ns, int64_t us);

/* The wall clock at a machine time: its first moment, or its last. 0: unknown. */
int64_t rvli_times_first(const rvli_times *times, uint64_t ns);
int64_t rvli_times_last(const rvli_times *times, uint64_t ns);

void rvli_times_clear(rvli_times *times);

#endif
