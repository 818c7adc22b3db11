/* SPDX-License-Identifier: MIT */
/*
 * Measures pauses and resumes by the library: of blocks without backups; with backups in new and in
 * existing host memory, with digests and without; and with backups in a file.
 *
 * The speed of allocating host memory depends on the library as much as on the machine, because the
 * library uses several threads for it beside the copy. So it is measured through the library and
 * not by calls of the driver. The memory that the driver takes on the card for pinned memory is
 * read as well.
 */
#include "base/error.h"
#include "calibrate/card.h"
#include "reveille/cuda.h"
#include "reveille/stats.h"
#include "reveille/transition.h"

#define ROUNDS 3
#define DISK_BYTES (1 * GIB)

typedef struct subject {
    card *it;
    rvl_context *context;
    rvl_tag tag;
    rvl_addr addr;
    uint64_t bytes;
    uint64_t free_before; /* with the context open and nothing allocated or pinned */
} subject;

/* The names to record the times of a subject under. NULL: do not record. */
typedef struct acts {
    const char *cold; /* a pause that has to allocate host memory */
    const char *pause;
    const char *resume;
} acts;

static bool open_subject(subject *made, card *it, const char *disk_directory, uint64_t flags)
{
    const rvl_cuda_options cuda = {
        .struct_size = sizeof cuda, .devices = &it->ordinal, .device_count = 1};
    const rvl_context_options context = {.struct_size = sizeof context,
                                         .flags = flags,
                                         .backend_options = &cuda,
                                         .disk_directory = disk_directory};
    uint64_t total_bytes = 0;
    made->it = it;
    return rvl_context_open("cuda", &context, &made->context) == RVL_OK &&
           rvl_tag_define(made->context, "measured", NULL, &made->tag) == RVL_OK &&
           rvl_device_get_memory(made->context, 0, &made->free_before, &total_bytes) == RVL_OK;
}

/* Closes the context in any case. ok: whether all succeeded before; if not, keeps the error record
 * of that failure. Returns whether all succeeded. */
static bool close_subject(subject *made, bool ok)
{
    rvl_error before = *rvli_error_get();
    bool closed = rvl_context_close(made->context, NULL) == RVL_OK;
    if (!ok)
        rvli_error_set(&before);
    return ok && closed;
}

static bool timed_pause(subject *made, const char *act)
{
    uint64_t begin_ns = now_ns();
    if (rvl_pause(made->context, &made->tag, 1, NULL) != RVL_OK)
        return false;
    if (act != NULL)
        samples_add(made->it->measured, act, made->bytes, "ns", now_ns() - begin_ns);
    return true;
}

static bool timed_resume(subject *made, const char *act)
{
    settle(made->bytes);
    uint64_t begin_ns = now_ns();
    if (rvl_resume(made->context, &made->tag, 1, NULL) != RVL_OK)
        return false;
    if (act != NULL)
        samples_add(made->it->measured, act, made->bytes, "ns", now_ns() - begin_ns);
    return true;
}

/* Records what the driver takes on the card for pinned memory. Call it while all is paused: nothing
 * else is then in use. */
static bool note_pinned(const subject *made)
{
    uint64_t free_now = 0, total_bytes = 0;
    if (rvl_device_get_memory(made->context, 0, &free_now, &total_bytes) != RVL_OK)
        return false;
    samples_add(made->it->measured, "pinned_takes", made->bytes, "bytes",
                free_now < made->free_before ? made->free_before - free_now : 0);
    return true;
}

/*
 * Measures a round. Each round needs a new context, so that the host memory of the previous round
 * is gone, with its addresses. The first backups of a program find no host memory either. Memory
 * that is freed and allocated again at the same addresses is up to a tenth cheaper.
 */
static bool measure_round(subject *made, const acts *names, rvl_backup backup)
{
    const rvl_alloc_options options = {
        .struct_size = sizeof options, .tag_id = made->tag, .backup = backup};
    if (rvl_alloc(made->context, made->bytes, &options, &made->addr) != RVL_OK)
        return false;
    if (names->cold != NULL && (!timed_pause(made, names->cold) || !note_pinned(made) ||
                                !timed_resume(made, names->resume)))
        return false;
    return timed_pause(made, names->pause) && timed_resume(made, names->resume);
}

/*
 * Blocks without a backup. Each pause and resume comes some time after the last call, as if a stage
 * of a program ran in between. A call then takes longer than in a series of equal calls (calls.c).
 * The recorded value is the time for one block.
 *
 * For some seconds the same calls take up to 1.8 times as long. The sizes take turns, so that each
 * size has slow and fast calls.
 */
