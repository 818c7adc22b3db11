/* SPDX-License-Identifier: MIT */
#include "backends/registry.h"

#include "backends/sim/sim.h"

const rvli_backend_ops *const rvli_backends[] = {
    &rvli_sim_ops,
    NULL,
};
