/* SPDX-License-Identifier: MIT */
/* The pickle machine: its opcodes, its stack and its memo. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/text.h"
#include "predict/snapshot/machine.h"

#define PROTOCOL_MIN 2
#define PROTOCOL_MAX 5
/* Bytes of tables that every file may have, and how many more for each byte of the file. */
#define BUDGET_BASE (UINT64_C(64) << 20)
#define BUDGET_FACTOR 3
/* Tables of at least this size are put on huge pages. */
#define HUGE_BYTES_MIN ((size_t)8 << 20)
#define PAGE_MASK ((uintptr_t)4095)
/* Picklers number their memo densely. Larger gaps are refused. */
#define MEMO_SLACK 65536u

/* X(byte, name): opcodes that name or call code, with their names for messages. */
#define CODE_OPCODES(X)                                                                            \
    X('c', "GLOBAL")                                                                               \
    X(0x93, "STACK_GLOBAL")                                                                        \
    X('R', "REDUCE")                                                                               \
    X('b', "BUILD")                                                                                \
    X('i', "INST")                                                                                 \
    X('o', "OBJ")                                                                                  \
    X(0x81, "NEWOBJ")                                                                              \
    X(0x92, "NEWOBJ_EX")                                                                           \
    X(0x82, "EXT1")                                                                                \
    X(0x83, "EXT2")                                                                                \
    X(0x84, "EXT4")                                                                                \
    X('P', "PERSID")                                                                               \
    X('Q', "BINPERSID")

/* X(byte, name): opcodes of data that snapshots do not have, or of older protocols. */
#define FOREIGN_OPCODES(X)                                                                         \
    X('I', "INT")                                                                                  \
    X('L', "LONG")                                                                                 \
    X('F', "FLOAT")                                                                                \
    X('S', "STRING")                                                                               \
    X('V', "UNICODE")                                                                              \
    X('p', "PUT")                                                                                  \
    X('g', "GET")                                                                                  \
    X(0x8f, "EMPTY_SET")                                                                           \
    X(0x90, "ADDITEMS")                                                                            \
    X(0x91, "FROZENSET")                                                                           \
    X(0x97, "NEXT_BUFFER")                                                                         \
    X(0x98, "READONLY_BUFFER")

/* ---- Errors and tables ---- */

static rvl_status refuse_at(rvli_pickle_machine *machine, const unsigned char *at,
                            const char *message)
{
    machine->error->at = (uint64_t)(at - machine->data);
    rvli_text_copy(machine->error->message, sizeof machine->error->message, message);
    return RVL_ERR_CORRUPT_TRACE;
}

rvl_status rvli_pickle_refuse(rvli_pickle_machine *machine, const char *message)
{
    return refuse_at(machine, machine->opcode, message);
}

static rvl_status breaks_off(rvli_pickle_machine *machine)
{
    return refuse_at(machine, machine->end,
                     "the pickle breaks off before its STOP: the file was not written to its end");
}

static uint64_t bytes_taken(const rvli_pickle_machine *machine)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < RVLI_TABLE_COUNT; i++)
        bytes += (uint64_t)machine->tables[i].capacity * machine->tables[i].element;
    bytes += sizeof(rvli_intmap_slot) *
             ((uint64_t)machine->frame_numbers.capacity + machine->stack_numbers.capacity +
              machine->text_numbers.capacity);
    return bytes;
}

/*
 * A large table is used from end to end. On huge pages this costs a few faults instead of
 * thousands. The advice includes the page with the allocator's header in front of the table, since
 * the kernel can move one mapping but not two.
 */
static void advise_huge(void *data, size_t bytes)
{
    uintptr_t begin = (uintptr_t)data & ~PAGE_MASK;
    uintptr_t end = ((uintptr_t)data + bytes + PAGE_MASK) & ~PAGE_MASK;
    if (bytes >= HUGE_BYTES_MIN)
        (void)madvise((void *)begin, end - begin, MADV_HUGEPAGE);
}

