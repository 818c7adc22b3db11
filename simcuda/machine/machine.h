/* SPDX-License-Identifier: MIT */
/*
 * The machine that programs with simulated GPUs run on: a context on the simulated backend, its
 * devices, and the connected processes (simcuda/wire/wire.h).
 *
 * The memory of all processes on a device is counted together. When a process ends, in any way,
 * its memory is freed. One thread serves all processes.
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
    const char *device;  /* a profile, or a size */
    int gpus;            /* devices, from 1 to RVL_MAX_DEVICES */
    uint64_t host_bytes; /* limit of host memory; 0: none */
    const char *record;  /* the trace's path */
    const char *stage;   /* a stage that begins at once; NULL: none */
    uint32_t world;      /* ranks of a job of which only one runs; 0: all ranks run */
    bool keep_times;     /* for rvli_machine_take_times() */
} rvli_machine_options;

/* Host memory of all processes. */
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

/* The pool of cudaMallocAsync that may reserve the most on a card. */
typedef struct rvli_machine_pool {
    int device;
    uint64_t reserved_bytes; /* the most in this run */
    uint64_t card_bytes;     /* the most that it may be on a card; 0: there is no pool */
    char process[RVLI_WIRE_TEXT_BYTES];
} rvli_machine_pool;

/* Behaviour of PyTorch that may differ on a card, as reported. */
#define RVLI_MACHINE_RACES 4
typedef struct rvli_machine_races {
    size_t count;
    char texts[RVLI_MACHINE_RACES][RVLI_WIRE_TEXT_BYTES]; /* what a card may do */
} rvli_machine_races;

/* KV caches as engines have sized them. Caches of the same size are one entry. */
#define RVLI_MACHINE_ENGINES 16
typedef struct rvli_machine_engine {
    uint64_t count; /* engines */
    uint64_t blocks;
    uint64_t block_tokens;
    uint64_t tokens;
    uint64_t bytes; /* on the GPU with the largest part */
    char name[RVLI_WIRE_TEXT_BYTES];
} rvli_machine_engine;
typedef struct rvli_machine_engines {
    size_t count;
    rvli_machine_engine list[RVLI_MACHINE_ENGINES];
} rvli_machine_engines;

/* Lengths of sequences, by the rule of the run. */
typedef struct rvli_machine_lengths {
    uint64_t count;
    uint64_t tokens; /* of all sequences */
    uint64_t shortest;
    uint64_t longest;
} rvli_machine_lengths;

typedef struct rvli_unknown_place {
    uint64_t count;
    uint64_t bytes; /* of all these reads */
    char text[RVLI_WIRE_TEXT_BYTES];
} rvli_unknown_place;

/* Copies to the host from memory without known content. */
typedef struct rvli_unknown_reads {
    uint64_t count; /* all reads, including those at places that did not fit in the list */
    size_t place_count;
    rvli_unknown_place places[RVLI_UNKNOWN_PLACES];
} rvli_unknown_reads;

/*
 * Opens a machine that listens and records. Returns RVL_OK, RVL_ERR_NOT_FOUND (no such device),
 * RVL_ERR_IO (the trace or a socket), or RVL_ERR_HOST_OOM. On failure, *error_out has the
 * message.
 */
rvl_status rvli_machine_open(const rvli_machine_options *options, rvl_error *error_out,
                             rvli_machine **machine_out);

/* The value for RVLI_WIRE_VARIABLE in a program's environment. */
const char *rvli_machine_name(const rvli_machine *machine);

/* The port of the store for a rank that runs alone (simcuda/machine/store.h). 0: there is none. */
uint16_t rvli_machine_store_port(const rvli_machine *machine);

/* While the machine serves, looks for descendants of root that do not load the simulated
 * libraries (strays.h). library: the path of a simulated library. */
void rvli_machine_watch_strays(rvli_machine *machine, pid_t root, const char *library);
const rvli_strays *rvli_machine_strays(const rvli_machine *machine);

/* A callback, called periodically while a machine serves, between requests. */
typedef struct rvli_machine_watch {
    int period_ms;
    bool (*look)(void *user, rvli_machine *machine); /* false: stop serving */
    void *user;
} rvli_machine_watch;

/*
 * Serves until a file descriptor is readable. watch: may be NULL. Returns RVL_OK;
 * RVL_ERR_TIMEOUT: the watch ended it; RVL_ERR_IO with errno.
 */
rvl_status rvli_machine_serve(rvli_machine *machine, int until, const rvli_machine_watch *watch);

/* The current state of a device. */
typedef struct rvli_machine_view {
    uint64_t used_bytes;
    uint64_t peak_bytes;
    uint64_t capacity_bytes;
    const char *stage; /* lives as long as the machine */
    uint64_t most_bytes;
    char most[RVLI_WIRE_TEXT_BYTES]; /* the process with most_bytes; "": none */
} rvli_machine_view;

/* views_out: one for each device of the machine. */
void rvli_machine_look(rvli_machine *machine, rvli_machine_view *views_out);

/* The number of devices. */
int rvli_machine_gpus(const rvli_machine *machine);

/* The number of processes so far that have used CUDA or NVML. Marking stages does not count as
 * use. */
uint64_t rvli_machine_processes(const rvli_machine *machine);

/* The number of processes turned away for lack of descriptors. */
uint64_t rvli_machine_turned_away(const rvli_machine *machine);

/* The first request that did not fit. count 0: everything fitted. */
const rvli_machine_refusal *rvli_machine_refused(const rvli_machine *machine);

/* Reads of unknown content, sorted by number of reads, largest first. */
const rvli_unknown_reads *rvli_machine_unknown_reads(rvli_machine *machine);

/* Values that rules made up, where on a card a kernel computes them, in the same order. */
const rvli_unknown_reads *rvli_machine_assumed(rvli_machine *machine);

const rvli_machine_pool *rvli_machine_widest_pool(const rvli_machine *machine);

const rvli_machine_races *rvli_machine_races_seen(const rvli_machine *machine);

/* In order of arrival. */
const rvli_machine_engines *rvli_machine_engines_seen(const rvli_machine *machine);

const rvli_machine_lengths *rvli_machine_lengths_given(const rvli_machine *machine);

/* Pairs of machine time and wall clock. The caller owns them, and clears them. */
rvli_times rvli_machine_take_times(rvli_machine *machine);

/* The moment at which host memory of all processes was largest. */
const rvli_machine_host *rvli_machine_host_peak(const rvli_machine *machine);

/* Records how the command ended. status: as from waitpid(). */
void rvli_machine_ended(rvli_machine *machine, int status);

/* Frees the memory of every process, ends the trace, and frees the machine. RVL_ERR_IO. */
rvl_status rvli_machine_close(rvli_machine *machine);

#endif
