/* SPDX-License-Identifier: MIT */
/*
 * Tensors as JSON, in columns: a million of them take some megabytes.
 *
 * A column is the numbers of one field as varints (seven bits in each byte, the lowest first) in
 * base64. If neighbours are close, it has their differences, with the sign in the lowest bit. Only
 * stacks that are used are written, from the outermost frame inwards, so that stacks share their
 * common part: most share their callers.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/intmap.h"
#include "base/shown.h"
#include "predict/snapshot/tensors.h"

#define SCHEMA 1
/* Addresses are in units of this many bytes, or of fewer if an address requires it. */
#define UNIT_MAX 512u
/*
 * Upper bound for calls, more than any run has. Beyond this, only the outermost frames of stacks
 * are written.
 */
#define CALLS_MAX (UINT32_C(1) << 21)

/* ---- Columns ---- */

typedef struct column {
    FILE *out;
    uint32_t bits; /* of the group that is not yet full */
    unsigned bytes;
    uint64_t last;
} column;

static void write_group(column *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[4] = "====";
    uint32_t bits = to->bits << (8 * (3 - to->bytes));
    for (unsigned i = 0; i <= to->bytes; i++)
        text[i] = digits[bits >> (18 - 6 * i) & 63];
    fwrite(text, 1, sizeof text, to->out);
    to->bits = to->bytes = 0;
}

static void put_byte(column *to, unsigned char byte)
{
    to->bits = to->bits << 8 | byte;
    if (++to->bytes == 3)
        write_group(to);
}

static void put(column *to, uint64_t number)
{
    for (; number > 127; number >>= 7)
        put_byte(to, (unsigned char)(number | 128));
    put_byte(to, (unsigned char)number);
}

/* Writes the difference to the last number. */
static void put_next(column *to, uint64_t number)
{
    uint64_t more = number - to->last;
    put(to, more << 1 ^ (more >> 63 != 0 ? UINT64_MAX : 0));
    to->last = number;
}

static column begin_column(FILE *out, const char *name)
{
    fprintf(out, ",\n\"%s\":\"", name);
    return (column){.out = out};
}

static void end_column(column *to)
{
    if (to->bytes > 0)
        write_group(to);
    putc('"', to->out);
}

/* Writes one column of a table: its name, and a statement that puts the number of a row. */
#define WRITE_COLUMN(out, name, count, row, statement)                                             \
    do {                                                                                           \
        column to = begin_column(out, name);                                                       \
        for (uint32_t row = 0; row < (count); row++) {                                             \
            statement;                                                                             \
        }                                                                                          \
        end_column(&to);                                                                           \
    } while (0)

/* Returns the instant relative to begin, + 1; 0 stands for never. */
static uint64_t since(uint32_t instant, uint32_t begin)
{
    return instant != RVLI_NEVER && instant >= begin ? (uint64_t)(instant - begin) + 1 : 0;
}

/* ---- Stacks, from the outermost frame inwards ---- */

typedef struct call {
    uint32_t caller; /* call + 1; 0: the outermost */
    uint32_t frame;
} call;

typedef struct calls {
    call *list;
    uint32_t count, capacity;
    uint32_t *of_stack; /* by stack of the recording: its innermost call + 1; 0: not used yet */
    rvli_intmap numbers;
} calls;

static rvl_status enter(calls *to, uint32_t frame, uint32_t *caller)
{
    uint64_t key = ((uint64_t)*caller << 32 | frame) + 1, number = to->count;
    if (!rvli_intmap_get(&to->numbers, key, &number)) {
        if (to->count == CALLS_MAX)
            return RVL_OK;
        if (!RVLI_ROOM(to->list, to->count, to->capacity, 256))
            return RVL_ERR_HOST_OOM;
        rvl_status status = rvli_intmap_insert(&to->numbers, key, number);
        if (status != RVL_OK)
            return status;
        to->list[to->count++] = (call){*caller, frame};
    }
    *caller = (uint32_t)number + 1;
    return RVL_OK;
}

static rvl_status use_stack(calls *to, const rvli_pickle *pickle, uint32_t stack)
{
    rvl_status status = RVL_OK;
    uint32_t innermost = 0;
    if (stack == 0 || to->of_stack[stack - 1] != 0)
        return RVL_OK;
    for (uint32_t i = stack; i > 0 && status == RVL_OK; i = pickle->stacks[i - 1].inner)
        status = enter(to, pickle->stacks[i - 1].frame, &innermost);
    to->of_stack[stack - 1] = innermost;
    return status;
}

static rvl_status use_stacks(calls *to, const rvli_pickle *pickle, const rvli_tensors *tensors)
{
    rvl_status status = RVL_OK;
    to->of_stack = calloc(pickle->stack_count + (size_t)1, sizeof *to->of_stack);
    if (to->of_stack == NULL)
        return RVL_ERR_HOST_OOM;
    for (uint32_t i = 0; i < tensors->count && status == RVL_OK; i++)
        status = use_stack(to, pickle, tensors->list[i].stack);
    return status;
}

static uint32_t call_of(const calls *from, uint32_t stack)
{
    return stack > 0 ? from->of_stack[stack - 1] : 0;
}

/* ---- Tables ---- */