/* Doubles a table, or grows it as far as the budget allows. */
rvl_status rvli_pickle_grow(rvli_pickle_machine *machine, rvli_table *table, uint32_t more)
{
    uint64_t capacity = table->capacity > 0 ? (uint64_t)table->capacity * 2 : 256;
    uint64_t needed = (uint64_t)table->count + more, taken = bytes_taken(machine);
    uint64_t left = machine->budget > taken ? machine->budget - taken : 0;
    uint64_t most = table->capacity + left / table->element;
    if (most > UINT32_MAX)
        most = UINT32_MAX;
    while (capacity < needed)
        capacity *= 2;
    if (capacity > most)
        capacity = most;
    if (capacity < needed)
        return rvli_pickle_refuse(
            machine, "the pickle unpacks to far more than a snapshot of its size has: refused");
    void *data = realloc(table->data, (size_t)capacity * table->element);
    if (data == NULL)
        return RVL_ERR_HOST_OOM;
    table->data = data;
    table->capacity = (uint32_t)capacity;
    advise_huge(data, (size_t)capacity * table->element);
    return RVL_OK;
}

static rvl_status refuse_opcode(rvli_pickle_machine *machine)
{
    char message[160];
    const char *name = NULL,
               *why = "names or calls code, which is refused: a snapshot is plain data";
    rvli_text text = rvli_text_begin(message, sizeof message);
#define NAME_OF(byte, text_of_it)                                                                  \
    if (*machine->opcode == (byte))                                                                \
        name = text_of_it;
    CODE_OPCODES(NAME_OF)
    if (name == NULL)
        why = "is none that a snapshot has: save it by torch.cuda.memory._dump_snapshot()";
    FOREIGN_OPCODES(NAME_OF)
#undef NAME_OF
    rvli_text_add(&text, "opcode ");
    if (name != NULL)
        rvli_text_add(&text, name);
    else
        rvli_text_add_u64(&text, *machine->opcode);
    rvli_text_add(&text, " ");
    rvli_text_add(&text, why);
    return rvli_pickle_refuse(machine, message);
}

/* ---- Reading arguments ---- */

static inline bool has(const rvli_pickle_machine *machine, uint64_t bytes)
{
    return (uint64_t)(machine->end - machine->at) >= bytes;
}

/* Reads a little-endian number of 1 to 8 bytes. The caller has checked that they are there. */
static inline uint64_t take_number(rvli_pickle_machine *machine, unsigned bytes)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < bytes; i++)
        number |= (uint64_t)machine->at[i] << (8 * i);
    machine->at += bytes;
    return number;
}

static inline rvl_status number_argument(rvli_pickle_machine *machine, unsigned bytes,
                                         uint64_t *number_out)
{
    if (!has(machine, bytes))
        return breaks_off(machine);
    *number_out = take_number(machine, bytes);
    return RVL_OK;
}

/* ---- Stack ---- */

static inline rvl_status push(rvli_pickle_machine *machine, rvli_pickle_value value)
{
    rvli_table *stack = &machine->tables[RVLI_TABLE_STACK];
    rvl_status status = rvli_pickle_room(machine, stack, 1);
    if (status == RVL_OK)
        rvli_pickle_stack(machine)[stack->count++] = value;
    return status;
}

static uint32_t floor_of(const rvli_pickle_machine *machine)
{
    const rvli_table *marks = &machine->tables[RVLI_TABLE_MARKS];
    return marks->count > 0 ? ((const uint32_t *)marks->data)[marks->count - 1] : 0;
}

/* Refuses if fewer values than needed lie above the last mark. */
static inline rvl_status need(rvli_pickle_machine *machine, uint32_t values)
{
    if (machine->tables[RVLI_TABLE_STACK].count - floor_of(machine) < values)
        return rvli_pickle_refuse(machine, "the pickle takes a value that is not there");
    return RVL_OK;
}

