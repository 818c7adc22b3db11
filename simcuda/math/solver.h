/* SPDX-License-Identifier: MIT */
/* Declarations that the files of the simulated cuSOLVER share. Results are those of NVIDIA's
 * documentation. */
#ifndef RVL_SIMCUDA_MATH_SOLVER_H
#define RVL_SIMCUDA_MATH_SOLVER_H

#include "simcuda/math/library.h"

#define RVLI_SOLVER_NOT_SUPPORTED 9

/* Launches a kernel on the handle's stream, for a call that computes. name: the function. */
int rvli_solver_compute(const char *name, void *handle);

#endif
