/* SPDX-License-Identifier: MIT */
/*
 * PyTorch memory snapshots: runs the output of torch.cuda.memory._dump_snapshot() through a model
 * of the caching allocator (libreveille-replay). docs/snapshot.md has the rules.
 */
#ifndef REVEILLE_SNAPSHOT_H
#define REVEILLE_SNAPSHOT_H

#include "reveille/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rvl_snapshot rvl_snapshot;

/* Flags of a run. */
#define RVL_SNAPSHOT_VERIFY 1u      /* feed in recorded addresses and compare; default: predict */
#define RVL_SNAPSHOT_EMPTY_CACHE 2u /* predict: call empty_cache before every stage */
#define RVL_SNAPSHOT_HOLDERS                                                                       \
    4u /* find the parts of each stage's peak, and the lines that hold                             \
          it */
#define RVL_SNAPSHOT_ALL_FRAMES                                                                    \
    8u /* a line is the innermost frame of a stack, even in a package                              \
        */
#define RVL_SNAPSHOT_MEET_REFUSED 16u /* predict: grant requests that failed, then free them */
#define RVL_SNAPSHOT_GOES_ON 32u      /* windows: another file continues where this one ends */

/*
 * A span of wall-clock time that is treated as a stage. Its peak is the instant with the most
 * reserved bytes that are not above reserved_bytes. Among several, it is the one with the most
 * allocated. If every instant has more than reserved_bytes, private pools without graphs count as
 * released, as those of sleeping engines are.
 */
typedef struct rvl_snapshot_window {
    const char *name;
    int64_t begin_us;
    int64_t end_us;
    uint64_t reserved_bytes;
    uint64_t mapped_bytes; /* part mapped by cuMemMap: the most that pools of engines can hold
                              then */
} rvl_snapshot_window;

typedef struct rvl_snapshot_options {
    size_t struct_size;
    uint64_t flags;              /* RVL_SNAPSHOT_* */
    const char *stage_prefix;    /* the prefix of annotations that are stages; NULL: "stage:" */
    const char *const *settings; /* "KEY=VALUE", as in PYTORCH_CUDA_ALLOC_CONF, for predictions */
    size_t setting_count;
    uint64_t capacity_bytes; /* how much of the device this process may use; 0: if settings differ
                                from the recorded ones, what a failed request in the file shows,
                                else no bound */
    uint32_t device;         /* the index into device_traces, plus 1; 0: the first device with a
                                trace */
    uint32_t reserved;       /* 0 */
    const rvl_snapshot_window *windows; /* with RVL_SNAPSHOT_HOLDERS: the stages, instead of
                                           annotations; NULL: none. A window outside the recording
                                           has no parts */
    size_t window_count;
    size_t window_size; /* sizeof(rvl_snapshot_window) */
    /* Predict: "FILE:LINE" of a line with calls that are recomputed in the backward pass, as
       torch.utils.checkpoint does; NULL: none. The recording must be from `reveille run`. */
    const char *recompute;
} rvl_snapshot_options;

/*
 * Reads a snapshot, gzipped or not, and runs it. options may be NULL. Returns RVL_OK (also if a
 * verification diverges: ask the result); RVL_ERR_INVALID; RVL_ERR_IO (the file cannot be read);
 * RVL_ERR_CORRUPT_TRACE (the file is not a snapshot, is damaged, or refers to code. The message has
 * the position); RVL_ERR_VERSION (the pickle protocol is newer, or the options set a field that
 * this library does not know); RVL_ERR_NOT_FOUND (there is no such device, or no call of the line
 * `recompute` that keeps anything for a pass of backward); RVL_ERR_HOST_OOM. The caller frees
 * *snapshot_out with rvl_snapshot_close(). Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_run(const char *path, const rvl_snapshot_options *options,
                                    rvl_snapshot **snapshot_out);

/* Flags of a snapshot's trace. */
#define RVL_SNAPSHOT_BY_PART 1u /* list reserved memory under the tags of its parts, see below */

/* How a snapshot becomes a trace. */
typedef struct rvl_snapshot_trace {
    size_t struct_size;
    uint64_t flags;                 /* RVL_SNAPSHOT_BY_PART */
    const char *process;            /* process of the segments; NULL: "trainer" */
    const rvl_trace_device *device; /* device of the segments, as the trace's header declares it */
    size_t device_size;             /* sizeof(rvl_trace_device) */
} rvl_snapshot_trace;

