/* SPDX-License-Identifier: MIT */
/*
 * Changes snapshots as what they are, so that a fuzzer gets past the reader of pickles.
 *
 * A changed byte of a pickle mostly ends it: a length is wrong, or a memo number. Here a pickle is
 * taken apart into opcodes, without its memo, and changed as data: a number becomes another, a word
 * another word, an entry of a list is copied, moved or taken out, a value gets another type. Then
 * it is written again, with a memo as picklers write it or without.
 */
#ifndef RVL_TESTS_FUZZ_PICKLE_H
#define RVL_TESTS_FUZZ_PICKLE_H

#include <stddef.h>
#include <stdint.h>

/* Of the fuzzer, or of a test in its place: changes bytes as such. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

/* What libFuzzer calls for each new input. Returns its size. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned seed);

#endif
