/* SPDX-License-Identifier: MIT */
/*
 * Processes that are off their devices (simcuda/driver/checkpoint.c). Their allocations are
 * paused in the machine's context, without content, since the machine keeps no content. The
 * memory that the driver and NCCL hold for them is released and reclaimed.
 *
 * A communicator of several ranks holds open memory of the other ranks, unless it is suspended.
 * A process that leaves with such a communicator never comes back, as measured on two H100s
 * (bench/gpu/driver/checkpoint_ranks.py, bench/results/2026-11-26-h100-x2).
 */
#include "reveille/record.h"
#include "reveille/transition.h"
#include "simcuda/machine/internal.h"

/* Sets the shares of all connections of a process. */
static rvl_status set_shares(rvli_machine *machine, const rvli_tenant *tenant, bool there)
{
    rvl_status status = RVL_OK;
    for (const rvli_client *each = machine->clients; each != NULL; each = each->next)
        for (int device = 0; each->tenant == tenant && device < machine->gpus; device++) {
            if (status == RVL_OK)
                status = rvli_driver_share_set(machine, each, device,
                                               there ? each->contexts[device] : 0);
            if (status == RVL_OK)
                status =
                    rvli_nccl_set(machine, each, device, there ? rvli_nccl_bytes(each, device) : 0);
        }
    return status;
}

static bool communicates(const rvli_machine *machine, const rvli_tenant *tenant)
{
    for (const rvli_client *each = machine->clients; each != NULL; each = each->next)
        for (int device = 0; each->tenant == tenant && device < machine->gpus; device++)
            if (each->nccl[device].communicators[RVLI_WIRE_NCCL_MADE] > 0)
                return true;
    return false;
}

static rvl_status leave(rvli_machine *machine, rvli_tenant *tenant)
{
    const rvl_pause_options options = {
        .struct_size = sizeof options, .flags = RVL_PAUSE_DISCARD, .process = tenant->process};
    rvl_status status = rvl_pause(machine->context, NULL, 0, &options);
    if (status != RVL_OK)
        return status;
    tenant->away = true;
    return set_shares(machine, tenant, false);
}

static rvl_status come_back(rvli_machine *machine, rvli_tenant *tenant)
{
    const rvl_resume_options options = {
        .struct_size = sizeof options, .flags = RVL_RESUME_NO_RESTORE, .process = tenant->process};
    if (communicates(machine, tenant))
        return RVL_ERR_NOT_SUPPORTED;
    tenant->away = false;
    rvl_status status = set_shares(machine, tenant, true);
    if (status == RVL_OK)
        status = rvl_resume(machine->context, NULL, 0, &options);
    if (status != RVL_OK) {
        tenant->away = true;
        (void)set_shares(machine, tenant, false);
    }
    return status;
}

/* The mark encloses the lines about the memory: it comes before a pause's and after a resume's. */
static void mark(rvli_machine *machine, const rvli_tenant *tenant, rvl_event_kind kind)
{
    const rvl_mark asleep = {
        .struct_size = sizeof asleep, .kind = kind, .process = tenant->process};
    (void)rvl_record_mark(machine->context, &asleep);
}

rvl_status rvli_away_set(rvli_machine *machine, rvli_tenant *tenant, bool away)
{
    if (tenant->away == away)
        return RVL_ERR_STATE;
    if (away)
        mark(machine, tenant, RVL_EVENT_SLEEP);
    rvl_status status = away ? leave(machine, tenant) : come_back(machine, tenant);
    if (!tenant->away)
        mark(machine, tenant, RVL_EVENT_WAKE);
    return status;
}
