/* SPDX-License-Identifier: MIT */
/*
 * The cost of the driver's process checkpoint: a price for the process, and a price for each byte
 * that it still holds on its devices. Measured on an H100, driver 580, with 0 to 8 GiB held
 * (bench/gpu/driver/checkpoint.py, case seconds). Checkpoint: 0.36 to 0.43 s, plus 0.65 s a GiB.
 * Restore: 0.27 to 0.31 s, plus 0.21 s a GiB.
 */
#ifndef RVL_BASE_PROCESS_COST_H
#define RVL_BASE_PROCESS_COST_H

#include "reveille/sim.h"

#define RVLI_PROCESS_LOCK ((rvl_cost){.call_ns = 300000})
#define RVLI_PROCESS_CHECKPOINT ((rvl_cost){.call_ns = 390000000, .fs_per_byte = 605000})
#define RVLI_PROCESS_RESTORE ((rvl_cost){.call_ns = 300000000, .fs_per_byte = 196000})
/*
 * In addition, for registered host memory: 16 GiB, checkpoint and restore (host_asleep.py, H100).
 */
#define RVLI_PROCESS_PINNED_OFF ((rvl_cost){.fs_per_byte = 23300})
#define RVLI_PROCESS_PINNED_BACK ((rvl_cost){.fs_per_byte = 16500})
#define RVLI_PROCESS_UNLOCK ((rvl_cost){.call_ns = 1400000})

#endif
