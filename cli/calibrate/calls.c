/* SPDX-License-Identifier: MIT */
/*
 * Measures the cost of each call for device memory, by block size.
 *
 * Creates, maps, gives access to, unmaps and releases many blocks of one size, as pause and resume
 * do. Times every call, and takes the mean of a round. The sizes take turns, because calls are slow
 * for some seconds and fast for others. The first create after a release also pays for the memory
 * that the driver has cleared since. It is recorded separately, by the number of released bytes.
 */
#include <stdlib.h>

#include "calibrate/card.h"

#define ROUNDS 3

typedef struct batch {
    uint64_t block_bytes;
    uint64_t count;
    CUdeviceptr base;
    CUmemGenericAllocationHandle *blocks;
    uint64_t created; /* blocks that exist */
    uint64_t mapped;
    means round; /* of the calls in this round */
} batch;

/* Makes a call and notes its time. Returns false from the function if it fails. */
#define TIMED(it, made, act, call, what)                                                           \
    do {                                                                                           \
        uint64_t begin_ns_ = now_ns();                                                             \
        CUresult result_ = (call);                                                                 \
        uint64_t end_ns_ = now_ns();                                                               \
        if (!card_ok(it, result_, what))                                                           \
            return false;                                                                          \
        means_note(&(made)->round, act, (made)->block_bytes, end_ns_ - begin_ns_);                 \
    } while (0)

static bool create_blocks(card *it, batch *made)
{
    const CUmemAllocationProp kind = card_block(it);
    for (; made->created < made->count; made->created++) {
        CUmemGenericAllocationHandle *block = &made->blocks[made->created];
        uint64_t begin_ns = now_ns();
        CUresult result = it->cuMemCreate(block, made->block_bytes, &kind, 0);
        uint64_t taken_ns = now_ns() - begin_ns;
        if (result != CUDA_SUCCESS && it->rdma && made->created == 0) {
            it->rdma = false; /* some systems report support for RDMA, but refuse it */
            return create_blocks(it, made);
        }
        if (!card_ok(it, result, "creating a block"))
            return false;
        if (it->released_bytes > 0)
            samples_add(it->measured, "create_after_release", it->released_bytes, "ns", taken_ns);
        else
            means_note(&made->round, "create", made->block_bytes, taken_ns);
        it->released_bytes = 0;
    }
    return true;
}

static bool map_blocks(card *it, batch *made)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = it->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    for (; made->mapped < made->count; made->mapped++) {
        CUdeviceptr addr = made->base + made->mapped * made->block_bytes;
        TIMED(it, made, "map",
              it->cuMemMap(addr, made->block_bytes, 0, made->blocks[made->mapped], 0),
              "mapping a block");
        TIMED(it, made, "set_access", it->cuMemSetAccess(addr, made->block_bytes, &access, 1),
              "giving access");
    }
    return true;
}

static bool unmap_blocks(card *it, batch *made)
{
    for (; made->mapped > 0; made->mapped--)
        TIMED(
            it, made, "unmap",
            it->cuMemUnmap(made->base + (made->mapped - 1) * made->block_bytes, made->block_bytes),
            "unmapping a block");
    return true;
}

static bool release_blocks(card *it, batch *made)
{
    for (; made->created > 0; made->created--) {
        TIMED(it, made, "release", it->cuMemRelease(made->blocks[made->created - 1]),
              "releasing a block");
        card_note_released(it, made->block_bytes);
    }
    return true;
}

/* Unmaps and releases what is left after a failure, without timing. */
static void clean_up(card *it, batch *made)
{
    for (; made->mapped > 0; made->mapped--)
        it->cuMemUnmap(made->base + (made->mapped - 1) * made->block_bytes, made->block_bytes);
    for (; made->created > 0; made->created--)
        it->cuMemRelease(made->blocks[made->created - 1]);
}

static bool run_round(card *it, batch *made)
{
    uint64_t bytes = made->block_bytes * made->count, before = card_free_bytes(it);
    if (!create_blocks(it, made) || !map_blocks(it, made))
        return false;
    uint64_t taken = before - card_free_bytes(it);
    samples_add(it->measured, "mapped_above_its_size", bytes, "bytes",
                taken > bytes ? taken - bytes : 0);
    if (!unmap_blocks(it, made) || !release_blocks(it, made))
        return false;
    means_keep(&made->round, it->measured);
    settle(bytes);
    return true;
}

static bool measure_batch(card *it, uint64_t block_bytes, uint64_t count)
{
    batch made = {.block_bytes = block_bytes, .count = count};
    uint64_t bytes = block_bytes * count;
    made.blocks = calloc(count, sizeof *made.blocks);
    if (made.blocks == NULL)
        return card_ok(it, CUDA_ERROR_OUT_OF_MEMORY, "host memory for the measuring");
    uint64_t begin_ns = now_ns();
    bool ok = card_ok(it, it->cuMemAddressReserve(&made.base, bytes, 0, 0, 0),
                      "reserving an address range");
    if (ok)
        samples_add(it->measured, "reserve", bytes, "ns", now_ns() - begin_ns);
    if (ok) {
        ok = run_round(it, &made);
        clean_up(it, &made);
        begin_ns = now_ns();
        ok = card_ok(it, it->cuMemAddressFree(made.base, bytes), "giving a range back") && ok;
        samples_add(it->measured, "release_range", bytes, "ns", now_ns() - begin_ns);
    }
    free(made.blocks);
    return ok;
}

/* Measures a round of each size. */
static bool measure_sizes(card *it, uint64_t room)
{
    static const struct {
        uint64_t block_bytes;
        uint64_t count;
    } plan[] = {{2 * MIB, 512}, {20 * MIB, 128}, {160 * MIB, 32}, {512 * MIB, 16},
                {2 * GIB, 6},   {8 * GIB, 2},    {24 * GIB, 1},   {60 * GIB, 1}};
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) {
        uint64_t granules = plan[i].block_bytes / it->granularity_bytes;
        uint64_t block_bytes = (granules > 0 ? granules : 1) * it->granularity_bytes;
        uint64_t most = room / block_bytes;
        uint64_t count = plan[i].count < most ? plan[i].count : most;
        if (count > 0 && !measure_batch(it, block_bytes, count))
            return false;
    }
    return true;
}

bool measure_calls(card *it)
{
    uint64_t room = card_free_bytes(it) / 10 * 9;
    for (int round = 0; round < ROUNDS; round++) {
        if (!measure_sizes(it, room))
            return false;
    }
    return true;
}
