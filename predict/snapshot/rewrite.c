/* SPDX-License-Identifier: MIT */
/* Replaces the entries of a recording (predict/snapshot/rewrite.h). */
#include "predict/snapshot/rewrite.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "predict/snapshot/observed.h"
#include "predict/snapshot/tensors.h"

/*
 * Addresses of tensors that were never recorded: far above recorded ones, and never at the start of
 * a segment.
 */
#define MADE_UP_FIRST ((UINT64_C(3) << 60) + 16)
#define MADE_UP_STEP (UINT64_C(1) << 21)
/*
 * How many tensors to compare to find that two calls do the same. Comparing more would fail, since
 * the first call of a program allocates more later on.
 */
#define ALIKE_MOST 4u

/* Where the line is on a stack. */
typedef struct on_stack {
    uint32_t inside; /* rvli_stack_node + 1 of the frame that the line called; 0: none */
    bool is_there;
} on_stack;

/* One call of the line. Entries are numbered from 0. */
typedef struct call {
    uint32_t first, last; /* the entries of its first and last allocation */
    uint32_t end;         /* the first allocation behind it, by which it has returned */
    uint32_t first_tensor, end_tensor;
    uint32_t needed; /* the entry that makes the last tensor that backward needs */
    uint32_t again;  /* the entry where backward makes the call again; UINT32_MAX: never */
    uint32_t phase;  /* the phase that contains it */
} call;

typedef enum fate { FATE_OF_ITS_OWN, FATE_OF_CALL, FATE_OF_BACKWARD } fate;

typedef struct rewriter {
    rvli_recording *recording;
    const char *place;
    rvli_observed observed;
    rvli_tensors tensors;
    uint32_t *tensor_of; /* by entry: the tensor that it allocates or frees, + 1; 0: none */
    on_stack *stacks;    /* by stack */
    uint8_t *fates;      /* by tensor */
    uint64_t *again;     /* by tensor: its address in the recomputed call; 0: none */
    call *calls;
    uint32_t call_count, call_capacity;
    rvli_event_row *made;
    uint32_t made_count, made_capacity;
    uint64_t next_address;
} rewriter;

/* ---- Finding the line on stacks ---- */

static rvli_snapshot_piece text_of(const rvli_pickle *pickle, uint32_t text)
{
    if (text == 0)
        return (rvli_snapshot_piece){"", 0};
    const rvli_text_row *row = &pickle->texts[text - 1];
    return (rvli_snapshot_piece){(const char *)pickle->data + row->at, row->length};
}

bool rvli_rewrite_knows(const char *place)
{
    const char *colon = strrchr(place, ':');
    return colon != NULL && colon > place && colon[1] >= '1' && colon[1] <= '9' &&
           colon[1 + strspn(colon + 1, "0123456789")] == '\0' && strlen(colon) <= 8;
}

static bool is_the_line(const rewriter *of, const rvli_frame_row *frame)
{
    const char *colon = strrchr(of->place, ':');
    size_t length = (size_t)(colon - of->place);
    rvli_snapshot_piece file = text_of(&of->recording->pickle, frame->file);
    if (frame->line != (uint32_t)strtoul(colon + 1, NULL, 10) || file.length < length ||
        memcmp(file.text + file.length - length, of->place, length) != 0)
        return false;
    return file.length == length || file.text[file.length - length - 1] == '/';
}

/* Nodes go from the outermost frame inwards. If a line calls itself, the outer call counts. */
static bool look_at_stacks(rewriter *of)
{
    const rvli_pickle *pickle = &of->recording->pickle;
    bool *is_line = calloc(pickle->frame_count + (size_t)1, sizeof *is_line);
    if (is_line == NULL)
        return false;
    for (uint32_t i = 0; i < pickle->frame_count; i++)
        is_line[i] = is_the_line(of, &pickle->frames[i]);
    for (uint32_t i = 0; i < pickle->stack_count; i++) {
        uint32_t node = i + 1;
        while (node > 0 && !is_line[pickle->stacks[node - 1].frame])
            node = pickle->stacks[node - 1].inner;
        if (node > 0)
            of->stacks[i] = (on_stack){pickle->stacks[node - 1].inner, true};
    }
    free(is_line);
    return true;
}

