/* SPDX-License-Identifier: MIT */
/*
 * Content that is on its way: data that other ranks bring by an NCCL operation
 * (simcuda/nccl/carry.h). The memory that will receive it is promised. A read waits until the
 * content has arrived. A write or a free drops the promise for those bytes. A copy of promised
 * memory is also promised. So nothing waits before a read.
 *
 * Call all functions with the lock of contents.c held, except rvli_promise_keep() and
 * rvli_promise_end_all().
 */
#ifndef RVL_SIMCUDA_PROMISED_H
#define RVL_SIMCUDA_PROMISED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "simcuda/driver/contents.h"

typedef struct rvli_promise rvli_promise;

/* The number of promises, for a quick check without the lock. */
int rvli_promised_count(void);

/* Promises content for memory that has no promise yet. false: out of memory. */
bool rvli_promised_add(uint64_t addr, size_t bytes, const rvli_bringer *bringer, void *user);

/* Removes these addresses from their promises. */
void rvli_promised_cut(uint64_t addr, size_t bytes);

/* For a copy: promises to `to`, which has no promise, what `from` is promised. */
typedef struct rvli_promised_part {
    rvli_promise *of;
    size_t at; /* offset from the first copied byte */
    size_t bytes;
    size_t offset; /* offset in the promised content */
} rvli_promised_part;
size_t rvli_promised_list(uint64_t from, size_t bytes, rvli_promised_part **parts_out);
void rvli_promised_copy(uint64_t to, rvli_promised_part *parts, size_t count);

/* Find a promise for any of these addresses, or the oldest if there are more than `most`. NULL:
 * there is none. Release the result with rvli_promise_let_go(). */
rvli_promise *rvli_promised_find(uint64_t addr, size_t bytes);
rvli_promise *rvli_promised_oldest(int most);
void rvli_promise_let_go(rvli_promise *of);

/* Brings the content, once, in one thread. Call it without the lock. false: not possible without
 * waiting. */
bool rvli_promise_keep(rvli_promise *of, bool wait);

/* Calls write() for each piece of memory that the promise covers, and removes the pieces. */
void rvli_promise_give(rvli_promise *of, void (*write)(uint64_t to, const char *bytes,
                                                       const bool *known, size_t count));

/* Promises that are no longer needed: take them with the lock, and end them without it. */
rvli_promise *rvli_promise_take_ended(void);
void rvli_promise_end_all(rvli_promise *ended);

/* For a forked child: the promises are the parent's. */
void rvli_promised_forget(void);

#endif
