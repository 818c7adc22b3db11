/* SPDX-License-Identifier: MIT */
/* A target as libFuzzer calls it. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

/* Traces of where memory was allocated, and freed memory kept for long, cost half the executions.
 */
const char *__asan_default_options(void)
{
    return "malloc_context_size=1:quarantine_size_mb=8:thread_local_quarantine_size_kb=64:"
           "allocator_release_to_os_interval_ms=-1:check_printf=0";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    (void)fuzz_run(data, size);
    return 0;
}
