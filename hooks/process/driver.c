/* SPDX-License-Identifier: MIT */
#include "hooks/process/driver.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "reveille/cuda.h"

static const struct {
    const char *name;
    int version;
    size_t offset;
} entries[] = {
#define ENTRY(name, version) {#name, version, offsetof(rvli_driver_calls, name)},
    RVLI_DRIVER_CALLS_MAP(ENTRY)
#undef ENTRY
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rvli_driver_calls calls;
static _Atomic bool found;

/* With the lock held. */
static rvl_status find_all(void)
{
    rvl_status status = RVL_OK;
    for (size_t i = 0; i < sizeof entries / sizeof *entries && status == RVL_OK; i++) {
        void *entry = NULL;
        status = rvl_cuda_get_entry(entries[i].name, entries[i].version, &entry);
        if (status == RVL_OK)
            memcpy((char *)&calls + entries[i].offset, &entry, sizeof entry);
    }
    return status;
}

const rvli_driver_calls *rvli_driver(void)
{
    if (atomic_load_explicit(&found, memory_order_acquire))
        return &calls;
    pthread_mutex_lock(&lock);
    rvl_status status = atomic_load(&found) ? RVL_OK : find_all();
    if (status == RVL_OK)
        atomic_store_explicit(&found, true, memory_order_release);
    pthread_mutex_unlock(&lock);
    return status == RVL_OK ? &calls : NULL;
}
