/* SPDX-License-Identifier: MIT */
#ifndef RVL_TESTS_SIMCUDA_NCCL_POLLED_H
#define RVL_TESTS_SIMCUDA_NCCL_POLLED_H

#include "simcuda/nccl/nccl.h"

/*
 * What a thread with the name of PyTorch's watchdog sees of collectives, and what other threads
 * see, one letter each: h hidden, d done. In this order: before the race is on; a collective
 * that no stream waits for, as this thread and the watchdog see it; a collective that a stream
 * waits for; how many are shown, and what the watchdog sees then; a later collective; the same
 * after its event was recorded again; the same once the race is over.
 */
void nccl_polled(rvli_comm *comm, void *(*find)(const char *name));

#endif
