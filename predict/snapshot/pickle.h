/* SPDX-License-Identifier: MIT */
/*
 * Reads a pickle of plain data, protocols 2 to 5.
 *
 * A pickle is a program for a stack machine. This machine has the opcodes that build dicts, lists,
 * tuples, numbers, strings, bools and None. It refuses everything else, in particular every opcode
 * that names or calls code. Dicts that are rows (tables.h) go to tables as they are completed.
 * Stack frames, and lists of them, are stored once, however often the file repeats them. Memo
 * references to all of these stay valid, since they refer to them by number. Nothing recurses, and
 * the tables together stay within a budget that is a multiple of the file's size.
 */
#ifndef RVL_PREDICT_SNAPSHOT_PICKLE_H
#define RVL_PREDICT_SNAPSHOT_PICKLE_H

#include <stddef.h>

#include "reveille/status.h"
#include "predict/snapshot/tables.h"

/* X(NAME, text): the keys of dicts that the reader looks for. */
#define RVLI_KEY_MAP(X)                                                                            \
    X(SEGMENTS_LIST, "segments")                                                                   \
    X(DEVICE_TRACES, "device_traces")                                                              \
    X(ALLOCATOR_SETTINGS, "allocator_settings")                                                    \
    X(EXTERNAL_ANNOTATIONS, "external_annotations")                                                \
    X(TRACE_ACTION, "action")                                                                      \
    X(ADDR, "addr")                                                                                \
    X(DEVICE_FREE, "device_free")                                                                  \
    X(SIZE, "size")                                                                                \
    X(STREAM, "stream")                                                                            \
    X(TIME_US, "time_us")                                                                          \
    X(POOL_ID, "pool_id")                                                                          \
    X(STATE, "state")                                                                              \
    X(ADDRESS, "address")                                                                          \
    X(REQUESTED_SIZE, "requested_size")                                                            \
    X(STAGE, "stage")                                                                              \
    X(NAME, "name")                                                                                \
    X(DEVICE, "device")                                                                            \
    X(FILENAME, "filename")                                                                        \
    X(LINE, "line")                                                                                \
    X(FRAMES, "frames")                                                                            \
    X(CATEGORY, "category")                                                                        \
    X(USER_METADATA, "user_metadata")                                                              \
    X(START, "START")                                                                              \
    X(TOTAL_SIZE, "total_size")                                                                    \
    X(SEGMENT_TYPE, "segment_type")                                                                \
    X(SEGMENT_POOL_ID, "segment_pool_id")                                                          \
    X(IS_EXPANDABLE, "is_expandable")                                                              \
    X(BLOCKS, "blocks")                                                                            \
    X(SMALL, "small")                                                                              \
    X(ALLOC_CONF, "PYTORCH_CUDA_ALLOC_CONF")                                                       \
    X(ALLOC_CONF_ANY, "PYTORCH_ALLOC_CONF")                                                        \
    X(MAX_SPLIT_SIZE, "max_split_size")                                                            \
    X(GC_THRESHOLD, "garbage_collection_threshold")                                                \
    X(EXPANDABLE_SEGMENTS, "expandable_segments")                                                  \
    X(ROUNDUP_DIVISIONS, "roundup_power2_divisions")

/* The keyword that a string is: a key, an action, a block's state, or none of them. */
typedef enum rvli_word {
    RVLI_WORD_OTHER = 0,
#define RVLI_WORD_ENUM(name, text) RVLI_WORD_##name,
    RVLI_KEY_MAP(RVLI_WORD_ENUM)
#undef RVLI_WORD_ENUM
#define RVLI_WORD_ENUM(name, text) RVLI_WORD_ACTION_##name,
        RVLI_ACTION_MAP(RVLI_WORD_ENUM)
#undef RVLI_WORD_ENUM
#define RVLI_WORD_ENUM(name, text) RVLI_WORD_BLOCK_##name,
            RVLI_BLOCK_STATE_MAP(RVLI_WORD_ENUM)
#undef RVLI_WORD_ENUM
                RVLI_WORD_COUNT
} rvli_word;

