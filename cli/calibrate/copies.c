/* SPDX-License-Identifier: MIT */
/*
 * Measures the link between host and card, in each direction and in both at once, and the speed of
 * filling memory.
 *
 * Copies use memory that the driver pinned, so these figures contain no cost of the library.
 */
#include "calibrate/card.h"

#define ROUNDS 5
#define PIECE_BYTES (2 * MIB)

typedef struct link {
    uint64_t bytes; /* size of each buffer */
    CUdeviceptr addr;
    CUmemGenericAllocationHandle block;
    bool created, mapped;
    void *host[2];
    CUstream streams[2];
} link;

static bool open_device_side(card *it, link *made)
{
    const CUmemAllocationProp kind = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = it->ordinal},
    };
    const CUmemAccessDesc access = {.location = kind.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    uint64_t both = 2 * made->bytes;
    if (!card_ok(it, it->cuMemAddressReserve(&made->addr, both, 0, 0, 0), "reserving a range"))
        return false;
    made->created = card_ok(it, it->cuMemCreate(&made->block, both, &kind, 0), "creating a block");
    made->mapped = made->created && card_ok(it, it->cuMemMap(made->addr, both, 0, made->block, 0),
                                            "mapping a block");
    return made->mapped &&
           card_ok(it, it->cuMemSetAccess(made->addr, both, &access, 1), "giving access");
}

static bool open_link(card *it, link *made)
{
    for (int i = 0; i < 2; i++) {
        uint64_t begin_ns = now_ns();
        if (!card_ok(it, it->cuMemHostAlloc(&made->host[i], made->bytes, 0), "pinning memory"))
            return false;
        samples_add(it->measured, "host_alloc_by_driver", made->bytes, "ns", now_ns() - begin_ns);
        if (!card_ok(it, it->cuStreamCreate(&made->streams[i], CU_STREAM_NON_BLOCKING),
                     "creating a stream"))
            return false;
    }
    return open_device_side(it, made);
}

static void close_link(card *it, link *made)
{
    for (int i = 0; i < 2; i++) {
        if (made->streams[i] != NULL)
            it->cuStreamDestroy(made->streams[i]);
        if (made->host[i] != NULL)
            it->cuMemFreeHost(made->host[i]);
    }
    if (made->mapped)
        it->cuMemUnmap(made->addr, 2 * made->bytes);
    if (made->created)
        it->cuMemRelease(made->block);
    if (made->addr != 0)
        it->cuMemAddressFree(made->addr, 2 * made->bytes);
}

static bool queue(card *it, const link *made, bool out, uint64_t bytes)
{
    CUstream stream = made->streams[out ? 0 : 1];
    CUdeviceptr addr = made->addr + (out ? 0 : made->bytes);
    return out ? card_ok(it, it->cuMemcpyDtoHAsync(made->host[0], addr, bytes, stream),
                         "copying to the host")
               : card_ok(it, it->cuMemcpyHtoDAsync(addr, made->host[1], bytes, stream),
                         "copying to the card");
}

static bool measure_one_way(card *it, const link *made, bool out, uint64_t bytes)
{
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = now_ns();
        if (!queue(it, made, out, bytes) ||
            !card_ok(it, it->cuStreamSynchronize(made->streams[out ? 0 : 1]), "waiting"))
            return false;
        samples_add(it->measured, out ? "link_to_host" : "link_to_device", bytes, "ns",
                    now_ns() - begin_ns);
    }
    return true;
}

/* Copies a buffer in many pieces, as for many allocations, to measure the cost of each copy beside
 * that of its bytes. */
static bool measure_pieces(card *it, const link *made, bool out)
{
    CUstream stream = made->streams[out ? 0 : 1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = now_ns();
        for (uint64_t at = 0; at < made->bytes; at += PIECE_BYTES) {
            CUdeviceptr addr = made->addr + (out ? 0 : made->bytes) + at;
            char *host = (char *)made->host[out ? 0 : 1] + at;
            if (!card_ok(it,
                         out ? it->cuMemcpyDtoHAsync(host, addr, PIECE_BYTES, stream)
                             : it->cuMemcpyHtoDAsync(addr, host, PIECE_BYTES, stream),
                         "copying in pieces"))
                return false;
        }
        if (!card_ok(it, it->cuStreamSynchronize(stream), "waiting"))
            return false;
        samples_add(it->measured, out ? "link_to_host_by_2_mib" : "link_to_device_by_2_mib",
                    made->bytes, "ns", now_ns() - begin_ns);
    }
    return true;
}

/* Measures copies in both directions at once, until both are complete. */
static bool measure_both_ways(card *it, const link *made, uint64_t bytes)
{
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = now_ns();
        if (!queue(it, made, true, bytes) || !queue(it, made, false, bytes) ||
            !card_ok(it, it->cuStreamSynchronize(made->streams[0]), "waiting") ||
            !card_ok(it, it->cuStreamSynchronize(made->streams[1]), "waiting"))
            return false;
        samples_add(it->measured, "link_both_ways", bytes, "ns", now_ns() - begin_ns);
    }
    return true;
}

static bool measure_fill(card *it, const link *made, uint64_t bytes)
{
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t begin_ns = now_ns();
        if (!card_ok(it, it->cuMemsetD8Async(made->addr, 0x5E, bytes, made->streams[1]),
                     "filling memory") ||
            !card_ok(it, it->cuStreamSynchronize(made->streams[1]), "waiting"))
            return false;
        samples_add(it->measured, "fill", bytes, "ns", now_ns() - begin_ns);
    }
    return true;
}

bool measure_copies(card *it)
{
    static const uint64_t sizes[] = {2 * MIB, 32 * MIB, 256 * MIB};
    uint64_t room = card_free_bytes(it) / 4 / PIECE_BYTES * PIECE_BYTES;
    link made = {.bytes = room < sizes[2] ? room : sizes[2]};
    if (made.bytes == 0)
        return card_ok(it, CUDA_ERROR_OUT_OF_MEMORY, "memory for copies");
    bool ok = open_link(it, &made);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && ok && sizes[i] <= made.bytes; i++)
        ok = measure_one_way(it, &made, true, sizes[i]) &&
             measure_one_way(it, &made, false, sizes[i]) &&
             measure_both_ways(it, &made, sizes[i]) && measure_fill(it, &made, sizes[i]);
    ok = ok && measure_fill(it, &made, 2 * made.bytes) && measure_pieces(it, &made, true) &&
         measure_pieces(it, &made, false);
    close_link(it, &made);
    return ok;
}
