/* SPDX-License-Identifier: MIT */
/*
 * Backups in the node's store: content that several processes have in common is kept once.
 *
 * A backup is a row of segments, each a sealed file of the store. They are mapped next to each
 * other for reading.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/error.h"
#include "core/backup/backup.h"
#include "core/backup/segments.h"
#include "core/backup/shared_transfer.h"

/*
 * With smaller segments, contents that differ in places share more. But each segment takes a
 * descriptor of the owner and a mapping in every user.
 */
#define SEGMENT_BYTES (UINT64_C(16) << 20)

/* Only reserves addresses. */
static rvl_status shared_hold(rvli_transition *transition, const rvli_allocation *allocation,
                              rvli_backup *backup)
{
    uint64_t granule = transition->context->devices[allocation->device].facts.granularity_bytes;
    uint64_t each = granule > SEGMENT_BYTES ? granule : SEGMENT_BYTES;
    uint64_t count = (backup->size + each - 1) / each;
    struct rvli_shared_segments *segments =
        calloc(1, sizeof *segments + count * sizeof segments->at[0]);
    if (segments == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a backup");
    void *host =
        mmap(NULL, backup->size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED) {
        free(segments);
        return rvli_segment_error("no address space for host backups (see ulimit -v)");
    }
    segments->segment_bytes = each;
    backup->segments = segments;
    backup->host = host;
    return RVL_OK;
}

/* Saves whole segments. A rehearsal has no segments, and its copies are priced. */
static rvl_status shared_save(rvli_transition *transition, const rvli_allocation *allocation,
                              rvli_backup *backup, uint64_t offset, uint64_t size)
{
    if (backup->segments == NULL)
        return rvli_host_save(transition, allocation, backup, offset, size);
    uint64_t each = backup->segments->segment_bytes;
    return rvli_shared_save(transition, allocation, backup, offset / each,
                            (offset + size + each - 1) / each);
}

static void shared_drop(rvl_context *context, rvli_backup *backup)
{
    if (backup->segments == NULL)
        return;
    munmap(backup->host, backup->size);
    for (uint64_t i = 0; i < rvli_segment_count(backup); i++)
        rvli_segment_forget(context->store, backup, i);
    free(backup->segments);
}

const rvli_backup_store rvli_shared_store = {
    .name = "shared",
    .hold = shared_hold,
    .save = shared_save,
    .load = rvli_host_load,
    .drop = shared_drop,
};
