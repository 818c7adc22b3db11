/* SPDX-License-Identifier: MIT */
#include "backends/registry.h"

#ifdef RVL_HAVE_CUDA
#include "backends/cuda/cuda.h"
#endif
#include "backends/sim/sim.h"

const rvli_backend_ops *const rvli_backends[] = {
    &rvli_sim_ops,
#ifdef RVL_HAVE_CUDA
    &rvli_cuda_ops,
#endif
    NULL,
};
