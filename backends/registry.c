/* SPDX-License-Identifier: MIT */
#include "backends/registry.h"

#include <string.h>

#ifdef RVL_HAVE_CUDA
#include "backends/cuda/cuda.h"
#endif
#include "backends/sim/sim.h"
#include "base/error.h"
#include "core/context/context.h"

static const rvli_backend_ops *const backends[] = {
    &rvli_sim_ops,
#ifdef RVL_HAVE_CUDA
    &rvli_cuda_ops,
#endif
    NULL,
};

#ifdef RVL_HAVE_CUDA
#define NAMES "name sim or cuda"
#else
#define NAMES "it has sim alone, as no cuda.h was found when it was built"
#endif

const rvli_backend_ops *rvli_backend_find(const char *name)
{
    for (const rvli_backend_ops *const *each = backends; *each != NULL; each++)
        if (strcmp((*each)->name, name) == 0)
            return *each;
    return NULL;
}

rvl_status rvl_context_open(const char *backend, const rvl_context_options *options,
                            rvl_context **context_out)
{
    if (backend == NULL)
        return rvli_error(RVL_ERR_INVALID, "the name of the backend is NULL");
    const rvli_backend_ops *ops = rvli_backend_find(backend);
    if (ops == NULL)
        return rvli_error(RVL_ERR_NO_BACKEND, "this build has no backend of that name: " NAMES);
    return rvli_context_open_ops(ops, options, context_out);
}
