/* SPDX-License-Identifier: MIT */
/*
 * Measures how fast the driver clears memory that was just released.
 *
 * Creates a block that only fits with the released memory. The create returns when enough of it has
 * been cleared.
 */
#include "calibrate/card.h"

#define ROUNDS 3

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

/*
 * Occupies the room except for a 64th of it. Releases a block of a quarter of the room (at most 32
 * GiB), and creates it again at once. The small free part is already clear, so the create waits for
 * the remaining bytes.
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
    uint64_t room = card_free_bytes(it) / 10 * 9;
    for (int round = 0; round < ROUNDS; round++) {
        if (!measure_waiting(it, room))
            return false;
    }
    return true;
}