/*
 * Whether the left of two stacks within the line's calls is earlier in the code. A call runs down
 * the lines of a function, so an allocation before the call's first one belongs to a new call. An
 * operation on a line comes after the calls within it.
 */
static bool is_before(const rvli_pickle *pickle, uint32_t left, uint32_t right)
{
    while (left > 0 && right > 0) {
        const rvli_stack_node *a = &pickle->stacks[left - 1], *b = &pickle->stacks[right - 1];
        const rvli_frame_row *x = &pickle->frames[a->frame], *y = &pickle->frames[b->frame];
        if (x->file != y->file || x->name != y->name)
            return false; /* another function that this line calls */
        if (x->line != y->line)
            return x->line < y->line;
        left = a->inner;
        right = b->inner;
    }
    return false;
}

/* ---- Calls ---- */

static const rvli_phase *backward_behind(const rewriter *of, uint32_t instant, uint32_t *end_out)
{
    for (size_t i = 0; i < of->observed.phase_count; i++) {
        const rvli_phase *phase = &of->observed.phases[i];
        if (phase->begin < instant || phase->kind != RVLI_PHASE_BACKWARD)
            continue;
        *end_out = i + 1 < of->observed.phase_count ? phase[1].begin : RVLI_NEVER;
        return phase;
    }
    return NULL;
}

static uint32_t phase_of(const rewriter *of, uint32_t instant)
{
    const rvli_phase *phase = rvli_observed_phase(&of->observed, instant);
    return phase != NULL ? (uint32_t)(phase - of->observed.phases) + 1 : 0;
}

static bool add_call(rewriter *of, call what)
{
    if (!RVLI_ROOM(of->calls, of->call_count, of->call_capacity, 64))
        return false;
    of->calls[of->call_count++] = what;
    return true;
}

/*
 * Whether a new call begins here, which makes what the open call made: the same stacks in the same
 * order. One call may also allocate twice on a line, as down(gelu(up(x))) does, and then goes on
 * differently. If all tensors so far have one stack, they may be of one operation that makes
 * several, and nothing is known yet.
 */
static bool repeats(const rewriter *of, const call *open, uint32_t index)
{
    const rvli_snapshot_tensor *list = of->tensors.list;
    const rvli_snapshot_tensor *first = &list[open->first_tensor];
    uint32_t made = index - open->first_tensor;
    bool several = false;
    for (uint32_t i = 0; i < made; i++)
        several = several || first[i].stack != first->stack;
    uint32_t length = made < ALIKE_MOST ? made : ALIKE_MOST;
    if (!several || length > of->tensors.count - index)
        return false;
    for (uint32_t i = 0; i < length; i++) {
        if (list[index + i].stack != first[i].stack)
            return false;
    }
    return true;
}

/* Whether a tensor belongs to the open call. */
static bool continues(const rewriter *of, const call *open, uint32_t index, uint32_t phase)
{
    const rvli_snapshot_tensor *list = of->tensors.list;
    uint32_t first = list[open->first_tensor].stack, here = list[index].stack;
    if (open->end_tensor != index || open->phase != phase)
        return false;
    if (here == first)
        return !repeats(of, open, index);
    return !is_before(&of->recording->pickle, of->stacks[here - 1].inside,
                      of->stacks[first - 1].inside);
}