/*
 * Removes the last mark and the values above it. *items_out: these values, which stay valid until
 * the stack is used again.
 */
static rvl_status pop_mark(rvli_pickle_machine *machine, rvli_pickle_value **items_out,
                           uint32_t *count_out)
{
    rvli_table *marks = &machine->tables[RVLI_TABLE_MARKS];
    rvli_table *stack = &machine->tables[RVLI_TABLE_STACK];
    if (marks->count == 0)
        return rvli_pickle_refuse(machine, "the pickle takes a mark that is not there");
    uint32_t height = ((uint32_t *)marks->data)[--marks->count];
    *items_out = rvli_pickle_stack(machine) + height;
    *count_out = stack->count - height;
    stack->count = height;
    return RVL_OK;
}

static rvl_status mark(rvli_pickle_machine *machine)
{
    rvli_table *marks = &machine->tables[RVLI_TABLE_MARKS];
    rvl_status status = rvli_pickle_room(machine, marks, 1);
    if (status == RVL_OK)
        ((uint32_t *)marks->data)[marks->count++] = machine->tables[RVLI_TABLE_STACK].count;
    return status;
}

static rvl_status pop(rvli_pickle_machine *machine)
{
    rvl_status status = need(machine, 1);
    if (status == RVL_OK)
        machine->tables[RVLI_TABLE_STACK].count--;
    return status;
}

static inline rvli_pickle_value *top(const rvli_pickle_machine *machine, uint32_t depth)
{
    return rvli_pickle_stack(machine) + machine->tables[RVLI_TABLE_STACK].count - 1 - depth;
}

static rvl_status duplicate(rvli_pickle_machine *machine)
{
    rvl_status status = need(machine, 1);
    return status == RVL_OK ? push(machine, *top(machine, 0)) : status;
}

/* ---- Memo ---- */

static rvl_status memo_put(rvli_pickle_machine *machine, uint64_t index)
{
    static const rvli_pickle_value none = {.type = RVLI_PICKLE_NONE};
    rvli_table *memo = &machine->tables[RVLI_TABLE_MEMO];
    rvl_status status = need(machine, 1);
    if (status != RVL_OK)
        return status;
    if (index > (uint64_t)memo->count + MEMO_SLACK)
        return rvli_pickle_refuse(
            machine, "a memo number is far above the last one, which no pickler writes");
    if (index >= memo->count) {
        uint32_t more = (uint32_t)(index - memo->count) + 1;
        status = rvli_pickle_room(machine, memo, more);
        if (status != RVL_OK)
            return status;
        while (memo->count <= index)
            ((rvli_pickle_value *)memo->data)[memo->count++] = none;
    }
    ((rvli_pickle_value *)memo->data)[index] = *top(machine, 0);
    return RVL_OK;
}

static inline rvl_status memo_get(rvli_pickle_machine *machine, unsigned bytes)
{
    const rvli_table *memo = &machine->tables[RVLI_TABLE_MEMO];
    if (!has(machine, bytes))
        return breaks_off(machine);
    uint64_t index = take_number(machine, bytes);
    if (index >= memo->count)
        return rvli_pickle_refuse(machine, "a memo number is used that was never given");
    return push(machine, ((const rvli_pickle_value *)memo->data)[index]);
}

static rvl_status memo_put_numbered(rvli_pickle_machine *machine, unsigned bytes)
{
    uint64_t index = 0;
    rvl_status status = number_argument(machine, bytes, &index);
    return status == RVL_OK ? memo_put(machine, index) : status;
}

/* ---- Values ---- */

static inline rvl_status push_int(rvli_pickle_machine *machine, unsigned bytes, bool is_signed)
{
    rvli_pickle_value value = {.type = RVLI_PICKLE_INT};
    if (!has(machine, bytes))
        return breaks_off(machine);
    value.integer = take_number(machine, bytes);
    if (is_signed && (value.integer >> (8 * bytes - 1)) != 0) {
        value.integer |= ~UINT64_C(0) << (8 * bytes - 1);
        value.negative = true;
    }
    return push(machine, value);
}

