/* SPDX-License-Identifier: MIT */
/* Shared by the files of the pickle reader: the machine's tables, and building containers. */
#ifndef RVL_PREDICT_SNAPSHOT_MACHINE_H
#define RVL_PREDICT_SNAPSHOT_MACHINE_H

#include "base/intmap.h"
#include "predict/snapshot/pickle.h"

typedef struct rvli_table {
    void *data;
    size_t element; /* bytes of one element */
    uint32_t count;
    uint32_t capacity;
} rvli_table;

typedef enum rvli_table_name {
    RVLI_TABLE_STACK,
    RVLI_TABLE_MARKS, /* stack heights */
    RVLI_TABLE_MEMO,
    RVLI_TABLE_VALUES,
    RVLI_TABLE_CONTAINERS,
    RVLI_TABLE_RUNS,
    RVLI_TABLE_EVENTS,
    RVLI_TABLE_BLOCKS,
    RVLI_TABLE_ANNOTATIONS,
    RVLI_TABLE_STREAMS,
    RVLI_TABLE_POOLS,
    RVLI_TABLE_FRAMES,
    RVLI_TABLE_STACKS,
    RVLI_TABLE_TEXTS,
    RVLI_TABLE_COUNT
} rvli_table_name;

/* A frame that was looked up, and the offsets of its texts. Most frames repeat a recent one. */
typedef struct rvli_recent_frame {
    uint64_t file_at;
    uint64_t name_at;
    uint32_t line;
    uint32_t frame; /* frame + 1; 0: none */
} rvli_recent_frame;

#define RVLI_RECENT_FRAMES 1024u

typedef struct rvli_pickle_machine {
    const unsigned char *data;
    const unsigned char *at; /* behind the bytes that were read */
    const unsigned char *end;
    const unsigned char *opcode; /* the current opcode */
    rvli_table tables[RVLI_TABLE_COUNT];
    uint64_t budget; /* upper bound for the bytes of all tables */
    uint32_t last_stream;
    uint64_t last_stream_value;
    rvli_intmap frame_numbers; /* by their contents */
    rvli_intmap stack_numbers;
    rvli_intmap text_numbers;
    rvli_recent_frame recent_frames[RVLI_RECENT_FRAMES];
    rvli_pickle_error *error;
} rvli_pickle_machine;

/*
 * Fills in the error with the message and the place of the current opcode. Returns
 * RVL_ERR_CORRUPT_TRACE.
 */
rvl_status rvli_pickle_refuse(rvli_pickle_machine *machine, const char *message);

/* Makes room for more elements, which are not zeroed. */
rvl_status rvli_pickle_grow(rvli_pickle_machine *machine, rvli_table *table, uint32_t more);

static inline rvl_status rvli_pickle_room(rvli_pickle_machine *machine, rvli_table *table,
                                          uint32_t more)
{
    if (table->capacity - table->count >= more)
        return RVL_OK;
    return rvli_pickle_grow(machine, table, more);
}

static inline rvli_pickle_value *rvli_pickle_stack(const rvli_pickle_machine *machine)
{
    return machine->tables[RVLI_TABLE_STACK].data;
}

/* Makes an empty container. *value_out: a value that refers to it. */
rvl_status rvli_build_container(rvli_pickle_machine *machine, rvli_pickle_type type,
                                rvli_pickle_value *value_out);

/* Adds values to a list, or alternating keys and values to a dict. */
rvl_status rvli_build_append(rvli_pickle_machine *machine, const rvli_pickle_value *list,
                             const rvli_pickle_value *items, uint32_t count);
rvl_status rvli_build_set(rvli_pickle_machine *machine, const rvli_pickle_value *dict,
                          const rvli_pickle_value *pairs, uint32_t count);
rvl_status rvli_build_tuple(rvli_pickle_machine *machine, const rvli_pickle_value *items,
                            uint32_t count, rvli_pickle_value *value_out);

/*
 * ---- stacks.c: every stack is stored once. RVL_ERR_CORRUPT_TRACE: a field is not a text, or not a
 * stack ----
 */

/* Finds the number of the frame that a dict of keys and values describes. */
rvl_status rvli_build_frame(rvli_pickle_machine *machine, const rvli_pickle_value *pairs,
                            uint32_t count, uint32_t *frame_out);
/* Adds a frame to the outside of a stack. */
rvl_status rvli_build_caller(rvli_pickle_machine *machine, uint32_t *stack, uint32_t frame);
/* Finds the stack of a list of frames. */
rvl_status rvli_build_stack(rvli_pickle_machine *machine, const rvli_pickle_value *list,
                            uint32_t *stack_out);
/*
 * Finds the text that was written on an entry or a block. If it is not a text, or is empty, *label
 * is unchanged.
 */
rvl_status rvli_build_label(rvli_pickle_machine *machine, const rvli_pickle_value *text,
                            uint32_t *label);

/* Sets a field of a row of the trace. */
rvl_status rvli_build_event_field(rvli_pickle_machine *machine, rvli_event_row *row, uint8_t word,
                                  const rvli_pickle_value *value);

/*
 * Reads a trace entry in the form that picklers write, and pushes it. The machine is positioned
 * behind the entry's EMPTY_DICT. If the entry has any other form, *done_out is false and nothing
 * has changed.
 */
rvl_status rvli_read_entry(rvli_pickle_machine *machine, bool *done_out);

#endif
