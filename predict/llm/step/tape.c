/* SPDX-License-Identifier: MIT */
/* Tensors of a step on the model of the caching allocator. */
#include "predict/llm/step/tape.h"

#include <string.h>

#define FIRST_ADDRESS (UINT64_C(1) << 62)

/* Segments come to lie one below the other, as the driver places them while it can. */
static uint64_t place(void *owner, rvli_snapshot_change change, uint64_t addr, uint64_t size,
                      uint32_t stream)
{
    rvli_tape *tape = owner;
    (void)stream;
    if (change == RVLI_CHANGE_FREE && tape->listener.shown != NULL)
        rvli_shown_segment_free(tape->listener.shown, addr);
    if (change != RVLI_CHANGE_ALLOC)
        return 0;
    tape->next_addr -= size;
    if (tape->listener.shown != NULL)
        rvli_shown_segment_alloc(tape->listener.shown, tape->next_addr, size);
    return tape->next_addr;
}

void rvli_tape_begin(rvli_tape *tape, uint64_t limit_bytes)
{
    rvli_settings settings;
    rvli_settings_default(&settings);
    *tape = (rvli_tape){.next_addr = FIRST_ADDRESS};
    for (uint32_t i = 0; i < RVLI_STREAM_COUNT; i++)
        tape->streams[i] = i;
    rvli_allocator_init(&tape->allocator, &settings, tape->streams, place, tape);
    rvli_allocator_limit(&tape->allocator, limit_bytes);
}

void rvli_tape_end(rvli_tape *tape)
{
    rvli_allocator_destroy(&tape->allocator);
}

static void note_fullest(rvli_tape *tape)
{
    rvli_moment *fullest = tape->fullest;
    if (fullest == NULL || tape->allocator.bytes.allocated <= fullest->allocated_bytes)
        return;
    fullest->allocated_bytes = tape->allocator.bytes.allocated;
    fullest->call = tape->calls;
    memcpy(fullest->held, tape->held, sizeof fullest->held);
}

/* Behind a call: whether the step is fullest there is known from a run before this one. */
static void show_fullest(rvli_tape *tape)
{
    const rvli_shown *shown = tape->listener.shown;
    if (shown != NULL && (tape->calls == shown->instant[0] || tape->calls == shown->instant[1]))
        rvli_shown_now(tape->listener.shown);
}

rvli_block rvli_take_on(rvli_tape *tape, rvli_stream stream, rvl_model_term holder, uint64_t bytes)
{
    rvli_request request = {.size = bytes, .event = holder, .stream = stream};
    rvli_block block = NULL;
    if (bytes == 0 || tape->failed)
        return NULL;
    rvl_status status = rvli_allocator_malloc(&tape->allocator, &request, &block);
    request.unlimited = true;
    if (status == RVL_ERR_DEVICE_OOM)
        status = rvli_allocator_malloc(&tape->allocator, &request, &block);
    if (status != RVL_OK) {
        tape->failed = true;
        return NULL;
    }
    tape->held[holder] += block->size;
    if (tape->allocator.bytes.reserved > tape->reserved_bytes)
        tape->reserved_bytes = tape->allocator.bytes.reserved;
    tape->calls++;
    note_fullest(tape);
    if (tape->listener.shown != NULL) {
        rvli_shown_take(tape->listener.shown, block->addr, holder, block->size);
        show_fullest(tape);
    }
    if (tape->listener.told != NULL)
        tape->listener.told(tape->listener.user, (int64_t)bytes, stream, holder);
    return block;
}

rvli_block rvli_take(rvli_tape *tape, rvl_model_term holder, uint64_t bytes)
{
    return rvli_take_on(tape, RVLI_STREAM_COMPUTE, holder, bytes);
}

void rvli_drop(rvli_tape *tape, rvli_block block)
{
    if (block == NULL)
        return;
    rvl_model_term holder = (rvl_model_term)block->event;
    tape->held[holder] -= block->size;
    tape->calls++;
    if (tape->listener.shown != NULL)
        rvli_shown_drop(tape->listener.shown, block->addr, holder, block->size);
    if (tape->listener.told != NULL)
        tape->listener.told(tape->listener.user, -(int64_t)block->requested,
                            (rvli_stream)tape->allocator.buckets[block->bucket].stream, holder);
    rvli_allocator_free(&tape->allocator, block);
    rvli_allocator_complete(&tape->allocator, block);
}

void rvli_tape_listen(rvli_tape *tape, const rvli_tape_listener *listener)
{
    if (listener != NULL)
        tape->listener = *listener;
}

bool rvli_tape_failed(const rvli_tape *tape)
{
    return tape->failed || (tape->listener.shown != NULL && tape->listener.shown->failed);
}

void rvli_tape_begin_step(rvli_tape *tape)
{
    tape->reserved_bytes = tape->allocator.bytes.reserved;
    tape->calls = 0;
    if (tape->listener.shown != NULL)
        rvli_shown_begin(tape->listener.shown);
}

void rvli_tape_between(rvli_tape *tape)
{
    if (tape->listener.shown != NULL)
        rvli_shown_between(tape->listener.shown);
}

void rvli_tape_watch(rvli_tape *tape, rvli_moment *fullest)
{
    tape->fullest = fullest;
    note_fullest(tape);
    show_fullest(tape);
}