/* Reads an integer of any length in two's complement, little-endian. */
static rvl_status push_long(rvli_pickle_machine *machine, uint64_t bytes)
{
    rvli_pickle_value value = {.type = RVLI_PICKLE_INT};
    if (!has(machine, bytes))
        return breaks_off(machine);
    bool negative = bytes > 0 && (machine->at[bytes - 1] & 0x80) != 0;
    if (bytes > 9 || (bytes == 9 && machine->at[8] != 0)) {
        machine->at += bytes;
        value.type = RVLI_PICKLE_BIG;
        return push(machine, value);
    }
    value.negative = negative;
    value.integer = take_number(machine, bytes < 8 ? (unsigned)bytes : 8);
    if (negative && bytes < 8)
        value.integer |= ~UINT64_C(0) << (8 * bytes);
    machine->at += bytes == 9 ? 1 : 0;
    return push(machine, value);
}

static rvl_status push_long_counted(rvli_pickle_machine *machine, unsigned bytes)
{
    uint64_t length = 0;
    rvl_status status = number_argument(machine, bytes, &length);
    if (status == RVL_OK && bytes == 4 && length > INT32_MAX)
        return rvli_pickle_refuse(machine, "an integer has a negative length");
    return status == RVL_OK ? push_long(machine, length) : status;
}

static rvl_status push_float(rvli_pickle_machine *machine)
{
    rvli_pickle_value value = {.type = RVLI_PICKLE_FLOAT};
    uint64_t bits = 0;
    if (!has(machine, 8))
        return breaks_off(machine);
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | *machine->at++;
    memcpy(&value.real, &bits, sizeof bits);
    return push(machine, value);
}

static rvl_status push_constant(rvli_pickle_machine *machine, rvli_pickle_type type,
                                uint64_t number)
{
    return push(machine, (rvli_pickle_value){.type = (uint8_t)type, .integer = number});
}

typedef struct word_text {
    const char *text;
    size_t length;
} word_text;

#define WORD_TEXT(name, text) {text, sizeof text - 1},
static const word_text words[RVLI_WORD_COUNT] = {
    {"", 0}, RVLI_KEY_MAP(WORD_TEXT) RVLI_ACTION_MAP(WORD_TEXT) RVLI_BLOCK_STATE_MAP(WORD_TEXT)};
#undef WORD_TEXT

#define WORD_LENGTH_MIN 3
#define WORD_LENGTH_MAX 28

static uint8_t word_of(const unsigned char *text, uint64_t length)
{
    if (length < WORD_LENGTH_MIN || length > WORD_LENGTH_MAX)
        return RVLI_WORD_OTHER;
    for (size_t i = 1; i < RVLI_WORD_COUNT; i++) {
        if (words[i].length == length && memcmp(words[i].text, text, length) == 0)
            return (uint8_t)i;
    }
    return RVLI_WORD_OTHER;
}

static inline rvl_status push_text(rvli_pickle_machine *machine, unsigned length_bytes,
                                   rvli_pickle_type type)
{
    rvli_pickle_value value = {.type = (uint8_t)type};
    if (!has(machine, length_bytes))
        return breaks_off(machine);
    uint64_t length = take_number(machine, length_bytes);
    if (!has(machine, length))
        return breaks_off(machine);
    if (length > UINT32_MAX)
        return rvli_pickle_refuse(machine, "a string of 4 GiB or more: not a snapshot");
    value.length = (uint32_t)length;
    value.at = (uint64_t)(machine->at - machine->data);
    if (type == RVLI_PICKLE_TEXT)
        value.word = word_of(machine->at, length);
    machine->at += length;
    return push(machine, value);
}