static bool find_calls(rewriter *of)
{
    for (uint32_t i = 0; i < of->tensors.count; i++) {
        const rvli_snapshot_tensor *tensor = &of->tensors.list[i];
        if (tensor->begin == 0)
            continue;
        uint32_t entry = tensor->begin - 1, phase = phase_of(of, entry);
        call *open = of->call_count > 0 ? &of->calls[of->call_count - 1] : NULL;
        bool is_one = tensor->stack > 0 && of->stacks[tensor->stack - 1].is_there && phase > 0 &&
                      of->observed.phases[phase - 1].kind == RVLI_PHASE_BETWEEN;
        if (is_one && open != NULL && continues(of, open, i, phase)) {
            open->last = entry;
            open->end_tensor = i + 1;
            continue;
        }
        if (open != NULL && open->end == RVLI_NEVER)
            open->end = entry;
        if (is_one && !add_call(of, (call){.first = entry,
                                           .last = entry,
                                           .end = RVLI_NEVER,
                                           .first_tensor = i,
                                           .end_tensor = i + 1,
                                           .again = UINT32_MAX,
                                           .phase = phase}))
            return false;
    }
    return true;
}

/* ---- What a call keeps ---- */

/*
 * Whether a tensor was made for the backward pass after the call: that pass frees it, or the
 * recording ends before it is freed.
 */
static bool is_for_backward(const rewriter *of, const call *in, const rvli_snapshot_tensor *tensor)
{
    uint32_t end = RVLI_NEVER;
    const rvli_phase *next = backward_behind(of, in->first, &end);
    if (next == NULL)
        return tensor->end == RVLI_NEVER;
    return tensor->end == RVLI_NEVER ? end == RVLI_NEVER
                                     : tensor->end > next->begin && tensor->end <= end;
}

static bool frees_older(const rewriter *of, uint32_t entry, uint32_t than)
{
    const rvli_event_row *event = &of->recording->events[entry];
    uint32_t tensor = of->tensor_of[entry];
    bool is_free =
        event->action == RVLI_ACTION_FREE_REQUESTED || event->action == RVLI_ACTION_FREE_COMPLETED;
    return is_free && tensor > 0 && of->tensors.list[tensor - 1].begin <= than;
}

/*
 * Returns the entry where the operation begins that frees the first tensor, at `entry`. The
 * operation may first free memory that it allocated itself. Tensors left by earlier operations are
 * older than that memory.
 */
static uint32_t begin_of_operation(const rewriter *of, uint32_t entry)
{
    const rvli_phase *phase = rvli_observed_phase(&of->observed, entry);
    uint32_t pass = phase != NULL ? phase->begin : 0, kept = entry, begin = entry;
    while (kept > pass && !frees_older(of, kept - 1, pass)) /* of the forward pass */
        kept--;
    while (begin > kept && !frees_older(of, begin - 1, kept))
        begin--;
    return begin;
}

/* Returns whether the call keeps anything except the tensor that it returns. */
static bool look_at_call(rewriter *of, call *in)
{
    const rvli_snapshot_tensor *list = of->tensors.list;
    uint32_t returned = in->end_tensor, first_free = RVLI_NEVER;
    bool keeps = false;
    for (uint32_t i = in->end_tensor; i-- > in->first_tensor && returned == in->end_tensor;)
        if (list[i].end == RVLI_NEVER || list[i].end > in->end)
            returned = i;
    for (uint32_t i = in->first_tensor; i < in->end_tensor; i++) {
        bool stays = list[i].end == RVLI_NEVER || list[i].end > in->end;
        of->fates[i] = stays ? FATE_OF_ITS_OWN : FATE_OF_CALL;
        if (!stays || i == returned || !is_for_backward(of, in, &list[i]))
            continue;
        of->fates[i] = FATE_OF_BACKWARD;
        in->needed = list[i].begin - 1;
        keeps = true;
        if (list[i].end < first_free)
            first_free = list[i].end;
    }
    if (first_free != RVLI_NEVER)
        in->again = begin_of_operation(of, first_free - 1);
    return keeps;
}

/* ---- Entries ---- */

