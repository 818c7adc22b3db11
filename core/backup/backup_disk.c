/* SPDX-License-Identifier: MIT */
#include "core/backup/backup_disk.h"

#include <stdlib.h>

#include "base/cost.h"
#include "base/error.h"
#include "core/backup/backup.h"
#include "core/backup/disk_space.h"
#include "core/backup/disk/queue.h"
#include "core/backup/host_buffer.h"

/*
 * Sixteen requests of 4 MiB keep an NVMe disk busy. On the disk of an H200 host, neither more nor
 * larger requests are faster (bench/bench_disk); with eight, reads were a fifth slower.
 */
#define SLOTS 16u
#define SLOT_BYTES (UINT64_C(4) << 20)

typedef enum slot_state {
    SLOT_FREE = 0,
    SLOT_COPYING_OUT, /* from the device; written next */
    SLOT_WRITING,
    SLOT_READING, /* copied to the device next */
    SLOT_COPYING_IN
} slot_state;

typedef struct slot {
    slot_state state;
    int device;
    void *host;
    uint64_t addr; /* on the device */
    uint64_t bytes;
    uint64_t event;
    rvli_disk_request request;
} slot;

struct rvli_disk_transfer {
    rvl_context *context;
    rvli_disk_share *keeper; /* the first share in the file of a pause */
    rvli_disk_queue *queue;
    int device; /* the device for which the ring was made */
    void *ring;
    slot slots[SLOTS];
    uint64_t taken;  /* pieces so far: piece n used slot n % SLOTS */
    uint64_t end_ns; /* when a simulated disk will be idle */
};

/* ---- The transfer ---- */

static bool accounted(const rvl_context *context, int device)
{
    return context->devices[device].facts.host_accounted;
}

static void close_transfer(rvli_disk_transfer *transfer)
{
    rvl_context *context = transfer->context;
    rvli_error_before before;
    rvli_error_keep(&before);
    if (transfer->queue != NULL)
        rvli_disk_queue_close(transfer->queue);
    if (transfer->ring != NULL &&
        rvli_host_buffer_give_back(context, transfer->device, transfer->ring, SLOTS * SLOT_BYTES) !=
            RVL_OK)
        rvli_log(context, RVL_LOG_WARN, "the buffers of a disk backup could not be given back");
    if (transfer->keeper != NULL)
        rvli_disk_share_drop(context, transfer->keeper);
    free(transfer);
    rvli_error_put_back(&before);
}

static rvl_status fill_ring(rvli_disk_transfer *transfer)
{
    rvl_context *context = transfer->context;
    rvl_status status =
        rvli_host_buffer_make(context, transfer->device, SLOTS * SLOT_BYTES, &transfer->ring);
    if (status != RVL_OK)
        return status;
    for (unsigned i = 0; i < SLOTS; i++)
        transfer->slots[i].host = (char *)transfer->ring + i * SLOT_BYTES;
    return rvli_disk_queue_open(RVLI_DISK_AUTO, SLOTS, &transfer->queue);
}

/* Returns the transition's transfer. Makes it at the first call. */
static rvl_status transfer_of(rvli_transition *transition, int device,
                              rvli_disk_transfer **transfer_out)
{
    rvl_context *context = transition->context;
    rvl_status status = RVL_OK;
    if (transition->disk == NULL) {
        rvli_disk_transfer *transfer = calloc(1, sizeof *transfer);
        if (transfer == NULL)
            return rvli_error(RVL_ERR_HOST_OOM, "no host memory for disk backups");
        transfer->context = context;
        transfer->device = device;
        if (!accounted(context, device))
            status = fill_ring(transfer);
        if (status != RVL_OK) {
            rvl_error cause = *rvli_error_get();
            close_transfer(transfer);
            rvli_error_set(&cause);
            return status;
        }
        transition->disk = transfer;
    }
    *transfer_out = transition->disk;
    return RVL_OK;
}

void rvli_disk_end(rvli_transition *transition)
{
    if (transition->disk != NULL)
        close_transfer(transition->disk);
    transition->disk = NULL;
}

/* ---- The ring ---- */

static rvl_status wait_copy(rvli_disk_transfer *transfer, slot *s)
{
    rvl_context *context = transfer->context;
    uint64_t event = s->event;
    s->event = 0; /* waiting frees the event, whatever the result */
    rvl_status status = context->ops.wait_event(context->self, s->device, event);
    if (status != RVL_OK)
        rvli_error_op("wait_event");
    return status;
}

static rvl_status mark_copy(rvli_disk_transfer *transfer, slot *s, slot_state state)
{
    rvl_context *context = transfer->context;
    rvl_status status = context->ops.record_event(context->self, s->device, &s->event);
    if (status != RVL_OK) {
        rvli_error_op("record_event");
        return status;
    }
    s->state = state;
    return RVL_OK;
}

