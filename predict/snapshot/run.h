/* SPDX-License-Identifier: MIT */
/* A run of the model over a recording. Shared by the files of the run. */
#ifndef RVL_PREDICT_SNAPSHOT_RUN_H
#define RVL_PREDICT_SNAPSHOT_RUN_H

#include "base/intmap.h"
#include "reveille/snapshot.h"
#include "predict/snapshot/allocator.h"
#include "predict/snapshot/segment_addresses.h"
#include "predict/snapshot/recording.h"
#include "predict/snapshot/trace.h"

/* X(NAME, text): notes on what lowers the confidence. */
#define RVLI_NOTE_MAP(X)                                                                           \
    X(TRUNCATED, "the trace lacks its beginning (a ring that was full, or recording that began "   \
                 "late): what was live then follows from frees and from the final segments")       \
    X(SKIPPED, "entries of unknown actions or impossible sizes were skipped")                      \
    X(CONTRADICTION, "entries contradict each other: an address was given out twice, or freed "    \
                     "without being live")                                                         \
    X(NO_SETTINGS,                                                                                 \
      "the file has no allocator_settings: those that PyTorch begins with are assumed")            \
    X(UNKNOWN_SETTINGS,                                                                            \
      "the recorded settings have words, or values, that the model does not know: "                \
      "it runs without them")                                                                      \
    X(OTHER_DEVICES, "other devices have traces too: name one with --device")                      \
    X(OTHER_THREADS, "no annotation of this device begins with the stage prefix: the stages are "  \
                     "those of threads that were on another device")                               \
    X(NO_STAGES, "no annotation begins with the stage prefix: the whole trace counts as the "      \
                 "stage all")                                                                      \
    X(OPEN_STAGE, "an annotation has no START or no END: its stage ends with the trace, or is "    \
                  "left out")                                                                      \
    X(HIDDEN_POOL,                                                                                 \
      "segments were made for requests that the model had a cached block for: where "              \
      "entries have no pool_id, private pools that are gone in the end are not known")             \
    X(GUESSED,                                                                                     \
      "the trace lacks its beginning, and the model did something else than the recording "        \
      "where sizes or ages of blocks that were there then are not known: it follows the "          \
      "recording there")                                                                           \
    X(DIVERGED, "the model diverged from the recording")                                           \
    X(TIED, "some requests could be met by several cached blocks of one size: which one is taken " \
            "depends on addresses, which here are not those of the recording")                     \
    X(NO_LIMIT, "garbage collection and memory fractions need the device's size: give "            \
                "--capacity; until then collections are taken from the recording")                 \
    X(NO_SIZE,                                                                                     \
      "with these settings more is reserved than the recording ever had, and the file does "       \
      "not say what its device had: give --capacity, or name the device with --device")            \
    X(OOM, "requests did not fit: what follows assumes that they were met all the same")

typedef enum rvli_note {
#define RVLI_NOTE_ENUM(name, text) RVLI_NOTE_##name,
    RVLI_NOTE_MAP(RVLI_NOTE_ENUM)
#undef RVLI_NOTE_ENUM
        RVLI_NOTE_COUNT
} rvli_note;

/* What a stage's reserved memory was for. Filled in by holdings.c. */
typedef struct rvli_held_part {
    char *tag;
    char *module; /* NULL: none */
    uint64_t bytes;
} rvli_held_part;

typedef struct rvli_held_line {
    char *tag;
    char *name; /* function; NULL: no stack was recorded */
    char *file;
    char *via_name; /* NULL: no package between program and PyTorch */
    char *via_file;
    char *module; /* NULL: not known */
    uint32_t line;
    uint32_t via_line;
    uint64_t bytes;
    uint64_t count; /* tensors */
} rvli_held_line;

typedef struct rvli_holdings {
    rvli_held_part *parts; /* the largest first */
    rvli_held_line *lines;
    rvli_held_line *calls; /* lines on stacks of activations, at any depth */
    uint32_t part_count;
    uint32_t line_count;
    uint32_t call_count;
} rvli_holdings;

/*
 * The instant of a peak. Among instants with the most reserved bytes, it is the one with the most
 * allocated.
 */
typedef struct rvli_held {
    rvli_bytes bytes;
    uint32_t instant; /* number of entries that had happened */
} rvli_held;

typedef struct rvli_snapshot_stage {
    char *name;
    rvli_held held;
    rvli_holdings holdings;
    uint64_t peak_allocated;
    rvli_bytes at_peak; /* at the first instant with the most reserved bytes */
    uint64_t end_reserved;
    uint64_t retries;
    uint32_t bursts; /* bursts before its end */
    uint64_t pinned;
    uint64_t pinning_event;
    uint64_t pinning_size;
    uint64_t pinning_addr;
    bool open;
    bool seen; /* it has a peak */
} rvli_snapshot_stage;

/* A result; rvl_snapshot_get_facts() and the others read it. */
struct rvl_snapshot {
    rvl_snapshot_facts facts;
    rvli_snapshot_stage *stages;
    bool notes[RVLI_NOTE_COUNT];
};

/* Peaks since the last start or end of a stage. */
typedef struct rvli_epoch {
    uint64_t allocated;
    rvli_bytes at_peak;
    rvli_held held;
    uint64_t pinned;
    uint64_t pinning_event;
    uint64_t pinning_size;
    uint64_t pinning_addr; /* in the model; the recorded address is used if an entry has it */
} rvli_epoch;

/* The start or the end of a stage. */
typedef struct rvli_edge {
    int64_t time_us;
    uint32_t stage;
    bool start;
} rvli_edge;

