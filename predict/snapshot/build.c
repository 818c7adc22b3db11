/* SPDX-License-Identifier: MIT */
/* Containers of the pickle machine: dicts that become rows, and everything else. */
#include <string.h>

#include "predict/snapshot/machine.h"

static rvli_table *table_of(rvli_pickle_machine *machine, rvli_table_name name)
{
    return &machine->tables[name];
}

static rvli_pickle_container *container_of(rvli_pickle_machine *machine,
                                           const rvli_pickle_value *value)
{
    rvli_pickle_container *containers = table_of(machine, RVLI_TABLE_CONTAINERS)->data;
    return &containers[value->integer];
}

rvl_status rvli_build_container(rvli_pickle_machine *machine, rvli_pickle_type type,
                                rvli_pickle_value *value_out)
{
    rvli_table *table = table_of(machine, RVLI_TABLE_CONTAINERS);
    rvl_status status = rvli_pickle_room(machine, table, 1);
    if (status != RVL_OK)
        return status;
    ((rvli_pickle_container *)table->data)[table->count] = (rvli_pickle_container){0};
    *value_out = (rvli_pickle_value){.type = (uint8_t)type, .integer = table->count++};
    return RVL_OK;
}

/* ---- Numbers for streams and pools ---- */

static rvl_status stream_index(rvli_pickle_machine *machine, uint64_t stream, uint32_t *index_out)
{
    rvli_table *table = table_of(machine, RVLI_TABLE_STREAMS);
    const uint64_t *streams = table->data;
    uint32_t i = 0;
    while (i < table->count && streams[i] != stream)
        i++;
    if (i == UINT16_MAX)
        return rvli_pickle_refuse(machine, "more than 65535 streams: not a snapshot");
    if (i == table->count) {
        rvl_status status = rvli_pickle_room(machine, table, 1);
        if (status != RVL_OK)
            return status;
        ((uint64_t *)table->data)[table->count++] = stream;
    }
    machine->last_stream_value = stream;
    *index_out = machine->last_stream = i;
    return RVL_OK;
}

static rvl_status pool_index(rvli_pickle_machine *machine, const rvli_pickle_value *tuple,
                             uint16_t *index_out)
{
    rvli_table *table = table_of(machine, RVLI_TABLE_POOLS);
    const rvli_pickle_value *items = table_of(machine, RVLI_TABLE_VALUES)->data;
    rvli_pool_id id;
    uint32_t i = 0;
    if (tuple->type != RVLI_PICKLE_TUPLE || tuple->length != 2 ||
        items[tuple->at].type != RVLI_PICKLE_INT || items[tuple->at + 1].type != RVLI_PICKLE_INT)
        return rvli_pickle_refuse(machine, "a pool's id is not a pair of integers");
    id.first = (int64_t)items[tuple->at].integer;
    id.second = (int64_t)items[tuple->at + 1].integer;
    const rvli_pool_id *pools = table->data;
    while (i < table->count && (pools[i].first != id.first || pools[i].second != id.second))
        i++;
    if (i == UINT16_MAX)
        return rvli_pickle_refuse(machine, "more than 65535 pools: not a snapshot");
    if (i == table->count) {
        rvl_status status = rvli_pickle_room(machine, table, 1);
        if (status != RVL_OK)
            return status;
        ((rvli_pool_id *)table->data)[table->count++] = id;
    }
    *index_out = (uint16_t)i;
    return RVL_OK;
}

/* ---- Dicts that are rows ---- */

static rvl_status unsigned_of(rvli_pickle_machine *machine, const rvli_pickle_value *value,
                              uint64_t *number_out)
{
    if (value->type != RVLI_PICKLE_INT || value->negative)
        return rvli_pickle_refuse(machine,
                                  "an address or a size is not an integer of 0 to 2^64 - 1");
    *number_out = value->integer;
    return RVL_OK;
}

