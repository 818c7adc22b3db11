/* SPDX-License-Identifier: MIT */
/* Builds the recording of a device from the objects of a pickle. */
#include "predict/snapshot/recording.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "reveille/trace.h"

static rvl_status refuse(rvli_text *message, const char *cause)
{
    rvli_text_add(message, cause);
    return RVL_ERR_CORRUPT_TRACE;
}

/* Refuses an item of a named list: "device_traces[0][17]: a list, where an entry is expected". */
static rvl_status refuse_item(rvli_text *message, const char *list, uint64_t index,
                              const char *found, const char *expected)
{
    rvli_text_add(message, list);
    rvli_text_add(message, "[");
    rvli_text_add_u64(message, index);
    rvli_text_add(message, "]: ");
    rvli_text_add(message, found);
    rvli_text_add(message, ", where ");
    rvli_text_add(message, expected);
    return refuse(message, " is expected: not as torch.cuda.memory._dump_snapshot() writes it");
}

static const char *name_of_kind(uint32_t kind)
{
    static const char *const names[] = {
        [RVLI_KIND_EMPTY] = "an empty dict",       [RVLI_KIND_VALUES] = "a dict of other keys",
        [RVLI_KIND_EVENT] = "an entry of a trace", [RVLI_KIND_BLOCK] = "a block",
        [RVLI_KIND_ANNOTATION] = "an annotation",  [RVLI_KIND_FRAME] = "a stack frame",
    };
    return names[kind];
}

static const char *name_of_value(const rvli_pickle *pickle, const rvli_pickle_value *value)
{
    static const char *const names[] = {
        [RVLI_PICKLE_NONE] = "None",      [RVLI_PICKLE_BOOL] = "a bool",
        [RVLI_PICKLE_INT] = "an integer", [RVLI_PICKLE_BIG] = "an integer",
        [RVLI_PICKLE_FLOAT] = "a float",  [RVLI_PICKLE_TEXT] = "a string",
        [RVLI_PICKLE_BYTES] = "bytes",    [RVLI_PICKLE_TUPLE] = "a tuple",
        [RVLI_PICKLE_LIST] = "a list",    [RVLI_PICKLE_EVENT] = "an entry of a trace",
    };
    return value->type == RVLI_PICKLE_DICT ? name_of_kind(pickle->containers[value->integer].kind)
                                           : names[value->type];
}

/* ---- Lists ---- */

static uint64_t length_of(const rvli_pickle *pickle, const rvli_pickle_value *list)
{
    uint64_t count = 0;
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, list);
    for (; run != NULL; run = rvli_pickle_next_run(pickle, run))
        count += run->count;
    return count;
}

/* Marks a container as read. false: it was read before, through another reference. */
static bool take(rvli_pickle *pickle, const rvli_pickle_value *value)
{
    rvli_pickle_container *container = &pickle->containers[value->integer];
    bool first = !container->taken;
    container->taken = true;
    return first;
}

/* Checks a list of items that are not rows. NULL is an empty list. */
static rvl_status check_list(const rvli_pickle *pickle, const rvli_pickle_value *list,
                             const char *name, const char *expected, rvli_text *message)
{
    uint64_t index = 0;
    if (list != NULL && list->type != RVLI_PICKLE_LIST) {
        rvli_text_add(message, name);
        rvli_text_add(message, " is not a list: dump it as ");
        return refuse(message, "torch.cuda.memory._dump_snapshot() wrote it");
    }
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, list);
    for (; run != NULL && run->kind == RVLI_KIND_VALUES; run = rvli_pickle_next_run(pickle, run))
        index += run->count;
    if (run != NULL)
        return refuse_item(message, name, index, name_of_kind(run->kind), expected);
    if (list != NULL && pickle->containers[list->integer].stack != 0)
        return refuse_item(message, name, index, name_of_kind(RVLI_KIND_FRAME), expected);
    return RVL_OK;
}

/* ---- Lists of rows ---- */

typedef struct row_kind {
    rvli_pickle_kind kind;
    size_t bytes;
    const void *table;
} row_kind;

typedef struct row_array {
    char *rows;
    uint32_t count;
} row_array;

