/* SPDX-License-Identifier: MIT */
/*
 * Writes small snapshots for tests, as pickles of protocol 4: either the way picklers do, with
 * keys from the memo, or plainly.
 */
#ifndef RVL_TESTS_SUPPORT_SNAPSHOT_WRITER_H
#define RVL_TESTS_SUPPORT_SNAPSHOT_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct written {
    unsigned char *data;
    size_t size;
    size_t capacity;
    bool memo;
} written;

typedef struct test_event {
    const char *action;
    uint64_t addr;
    uint64_t size;
    uint64_t stream;
    int64_t pool; /* above 0: pool_id (0, pool) */
} test_event;

typedef struct test_stage {
    const char *name;
    int64_t start_us; /* entry i is at 1000 + 10 * i; below 0: no such edge */
    int64_t end_us;
} test_stage;

typedef struct test_block {
    uint64_t segment; /* address of its segment, which is one block */
    uint64_t segment_size;
    uint64_t size;
    uint64_t requested;
    bool live;
} test_block;

typedef struct test_snapshot {
    const test_event *events;
    size_t event_count;
    const test_stage *stages;
    size_t stage_count;
    const test_block *blocks;
    size_t block_count;
    const char *conf;
    int64_t max_split_bytes; /* 0: none */
    double gc_threshold;
    bool expandable;
    int divisions;
    bool plain; /* without a memo */
    bool frames;
} test_snapshot;

/* The caller frees data. */
written write_snapshot(const test_snapshot *snapshot);

void write_byte(written *to, unsigned char byte);
void write_text(written *to, const char *text);
void write_number(written *to, int64_t number);

/* Writes bytes to a new file under /tmp. Its name replaces the Xs of path. */
void save_bytes(char *path, const void *data, size_t size);

#endif
