/* SPDX-License-Identifier: MIT */
/*
 * What this process does with device memory, as a trace (docs/record.md).
 *
 * One recorder a process. A free is written before the driver is called and an allocation after it,
 * so that memory that went from one process to another is never counted twice when their files are
 * merged. The file begins with the first event of a device: a header has to say what the devices
 * are, and asking earlier would start the driver in processes that never do. Marks before that
 * wait. Off, it costs one read a call.
 */
#ifndef RVL_HOOKS_RECORD_RECORDER_H
#define RVL_HOOKS_RECORD_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reveille/memory.h"

/* Bytes that nobody has read. */
#define RVLI_RECORDER_UNMEASURED UINT64_MAX

typedef struct rvli_recorder_options {
    const char *pattern; /* path of the file; %p is the process id */
    const char *name;    /* of the process in the trace; NULL: the program's own */
    uint64_t period_ns;  /* between samples of the true use; 0: at stage marks alone */
} rvli_recorder_options;

/* What a number stands for. */
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
    uint32_t references; /* beside the first */
    rvl_backup backup;
    bool paused; /* has no memory yet */
    bool nccl;   /* made by NCCL for itself: its bytes are told as a sum, "nccl:PID" */
} rvli_recorded;

bool rvli_recorder_on(void);

/*
 * Begins, also for children by fork. Strings are copied. RVL_ERR_INVALID: the pattern has a % that
 * is neither %p nor %%, is too long or ends in .zst, or the name has more than 255 bytes;
 * RVL_ERR_IO: a file cannot be made there, with errno's value as the native code.
 */
rvl_status rvli_recorder_start(const rvli_recorder_options *options);

/* Writes what is left and the end record. Whatever happens later is not recorded. */
void rvli_recorder_close(void);

/* The same from a place that must not wait: false if somebody else is writing. */
bool rvli_recorder_try_close(void);

/* ---- Memory. device -1: that of the thread's context ---- */

void rvli_recorder_alloc(rvli_recorded_space space, uint64_t key, const rvli_recorded *what);

/* Somebody else holds it, too: one more free is needed, and this one more is not written. */
void rvli_recorder_retain(rvli_recorded_space space, uint64_t key);

/* A request for which there was no memory. */
typedef struct rvli_refused {
    const char *tag; /* NULL: none */
    int device;      /* -1: that of the thread's context */
    uint64_t requested_bytes;
    uint64_t free_bytes; /* RVLI_RECORDER_UNMEASURED: what the device says now */
} rvli_refused;

void rvli_recorder_refuse(const rvli_refused *refused);

/* false: nothing is known of the key, and nothing is written. was_out may be NULL. */
bool rvli_recorder_free(rvli_recorded_space space, uint64_t key, rvli_recorded *was_out);

/*
 * All memory of a tag, NULL: of every tag, is about to be given up; it has been taken again; or
 * some of it has, or none: of each allocation is_paused() says how it is now. It must not record.
 */
typedef bool (*rvli_recorder_paused)(uint64_t addr);
void rvli_recorder_pause(const char *tag);
void rvli_recorder_resume(const char *tag);
void rvli_recorder_settle(const char *tag, rvli_recorder_paused is_paused);

/*
 * The process is about to leave its devices, with the pauses that follow; it is back, or has not
 * left. Nothing is read of devices in between: NVML's next call in a process that sleeps never
 * returns. discard: without contents; paused: the tags stay so.
 */
void rvli_recorder_sleep(bool discard);
void rvli_recorder_wake(bool paused);

/* ---- What the driver takes for itself ---- */

/* Within which calls. The cause of external bytes is the name and the process. */
typedef enum rvli_recorded_growth {
    RVLI_GROWTH_CONTEXT, /* "cuda_context": the primary context of a device is made */
    RVLI_GROWTH_KERNELS, /* "kernels": code, and the local memory that a kernel's threads need */
    RVLI_GROWTH_STREAMS, /* "streams" */
    RVLI_GROWTH_GRAPHS,  /* "graphs": instantiated, uploaded or launched for the first time */
    RVLI_GROWTH_NCCL, /* "nccl": what NCCL has allocated; its calls are seen, and none is measured
                       */
    RVLI_GROWTHS
} rvli_recorded_growth;

/*
 * What is in use of the device before such a call; to be passed on to the other, behind it. What
 * other processes take in that moment is counted with it. device -1: that of the thread's context.
 */
uint64_t rvli_recorder_growth_begin(rvli_recorded_growth growth, int device);
void rvli_recorder_growth_end(rvli_recorded_growth growth, int device, uint64_t before_bytes);

/*
 * The device's primary context has been reset, or released: if that was the last time, it is gone,
 * and with it what the driver had taken and what had addresses there, except for memory of regions.
 * Whether it is, and there is a recording.
 */
bool rvli_recorder_context_reset(int device);
bool rvli_recorder_context_released(int device);

/*
 * What NCCL holds on a device, by the calls that were seen. false: nothing is recorded of the
 * device.
 */
bool rvli_recorder_nccl_bytes(int device, uint64_t *bytes_out);

/* ---- Marks: RVL_ERR_IO if the trace cannot be written, RVL_ERR_HOST_OOM ---- */

rvl_status rvli_recorder_stage(const char *name);
rvl_status rvli_recorder_step(void);
/*
 * A range that is a stage begins, and ends. id: of this process. NVTX takes those from
 * RVLI_NVTX_FIRST_ID on, programs in Python the others from 1.
 */
rvl_status rvli_recorder_enter(uint64_t id, const char *name);
rvl_status rvli_recorder_leave(uint64_t id);

#endif
