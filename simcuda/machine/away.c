/* SPDX-License-Identifier: MIT */
/*
 * Processes that are off their devices (simcuda/driver/checkpoint.c). Their allocations are paused
 * in the machine's context, without content, since nobody's content is there; what the driver and
 * NCCL hold for them goes and comes back.
 *
 * A process may be several clients: each simulated library has its own connection. They go
 * together.
 *
 * A communicator of several ranks has memory of the others open, unless it is suspended. So a
 * process that leaves with one never comes back, as two H100s had it (bench/gpu/driver/
 * checkpoint_ranks.py, bench/results/2026-11-26-h100-x2).
 */
#include "reveille/record.h"
#include "reveille/transition.h"
#include "simcuda/machine/internal.h"

static rvl_status set_shares(rvli_machine *machine, rvli_client *client, bool there)
{
    rvl_status status = RVL_OK;
    for (int device = 0; device < machine->gpus && status == RVL_OK; device++) {
        status =
            rvli_driver_share_set(machine, client, device, there ? client->contexts[device] : 0);
        if (status == RVL_OK)
            status =
                rvli_nccl_set(machine, client, device, there ? rvli_nccl_bytes(client, device) : 0);
    }
    return status;
}

static bool communicates(const rvli_machine *machine, const rvli_client *client)
{
    for (int device = 0; device < machine->gpus; device++)
        if (client->nccl[device].communicators[RVLI_WIRE_NCCL_MADE] > 0)
            return true;
    return false;
}

static rvl_status leave_alone(rvli_machine *machine, rvli_client *client)
{
    const rvl_pause_options options = {
        .struct_size = sizeof options, .flags = RVL_PAUSE_DISCARD, .process = client->process};
    rvl_status status = rvl_pause(machine->context, NULL, 0, &options);
    if (status != RVL_OK)
        return status;
    client->away = true;
    return set_shares(machine, client, false);
}

static rvl_status come_back_alone(rvli_machine *machine, rvli_client *client)
{
    const rvl_resume_options options = {
        .struct_size = sizeof options, .flags = RVL_RESUME_NO_RESTORE, .process = client->process};
    if (communicates(machine, client))
        return RVL_ERR_NOT_SUPPORTED;
    client->away = false;
    rvl_status status = set_shares(machine, client, true);
    if (status == RVL_OK)
        status = rvl_resume(machine->context, NULL, 0, &options);
    if (status != RVL_OK) {
        client->away = true;
        (void)set_shares(machine, client, false);
    }
    return status;
}

/* The verb frames the lines about its memory: ahead of them, or behind. */
static void mark(rvli_machine *machine, const rvli_client *client, rvl_event_kind kind)
{
    const rvl_mark asleep = {
        .struct_size = sizeof asleep, .kind = kind, .process = client->process};
    (void)rvl_record_mark(machine->context, &asleep);
}

static rvl_status move_one(rvli_machine *machine, rvli_client *client, bool away)
{
    if (away)
        mark(machine, client, RVL_EVENT_SLEEP);
    rvl_status status = away ? leave_alone(machine, client) : come_back_alone(machine, client);
    if (!client->away)
        mark(machine, client, RVL_EVENT_WAKE);
    return status;
}

static rvl_status move(rvli_machine *machine, pid_t pid, bool away)
{
    rvl_status status = RVL_OK;
    for (rvli_client *each = machine->clients; each != NULL && status == RVL_OK; each = each->next)
        if (each->pid == pid && each->greeted && each->away != away)
            status = move_one(machine, each, away);
    return status;
}

rvl_status rvli_away_set(rvli_machine *machine, rvli_client *client, bool away)
{
    if (client->away == away)
        return RVL_ERR_STATE;
    rvl_status status = move(machine, client->pid, away);
    if (status != RVL_OK)
        (void)move(machine, client->pid, !away);
    return status;
}