static rvl_status copy_in(rvli_disk_transfer *transfer, slot *s)
{
    rvl_context *context = transfer->context;
    rvl_status status =
        context->ops.copy_to_device(context->self, s->device, s->addr, s->host, s->bytes);
    if (status != RVL_OK) {
        rvli_error_op("copy_to_device");
        return status;
    }
    return mark_copy(transfer, s, SLOT_COPYING_IN);
}

/* Waits for a slot's current step and begins the next. */
static rvl_status advance(rvli_disk_transfer *transfer, slot *s)
{
    rvl_status status = RVL_OK;
    slot_state was = s->state;
    s->state = SLOT_FREE;
    switch (was) {
    case SLOT_COPYING_OUT:
        status = wait_copy(transfer, s);
        if (status == RVL_OK)
            status = rvli_disk_queue_submit(transfer->queue, &s->request);
        if (status == RVL_OK)
            s->state = SLOT_WRITING;
        return status;
    case SLOT_READING:
        status = rvli_disk_queue_wait(transfer->queue, &s->request);
        return status == RVL_OK ? copy_in(transfer, s) : status;
    case SLOT_WRITING:
        return rvli_disk_queue_wait(transfer->queue, &s->request);
    case SLOT_COPYING_IN:
        return wait_copy(transfer, s);
    default:
        return RVL_OK;
    }
}

static rvl_status finish(rvli_disk_transfer *transfer, slot *s)
{
    rvl_status status = RVL_OK;
    while (s->state != SLOT_FREE && status == RVL_OK)
        status = advance(transfer, s);
    return status;
}

/* Returns the slot for the next piece: the one that has waited longest. */
static slot *next_slot(rvli_disk_transfer *transfer)
{
    return &transfer->slots[transfer->taken % SLOTS];
}

/* Gets the next slot in turn, waits until it is free, and fills in its request. */
static rvl_status take_slot(rvli_disk_transfer *transfer, const rvli_allocation *allocation,
                            const rvli_disk_share *share, uint64_t offset, uint64_t bytes,
                            bool write, slot **slot_out)
{
    slot *s = next_slot(transfer);
    rvl_status status = finish(transfer, s);
    if (status != RVL_OK)
        return status;
    transfer->taken++;
    s->device = allocation->device;
    s->addr = allocation->addr + offset;
    s->bytes = bytes;
    s->request = (rvli_disk_request){
        .fd = share->in->file.fd,
        .write = write,
        .buffer = s->host,
        .offset = share->offset + offset,
        .bytes = bytes,
    };
    *slot_out = s;
    return RVL_OK;
}

/* Returns the slot that was taken before the last one. */
static slot *slot_before(rvli_disk_transfer *transfer)
{
    return &transfer->slots[(transfer->taken + SLOTS - 2) % SLOTS];
}

/* Copies a piece from the device while the previous piece is written to the disk. */
static rvl_status save_slot(rvli_disk_transfer *transfer, slot *s)
{
    rvl_context *context = transfer->context;
    rvl_status status =
        context->ops.copy_to_host(context->self, s->device, s->host, s->addr, s->bytes);
    if (status != RVL_OK) {
        rvli_error_op("copy_to_host");
        return status;
    }
    status = mark_copy(transfer, s, SLOT_COPYING_OUT);
    slot *before = slot_before(transfer);
    if (status == RVL_OK && before->state == SLOT_COPYING_OUT)
        status = advance(transfer, before);
    return status;
}

/* Reads a piece while the oldest piece already read is copied to the device. */
static rvl_status load_slot(rvli_disk_transfer *transfer, slot *s)
{
    rvl_status status = rvli_disk_queue_submit(transfer->queue, &s->request);
    if (status != RVL_OK)
        return status;
    s->state = SLOT_READING;
    slot *oldest = next_slot(transfer);
    return oldest->state == SLOT_READING ? advance(transfer, oldest) : RVL_OK;
}

rvli_disk_mark rvli_disk_mark_now(const rvli_transition *transition)
{
    const rvli_disk_transfer *transfer = transition->disk;
    if (transfer == NULL)
        return (rvli_disk_mark){0};
    return (rvli_disk_mark){.pieces = transfer->taken, .end_ns = transfer->end_ns};
}

bool rvli_disk_is_past(const rvli_transition *transition, const rvli_disk_mark *mark)
{
    return transition->disk != NULL && transition->disk->taken >= mark->pieces + SLOTS;
}

rvl_status rvli_disk_settle_to(rvli_transition *transition, const rvli_disk_mark *mark)
{
    rvli_disk_transfer *transfer = transition->disk;
    if (transfer == NULL)
        return RVL_OK;
    uint64_t piece = transfer->taken > SLOTS ? transfer->taken - SLOTS : 0;
    for (; piece < mark->pieces; piece++) {
        rvl_status status = finish(transfer, &transfer->slots[piece % SLOTS]);
        if (status != RVL_OK)
            return status;
    }
    if (transition->context->clock.virtual_time)
        rvli_clock_wait_until(&transition->context->clock, mark->end_ns);
    return RVL_OK;
}

