/* SPDX-License-Identifier: MIT */
/*
 * Contents that are on their way: what other ranks bring by an operation of NCCL
 * (simcuda/nccl/carry.h). The memory that gets them is promised. Who reads it waits until they are
 * there; who writes to it or frees it does without them. A copy of promised memory is promised,
 * too. So nobody waits before anything is read.
 *
 * All of this is called with the lock of contents.c held, except for rvli_promise_keep() and
 * rvli_promise_end_all().
 */
#ifndef RVL_SIMCUDA_PROMISED_H
#define RVL_SIMCUDA_PROMISED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "simcuda/driver/contents.h"

typedef struct rvli_promise rvli_promise;

/* How many there are, for who need not look further. */
int rvli_promised_count(void);

/* Promises memory to which nothing is promised yet. false: there is no memory for that. */
bool rvli_promised_add(uint64_t addr, size_t bytes, const rvli_bringer *bringer, void *user);

/* These addresses are promised nothing any more. */
void rvli_promised_cut(uint64_t addr, size_t bytes);

/* Of a copy: what is promised to `from` is promised to `to`, too, to which nothing is. */
typedef struct rvli_promised_part {
    rvli_promise *of;
    size_t at; /* behind the first byte of what is copied */
    size_t bytes;
    size_t offset; /* in what is promised */
} rvli_promised_part;
size_t rvli_promised_list(uint64_t from, size_t bytes, rvli_promised_part **parts_out);
void rvli_promised_copy(uint64_t to, rvli_promised_part *parts, size_t count);

/* A promise to any of these addresses, or the oldest where there are more than `most`; NULL: there
 * is none. It stays until it is let go. */
rvli_promise *rvli_promised_find(uint64_t addr, size_t bytes);
rvli_promise *rvli_promised_oldest(int most);
void rvli_promise_let_go(rvli_promise *of);

/* Has it brought, once, by one thread. Without the lock. false: not now, and nothing has waited. */
bool rvli_promise_keep(rvli_promise *of, bool wait);

/* Calls write() for each piece of memory that it was made to, and makes it to none any more. */
void rvli_promise_give(rvli_promise *of, void (*write)(uint64_t to, const char *bytes,
                                                       const bool *known, size_t count));

/* Those that nobody needs any more: taken with the lock, and ended without it. */
rvli_promise *rvli_promise_take_ended(void);
void rvli_promise_end_all(rvli_promise *ended);

/* In a forked child: they are the parent's. */
void rvli_promised_forget(void);

#endif
