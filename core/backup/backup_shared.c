/* SPDX-License-Identifier: MIT */
#include "core/backup/backup_shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file_limit.h"
#include "core/backup/backup.h"
#include "core/backup/store/client.h"
#include "core/backup/store/message.h"

/*
 * Smaller ones share more of contents that differ in places; each takes a descriptor of the owner
 * and a mapping of every user.
 */
#define SEGMENT_BYTES (UINT64_C(16) << 20)

typedef struct segment {
    rvli_store_place place; /* id 0: nothing is mapped */
    uint64_t saved_by;      /* number of the transfer that filled it last */
    bool found;             /* the store had it already */
} segment;

struct rvli_shared_segments {
    uint64_t segment_bytes; /* of each but the last */
    segment at[];
};

/* What is being filled. */
typedef struct scratch {
    int fd; /* -1: none */
    char *at;
    uint64_t bytes;
    uint64_t connection; /* that has given the room */
} scratch;

struct rvli_shared_transfer {
    uint64_t number; /* of the transfer, in this process */
    bool full;
    scratch scratch;
};

static _Atomic uint64_t transfers;

static rvl_status os_error(const char *what)
{
    int number = errno;
    rvl_status status =
        number == ENOMEM || number == ENOSPC || number == EAGAIN ? RVL_ERR_HOST_OOM : RVL_ERR_IO;
    rvli_error(status, what);
    rvli_error_errno(number);
    return status;
}

/* ---- Segments ---- */

static uint64_t count_of(const rvli_backup *backup)
{
    uint64_t each = backup->segments->segment_bytes;
    return (backup->size + each - 1) / each;
}

static uint64_t offset_of(const rvli_backup *backup, uint64_t number)
{
    return number * backup->segments->segment_bytes;
}

static uint64_t bytes_of(const rvli_backup *backup, uint64_t number)
{
    uint64_t left = backup->size - offset_of(backup, number);
    return left < backup->segments->segment_bytes ? left : backup->segments->segment_bytes;
}

static int64_t counted(const rvli_backup *backup, uint64_t number, bool counts)
{
    return counts ? (int64_t)bytes_of(backup, number) : 0;
}

static void forget(rvli_store_client *client, const rvli_backup *backup, uint64_t number)
{
    segment *s = &backup->segments->at[number];
    if (s->place.id == 0)
        return;
    rvli_store_drop(client, s->place);
    rvli_store_count(client, -counted(backup, number, true), -counted(backup, number, s->found));
    *s = (segment){0};
}

/* Maps a file where a segment of the backup lies, in place of what lay there. */
static rvl_status map_segment(rvli_store_client *client, rvli_backup *backup, uint64_t number,
                              int fd, segment now)
{
    uint64_t bytes = bytes_of(backup, number);
    char *at = (char *)backup->host + offset_of(backup, number);
    void *mapped = mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    rvl_status status = RVL_OK;
    if (mapped == MAP_FAILED)
        status = os_error("a segment of the store cannot be mapped (see sysctl vm.max_map_count)");
    else
        (void)madvise(at, bytes, MADV_DONTFORK); /* a child would keep it in memory */
    forget(client, backup, number);
    if (status != RVL_OK) {
        rvli_store_drop(client, now.place);
        return status;
    }
    backup->segments->at[number] = now;
    rvli_store_count(client, counted(backup, number, true), counted(backup, number, now.found));
    return RVL_OK;
}

/* ---- Scratch ---- */

