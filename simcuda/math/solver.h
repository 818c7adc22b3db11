/* SPDX-License-Identifier: MIT */
/* What the files of the simulated cuSOLVER share: results are those of NVIDIA's documentation. */
#ifndef RVL_SIMCUDA_MATH_SOLVER_H
#define RVL_SIMCUDA_MATH_SOLVER_H

#define RVLI_SOLVER_SUCCESS 0
#define RVLI_SOLVER_NOT_INITIALIZED 1
#define RVLI_SOLVER_ALLOC_FAILED 2
#define RVLI_SOLVER_INVALID_VALUE 3
#define RVLI_SOLVER_EXECUTION_FAILED 6
#define RVLI_SOLVER_NOT_SUPPORTED 9

/* A call that computes, by its function's name: a kernel is launched on the handle's stream. */
int rvli_solver_compute(const char *name, void *handle);

#endif
