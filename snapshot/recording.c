/* SPDX-License-Identifier: MIT */
/* From the objects of a pickle to the recording of a device. */
#include "snapshot/recording.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static rvl_status refuse(rvli_text *message, const char *cause)
{
    rvli_text_add(message, cause);
    return RVL_ERR_CORRUPT_TRACE;
}

/* ---- Rows of a list ---- */

typedef struct row_kind {
    rvli_pickle_kind kind;
    size_t bytes;
    const void *table;
} row_kind;

static uint64_t length_of(const rvli_pickle *pickle, const rvli_pickle_value *list)
{
    uint64_t count = 0;
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, list);
    for (; run != NULL; run = rvli_pickle_next_run(pickle, run))
        count += run->count;
    return count;
}

/* Copies the rows of a run; those of other kinds are left out. Returns how many it copied. */
static uint32_t copy_run(const rvli_pickle *pickle, const rvli_pickle_run *run, row_kind rows,
                         char *to)
{
    const char *from = rows.table;
    uint32_t copied = 0;
    if (run->kind == (uint32_t)rows.kind) {
        memcpy(to, from + (size_t)run->first * rows.bytes, run->count * rows.bytes);
        return run->count;
    }
    if (run->kind != RVLI_KIND_VALUES)
        return 0;
    for (uint32_t i = 0; i < run->count; i++) {
        const rvli_pickle_value *value = &pickle->values[run->first + i];
        if (value->type != RVLI_PICKLE_DICT)
            continue;
        const rvli_pickle_container *item = &pickle->containers[value->integer];
        if (item->kind == (uint32_t)rows.kind)
            memcpy(to + copied++ * rows.bytes, from + (size_t)item->first * rows.bytes, rows.bytes);
    }
    return copied;
}

/* Adds the rows of a list to an array. */
static rvl_status gather(const rvli_pickle *pickle, const rvli_pickle_value *list, row_kind rows,
                         void **array, uint32_t *count)
{
    uint64_t more = length_of(pickle, list);
    if (more == 0)
        return RVL_OK;
    if (more + *count > UINT32_MAX)
        return RVL_ERR_HOST_OOM;
    char *grown = realloc(*array, (*count + more) * rows.bytes);
    if (grown == NULL)
        return RVL_ERR_HOST_OOM;
    *array = grown;
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, list);
    for (; run != NULL; run = rvli_pickle_next_run(pickle, run))
        *count += copy_run(pickle, run, rows, grown + *count * rows.bytes);
    return RVL_OK;
}

/* ---- The trace ---- */

static rvl_status take_events(rvli_recording *recording, const rvli_pickle_value *list)
{
    const rvli_pickle *pickle = &recording->pickle;
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, list);
    void *array = NULL;
    if (run != NULL && run->next == 0 && run->kind == RVLI_KIND_EVENT) {
        recording->events = pickle->events + run->first;
        recording->event_count = run->count;
        return RVL_OK;
    }
    row_kind rows = {RVLI_KIND_EVENT, sizeof(rvli_event_row), pickle->events};
    rvl_status status = gather(pickle, list, rows, &array, &recording->event_count);
    recording->own_events = array;
    recording->events = array;
    return status;
}

/* The list of a device; NULL: none. A device below 0 becomes the first that has entries. */
static const rvli_pickle_value *trace_of(const rvli_pickle *pickle, const rvli_pickle_value *traces,
                                         int *device)
{
    int index = 0;
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, traces);
    for (; run != NULL; run = rvli_pickle_next_run(pickle, run)) {
        for (uint32_t i = 0; run->kind == RVLI_KIND_VALUES && i < run->count; i++, index++) {
            const rvli_pickle_value *list = &pickle->values[run->first + i];
            if (*device >= 0 ? index == *device : length_of(pickle, list) > 0) {
                *device = index;
                return list;
            }
        }
    }
    return NULL;
}

static uint32_t traced_devices(const rvli_pickle *pickle, const rvli_pickle_value *traces)
{
    uint32_t count = 0;
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, traces);
    for (; run != NULL; run = rvli_pickle_next_run(pickle, run)) {
        for (uint32_t i = 0; run->kind == RVLI_KIND_VALUES && i < run->count; i++)
            count += length_of(pickle, &pickle->values[run->first + i]) > 0 ? 1 : 0;
    }
    return count;
}