/*
 * Runs a snapshot as rvl_snapshot_run() does, and writes the reserved memory of its process as a
 * trace: allocations under the tag "segments", and the stages. Between stages, the stage is
 * "outside". By part, the tags are "tensors" (the requested bytes of live blocks), "rounding",
 * "pending", "split" and "cached" (as in rvl_snapshot_stage), each to the device's granularity;
 * their sum is the same. Times are from the wall clock. options may be NULL. Returns as
 * rvl_snapshot_run(); RVL_ERR_IO (the trace cannot be written). Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_write_trace(const char *path, const rvl_snapshot_options *options,
                                            const rvl_snapshot_trace *trace,
                                            const char *trace_path);

typedef struct rvl_snapshot_facts {
    size_t struct_size;
    bool verify;
    bool exact;    /* nothing lowers the confidence; otherwise see rvl_snapshot_note() */
    bool diverged; /* verify: the model and the recording differ */
    uint8_t reserved[5];
    uint64_t diverged_at;        /* index of the first trace entry that differs */
    const char *diverged_action; /* of that entry */
    const char *diverged_why;
    uint64_t diverged_addr;          /* as recorded; 0: none */
    uint64_t diverged_expected_addr; /* the model's; 0: none */
    uint64_t diverged_bytes;
    uint64_t diverged_expected_bytes;
    uint64_t event_count;
    uint64_t skipped_count; /* unknown entries */
    uint64_t oom_count;     /* requests that exceeded the capacity */
    uint64_t oom_event;     /* index of the first of them */
    uint64_t oom_requested_bytes;
    uint32_t stage_count;
    uint32_t note_count;
    uint64_t capacity_bytes; /* the bound of the run; 0: none */
    bool capacity_recorded;  /* from a failed request in the file; otherwise from the options */
    uint8_t reserved_at_end[7];
} rvl_snapshot_facts;

/*
 * Facts about the whole result. Strings live as long as the result. Returns RVL_OK or
 * RVL_ERR_INVALID. Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_get_facts(const rvl_snapshot *snapshot,
                                          rvl_snapshot_facts *facts_out);

/*
 * Returns a sentence about something that lowers the confidence, or NULL if there is no such note.
 * Since 0.1.
 */
RVL_API const char *rvl_snapshot_note(const rvl_snapshot *snapshot, uint32_t note);

typedef struct rvl_snapshot_stage {
    size_t struct_size;
    const char *name;
    uint64_t peak_allocated_bytes;
    uint64_t peak_reserved_bytes;
    uint64_t end_reserved_bytes;
    uint64_t num_alloc_retries; /* from the trace's start to the stage's end, as PyTorch counts */
    /* At the first instant of peak reserved memory. Their sum is reserved less requested bytes: */
    uint64_t rounding_bytes; /* size of live blocks less their requested bytes */
    uint64_t split_bytes;    /* free, in segments that stay because of live blocks */
    uint64_t cached_bytes;   /* free, and empty_cache would release it */
    uint64_t pending_bytes;  /* freed, but another stream may still use it */
    /* The live block that keeps the most free bytes from being released: */
    uint64_t pinned_bytes;       /* 0: none */
    uint64_t pinning_event;      /* index of the entry that allocated it; UINT64_MAX: no entry
                                    did */
    uint64_t pinning_addr;       /* as recorded */
    uint64_t pinning_size_bytes; /* as requested */
} rvl_snapshot_stage;

/*
 * One stage, in order of their starts. Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_NOT_FOUND (there
 * is no such stage). Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_get_stage(const rvl_snapshot *snapshot, uint32_t stage,
                                          rvl_snapshot_stage *stage_out);

/*
 * A part of the reserved memory at a stage's peak. The peak is the instant with the most reserved,
 * and among several the one with the most allocated. The sum of the parts is the reserved memory.
 * Tags are "tensors" for memory of unknown purpose, and "rounding", "pending" and "cached";
 * docs/snapshot.md has the others.
 */
typedef struct rvl_snapshot_part {
    size_t struct_size;
    const char *tag;
    const char *module; /* class of the code that requested it; NULL: unknown, or not relevant */
    uint64_t bytes;
} rvl_snapshot_part;

/*
 * A part by index, the largest first. A tag appears once for each module. Requires a run with
 * RVL_SNAPSHOT_HOLDERS. Returns RVL_OK, RVL_ERR_INVALID or RVL_ERR_NOT_FOUND (there are fewer
 * parts). Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_get_part(const rvl_snapshot *snapshot, uint32_t stage,
                                         uint32_t part, rvl_snapshot_part *part_out);

/* The tensors live at the same instant that one line of the program requested. */
typedef struct rvl_snapshot_line {
    size_t struct_size;
    const char *tag;
    const char *name; /* the function of the line; NULL: no stack was recorded */
    const char *file;
    const char *via_name; /* the function of a package that it called; NULL: none */
    const char *via_file;
    const char *module; /* as in rvl_snapshot_part */
    uint32_t line;      /* 0: unknown */
    uint32_t via_line;
    uint64_t bytes;
    uint64_t count; /* tensors */
} rvl_snapshot_line;

/*
 * A line by index, the largest first. The 64 largest are kept. Returns as rvl_snapshot_get_part().
 * Since 0.1.
 */
RVL_API rvl_status rvl_snapshot_get_line(const rvl_snapshot *snapshot, uint32_t stage,
                                         uint32_t line, rvl_snapshot_line *line_out);

/*
 * A line of the program, by index, with calls that requested activations live at the same instant,
 * the largest first. Lines that it calls are listed separately. tag is "activations", via_name and
 * module are NULL. Returns as rvl_snapshot_get_part(). Since 0.1.
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
 * Runs a snapshot as rvl_snapshot_run() does, and lists its recording as JSON (schema 1,
 * docs/snapshot.md): every tensor with its address, its size, when it was live and the stack that
 * allocated it, and every segment. Entries and stacks are in columns: a million entries take some
 * megabytes. The text has no "<", so it may be placed in a script of a page. options may be NULL.
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
