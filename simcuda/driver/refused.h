/* SPDX-License-Identifier: MIT */
/* Requests that a program's own allocator refuses, beyond those that the driver does. */
#ifndef RVL_SIMCUDA_REFUSED_H
#define RVL_SIMCUDA_REFUSED_H

#include <stdint.h>

/*
 * Tells the machine. device: as this process counts them. where: the line of the program, "" if it
 * is not known. simcuda/python calls it.
 */
void rvli_refused_note(int device, uint64_t requested_bytes, uint64_t free_bytes,
                       const char *where);

#endif
