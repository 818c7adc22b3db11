/* SPDX-License-Identifier: MIT */
/*
 * Memory of other processes that the program opens by CUDA itself. It forbids the process to sleep:
 * the driver could not bring the process back (reveille/sleep.h).
 */
#ifndef RVL_HOOKS_IPC_FOREIGN_H
#define RVL_HOOKS_IPC_FOREIGN_H

#include <stdint.h>

/*
 * It was opened, and is closed again. key: the address, or the handle of what came by a descriptor;
 * what was never opened may be closed. Leave the error record as it is.
 */
void rvli_foreign_open(uint64_t key);
void rvli_foreign_close(uint64_t key);

#endif