static rvl_status time_of(rvli_pickle_machine *machine, const rvli_pickle_value *value,
                          int64_t *time_out)
{
    if (value->type != RVLI_PICKLE_INT)
        return rvli_pickle_refuse(machine, "time_us is not an integer");
    *time_out = (int64_t)value->integer;
    return RVL_OK;
}

rvl_status rvli_build_event_field(rvli_pickle_machine *machine, rvli_event_row *row, uint8_t word,
                                  const rvli_pickle_value *value)
{
    switch (word) {
    case RVLI_WORD_TRACE_ACTION:
        if (value->type != RVLI_PICKLE_TEXT)
            return rvli_pickle_refuse(machine, "an entry's action is not a string");
        if (value->word >= RVLI_WORD_ACTION_ALLOC && value->word <= RVLI_WORD_ACTION_USER_DEFINED)
            row->action = (uint8_t)(value->word - RVLI_WORD_ACTION_ALLOC + RVLI_ACTION_ALLOC);
        return RVL_OK;
    case RVLI_WORD_ADDR:
    case RVLI_WORD_DEVICE_FREE:
        return unsigned_of(machine, value, &row->addr);
    case RVLI_WORD_SIZE:
        return unsigned_of(machine, value, &row->size);
    case RVLI_WORD_TIME_US:
        return time_of(machine, value, &row->time_us);
    case RVLI_WORD_STREAM:
        if (value->type != RVLI_PICKLE_INT)
            return rvli_pickle_refuse(machine, "a stream is not an integer");
        return stream_index(machine, value->integer, &row->stream);
    case RVLI_WORD_POOL_ID:
        if (value->type == RVLI_PICKLE_NONE)
            return RVL_OK;
        row->has_pool = 1;
        return pool_index(machine, value, &row->pool);
    case RVLI_WORD_FRAMES:
        return rvli_build_stack(machine, value, &row->stack);
    case RVLI_WORD_CATEGORY:
    case RVLI_WORD_USER_METADATA:
        return rvli_build_label(machine, value, &row->label);
    default:
        return RVL_OK;
    }
}

/* Reads the action first. The other fields are read only for actions that the model follows. */
static rvl_status set_event(rvli_pickle_machine *machine, rvli_event_row *row,
                            const rvli_pickle_value *pairs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i += 2) {
        if (pairs[i].type == RVLI_PICKLE_TEXT && pairs[i].word == RVLI_WORD_TRACE_ACTION) {
            rvl_status status = rvli_build_event_field(machine, row, pairs[i].word, &pairs[i + 1]);
            if (status != RVL_OK)
                return status;
        }
    }
    bool needed = row->action != RVLI_ACTION_UNKNOWN && row->action != RVLI_ACTION_SNAPSHOT &&
                  row->action < RVLI_ACTION_ANNOTATE;
    for (uint32_t i = 0; needed && i < count; i += 2) {
        rvl_status status = RVL_OK;
        if (pairs[i].type == RVLI_PICKLE_TEXT)
            status = rvli_build_event_field(machine, row, pairs[i].word, &pairs[i + 1]);
        if (status != RVL_OK)
            return status;
    }
    return RVL_OK;
}

static rvl_status state_of(rvli_pickle_machine *machine, const rvli_pickle_value *value,
                           uint32_t *state_out)
{
    if (value->type != RVLI_PICKLE_TEXT)
        return rvli_pickle_refuse(machine, "a block's state is not a string");
    if (value->word >= RVLI_WORD_BLOCK_ACTIVE && value->word <= RVLI_WORD_BLOCK_INACTIVE)
        *state_out = (uint32_t)value->word - RVLI_WORD_BLOCK_ACTIVE + RVLI_BLOCK_ACTIVE;
    return RVL_OK;
}