/* Returns the row of an item outside a run of rows; NULL: the item is not a row. */
static const void *row_of(const rvli_pickle *pickle, const rvli_pickle_value *value, row_kind rows)
{
    const char *table = rows.table;
    if (value->type == RVLI_PICKLE_EVENT && rows.kind == RVLI_KIND_EVENT)
        return table + value->integer * rows.bytes;
    if (value->type != RVLI_PICKLE_DICT)
        return NULL;
    const rvli_pickle_container *item = &pickle->containers[value->integer];
    return item->kind == rows.kind ? table + (size_t)item->first * rows.bytes : NULL;
}

/*
 * Copies the rows of a run. Stops before the first item that is not a row. Returns the number of
 * rows copied.
 */
static uint32_t copy_run(const rvli_pickle *pickle, const rvli_pickle_run *run, row_kind rows,
                         char *to)
{
    const char *from = rows.table;
    uint32_t copied = 0;
    if (run->kind == (uint32_t)rows.kind) {
        memcpy(to, from + (size_t)run->first * rows.bytes, run->count * rows.bytes);
        return run->count;
    }
    for (; run->kind == RVLI_KIND_VALUES && copied < run->count; copied++) {
        const void *row = row_of(pickle, &pickle->values[run->first + copied], rows);
        if (row == NULL)
            break;
        memcpy(to + copied * rows.bytes, row, rows.bytes);
    }
    return copied;
}

/* Adds the rows of a list to an array. name: the list's name, for a refusal. */
static rvl_status gather(const rvli_pickle *pickle, const rvli_pickle_value *list, row_kind rows,
                         const char *name, row_array *array, rvli_text *message)
{
    uint64_t more = length_of(pickle, list), index = 0;
    if (list != NULL && list->type != RVLI_PICKLE_LIST)
        return check_list(pickle, list, name, "", message);
    if (list != NULL && pickle->containers[list->integer].stack != 0)
        return refuse_item(message, name, more, name_of_kind(RVLI_KIND_FRAME),
                           name_of_kind(rows.kind));
    if (more == 0)
        return RVL_OK;
    if (more + array->count > UINT32_MAX)
        return RVL_ERR_HOST_OOM;
    char *grown = realloc(array->rows, (array->count + more) * rows.bytes);
    if (grown == NULL)
        return RVL_ERR_HOST_OOM;
    array->rows = grown;
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, list);
    for (; run != NULL; run = rvli_pickle_next_run(pickle, run)) {
        uint32_t copied = copy_run(pickle, run, rows, grown + array->count * rows.bytes);
        array->count += copied;
        index += copied;
        if (copied < run->count)
            return refuse_item(message, name, index,
                               run->kind == RVLI_KIND_VALUES
                                   ? name_of_value(pickle, &pickle->values[run->first + copied])
                                   : name_of_kind(run->kind),
                               name_of_kind(rows.kind));
    }
    return RVL_OK;
}

#define LIST_NAME_BYTES 64

/* "segments[3].blocks" */
static const char *name_list(const char *list, uint64_t index, const char *field,
                             char name[LIST_NAME_BYTES])
{
    rvli_text text = rvli_text_begin(name, LIST_NAME_BYTES);
    rvli_text_add(&text, list);
    rvli_text_add(&text, "[");
    rvli_text_add_u64(&text, index);
    rvli_text_add(&text, "]");
    rvli_text_add(&text, field);
    return name;
}

/* ---- The trace ---- */

static rvl_status take_events(rvli_recording *recording, const rvli_pickle_value *list,
                              rvli_text *message)
{
    const rvli_pickle *pickle = &recording->pickle;
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, list);
    bool with_frames = pickle->containers[list->integer].stack != 0;
    char name[LIST_NAME_BYTES];
    row_array array = {0};
    if (run != NULL && run->next == 0 && run->kind == RVLI_KIND_EVENT && !with_frames) {
        recording->events = pickle->events + run->first;
        recording->event_count = run->count;
        return RVL_OK;
    }
    row_kind rows = {RVLI_KIND_EVENT, sizeof(rvli_event_row), pickle->events};
    name_list("device_traces", (uint64_t)recording->device, "", name);
    rvl_status status = gather(pickle, list, rows, name, &array, message);
    recording->own_events = (void *)array.rows;
    recording->events = (void *)array.rows;
    recording->event_count = array.count;
    return status;
}

