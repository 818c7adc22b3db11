/* SPDX-License-Identifier: MIT */
/*
 * Stages of processes. Each mark is written into the trace with its process. The open ranges are
 * kept here, so that the trace contains no end of a range without its beginning, and no more
 * open ranges than a trace may have.
 *
 * Each mark advances the machine's clock, so that the time between two marks has a length even
 * if the program requests nothing there.
 */
#include <stdlib.h>
#include <string.h>

#include "core/prefetch.h"
#include "reveille/record.h"
#include "simcuda/machine/internal.h"

#define RANGES_MAX 256u /* open ranges; the limit of docs/trace-format.md */

typedef struct range {
    uint64_t id;
    char name[RVLI_WIRE_TEXT_BYTES];
} range;

struct rvli_marks {
    uint64_t serial; /* number of its last mark, counted over all processes */
    uint32_t open;
    char flat[RVLI_WIRE_TEXT_BYTES];
    range ranges[RANGES_MAX];
};

/* Without host memory, the process's marks are ignored. */
static rvli_marks *marks_of(rvli_client *client)
{
    if (client->marks == NULL)
        client->marks = calloc(1, sizeof *client->marks);
    return client->marks;
}

/* wall_us: the process's wall clock at the mark; 0: unknown. */
static void record(rvli_machine *machine, const rvli_client *client, rvl_event_kind kind,
                   uint64_t id, const char *name, uint64_t wall_us)
{
    const rvl_mark mark = {.struct_size = sizeof mark,
                           .kind = kind,
                           .process = client->tenant->process,
                           .id = id,
                           .name = name};
    (void)rvl_private_let_pass(machine->context, 1);
    (void)rvl_record_mark(machine->context, &mark);
    rvli_times_mark(&machine->times, rvl_clock_ns(machine->context), (int64_t)wall_us);
    if (client->marks != NULL)
        client->marks->serial = ++machine->marks_made;
}

static range *find(rvli_marks *marks, uint64_t id)
{
    for (uint32_t i = marks->open; i > 0; i--)
        if (marks->ranges[i - 1].id == id)
            return &marks->ranges[i - 1];
    return NULL;
}

void rvli_marks_flat(rvli_machine *machine, rvli_client *client, const rvli_wire_request *mark)
{
    const char *name = mark->text;
    rvli_marks *marks = marks_of(client);
    if (marks == NULL || name[0] == '\0')
        return;
    memcpy(marks->flat, name, strnlen(name, sizeof marks->flat - 1) + 1);
    record(machine, client, RVL_EVENT_STAGE, 0, name, mark->bytes);
}

void rvli_marks_enter(rvli_machine *machine, rvli_client *client, const rvli_wire_request *mark)
{
    uint64_t id = mark->id;
    const char *name = mark->text;
    rvli_marks *marks = marks_of(client);
    if (marks == NULL || name[0] == '\0' || id == 0 || marks->open == RANGES_MAX ||
        find(marks, id) != NULL)
        return;
    range *opened = &marks->ranges[marks->open++];
    opened->id = id;
    memcpy(opened->name, name, strnlen(name, sizeof opened->name - 1) + 1);
    record(machine, client, RVL_EVENT_ENTER, id, name, mark->bytes);
}

void rvli_marks_leave(rvli_machine *machine, rvli_client *client, const rvli_wire_request *mark)
{
    uint64_t id = mark->id;
    rvli_marks *marks = client->marks;
    range *found = marks != NULL && id != 0 ? find(marks, id) : NULL;
    if (found == NULL)
        return;
    memmove(found, found + 1, (size_t)(marks->ranges + marks->open - (found + 1)) * sizeof *found);
    marks->open--;
    record(machine, client, RVL_EVENT_LEAVE, id, NULL, mark->bytes);
}

void rvli_marks_end(rvli_machine *machine, rvli_client *client)
{
    if (client->marks == NULL)
        return;
    record(machine, client, RVL_EVENT_LEAVE, 0, NULL, 0);
    free(client->marks);
    client->marks = NULL;
}

const char *rvli_marks_now(const rvli_machine *machine, int device)
{
    const rvli_marks *last = NULL;
    bool uses = false;
    for (const rvli_client *each = machine->clients; each != NULL; each = each->next) {
        bool here = each->contexts[device] > 0;
        if (each->marks == NULL || (uses && !here) ||
            (last != NULL && here == uses && each->marks->serial < last->serial))
            continue;
        last = each->marks;
        uses = here;
    }
    if (last == NULL)
        return NULL;
    return last->open > 0 ? last->ranges[last->open - 1].name : last->flat;
}