typedef enum rvli_pickle_type {
    RVLI_PICKLE_NONE,
    RVLI_PICKLE_BOOL,
    RVLI_PICKLE_INT, /* -2^63 to 2^64 - 1, as its 64 bits */
    RVLI_PICKLE_BIG, /* any other integer; its value is not kept */
    RVLI_PICKLE_FLOAT,
    RVLI_PICKLE_TEXT,
    RVLI_PICKLE_BYTES,
    RVLI_PICKLE_TUPLE,
    RVLI_PICKLE_LIST,
    RVLI_PICKLE_DICT,
    RVLI_PICKLE_EVENT /* a dict that was read directly as a row: integer is its row */
} rvli_pickle_type;

typedef struct rvli_pickle_value {
    uint8_t type; /* rvli_pickle_type */
    uint8_t word; /* text: rvli_word */
    bool negative;
    uint32_t length; /* of a text: bytes; of a tuple: values */
    union {
        uint64_t integer;
        double real;
        uint64_t at; /* text: offset in the file; tuple: its first value; else: the container */
    };
} rvli_pickle_value;

/* The contents of a container. Runs of rows are not stored value by value. */
typedef enum rvli_pickle_kind {
    RVLI_KIND_EMPTY,
    RVLI_KIND_VALUES, /* a chain of runs of values; a dict has key, value, key, ... */
    RVLI_KIND_EVENT,  /* a dict that is a row */
    RVLI_KIND_BLOCK,
    RVLI_KIND_ANNOTATION,
    RVLI_KIND_FRAME /* a stack frame: first is its row */
} rvli_pickle_kind;

typedef struct rvli_pickle_container {
    uint8_t kind;   /* rvli_pickle_kind */
    bool taken;     /* for the caller: it has read this container */
    uint32_t first; /* row, or run; lists: run + 1; 0: none */
    uint32_t last;  /* last run + 1 */
    uint32_t stack; /* lists: stack of their frames: rvli_stack_node + 1; 0: none */
} rvli_pickle_container;

typedef struct rvli_pickle_run {
    uint32_t kind;  /* RVLI_KIND_VALUES, or the kind of the rows in this run */
    uint32_t first; /* first value or row */
    uint32_t count;
    uint32_t next; /* next run + 1; 0: none */
} rvli_pickle_run;

typedef struct rvli_pickle {
    const unsigned char *data; /* the caller's; must outlive the pickle */
    uint64_t size;
    rvli_pickle_value root;
    rvli_pickle_value *values;
    rvli_pickle_container *containers;
    rvli_pickle_run *runs;
    rvli_event_row *events;
    rvli_block_row *blocks;
    rvli_annotation_row *annotations;
    uint64_t *streams; /* as recorded, by index */
    rvli_pool_id *pools;
    rvli_frame_row *frames;
    rvli_stack_node *stacks;
    rvli_text_row *texts; /* of frames and labels */
    uint32_t value_count, container_count, run_count;
    uint32_t event_count, block_count, annotation_count;
    uint32_t stream_count, pool_count;
    uint32_t frame_count, stack_count, text_count;
} rvli_pickle;

/* Where a pickle was refused, and why. */
typedef struct rvli_pickle_error {
    uint64_t at;
    char message[200];
} rvli_pickle_error;

/*
 * Reads the pickle at the start of data. RVL_OK; RVL_ERR_CORRUPT_TRACE or RVL_ERR_VERSION (a newer
 * protocol), with *error_out filled in; or RVL_ERR_HOST_OOM. After RVL_OK the caller destroys
 * *pickle_out.
 */
rvl_status rvli_pickle_read(const unsigned char *data, uint64_t size, rvli_pickle *pickle_out,
                            rvli_pickle_error *error_out);
void rvli_pickle_destroy(rvli_pickle *pickle);

/* Returns the value of a key in a dict; NULL: no such key, or not a dict of values. */
const rvli_pickle_value *rvli_pickle_get(const rvli_pickle *pickle, const rvli_pickle_value *dict,
                                         rvli_word key);

/* Walk the items of a list: the run of its first items, and the run after a run. NULL: none. */
const rvli_pickle_run *rvli_pickle_first_run(const rvli_pickle *pickle,
                                             const rvli_pickle_value *list);
const rvli_pickle_run *rvli_pickle_next_run(const rvli_pickle *pickle, const rvli_pickle_run *run);

/* Whether a list has neither items nor stack frames. */
static inline bool rvli_pickle_is_empty(const rvli_pickle *pickle, const rvli_pickle_value *list)
{
    return rvli_pickle_first_run(pickle, list) == NULL &&
           pickle->containers[list->integer].stack == 0;
}

#endif