/* Reads the list of each device's entries, for at most RVL_MAX_DEVICES devices. */
static rvl_status read_devices(const rvli_pickle *pickle, const rvli_pickle_value *traces,
                               const rvli_pickle_value *lists[RVL_MAX_DEVICES], int *count_out,
                               rvli_text *message)
{
    int count = 0;
    rvl_status status = check_list(pickle, traces, "device_traces", "a list", message);
    if (status == RVL_OK && length_of(pickle, traces) > RVL_MAX_DEVICES)
        return refuse(message, "device_traces has more than 64 devices: no machine has");
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, traces);
    for (; run != NULL && status == RVL_OK; run = rvli_pickle_next_run(pickle, run)) {
        for (uint32_t i = 0; i < run->count; i++, count++) {
            lists[count] = &pickle->values[run->first + i];
            if (lists[count]->type != RVLI_PICKLE_LIST)
                return refuse_item(message, "device_traces", (uint64_t)count,
                                   name_of_value(pickle, lists[count]), "a list");
        }
    }
    *count_out = count;
    return status;
}

/* Reads the trace. A device below 0 is replaced by the first one that has entries. */
static rvl_status read_trace(rvli_recording *recording, rvli_text *message)
{
    const rvli_pickle *pickle = &recording->pickle;
    const rvli_pickle_value *lists[RVL_MAX_DEVICES];
    int count = 0, traced = 0, first = -1;
    bool asked = recording->device >= 0;
    const rvli_pickle_value *traces =
        rvli_pickle_get(pickle, &pickle->root, RVLI_WORD_DEVICE_TRACES);
    if (traces == NULL)
        return refuse(message, "no device_traces in it: not a snapshot of "
                               "torch.cuda.memory._dump_snapshot()");
    rvl_status status = read_devices(pickle, traces, lists, &count, message);
    if (status != RVL_OK)
        return status;
    for (int i = 0; i < count; i++) {
        if (rvli_pickle_is_empty(pickle, lists[i]))
            continue;
        traced++;
        if (first < 0)
            first = i;
    }
    recording->other_devices = !asked && traced > 1;
    if (!asked)
        recording->device = first;
    if (recording->device >= 0 && recording->device < count &&
        !rvli_pickle_is_empty(pickle, lists[recording->device]))
        return take_events(recording, lists[recording->device], message);
    refuse(message, asked ? "this device has no trace in it: leave --device out"
                          : "no trace in it: call torch.cuda.memory._record_memory_history() "
                            "before what is to be recorded");
    return asked ? RVL_ERR_NOT_FOUND : RVL_ERR_CORRUPT_TRACE;
}

/* ---- Segments ---- */

static uint64_t number_of(const rvli_pickle_value *value)
{
    return value != NULL && value->type == RVLI_PICKLE_INT ? value->integer : 0;
}

static rvl_status stream_index(rvli_pickle *pickle, uint64_t stream, uint32_t *index_out)
{
    uint32_t i = 0;
    while (i < pickle->stream_count && pickle->streams[i] != stream)
        i++;
    if (i == pickle->stream_count) {
        uint64_t *streams = realloc(pickle->streams, (i + 1u) * sizeof *streams);
        if (streams == NULL)
            return RVL_ERR_HOST_OOM;
        pickle->streams = streams;
        streams[pickle->stream_count++] = stream;
    }
    *index_out = i;
    return RVL_OK;
}

static rvl_status pool_index(rvli_pickle *pickle, const rvli_pickle_value *tuple,
                             uint32_t *index_out)
{
    uint32_t i = 0;
    *index_out = 0;
    if (tuple == NULL)
        return RVL_OK;
    rvli_pool_id id = {(int64_t)number_of(&pickle->values[tuple->at]),
                       (int64_t)number_of(&pickle->values[tuple->at + 1])};
    while (i < pickle->pool_count &&
           (pickle->pools[i].first != id.first || pickle->pools[i].second != id.second))
        i++;
    if (i == pickle->pool_count && i < UINT16_MAX) {
        rvli_pool_id *pools = realloc(pickle->pools, (i + 1u) * sizeof *pools);
        if (pools == NULL)
            return RVL_ERR_HOST_OOM;
        pickle->pools = pools;
        pools[pickle->pool_count++] = id;
    }
    *index_out = i < pickle->pool_count ? i : 0;
    return RVL_OK;
}

