/* SPDX-License-Identifier: MIT */
/*
 * What a fuzz target and its mutator are to each other, to libFuzzer, and to the ordinary tests.
 *
 * A target (target_X.c) is one function, fuzz_run(). A mutator (mutate_X.c) changes an input as
 * what it is, so that most of what it makes gets past the reader; what it cannot take apart it
 * changes as bytes. With clang they become fuzz_X, which libFuzzer drives (engine.c); with any
 * compiler test_fuzz_X, which runs the kept corpus and measures the mutator (test_fuzz.c).
 */
#ifndef RVL_TESTS_FUZZ_H
#define RVL_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* A target's only complaint: libFuzzer and ctest both see a process that aborts. */
#define require(holds) ((holds) ? (void)0 : fuzz_broken(__FILE__, __LINE__, #holds))
_Noreturn void fuzz_broken(const char *file, int line, const char *what);

/*
 * One execution, which leaves nothing behind: no file, descriptor, thread or memory. Answers
 * whether the input was good, so that what lies behind its reader was run.
 */
bool fuzz_run(const uint8_t *data, size_t size);

/* Of libFuzzer, or of a test in its place: changes bytes as such. Returns the new size. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

/* What libFuzzer calls for a new input. The same seed makes the same of the same input. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);

/* The same of two inputs. Returns the size of what it has put into out. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_size, const uint8_t *second,
                                 size_t second_size, uint8_t *out, size_t out_max, unsigned seed);

/* ---- support.c ---- */

/* A number below `below` (0: 0), and the next state of the generator. */
uint32_t fuzz_pick(uint32_t *random, uint32_t below);

/* A number that follows from the bytes: what a target lets an input decide beside its text. */
uint32_t fuzz_hash(const uint8_t *data, size_t size);

/* A size at which something may change: small, huge, or near a power of two. */
uint64_t fuzz_size(uint32_t *random);

/* Where `data` can be opened as a file, until the next call. Nothing of it is on a disk. */
const char *fuzz_file(const uint8_t *data, size_t size);

/*
 * A folder of this process, below TMPDIR or in memory. It is removed at the end: what lies in it is
 * to be removed by then, by atexit() behind the first call.
 */
const char *fuzz_folder(void);

#endif
