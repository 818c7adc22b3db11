/* SPDX-License-Identifier: MIT */
/* Calls wait here while the process is locked or off its devices (cuCheckpointProcessLock). */
#ifndef RVL_SIMCUDA_CHECKPOINT_H
#define RVL_SIMCUDA_CHECKPOINT_H

#include "simcuda/driver/driver.h"

/* Returns at once while the process runs. */
void rvli_checkpoint_wait(void);

void rvli_checkpoint_forget(void);

#endif