static rvl_status take_blocks(rvli_recording *recording, uint64_t index,
                              const rvli_pickle_value *list, rvli_segment_row *segment,
                              rvli_text *message)
{
    rvli_pickle *pickle = &recording->pickle;
    row_kind rows = {RVLI_KIND_BLOCK, sizeof(rvli_block_row), pickle->blocks};
    row_array array = {(char *)recording->blocks, recording->block_count};
    char name[LIST_NAME_BYTES];
    name_list("segments", index, ".blocks", name);
    if (list != NULL && list->type == RVLI_PICKLE_LIST && !rvli_pickle_is_empty(pickle, list) &&
        !take(pickle, list)) {
        rvli_text_add(message, name);
        return refuse(message, " is the list of another segment, too, which no allocator does");
    }
    segment->first = recording->block_count;
    rvl_status status = gather(pickle, list, rows, name, &array, message);
    recording->blocks = (void *)array.rows;
    recording->block_count = array.count;
    segment->count = recording->block_count - segment->first;
    uint64_t addr = segment->addr;
    for (uint32_t i = segment->first; i < recording->block_count; i++) {
        if (recording->blocks[i].addr == 0)
            recording->blocks[i].addr = addr;
        addr = recording->blocks[i].addr + recording->blocks[i].size;
    }
    return status;
}

/* X(member, KEY, type, name): the fields to read of a segment. Each may be missing. */
#define SEGMENT_FIELDS(X)                                                                          \
    X(address, ADDRESS, RVLI_PICKLE_INT, ".address")                                               \
    X(size, TOTAL_SIZE, RVLI_PICKLE_INT, ".total_size")                                            \
    X(device, DEVICE, RVLI_PICKLE_INT, ".device")                                                  \
    X(stream, STREAM, RVLI_PICKLE_INT, ".stream")                                                  \
    X(type, SEGMENT_TYPE, RVLI_PICKLE_TEXT, ".segment_type")                                       \
    X(pool, SEGMENT_POOL_ID, RVLI_PICKLE_TUPLE, ".segment_pool_id")                                \
    X(expandable, IS_EXPANDABLE, RVLI_PICKLE_BOOL, ".is_expandable")                               \
    X(blocks, BLOCKS, RVLI_PICKLE_LIST, ".blocks")

typedef struct segment_fields {
#define SEGMENT_FIELD(member, key, kind, name) const rvli_pickle_value *member;
    SEGMENT_FIELDS(SEGMENT_FIELD)
#undef SEGMENT_FIELD
} segment_fields;

/* Finds a field. *value_out is NULL if it is missing. false: it has another type. */
static bool find_field(const rvli_pickle *pickle, const rvli_pickle_value *dict, rvli_word key,
                       rvli_pickle_type type, const rvli_pickle_value **value_out)
{
    *value_out = rvli_pickle_get(pickle, dict, key);
    return *value_out == NULL || (*value_out)->type == (uint8_t)type;
}

static bool is_pair(const rvli_pickle *pickle, const rvli_pickle_value *tuple)
{
    return tuple->length == 2 && pickle->values[tuple->at].type == RVLI_PICKLE_INT &&
           pickle->values[tuple->at + 1].type == RVLI_PICKLE_INT;
}

