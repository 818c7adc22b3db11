/* SPDX-License-Identifier: MIT */
/* The devices of the machine that a process sees, and their order: CUDA_VISIBLE_DEVICES. */
#ifndef RVL_SIMCUDA_VISIBLE_H
#define RVL_SIMCUDA_VISIBLE_H

#define RVLI_DEVICES_MAX 64

/* The beginning of a device's UUID. Its last byte is the device's number. */
#define RVLI_UUID_TEXT "GPU-72657665-696c-6c65-2d73-696d000000"

/*
 * Reads a list of numbers, of UUIDs, or of prefixes of UUIDs, as CUDA does. Devices after the
 * first that does not exist are not visible, and none is if one is listed twice. NULL: all are
 * visible. Returns the number of visible devices, and stores the machine's number of each.
 */
int rvli_visible_devices(const char *list, int devices, int numbers_out[RVLI_DEVICES_MAX]);

#endif
