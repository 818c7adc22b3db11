/* SPDX-License-Identifier: MIT */
/*
 * The contents of an allocation: parts of its bytes that count for other tags.
 *
 * The ledger moves bytes from the allocation's tag to that of the part. It does not know to which
 * allocation they belong, so this is kept here, and all parts are taken back before the allocation
 * is freed.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/grow.h"
#include "core/prefetch.h"
#include "predict/replay/replay_internal.h"

#define FIELD_ID 5u
#define FIELD_BYTES 6u
#define FIELD_TAG 7u

typedef struct part {
    rvl_tag tag;
    uint64_t bytes;
} part;

struct rvli_replay_parted {
    UT_hash_handle hh;
    uint64_t id;
    rvl_tag own;
    int device;
    uint64_t size_bytes;
    uint64_t total_bytes; /* of all parts */
    uint32_t count;
    uint32_t capacity;
    part *parts;
};

static rvl_status no_memory(rvl_replay *replay, const rvl_trace_event *event)
{
    return rvli_replay_refuse(replay, event, 0, RVL_ERR_HOST_OOM, "no host memory for the replay");
}

/* ---- The records ---- */

static rvli_replay_parted *find(const rvli_replay_process *process, uint64_t id)
{
    rvli_replay_parted *found = NULL;
    HASH_FIND(hh, process->parted, &id, sizeof id, found);
    return found;
}

static void forget(rvli_replay_process *process, rvli_replay_parted *parted)
{
    HASH_DEL(process->parted, parted);
    free(parted->parts);
    free(parted);
}

/* Makes the record of an allocation, for its first part. */
static rvl_status begin(rvl_replay *replay, const rvl_trace_event *event,
                        rvli_replay_process *process, rvl_addr addr,
                        rvli_replay_parted **parted_out)
{
    rvl_allocation found = {.struct_size = sizeof found};
    rvl_status status = rvl_allocation_find(replay->context, addr, &found);
    if (status != RVL_OK)
        return rvli_replay_pass_on(replay, event, FIELD_ID, status, status, NULL);
    if (found.state != RVL_STATE_ACTIVE)
        return rvli_replay_refuse(replay, event, FIELD_ID, RVL_ERR_CORRUPT_TRACE,
                                  "allocation %" PRIu64 " of process %s is paused: it has no parts",
                                  event->id, event->process);
    rvli_replay_parted *parted = calloc(1, sizeof *parted);
    if (parted == NULL)
        return no_memory(replay, event);
    *parted = (rvli_replay_parted){
        .id = event->id, .own = found.tag, .device = found.device, .size_bytes = found.size_bytes};
    HASH_ADD(hh, process->parted, id, sizeof parted->id, parted);
    if (parted->hh.tbl == NULL) {
        free(parted);
        return no_memory(replay, event);
    }
    *parted_out = parted;
    return RVL_OK;
}

/* Finds the part of a tag, or makes it. NULL: no memory. */
static part *part_of(rvli_replay_parted *parted, rvl_tag tag)
{
    for (uint32_t i = 0; i < parted->count; i++) {
        if (parted->parts[i].tag == tag)
            return &parted->parts[i];
    }
    if (!RVLI_ROOM(parted->parts, parted->count, parted->capacity, 4))
        return NULL;
    parted->parts[parted->count] = (part){.tag = tag};
    return &parted->parts[parted->count++];
}

static rvl_status set(rvl_replay *replay, const rvl_trace_event *event, rvli_replay_parted *parted,
                      part *of, uint64_t bytes)
{
    rvl_status status = rvl_private_set_part(replay->context, parted->device, parted->own, of->tag,
                                             of->bytes, bytes);
    if (status != RVL_OK)
        return rvli_replay_pass_on(replay, event, FIELD_BYTES, status, status, NULL);
    parted->total_bytes += bytes - of->bytes;
    replay->devices[parted->device].part_bytes += bytes - of->bytes;
    of->bytes = bytes;
    return RVL_OK;
}

/* ---- Events ---- */

static rvl_status check(rvl_replay *replay, const rvl_trace_event *event,
                        const rvli_replay_parted *parted, rvl_tag tag, uint64_t before_bytes)
{
    if (tag == parted->own)
        return rvli_replay_refuse(replay, event, FIELD_TAG, RVL_ERR_CORRUPT_TRACE,
                                  "a part has another tag than its allocation, not %s", event->tag);
    if (event->bytes > parted->size_bytes - (parted->total_bytes - before_bytes))
        return rvli_replay_refuse(replay, event, FIELD_BYTES, RVL_ERR_CORRUPT_TRACE,
                                  "the parts of allocation %" PRIu64 " of process %s are more "
                                  "than its %" PRIu64 " bytes",
                                  event->id, event->process, parted->size_bytes);
    return RVL_OK;
}

rvl_status rvli_replay_part(rvl_replay *replay, const rvl_trace_event *event,
                            rvli_replay_process *process, rvl_tag tag)
{
    rvl_addr addr;
    if (!rvli_intmap_get(&process->addrs, event->id, &addr))
        return rvli_replay_refuse(replay, event, FIELD_ID, RVL_ERR_CORRUPT_TRACE,
                                  "a part of an allocation that is not live: %" PRIu64
                                  " of process %s",
                                  event->id, event->process);
    rvli_replay_parted *parted = find(process, event->id);
    rvl_status status = parted == NULL ? begin(replay, event, process, addr, &parted) : RVL_OK;
    if (status != RVL_OK)
        return status;
    part *of = part_of(parted, tag);
    status = of != NULL ? RVL_OK : no_memory(replay, event);
    if (status == RVL_OK)
        status = check(replay, event, parted, tag, of->bytes);
    if (status == RVL_OK)
        status = set(replay, event, parted, of, event->bytes);
    rvl_tag own = parted->own;
    int device = parted->device;
    if (parted->total_bytes == 0) /* no parts are left, so it may be paused */
        forget(process, parted);
    return status == RVL_OK ? rvli_replay_note_part(replay, event, own, tag, device) : status;
}

rvl_status rvli_replay_parts_end(rvl_replay *replay, const rvl_trace_event *event,
                                 rvli_replay_process *process)
{
    rvli_replay_parted *parted = find(process, event->id);
    rvl_status status = RVL_OK;
    if (parted == NULL)
        return RVL_OK;
    for (uint32_t i = 0; i < parted->count && status == RVL_OK; i++) {
        status = set(replay, event, parted, &parted->parts[i], 0);
        if (status == RVL_OK)
            status = rvli_replay_note_tags(replay, event, &parted->parts[i].tag, 1);
    }
    forget(process, parted);
    return status;
}

rvl_status rvli_replay_parts_check_pause(rvl_replay *replay, const rvl_trace_event *event,
                                         rvl_tag tag)
{
    const rvli_replay_process *process = &replay->processes[event->process_index];
    for (rvli_replay_parted *each = process->parted; each != NULL; each = each->hh.next) {
        if (each->own == tag && each->total_bytes > 0)
            return rvli_replay_refuse(replay, event, FIELD_ID, RVL_ERR_CORRUPT_TRACE,
                                      "a pause of %s, of which allocation %" PRIu64
                                      " has parts: they end before it",
                                      event->tag != NULL ? event->tag : "-", each->id);
    }
    return RVL_OK;
}

void rvli_replay_parts_destroy(rvli_replay_process *process)
{
    rvli_replay_parted *parted, *next;
    HASH_ITER (hh, process->parted, parted, next)
        forget(process, parted);
}