static bool put(rewriter *of, rvli_event_row event)
{
    if (of->made_count == of->made_capacity) {
        if (of->made_capacity > UINT32_MAX / 2)
            return false;
        uint32_t capacity = 2 * of->made_capacity + 1024;
        rvli_event_row *made = realloc(of->made, capacity * sizeof *made);
        if (made == NULL)
            return false;
        of->made = made;
        of->made_capacity = capacity;
    }
    of->made[of->made_count++] = event;
    return true;
}

/* Copies an entry with another action and address, at the time and in the phase of `at`. */
static rvli_event_row like(rvli_event_row event, uint8_t action, uint64_t addr,
                           const rvli_event_row *at)
{
    event.action = action;
    event.addr = addr;
    event.time_us = at->time_us;
    event.label = at->label;
    return event;
}

static bool put_free(rewriter *of, rvli_event_row made, uint64_t addr, const rvli_event_row *at)
{
    return put(of, like(made, RVLI_ACTION_FREE_REQUESTED, addr, at)) &&
           put(of, like(made, RVLI_ACTION_FREE_COMPLETED, addr, at));
}

static uint64_t make_up_address(rewriter *of)
{
    uint64_t addr = of->next_address;
    of->next_address += MADE_UP_STEP;
    return addr;
}

/* The call returns, and frees what it kept for backward. */
static bool put_return(rewriter *of, const call *in, const rvli_event_row *at)
{
    bool ok = true;
    for (uint32_t i = in->first_tensor; ok && i < in->end_tensor; i++) {
        const rvli_snapshot_tensor *tensor = &of->tensors.list[i];
        if (of->fates[i] == FATE_OF_BACKWARD)
            ok = put_free(of, of->recording->events[tensor->begin - 1], tensor->addr, at);
    }
    return ok;
}

/*
 * Makes the call again. Tensors that backward needs keep their recorded addresses, since the
 * entries that free them are still to come. The others are freed as they were recorded, or at the
 * end of the call.
 */
static bool put_again(rewriter *of, const call *in, const rvli_event_row *at)
{
    const rvli_event_row *events = of->recording->events;
    bool ok = true;
    for (uint32_t i = in->first; ok && i <= in->needed; i++) {
        uint32_t index = of->tensor_of[i];
        if (index == 0 || index - 1 < in->first_tensor || index - 1 >= in->end_tensor)
            continue;
        index--;
        bool needed = of->fates[index] == FATE_OF_BACKWARD;
        if (events[i].action == RVLI_ACTION_ALLOC) {
            uint64_t addr = needed ? events[i].addr : make_up_address(of);
            of->again[index] = needed ? 0 : addr;
            ok = put(of, like(events[i], RVLI_ACTION_ALLOC, addr, at));
        } else if (of->again[index] != 0) {
            ok = put(of, like(events[i], events[i].action, of->again[index], at));
            if (events[i].action == RVLI_ACTION_FREE_COMPLETED)
                of->again[index] = 0;
        }
    }
    for (uint32_t i = in->first_tensor; ok && i < in->end_tensor; i++) {
        if (of->again[i] != 0)
            ok = put_free(of, events[of->tensors.list[i].begin - 1], of->again[i], at);
        of->again[i] = 0;
    }
    return ok;
}

static bool put_met(rewriter *of, const rvli_event_row *refused)
{
    uint64_t addr = make_up_address(of);
    return put(of, like(*refused, RVLI_ACTION_ALLOC, addr, refused)) &&
           put_free(of, *refused, addr, refused);
}

/*
 * Sorts calls by the entry where they are made again. Backward goes from the last call to the
 * first.
 */
static int by_again(const void *a, const void *b)
{
    const call *const *left = a, *const *right = b;
    if ((*left)->again != (*right)->again)
        return (*left)->again < (*right)->again ? -1 : 1;
    return (*left)->first > (*right)->first ? -1 : 1; /* last call first */
}