/* ---- Containers ---- */

static inline rvl_status push_empty(rvli_pickle_machine *machine, rvli_pickle_type type)
{
    rvli_pickle_value value;
    rvl_status status = rvli_build_container(machine, type, &value);
    return status == RVL_OK ? push(machine, value) : status;
}

static rvl_status push_tuple(rvli_pickle_machine *machine, uint32_t count)
{
    rvli_pickle_value value;
    rvl_status status = need(machine, count);
    if (status != RVL_OK)
        return status;
    rvli_table *stack = &machine->tables[RVLI_TABLE_STACK];
    status =
        rvli_build_tuple(machine, rvli_pickle_stack(machine) + stack->count - count, count, &value);
    stack->count -= count;
    return status == RVL_OK ? push(machine, value) : status;
}

/* TUPLE, LIST and DICT: makes a container of the values above the mark. */
static rvl_status push_marked(rvli_pickle_machine *machine, rvli_pickle_type type)
{
    rvli_pickle_value value, *items;
    uint32_t count;
    rvl_status status = pop_mark(machine, &items, &count);
    if (status == RVL_OK && type == RVLI_PICKLE_TUPLE)
        status = rvli_build_tuple(machine, items, count, &value);
    else if (status == RVL_OK)
        status = rvli_build_container(machine, type, &value);
    if (status == RVL_OK && type == RVLI_PICKLE_LIST)
        status = rvli_build_append(machine, &value, items, count);
    if (status == RVL_OK && type == RVLI_PICKLE_DICT)
        status = rvli_build_set(machine, &value, items, count);
    return status == RVL_OK ? push(machine, value) : status;
}

/* APPENDS and SETITEMS: adds the values above the mark to the container below it. */
static inline rvl_status fill_marked(rvli_pickle_machine *machine, bool dict)
{
    rvli_pickle_value *items;
    uint32_t count;
    rvl_status status = pop_mark(machine, &items, &count);
    if (status == RVL_OK)
        status = need(machine, 1);
    if (status != RVL_OK)
        return status;
    return dict ? rvli_build_set(machine, items - 1, items, count)
                : rvli_build_append(machine, items - 1, items, count);
}

/* APPEND and SETITEM. */
static rvl_status fill_one(rvli_pickle_machine *machine, uint32_t count)
{
    rvl_status status = need(machine, count + 1);
    if (status != RVL_OK)
        return status;
    const rvli_pickle_value *container = top(machine, count);
    machine->tables[RVLI_TABLE_STACK].count -= count;
    return count == 2 ? rvli_build_set(machine, container, container + 1, 2)
                      : rvli_build_append(machine, container, container + 1, 1);
}

/* ---- The machine ---- */

static rvl_status check_protocol(rvli_pickle_machine *machine)
{
    uint64_t version = 0;
    rvl_status status = number_argument(machine, 1, &version);
    if (status != RVL_OK)
        return status;
    if (version > PROTOCOL_MAX) {
        rvli_pickle_refuse(machine, "a newer pickle protocol than 5: save it with protocol=4");
        return RVL_ERR_VERSION;
    }
    return version >= PROTOCOL_MIN ? RVL_OK
                                   : rvli_pickle_refuse(machine, "an older pickle protocol than 2");
}

/* A frame is a hint for buffering. It need not end where an opcode ends. */
static rvl_status check_frame(rvli_pickle_machine *machine)
{
    uint64_t length = 0;
    rvl_status status = number_argument(machine, 8, &length);
    return status == RVL_OK && !has(machine, length) ? breaks_off(machine) : status;
}

static rvl_status begin_dict(rvli_pickle_machine *machine)
{
    bool done;
    rvl_status status = rvli_read_entry(machine, &done);
    return status == RVL_OK && !done ? push_empty(machine, RVLI_PICKLE_DICT) : status;
}

