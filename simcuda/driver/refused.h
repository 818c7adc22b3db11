/* SPDX-License-Identifier: MIT */
/* Requests that a program's own allocator refuses, in addition to those that the driver refuses. */
#ifndef RVL_SIMCUDA_REFUSED_H
#define RVL_SIMCUDA_REFUSED_H

#include <stdint.h>

/*
 * Reports a refusal to the machine. device: as this process numbers them. where: the line of the
 * program, "" if unknown. Called by simcuda/python.
 */
void rvli_refused_note(int device, uint64_t requested_bytes, uint64_t free_bytes,
                       const char *where);

#endif