#define REST_MS 50
#define TURNS 2 /* in each run of this part */

static const struct {
    const char *tag;
    uint64_t block_bytes;
    uint64_t count;
} block_sizes[] = {{"2 MiB", 2 * MIB, 512},
                   {"20 MiB", 20 * MIB, 128},
                   {"160 MiB", 160 * MIB, 48},
                   {"512 MiB", 512 * MIB, 24},
                   {"4 GiB", 4 * GIB, 4}};

#define BLOCK_SIZES (sizeof block_sizes / sizeof *block_sizes)

/* Creates and releases a small block, which pays for clearing released memory, so that the resume
 * does not. */
static bool create_small(card *it, uint64_t *taken_ns_out)
{
    const CUmemAllocationProp kind = card_block(it);
    CUmemGenericAllocationHandle block = 0;
    uint64_t begin_ns = now_ns();
    if (!card_ok(it, it->cuMemCreate(&block, it->granularity_bytes, &kind, 0), "creating a block"))
        return false;
    *taken_ns_out = now_ns() - begin_ns;
    return card_ok(it, it->cuMemRelease(block), "releasing a block");
}

static bool measure_move(subject *made, uint64_t block_bytes, uint64_t count)
{
    card *it = made->it;
    sleep_ms(REST_MS);
    uint64_t begin_ns = now_ns();
    if (rvl_pause(made->context, &made->tag, 1, NULL) != RVL_OK)
        return false;
    samples_add(it->measured, "pause_block", block_bytes, "ns", (now_ns() - begin_ns) / count);
    settle(block_bytes * count);
    uint64_t taken_ns = 0;
    if (!create_small(it, &taken_ns))
        return false;
    samples_add(it->measured, "small_create_after_pause", block_bytes * count, "ns", taken_ns);
    sleep_ms(REST_MS);
    begin_ns = now_ns();
    if (rvl_resume(made->context, &made->tag, 1, NULL) != RVL_OK)
        return false;
    samples_add(it->measured, "resume_block", block_bytes, "ns", (now_ns() - begin_ns) / count);
    return true;
}

static bool allocate_blocks(subject *made, size_t size)
{
    const rvl_alloc_options options = {.struct_size = sizeof options, .tag_id = made->tag};
    bool ok = true;
    for (uint64_t i = 0; i < block_sizes[size].count && ok; i++)
        ok = rvl_alloc(made->context, block_sizes[size].block_bytes, &options, &made->addr) ==
             RVL_OK;
    return ok;
}

/* Allocates the blocks of each size under its own tag, from the smallest on, while the card has
 * room. */
static bool open_blocks(subject *made, rvl_tag tags[BLOCK_SIZES], size_t *count_out)
{
    uint64_t granule = made->it->granularity_bytes;
    for (size_t i = 0; i < BLOCK_SIZES && block_sizes[i].block_bytes % granule == 0; i++) {
        uint64_t bytes = block_sizes[i].block_bytes * block_sizes[i].count;
        if (made->bytes + bytes >= made->free_before / 10 * 9)
            return true;
        made->bytes += bytes;
        if (rvl_tag_define(made->context, block_sizes[i].tag, NULL, &made->tag) != RVL_OK ||
            !allocate_blocks(made, i))
            return false;
        tags[(*count_out)++] = made->tag;
    }
    return true;
}

bool measure_blocks(card *it)
{
    subject made = {.bytes = 0};
    rvl_tag tags[BLOCK_SIZES];
    size_t count = 0;
    bool ok = open_subject(&made, it, NULL, 0) && open_blocks(&made, tags, &count);
    for (int turn = 0; turn < TURNS && ok && (turn == 0 || card_has_time(it)); turn++) {
        for (size_t i = 0; i < count && ok; i++) {
            made.tag = tags[i];
            ok = measure_move(&made, block_sizes[i].block_bytes, block_sizes[i].count);
        }
    }
    ok = close_subject(&made, ok);
    uint64_t ignored_ns = 0;
    settle(made.bytes);
    return ok && create_small(it, &ignored_ns); /* so that the next part does not pay */
}

/* Buffers that are smaller than the pieces in which the library allocates host memory. */
#define BUFFERS 64
#define BUFFER_BYTES (18 * MIB)

static bool allocate_buffers(subject *made, uint64_t count)
{
    const rvl_alloc_options options = {
        .struct_size = sizeof options, .tag_id = made->tag, .backup = RVL_BACKUP_HOST};
    rvl_status status = RVL_OK;
    for (uint64_t i = 0; i < count && status == RVL_OK; i++)
        status = rvl_alloc(made->context, BUFFER_BYTES, &options, &made->addr);
    return status == RVL_OK;
}

