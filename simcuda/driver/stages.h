/* SPDX-License-Identifier: MIT */
/* Stages that programs in Python mark: simcuda/python and the package call these by their names. */
#ifndef RVL_SIMCUDA_STAGES_H
#define RVL_SIMCUDA_STAGES_H

#include <stdint.h>

/* What the machine calls this process; "" before it has used CUDA. */
const char *rvli_simulated_name(void);

/* A flat stage of this process begins: 0, or a negative rvl_status. */
int rvli_simulated_stage(const char *name);

/* This process ends with a status, and by an error; "": none (rvli_client_end). */
void rvli_simulated_end(int status, const char *error);

/* A range begins, and ends by the number that is answered. name: 1 to 255 bytes. */
uint64_t rvli_simulated_enter(const char *name);
void rvli_simulated_leave(uint64_t id);

/* Takes the time of each mark, in the thread that has made it: PyTorch's history does. NULL:
 * nothing.
 */
typedef void (*rvli_simulated_mark_fn)(uint64_t wall_us);
void rvli_simulated_on_mark(rvli_simulated_mark_fn fn);

#endif
