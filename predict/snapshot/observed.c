/* SPDX-License-Identifier: MIT */
#include "predict/snapshot/observed.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX "reveille:"
#define LABEL "rvl:"
#define NUMBER_DIGITS_MAX 9u

/* ---- Words ---- */

static rvli_snapshot_piece next_word(rvli_snapshot_piece *rest)
{
    const char *blank = rest->length > 0 ? memchr(rest->text, ' ', rest->length) : NULL;
    rvli_snapshot_piece word = *rest;
    if (blank != NULL)
        word.length = (uint32_t)(blank - rest->text);
    uint32_t taken = word.length + (blank != NULL ? 1 : 0);
    rest->text += taken;
    rest->length -= taken;
    return word;
}

static bool is(rvli_snapshot_piece piece, const char *text)
{
    return piece.length == strlen(text) && memcmp(piece.text, text, piece.length) == 0;
}

/* 0: not a number. */
static uint32_t number_of(rvli_snapshot_piece word)
{
    uint32_t number = 0;
    for (uint32_t i = 0; i < word.length; i++) {
        if (word.text[i] < '0' || word.text[i] > '9' || i >= NUMBER_DIGITS_MAX)
            return 0;
        number = number * 10 + (uint32_t)(word.text[i] - '0');
    }
    return number;
}

static rvli_snapshot_piece known(rvli_snapshot_piece piece)
{
    return is(piece, "-") ? (rvli_snapshot_piece){0} : piece;
}

/* Removes the first address from the list and returns it; 0: none, or not a number. */
static uint64_t next_address(rvli_snapshot_piece *list)
{
    uint64_t addr = 0;
    uint32_t i = 0;
    for (; i < list->length && list->text[i] != ','; i++) {
        char digit = list->text[i];
        if (digit >= '0' && digit <= '9')
            addr = addr << 4 | (uint64_t)(digit - '0');
        else if (digit >= 'a' && digit <= 'f')
            addr = addr << 4 | (uint64_t)(digit - 'a' + 10);
    }
    i += i < list->length ? 1 : 0;
    list->text += i;
    list->length -= i;
    return addr;
}

/* ---- Reading ---- */

/* Whether an annotation is ours. *rest: its name without the prefix. */
static bool is_ours(const rvli_recording *recording, uint32_t index, rvli_snapshot_piece *rest)
{
    const rvli_annotation_row *row = &recording->annotations[index];
    size_t prefix = strlen(PREFIX);
    const char *text = (const char *)recording->pickle.data + row->name_at;
    if (row->name_length <= prefix || memcmp(text, PREFIX, prefix) != 0)
        return false;
    *rest = (rvli_snapshot_piece){text + prefix, row->name_length - (uint32_t)prefix};
    return true;
}

static size_t count_addresses(rvli_snapshot_piece list)
{
    size_t count = list.length > 0 ? 1 : 0;
    for (uint32_t i = 0; i < list.length; i++)
        count += list.text[i] == ',' ? 1 : 0;
    return count;
}

static rvl_status make_room(const rvli_recording *recording, rvli_observed *observed)
{
    size_t phases = 0, modules = 0, seen = 0, marks = 0, graphs = 0;
    for (uint32_t i = 0; i < recording->annotation_count; i++) {
        rvli_snapshot_piece rest;
        if (!is_ours(recording, i, &rest))
            continue;
        rvli_snapshot_piece word = next_word(&rest);
        phases += is(word, "phase") ? 1 : 0;
        modules += is(word, "module") ? 1 : 0;
        seen += is(word, "seen") ? count_addresses(rest) : 0;
        marks += is(word, "mark") ? 1 : 0;
        graphs += is(word, "graphs") ? 1 : 0;
    }
    observed->phases = calloc(phases + 1, sizeof *observed->phases);
    observed->modules = calloc(modules + 1, sizeof *observed->modules);
    observed->seen = calloc(seen + 1, sizeof *observed->seen);
    observed->marks = calloc(marks + 1, sizeof *observed->marks);
    observed->graphs = calloc(graphs + 1, sizeof *observed->graphs);
    return observed->phases != NULL && observed->modules != NULL && observed->seen != NULL &&
                   observed->marks != NULL && observed->graphs != NULL
               ? RVL_OK
               : RVL_ERR_HOST_OOM;
}

