/* SPDX-License-Identifier: MIT */
/*
 * A command on simulated GPUs, for `reveille run` and `reveille check`. This process becomes the
 * machine (simcuda/machine) until the command has ended. What its processes did is in a trace then.
 */
#ifndef RVL_CLI_SIMULATE_H
#define RVL_CLI_SIMULATE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/output.h"
#include "simcuda/machine/launch.h"
#include "simcuda/machine/machine.h"

#define SIMULATE_DEVICE_USUAL "h200"
#define SIMULATE_RANKS_MAX (1u << 20)

#define OPTION_OF_GPUS(offset)                                                                     \
    {                                                                                              \
        .kind = OPTION_NUMBER, .name = "gpus", .value = "N", .field = (offset), .usual = "1",      \
        .expected = "a number from 1 to 64", .least = 1, .most = RVL_MAX_DEVICES,                  \
        .help = "number of GPUs",                                                                  \
    }

typedef struct simulation {
    const char *device;
    uint32_t gpus;
    uint32_t rank;
    uint32_t world; /* 0: the command starts all ranks itself, if there are any */
    uint64_t host_bytes;
    uint64_t keep_bytes;
    uint64_t keep_host_bytes; /* of tensors in host memory; 0: of any size */
    const char *responses;    /* the rule of lengths (lengths.h); NULL: each is as long as it may */
    uint32_t response_seed;
    const char *nvtx;    /* NULL: all is one stage, "run" */
    const char *history; /* the folder of PyTorch's history; NULL: none is kept */
    rvli_launch_options command;
} simulation;

/* How it ended. */
typedef struct simulation_end {
    bool ran;     /* the command, to its end */
    bool stopped; /* by the watch */
    int status;   /* as waitpid() has it */
    uint64_t processes;
    uint64_t turned_away; /* processes that found no place */
    rvli_machine_refusal refused;
    rvli_unknown_reads unknown;
    rvli_unknown_reads assumed;
    rvli_machine_pool pool;
    rvli_machine_host host; /* at its peak */
    rvli_strays strays;
    rvli_machine_races races;
    rvli_machine_engines engines;
    rvli_machine_lengths lengths;
    rvli_times times; /* with a history; the caller clears them */
} simulation_end;

/* Where the library is that leads programs to the simulated ones. Says why not. */
bool simulate_find_library(char path[PATH_MAX]);

/*
 * Runs it into a trace. kept: the trace is its draft, which gets its name as soon as there is a
 * machine; NULL: it has no name. watch: may be NULL. Returns 0 where the command has run, or the
 * watch has stopped it; otherwise the exit status, having complained.
 */
int simulate(const simulation *what, const char *library, const char *trace, rvli_output *kept,
             const rvli_machine_watch *watch, simulation_end *end_out);

/* Complain of what did not fit, and of a command that used no CUDA; nothing where all is well. */
void simulate_tell_refusals(const rvli_machine_refusal *refused);

/* What a pool of cudaMallocAsync may reserve on a card, if that is more. who: "", or the check. */
void simulate_tell_pool(const rvli_machine_pool *pool, const char *who);

/* What the host of the real GPUs would need; nothing where no tensors are counted. */
void simulate_tell_host(const simulation *what, const rvli_machine_host *host);

/* Where a card may go another way than this run did. */
void simulate_tell_races(const rvli_machine_races *races, const char *who);

/* Of a process that was led to the driver of this machine. */
void simulate_tell_strays(const rvli_strays *strays, const char *who);
bool simulate_tell_unused(const simulation_end *end);

/* Of processes that found no place. true: there were some, and what the run shows is not all. */
bool simulate_tell_turned_away(const simulation_end *end);

/* A nameless trace, which goes with its file descriptor. -1: none, having complained. */
#define SIMULATE_TRACE_BYTES 48
int simulate_trace(char path[SIMULATE_TRACE_BYTES]);

#endif
