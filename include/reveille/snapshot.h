/* SPDX-License-Identifier: MIT */
/*
 * PyTorch memory snapshots: what torch.cuda.memory._dump_snapshot() wrote, run through a model of
 * the caching allocator (libreveille-replay). docs/snapshot.md has the rules.
 */
#ifndef REVEILLE_SNAPSHOT_H
#define REVEILLE_SNAPSHOT_H

#include "reveille/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rvl_snapshot rvl_snapshot;

/* Flags of a run. */
#define RVL_SNAPSHOT_VERIFY 1u      /* feed recorded addresses in and compare; default: predict */
#define RVL_SNAPSHOT_EMPTY_CACHE 2u /* predict: call empty_cache before every stage */
#define RVL_SNAPSHOT_HOLDERS 4u    /* find what each stage's peak is for, and which lines hold it */
#define RVL_SNAPSHOT_ALL_FRAMES 8u /* a line is the innermost frame of a stack, whatever it is */
#define RVL_SNAPSHOT_MEET_REFUSED 16u /* predict: meet requests that failed, and free them */
#define RVL_SNAPSHOT_GOES_ON 32u      /* windows: another file goes on where this one ends */

/*
 * A span of time, by the wall clock, that is looked at as a stage. Its peak is the instant with
 * most reserved that is not above reserved_bytes, and of several the one with most allocated. Where
 * all have more, private pools without graphs are taken for released, as engines asleep have them.
 */
typedef struct rvl_snapshot_window {
    const char *name;
    int64_t begin_us;
    int64_t end_us;
    uint64_t reserved_bytes;
    uint64_t mapped_bytes; /* of those by cuMemMap: the most that pools of engines have then */
} rvl_snapshot_window;

typedef struct rvl_snapshot_options {
    size_t struct_size;
    uint64_t flags;              /* RVL_SNAPSHOT_* */
    const char *stage_prefix;    /* what annotations that are stages begin with; NULL: "stage:" */
    const char *const *settings; /* "KEY=VALUE", as in PYTORCH_CUDA_ALLOC_CONF, for predictions */
    size_t setting_count;
    uint64_t capacity_bytes; /* what the device has for this process; 0: with other settings than
                                recorded, what a failed request in the file shows, else no bound */
    uint32_t device;         /* the index into device_traces, plus 1; 0: the first with a trace */
    uint32_t reserved;       /* 0 */
    const rvl_snapshot_window *windows; /* with RVL_SNAPSHOT_HOLDERS: they are the stages, instead
                                           of annotations; NULL: none. One that the recording
                                           does not reach has no parts */
    size_t window_count;
    size_t window_size; /* sizeof(rvl_snapshot_window) */
    /* Predict: "FILE:LINE", a line with calls that are done again in the pass of backward, as
       torch.utils.checkpoint does it; NULL: none. The recording is one of `reveille run`. */
    const char *recompute;
} rvl_snapshot_options;

/*
 * Reads a snapshot, gzipped or not, and runs it. options may be NULL. Returns RVL_OK (also if a
 * verification diverges: ask the result); RVL_ERR_INVALID; RVL_ERR_IO (the file cannot be read);
 * RVL_ERR_CORRUPT_TRACE (the file is no snapshot, is broken, or names code. The message has the
 * byte); RVL_ERR_VERSION (the pickle protocol is newer, or the options set a field that this
 * library does not know); RVL_ERR_NOT_FOUND (there is no such device, or no call of the line
 * `recompute` that keeps anything for a pass of backward); RVL_ERR_HOST_OOM. The caller frees
 * *snapshot_out with rvl_snapshot_close(). Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_run(const char *path, const rvl_snapshot_options *options,
                                    rvl_snapshot **snapshot_out);

/* Flags of a trace of a snapshot. */
#define RVL_SNAPSHOT_BY_PART 1u /* what is reserved is under the tags of its parts, see below */

/* How a snapshot becomes a trace. */
typedef struct rvl_snapshot_trace {
    size_t struct_size;
    uint64_t flags;                 /* RVL_SNAPSHOT_BY_PART */
    const char *process;            /* process that the segments belong to; NULL: "trainer" */
    const rvl_trace_device *device; /* that they are on, as the trace's header declares it */
    size_t device_size;             /* sizeof(rvl_trace_device) */
} rvl_snapshot_trace;

/*
 * Runs a snapshot as rvl_snapshot_run() does, and writes what its process had reserved as a trace:
 * allocations under the tag "segments", and the stages, between which the stage is "outside". By
 * part the tags are "tensors" (what live blocks were asked for), "rounding", "pending", "split" and
 * "cached" (as in rvl_snapshot_stage), each to the device's granularity; their sum is the same.
 * Times are the wall clock's. options may be NULL. Returns as rvl_snapshot_run(); RVL_ERR_IO (the
 * trace cannot be written). Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_write_trace(const char *path, const rvl_snapshot_options *options,
                                            const rvl_snapshot_trace *trace,
                                            const char *trace_path);

typedef struct rvl_snapshot_facts {
    size_t struct_size;
    bool verify;
    bool exact;    /* nothing lowers the confidence; else rvl_snapshot_note() says what */
    bool diverged; /* verify: the model did something else than the recording */
    uint8_t reserved[5];
    uint64_t diverged_at;        /* index of the first entry of the trace that differs */
    const char *diverged_action; /* of that entry */
    const char *diverged_why;
    uint64_t diverged_addr;          /* as recorded; 0: none */
    uint64_t diverged_expected_addr; /* the model's; 0: none */
    uint64_t diverged_bytes;
    uint64_t diverged_expected_bytes;
    uint64_t event_count;
    uint64_t skipped_count; /* entries that were not understood */
    uint64_t oom_count;     /* requests that the capacity had no room for */
    uint64_t oom_event;     /* index of the first of them */
    uint64_t oom_requested_bytes;
    uint32_t stage_count;
    uint32_t note_count;
    uint64_t capacity_bytes; /* what bounded the run; 0: nothing did */
    bool capacity_recorded;  /* by a failed request in the file; else: as the options say */
    uint8_t reserved_at_end[7];
} rvl_snapshot_facts;