static rvl_status step(rvli_pickle_machine *machine, unsigned char opcode)
{
    switch (opcode) {
    case '}':
        return begin_dict(machine);
    case 0x94: /* MEMOIZE */
        return memo_put(machine, machine->tables[RVLI_TABLE_MEMO].count);
    case '(':
        return mark(machine);
    case 'h': /* BINGET */
        return memo_get(machine, 1);
    case 'j': /* LONG_BINGET */
        return memo_get(machine, 4);
    case 0x8c: /* SHORT_BINUNICODE */
        return push_text(machine, 1, RVLI_PICKLE_TEXT);
    case 'X': /* BINUNICODE */
        return push_text(machine, 4, RVLI_PICKLE_TEXT);
    case 0x8d: /* BINUNICODE8 */
        return push_text(machine, 8, RVLI_PICKLE_TEXT);
    case 0x8a: /* LONG1 */
        return push_long_counted(machine, 1);
    case 0x8b: /* LONG4 */
        return push_long_counted(machine, 4);
    case 'K': /* BININT1 */
        return push_int(machine, 1, false);
    case 'M': /* BININT2 */
        return push_int(machine, 2, false);
    case 'J': /* BININT */
        return push_int(machine, 4, true);
    case 'u': /* SETITEMS */
        return fill_marked(machine, true);
    case 'e': /* APPENDS */
        return fill_marked(machine, false);
    case 's': /* SETITEM */
        return fill_one(machine, 2);
    case 'a': /* APPEND */
        return fill_one(machine, 1);
    case ']':
        return push_empty(machine, RVLI_PICKLE_LIST);
    case ')':
        return push_tuple(machine, 0);
    case 0x85: /* TUPLE1 */
        return push_tuple(machine, 1);
    case 0x86: /* TUPLE2 */
        return push_tuple(machine, 2);
    case 0x87: /* TUPLE3 */
        return push_tuple(machine, 3);
    case 't': /* TUPLE */
        return push_marked(machine, RVLI_PICKLE_TUPLE);
    case 'l': /* LIST */
        return push_marked(machine, RVLI_PICKLE_LIST);
    case 'd': /* DICT */
        return push_marked(machine, RVLI_PICKLE_DICT);
    case 'N':
        return push_constant(machine, RVLI_PICKLE_NONE, 0);
    case 0x88: /* NEWTRUE */
        return push_constant(machine, RVLI_PICKLE_BOOL, 1);
    case 0x89: /* NEWFALSE */
        return push_constant(machine, RVLI_PICKLE_BOOL, 0);
    case 'G': /* BINFLOAT */
        return push_float(machine);
    case 'U': /* SHORT_BINSTRING */
    case 'C': /* SHORT_BINBYTES */
        return push_text(machine, 1, RVLI_PICKLE_BYTES);
    case 'T': /* BINSTRING */
    case 'B': /* BINBYTES */
        return push_text(machine, 4, RVLI_PICKLE_BYTES);
    case 0x8e: /* BINBYTES8 */
    case 0x96: /* BYTEARRAY8 */
        return push_text(machine, 8, RVLI_PICKLE_BYTES);
    case 'q': /* BINPUT */
        return memo_put_numbered(machine, 1);
    case 'r': /* LONG_BINPUT */
        return memo_put_numbered(machine, 4);
    case '0': /* POP */
        return pop(machine);
    case '1': { /* POP_MARK */
        rvli_pickle_value *items;
        uint32_t count;
        return pop_mark(machine, &items, &count);
    }
    case '2': /* DUP */
        return duplicate(machine);
    case 0x80: /* PROTO */
        return check_protocol(machine);
    case 0x95: /* FRAME */
        return check_frame(machine);
    default:
        return refuse_opcode(machine);
    }
}

