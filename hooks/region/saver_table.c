/* SPDX-License-Identifier: MIT */
/*
 * The allocations of regions by address. Every free in the program is checked here, so addresses
 * that were never ours are recognized without the lock.
 */
#include "hooks/region/saver_internal.h"

#include <pthread.h>

#include "base/addrmap.h"

_Atomic uint64_t rvli_saver_live;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static rvli_addrmap table; /* values: rvli_saved; guarded by the lock */
static bool table_ready;

/* The bounds of all addresses that were ever ours. */
static _Atomic uint64_t lowest = UINT64_MAX;
static _Atomic uint64_t highest;

/* Initializes the table, too: the first allocation may come before our constructors. */
void rvli_saver_lock(void)
{
    pthread_mutex_lock(&table_lock);
    if (!table_ready)
        rvli_addrmap_init(&table);
    table_ready = true;
}

void rvli_saver_unlock(void)
{
    pthread_mutex_unlock(&table_lock);
}

rvl_status rvli_saver_insert(rvli_saved *new)
{
    rvli_saver_lock();
    rvl_status status = rvli_addrmap_insert(&table, new->addr, new);
    if (status == RVL_OK) {
        atomic_fetch_add(&rvli_saver_live, 1);
        if (new->addr < atomic_load(&lowest))
            atomic_store(&lowest, new->addr);
        if (new->addr > atomic_load(&highest))
            atomic_store(&highest, new->addr);
    }
    rvli_saver_unlock();
    return status;
}

rvli_saved *rvli_saver_remove(rvl_addr addr)
{
    if (addr < atomic_load_explicit(&lowest, memory_order_relaxed) ||
        addr > atomic_load_explicit(&highest, memory_order_relaxed))
        return NULL;
    rvli_saver_lock();
    rvli_saved *gone = rvli_addrmap_remove(&table, addr);
    if (gone != NULL)
        atomic_fetch_sub(&rvli_saver_live, 1);
    rvli_saver_unlock();
    return gone;
}

rvli_saved *rvli_saver_floor(rvl_addr addr, rvl_addr *begin_out)
{
    return rvli_addrmap_floor(&table, addr, begin_out);
}

rvli_saved *rvli_saver_next(const rvli_saved_context *in, const rvli_saved_tag *tag, uint64_t *at)
{
    rvli_saved *each;
    while ((each = rvli_addrmap_ceil(&table, *at, at)) != NULL) {
        ++*at;
        if (each->in == in && (tag == NULL || each->tag == tag))
            return each;
    }
    return NULL;
}

uint64_t rvli_saver_kept_bytes(void)
{
    uint64_t bytes = 0, at = 0;
    const rvli_saved *each;
    while ((each = rvli_addrmap_ceil(&table, at, &at)) != NULL) {
        if (each->backup == RVL_BACKUP_HOST && !each->reclaimed)
            bytes += (each->size_bytes + each->in->granularity_bytes - 1) &
                     ~(each->in->granularity_bytes - 1);
        at++;
    }
    return bytes;
}