static void read_phase(rvli_observed *observed, rvli_snapshot_piece rest, uint32_t end)
{
    rvli_phase phase = {.number = number_of(next_word(&rest)), .begin = end};
    rvli_snapshot_piece kind = next_word(&rest);
    phase.kind = is(kind, "backward")    ? RVLI_PHASE_BACKWARD
                 : is(kind, "optimizer") ? RVLI_PHASE_OPTIMIZER
                                         : RVLI_PHASE_BETWEEN;
    phase.line = number_of(next_word(&rest));
    phase.name = known(next_word(&rest));
    phase.file = known(rest);
    if (phase.number > 0)
        observed->phases[observed->phase_count++] = phase;
}

static void read_module(rvli_observed *observed, rvli_snapshot_piece rest)
{
    rvli_module module = {.first = number_of(next_word(&rest)),
                          .last = number_of(next_word(&rest))};
    module.name = next_word(&rest);
    module.file = rest;
    if (module.first > 0 && module.last >= module.first && module.name.length > 0)
        observed->modules[observed->module_count++] = module;
}

static void read_graphs(rvli_observed *observed, rvli_snapshot_piece rest)
{
    observed->graphs_told = true;
    rvli_pool_id pool = {.first = number_of(next_word(&rest)), .second = number_of(rest)};
    if (pool.first != 0 || pool.second != 0)
        observed->graphs[observed->graph_count++] = pool;
}

static int by_pool(const void *a, const void *b)
{
    const rvli_pool_id *left = a, *right = b;
    if (left->first != right->first)
        return left->first < right->first ? -1 : 1;
    return (left->second > right->second) - (left->second < right->second);
}

static int by_number(const void *a, const void *b)
{
    const rvli_phase *left = a, *right = b;
    return (left->number > right->number) - (left->number < right->number);
}

static int by_address(const void *a, const void *b)
{
    const rvli_snapshot_seen *left = a, *right = b;
    if (left->addr != right->addr)
        return left->addr < right->addr ? -1 : 1;
    return (left->instant > right->instant) - (left->instant < right->instant);
}

/* Returns the number in the label of an entry; 0: none. */
static uint32_t number_of_label(const rvli_pickle *pickle, uint32_t label)
{
    const rvli_text_row *row = &pickle->texts[label - 1];
    const char *text = (const char *)pickle->data + row->at;
    size_t prefix = strlen(LABEL);
    if (row->length <= prefix || memcmp(text, LABEL, prefix) != 0)
        return 0;
    return number_of((rvli_snapshot_piece){text + prefix, row->length - (uint32_t)prefix});
}

/*
 * Returns the number of the next phase, ignoring phases between, if that is a backward pass.
 * Otherwise, or while a backward pass is still open, returns `number`.
 */
static uint32_t backward_next(const rvli_observed *observed, size_t next, uint32_t number)
{
    if (next == 0 || observed->phases[next - 1].kind == RVLI_PHASE_BACKWARD)
        return number;
    while (next < observed->phase_count && observed->phases[next].kind == RVLI_PHASE_BETWEEN)
        next++;
    return next < observed->phase_count && observed->phases[next].kind == RVLI_PHASE_BACKWARD
               ? observed->phases[next].number
               : number;
}

/*
 * A phase begins before the first entry that belongs to it or to a later phase. PyTorch stores
 * labels for each thread, and backward runs on other threads. So an entry without a label belongs
 * to backward if a backward pass is next. The thread that writes files begins phases without
 * entries, while the program's thread still has the number before. So numbers never go back.
 */
static void find_begins(const rvli_recording *recording, rvli_observed *observed)
{
    uint32_t number = 0;
    size_t next = 0;
    for (uint32_t i = 0; i < recording->event_count && next < observed->phase_count; i++) {
        const rvli_event_row *event = &recording->events[i];
        uint32_t said = number;
        if (event->label > 0)
            said = number_of_label(&recording->pickle, event->label);
        else if (event->action != RVLI_ACTION_SNAPSHOT)
            said = backward_next(observed, next, number);
        number = said > number ? said : number;
        while (next < observed->phase_count && observed->phases[next].number <= number)
            observed->phases[next++].begin = i;
    }
}

