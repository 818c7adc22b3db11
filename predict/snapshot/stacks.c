/* SPDX-License-Identifier: MIT */
/*
 * Stacks of the pickle machine, and labels of entries.
 *
 * Picklers write a stack once and refer to it, or write it again in every entry. Either way it is
 * stored once here. A text has a number. A frame has a number for its texts and its line. A stack
 * has a number for the stack inside it and the frame around that. So a list of frames becomes a
 * stack while it is appended to.
 */
#include <string.h>

#include "predict/snapshot/machine.h"

/* ---- Rows that are stored once ---- */

/*
 * This many different texts with one hash must be deliberate. Further ones are stored again each
 * time.
 */
#define COLLISIONS_MAX 16u

/* Whether a row of a table equals another row. */
typedef bool (*same_row)(const rvli_pickle_machine *machine, uint32_t number, const void *row);

static rvl_status add_row(rvli_pickle_machine *machine, rvli_table *table, const void *row,
                          uint32_t *number_out)
{
    rvl_status status = rvli_pickle_room(machine, table, 1);
    if (status != RVL_OK)
        return status;
    memcpy((char *)table->data + (size_t)table->count * table->element, row, table->element);
    *number_out = table->count++;
    return RVL_OK;
}

/*
 * Finds the number of a row, and adds the row if it is new. same NULL: the key alone identifies the
 * row.
 */
static rvl_status number_of(rvli_pickle_machine *machine, rvli_table_name name,
                            rvli_intmap *numbers, uint64_t key, const void *row, same_row same,
                            uint32_t *number_out)
{
    rvli_table *table = &machine->tables[name];
    uint64_t found;
    for (uint32_t i = 0; i < COLLISIONS_MAX; i++, key++) {
        if (key == 0)
            key++;
        if (!rvli_intmap_get(numbers, key, &found)) {
            rvl_status status = rvli_intmap_reserve(numbers);
            if (status == RVL_OK)
                status = add_row(machine, table, row, number_out);
            return status == RVL_OK ? rvli_intmap_insert(numbers, key, *number_out) : status;
        }
        if (same == NULL || same(machine, (uint32_t)found, row)) {
            *number_out = (uint32_t)found;
            return RVL_OK;
        }
    }
    return add_row(machine, table, row, number_out);
}

/* ---- Texts ---- */

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)
#define HASH_FACTOR UINT64_C(0x100000001b3)

static bool same_text(const rvli_pickle_machine *machine, uint32_t number, const void *row)
{
    const rvli_text_row *left = machine->tables[RVLI_TABLE_TEXTS].data, *right = row;
    left += number;
    return left->length == right->length &&
           memcmp(machine->data + left->at, machine->data + right->at, left->length) == 0;
}

/* Finds the number of a text + 1. The empty text has number 0. */
static rvl_status find_text(rvli_pickle_machine *machine, const rvli_pickle_value *text,
                            uint32_t *number_out)
{
    const rvli_text_row row = {text->at, text->length};
    uint64_t key = HASH_BEGIN;
    uint32_t number = UINT32_MAX;
    rvl_status status = RVL_OK;
    for (uint32_t i = 0; i < row.length; i++)
        key = (key ^ machine->data[row.at + i]) * HASH_FACTOR;
    if (row.length > 0)
        status = number_of(machine, RVLI_TABLE_TEXTS, &machine->text_numbers, key, &row, same_text,
                           &number);
    if (status == RVL_OK)
        *number_out = number + 1;
    return status;
}

rvl_status rvli_build_label(rvli_pickle_machine *machine, const rvli_pickle_value *text,
                            uint32_t *label)
{
    if (text->type != RVLI_PICKLE_TEXT || text->length == 0)
        return RVL_OK;
    return find_text(machine, text, label);
}

/* ---- Frames ---- */

/* The fields of a frame's dict. */
typedef struct frame_fields {
    const rvli_pickle_value *file;
    const rvli_pickle_value *name;
    const rvli_pickle_value *line;
} frame_fields;

static frame_fields fields_of(const rvli_pickle_value *pairs, uint32_t count)
{
    frame_fields fields = {0};
    for (uint32_t i = 0; i < count; i += 2) {
        if (pairs[i].type != RVLI_PICKLE_TEXT)
            continue;
        if (pairs[i].word == RVLI_WORD_FILENAME)
            fields.file = &pairs[i + 1];
        else if (pairs[i].word == RVLI_WORD_NAME)
            fields.name = &pairs[i + 1];
        else if (pairs[i].word == RVLI_WORD_LINE)
            fields.line = &pairs[i + 1];
    }
    return fields;
}

#define WRITTEN_BY ": save it by torch.cuda.memory._dump_snapshot()"

