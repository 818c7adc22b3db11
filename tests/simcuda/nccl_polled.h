/* SPDX-License-Identifier: MIT */
#ifndef RVL_TESTS_SIMCUDA_NCCL_POLLED_H
#define RVL_TESTS_SIMCUDA_NCCL_POLLED_H

#include "simcuda/nccl/nccl.h"

/*
 * What a thread with the name of PyTorch's watchdog sees of collectives, and who else does, a word
 * for each: h hidden, d done. In this order:
 *     before the race is on; a collective that nobody waits for, this thread's answer and the
 *     watchdog's; one that a stream waits for; how many are shown, and the watchdog's answer then;
 *     a later one; the same when its event was recorded again; the same once the race is over
 */
void nccl_polled(rvli_comm *comm, void *(*find)(const char *name));

#endif
