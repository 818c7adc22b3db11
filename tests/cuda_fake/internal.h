/* SPDX-License-Identifier: MIT */
/*
 * Parts of the fake driver and what they know of each other.
 *
 * One mutex guards everything; an entry point holds it from its first line to its return. Each part
 * keeps its own state and has a function that forgets it. CUDA's handles are pointers to our own
 * structs; a handle is looked up in the list of what exists before it is followed.
 */
#ifndef RVL_TESTS_CUDA_FAKE_INTERNAL_H
#define RVL_TESTS_CUDA_FAKE_INTERNAL_H

#include "core/backend.h"
#include "fake.h"

#define FAKE_GRANULARITY (UINT64_C(2) << 20)
#define FAKE_FIRST_PCI_BUS 0x19 /* of device 0 */
#define FAKE_MAX_PARAMS 16
#define FAKE_PARAM_BYTES 64

/* ---- entry.c: the mutex, counts and faults ---- */

typedef enum fake_call {
#define FAKE_CALL_ENUM(name, version) FAKE_CALL_##name,
    FAKE_ENTRY_MAP(FAKE_CALL_ENUM)
#undef FAKE_CALL_ENUM
        FAKE_CALL_COUNT
} fake_call;

typedef enum fake_need {
    FAKE_NEEDS_NOTHING,
    FAKE_NEEDS_INIT,
    FAKE_NEEDS_MEMORY, /* init; a context too if so configured */
    FAKE_NEEDS_CONTEXT /* init, and a current context without a sticky error */
} fake_need;

bool fake_lock(void);
void fake_unlock(const bool *locked);
/* Counts a call and says why it goes no further, if so. With the lock held. */
CUresult fake_admit(fake_call call, fake_need need);
/* Lets the time of a call over so many bytes pass. */
void fake_charge(fake_call call, uint64_t bytes);
void fake_entry_reset(void);

#define FAKE_LOCKED                                                                                \
    const bool fake_locked __attribute__((cleanup(fake_unlock), unused)) = fake_lock()