/* Causes of a burst of entries that release memory. */
typedef enum rvli_burst_kind {
    RVLI_BURST_EMPTY = 1,    /* empty_cache */
    RVLI_BURST_GARBAGE = 2,  /* a request collected garbage */
    RVLI_BURST_OVERSIZE = 4, /* a request released blocks above max_split */
    RVLI_BURST_ALL = 8 /* a request found no block, and all cached memory was released: a retry, or
                          empty_cache */
} rvli_burst_kind;

typedef struct rvli_burst {
    uint64_t bytes;
    uint64_t needs;   /* BURST_ALL: reserved bytes without the burst; 0: not known */
    uint8_t kinds;    /* rvli_burst_kind */
    uint32_t retries; /* set at the end: retries among the bursts up to this one */
} rvli_burst;

typedef struct rvli_run {
    rvli_recording recording;
    rvli_settings settings; /* the simulated settings */
    rvl_snapshot *result;
    rvli_allocator allocator;
    rvli_intmap live;       /* recorded address to block */
    rvli_intmap early;      /* recorded addresses of blocks that completed before their entry */
    uint64_t new_segment;   /* recorded address of the last new segment */
    uint64_t guessed_until; /* after this entry, no live block has a guessed size */
    bool out_of_memory;     /* host memory ran out in a callback, which cannot return a failure */
    bool verify;
    bool changed;       /* settings or limits differ from the recorded; that run is done */
    rvli_burst *bursts; /* in order */
    uint32_t burst_count;
    uint32_t burst_capacity;
    uint32_t next_burst;    /* changed: index of the next burst */
    uint64_t highest;       /* the most bytes reserved in the run as recorded */
    uint64_t recorded_room; /* capacity of the recorded device for the process; 0: not known */
    uint64_t given_bytes;   /* capacity from the options; 0: none */
    uint64_t limit_bytes;   /* the simulated capacity; 0: none */
    bool moved;             /* predict: a block is not at its recorded address */
    bool empty_cache_at_stages;
    bool may_lack_begin;   /* not yet known whether the trace lacks its beginning; a free of an
                              unknown address then ends the run */
    rvli_places places;    /* predict: addresses of segments */
    uint64_t pinning_work; /* blocks visited in searches for pins */
    uint32_t *queue;       /* open entries: segment changes that the model has not made yet */
    uint32_t queue_count;
    uint32_t queue_head;
    uint32_t queue_capacity;
    bool just_released; /* memory was just released; only completed frees have followed */
    bool private_pools; /* some final segments are in private pools */
    rvli_edge *edges;
    uint32_t edge_count;
    uint32_t next_edge;
    rvli_epoch epoch;
    rvli_tracer *tracer; /* NULL: no trace is written */
    int64_t last_us;     /* time of the current entry */
    uint32_t instant;    /* number of entries that have happened */
    rvli_bytes *track;   /* bytes by instant; NULL: not needed */
} rvli_run;

static inline const rvli_event_row *rvli_event(const rvli_run *run, uint64_t index)
{
    return &run->recording.events[index];
}

/* ---- stages.c ---- */

/*
 * Refuses too many stages, and names that are too long or contain a NUL. RVL_OK or
 * RVL_ERR_CORRUPT_TRACE.
 */
rvl_status rvli_stages_check(const rvli_run *run, const char *prefix, char *message, size_t size);
/* Makes stages from the annotations with a prefix. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_stages_find(rvli_run *run, const char *prefix);
/* Processes the edges up to an entry's time. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_stages_pass(rvli_run *run, int64_t time_us);
/* Processes all remaining edges, and closes the open stages. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_stages_end(rvli_run *run);
/* Records a new peak of reserved bytes. */
void rvli_stages_peak(rvli_run *run);
/* Whether more memory is held: more reserved, or equally much reserved and more allocated. */
bool rvli_stages_more(const rvli_bytes *bytes, const rvli_bytes *than);

/* ---- segments.c ---- */

/* The callback of the allocator: a rvli_snapshot_change_fn with the run as owner. */
uint64_t rvli_run_change(void *owner, rvli_snapshot_change change, uint64_t addr, uint64_t size,
                         uint32_t stream);
/* Queues an entry on a segment. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_queue_push(rvli_run *run, uint32_t event);
/* Applies the entry at the head as it was recorded. */
rvl_status rvli_queue_force(rvli_run *run);
bool rvli_is_release(const rvli_event_row *event);
/* After a request: applies the entries that the model did not follow, each as a divergence. */
rvl_status rvli_queue_finish(rvli_run *run);
/* Notes a divergence. Only the first one is kept. */
void rvli_diverge(rvli_run *run, uint64_t event, const char *why, uint64_t expected_addr,
                  uint64_t expected_bytes);

/* ---- bursts.c ---- */

/* Releases what the queued entries released, before a request or (NULL) anything else. */
rvl_status rvli_queue_settle(rvli_run *run, const rvli_request *request);
/* Whether a burst that may be a retry or empty_cache was a retry, as far as can be known. */
bool rvli_burst_is_retry(const rvli_run *run, const rvli_burst *burst);

/* ---- start.c ---- */

/* Whether entries on segments show that the device held memory before the first entry. */
rvl_status rvli_start_shows(const rvli_run *run, bool *shows_out);
/* Builds what the device held before the first entry. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_start_build(rvli_run *run);
/* The pool of an entry. */
uint32_t rvli_pool_of(const rvli_run *run, const rvli_event_row *event);

#endif
