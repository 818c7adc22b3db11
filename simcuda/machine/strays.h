/* SPDX-License-Identifier: MIT */
/*
 * Processes of a command that have lost its environment (`env -i`, sudo, a daemon's own). The
 * loader no longer leads them to the simulated libraries, so they load this host's CUDA driver,
 * and their memory is not counted. They never connect to the machine, so it looks for them
 * periodically, in their maps. A process that ends between two looks is missed. A process that
 * writes its title over its environment, as vLLM's do, also seems to have lost it, but has our
 * driver. It is not a stray.
 */
#ifndef RVL_SIMCUDA_MACHINE_STRAYS_H
#define RVL_SIMCUDA_MACHINE_STRAYS_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define RVLI_STRAYS_FIRST_MS 200
#define RVLI_STRAYS_PERIOD_MS 1000

typedef struct rvli_strays {
    pid_t process; /* the first one found; 0: none */
    char program[64];
    char library[PATH_MAX]; /* the driver that it has loaded */
    char own[PATH_MAX];     /* the folder of the simulated libraries */
} rvli_strays;

/* Looks at all descendants of a process, until one stray has been found. */
void rvli_strays_look(rvli_strays *strays, pid_t root);

#endif
