/* SPDX-License-Identifier: MIT */
/*
 * Memory of other processes that the program opens through CUDA itself. While it is open, the
 * process must not sleep: the driver could not restore it (reveille/sleep.h).
 */
#ifndef RVL_HOOKS_IPC_FOREIGN_H
#define RVL_HOOKS_IPC_FOREIGN_H

#include <stdint.h>

/*
 * Memory was opened, or closed. key: its address, or the handle of memory that came as a file
 * descriptor. Unknown keys may be closed. Keep the error record.
 */
void rvli_foreign_open(uint64_t key);
void rvli_foreign_close(uint64_t key);

#endif