/* Code without lines has line -1 or None. Older versions of PyTorch write frames without a name. */
static rvl_status check_fields(rvli_pickle_machine *machine, const frame_fields *fields)
{
    if (fields->file->type != RVLI_PICKLE_TEXT)
        return rvli_pickle_refuse(machine, "a stack frame's filename is not a string" WRITTEN_BY);
    if (fields->name != NULL && fields->name->type != RVLI_PICKLE_TEXT)
        return rvli_pickle_refuse(machine, "a stack frame's name is not a string" WRITTEN_BY);
    if (fields->line->type != RVLI_PICKLE_INT && fields->line->type != RVLI_PICKLE_NONE)
        return rvli_pickle_refuse(machine, "a stack frame's line is not an integer" WRITTEN_BY);
    return RVL_OK;
}

static uint32_t line_of(const rvli_pickle_value *line)
{
    bool known = line->type == RVLI_PICKLE_INT && !line->negative && line->integer <= UINT32_MAX;
    return known ? (uint32_t)line->integer : 0;
}

static bool same_frame(const rvli_pickle_machine *machine, uint32_t number, const void *row)
{
    const rvli_frame_row *left = machine->tables[RVLI_TABLE_FRAMES].data, *right = row;
    left += number;
    return left->file == right->file && left->name == right->name && left->line == right->line;
}

static rvl_status find_frame(rvli_pickle_machine *machine, const frame_fields *fields,
                             uint32_t *frame_out)
{
    rvli_frame_row row = {.line = line_of(fields->line)};
    rvl_status status = find_text(machine, fields->file, &row.file);
    if (status == RVL_OK && fields->name != NULL)
        status = find_text(machine, fields->name, &row.name);
    if (status != RVL_OK)
        return status;
    uint64_t key = ((HASH_BEGIN ^ row.file) * HASH_FACTOR ^ row.name) * HASH_FACTOR ^ row.line;
    return number_of(machine, RVLI_TABLE_FRAMES, &machine->frame_numbers, key * HASH_FACTOR, &row,
                     same_frame, frame_out);
}

rvl_status rvli_build_frame(rvli_pickle_machine *machine, const rvli_pickle_value *pairs,
                            uint32_t count, uint32_t *frame_out)
{
    frame_fields fields = fields_of(pairs, count);
    rvl_status status = check_fields(machine, &fields);
    if (status != RVL_OK)
        return status;
    rvli_recent_frame asked = {.file_at = fields.file->at,
                               .name_at = fields.name != NULL ? fields.name->at : 0,
                               .line = line_of(fields.line)};
    uint64_t places = (asked.file_at * HASH_FACTOR ^ asked.name_at) * HASH_FACTOR ^ asked.line;
    rvli_recent_frame *recent =
        &machine->recent_frames[(places * HASH_FACTOR >> 32) % RVLI_RECENT_FRAMES];
    if (recent->frame == 0 || recent->file_at != asked.file_at ||
        recent->name_at != asked.name_at || recent->line != asked.line) {
        status = find_frame(machine, &fields, &asked.frame);
        if (status != RVL_OK)
            return status;
        asked.frame++;
        *recent = asked;
    }
    *frame_out = recent->frame - 1;
    return RVL_OK;
}

/* ---- Stacks ---- */

rvl_status rvli_build_caller(rvli_pickle_machine *machine, uint32_t *stack, uint32_t frame)
{
    const rvli_stack_node *nodes = machine->tables[RVLI_TABLE_STACKS].data;
    rvli_stack_node made = {*stack, frame, *stack > 0 ? nodes[*stack - 1].depth + 1 : 1};
    uint64_t key = ((uint64_t)made.inner << 32 | frame) + 1;
    uint32_t number;
    if (made.depth > RVLI_STACK_DEPTH_MAX)
        return RVL_OK;
    rvl_status status =
        number_of(machine, RVLI_TABLE_STACKS, &machine->stack_numbers, key, &made, NULL, &number);
    if (status == RVL_OK)
        *stack = number + 1;
    return status;
}

rvl_status rvli_build_stack(rvli_pickle_machine *machine, const rvli_pickle_value *list,
                            uint32_t *stack_out)
{
    const rvli_pickle_container *containers = machine->tables[RVLI_TABLE_CONTAINERS].data;
    if (list->type == RVLI_PICKLE_NONE)
        return RVL_OK;
    if (list->type != RVLI_PICKLE_LIST)
        return rvli_pickle_refuse(machine, "frames are not a list" WRITTEN_BY);
    if (containers[list->integer].kind != RVLI_KIND_EMPTY)
        return rvli_pickle_refuse(machine, "an item of frames is not a stack frame" WRITTEN_BY);
    *stack_out = containers[list->integer].stack;
    return RVL_OK;
}
