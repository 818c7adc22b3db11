/* SPDX-License-Identifier: MIT */
/*
 * Segments: what PyTorch's caching allocator asks the device for, to hold tensors that stay.
 *
 * A request of 10 MiB or more gets its own segment, rounded up to 2 MiB. Requests of up to 1 MiB
 * are packed into segments of 2 MiB, those in between into segments of 20 MiB. A request goes into
 * the smallest remainder that can hold it. Remainders are a sorted list of sizes, each with a
 * count. The list stays short because a model's layers are alike.
 */
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

#include "predict/llm/llm_internal.h"

#define BLOCK_BYTES 512
#define SMALL_BYTES_MAX RVLI_MIB
#define SMALL_SEGMENT_BYTES (2 * RVLI_MIB)
#define LARGE_SEGMENT_BYTES (20 * RVLI_MIB)
#define OWN_SEGMENT_BYTES_MIN (10 * RVLI_MIB)
#define OWN_SEGMENT_STEP_BYTES (2 * RVLI_MIB)

uint64_t rvli_round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

/* ---- Lists of sizes ---- */

void rvli_sizes_add(rvli_sizes *sizes, uint64_t bytes)
{
    if (!RVLI_ROOM(sizes->items, sizes->count, sizes->room, 64)) {
        sizes->failed = true;
        return;
    }
    sizes->items[sizes->count++] = bytes;
    sizes->total += bytes;
}

void rvli_sizes_free(rvli_sizes *sizes)
{
    free(sizes->items);
    *sizes = (rvli_sizes){0};
}

/* ---- Remainders ---- */

/* Index of the first remainder that has at least `bytes`. */
static size_t lower_bound(const rvli_remainders *list, uint64_t bytes)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list->sizes[middle] < bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool grow(rvli_remainders *list)
{
    if (list->count < list->room)
        return true;
    size_t room = list->room > 0 ? 2 * list->room : 16;
    uint64_t *sizes = realloc(list->sizes, room * sizeof *sizes);
    if (sizes != NULL)
        list->sizes = sizes;
    uint64_t *counts = sizes != NULL ? realloc(list->counts, room * sizeof *counts) : NULL;
    if (counts == NULL)
        return false;
    list->counts = counts;
    list->room = room;
    return true;
}

static bool put(rvli_remainders *list, uint64_t bytes)
{
    if (bytes <= list->useless_bytes)
        return true;
    size_t at = lower_bound(list, bytes);
    if (at < list->count && list->sizes[at] == bytes) {
        list->counts[at]++;
        return true;
    }
    if (!grow(list))
        return false;
    memmove(list->sizes + at + 1, list->sizes + at, (list->count - at) * sizeof *list->sizes);
    memmove(list->counts + at + 1, list->counts + at, (list->count - at) * sizeof *list->counts);
    list->sizes[at] = bytes;
    list->counts[at] = 1;
    list->count++;
    return true;
}

/* Removes and returns the smallest remainder that has at least `bytes`. 0: there is none. */
static uint64_t take(rvli_remainders *list, uint64_t bytes)
{
    size_t at = lower_bound(list, bytes);
    if (at == list->count)
        return 0;
    uint64_t size = list->sizes[at];
    if (--list->counts[at] == 0) {
        list->count--;
        memmove(list->sizes + at, list->sizes + at + 1, (list->count - at) * sizeof *list->sizes);
        memmove(list->counts + at, list->counts + at + 1,
                (list->count - at) * sizeof *list->counts);
    }
    return size;
}

static void free_remainders(rvli_remainders *list)
{
    free(list->sizes);
    free(list->counts);
}

/* ---- Packing ---- */

void rvli_packer_begin(rvli_packer *packer, rvli_sizes *segments)
{
    *packer = (rvli_packer){
        .segments = segments,
        .small = {.segment_bytes = SMALL_SEGMENT_BYTES},
        .large = {.segment_bytes = LARGE_SEGMENT_BYTES, .useless_bytes = SMALL_BYTES_MAX},
    };
}

void rvli_packer_add(rvli_packer *packer, uint64_t bytes)
{
    uint64_t size = rvli_round_up(bytes, BLOCK_BYTES);
    if (size >= OWN_SEGMENT_BYTES_MIN) {
        rvli_sizes_add(packer->segments, rvli_round_up(size, OWN_SEGMENT_STEP_BYTES));
        return;
    }
    rvli_remainders *list = size <= SMALL_BYTES_MAX ? &packer->small : &packer->large;
    uint64_t remainder = take(list, size);
    if (remainder == 0) {
        remainder = list->segment_bytes;
        rvli_sizes_add(packer->segments, remainder);
    }
    if (!put(list, remainder - size))
        packer->segments->failed = true;
}

void rvli_packer_end(rvli_packer *packer)
{
    free_remainders(&packer->small);
    free_remainders(&packer->large);
}
