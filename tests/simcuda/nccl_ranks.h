/* SPDX-License-Identifier: MIT */
/* Ranks of NCCL that are processes of a run, and what they print. */
#ifndef RVL_TESTS_SIMCUDA_NCCL_RANKS_H
#define RVL_TESTS_SIMCUDA_NCCL_RANKS_H

/*
 * Runs ranks of a shell's words on a machine with so many GPUs, each with its own device: $1 is the
 * rank. What rank 0 prints is the answer; rank r prints into the file r.
 */
int run_ranks(int ranks, const char *words);

/* A line of the answer, and a part of a file. What is not as expected fails the test. */
void check_line(int line, const char *expected);
void check_number(int line, long long expected);
void check_file(const char *name, const char *part);

#endif
