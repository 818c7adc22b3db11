/* SPDX-License-Identifier: MIT */
/* Stages that Python programs mark. simcuda/python and the package call these functions by name. */
#ifndef RVL_SIMCUDA_STAGES_H
#define RVL_SIMCUDA_STAGES_H

#include <stdint.h>

/* The machine's name for this process; "" before it has used CUDA. */
const char *rvli_simulated_name(void);

/* Begins a flat stage of this process. Returns 0 or a negative rvl_status. */
int rvli_simulated_stage(const char *name);

/* Reports that this process ends with a status, and by an error; "": none (rvli_client_end). */
void rvli_simulated_end(int status, const char *error);

/* Begins a range, and returns the number that ends it. name: 1 to 255 bytes. */
uint64_t rvli_simulated_enter(const char *name);
void rvli_simulated_leave(uint64_t id);

/* Gets the time of each mark, in the thread that makes the mark. Used by PyTorch's history.
 * NULL: no callback. */
typedef void (*rvli_simulated_mark_fn)(uint64_t wall_us);
void rvli_simulated_on_mark(rvli_simulated_mark_fn fn);

#endif
