/* SPDX-License-Identifier: MIT */
#include "core/backup/backup_shared.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "core/backup/segments.h"

/*
 * Smaller ones share more of contents that differ in places; each takes a descriptor of the owner
 * and a mapping of every user.
 */
#define SEGMENT_BYTES (UINT64_C(16) << 20)

struct rvli_shared_transfer {
    uint64_t number; /* of the transfer, in this process */
    bool full;
    rvli_scratch scratch;
};

static _Atomic uint64_t transfers;

/* ---- Saving ---- */

/* A segment on its way from the scratch into the backup. */
typedef struct saving {
    rvli_store_client *client;
    rvli_shared_transfer *transfer;
    rvli_backup *backup;
    uint64_t number;
    rvli_digest digest;
} saving;

/*
 * Takes what the store answered with, if it is equal. *taken_out: the segment is in its place. The
 * descriptor is closed.
 */
static rvl_status take_found(const saving *of, int fd, rvli_store_place place, bool *taken_out)
{
    bool equal = false;
    rvl_status status = rvli_scratch_compare(&of->transfer->scratch, fd, &equal);
    if (status == RVL_OK && equal) {
        rvli_segment now = {.place = place, .saved_by = of->transfer->number, .found = true};
        status = rvli_segment_map(of->client, of->backup, of->number, fd, now);
        *taken_out = status == RVL_OK;
    } else {
        rvli_store_drop(of->client, place);
    }
    close(fd);
    return status;
}

/* Hands the scratch over. Another may have been first: then that one's is taken, if it is equal. */
static rvl_status add_scratch(const saving *of, bool apart)
{
    rvli_scratch *s = &of->transfer->scratch;
    rvli_store_place place = {0};
    int first = -1;
    bool taken = false;
    rvl_status status = s->at != NULL ? rvli_scratch_seal(s) : RVL_OK;
    if (status == RVL_OK)
        status = rvli_store_add(of->client, of->digest, s->bytes, s->fd, apart, &place, &first);
    if (status != RVL_OK)
        return status;
    if (first >= 0) {
        status = take_found(of, first, place, &taken);
        return status != RVL_OK || taken ? status : add_scratch(of, true);
    }
    rvli_segment now = {.place = place, .saved_by = of->transfer->number};
    status = rvli_segment_map(of->client, of->backup, of->number, s->fd, now);
    close(s->fd);
    *s = (rvli_scratch){.fd = -1}; /* its room is the segment's now */
    return status;
}

/* Puts the scratch's content into the store and the backup. */
static rvl_status settle_segment(const saving *of)
{
    rvli_scratch *s = &of->transfer->scratch;
    rvli_store_place place = {0};
    int fd = -1;
    bool taken = false;
    rvl_status status = rvli_store_find(of->client, of->digest, s->bytes, &place, &fd);
    bool apart = fd >= 0;
    if (status == RVL_OK && fd >= 0)
        status = take_found(of, fd, place, &taken);
    return status != RVL_OK || taken ? status : add_scratch(of, apart);
}

/* Waits: the digests of the item that were queued before are there as well. */
static rvl_status copy_to_scratch(rvl_context *context, const rvli_allocation *allocation,
                                  const rvli_scratch *s, uint64_t offset)
{
    uint64_t event = 0;
    int device = allocation->device;
    rvl_status status = context->ops.copy_to_host(context->self, device, s->at,
                                                  allocation->addr + offset, s->bytes);
    if (status != RVL_OK) {
        rvli_error_op("copy_to_host");
        return status;
    }
    status = context->ops.record_event(context->self, device, &event);
    if (status != RVL_OK) {
        rvli_error_op("record_event");
        return status;
    }
    status = context->ops.wait_event(context->self, device, event);
    if (status != RVL_OK)
        rvli_error_op("wait_event");
    return status;
}

/* From those of its granules, which the device has computed, or else from its bytes. */
static rvli_digest digest_of(const rvli_transition *transition, const rvli_allocation *allocation,
                             const rvli_scratch *s, uint64_t offset)
{
    const rvli_move_item *item = rvli_transition_item(transition, allocation->id);
    uint64_t granule = transition->context->devices[allocation->device].facts.granularity_bytes;
    if (item == NULL || item->digests == NULL)
        return rvli_digest_of(s->at, s->bytes);
    return rvli_digest_of(&item->digests[offset / granule],
                          s->bytes / granule * sizeof *item->digests);
}

static rvl_status save_segment(rvli_transition *transition, const rvli_allocation *allocation,
                               rvli_backup *backup, uint64_t number)
{
    rvl_context *context = transition->context;
    rvli_shared_transfer *transfer = transition->shared;
    rvli_scratch *s = &transfer->scratch;
    uint64_t offset = rvli_segment_offset(backup, number);
    rvl_status status = rvli_scratch_take(context->store, s, rvli_segment_bytes(backup, number));
    transfer->full = status == RVL_ERR_HOST_OOM;
    if (status == RVL_OK)
        status = copy_to_scratch(context, allocation, s, offset);
    if (status != RVL_OK)
        return status;
    const saving of = {
        .client = context->store,
        .transfer = transfer,
        .backup = backup,
        .number = number,
        .digest = digest_of(transition, allocation, s, offset),
    };
    return settle_segment(&of);
}

/* ---- The store ---- */

static rvl_status open_transfer(rvli_transition *transition)
{
    if (transition->shared != NULL)
        return RVL_OK;
    rvl_status status = rvli_store_client_renew(transition->context->store);
    if (status != RVL_OK)
        return status;
    rvli_shared_transfer *transfer = calloc(1, sizeof *transfer);
    if (transfer == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a backup");
    transfer->number = atomic_fetch_add(&transfers, 1) + 1;
    transfer->scratch.fd = -1;
    transition->shared = transfer;
    return RVL_OK;
}

void rvli_shared_end(rvli_transition *transition)
{
    if (transition->shared == NULL)
        return;
    rvli_scratch_discard(transition->context->store, &transition->shared->scratch);
    free(transition->shared);
    transition->shared = NULL;
}

bool rvli_shared_was_full(const rvli_transition *transition)
{
    return transition->shared != NULL && transition->shared->full;
}

/* Addresses alone. */
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

/* Whole segments, each once in a transition. In a rehearsal there are none, and copies are priced.
 */
static rvl_status shared_save(rvli_transition *transition, const rvli_allocation *allocation,
                              rvli_backup *backup, uint64_t offset, uint64_t size)
{
    if (backup->segments == NULL)
        return rvli_host_save(transition, allocation, backup, offset, size);
    uint64_t each = backup->segments->segment_bytes;
    rvl_status status = open_transfer(transition);
    for (uint64_t i = offset / each; i * each < offset + size && status == RVL_OK; i++)
        if (backup->segments->at[i].place.id == 0 ||
            backup->segments->at[i].saved_by != transition->shared->number)
            status = save_segment(transition, allocation, backup, i);
    return status;
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
