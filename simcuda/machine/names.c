/* SPDX-License-Identifier: MIT */
/* Names of processes, and which connections belong to one process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/machine/internal.h"

/* A name, and the number of processes that have it. */
struct rvli_known_name {
    rvli_known_name *next;
    uint64_t count;
    char text[];
};

/* Counts one more process with a name. NULL: out of memory. */
static rvli_known_name *count_name(rvli_machine *machine, const char *text)
{
    rvli_known_name *each = machine->names;
    while (each != NULL && strcmp(each->text, text) != 0)
        each = each->next;
    if (each == NULL) {
        size_t size = strlen(text) + 1;
        each = calloc(1, sizeof *each + size);
        if (each == NULL)
            return NULL;
        memcpy(each->text, text, size);
        each->next = machine->names;
        machine->names = each;
    }
    each->count++;
    return each;
}

static bool write_name(rvli_machine *machine, const rvli_wire_request *named,
                       char name[RVLI_WIRE_TEXT_BYTES])
{
    char text[RVLI_WIRE_TEXT_BYTES];
    snprintf(text, sizeof text, "%.200s", named->text[0] != '\0' ? named->text : "?");
    if (named->ranks == 1)
        snprintf(text + strlen(text), sizeof text - strlen(text), "[rank %u]", named->rank);
    const rvli_known_name *known = count_name(machine, text);
    if (known == NULL)
        return false;
    snprintf(name, RVLI_WIRE_TEXT_BYTES, "%.220s", text);
    size_t length = strlen(name);
    if (named->ranks != 1)
        snprintf(name + length, RVLI_WIRE_TEXT_BYTES - length, "[%llu]",
                 (unsigned long long)known->count);
    else if (known->count > 1) /* several processes with the name and the rank */
        snprintf(name + length, RVLI_WIRE_TEXT_BYTES - length, "#%llu",
                 (unsigned long long)known->count);
    return true;
}

/* Finds a process. Id 0 never matches: it is shown for every process of another PID namespace. */
static rvli_tenant *find(const rvli_machine *machine, pid_t pid)
{
    rvli_tenant *each = pid != 0 ? machine->tenants : NULL;
    while (each != NULL && each->pid != pid)
        each = each->next;
    return each;
}

static rvl_status add(rvli_machine *machine, pid_t pid, const rvli_wire_request *named,
                      rvli_tenant **tenant_out)
{
    rvli_tenant *made = calloc(1, sizeof *made);
    rvl_status status =
        made != NULL && write_name(machine, named, made->name) ? RVL_OK : RVL_ERR_HOST_OOM;
    if (status == RVL_OK)
        status = rvl_process_define(machine->context, made->name, &made->process);
    if (status != RVL_OK) {
        free(made);
        return status;
    }
    machine->named++;
    made->pid = pid;
    made->next = machine->tenants;
    *tenant_out = machine->tenants = made;
    return RVL_OK;
}

rvl_status rvli_name_client(rvli_machine *machine, rvli_client *client,
                            const rvli_wire_request *named)
{
    rvli_tenant *found = find(machine, client->pid);
    if (client->tenant != NULL)
        return RVL_ERR_STATE;
    rvl_status status = found != NULL ? RVL_OK : add(machine, client->pid, named, &found);
    if (status != RVL_OK)
        return status;
    client->tenant = found;
    found->connections++;
    return RVL_OK;
}

void rvli_name_drop(rvli_machine *machine, rvli_client *client)
{
    rvli_tenant *tenant = client->tenant, **link = &machine->tenants;
    client->tenant = NULL;
    if (tenant == NULL || --tenant->connections > 0)
        return;
    while (*link != tenant)
        link = &(*link)->next;
    *link = tenant->next;
    free(tenant);
}

void rvli_names_forget(rvli_machine *machine)
{
    while (machine->names != NULL) {
        rvli_known_name *first = machine->names;
        machine->names = first->next;
        free(first);
    }
}