static uint64_t unit_of(const rvli_tensors *tensors)
{
    uint64_t all = UNIT_MAX;
    for (uint32_t i = 0; i < tensors->count; i++)
        all |= tensors->list[i].addr;
    for (uint32_t i = 0; i < tensors->mapped_count; i++)
        all |= tensors->mapped[i].addr;
    return all & (~all + 1); /* its lowest bit */
}

static void write_tensors(FILE *out, const rvli_tensors *tensors, const calls *stacks,
                          uint64_t unit)
{
    const rvli_snapshot_tensor *list = tensors->list;
    uint32_t count = tensors->count;
    WRITE_COLUMN(out, "addr", count, i, put_next(&to, list[i].addr / unit));
    WRITE_COLUMN(out, "bytes", count, i, put(&to, list[i].size));
    WRITE_COLUMN(out, "begin", count, i, put_next(&to, list[i].begin));
    WRITE_COLUMN(out, "end", count, i, put(&to, since(list[i].end, list[i].begin)));
    WRITE_COLUMN(out, "done", count, i, put(&to, since(list[i].done, list[i].end)));
    WRITE_COLUMN(out, "call", count, i, put(&to, call_of(stacks, list[i].stack)));
    WRITE_COLUMN(out, "label", count, i, put(&to, list[i].label));
}

static void write_mapped(FILE *out, const rvli_tensors *tensors, uint64_t unit)
{
    const rvli_mapped *list = tensors->mapped;
    uint32_t count = tensors->mapped_count;
    WRITE_COLUMN(out, "segment_addr", count, i, put_next(&to, list[i].addr / unit));
    WRITE_COLUMN(out, "segment_bytes", count, i, put(&to, list[i].size));
    WRITE_COLUMN(out, "segment_begin", count, i, put(&to, list[i].begin));
    WRITE_COLUMN(out, "segment_end", count, i, put(&to, since(list[i].end, list[i].begin)));
    WRITE_COLUMN(out, "segment_expandable", count, i, put(&to, list[i].expandable));
}

/* "" is the first text, so that it has number 0. */
static rvl_status write_texts(FILE *out, const rvli_pickle *pickle)
{
    fputs(",\n\"texts\":[\"\"", out);
    for (uint32_t i = 0; i < pickle->text_count; i++) {
        const rvli_text_row *row = &pickle->texts[i];
        char *text = strndup((const char *)pickle->data + row->at, row->length);
        size_t size = text != NULL ? rvli_shown(RVLI_SHOWN_JSON, text, NULL, 0) + 1 : 0;
        char *shown = text != NULL ? malloc(size) : NULL;
        if (shown != NULL) {
            rvli_shown(RVLI_SHOWN_JSON, text, shown, size);
            fprintf(out, ",\"%s\"", shown);
        }
        free(text);
        free(shown);
        if (size == 0 || shown == NULL)
            return RVL_ERR_HOST_OOM;
    }
    putc(']', out);
    return RVL_OK;
}

static rvl_status write_all(const rvli_recording *recording, const rvli_tensors *tensors,
                            const calls *stacks, int64_t origin_us, FILE *out)
{
    const rvli_pickle *pickle = &recording->pickle;
    uint64_t unit = unit_of(tensors);
    fprintf(out,
            "{\"schema\":%d,\"origin_us\":%" PRId64 ",\"device\":%d,\"unit_bytes\":%" PRIu64
            ",\"entries\":%" PRIu32 ",\"tensors\":%" PRIu32 ",\"segments\":%" PRIu32
            ",\"frames\":%" PRIu32 ",\"calls\":%" PRIu32,
            SCHEMA, origin_us, recording->device, unit, recording->event_count, tensors->count,
            tensors->mapped_count, pickle->frame_count, stacks->count);
    column times = begin_column(out, "time_us");
    times.last = (uint64_t)origin_us;
    for (uint32_t i = 0; i < recording->event_count; i++)
        put_next(&times, (uint64_t)recording->events[i].time_us);
    end_column(&times);
    write_tensors(out, tensors, stacks, unit);
    write_mapped(out, tensors, unit);
    WRITE_COLUMN(out, "call_caller", stacks->count, i, put(&to, i + 1 - stacks->list[i].caller));
    WRITE_COLUMN(out, "call_frame", stacks->count, i, put(&to, stacks->list[i].frame));
    WRITE_COLUMN(out, "frame_file", pickle->frame_count, i, put(&to, pickle->frames[i].file));
    WRITE_COLUMN(out, "frame_name", pickle->frame_count, i, put(&to, pickle->frames[i].name));
    WRITE_COLUMN(out, "frame_line", pickle->frame_count, i, put(&to, pickle->frames[i].line));
    rvl_status status = write_texts(out, pickle);
    putc('}', out);
    return status;
}

rvl_status rvli_tensors_write(const rvli_recording *recording, const rvli_tensors *tensors,
                              int64_t origin_us, FILE *out)
{
    calls stacks = {0};
    rvl_status status = use_stacks(&stacks, &recording->pickle, tensors);
    if (status == RVL_OK)
        status = write_all(recording, tensors, &stacks, origin_us, out);
    free(stacks.list);
    free(stacks.of_stack);
    rvli_intmap_destroy(&stacks.numbers);
    return status;
}