static rvl_status run(rvli_pickle_machine *machine)
{
    rvl_status status = RVL_OK;
    machine->opcode = machine->data;
    if (machine->at == machine->end)
        return rvli_pickle_refuse(machine, "the file is empty");
    if (*machine->at != 0x80)
        return rvli_pickle_refuse(machine,
                                  "not a pickle of protocol 2 to 5: it does not begin with PROTO");
    while (status == RVL_OK) {
        if (machine->at == machine->end)
            return breaks_off(machine);
        machine->opcode = machine->at++;
        if (*machine->opcode == '.')
            return need(machine, 1);
        status = step(machine, *machine->opcode);
    }
    return status;
}

static const size_t element_bytes[RVLI_TABLE_COUNT] = {
    [RVLI_TABLE_STACK] = sizeof(rvli_pickle_value),
    [RVLI_TABLE_MARKS] = sizeof(uint32_t),
    [RVLI_TABLE_MEMO] = sizeof(rvli_pickle_value),
    [RVLI_TABLE_VALUES] = sizeof(rvli_pickle_value),
    [RVLI_TABLE_CONTAINERS] = sizeof(rvli_pickle_container),
    [RVLI_TABLE_RUNS] = sizeof(rvli_pickle_run),
    [RVLI_TABLE_EVENTS] = sizeof(rvli_event_row),
    [RVLI_TABLE_BLOCKS] = sizeof(rvli_block_row),
    [RVLI_TABLE_ANNOTATIONS] = sizeof(rvli_annotation_row),
    [RVLI_TABLE_STREAMS] = sizeof(uint64_t),
    [RVLI_TABLE_POOLS] = sizeof(rvli_pool_id),
    [RVLI_TABLE_FRAMES] = sizeof(rvli_frame_row),
    [RVLI_TABLE_STACKS] = sizeof(rvli_stack_node),
    [RVLI_TABLE_TEXTS] = sizeof(rvli_text_row),
};

static void hand_over(rvli_pickle_machine *machine, rvli_pickle *pickle)
{
    rvli_table *tables = machine->tables;
    *pickle = (rvli_pickle){
        .data = machine->data,
        .size = (uint64_t)(machine->end - machine->data),
        .root = *top(machine, 0),
        .values = tables[RVLI_TABLE_VALUES].data,
        .containers = tables[RVLI_TABLE_CONTAINERS].data,
        .runs = tables[RVLI_TABLE_RUNS].data,
        .events = tables[RVLI_TABLE_EVENTS].data,
        .blocks = tables[RVLI_TABLE_BLOCKS].data,
        .annotations = tables[RVLI_TABLE_ANNOTATIONS].data,
        .streams = tables[RVLI_TABLE_STREAMS].data,
        .pools = tables[RVLI_TABLE_POOLS].data,
        .frames = tables[RVLI_TABLE_FRAMES].data,
        .stacks = tables[RVLI_TABLE_STACKS].data,
        .texts = tables[RVLI_TABLE_TEXTS].data,
        .value_count = tables[RVLI_TABLE_VALUES].count,
        .container_count = tables[RVLI_TABLE_CONTAINERS].count,
        .run_count = tables[RVLI_TABLE_RUNS].count,
        .event_count = tables[RVLI_TABLE_EVENTS].count,
        .block_count = tables[RVLI_TABLE_BLOCKS].count,
        .annotation_count = tables[RVLI_TABLE_ANNOTATIONS].count,
        .stream_count = tables[RVLI_TABLE_STREAMS].count,
        .pool_count = tables[RVLI_TABLE_POOLS].count,
        .frame_count = tables[RVLI_TABLE_FRAMES].count,
        .stack_count = tables[RVLI_TABLE_STACKS].count,
        .text_count = tables[RVLI_TABLE_TEXTS].count,
    };
    for (size_t i = RVLI_TABLE_VALUES; i < RVLI_TABLE_COUNT; i++)
        tables[i].data = NULL;
}

/*
 * Makes stream 0 and the default pool the first of their tables, and allocates the stack, so that
 * it is never NULL.
 */
