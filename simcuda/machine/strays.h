/* SPDX-License-Identifier: MIT */
/*
 * Processes of a command that have lost its environment (`env -i`, sudo, a daemon's own): the
 * loader no longer leads them to the simulated libraries, so they load the CUDA driver of this
 * machine, and nothing of theirs is counted. They say nothing to the machine: it looks for them, by
 * their maps, every so often. One that ends in between is not seen. A process that writes its title
 * over its environment, as vLLM's do, has lost it as well, and has our driver: it is none.
 */
#ifndef RVL_SIMCUDA_MACHINE_STRAYS_H
#define RVL_SIMCUDA_MACHINE_STRAYS_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define RVLI_STRAYS_FIRST_MS 200
#define RVLI_STRAYS_PERIOD_MS 1000

typedef struct rvli_strays {
    pid_t process; /* the first that was seen; 0: none */
    char program[64];
    char library[PATH_MAX]; /* the driver that it has loaded */
    char own[PATH_MAX];     /* the folder of the simulated ones */
} rvli_strays;

/* Looks at all that a process has started, until one has been seen. */
void rvli_strays_look(rvli_strays *strays, pid_t root);

#endif