static rvl_status set_block_field(rvli_pickle_machine *machine, rvli_block_row *row, uint8_t word,
                                  const rvli_pickle_value *value)
{
    switch (word) {
    case RVLI_WORD_ADDRESS:
        return unsigned_of(machine, value, &row->addr);
    case RVLI_WORD_SIZE:
        return unsigned_of(machine, value, &row->size);
    case RVLI_WORD_REQUESTED_SIZE:
        return unsigned_of(machine, value, &row->requested);
    case RVLI_WORD_STATE:
        return state_of(machine, value, &row->state);
    case RVLI_WORD_FRAMES:
        return rvli_build_stack(machine, value, &row->stack);
    case RVLI_WORD_CATEGORY:
    case RVLI_WORD_USER_METADATA:
        return rvli_build_label(machine, value, &row->label);
    default:
        return RVL_OK;
    }
}

static rvl_status set_block(rvli_pickle_machine *machine, rvli_block_row *row,
                            const rvli_pickle_value *pairs, uint32_t count)
{
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < count && status == RVL_OK; i += 2) {
        if (pairs[i].type == RVLI_PICKLE_TEXT)
            status = set_block_field(machine, row, pairs[i].word, &pairs[i + 1]);
    }
    return status;
}

static rvl_status set_annotation_field(rvli_pickle_machine *machine, rvli_annotation_row *row,
                                       uint8_t word, const rvli_pickle_value *value)
{
    switch (word) {
    case RVLI_WORD_TIME_US:
        return time_of(machine, value, &row->time_us);
    case RVLI_WORD_STAGE:
        if (value->type != RVLI_PICKLE_TEXT)
            return rvli_pickle_refuse(machine, "an annotation's stage is not a string");
        row->start = value->word == RVLI_WORD_START;
        return RVL_OK;
    case RVLI_WORD_NAME:
        if (value->type != RVLI_PICKLE_TEXT)
            return rvli_pickle_refuse(machine, "an annotation's name is not a string");
        row->name_at = value->at;
        row->name_length = value->length;
        return RVL_OK;
    case RVLI_WORD_DEVICE:
        if (value->type != RVLI_PICKLE_INT)
            return rvli_pickle_refuse(machine, "an annotation's device is not an integer");
        row->device = (int32_t)value->integer;
        return RVL_OK;
    default:
        return RVL_OK;
    }
}

static rvl_status set_annotation(rvli_pickle_machine *machine, rvli_annotation_row *row,
                                 const rvli_pickle_value *pairs, uint32_t count)
{
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < count && status == RVL_OK; i += 2) {
        if (pairs[i].type == RVLI_PICKLE_TEXT)
            status = set_annotation_field(machine, row, pairs[i].word, &pairs[i + 1]);
    }
    return status;
}

static bool has_key(const rvli_pickle_value *pairs, uint32_t count, rvli_word word)
{
    for (uint32_t i = 0; i < count; i += 2) {
        if (pairs[i].type == RVLI_PICKLE_TEXT && pairs[i].word == word)
            return true;
    }
    return false;
}

static rvli_pickle_kind kind_of(const rvli_pickle_value *pairs, uint32_t count)
{
    if (has_key(pairs, count, RVLI_WORD_TRACE_ACTION))
        return RVLI_KIND_EVENT;
    if (has_key(pairs, count, RVLI_WORD_STATE) && has_key(pairs, count, RVLI_WORD_SIZE))
        return RVLI_KIND_BLOCK;
    if (has_key(pairs, count, RVLI_WORD_STAGE) && has_key(pairs, count, RVLI_WORD_NAME))
        return RVLI_KIND_ANNOTATION;
    if (has_key(pairs, count, RVLI_WORD_FILENAME) && has_key(pairs, count, RVLI_WORD_LINE))
        return RVLI_KIND_FRAME;
    return RVLI_KIND_VALUES;
}

static const rvli_table_name row_tables[] = {
    [RVLI_KIND_EVENT] = RVLI_TABLE_EVENTS,
    [RVLI_KIND_BLOCK] = RVLI_TABLE_BLOCKS,
    [RVLI_KIND_ANNOTATION] = RVLI_TABLE_ANNOTATIONS,
};

