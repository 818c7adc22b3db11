/* SPDX-License-Identifier: MIT */
/* Ranks of NCCL that are processes of a run, and their output. */
#ifndef RVL_TESTS_SIMCUDA_NCCL_RANKS_H
#define RVL_TESTS_SIMCUDA_NCCL_RANKS_H

/*
 * Runs ranks with a shell's words on a machine with as many GPUs, each rank on its own device.
 * $1 is the rank. Rank 0's output is the answer. Rank r writes its output to the file r.
 */
int run_ranks(int ranks, const char *words);

/* Check a line of the answer, or a part of a file. A mismatch fails the test. */
void check_line(int line, const char *expected);
void check_number(int line, long long expected);
void check_file(const char *name, const char *part);

#endif
