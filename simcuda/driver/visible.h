/* SPDX-License-Identifier: MIT */
/* Which of the machine's devices a process sees, and in which order: CUDA_VISIBLE_DEVICES. */
#ifndef RVL_SIMCUDA_VISIBLE_H
#define RVL_SIMCUDA_VISIBLE_H

#define RVLI_DEVICES_MAX 64

/* How a device's UUID begins; the device's number is its last byte. */
#define RVLI_UUID_TEXT "GPU-72657665-696c-6c65-2d73-696d000000"

/*
 * Reads a list of numbers or of UUIDs, or of beginnings of UUIDs, as CUDA does: what is listed
 * after the first device that does not exist is not seen, and none is if one is listed twice. NULL:
 * all are seen. Returns how many are, and the machine's number of each.
 */
int rvli_visible_devices(const char *list, int devices, int numbers_out[RVLI_DEVICES_MAX]);

#endif
