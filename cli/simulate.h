/* SPDX-License-Identifier: MIT */
/*
 * Runs a command on simulated GPUs, for `reveille run` and `reveille check`. This process is the
 * machine (simcuda/machine) until the command has ended, and records what the command's processes
 * did in a trace.
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
    uint32_t world; /* 0: the command starts all its ranks itself */
    uint64_t host_bytes;
    uint64_t keep_bytes;
    uint64_t keep_host_bytes; /* largest host tensor that keeps its content; 0: any size */
    const char *responses;    /* the rule of lengths (lengths.h); NULL: the maximum length */
    uint32_t response_seed;
    const char *nvtx;    /* prefix of stages; NULL: one stage, "run" */
    const char *history; /* the folder of PyTorch's history; NULL: none is recorded */
    rvli_launch_options command;
} simulation;

/* How the run ended. */
typedef struct simulation_end {
    bool ran;     /* the command ran to its end */
    bool stopped; /* the watch stopped the command */
    int status;   /* from waitpid() */
    uint64_t processes;
    uint64_t turned_away; /* processes that got no simulated GPU, for lack of descriptors */
    rvli_machine_refusal refused;
    rvli_unknown_reads unknown;
    rvli_unknown_reads assumed;
    rvli_machine_pool pool;
    rvli_machine_host host; /* at the peak */
    rvli_strays strays;
    rvli_machine_races races;
    rvli_machine_engines engines;
    rvli_machine_lengths lengths;
    rvli_times times; /* only with a history; the caller clears them */
} simulation_end;

/* Finds the LD_AUDIT library that leads programs to the simulated ones. false: has complained. */
bool simulate_find_library(char path[PATH_MAX]);

/*
 * Runs the command and writes the trace. kept: the output with the trace as its draft, which gets
 * its name as soon as the machine is open; NULL: a trace without a name. watch may be NULL. Returns
 * 0 if the command ran or the watch stopped it; otherwise the exit status, having complained.
 */
int simulate(const simulation *what, const char *library, const char *trace, rvli_output *kept,
             const rvli_machine_watch *watch, simulation_end *end_out);

/* Complains if requests for memory were refused. */
void simulate_tell_refusals(const rvli_machine_refusal *refused);

/* Prints what a pool of cudaMallocAsync may reserve on a card, if that is more. who: a prefix, ""
 * or the check. */
void simulate_tell_pool(const rvli_machine_pool *pool, const char *who);

/* Prints how much memory the host of the real GPUs would need; nothing if host memory was not
 * counted. */
void simulate_tell_host(const simulation *what, const rvli_machine_host *host);

/* Prints the races that may end differently on a card. */
void simulate_tell_races(const rvli_machine_races *races, const char *who);

/* Complains of a process that loaded this machine's real driver. */
void simulate_tell_strays(const rvli_strays *strays, const char *who);
/* Complains if no process used CUDA. Returns whether that is so. */
bool simulate_tell_unused(const simulation_end *end);

/* Complains of processes that got no simulated GPU. true: there were some, so the result is
 * incomplete. */
bool simulate_tell_turned_away(const simulation_end *end);

/* Makes a trace file without a name, which exists until its descriptor is closed. Returns the
 * descriptor, and its path. -1: failed, having complained. */
#define SIMULATE_TRACE_BYTES 48
int simulate_trace(char path[SIMULATE_TRACE_BYTES]);

#endif
