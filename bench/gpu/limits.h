/* SPDX-License-Identifier: MIT */
/*
 * The limits that figures are held against: what the link, the memory and the disk give a program
 * that does nothing else. Each prints its JSON line.
 */
#ifndef RVL_BENCH_GPU_LIMITS_H
#define RVL_BENCH_GPU_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

/* The machine, its link, and digests by the library's kernel. small: to try the program out. */
void measure_limits(bool small);

/* Writing a new file of a directory, and reading it again, past the page cache. */
void measure_disk(const char *directory, uint64_t bytes, unsigned threads);

/* Ends the program unless backups of bytes can be measured there, and says why they cannot. */
void need_disk(const char *directory, uint64_t bytes);

#endif
