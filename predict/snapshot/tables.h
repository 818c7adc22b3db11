/* SPDX-License-Identifier: MIT */
/*
 * The rows that a snapshot has a million of: trace entries, blocks and annotations.
 *
 * The pickle reader recognizes the dicts that become rows by their keys, and stores nothing else of
 * them. So the tables take less memory than the file has bytes.
 */
#ifndef RVL_PREDICT_SNAPSHOT_TABLES_H
#define RVL_PREDICT_SNAPSHOT_TABLES_H

#include <stdbool.h>
#include <stdint.h>

/* No device has this much memory. A larger entry or block is impossible. */
#define RVLI_SIZE_MAX_BYTES (UINT64_C(1) << 46)

/* X(NAME, text): the actions of a trace entry. */
#define RVLI_ACTION_MAP(X)                                                                         \
    X(ALLOC, "alloc")                                                                              \
    X(FREE_REQUESTED, "free_requested")                                                            \
    X(FREE_COMPLETED, "free_completed")                                                            \
    X(SEGMENT_ALLOC, "segment_alloc")                                                              \
    X(SEGMENT_FREE, "segment_free")                                                                \
    X(SEGMENT_MAP, "segment_map")                                                                  \
    X(SEGMENT_UNMAP, "segment_unmap")                                                              \
    X(SNAPSHOT, "snapshot")                                                                        \
    X(OOM, "oom")                                                                                  \
    X(ANNOTATE, "annotate")                                                                        \
    X(USER_DEFINED, "user_defined")

typedef enum rvli_action {
    RVLI_ACTION_UNKNOWN = 0,
#define RVLI_ACTION_ENUM(name, text) RVLI_ACTION_##name,
    RVLI_ACTION_MAP(RVLI_ACTION_ENUM)
#undef RVLI_ACTION_ENUM
} rvli_action;

/* A trace entry. stream is an index into the pickle's streams, and pool one into its pools. */
typedef struct rvli_event_row {
    uint64_t addr; /* oom: free bytes on the device */
    uint64_t size;
    int64_t time_us;
    uint32_t stream;
    uint32_t stack; /* rvli_stack_node + 1; 0: none */
    uint32_t label; /* text by the program or PyTorch: rvli_text_row + 1; 0: none */
    uint16_t pool;
    uint8_t action;   /* rvli_action */
    uint8_t has_pool; /* the entry named its pool */
} rvli_event_row;

/* X(NAME, text): the states of a block. */
#define RVLI_BLOCK_STATE_MAP(X)                                                                    \
    X(ACTIVE, "active_allocated")                                                                  \
    X(PENDING, "active_pending_free")                                                              \
    X(INACTIVE, "inactive")

typedef enum rvli_block_state {
    RVLI_BLOCK_UNKNOWN = 0,
#define RVLI_BLOCK_STATE_ENUM(name, text) RVLI_BLOCK_##name,
    RVLI_BLOCK_STATE_MAP(RVLI_BLOCK_STATE_ENUM)
#undef RVLI_BLOCK_STATE_ENUM
} rvli_block_state;

typedef struct rvli_block_row {
    uint64_t addr; /* 0: not recorded, as before PyTorch 2.1; it then follows from the sizes */
    uint64_t size;
    uint64_t requested;
    uint32_t state; /* rvli_block_state */
    uint32_t stack; /* as in events */
    uint32_t label;
} rvli_block_row;

typedef struct rvli_annotation_row {
    int64_t time_us;
    uint64_t name_at; /* in the file */
    uint32_t name_length;
    int32_t device;
    bool start;
} rvli_annotation_row;

/* A string of the file. Every string is stored once. */
typedef struct rvli_text_row {
    uint64_t at;
    uint32_t length;
} rvli_text_row;

/* A stack frame. Every frame is stored once. */
typedef struct rvli_frame_row {
    uint32_t file; /* rvli_text_row + 1; 0: not known */
    uint32_t name;
    uint32_t line; /* 0: not known */
} rvli_frame_row;

/*
 * A stack: the stack without its outermost frame, and that frame. Every stack is stored once and
 * identified by its number.
 */
typedef struct rvli_stack_node {
    uint32_t inner; /* rvli_stack_node + 1; 0: none */
    uint32_t frame;
    uint32_t depth; /* frames in it */
} rvli_stack_node;

/* Deeper stacks are stored without their outermost frames. */
#define RVLI_STACK_DEPTH_MAX 512u

/* The id of a pool: (0, 0) is the default pool. */
typedef struct rvli_pool_id {
    int64_t first;
    int64_t second;
} rvli_pool_id;

#endif
