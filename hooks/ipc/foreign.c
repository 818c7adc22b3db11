/* SPDX-License-Identifier: MIT */
#include "hooks/ipc/foreign.h"

#include <stdatomic.h>

#include "base/error.h"
#include "reveille/sleep.h"

static _Atomic uint64_t open_count; /* usually zero, which makes closing cheap */

void rvli_foreign_open(uint64_t key)
{
    rvl_error before = *rvli_error_get();
    if (rvl_sleep_forbid(
            key, "memory of another process is open here (a communicator of NCCL, "
                 "cudaIpcOpenMemHandle(), cuMemImportFromShareableHandle(), a pool): close it "
                 "first") == RVL_OK)
        atomic_fetch_add(&open_count, 1);
    rvli_error_set(&before);
}

void rvli_foreign_close(uint64_t key)
{
    if (atomic_load_explicit(&open_count, memory_order_relaxed) == 0)
        return;
    rvl_error before = *rvli_error_get();
    if (rvl_sleep_allow(key) == RVL_OK)
        atomic_fetch_sub(&open_count, 1);
    rvli_error_set(&before);
}
