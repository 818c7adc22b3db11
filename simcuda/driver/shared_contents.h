/* SPDX-License-Identifier: MIT */
/*
 * Contents of memory that processes share. They are in a file of the machine, so that all
 * processes see what one writes. A place in the file has the bytes, followed by a flag for each
 * byte: whether it is known. Bytes that were never written, or were dropped, take no memory.
 *
 * The size is bounded: once the file is full, new content is not kept. Several processes may
 * write at once. As on a card, a read during a write gets either content.
 */
#ifndef RVL_SIMCUDA_SHARED_CONTENTS_H
#define RVL_SIMCUDA_SHARED_CONTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of shared memory, at an offset from a place in the file. */
typedef struct rvli_shared_place {
    uint64_t place;
    uint64_t size_bytes; /* of everything at this place */
    uint64_t at;
} rvli_shared_place;

/* Opens the file, and uses at most most_bytes of it. false: nothing can be kept. */
bool rvli_shared_contents_begin(size_t most_bytes);

/* As rvli_contents_write(), _read() and _forget() (contents.h). */
void rvli_shared_contents_write(const rvli_shared_place *to, const void *from, size_t bytes);
bool rvli_shared_contents_read(const rvli_shared_place *from, void *to, size_t bytes);
void rvli_shared_contents_forget(const rvli_shared_place *of, size_t bytes);

/* Stores for each byte whether it is known. */
void rvli_shared_contents_list(const rvli_shared_place *from, bool *known, size_t bytes);

/* For a forked child: the file is the parent's. */
void rvli_shared_contents_forget_file(void);

#endif
