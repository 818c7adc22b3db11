/* SPDX-License-Identifier: MIT */
/*
 * The fast path for trace entries.
 *
 * Picklers write a million dicts in the same form: EMPTY_DICT, MEMOIZE, MARK, keys from the memo
 * with short values, SETITEMS. This file reads such a dict in one pass, from bytes to row, without
 * the stack, marks or a container. Any other form, and dicts near the end of the file, are left to
 * the machine untouched.
 */
#include <string.h>

#include "predict/snapshot/machine.h"

/* Upper bound of an entry that is read here. */
#define ENTRY_BYTES_MAX 1024
#define MEMO_ITEMS_MAX 64 /* that one entry may add */

typedef struct reader {
    const unsigned char *at;
    rvli_pickle_value *memo;
    uint32_t memo_count; /* at the start of the entry, plus the items that it added */
    uint32_t memo_known; /* at the start of the entry */
} reader;

static inline uint32_t little_endian_4(const unsigned char *bytes)
{
    uint32_t number;
    memcpy(&number, bytes, sizeof number);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? number : __builtin_bswap32(number);
}

static inline uint64_t little_endian_8(const unsigned char *bytes)
{
    uint64_t number;
    memcpy(&number, bytes, sizeof number);
    return __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? number : __builtin_bswap64(number);
}

/* Returns a value from the memo. NULL: not a reference, or not to a value from before the entry. */
static inline const rvli_pickle_value *get(reader *from)
{
    uint32_t index;
    if (*from->at == 'j') {
        index = little_endian_4(from->at + 1);
        from->at += 5;
    } else if (*from->at == 'h') {
        index = from->at[1];
        from->at += 2;
    } else {
        return NULL;
    }
    return index < from->memo_known ? &from->memo[index] : NULL;
}

/* Reads a LONG1 of at most 8 bytes that is not negative. */
static inline bool long_value(reader *from, rvli_pickle_value *value)
{
    unsigned bytes = from->at[1];
    if (bytes == 0 || bytes > 8 || (from->at[1 + bytes] & 0x80) != 0)
        return false;
    value->integer = little_endian_8(from->at + 2) & (~UINT64_C(0) >> (64 - 8 * bytes));
    from->at += 2 + bytes;
    return true;
}

/* Reads a string of at most 3 bytes that is not a keyword, and adds it to the memo. */
static inline bool text_value(reader *from, const unsigned char *data, rvli_pickle_value *value)
{
    unsigned length = from->at[1];
    *value = (rvli_pickle_value){
        .type = RVLI_PICKLE_TEXT, .length = length, .at = (uint64_t)(from->at + 2 - data)};
    bool may_be_oom = length == 3 && from->at[2] == 'o'; /* the only keyword this short */
    if (length > 3 || may_be_oom || from->at[2 + length] != 0x94 ||
        from->memo_count - from->memo_known >= MEMO_ITEMS_MAX)
        return false;
    from->at += 3 + length;
    from->memo[from->memo_count++] = *value;
    return true;
}

/* Copies the next value. false: its form is not read here. */
static inline bool value_of(reader *from, const unsigned char *data, rvli_pickle_value *value)
{
    const rvli_pickle_value *known;
    *value = (rvli_pickle_value){.type = RVLI_PICKLE_INT};
    switch (*from->at) {
    case 'j':
    case 'h':
        known = get(from);
        if (known == NULL)
            return false;
        *value = *known;
        return true;
    case 'K':
        value->integer = from->at[1];
        from->at += 2;
        return true;
    case 'M':
        value->integer = from->at[1] | (uint64_t)from->at[2] << 8;
        from->at += 3;
        return true;
    case 'J':
        value->integer = little_endian_4(from->at + 1);
        from->at += 5;
        return value->integer <= INT32_MAX;
    case 0x8a:
        return long_value(from, value);
    case 0x8c:
        return text_value(from, data, value);
    default:
        return false;
    }
}

static inline bool set_field(rvli_pickle_machine *machine, rvli_event_row *row, uint8_t word,
                             const rvli_pickle_value *value)
{
    bool whole = value->type == RVLI_PICKLE_INT && !value->negative;
    switch (word) {
    case RVLI_WORD_ADDR:
        row->addr = value->integer;
        return whole;
    case RVLI_WORD_SIZE:
        row->size = value->integer;
        return whole;
    case RVLI_WORD_TIME_US:
        row->time_us = (int64_t)value->integer;
        return whole;
    case RVLI_WORD_TRACE_ACTION:
        if (value->type != RVLI_PICKLE_TEXT || value->word < RVLI_WORD_ACTION_ALLOC)
            return false;
        row->action = (uint8_t)(value->word - RVLI_WORD_ACTION_ALLOC + RVLI_ACTION_ALLOC);
        return value->word <= RVLI_WORD_ACTION_USER_DEFINED;
    case RVLI_WORD_STREAM:
        row->stream = machine->last_stream;
        if (whole && value->integer == machine->last_stream_value)
            return true;
        return rvli_build_event_field(machine, row, word, value) == RVL_OK;
    case RVLI_WORD_FRAMES:
    case RVLI_WORD_CATEGORY:
    case RVLI_WORD_USER_METADATA:
        return rvli_build_event_field(machine, row, word, value) == RVL_OK;
    case RVLI_WORD_POOL_ID:
    case RVLI_WORD_DEVICE_FREE:
        return false;
    default:
        return true;
    }
}

static bool read_fields(rvli_pickle_machine *machine, reader *from, rvli_event_row *row)
{
    const unsigned char *begin = from->at;
    while (*from->at != 'u') {
        rvli_pickle_value value;
        const rvli_pickle_value *key = get(from);
        if (key == NULL || key->type != RVLI_PICKLE_TEXT ||
            !value_of(from, machine->data, &value) || !set_field(machine, row, key->word, &value) ||
            from->at - begin > ENTRY_BYTES_MAX / 2)
            return false;
    }
    from->at++;
    return row->action > RVLI_ACTION_UNKNOWN && row->action < RVLI_ACTION_SNAPSHOT;
}

rvl_status rvli_read_entry(rvli_pickle_machine *machine, bool *done_out)
{
    rvli_table *memo = &machine->tables[RVLI_TABLE_MEMO];
    rvli_table *stack = &machine->tables[RVLI_TABLE_STACK];
    rvli_table *events = &machine->tables[RVLI_TABLE_EVENTS];
    rvl_status status;
    *done_out = false;
    if (machine->end - machine->at < ENTRY_BYTES_MAX || machine->at[0] != 0x94 ||
        machine->at[1] != '(' || (machine->at[2] != 'j' && machine->at[2] != 'h'))
        return RVL_OK;
    if ((status = rvli_pickle_room(machine, memo, MEMO_ITEMS_MAX + 2)) != RVL_OK ||
        (status = rvli_pickle_room(machine, stack, 1)) != RVL_OK ||
        (status = rvli_pickle_room(machine, events, 1)) != RVL_OK)
        return status;
    reader from = {machine->at + 2, memo->data, memo->count + 1, memo->count};
    rvli_event_row row = {0};
    if (!read_fields(machine, &from, &row))
        return RVL_OK;
    rvli_pickle_value value = {.type = RVLI_PICKLE_EVENT, .integer = events->count};
    from.memo[memo->count] = value;
    memo->count = from.memo_count;
    rvli_pickle_stack(machine)[stack->count++] = value;
    ((rvli_event_row *)events->data)[events->count++] = row;
    machine->at = from.at;
    *done_out = true;
    return RVL_OK;
}
