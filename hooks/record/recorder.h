/* SPDX-License-Identifier: MIT */
/*
 * Records what this process does with device memory, as a trace (docs/record.md).
 *
 * There is one recorder in each process. It writes a free before the driver is called and an
 * allocation after, so that memory that moves between processes is never counted twice when their
 * files are merged. The file is created at the first event of a device: its header has to describe
 * the devices, and reading them earlier would start the driver in processes that never use it.
 * Marks made before that are kept until then. When recording is off, each call costs one read.
 */
#ifndef RVL_HOOKS_RECORD_RECORDER_H
#define RVL_HOOKS_RECORD_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/memory.h"

/* The number of bytes is unknown. */
#define RVLI_RECORDER_UNMEASURED UINT64_MAX

typedef struct rvli_recorder_options {
    const char *pattern; /* path of the file; %p becomes the process id */
    const char *name;    /* name of the process in the trace; NULL: the program's */
    uint64_t period_ns;  /* between samples of memory in use; 0: sample only at stage marks */
} rvli_recorder_options;

/* What a key is. */
typedef enum rvli_recorded_space {
    RVLI_RECORDED_ADDRESS,
    RVLI_RECORDED_HANDLE, /* of physical memory */
    RVLI_RECORDED_SPACES
} rvli_recorded_space;

typedef struct rvli_recorded {
    uint64_t id;
    uint64_t size_bytes;
    const char *tag; /* interned; NULL: none */
    int device;
    uint32_t references; /* besides the first */
    rvl_backup backup;
    bool paused; /* allocated as paused: no memory yet */
    bool nccl;   /* allocated by NCCL for itself: recorded as a sum, "nccl:PID" */
} rvli_recorded;

bool rvli_recorder_on(void);

/*
 * Starts recording, also in forked children. Strings are copied. RVL_ERR_INVALID: the pattern has a
 * % that is neither %p nor %%, is too long or ends in .zst, or the name does not have 1 to 255
 * bytes; RVL_ERR_IO: a file cannot be created there, with errno's value as the native code.
 */
rvl_status rvli_recorder_start(const rvli_recorder_options *options);

/* Writes the remaining lines and the end record. Nothing is recorded after that. */
void rvli_recorder_close(void);

/* As rvli_recorder_close(), without waiting. Returns false if another thread is writing. */
bool rvli_recorder_try_close(void);

/* ---- Memory. device -1: the device of the thread's context ---- */

void rvli_recorder_alloc(rvli_recorded_space space, uint64_t key, const rvli_recorded *what);

/* Adds a reference: the next free drops it again and is not written. */
void rvli_recorder_retain(rvli_recorded_space space, uint64_t key);

/* An allocation that failed for lack of memory. */
typedef struct rvli_refused {
    const char *tag; /* NULL: none */
    int device;      /* -1: the device of the thread's context */
    uint64_t requested_bytes;
    uint64_t free_bytes; /* RVLI_RECORDER_UNMEASURED: read it from the device now */
} rvli_refused;

void rvli_recorder_refuse(const rvli_refused *refused);

/*
 * Returns false, and writes nothing, if the key is unknown or still has references. was_out may be
 * NULL.
 */
bool rvli_recorder_free(rvli_recorded_space space, uint64_t key, rvli_recorded *was_out);

/*
 * The memory of a tag (NULL: of every tag) is about to be paused; it was resumed; or it was resumed
 * in part or not at all. In the last case, is_paused() returns the state of each allocation. It
 * must not call the recorder.
 */
typedef bool (*rvli_recorder_paused)(uint64_t addr);
void rvli_recorder_pause(const char *tag);
void rvli_recorder_resume(const char *tag);
void rvli_recorder_settle(const char *tag, rvli_recorder_paused is_paused);

/*
 * The process is about to leave its devices, with the pauses that follow; or it is back, or has not
 * left. Devices are not read in between: in a process that sleeps, NVML's next call never returns.
 * discard: contents are not kept; paused: the tags stay paused.
 */
void rvli_recorder_sleep(bool discard);
void rvli_recorder_wake(bool paused);

/* ---- Memory that the driver allocates for itself ---- */

/* The calls in which it allocates. The cause of external bytes is this name and the process. */
typedef enum rvli_recorded_growth {
    RVLI_GROWTH_CONTEXT, /* "cuda_context": the primary context of a device is created */
    RVLI_GROWTH_KERNELS, /* "kernels": code, and the local memory that a kernel's threads need */
    RVLI_GROWTH_STREAMS, /* "streams" */
    RVLI_GROWTH_GRAPHS,  /* "graphs": instantiated, uploaded or launched for the first time */
    RVLI_GROWTH_NCCL,    /* "nccl": NCCL's own allocations, seen as calls rather than measured */
    RVLI_GROWTHS
} rvli_recorded_growth;

/*
 * Begin returns the bytes in use on the device before such a call. Pass them to end, after the
 * call. Memory that other processes allocate in between is counted, too. device -1: the device of
 * the thread's context.
 */
uint64_t rvli_recorder_growth_begin(rvli_recorded_growth growth, int device);
void rvli_recorder_growth_end(rvli_recorded_growth growth, int device, uint64_t before_bytes);

/*
 * The device's primary context was reset, or released. If that destroyed it, everything that the
 * driver had allocated there is freed, and so is all memory with addresses there, except for memory
 * of regions. Returns whether the context is gone and a recording is on.
 */
bool rvli_recorder_context_reset(int device);
bool rvli_recorder_context_released(int device);

/*
 * The bytes that NCCL holds on a device, from the calls that were seen. Returns false if the device
 * is not recorded.
 */
bool rvli_recorder_nccl_bytes(int device, uint64_t *bytes_out);

/* ---- Marks: RVL_ERR_IO if the trace cannot be written, RVL_ERR_HOST_OOM ---- */

rvl_status rvli_recorder_stage(const char *name);
rvl_status rvli_recorder_step(void);
/*
 * Begins and ends a range that is a stage. id: unique in this process. NVTX uses ids from
 * RVLI_NVTX_FIRST_ID on, programs in Python smaller ones from 1.
 */
rvl_status rvli_recorder_enter(uint64_t id, const char *name);
rvl_status rvli_recorder_leave(uint64_t id);

#endif