static void discard_scratch(rvli_store_client *client, scratch *s)
{
    if (s->at != NULL)
        munmap(s->at, s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    if (s->bytes > 0)
        rvli_store_return(client, s->bytes, s->connection);
    *s = (scratch){.fd = -1};
}

/* All its pages at once: running out of memory later would be a signal. */
static rvl_status fill_scratch(scratch *s)
{
    if (!rvli_file_may_have(s->bytes)) {
        errno = EFBIG;
        return os_error("a segment of the store is larger than files may be: lift ulimit -f");
    }
    s->fd = memfd_create("reveille-store", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (s->fd < 0)
        return os_error("no file for a segment of the store: raise ulimit -n if it is too low");
    int result;
    do
        result = fallocate(s->fd, 0, 0, (off_t)s->bytes);
    while (result != 0 && errno == EINTR);
    if (result != 0)
        return os_error("no host memory for a segment of the store");
    void *mapped = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (mapped == MAP_FAILED)
        return os_error("a segment of the store cannot be mapped (see sysctl vm.max_map_count)");
    s->at = mapped;
    (void)madvise(mapped, s->bytes, MADV_DONTFORK); /* a child's mapping would keep it unsealed */
    return RVL_OK;
}

/* One of exactly this size, to be written. */
static rvl_status take_scratch(rvli_store_client *client, rvli_shared_transfer *transfer,
                               uint64_t bytes)
{
    scratch *s = &transfer->scratch;
    if (s->at != NULL && s->bytes == bytes)
        return RVL_OK;
    discard_scratch(client, s);
    uint64_t connection = 0;
    rvl_status status = rvli_store_reserve(client, bytes, &connection);
    if (status == RVL_OK) {
        s->bytes = bytes;
        s->connection = connection;
        status = fill_scratch(s);
    }
    transfer->full = status == RVL_ERR_HOST_OOM;
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        discard_scratch(client, s);
        rvli_error_set(&cause);
    }
    return status;
}

/* From here on nobody can write to it. */
static rvl_status seal_scratch(scratch *s)
{
    munmap(s->at, s->bytes);
    s->at = NULL;
    return rvli_store_seal(s->fd) ? RVL_OK : os_error("a segment of the store cannot be sealed");
}

/* ---- Comparing ---- */

static bool maps_equal(const void *at, int other, uint64_t bytes, bool *equal_out)
{
    void *mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, other, 0);
    if (mapped == MAP_FAILED)
        return false;
    *equal_out = memcmp(at, mapped, bytes) == 0;
    munmap(mapped, bytes);
    return true;
}

/* Whether the scratch, mapped or sealed, has the content of a file. */
static rvl_status compare(const scratch *s, int other, bool *equal_out)
{
    bool compared = false;
    if (s->at != NULL) {
        compared = maps_equal(s->at, other, s->bytes, equal_out);
    } else {
        void *mapped = mmap(NULL, s->bytes, PROT_READ, MAP_SHARED, s->fd, 0);
        if (mapped != MAP_FAILED) {
            compared = maps_equal(mapped, other, s->bytes, equal_out);
            munmap(mapped, s->bytes);
        }
    }
    return compared ? RVL_OK
                    : os_error("a segment of the store cannot be mapped (see sysctl "
                               "vm.max_map_count)");
}

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
    rvl_status status = compare(&of->transfer->scratch, fd, &equal);
    if (status == RVL_OK && equal) {
        segment now = {.place = place, .saved_by = of->transfer->number, .found = true};
        status = map_segment(of->client, of->backup, of->number, fd, now);
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
    scratch *s = &of->transfer->scratch;
    rvli_store_place place = {0};
    int first = -1;
    bool taken = false;
    rvl_status status = s->at != NULL ? seal_scratch(s) : RVL_OK;
    if (status == RVL_OK)
        status = rvli_store_add(of->client, of->digest, s->bytes, s->fd, apart, &place, &first);
    if (status != RVL_OK)
        return status;
    if (first >= 0) {
        status = take_found(of, first, place, &taken);
        return status != RVL_OK || taken ? status : add_scratch(of, true);
    }
    segment now = {.place = place, .saved_by = of->transfer->number};
    status = map_segment(of->client, of->backup, of->number, s->fd, now);
    close(s->fd);
    *s = (scratch){.fd = -1}; /* its room is the segment's now */
    return status;
}

/* Puts the scratch's content into the store and the backup. */
static rvl_status settle_segment(const saving *of)
{
    scratch *s = &of->transfer->scratch;
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
                                  const scratch *s, uint64_t offset)
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
                             const scratch *s, uint64_t offset)
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
    scratch *s = &transfer->scratch;
    uint64_t offset = offset_of(backup, number);
    rvl_status status = take_scratch(context->store, transfer, bytes_of(backup, number));
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
    discard_scratch(transition->context->store, &transition->shared->scratch);
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
        return os_error("no address space for host backups (see ulimit -v)");
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
    for (uint64_t i = 0; i < count_of(backup); i++)
        forget(context->store, backup, i);
    free(backup->segments);
}

const rvli_backup_store rvli_shared_store = {
    .name = "shared",
    .hold = shared_hold,
    .save = shared_save,
    .load = rvli_host_load,
    .drop = shared_drop,
};