static bool is_row(uint32_t kind)
{
    return kind == RVLI_KIND_EVENT || kind == RVLI_KIND_BLOCK || kind == RVLI_KIND_ANNOTATION;
}

static rvl_status set_row(rvli_pickle_machine *machine, const rvli_pickle_container *container,
                          const rvli_pickle_value *pairs, uint32_t count)
{
    void *rows = table_of(machine, row_tables[container->kind])->data;
    if (container->kind == RVLI_KIND_EVENT)
        return set_event(machine, (rvli_event_row *)rows + container->first, pairs, count);
    if (container->kind == RVLI_KIND_BLOCK)
        return set_block(machine, (rvli_block_row *)rows + container->first, pairs, count);
    return set_annotation(machine, (rvli_annotation_row *)rows + container->first, pairs, count);
}

static rvl_status new_row(rvli_pickle_machine *machine, rvli_pickle_container *container,
                          rvli_pickle_kind kind)
{
    rvli_table *table = table_of(machine, row_tables[kind]);
    rvl_status status = rvli_pickle_room(machine, table, 1);
    if (status != RVL_OK)
        return status;
    memset((char *)table->data + (size_t)table->count * table->element, 0, table->element);
    container->kind = (uint8_t)kind;
    container->first = table->count++;
    return RVL_OK;
}

/* ---- Everything else ---- */

/* Finds the last run of a container. Adds a run if `first` of this kind does not continue it. */
static rvl_status run_for(rvli_pickle_machine *machine, rvli_pickle_container *container,
                          uint32_t kind, uint32_t first, rvli_pickle_run **run_out)
{
    rvli_table *table = table_of(machine, RVLI_TABLE_RUNS);
    rvl_status status = rvli_pickle_room(machine, table, 1);
    if (status != RVL_OK)
        return status;
    rvli_pickle_run *runs = table->data;
    rvli_pickle_run *last = container->last > 0 ? &runs[container->last - 1] : NULL;
    if (last == NULL || last->kind != kind || last->first + last->count != first) {
        runs[table->count] = (rvli_pickle_run){.kind = kind, .first = first};
        if (last != NULL)
            last->next = table->count + 1;
        else
            container->first = table->count + 1;
        last = &runs[table->count++];
        container->last = table->count;
    }
    container->kind = RVLI_KIND_VALUES;
    *run_out = last;
    return RVL_OK;
}

static rvl_status store(rvli_pickle_machine *machine, const rvli_pickle_value *items,
                        uint32_t count, uint32_t *first_out)
{
    rvli_table *table = table_of(machine, RVLI_TABLE_VALUES);
    rvl_status status = rvli_pickle_room(machine, table, count);
    if (status != RVL_OK)
        return status;
    if (count > 0)
        memcpy((rvli_pickle_value *)table->data + table->count, items, count * sizeof *items);
    *first_out = table->count;
    table->count += count;
    return RVL_OK;
}

static rvl_status append_values(rvli_pickle_machine *machine, rvli_pickle_container *container,
                                const rvli_pickle_value *items, uint32_t count)
{
    rvli_pickle_run *run;
    uint32_t first;
    rvl_status status = store(machine, items, count, &first);
    if (status == RVL_OK)
        status = run_for(machine, container, RVLI_KIND_VALUES, first, &run);
    if (status == RVL_OK)
        run->count += count;
    return status;
}

static uint32_t kind_of_item(rvli_pickle_machine *machine, const rvli_pickle_value *item,
                             uint32_t *row_out)
{
    if (item->type == RVLI_PICKLE_EVENT) {
        *row_out = (uint32_t)item->integer;
        return RVLI_KIND_EVENT;
    }
    if (item->type != RVLI_PICKLE_DICT)
        return RVLI_KIND_VALUES;
    const rvli_pickle_container *container = container_of(machine, item);
    if (!is_row(container->kind) && container->kind != RVLI_KIND_FRAME)
        return RVLI_KIND_VALUES;
    *row_out = container->first;
    return container->kind;
}