/* Finds all fields. Refuses a field with another type than PyTorch gives it. */
static rvl_status find_fields(const rvli_pickle *pickle, const rvli_pickle_value *dict,
                              uint64_t index, segment_fields *fields, rvli_text *message)
{
    const char *odd = NULL;
    char name[LIST_NAME_BYTES];
#define SEGMENT_FIELD(member, key, kind, text)                                                     \
    if (!find_field(pickle, dict, RVLI_WORD_##key, kind, &fields->member))                         \
        odd = text;
    SEGMENT_FIELDS(SEGMENT_FIELD)
#undef SEGMENT_FIELD
    if (odd == NULL && fields->pool != NULL && !is_pair(pickle, fields->pool))
        odd = ".segment_pool_id";
    if (odd == NULL)
        return RVL_OK;
    rvli_text_add(message, name_list("segments", index, odd, name));
    return refuse(message, " is of another type than torch.cuda.memory._dump_snapshot() gives it");
}

static rvl_status take_segment(rvli_recording *recording, uint64_t index,
                               const rvli_pickle_value *dict, rvli_text *message)
{
    rvli_pickle *pickle = &recording->pickle;
    segment_fields fields;
    if (dict->type != RVLI_PICKLE_DICT ||
        pickle->containers[dict->integer].kind != RVLI_KIND_VALUES)
        return refuse_item(message, "segments", index, name_of_value(pickle, dict), "a segment");
    if (!take(pickle, dict))
        return refuse_item(message, "segments", index, "a segment that is in the list already",
                           "another one");
    rvl_status status = find_fields(pickle, dict, index, &fields, message);
    if (status != RVL_OK)
        return status;
    rvli_segment_row segment = {
        .addr = number_of(fields.address),
        .size = number_of(fields.size),
        .small = fields.type != NULL && fields.type->word == RVLI_WORD_SMALL,
        .expandable = fields.expandable != NULL && fields.expandable->integer != 0,
    };
    if (segment.addr == 0 || segment.size == 0 ||
        number_of(fields.device) != (uint64_t)recording->device)
        return RVL_OK;
    status = stream_index(pickle, number_of(fields.stream), &segment.stream);
    if (status == RVL_OK)
        status = pool_index(pickle, fields.pool, &segment.pool);
    if (status == RVL_OK)
        status = take_blocks(recording, index, fields.blocks, &segment, message);
    if (status == RVL_OK)
        recording->segments[recording->segment_count++] = segment;
    return status;
}

static int by_address(const void *a, const void *b)
{
    uint64_t left = ((const rvli_segment_row *)a)->addr;
    uint64_t right = ((const rvli_segment_row *)b)->addr;
    return (left > right) - (left < right);
}

static rvl_status read_segments(rvli_recording *recording, rvli_text *message)
{
    const rvli_pickle *pickle = &recording->pickle;
    const rvli_pickle_value *list = rvli_pickle_get(pickle, &pickle->root, RVLI_WORD_SEGMENTS_LIST);
    uint64_t count = length_of(pickle, list), index = 0;
    rvl_status status = check_list(pickle, list, "segments", "a segment", message);
    if (count == 0 || status != RVL_OK)
        return status;
    recording->segments = calloc(count, sizeof *recording->segments);
    if (recording->segments == NULL)
        return RVL_ERR_HOST_OOM;
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, list);
    for (; run != NULL && status == RVL_OK; run = rvli_pickle_next_run(pickle, run)) {
        for (uint32_t i = 0; i < run->count && status == RVL_OK; i++)
            status = take_segment(recording, index++, &pickle->values[run->first + i], message);
    }
    if (recording->segment_count > 0)
        qsort(recording->segments, recording->segment_count, sizeof *recording->segments,
              by_address);
    return status;
}

/* Returns the first final segment that ends behind an address. */
static uint32_t first_behind(const rvli_recording *recording, uint64_t addr)
{
    uint32_t low = 0, high = recording->segment_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (recording->segments[middle].addr + recording->segments[middle].size <= addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Returns the first final segment from `at` on that has no entry yet; segment_count: none. */
static uint32_t next_open(uint32_t *next, uint32_t at)
{
    uint32_t open = at;
    while (next[open] != open)
        open = next[open];
    while (next[at] != open) { /* shorten the path for the next search */
        uint32_t behind = next[at];
        next[at] = open;
        at = behind;
    }
    return open;
}

/*
 * Before the last segment_free at its addresses, a final segment was not there, but another one of
 * any pool. Goes from the last entry to the first, so the first entry found for a segment is the
 * one that counts, and later searches skip that segment.
 */
static rvl_status find_since(rvli_recording *recording)
{
    uint32_t count = recording->segment_count;
    bool any = false; /* private pool */
    for (uint32_t i = 0; i < count; i++)
        any = any || recording->segments[i].pool > 0;
    uint32_t *next = any ? malloc((count + (size_t)1) * sizeof *next) : NULL;
    if (next == NULL)
        return any ? RVL_ERR_HOST_OOM : RVL_OK;
    for (uint32_t i = 0; i <= count; i++)
        next[i] = i;
    for (uint32_t i = recording->event_count; i > 0; i--) {
        const rvli_event_row *event = &recording->events[i - 1];
        if (event->action != RVLI_ACTION_SEGMENT_FREE)
            continue;
        for (uint32_t at = next_open(next, first_behind(recording, event->addr));
             at < count && recording->segments[at].addr < event->addr + event->size;
             at = next_open(next, at)) {
            recording->segments[at].since = i;
            next[at] = at + 1;
        }
    }
    free(next);
    return RVL_OK;
}

/* ---- Annotations ---- */

static int by_time(const void *a, const void *b)
{
    int64_t left = ((const rvli_annotation_row *)a)->time_us;
    int64_t right = ((const rvli_annotation_row *)b)->time_us;
    if (left != right)
        return left < right ? -1 : 1;
    /* In one microsecond, ends come before starts. */
    return (int)((const rvli_annotation_row *)a)->start -
           (int)((const rvli_annotation_row *)b)->start;
}

static rvl_status read_annotations(rvli_recording *recording, rvli_text *message)
{
    const rvli_pickle *pickle = &recording->pickle;
    row_kind rows = {RVLI_KIND_ANNOTATION, sizeof(rvli_annotation_row), pickle->annotations};
    row_array array = {0};
    rvl_status status =
        gather(pickle, rvli_pickle_get(pickle, &pickle->root, RVLI_WORD_EXTERNAL_ANNOTATIONS), rows,
               "external_annotations", &array, message);
    recording->annotations = (void *)array.rows;
    recording->annotation_count = array.count;
    if (recording->annotation_count > 0)
        qsort(recording->annotations, recording->annotation_count, sizeof *recording->annotations,
              by_time);
    return status;
}

/* ---- Settings ---- */

static uint64_t mib_of(const rvli_pickle *pickle, const rvli_pickle_value *key)
{
    uint64_t mib = 0;
    if (key->type == RVLI_PICKLE_INT)
        return number_of(key);
    for (uint32_t at = 0; key->type == RVLI_PICKLE_TEXT && at < key->length; at++)
        mib = mib * 10 + (uint64_t)(pickle->data[key->at + at] - '0');
    return mib;
}

/* false: not a bucket of the model, or not a number. */
static bool set_bucket(rvli_recording *recording, uint64_t mib, const rvli_pickle_value *divisions)
{
    for (unsigned bucket = 0; bucket < RVLI_ROUNDUP_BUCKETS; bucket++) {
        if (mib != UINT64_C(1) << bucket || divisions->type != RVLI_PICKLE_INT)
            continue;
        uint64_t number = number_of(divisions);
        recording->settings.divisions[bucket] = number;
        return (number & (number - 1)) == 0;
    }
    return false;
}

/* Reads divisions, by the bucket's MiB or in the order of buckets. */
static bool read_divisions(rvli_recording *recording, const rvli_pickle_value *value)
{
    const rvli_pickle *pickle = &recording->pickle;
    const rvli_pickle_run *run = NULL;
    bool list = value->type == RVLI_PICKLE_LIST, all = true;
    uint32_t bucket = 0;
    if (list)
        run = rvli_pickle_first_run(pickle, value);
    else if (value->type == RVLI_PICKLE_DICT &&
             pickle->containers[value->integer].kind == RVLI_KIND_VALUES &&
             pickle->containers[value->integer].first > 0)
        run = &pickle->runs[pickle->containers[value->integer].first - 1];
    else
        return false;
    for (; run != NULL; run = rvli_pickle_next_run(pickle, run)) {
        const rvli_pickle_value *values = &pickle->values[run->first];
        if (run->kind != RVLI_KIND_VALUES)
            return false;
        for (uint32_t i = 0; list && i < run->count; i++, bucket++)
            all = bucket < RVLI_ROUNDUP_BUCKETS &&
                  set_bucket(recording, UINT64_C(1) << bucket, &values[i]) && all;
        for (uint32_t i = 0; !list && i + 1 < run->count; i += 2)
            all = set_bucket(recording, mib_of(pickle, &values[i]), &values[i + 1]) && all;
    }
    return all;
}

static void read_conf(rvli_recording *recording, const rvli_pickle_value *text)
{
    if (text == NULL || text->type == RVLI_PICKLE_NONE)
        return;
    if (text->type != RVLI_PICKLE_TEXT ||
        !rvli_settings_set_all(&recording->settings,
                               (const char *)recording->pickle.data + text->at, text->length))
        recording->settings_unknown = true;
}

/*
 * Settings with a key of their own show what was in force. The configuration string only supplies
 * those without a key.
 */
static void read_settings(rvli_recording *recording)
{
    const rvli_pickle *pickle = &recording->pickle;
    rvli_settings *settings = &recording->settings;
    const rvli_pickle_value *dict =
        rvli_pickle_get(pickle, &pickle->root, RVLI_WORD_ALLOCATOR_SETTINGS);
    rvli_settings_default(settings);
    recording->settings_missing = dict == NULL || dict->type != RVLI_PICKLE_DICT;
    read_conf(recording, rvli_pickle_get(pickle, dict, RVLI_WORD_ALLOC_CONF_ANY));
    read_conf(recording, rvli_pickle_get(pickle, dict, RVLI_WORD_ALLOC_CONF));
    const rvli_pickle_value *value;
    bool known = find_field(pickle, dict, RVLI_WORD_MAX_SPLIT_SIZE, RVLI_PICKLE_INT, &value);
    if (known && value != NULL)
        settings->max_split_bytes =
            value->negative || value->integer == 0 ? UINT64_MAX : value->integer;
    recording->settings_unknown |= !known;
    known = find_field(pickle, dict, RVLI_WORD_GC_THRESHOLD, RVLI_PICKLE_FLOAT, &value);
    if (known && value != NULL)
        settings->gc_threshold = value->real > 0 && value->real < 1 ? value->real : 0;
    recording->settings_unknown |= !known;
    known = find_field(pickle, dict, RVLI_WORD_EXPANDABLE_SEGMENTS, RVLI_PICKLE_BOOL, &value);
    if (known && value != NULL)
        settings->expandable = value->integer != 0;
    recording->settings_unknown |= !known;
    value = rvli_pickle_get(pickle, dict, RVLI_WORD_ROUNDUP_DIVISIONS);
    if (value != NULL && !read_divisions(recording, value))
        recording->settings_unknown = true;
}

/* ---- Opening ---- */

static rvl_status read_file(const char *path, rvli_recording *recording, rvli_text *message)
{
    const char *why = NULL;
    rvli_pickle_error error;
    rvl_status status = rvli_file_open(path, &recording->file, &why);
    if (status != RVL_OK) {
        rvli_text_add(message, why != NULL ? why : "");
        return status;
    }
    status =
        rvli_pickle_read(recording->file.data, recording->file.size, &recording->pickle, &error);
    if (status == RVL_ERR_CORRUPT_TRACE || status == RVL_ERR_VERSION) {
        rvli_text_add(message, "byte ");
        rvli_text_add_u64(message, error.at);
        rvli_text_add(message, ": ");
        rvli_text_add(message, error.message);
    }
    return status;
}

rvl_status rvli_recording_open(const char *path, int device, char *message, size_t message_size,
                               rvli_recording *recording_out)
{
    rvli_recording recording = {.device = device};
    rvli_text text = rvli_text_begin(message, message_size);
    rvl_status status = read_file(path, &recording, &text);
    if (status == RVL_OK)
        status = read_trace(&recording, &text);
    if (status == RVL_OK)
        status = read_segments(&recording, &text);
    if (status == RVL_OK)
        status = read_annotations(&recording, &text);
    if (status == RVL_OK)
        status = find_since(&recording);
    if (status != RVL_OK) {
        if (status == RVL_ERR_HOST_OOM)
            rvli_text_copy(message, message_size, "out of host memory");
        rvli_recording_close(&recording);
        return status;
    }
    read_settings(&recording);
    *recording_out = recording;
    return RVL_OK;
}

void rvli_recording_close(rvli_recording *recording)
{
    free(recording->own_events);
    free(recording->segments);
    free(recording->blocks);
    free(recording->annotations);
    rvli_pickle_destroy(&recording->pickle);
    rvli_file_close(&recording->file);
    *recording = (rvli_recording){0};
}