static rvl_status read_trace(rvli_recording *recording, rvli_text *message)
{
    const rvli_pickle *pickle = &recording->pickle;
    const rvli_pickle_value *traces =
        rvli_pickle_get(pickle, &pickle->root, RVLI_WORD_DEVICE_TRACES);
    if (traces == NULL)
        return refuse(message, "no device_traces in it: not a snapshot of "
                               "torch.cuda.memory._dump_snapshot()");
    if (traces->type != RVLI_PICKLE_LIST)
        return refuse(message, "device_traces is no list: dump it as "
                               "torch.cuda.memory._dump_snapshot() wrote it");
    bool asked = recording->device >= 0;
    recording->other_devices = !asked && traced_devices(pickle, traces) > 1;
    const rvli_pickle_value *list = trace_of(pickle, traces, &recording->device);
    if (list != NULL && length_of(pickle, list) > 0)
        return take_events(recording, list);
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

static bool truth_of(const rvli_pickle_value *value)
{
    return value != NULL && value->type == RVLI_PICKLE_BOOL && value->integer != 0;
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
    if (tuple == NULL || tuple->type != RVLI_PICKLE_TUPLE || tuple->length != 2)
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

static rvl_status take_blocks(rvli_recording *recording, const rvli_pickle_value *dict,
                              rvli_segment_row *segment)
{
    const rvli_pickle *pickle = &recording->pickle;
    row_kind rows = {RVLI_KIND_BLOCK, sizeof(rvli_block_row), pickle->blocks};
    void *array = recording->blocks;
    segment->first = recording->block_count;
    rvl_status status = gather(pickle, rvli_pickle_get(pickle, dict, RVLI_WORD_BLOCKS), rows,
                               &array, &recording->block_count);
    recording->blocks = array;
    segment->count = recording->block_count - segment->first;
    uint64_t addr = segment->addr;
    for (uint32_t i = segment->first; i < recording->block_count; i++) {
        if (recording->blocks[i].addr == 0)
            recording->blocks[i].addr = addr;
        addr = recording->blocks[i].addr + recording->blocks[i].size;
    }
    return status;
}

static rvl_status take_segment(rvli_recording *recording, const rvli_pickle_value *dict)
{
    rvli_pickle *pickle = &recording->pickle;
    const rvli_pickle_value *type = rvli_pickle_get(pickle, dict, RVLI_WORD_SEGMENT_TYPE);
    rvli_segment_row segment = {
        .addr = number_of(rvli_pickle_get(pickle, dict, RVLI_WORD_ADDRESS)),
        .size = number_of(rvli_pickle_get(pickle, dict, RVLI_WORD_TOTAL_SIZE)),
        .small = type != NULL && type->type == RVLI_PICKLE_TEXT && type->word == RVLI_WORD_SMALL,
        .expandable = truth_of(rvli_pickle_get(pickle, dict, RVLI_WORD_IS_EXPANDABLE)),
    };
    if (segment.addr == 0 || segment.size == 0 ||
        number_of(rvli_pickle_get(pickle, dict, RVLI_WORD_DEVICE)) != (uint64_t)recording->device)
        return RVL_OK;
    rvl_status status = stream_index(
        pickle, number_of(rvli_pickle_get(pickle, dict, RVLI_WORD_STREAM)), &segment.stream);
    if (status == RVL_OK)
        status = pool_index(pickle, rvli_pickle_get(pickle, dict, RVLI_WORD_SEGMENT_POOL_ID),
                            &segment.pool);
    if (status == RVL_OK)
        status = take_blocks(recording, dict, &segment);
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

static rvl_status read_segments(rvli_recording *recording)
{
    const rvli_pickle *pickle = &recording->pickle;
    const rvli_pickle_value *list = rvli_pickle_get(pickle, &pickle->root, RVLI_WORD_SEGMENTS_LIST);
    uint64_t count = length_of(pickle, list);
    rvl_status status = RVL_OK;
    if (count == 0)
        return RVL_OK;
    recording->segments = calloc(count, sizeof *recording->segments);
    if (recording->segments == NULL)
        return RVL_ERR_HOST_OOM;
    const rvli_pickle_run *run = rvli_pickle_first_run(pickle, list);
    for (; run != NULL && status == RVL_OK; run = rvli_pickle_next_run(pickle, run)) {
        for (uint32_t i = 0; run->kind == RVLI_KIND_VALUES && i < run->count && status == RVL_OK;
             i++)
            status = take_segment(recording, &pickle->values[run->first + i]);
    }
    if (recording->segment_count > 0)
        qsort(recording->segments, recording->segment_count, sizeof *recording->segments,
              by_address);
    return status;
}

/* The first final segment that ends behind an address. */
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

/* What lay at a segment's addresses until one was given back there was another, of any pool. */
static void find_since(rvli_recording *recording)
{
    bool any = false; /* private pool */
    for (uint32_t i = 0; i < recording->segment_count; i++)
        any = any || recording->segments[i].pool > 0;
    for (uint32_t i = 0; any && i < recording->event_count; i++) {
        const rvli_event_row *event = &recording->events[i];
        if (event->action != RVLI_ACTION_SEGMENT_FREE)
            continue;
        for (uint32_t at = first_behind(recording, event->addr);
             at < recording->segment_count &&
             recording->segments[at].addr < event->addr + event->size;
             at++)
            recording->segments[at].since = i + 1;
    }
}

/* ---- Annotations ---- */

static int by_time(const void *a, const void *b)
{
    int64_t left = ((const rvli_annotation_row *)a)->time_us;
    int64_t right = ((const rvli_annotation_row *)b)->time_us;
    if (left != right)
        return left < right ? -1 : 1;
    /* What begins in the microsecond in which another ends comes behind it. */
    return (int)((const rvli_annotation_row *)a)->start -
           (int)((const rvli_annotation_row *)b)->start;
}

static rvl_status read_annotations(rvli_recording *recording)
{
    const rvli_pickle *pickle = &recording->pickle;
    row_kind rows = {RVLI_KIND_ANNOTATION, sizeof(rvli_annotation_row), pickle->annotations};
    void *array = NULL;
    rvl_status status =
        gather(pickle, rvli_pickle_get(pickle, &pickle->root, RVLI_WORD_EXTERNAL_ANNOTATIONS), rows,
               &array, &recording->annotation_count);
    recording->annotations = array;
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

/* false: this is none of the model's buckets, or no number. */
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

/* Divisions by the bucket's MiB, or in the order of buckets. */
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
    if (text != NULL && text->type == RVLI_PICKLE_TEXT &&
        !rvli_settings_set_all(&recording->settings,
                               (const char *)recording->pickle.data + text->at, text->length))
        recording->settings_unknown = true;
}

/* The keys of their own say what was in force; the words are only asked for what has no key. */
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
    const rvli_pickle_value *value = rvli_pickle_get(pickle, dict, RVLI_WORD_MAX_SPLIT_SIZE);
    if (value != NULL && value->type == RVLI_PICKLE_INT)
        settings->max_split_bytes =
            value->negative || value->integer == 0 ? UINT64_MAX : value->integer;
    value = rvli_pickle_get(pickle, dict, RVLI_WORD_GC_THRESHOLD);
    if (value != NULL && value->type == RVLI_PICKLE_FLOAT)
        settings->gc_threshold = value->real > 0 && value->real < 1 ? value->real : 0;
    value = rvli_pickle_get(pickle, dict, RVLI_WORD_EXPANDABLE_SEGMENTS);
    if (value != NULL && value->type == RVLI_PICKLE_BOOL)
        settings->expandable = truth_of(value);
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
        status = read_segments(&recording);
    if (status == RVL_OK)
        status = read_annotations(&recording);
    if (status != RVL_OK) {
        if (status == RVL_ERR_HOST_OOM)
            rvli_text_add(&text, "out of host memory");
        rvli_recording_close(&recording);
        return status;
    }
    read_settings(&recording);
    find_since(&recording);
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
