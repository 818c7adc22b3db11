/* SPDX-License-Identifier: MIT */
/*
 * The memory that NCCL takes on a device for a process, as external memory, "NCCL of NAME[PID]".
 *
 * Measured on two H200s with NVLink, CUDA 13.0, NCCL 2.28.9, without NVLS, by bench/gpu/driver
 * (torch2.py; bench/results/2026-11-22-h200-x2; docs/fidelity.md, "What NCCL takes"): a
 * communicator of two ranks has 484 MiB once it has done a collective, 196 before. A process's
 * first brings another 380 MiB, which stay: 190 when it is made, 186 with the first all-reduce, and
 * 4 with the first broadcast. 90 of them are what assert() needs, which PyTorch has already and
 * which the driver counts (simcuda/nccl/memory.c). Here all of it is taken with the communicator.
 * Sends and receives take more on a card, up to 384 MiB a communicator and 58 a process, which is
 * not counted. Other cards and other numbers of ranks have the same figures until they are
 * measured. A communicator of one rank has nobody to keep buffers for, and takes nothing.
 */
#include <stdio.h>

#include "simcuda/machine/internal.h"

#define MIB (UINT64_C(1) << 20)
#define COMMUNICATOR_BYTES (484 * MIB)
#define CODE_BYTES (290 * MIB)

static uint64_t bytes_of(const rvli_nccl_share *share)
{
    return (share->code ? CODE_BYTES : 0) + share->communicators * COMMUNICATOR_BYTES;
}

static rvl_status set_bytes(rvli_machine *machine, const rvli_client *client, int device,
                            uint64_t bytes)
{
    char cause[RVLI_WIRE_TEXT_BYTES];
    snprintf(cause, sizeof cause, "NCCL of %.200s", client->name);
    return rvl_external_set(machine->context, device, cause, bytes);
}

rvl_status rvli_nccl_take(rvli_machine *machine, rvli_client *client, int device,
                          rvli_wire_answer *answer)
{
    rvli_nccl_share before = client->nccl[device];
    rvli_nccl_share after = {before.communicators + 1, true};
    uint64_t left = 0, total = 0, wanted = bytes_of(&after) - bytes_of(&before);
    rvl_status status = set_bytes(machine, client, device, bytes_of(&after));
    if (status == RVL_OK)
        client->nccl[device] = after;
    if (status == RVL_ERR_DEVICE_OOM) {
        (void)rvl_device_get_memory(machine->context, device, &left, &total);
        rvli_machine_tell_refusal(machine, client, device, wanted, left);
    }
    answer->free_bytes = COMMUNICATOR_BYTES;
    answer->total_bytes = wanted;
    return status;
}

rvl_status rvli_nccl_give(rvli_machine *machine, rvli_client *client, int device)
{
    rvli_nccl_share *share = &client->nccl[device];
    if (share->communicators == 0)
        return RVL_ERR_STATE;
    share->communicators--;
    return set_bytes(machine, client, device, bytes_of(share));
}

void rvli_nccl_take_back(rvli_machine *machine, rvli_client *client)
{
    for (int device = 0; device < machine->gpus; device++)
        if (client->nccl[device].code)
            (void)set_bytes(machine, client, device, 0);
}
