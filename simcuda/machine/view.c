/* SPDX-License-Identifier: MIT */
/* The current state of the devices, for a watch: bytes in use, and the process with the most. */
#include <stdio.h>
#include <string.h>

#include "simcuda/machine/internal.h"

static rvli_tenant *tenant_of(const rvli_machine *machine, rvl_process process)
{
    rvli_tenant *each = machine->tenants;
    while (each != NULL && each->process != process)
        each = each->next;
    return each;
}

static bool is_seen(const rvli_tenant *tenant)
{
    return tenant != NULL && !tenant->away;
}

/* Counts the bytes of the driver, of NCCL and of allocations for each process. */
static void count_bytes(rvli_machine *machine)
{
    rvl_allocation each = {.struct_size = sizeof each};
    for (rvli_tenant *tenant = machine->tenants; tenant != NULL; tenant = tenant->next)
        memset(tenant->seen_bytes, 0, sizeof tenant->seen_bytes);
    for (const rvli_client *client = machine->clients; client != NULL; client = client->next)
        for (int device = 0; is_seen(client->tenant) && device < machine->gpus; device++)
            client->tenant->seen_bytes[device] +=
                rvli_nccl_bytes(client, device) +
                client->contexts[device] * rvli_driver_share_bytes(&machine->profile);
    for (rvl_addr from = 0; rvl_allocation_next(machine->context, from, &each) == RVL_OK;
         from = each.addr + 1) {
        rvli_tenant *tenant = tenant_of(machine, each.process);
        if (is_seen(tenant))
            tenant->seen_bytes[each.device] += each.size_bytes;
    }
}

static void find_most(const rvli_machine *machine, int device, rvli_machine_view *view)
{
    for (const rvli_tenant *each = machine->tenants; each != NULL; each = each->next) {
        if (each->seen_bytes[device] <= view->most_bytes)
            continue;
        view->most_bytes = each->seen_bytes[device];
        snprintf(view->most, sizeof view->most, "%s", each->name);
    }
}

void rvli_machine_look(rvli_machine *machine, rvli_machine_view *views_out)
{
    rvl_stage_stats stage = {.struct_size = sizeof stage};
    count_bytes(machine);
    for (int device = 0; device < machine->gpus; device++) {
        rvl_device_stats stats = {.struct_size = sizeof stats};
        const char *marked = rvli_marks_now(machine, device);
        (void)rvl_device_get_stats(machine->context, device, &stats);
        (void)rvl_stage_get_stats(machine->context, rvl_stage_count(machine->context) - 1, device,
                                  &stage);
        views_out[device] = (rvli_machine_view){.used_bytes = stats.used_bytes,
                                                .peak_bytes = stats.peak_bytes,
                                                .capacity_bytes = stats.capacity_bytes,
                                                .stage = marked != NULL ? marked : stage.name};
        find_most(machine, device, &views_out[device]);
    }
}
