/* SPDX-License-Identifier: MIT */
/*
 * The memory that NCCL takes on a device for a process, as external memory, "NCCL of NAME[PID]".
 *
 * Measured on two H200s with NVLink, CUDA 13.0, NCCL 2.28.9, without NVLS, by bench/gpu/driver
 * (torch2.py; bench/results/2026-11-22-h200-x2; docs/fidelity/libraries.md, "What NCCL takes").
 * A communicator of two ranks takes 196 MiB when it is made, and 288 MiB more with its first
 * collective. The first communicator of a process takes another 190 MiB, which stay, and so does
 * the first collective (186 MiB for an all-reduce, 4 MiB for a broadcast). 90 MiB of these are
 * for assert(), which PyTorch already has and which the driver counts (simcuda/nccl/memory.c).
 *
 * Sends and receives take more on a card, up to 384 MiB for each communicator and 58 MiB for
 * each process. They are not counted. Other cards and other numbers of ranks use these figures
 * until they are measured. A communicator of one rank needs no buffers for peers, and takes
 * nothing.
 */
#include <stdio.h>

#include "simcuda/machine/internal.h"

#define MIB (UINT64_C(1) << 20)
static const uint64_t communicator_bytes[RVLI_WIRE_NCCL_PARTS] = {
    [RVLI_WIRE_NCCL_MADE] = 196 * MIB, [RVLI_WIRE_NCCL_COLLECTIVE] = 288 * MIB};
static const uint64_t code_bytes[RVLI_WIRE_NCCL_PARTS] = {
    [RVLI_WIRE_NCCL_MADE] = 100 * MIB, [RVLI_WIRE_NCCL_COLLECTIVE] = 190 * MIB};

static uint64_t bytes_of(const rvli_nccl_share *share)
{
    uint64_t bytes = 0;
    for (int part = 0; part < RVLI_WIRE_NCCL_PARTS; part++)
        bytes += (share->code[part] ? code_bytes[part] : 0) +
                 share->communicators[part] * communicator_bytes[part];
    return bytes;
}

uint64_t rvli_nccl_bytes(const rvli_client *client, int device)
{
    return bytes_of(&client->nccl[device]);
}

rvl_status rvli_nccl_set(rvli_machine *machine, const rvli_client *client, int device,
                         uint64_t bytes)
{
    char cause[RVLI_WIRE_TEXT_BYTES];
    snprintf(cause, sizeof cause, "NCCL of %.200s", client->tenant->name);
    for (const rvli_client *each = machine->clients; each != NULL; each = each->next)
        if (each != client && each->tenant == client->tenant && !each->tenant->away)
            bytes += rvli_nccl_bytes(each, device);
    return rvl_external_set(machine->context, device, cause, bytes);
}

rvl_status rvli_nccl_take(rvli_machine *machine, rvli_client *client, int device, uint64_t part,
                          rvli_wire_answer *answer)
{
    if (part >= RVLI_WIRE_NCCL_PARTS)
        return RVL_ERR_INVALID;
    rvli_nccl_share before = client->nccl[device], after = before;
    after.communicators[part]++;
    after.code[part] = true;
    uint64_t left = 0, total = 0, wanted = bytes_of(&after) - bytes_of(&before);
    rvl_status status = rvli_nccl_set(machine, client, device, bytes_of(&after));
    if (status == RVL_OK)
        client->nccl[device] = after;
    if (status == RVL_ERR_DEVICE_OOM) {
        (void)rvl_device_get_memory(machine->context, device, &left, &total);
        rvli_machine_tell_refusal(machine, client, device, wanted, left, "NCCL");
    }
    answer->free_bytes = communicator_bytes[part];
    answer->total_bytes = wanted;
    return status;
}

rvl_status rvli_nccl_give(rvli_machine *machine, rvli_client *client, int device, uint64_t part)
{
    rvli_nccl_share *share = &client->nccl[device];
    if (part >= RVLI_WIRE_NCCL_PARTS || share->communicators[part] == 0)
        return RVL_ERR_STATE;
    share->communicators[part]--;
    return rvli_nccl_set(machine, client, device, bytes_of(share));
}

void rvli_nccl_take_back(rvli_machine *machine, rvli_client *client)
{
    for (int device = 0; device < machine->gpus; device++)
        if (bytes_of(&client->nccl[device]) > 0)
            (void)rvli_nccl_set(machine, client, device, 0);
}