/* First line of every entry point. */
#define FAKE_ENTER(symbol, need)                                                                   \
    FAKE_LOCKED;                                                                                   \
    const CUresult fake_refused = fake_admit(FAKE_CALL_##symbol, need);                            \
    if (fake_refused != CUDA_SUCCESS)                                                              \
    return fake_refused

/* ---- config.c ---- */

typedef struct fake_settings {
    fake_config config; /* defaults filled in; missing_symbol points to missing */
    char missing[64];
} fake_settings;

/* The settings; reads the environment if nobody has configured anything. */
const fake_config *fake_settings_get(void);
void fake_config_reset(void);

/* ---- device.c: cuInit, and the simulator that holds the memory ---- */

bool fake_initialized(void);
/* The simulator's instance: one device. Its memory stands for that of all. */
void *fake_sim(void);
/* The CUresult of a simulator's status. */
CUresult fake_sim_result(rvl_status status);
bool fake_device_exists(int device);
void fake_device_reset(void);

/* ---- context.c ---- */

struct CUctx_st {
    CUcontext next;
    int device;
    uint32_t references; /* 0: destroyed */
    CUresult error;      /* sticky */
    CUstream legacy;     /* the NULL stream, NULL while it was not used */
};

/* The calling thread's context: none, destroyed or good. */
CUresult fake_context_current(CUcontext *context_out);
/* Likewise; its sticky error if it has one. */
CUresult fake_context_check(void);
void fake_context_stats(fake_live *live);
void fake_context_reset(void);

/* ---- blocks.c: physical memory ---- */

typedef struct fake_block {
    int device;
    rvli_handle sim;
    uint64_t size;
    uint64_t handles; /* the last of these three frees it */
    uint64_t mappings;
    uint64_t exports;
    bool exportable;
    bool fabric;  /* created for sharing between nodes */
    bool rdma;    /* created with gpuDirectRDMACapable */
    bool charged; /* to its device; not if it is another process's */
    int memory; /* exportable ones: the file of their bytes, which other processes map too; or -1 */
} fake_block;

fake_block *fake_block_of(CUmemGenericAllocationHandle handle);
/* The block with its bytes in a file, NULL if it is none of this process. */
fake_block *fake_block_of_memory(int memory);
/* A block of this process for the bytes of another's; takes the file. They are charged there. */
CUresult fake_block_adopt(int memory, uint64_t size, CUmemGenericAllocationHandle *handle_out);
/* Another handle of a block. */
CUresult fake_block_name(fake_block *block, CUmemGenericAllocationHandle *handle_out);
/* Frees the block if nothing holds it any more. */
void fake_block_settle(fake_block *block);
uint64_t fake_used_bytes(int device);
/* What is free of a device, with or without what this process has there. */
uint64_t fake_room(int device, bool with_own);
uint64_t fake_rdma_bytes(void);
void fake_blocks_stats(fake_live *live);
void fake_blocks_reset(void);

/* ---- fabric.c: handles that other nodes may open ---- */

/* What attribute 128 answers. */
bool fake_fabric_is_claimed(void);
/* Whether memory may be created with such a handle. */
bool fake_fabric_creates(const CUmemAllocationProp *prop);
CUresult fake_fabric_export(const fake_block *block, CUmemGenericAllocationHandle handle,
                            void *bytes_out);
CUresult fake_fabric_import(const void *bytes, CUmemGenericAllocationHandle *handle_out);

/* ---- mappings.c: address ranges and what is mapped there ---- */

/* Whether a device may read (or write) every byte. */
bool fake_mapping_allows(uint64_t addr, uint64_t size, int device, bool write);
void fake_mappings_stats(fake_live *live);
void fake_mappings_reset(void);

/* ---- process.c: the checkpoint of the process ---- */

/* false: it is locked or away, and a call was counted that would wait. */
bool fake_process_runs(void);
bool fake_process_is_away(void);
void fake_process_reset(void);

/* ---- share.c: exported memory ---- */

/* Lets go of blocks that have all exported file descriptors closed. */
void fake_share_sweep(void);
void fake_share_stats(fake_live *live);
void fake_share_reset(void);

/* ---- host.c: pinned host memory ---- */

/* The one registered region that holds all of [host, host + size), 0: none. */
uint64_t fake_host_region(const void *host, uint64_t size);
void fake_host_stats(fake_stats *stats);
void fake_host_reset(void);

/* ---- stream.c: queues ---- */

typedef enum fake_op_kind {
    FAKE_OP_TO_HOST,
    FAKE_OP_TO_DEVICE,
    FAKE_OP_SET,
    FAKE_OP_KERNEL,
    FAKE_OP_WAIT, /* for an event */
    FAKE_OP_MARK  /* an event recorded */
} fake_op_kind;

/* A place in a stream: its number, and the number of an operation. */
typedef struct fake_place {
    uint64_t stream;
    uint64_t sequence;
} fake_place;

typedef struct fake_op {
    struct fake_op *next;
    uint64_t sequence; /* in the order of queueing, over all streams */
    fake_op_kind kind;
    uint64_t addr;
    uint64_t size;
    void *host;
    uint64_t region; /* of pinned memory, 0: pageable */
    unsigned char byte;
    fake_place place; /* FAKE_OP_WAIT */
    CUfunction kernel;
    unsigned char params[FAKE_PARAM_BYTES];
} fake_op;

struct CUstream_st {
    CUstream next;
    uint64_t number;
    CUcontext context;
    bool blocking; /* ordered with the legacy stream */
    bool destroyed;
    CUstreamCaptureStatus capture;
    fake_op *ops;     /* oldest first */
    fake_op *last_op; /* if there are any */
};

/* A stream that exists, of a context that does. */
CUresult fake_stream_of(CUstream handle, CUstream *stream_out);
/* Queues an operation of the current context. swallowed_out: the stream captures; may be NULL. */
CUresult fake_stream_queue(CUstream handle, const fake_op *op, fake_place *place_out,
                           bool *swallowed_out);
/* Carries everything up to a place out. The context's sticky error, if there is one. */
void fake_place_reach(fake_place place);
/*
 * Whether waiting for an event disturbs a capture (all are made in global mode), which it does
 * unless the thread's mode is relaxed; the capture is invalidated then. Measured, CUDA 13.0, driver
 * 580.
 */
bool fake_stream_wait_disturbs(CUcontext context);

/* Carries everything of a context out. False: something captures, and is invalidated. */
bool fake_streams_drain(CUcontext context);
/* Drops what is queued in a context. */
void fake_streams_drop(CUcontext context);
void fake_streams_stats(fake_stats *stats);
void fake_streams_reset(void);

/* ---- event.c ---- */

void fake_events_stats(fake_live *live);
void fake_events_reset(void);

/* ---- copy.c: what operations do ---- */

/* Carries an operation out, for a device. */
CUresult fake_op_run(const fake_op *op, int device);
void fake_copies_stats(fake_stats *stats);
void fake_copies_reset(void);

/* ---- module.c ---- */

void fake_kernel_run(const fake_op *op);
void fake_modules_stats(fake_live *live);
void fake_modules_reset(void);

#endif
