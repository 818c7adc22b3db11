/* SPDX-License-Identifier: MIT */
/* Plays the tensors of a step on the model of the caching allocator. */
#include "predict/llm/step/tape.h"

#include <string.h>

#define FIRST_ADDRESS (UINT64_C(1) << 62)

static void note_segment(rvli_tape *tape, rvli_journal_kind kind, uint64_t addr, uint64_t size)
{
    rvli_journal_line *line = rvli_journal_add(&tape->journal, kind);
    tape->changes.segments = true;
    if (line == NULL)
        return;
    line->addr = addr;
    line->bytes = size;
}

/* Places each segment below the one before, as the driver does while it can. */
static uint64_t place(void *owner, rvli_snapshot_change change, uint64_t addr, uint64_t size,
                      uint32_t stream)
{
    rvli_tape *tape = owner;
    (void)stream;
    if (change == RVLI_CHANGE_FREE)
        note_segment(tape, RVLI_JOURNAL_FREE, addr, size);
    if (change != RVLI_CHANGE_ALLOC)
        return 0;
    tape->next_addr -= size;
    note_segment(tape, RVLI_JOURNAL_ALLOC, tape->next_addr, size);
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
    rvli_journal_free(&tape->journal);
    rvli_script_free(&tape->script);
}

/* A block's `event` has its holder, the step that took it, and the line of that take in the
 * script. */
#define HOLDER_BITS 8
#define LINE_SHIFT 32
_Static_assert(RVL_MODEL_TERM_COUNT <= 1 << HOLDER_BITS, "a holder has room");

static rvl_model_term holder_of(const rvli_cached_block *block)
{
    return (rvl_model_term)(block->event & ((1u << HOLDER_BITS) - 1));
}

static uint32_t step_of(const rvli_cached_block *block)
{
    return (uint32_t)block->event >> HOLDER_BITS;
}

/* NULL: a step is being repeated, or out of host memory. */
static rvli_script_line *write_line(rvli_tape *tape, rvli_script_kind kind)
{
    rvli_script_line *line = tape->repeats ? NULL : rvli_script_add(&tape->script, kind);
    if (line == NULL && !tape->repeats)
        tape->failed = true;
    return line;
}

/* false: nothing more is taken. */
static bool write_take(rvli_tape *tape, rvli_stream stream, rvl_model_term holder, uint64_t bytes)
{
    rvli_script_line *line = write_line(tape, RVLI_SCRIPT_TAKE);
    if (line != NULL) {
        line->stream = (uint8_t)stream;
        line->holder = (uint8_t)holder;
        line->of.bytes = bytes;
    }
    return !tape->failed;
}

