/* SPDX-License-Identifier: MIT */
/*
 * What waits while the driver clears memory that was just released.
 *
 * A large block is released, and at once the device is waited for, and smaller blocks that lay
 * ready are unmapped and released, each call timed. And a block is asked for that only fits into
 * what was released: that create is done when enough has been cleared, so it says how fast.
 */
#include "calibrate/card.h"

#define ROUNDS 2
#define READY_MAX 16

/* Blocks that lie mapped, side by side. */
typedef struct ready {
    CUdeviceptr base;
    uint64_t bytes; /* of the range */
    size_t count;
    struct {
        CUmemGenericAllocationHandle block;
        CUdeviceptr addr;
        uint64_t bytes;
        bool mapped;
    } blocks[READY_MAX];
} ready;

static const struct {
    uint64_t bytes;
    size_t count;
} sizes[] = {{2 * MIB, 4}, {160 * MIB, 4}, {2 * GIB, 2}, {8 * GIB, 1}};

static bool create(card *it, uint64_t bytes, CUmemGenericAllocationHandle *block_out)
{
    const CUmemAllocationProp kind = card_block(it);
    return card_ok(it, it->cuMemCreate(block_out, bytes, &kind, 0), "creating a block");
}

static bool release(card *it, CUmemGenericAllocationHandle block, uint64_t bytes)
{
    if (!card_ok(it, it->cuMemRelease(block), "releasing a block"))
        return false;
    card_note_released(it, bytes);
    return true;
}

static bool add_block(card *it, ready *made, uint64_t bytes, CUdeviceptr addr)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = it->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    CUmemGenericAllocationHandle block = 0;
    if (!create(it, bytes, &block))
        return false;
    size_t i = made->count++;
    made->blocks[i].block = block;
    made->blocks[i].addr = addr;
    made->blocks[i].bytes = bytes;
    made->blocks[i].mapped = card_ok(it, it->cuMemMap(addr, bytes, 0, block, 0), "mapping a block");
    return made->blocks[i].mapped &&
           card_ok(it, it->cuMemSetAccess(addr, bytes, &access, 1), "giving access");
}

/* As many of the sizes as half of the room holds. */
static bool make_ready(card *it, ready *made, uint64_t room)
{
    uint64_t total = 0;
    size_t kinds = 0;
    while (kinds < sizeof sizes / sizeof *sizes &&
           total + sizes[kinds].bytes * sizes[kinds].count <= room / 2 &&
           sizes[kinds].bytes % it->granularity_bytes == 0) {
        total += sizes[kinds].bytes * sizes[kinds].count;
        kinds++;
    }
    if (total == 0)
        return true;
    if (!card_ok(it, it->cuMemAddressReserve(&made->base, total, 0, 0, 0), "reserving a range"))
        return false;
    made->bytes = total;
    CUdeviceptr addr = made->base;
    for (size_t kind = 0; kind < kinds; kind++) {
        for (size_t i = 0; i < sizes[kind].count; i++, addr += sizes[kind].bytes) {
            if (!add_block(it, made, sizes[kind].bytes, addr))
                return false;
        }
    }
    return true;
}

/* What is left goes, and nothing is timed. */
static void clean_up(card *it, ready *made)
{
    for (; made->count > 0; made->count--) {
        size_t i = made->count - 1;
        if (made->blocks[i].mapped)
            it->cuMemUnmap(made->blocks[i].addr, made->blocks[i].bytes);
        it->cuMemRelease(made->blocks[i].block);
    }
    if (made->bytes > 0)
        it->cuMemAddressFree(made->base, made->bytes);
}

static bool time_idle(card *it, uint64_t behind_bytes)
{
    uint64_t begin_ns = now_ns();
    if (!card_ok(it, it->cuCtxSynchronize(), "waiting for the device"))
        return false;
    samples_add(it->measured, "idle_while_clearing", behind_bytes, "ns", now_ns() - begin_ns);
    return true;
}