/* Measures pauses of many buffers, first with new host memory. Closing the context frees them. */
static bool measure_buffers(card *it)
{
    subject made = {.bytes = BUFFERS * BUFFER_BYTES};
    bool ok = open_subject(&made, it, NULL, RVL_CONTEXT_NO_VERIFY);
    if (ok && made.bytes <= it->library.host_bytes_max && made.bytes < made.free_before / 10 * 9 &&
        BUFFER_BYTES % it->granularity_bytes == 0) {
        ok = allocate_buffers(&made, BUFFERS) && timed_pause(&made, "pause_cold_in_buffers") &&
             timed_resume(&made, NULL) && timed_pause(&made, "pause_warm_in_buffers") &&
             timed_resume(&made, NULL);
    }
    return close_subject(&made, ok);
}

#define FIRST_BYTES (2 * MIB)

uint64_t measure_first_pause(card *it, uint64_t *bytes_out)
{
    samples found = {0};
    samples *before = it->measured;
    subject made = {.bytes = FIRST_BYTES};
    it->measured = &found;
    rvl_alloc_options options = {.struct_size = sizeof options, .backup = RVL_BACKUP_HOST};
    bool ok = open_subject(&made, it, NULL, RVL_CONTEXT_NO_VERIFY);
    options.tag_id = made.tag;
    ok = ok && rvl_alloc(made.context, FIRST_BYTES, &options, &made.addr) == RVL_OK &&
         timed_pause(&made, "pause_first");
    ok = close_subject(&made, ok);
    uint64_t taken_ns =
        samples_spread(samples_find(&found, "pause_first", FIRST_BYTES)).median_value;
    samples_free(&found);
    it->measured = before;
    *bytes_out = FIRST_BYTES;
    return ok ? taken_ns : 0;
}

static bool measure_size(card *it, uint64_t bytes, const acts *names, uint64_t flags)
{
    bool ok = true;
    for (int round = 0; round < ROUNDS && ok && (round == 0 || card_has_time(it)); round++) {
        subject made = {.bytes = bytes};
        ok = open_subject(&made, it, NULL, flags);
        if (ok && bytes < made.free_before / 10 * 9)
            ok = measure_round(&made, names, RVL_BACKUP_HOST);
        ok = close_subject(&made, ok);
    }
    return ok;
}

static bool measure_host(card *it, const acts *names, uint64_t flags)
{
    static const uint64_t sizes[] = {2 * MIB, 256 * MIB, 2 * GIB, 8 * GIB, 20 * GIB};
    bool ok = true;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && ok && card_has_time(it); i++) {
        if (sizes[i] <= it->library.host_bytes_max && sizes[i] % it->granularity_bytes == 0)
            ok = measure_size(it, sizes[i], names, flags);
    }
    return ok;
}

/* Skips a folder that cannot hold backups, such as a tmpfs. That is not a failure. */
static bool measure_disk(card *it)
{
    static const acts names = {NULL, "pause_to_disk", "resume_from_disk"};
    subject made = {.bytes = DISK_BYTES};
    if (it->library.disk_directory == NULL)
        return true;
    rvli_error_before before;
    rvli_error_keep(&before);
    bool ok = open_subject(&made, it, it->library.disk_directory, RVL_CONTEXT_NO_VERIFY);
    if (made.context == NULL) {
        rvli_error_put_back(&before);
        return true;
    }
    bool fits = ok && made.bytes < made.free_before / 10 * 9;
    ok = close_subject(&made, ok && (!fits || measure_round(&made, &names, RVL_BACKUP_DISK)));
    for (int round = 1; round < ROUNDS && ok && fits && card_has_time(it); round++) {
        subject again = {.bytes = DISK_BYTES};
        ok = open_subject(&again, it, it->library.disk_directory, RVL_CONTEXT_NO_VERIFY) &&
             measure_round(&again, &names, RVL_BACKUP_DISK);
        ok = close_subject(&again, ok);
    }
    return ok;
}

bool measure_library(card *it)
{
    static const acts plain = {"pause_cold", "pause_warm", "resume_warm"};
    static const acts verified = {"pause_cold_verified", "pause_verified", "resume_verified"};
    bool ok = measure_host(it, &plain, RVL_CONTEXT_NO_VERIFY);
    for (int round = 0; round < ROUNDS && ok; round++)
        ok = measure_buffers(it);
    return ok && measure_disk(it) && measure_host(it, &verified, 0);
}