static void write_drop(rvli_tape *tape, const rvli_cached_block *block)
{
    uint32_t taken = (uint32_t)(block->event >> LINE_SHIFT);
    if (step_of(block) != tape->steps) {
        tape->changes.dropped_older = true;
    } else if (!tape->repeats) {
        tape->script.lines[taken].dropped = (uint32_t)tape->script.count;
        write_line(tape, RVLI_SCRIPT_DROP);
    }
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

static void note_block(rvli_tape *tape, rvli_journal_kind kind, const rvli_cached_block *block)
{
    rvli_journal_line *line = rvli_journal_add(&tape->journal, kind);
    if (line == NULL)
        return;
    line->term = (uint8_t)holder_of(block);
    line->segment = block->segment;
    line->bytes = block->size;
}

/* NULL: out of host memory. */
static rvli_block take_block(rvli_tape *tape, rvli_request *request)
{
    rvli_block block = NULL;
    rvl_status status = rvli_allocator_malloc(&tape->allocator, request, &block);
    request->unlimited = true;
    if (status == RVL_ERR_DEVICE_OOM)
        status = rvli_allocator_malloc(&tape->allocator, request, &block);
    tape->failed = status != RVL_OK;
    return status == RVL_OK ? block : NULL;
}

static void count_block(rvli_tape *tape, const rvli_cached_block *block)
{
    tape->held[holder_of(block)] += block->size;
    if (tape->allocator.bytes.reserved > tape->reserved_bytes)
        tape->reserved_bytes = tape->allocator.bytes.reserved;
    if (tape->allocator.bytes.requested > tape->requested_bytes)
        tape->requested_bytes = tape->allocator.bytes.requested;
    tape->calls++;
    tape->live_count++;
    note_fullest(tape);
    note_block(tape, RVLI_JOURNAL_TAKE, block);
}

rvli_block rvli_take_on(rvli_tape *tape, rvli_stream stream, rvl_model_term holder, uint64_t bytes)
{
    rvli_request request = {.size = bytes,
                            .event = holder | tape->steps << HOLDER_BITS |
                                     (uint64_t)tape->script.count << LINE_SHIFT,
                            .stream = stream};
    if (bytes == 0 || tape->failed || !write_take(tape, stream, holder, bytes))
        return NULL;
    rvli_block block = take_block(tape, &request);
    if (block == NULL)
        return NULL;
    count_block(tape, block);
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
    rvl_model_term holder = holder_of(block);
    tape->held[holder] -= block->size;
    tape->calls++;
    tape->live_count--;
    write_drop(tape, block);
    note_block(tape, RVLI_JOURNAL_DROP, block);
    if (tape->listener.told != NULL)
        tape->listener.told(tape->listener.user, -(int64_t)block->requested,
                            (rvli_stream)tape->allocator.buckets[block->bucket].stream, holder);
    rvli_allocator_free(&tape->allocator, block);
    rvli_allocator_complete(&tape->allocator, block);
}

void rvli_tape_listen(rvli_tape *tape, const rvli_tape_listener *listener)
{
    if (listener == NULL)
        return;
    tape->listener = *listener;
    tape->journal.shown = listener->shown;
}

bool rvli_tape_failed(const rvli_tape *tape)
{
    return tape->failed || (tape->listener.shown != NULL && tape->listener.shown->failed);
}

void rvli_tape_begin_step(rvli_tape *tape)
{
    tape->reserved_before = tape->reserved_bytes;
    tape->reserved_bytes = tape->allocator.bytes.reserved;
    tape->requested_bytes = tape->allocator.bytes.requested;
    tape->calls = 0;
    tape->steps++;
    tape->changes = (rvli_step_changes){.live_before = tape->live_count};
    rvli_journal_begin_step(&tape->journal);
    if (!tape->repeats)
        tape->script.count = 0;
}

static void repeat_line(rvli_tape *tape, const rvli_script_line *line)
{
    switch ((rvli_script_kind)line->kind) {
    case RVLI_SCRIPT_TAKE:
        if (line->dropped > 0)
            tape->script.lines[line->dropped].of.block =
                rvli_take_on(tape, line->stream, line->holder, line->of.bytes);
        break;
    case RVLI_SCRIPT_DROP:
        rvli_drop(tape, line->of.block);
        break;
    case RVLI_SCRIPT_EMPTY_CACHE:
        rvli_tape_empty_cache(tape);
        break;
    case RVLI_SCRIPT_BETWEEN:
        rvli_tape_between(tape);
        break;
    case RVLI_SCRIPT_WATCH:
        rvli_tape_watch(tape, line->of.fullest);
        break;
    }
}

/* Optimizer states and workspaces are taken once. A later step may drop anything else that a step
 * leaves. */
static bool comes_again(const rvli_script_line *line)
{
    return line->kind != RVLI_SCRIPT_TAKE || line->dropped > 0 ||
           line->holder == RVL_MODEL_OPTIMIZER || line->holder == RVL_MODEL_BLAS_WORKSPACES;
}

static bool can_repeat(const rvli_tape *tape)
{
    if (tape->steps == 0 || tape->changes.dropped_older || tape->listener.told != NULL)
        return false;
    for (size_t i = 0; i < tape->script.count; i++) {
        if (!comes_again(&tape->script.lines[i]))
            return false;
    }
    return true;
}

bool rvli_tape_repeat_step(rvli_tape *tape)
{
    if (!can_repeat(tape))
        return false;
    tape->repeats = true;
    rvli_tape_begin_step(tape);
    for (size_t i = 0; i < tape->script.count && !tape->failed; i++)
        repeat_line(tape, &tape->script.lines[i]);
    tape->repeats = false;
    return true;
}

/*
 * The step allocated and freed no segment, dropped all that it took, and dropped nothing else. So
 * live tensors are where they were, with the free blocks between them: the next step begins as this
 * one did.
 */
static bool left_all_as_it_was(const rvli_tape *tape)
{
    return !tape->changes.segments && !tape->changes.dropped_older &&
           tape->live_count == tape->changes.live_before;
}

/* A listener is also told of the step that only confirms it. */
bool rvli_tape_is_settled(const rvli_tape *tape)
{
    bool confirmed = tape->steps > 2 && tape->reserved_bytes == tape->reserved_before;
    bool repeats = tape->steps > 1 && tape->listener.told == NULL && left_all_as_it_was(tape);
    return confirmed || repeats;
}

void rvli_tape_show(rvli_tape *tape, const rvli_moment *passes, const rvli_moment *update)
{
    const uint64_t instants[2] = {passes->call, update->call};
    rvli_journal_show(&tape->journal, instants);
}

void rvli_tape_empty_cache(rvli_tape *tape)
{
    write_line(tape, RVLI_SCRIPT_EMPTY_CACHE);
    if (rvli_allocator_empty_cache(&tape->allocator) != RVL_OK)
        tape->failed = true;
}

void rvli_tape_between(rvli_tape *tape)
{
    write_line(tape, RVLI_SCRIPT_BETWEEN);
    rvli_journal_add(&tape->journal, RVLI_JOURNAL_BETWEEN);
}

void rvli_tape_watch(rvli_tape *tape, rvli_moment *fullest)
{
    tape->fullest = fullest;
    rvli_script_line *line = write_line(tape, RVLI_SCRIPT_WATCH);
    if (line != NULL)
        line->of.fullest = fullest;
    note_fullest(tape);
    rvli_journal_add(&tape->journal, RVLI_JOURNAL_WATCH);
}