static rvl_status begin(rvli_pickle_machine *machine)
{
    rvli_table *streams = &machine->tables[RVLI_TABLE_STREAMS];
    rvli_table *pools = &machine->tables[RVLI_TABLE_POOLS];
    rvl_status status = rvli_pickle_room(machine, streams, 1);
    if (status == RVL_OK)
        status = rvli_pickle_room(machine, pools, 1);
    if (status == RVL_OK)
        status = rvli_pickle_room(machine, &machine->tables[RVLI_TABLE_STACK], 1);
    if (status != RVL_OK)
        return status;
    ((uint64_t *)streams->data)[streams->count++] = 0;
    ((rvli_pool_id *)pools->data)[pools->count++] = (rvli_pool_id){0};
    return RVL_OK;
}

rvl_status rvli_pickle_read(const unsigned char *data, uint64_t size, rvli_pickle *pickle_out,
                            rvli_pickle_error *error_out)
{
    rvli_pickle_machine machine = {.data = data, .at = data, .end = data + size, .opcode = data};
    *error_out = (rvli_pickle_error){0};
    machine.error = error_out;
    machine.budget = BUDGET_BASE + BUDGET_FACTOR * size;
    for (size_t i = 0; i < RVLI_TABLE_COUNT; i++)
        machine.tables[i].element = element_bytes[i];
    rvl_status status = begin(&machine);
    if (status == RVL_OK)
        status = run(&machine);
    if (status == RVL_OK)
        hand_over(&machine, pickle_out);
    for (size_t i = 0; i < RVLI_TABLE_COUNT; i++)
        free(machine.tables[i].data);
    rvli_intmap_destroy(&machine.frame_numbers);
    rvli_intmap_destroy(&machine.stack_numbers);
    rvli_intmap_destroy(&machine.text_numbers);
    return status;
}

void rvli_pickle_destroy(rvli_pickle *pickle)
{
    free(pickle->values);
    free(pickle->containers);
    free(pickle->runs);
    free(pickle->events);
    free(pickle->blocks);
    free(pickle->annotations);
    free(pickle->streams);
    free(pickle->pools);
    free(pickle->frames);
    free(pickle->stacks);
    free(pickle->texts);
    *pickle = (rvli_pickle){0};
}

/* ---- Reading the result ---- */

static const rvli_pickle_run *run_number(const rvli_pickle *pickle, uint32_t number)
{
    return number > 0 ? &pickle->runs[number - 1] : NULL;
}

const rvli_pickle_run *rvli_pickle_next_run(const rvli_pickle *pickle, const rvli_pickle_run *run)
{
    return run_number(pickle, run->next);
}

static const rvli_pickle_run *first_run(const rvli_pickle *pickle, const rvli_pickle_value *value,
                                        rvli_pickle_type type)
{
    if (value == NULL || value->type != (uint8_t)type ||
        pickle->containers[value->integer].kind != RVLI_KIND_VALUES)
        return NULL;
    return run_number(pickle, pickle->containers[value->integer].first);
}

const rvli_pickle_run *rvli_pickle_first_run(const rvli_pickle *pickle,
                                             const rvli_pickle_value *list)
{
    return first_run(pickle, list, RVLI_PICKLE_LIST);
}

const rvli_pickle_value *rvli_pickle_get(const rvli_pickle *pickle, const rvli_pickle_value *dict,
                                         rvli_word key)
{
    const rvli_pickle_value *found = NULL;
    const rvli_pickle_run *run = first_run(pickle, dict, RVLI_PICKLE_DICT);
    for (; run != NULL; run = rvli_pickle_next_run(pickle, run)) {
        const rvli_pickle_value *pairs = &pickle->values[run->first];
        for (uint32_t i = 0; i + 1 < run->count; i += 2) {
            if (pairs[i].type == RVLI_PICKLE_TEXT && pairs[i].word == key)
                found = &pairs[i + 1];
        }
    }
    return found;
}