/* Returns the instant at which a phase begins. For an unknown phase, returns the end. */
static uint32_t begin_of(const rvli_observed *observed, uint32_t number, uint32_t end)
{
    size_t low = 0, high = observed->phase_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (observed->phases[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < observed->phase_count ? observed->phases[low].begin : end;
}

static void read_seen(rvli_observed *observed, rvli_snapshot_piece rest, uint32_t end)
{
    uint32_t number = number_of(next_word(&rest));
    rvli_snapshot_piece tag = next_word(&rest);
    uint32_t instant = begin_of(observed, number, end);
    /*
     * A phase that began before the first entry began in entries that the ring has lost, at an
     * unknown instant.
     */
    bool placed = number > 0 && (instant > 0 || end == 0);
    while (rest.length > 0) {
        uint64_t addr = next_address(&rest);
        if (addr != 0 && placed)
            observed->seen[observed->seen_count++] = (rvli_snapshot_seen){addr, instant, tag};
    }
}

/* Ignores marks in entries that the ring has lost: their instants are not known. */
static void read_mark(rvli_observed *observed, rvli_snapshot_piece rest, uint32_t end)
{
    uint32_t number = number_of(next_word(&rest));
    uint64_t us = next_address(&rest);
    uint32_t instant = begin_of(observed, number, end);
    if (number > 0 && us <= INT64_MAX && instant > 0)
        observed->marks[observed->mark_count++] = (rvli_snapshot_mark){(int64_t)us, instant};
}

static int by_time(const void *a, const void *b)
{
    const rvli_snapshot_mark *left = a, *right = b;
    if (left->us != right->us)
        return left->us < right->us ? -1 : 1;
    return (left->instant > right->instant) - (left->instant < right->instant);
}

rvl_status rvli_observed_read(const rvli_recording *recording, rvli_observed *observed_out)
{
    rvli_observed observed = {0};
    rvli_snapshot_piece rest;
    rvl_status status = make_room(recording, &observed);
    if (status != RVL_OK) {
        rvli_observed_clear(&observed);
        return status;
    }
    for (uint32_t i = 0; i < recording->annotation_count; i++) {
        if (!is_ours(recording, i, &rest))
            continue;
        rvli_snapshot_piece word = next_word(&rest);
        if (is(word, "phase"))
            read_phase(&observed, rest, recording->event_count);
        else if (is(word, "module"))
            read_module(&observed, rest);
        else if (is(word, "graphs"))
            read_graphs(&observed, rest);
    }
    qsort(observed.graphs, observed.graph_count, sizeof *observed.graphs, by_pool);
    qsort(observed.phases, observed.phase_count, sizeof *observed.phases, by_number);
    find_begins(recording, &observed);
    for (uint32_t i = 0; i < recording->annotation_count; i++) {
        if (!is_ours(recording, i, &rest))
            continue;
        rvli_snapshot_piece word = next_word(&rest);
        if (is(word, "seen"))
            read_seen(&observed, rest, recording->event_count);
        else if (is(word, "mark"))
            read_mark(&observed, rest, recording->event_count);
    }
    qsort(observed.marks, observed.mark_count, sizeof *observed.marks, by_time);
    qsort(observed.seen, observed.seen_count, sizeof *observed.seen, by_address);
    *observed_out = observed;
    return RVL_OK;
}

void rvli_observed_clear(rvli_observed *observed)
{
    free(observed->phases);
    free(observed->seen);
    free(observed->modules);
    free(observed->marks);
    free(observed->graphs);
    *observed = (rvli_observed){0};
}

uint32_t rvli_observed_mark(const rvli_observed *observed, int64_t us)
{
    size_t low = 0, high = observed->mark_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (observed->marks[middle].us <= us)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 && observed->marks[low - 1].us == us ? observed->marks[low - 1].instant
                                                        : UINT32_MAX;
}

/* Only a capture without a given pool makes a pool with a first number. */
bool rvli_observed_graphs(const rvli_observed *observed, rvli_pool_id pool)
{
    return !observed->graphs_told || pool.first != 0 ||
           bsearch(&pool, observed->graphs, observed->graph_count, sizeof pool, by_pool) != NULL;
}

const rvli_phase *rvli_observed_phase(const rvli_observed *observed, uint32_t instant)
{
    size_t low = 0, high = observed->phase_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (observed->phases[middle].begin <= instant)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &observed->phases[low - 1] : NULL;
}
