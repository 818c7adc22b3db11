/* SPDX-License-Identifier: MIT */
/*
 * What target_api.c knows of a context on simulated devices: which allocations there are, in what
 * state and with what content, what is imported, and who holds external bytes. The library is to
 * agree after every call, done or failed.
 */
#ifndef RVL_TESTS_FUZZ_API_MODEL_H
#define RVL_TESTS_FUZZ_API_MODEL_H

#include "reveille/reveille.h"
#include "tests/support/fault.h"

#define API_SLOTS 16
#define API_TAGS 5
#define API_IMPORTS 4
#define API_DEVICES 2
#define API_GRANULES 64u /* of a device */

/* The first byte of an input: what the context is like. */
#define API_BACKED 1u     /* memory has content */
#define API_DISK 2u       /* backups may be in files */
#define API_STORE 4u      /* host backups go to a store; memory has content then */
#define API_LOG 8u        /* each call of the backend is logged */
#define API_NO_VERIFY 16u /* digests are not compared */
#define API_TWO 32u       /* two devices */
#define API_OVERCOMMIT 64u
#define API_REAL_TIME 128u /* by the machine's clock, so that forecasts learn */

typedef struct api_slot {
    rvl_addr addr; /* 0: free */
    uint64_t size;
    int tag, device;
    rvl_backup backup;
    rvl_state state;
    bool moving; /* by what is prepared */
    bool known;  /* its content */
    uint8_t content;
} api_slot;

typedef struct api_import {
    rvl_addr addr; /* 0: none */
    uint64_t size;
    rvl_state state;
} api_import;

/* What was prepared and neither committed nor aborted. */
typedef struct api_prepared {
    rvl_transition *transition; /* one of the two, or nothing */
    rvl_resuming *resuming;
    bool pauses, drops; /* drops: what is paused or resumed has no content afterwards */
} api_prepared;

typedef struct api_model {
    rvl_context *context;
    rvl_store *store; /* NULL: none */
    fault_injector *fault;
    unsigned mode, devices;
    uint64_t granule;
    bool faulty;      /* calls of the backend may fail in this step */
    bool ever_faulty; /* or have */
    bool ever_broken; /* for good, in a step */
    bool ever_imported;
    rvl_process other; /* process of the last tag */
    rvl_tag tags[API_TAGS];
    api_slot slots[API_SLOTS];
    api_import imports[API_IMPORTS];
    uint64_t external[API_DEVICES];
    uint32_t stages;
    api_prepared prepared;
    uint64_t arrived_bytes;
    bool veto, refuse; /* the last tag's callback, and the guard */
    bool guarded, recording;
    unsigned asked, told; /* the guard */
} api_model;

/* Whether a call was done; one that has failed must say why. */
bool api_done(const api_model *m, rvl_status status);

/* A bit of a set for each tag. */
unsigned api_tag_bit(int tag);

bool api_is_prepared(const api_model *m);

void api_open(api_model *m, uint8_t mode, uint8_t kept);

/* Gives up what is prepared, and closes. All that was allocated is counted as live. */
void api_close(api_model *m);

/* Whether the library says what the model says. */
void api_check(api_model *m);

/* The allocation with all its bytes as they are written here; nothing where memory has none. */
void api_write(api_model *m, api_slot *s, uint8_t content);

/* Where a context records to. One file for all executions. */
const char *api_trace_path(void);

#endif