static bool write_all(rewriter *of, bool meet_refused)
{
    const rvli_recording *recording = of->recording;
    const call **again = calloc(of->call_count + (size_t)1, sizeof(call *));
    uint32_t returned = 0, done = 0;
    bool ok = again != NULL;
    for (uint32_t i = 0; ok && i < of->call_count; i++)
        again[i] = &of->calls[i];
    if (ok && of->call_count > 0)
        qsort(again, of->call_count, sizeof(const call *), by_again);
    for (uint32_t i = 0; ok && i < recording->event_count; i++) {
        const rvli_event_row *event = &recording->events[i];
        for (; ok && returned < of->call_count && of->calls[returned].end <= i; returned++)
            ok = put_return(of, &of->calls[returned], event);
        for (; ok && done < of->call_count && again[done]->again <= i; done++)
            ok = put_again(of, again[done], event);
        if (ok && meet_refused && event->action == RVLI_ACTION_OOM)
            ok = put_met(of, event);
        else if (ok)
            ok = put(of, *event);
    }
    free(again);
    return ok;
}

/* ---- The rewrite ---- */

/* A free names only an address. Its tensor is the one at that address at the time. */
static bool find_tensors_of_entries(rewriter *of)
{
    of->tensor_of = calloc(of->recording->event_count + (size_t)1, sizeof *of->tensor_of);
    for (uint32_t i = 0; of->tensor_of != NULL && i < of->tensors.count; i++) {
        const rvli_snapshot_tensor *tensor = &of->tensors.list[i];
        if (tensor->begin > 0)
            of->tensor_of[tensor->begin - 1] = i + 1;
        if (tensor->end != RVLI_NEVER && tensor->end > 0)
            of->tensor_of[tensor->end - 1] = i + 1;
        if (tensor->done != RVLI_NEVER && tensor->done > 0)
            of->tensor_of[tensor->done - 1] = i + 1;
    }
    return of->tensor_of != NULL;
}

static rvl_status find_all(rewriter *of)
{
    rvl_status status = rvli_observed_read(of->recording, &of->observed);
    if (status == RVL_OK)
        status = rvli_tensors_find(of->recording, &of->tensors);
    if (status != RVL_OK)
        return status;
    of->stacks = calloc(of->recording->pickle.stack_count + (size_t)1, sizeof *of->stacks);
    of->fates = calloc(of->tensors.count + (size_t)1, sizeof *of->fates);
    of->again = calloc(of->tensors.count + (size_t)1, sizeof *of->again);
    if (of->stacks == NULL || of->fates == NULL || of->again == NULL ||
        !find_tensors_of_entries(of))
        return RVL_ERR_HOST_OOM;
    if (!look_at_stacks(of) || !find_calls(of))
        return RVL_ERR_HOST_OOM;
    bool any = false;
    for (uint32_t i = 0; i < of->call_count; i++)
        any = look_at_call(of, &of->calls[i]) || any;
    return any ? RVL_OK : RVL_ERR_NOT_FOUND;
}

rvl_status rvli_rewrite(rvli_recording *recording, const char *again, bool meet_refused)
{
    rewriter of = {.recording = recording, .place = again, .next_address = MADE_UP_FIRST};
    rvl_status status = again != NULL ? find_all(&of) : RVL_OK;
    if (status == RVL_OK && !write_all(&of, meet_refused))
        status = RVL_ERR_HOST_OOM;
    if (status == RVL_OK) {
        free(recording->own_events);
        recording->events = recording->own_events = of.made;
        recording->event_count = of.made_count;
        of.made = NULL;
    }
    free(of.made);
    free(of.calls);
    free(of.tensor_of);
    free(of.stacks);
    free(of.fates);
    free(of.again);
    rvli_tensors_clear(&of.tensors);
    rvli_observed_clear(&of.observed);
    return status;
}