rvl_status rvli_disk_settle(rvli_transition *transition)
{
    const rvli_disk_mark now = rvli_disk_mark_now(transition);
    return rvli_disk_settle_to(transition, &now);
}

void rvli_disk_abort(rvli_transition *transition)
{
    rvli_disk_transfer *transfer = transition->disk;
    if (transfer == NULL || transfer->queue == NULL)
        return;
    rvli_disk_queue_drain(transfer->queue);
    for (unsigned i = 0; i < SLOTS; i++) {
        slot *s = &transfer->slots[i];
        if (s->event != 0)
            wait_copy(transfer, s);
        s->state = SLOT_FREE;
    }
}

/* ---- The store ---- */

/*
 * Returns whether a pause may put an item's backup into its file. That includes backups for which
 * the store may have no room.
 */
static bool may_take_disk(const rvl_context *context, const rvli_move_item *item)
{
    const rvli_allocation *allocation = item->allocation;
    if (allocation->policy == RVL_BACKUP_DISK)
        return true;
    return context->store_overflow && item->backup == NULL &&
           rvli_backup_is_shared(context, allocation->device, (rvl_backup)allocation->policy);
}

/* Returns the file size for all disk backups that a pause may make. */
static uint64_t file_bytes(const rvli_transition *transition)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < transition->item_count; i++)
        if (may_take_disk(transition->context, &transition->items[i]))
            bytes += transition->items[i].allocation->size;
    return bytes;
}

static rvl_status disk_hold(rvli_transition *transition, const rvli_allocation *allocation,
                            rvli_backup *backup)
{
    rvli_disk_transfer *transfer = NULL;
    rvl_status status = transfer_of(transition, allocation->device, &transfer);
    bool bytes = !accounted(transition->context, allocation->device);
    if (status == RVL_OK && bytes && transfer->keeper == NULL)
        status =
            rvli_disk_space_open(transition->context, file_bytes(transition), &transfer->keeper);
    if (status != RVL_OK)
        return status;
    return rvli_disk_share_new(transition->context, bytes ? transfer->keeper->in : NULL,
                               backup->size, &backup->disk);
}

/* A simulated disk works in the order of the requests, in parallel with everything else. */
static void pass_time(rvli_disk_transfer *transfer, int device, bool write, uint64_t bytes)
{
    const rvl_cost_model *cost = &transfer->context->devices[device].facts.cost;
    if (!transfer->context->ops.simulated)
        return;
    uint64_t now_ns = rvli_clock_now(&transfer->context->clock);
    if (transfer->end_ns < now_ns)
        transfer->end_ns = now_ns;
    transfer->end_ns += rvli_cost_ns(write ? cost->disk_write : cost->disk_read, bytes);
}

static rvl_status disk_save(rvli_transition *transition, const rvli_allocation *allocation,
                            rvli_backup *backup, uint64_t offset, uint64_t size)
{
    rvli_disk_transfer *transfer = NULL;
    slot *s = NULL;
    rvl_status status = transfer_of(transition, allocation->device, &transfer);
    if (status != RVL_OK)
        return status;
    pass_time(transfer, allocation->device, true, size);
    for (uint64_t done = 0; done < size && backup->disk->in != NULL; done += s->bytes) {
        uint64_t bytes = size - done < SLOT_BYTES ? size - done : SLOT_BYTES;
        status = take_slot(transfer, allocation, backup->disk, offset + done, bytes, true, &s);
        if (status == RVL_OK)
            status = save_slot(transfer, s);
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

static rvl_status disk_load(rvli_transition *transition, const rvli_allocation *allocation,
                            const rvli_backup *backup, uint64_t offset, uint64_t size)
{
    rvli_disk_transfer *transfer = NULL;
    slot *s = NULL;
    rvl_status status = transfer_of(transition, allocation->device, &transfer);
    if (status != RVL_OK)
        return status;
    pass_time(transfer, allocation->device, false, size);
    for (uint64_t done = 0; done < size && backup->disk->in != NULL; done += s->bytes) {
        uint64_t left = size - done;
        status = take_slot(transfer, allocation, backup->disk, offset + done,
                           left < SLOT_BYTES ? left : SLOT_BYTES, false, &s);
        if (status == RVL_OK)
            status = load_slot(transfer, s);
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

static void disk_drop(rvl_context *context, rvli_backup *backup)
{
    rvli_disk_share_drop(context, backup->disk);
}

const rvli_backup_store rvli_disk_store = {
    .name = "disk",
    .hold = disk_hold,
    .save = disk_save,
    .load = disk_load,
    .drop = disk_drop,
};
