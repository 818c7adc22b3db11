/* SPDX-License-Identifier: MIT */
/*
 * What the driver's process checkpoint costs: a price for the process, and one for what it has left
 * on its devices. An H100, driver 580, 0 to 8 GiB left (bench/gpu/driver/checkpoint.py, case
 * seconds): 0.36 to 0.43 s and 0.65 s a GiB off the card, 0.27 to 0.31 s and 0.21 s a GiB back.
 */
#ifndef RVL_BASE_PROCESS_COST_H
#define RVL_BASE_PROCESS_COST_H

#include "reveille/sim.h"

#define RVLI_PROCESS_LOCK ((rvl_cost){.call_ns = 300000})
#define RVLI_PROCESS_CHECKPOINT ((rvl_cost){.call_ns = 390000000, .fs_per_byte = 605000})
#define RVLI_PROCESS_RESTORE ((rvl_cost){.call_ns = 300000000, .fs_per_byte = 196000})
/* Beside that, for host memory that is registered: 16 GiB, off and back (host_asleep.py, H100). */
#define RVLI_PROCESS_PINNED_OFF ((rvl_cost){.fs_per_byte = 23300})
#define RVLI_PROCESS_PINNED_BACK ((rvl_cost){.fs_per_byte = 16500})
#define RVLI_PROCESS_UNLOCK ((rvl_cost){.call_ns = 1400000})

#endif
