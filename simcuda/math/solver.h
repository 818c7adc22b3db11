/* SPDX-License-Identifier: MIT */
/* What the files of the simulated cuSOLVER share: results are those of NVIDIA's documentation. */
#ifndef RVL_SIMCUDA_MATH_SOLVER_H
#define RVL_SIMCUDA_MATH_SOLVER_H

#include "simcuda/math/library.h"

#define RVLI_SOLVER_NOT_SUPPORTED 9

/* A call that computes, by its function's name: a kernel is launched on the handle's stream. */
int rvli_solver_compute(const char *name, void *handle);

#endif
