/* SPDX-License-Identifier: MIT */
/*
 * The machine that programs with simulated GPUs run on: one context on the simulated backend, its
 * devices, and the processes that are connected to it (simcuda/wire/wire.h).
 *
 * Memory of all processes on a device is counted together. A process that ends, however it ends,
 * gives back what it had. One thread serves all of them.
 */
#ifndef RVL_SIMCUDA_MACHINE_H
#define RVL_SIMCUDA_MACHINE_H

#include <stdbool.h>

#include "reveille/sim.h"
#include "reveille/stats.h"
#include "simcuda/machine/strays.h"
#include "simcuda/machine/times.h"
#include "simcuda/wire/wire.h"

typedef struct rvli_machine rvli_machine;

typedef struct rvli_machine_options {
    const char *device;  /* a profile or a size */
    int gpus;            /* devices, from 1 to RVL_MAX_DEVICES */
    uint64_t host_bytes; /* bound on host memory; 0: none */
    const char *record;  /* path of the trace */
    const char *stage;   /* the stage that begins at once; NULL: none does */
    uint32_t world;      /* ranks of a job of which one alone runs; 0: all that there are run */
    bool keep_times;     /* for rvli_machine_take_times() */
} rvli_machine_options;

/* Host memory that all processes have together. */
typedef struct rvli_machine_host {
    uint64_t pinned_bytes;
    uint64_t pageable_bytes;
} rvli_machine_host;

/* The first request that did not fit. */
typedef struct rvli_machine_refusal {
    uint64_t count; /* of all requests that did not fit */
    int device;     /* RVL_NO_DEVICE: host memory */
    uint64_t requested_bytes;
    uint64_t free_bytes;
    char process[RVLI_WIRE_TEXT_BYTES];
} rvli_machine_refusal;

#define RVLI_UNKNOWN_PLACES 64

/* The pool of cudaMallocAsync that may reserve most on a card. */
typedef struct rvli_machine_pool {
    int device;
    uint64_t reserved_bytes; /* the most, here */
    uint64_t card_bytes;     /* the most that it may be on a card; 0: there is no pool */
    char process[RVLI_WIRE_TEXT_BYTES];
} rvli_machine_pool;

/* What PyTorch does in one way here and in another on a card, as it comes there. */
#define RVLI_MACHINE_RACES 4
typedef struct rvli_machine_races {
    size_t count;
    char texts[RVLI_MACHINE_RACES][RVLI_WIRE_TEXT_BYTES]; /* the other way */
} rvli_machine_races;

/* KV caches as engines have sized them, those of the same size as one. */
#define RVLI_MACHINE_ENGINES 16
typedef struct rvli_machine_engine {
    uint64_t count; /* of engines */
    uint64_t blocks;
    uint64_t block_tokens;
    uint64_t tokens;
    uint64_t bytes; /* on the GPU that has most of it */
    char name[RVLI_WIRE_TEXT_BYTES];
} rvli_machine_engine;
typedef struct rvli_machine_engines {
    size_t count;
    rvli_machine_engine list[RVLI_MACHINE_ENGINES];
} rvli_machine_engines;

/* Lengths of sequences, by the rule of the run. */
typedef struct rvli_machine_lengths {
    uint64_t count;
    uint64_t tokens; /* of all */
    uint64_t shortest;
    uint64_t longest;
} rvli_machine_lengths;

typedef struct rvli_unknown_place {
    uint64_t count;
    uint64_t bytes; /* of all of these reads */
    char text[RVLI_WIRE_TEXT_BYTES];
} rvli_unknown_place;

/* Copies to the host of memory that has no known content. */
typedef struct rvli_unknown_reads {
    uint64_t count; /* of all, also those of places for which there was no room */
    size_t place_count;
    rvli_unknown_place places[RVLI_UNKNOWN_PLACES];
} rvli_unknown_reads;

/*
 * Opens a machine that listens and records. Returns RVL_OK, RVL_ERR_NOT_FOUND (no such device),
 * RVL_ERR_IO (the trace, or a socket), RVL_ERR_HOST_OOM, and then *error_out says what was wrong.
 */
rvl_status rvli_machine_open(const rvli_machine_options *options, rvl_error *error_out,
                             rvli_machine **machine_out);

/* What the environment of a program must have under RVLI_WIRE_VARIABLE. */
const char *rvli_machine_name(const rvli_machine *machine);

/* The port of the store for that one (simcuda/machine/store.h); 0: there is none. */
uint16_t rvli_machine_store_port(const rvli_machine *machine);

/* Looks for processes among those that this one has started that are led to no simulated library
 * (strays.h), while it serves. library: one of those, with its path. */
void rvli_machine_watch_strays(rvli_machine *machine, pid_t root, const char *library);
const rvli_strays *rvli_machine_strays(const rvli_machine *machine);

/* Looks on while a machine serves: every so often, and not while it does anything. */
typedef struct rvli_machine_watch {
    int period_ms;
    bool (*look)(void *user, rvli_machine *machine); /* false: it is to serve no longer */
    void *user;
} rvli_machine_watch;

/*
 * Serves until a file descriptor can be read. watch: may be NULL. Returns RVL_OK; RVL_ERR_TIMEOUT:
 * the watch has ended it; RVL_ERR_IO with errno.
 */
rvl_status rvli_machine_serve(rvli_machine *machine, int until, const rvli_machine_watch *watch);

/* A device at this instant. */
typedef struct rvli_machine_view {
    uint64_t used_bytes;
    uint64_t peak_bytes;
    uint64_t capacity_bytes;
    const char *stage; /* lives as long as the machine */
    uint64_t most_bytes;
    char most[RVLI_WIRE_TEXT_BYTES]; /* the process that has these; "": there is none */
} rvli_machine_view;

/* views_out: one for each of the machine's devices. */
void rvli_machine_look(rvli_machine *machine, rvli_machine_view *views_out);

/* How many devices it has. */
int rvli_machine_gpus(const rvli_machine *machine);

/* How many processes have used CUDA, or NVML, so far. Marking stages is no use of them. */
uint64_t rvli_machine_processes(const rvli_machine *machine);

/* How many processes found no place, for lack of descriptors. */
uint64_t rvli_machine_turned_away(const rvli_machine *machine);

/* What did not fit; count 0: everything did. */
const rvli_machine_refusal *rvli_machine_refused(const rvli_machine *machine);

/* What was read and is not known, the place with most reads first. */
const rvli_unknown_reads *rvli_machine_unknown_reads(rvli_machine *machine);

/* What rules made up where only a kernel would have chosen, in the same order. */
const rvli_unknown_reads *rvli_machine_assumed(rvli_machine *machine);

const rvli_machine_pool *rvli_machine_widest_pool(const rvli_machine *machine);

const rvli_machine_races *rvli_machine_races_seen(const rvli_machine *machine);

/* In the order in which they came. */
const rvli_machine_engines *rvli_machine_engines_seen(const rvli_machine *machine);

const rvli_machine_lengths *rvli_machine_lengths_given(const rvli_machine *machine);

/* The wall clock by the machine's. The caller takes it over, and clears it. */
rvli_times rvli_machine_take_times(rvli_machine *machine);

/* The instant with most host memory, all processes counted. */
const rvli_machine_host *rvli_machine_host_peak(const rvli_machine *machine);

/* Records how the command ended. status: as waitpid() has it. */
void rvli_machine_ended(rvli_machine *machine, int status);

/* Takes the memory of every process back, ends the trace, and frees the machine. RVL_ERR_IO. */
rvl_status rvli_machine_close(rvli_machine *machine);

#endif