/*
 * Returns how many of the first items belong together: consecutive rows, frames, or other values.
 */
static uint32_t alike(rvli_pickle_machine *machine, const rvli_pickle_value *items, uint32_t count,
                      uint32_t *kind_out, uint32_t *first_out)
{
    uint32_t i = 0;
    *kind_out = RVLI_KIND_VALUES;
    for (; i < count; i++) {
        uint32_t row = 0;
        uint32_t kind = kind_of_item(machine, &items[i], &row);
        if (i == 0) {
            *kind_out = kind;
            *first_out = row;
        }
        if (kind != *kind_out || (is_row(kind) && row != *first_out + i))
            break;
    }
    return i;
}

/* PyTorch lists the innermost frame first. */
static rvl_status append_frames(rvli_pickle_machine *machine, const rvli_pickle_value *list,
                                const rvli_pickle_value *items, uint32_t count)
{
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < count && status == RVL_OK; i++) {
        uint32_t *stack = &container_of(machine, list)->stack;
        status = rvli_build_caller(machine, stack, container_of(machine, &items[i])->first);
    }
    return status;
}

rvl_status rvli_build_append(rvli_pickle_machine *machine, const rvli_pickle_value *list,
                             const rvli_pickle_value *items, uint32_t count)
{
    rvl_status status = RVL_OK;
    rvli_pickle_run *run;
    if (list->type != RVLI_PICKLE_LIST)
        return rvli_pickle_refuse(machine, "items are appended to something that is not a list");
    rvli_pickle_container *container = container_of(machine, list);
    while (count > 0 && status == RVL_OK) {
        uint32_t kind, first = 0;
        uint32_t length = alike(machine, items, count, &kind, &first);
        if (kind == RVLI_KIND_VALUES) {
            status = append_values(machine, container, items, length);
        } else if (kind == RVLI_KIND_FRAME) {
            status = append_frames(machine, list, items, length);
        } else {
            status = run_for(machine, container, kind, first, &run);
            if (status == RVL_OK)
                run->count += length;
        }
        items += length;
        count -= length;
    }
    return status;
}

rvl_status rvli_build_set(rvli_pickle_machine *machine, const rvli_pickle_value *dict,
                          const rvli_pickle_value *pairs, uint32_t count)
{
    rvli_event_row *events = table_of(machine, RVLI_TABLE_EVENTS)->data;
    if (dict->type != RVLI_PICKLE_DICT && dict->type != RVLI_PICKLE_EVENT)
        return rvli_pickle_refuse(machine, "keys are set in something that is not a dict");
    if (count % 2 != 0)
        return rvli_pickle_refuse(machine, "a key of a dict has no value");
    if (dict->type == RVLI_PICKLE_EVENT)
        return set_event(machine, &events[dict->integer], pairs, count);
    rvli_pickle_container *container = container_of(machine, dict);
    if (container->kind == RVLI_KIND_EMPTY && count > 0) {
        rvli_pickle_kind kind = kind_of(pairs, count);
        rvl_status status = is_row(kind) ? new_row(machine, container, kind) : RVL_OK;
        if (status == RVL_OK && kind == RVLI_KIND_FRAME)
            status = rvli_build_frame(machine, pairs, count, &container->first);
        if (status != RVL_OK)
            return status;
        container->kind = (uint8_t)kind;
    }
    if (is_row(container->kind))
        return set_row(machine, container, pairs, count);
    if (container->kind == RVLI_KIND_FRAME || count == 0)
        return RVL_OK;
    return append_values(machine, container, pairs, count);
}

rvl_status rvli_build_tuple(rvli_pickle_machine *machine, const rvli_pickle_value *items,
                            uint32_t count, rvli_pickle_value *value_out)
{
    uint32_t first;
    rvl_status status = store(machine, items, count, &first);
    if (status == RVL_OK)
        *value_out = (rvli_pickle_value){.type = RVLI_PICKLE_TUPLE, .length = count, .at = first};
    return status;
}
