/* SPDX-License-Identifier: MIT */
/*
 * Contents of memory that processes share: in a file of the machine, so that all of them see what
 * one writes. At a place of the file lie the bytes, and behind them a byte for each that says
 * whether it is known. What was never written takes no room, and neither does what was forgotten.
 *
 * All is bounded: what comes when the file is full is not kept. Several processes may write at
 * once: who reads what another writes at the same time gets either, as on a card.
 */
#ifndef RVL_SIMCUDA_SHARED_CONTENTS_H
#define RVL_SIMCUDA_SHARED_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of shared memory: those from `at` on of what begins at a place of the file. */
typedef struct rvli_shared_place {
    uint64_t place;
    uint64_t size_bytes; /* of all that begins there */
    uint64_t at;
} rvli_shared_place;

/* Takes the file, at most most_bytes of it. false: nothing can be kept. */
bool rvli_shared_contents_begin(size_t most_bytes);

/* As rvli_contents_write(), _read() and _forget() have it (contents.h). */
void rvli_shared_contents_write(const rvli_shared_place *to, const void *from, size_t bytes);
bool rvli_shared_contents_read(const rvli_shared_place *from, void *to, size_t bytes);
void rvli_shared_contents_forget(const rvli_shared_place *of, size_t bytes);

/* For each byte whether it is known. */
void rvli_shared_contents_list(const rvli_shared_place *from, bool *known, size_t bytes);

/* In a forked child: the file is the parent's. */
void rvli_shared_contents_forget_file(void);

#endif