/*
 * The result as a whole. Strings live as long as it. Returns RVL_OK or RVL_ERR_INVALID. Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_get_facts(const rvl_snapshot *snapshot,
                                          rvl_snapshot_facts *facts_out);

/* A sentence on what lowers the confidence; NULL: no such note. Since 0.1. */
RVL_API const char *rvl_snapshot_note(const rvl_snapshot *snapshot, uint32_t note);

typedef struct rvl_snapshot_stage {
    size_t struct_size;
    const char *name;
    uint64_t peak_allocated_bytes;
    uint64_t peak_reserved_bytes;
    uint64_t end_reserved_bytes;
    uint64_t num_alloc_retries; /* from the trace's begin to the stage's end, as PyTorch counts */
    /* At the first instant at which reserved is at its peak; sums to reserved less requested: */
    uint64_t rounding_bytes; /* live blocks less what was asked for */
    uint64_t split_bytes;    /* free, beside live blocks in segments that stay */
    uint64_t cached_bytes;   /* free, and empty_cache would give it back */
    uint64_t pending_bytes;  /* freed, but another stream may still use it */
    /* The live block beside which the most bytes are free but stay: */
    uint64_t pinned_bytes;       /* 0: none */
    uint64_t pinning_event;      /* index of the entry that allocated it; UINT64_MAX: none did */
    uint64_t pinning_addr;       /* as recorded */
    uint64_t pinning_size_bytes; /* as asked for */
} rvl_snapshot_stage;

/*
 * One stage, in order of their starts. Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_NOT_FOUND (there
 * is no such stage). Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_get_stage(const rvl_snapshot *snapshot, uint32_t stage,
                                          rvl_snapshot_stage *stage_out);

/*
 * What the reserved memory of a stage's peak was for. Of the instants with most reserved it is the
 * one with most allocated. The parts' sum is what was reserved. Tags are "tensors" where nothing
 * says what they are for, and "rounding", "pending" and "cached"; docs/snapshot.md has the others.
 */
typedef struct rvl_snapshot_part {
    size_t struct_size;
    const char *tag;
    const char *module; /* class of the code that asked for it; NULL: not known, or of no matter */
    uint64_t bytes;
} rvl_snapshot_part;

/*
 * A part, the largest first; a tag comes once for each module. Only after a run with
 * RVL_SNAPSHOT_HOLDERS. Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_NOT_FOUND (there are fewer).
 * Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_get_part(const rvl_snapshot *snapshot, uint32_t stage,
                                         uint32_t part, rvl_snapshot_part *part_out);

/* What tensors hold, at the same instant, that one line of the program has asked for. */
typedef struct rvl_snapshot_line {
    size_t struct_size;
    const char *tag;
    const char *name; /* the function that the line is in; NULL: no stack was recorded */
    const char *file;
    const char *via_name; /* the function of a package that it called into; NULL: none */
    const char *via_file;
    const char *module; /* as in parts */
    uint32_t line;      /* 0: not known */
    uint32_t via_line;
    uint64_t bytes;
    uint64_t count; /* tensors */
} rvl_snapshot_line;

/*
 * A line, the largest first; the 64 largest are kept. Returns as rvl_snapshot_get_part(). Since
 * 0.1.
 */
RVL_API rvl_status rvl_snapshot_get_line(const rvl_snapshot *snapshot, uint32_t stage,
                                         uint32_t line, rvl_snapshot_line *line_out);

/*
 * A line of the program with calls that have asked for activations held at the same instant, the
 * largest first; lines that it calls come beside it. tag is "activations", via_name and module are
 * NULL. Returns as rvl_snapshot_get_part(). Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_get_call(const rvl_snapshot *snapshot, uint32_t stage,
                                         uint32_t call, rvl_snapshot_line *call_out);

/*
 * The result as JSON (schema 1, docs/snapshot.md), one line, without a newline. The caller frees
 * *json_out with rvl_string_free(). Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_HOST_OOM.
 * Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_to_json(const rvl_snapshot *snapshot, char **json_out);

/*
 * Runs a snapshot as rvl_snapshot_run() does, and lists what it recorded as JSON (schema 1,
 * docs/snapshot.md): every tensor with its address, its size, when it was live and the stack that
 * allocated it, and every segment. Entries and stacks are in columns: a million entries take some
 * megabytes. The text has no "<", and may stand within a script of a page. options may be NULL.
 * Returns as rvl_snapshot_run(). The caller frees *json_out with rvl_string_free(). Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_get_tensors(const char *path, const rvl_snapshot_options *options,
                                            char **json_out);

/* Frees a result. NULL is fine. Since 0.1. */
RVL_API void rvl_snapshot_close(rvl_snapshot *snapshot);

#ifdef __cplusplus
}
#endif
#endif
