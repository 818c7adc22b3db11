/* SPDX-License-Identifier: MIT */
/*
 * How processes end. If the command fails, the verdict names the first process that did not end
 * well, and how: by an uncaught error, by an exit status, or by neither, since a process that is
 * killed cannot report. Processes that end after the command are not counted: they were ended
 * with it.
 */
#include <inttypes.h>
#include <stdio.h>

#include "reveille/record.h"
#include "simcuda/machine/internal.h"

/* how NULL: the process did not report it. */
static void record(rvli_machine *machine, rvli_tenant *tenant, const char *how)
{
    const rvl_mark mark = {.struct_size = sizeof mark,
                           .kind = RVL_EVENT_FAIL,
                           .process = tenant->process,
                           .name = how};
    (void)rvl_record_mark(machine->context, &mark);
}

/* A lone process ends as the command does, which is known anyway. */
static bool is_alone(const rvli_machine *machine)
{
    return machine->named == 1;
}

void rvli_ends_note(rvli_machine *machine, rvli_tenant *tenant, const rvli_wire_request *request)
{
    char status[32];
    snprintf(status, sizeof status, "exit status %" PRIu64, request->bytes);
    bool error = request->text[0] != '\0';
    if (!tenant->ended && (error || (request->bytes != 0 && !is_alone(machine))))
        record(machine, tenant, error ? request->text : status);
    tenant->ended = true;
}

void rvli_ends_lose(rvli_machine *machine, rvli_tenant *tenant)
{
    if (tenant == NULL || tenant->ended || machine->over)
        return;
    if (!is_alone(machine))
        record(machine, tenant, NULL);
    tenant->ended = true;
}