/* The last one goes first. A later one may find all cleared: then it is not noted. */
static bool time_last(card *it, ready *made, means *calls)
{
    size_t i = made->count - 1;
    bool meanwhile = card_is_clearing(it);
    uint64_t begin_ns = now_ns();
    if (!card_ok(it, it->cuMemUnmap(made->blocks[i].addr, made->blocks[i].bytes), "unmapping"))
        return false;
    uint64_t unmapped_ns = now_ns();
    made->blocks[i].mapped = false;
    if (!release(it, made->blocks[i].block, made->blocks[i].bytes))
        return false;
    uint64_t end_ns = now_ns();
    made->count--;
    if (meanwhile) {
        means_note(calls, "unmap_while_clearing", made->blocks[i].bytes, unmapped_ns - begin_ns);
        means_note(calls, "release_while_clearing", made->blocks[i].bytes, end_ns - unmapped_ns);
    }
    return true;
}

/* Behind an unmap and a release of so many bytes, as of a KV cache that is paused. */
static bool measure_behind(card *it, uint64_t bytes)
{
    ready large = {.count = 0}, made = {.count = 0};
    means calls = {.count = 0};
    bool ok =
        card_ok(it, it->cuMemAddressReserve(&large.base, bytes, 0, 0, 0), "reserving a range");
    large.bytes = ok ? bytes : 0;
    ok = ok && add_block(it, &large, bytes, large.base) &&
         make_ready(it, &made, card_free_bytes(it));
    if (ok) {
        settle(bytes);
        ok = card_ok(it, it->cuMemUnmap(large.base, bytes), "unmapping");
        large.blocks[0].mapped = !ok;
        ok = ok && release(it, large.blocks[0].block, bytes);
        large.count = ok ? 0 : large.count;
    }
    ok = ok && time_idle(it, bytes);
    while (ok && made.count > 0)
        ok = time_last(it, &made, &calls);
    means_keep(&calls, it->measured);
    clean_up(it, &made);
    clean_up(it, &large);
    settle(bytes);
    return ok;
}

/*
 * All but a little is taken; a quarter of the rest of the memory is released and asked for again at
 * once. The little that is free is ready, so the create waits for the others.
 */
static bool measure_waiting(card *it, uint64_t room)
{
    uint64_t granule = it->granularity_bytes;
    uint64_t wanted = room / 4 < 32 * GIB ? room / 4 / granule * granule : 32 * GIB;
    uint64_t little = room / 64 / granule * granule;
    CUmemGenericAllocationHandle most = 0, block = 0;
    uint64_t rest = (room - wanted - little) / granule * granule;
    if (wanted <= little)
        return true;
    if (!create(it, rest, &most))
        return false;
    bool there = create(it, wanted, &block);
    settle(rest);
    bool ok = there && release(it, block, wanted);
    uint64_t begin_ns = now_ns();
    ok = ok && create(it, wanted, &block);
    if (ok) {
        samples_add(it->measured, "create_needing_cleared", wanted - little, "ns",
                    now_ns() - begin_ns);
        ok = release(it, block, wanted);
    }
    ok = release(it, most, rest) && ok;
    settle(room);
    return ok;
}

bool measure_clearing(card *it)
{
    static const uint64_t behind[] = {8 * GIB, 32 * GIB, 60 * GIB};
    uint64_t room = card_free_bytes(it) / 10 * 9;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < sizeof behind / sizeof *behind; i++) {
            uint64_t bytes = behind[i] < room / 4 * 3 ? behind[i] : room / 2;
            bytes = bytes / it->granularity_bytes * it->granularity_bytes;
            bool same = i > 0 && behind[i - 1] >= room / 4 * 3; /* a small card has one size */
            if (bytes > 0 && !same && !measure_behind(it, bytes))
                return false;
        }
        if (!measure_waiting(it, room))
            return false;
    }
    return true;
}
