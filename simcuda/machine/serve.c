/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "simcuda/machine/internal.h"
#include "simcuda/machine/meeting.h"

/*
 * What a process's first use of a device takes, before it allocates anything: cuMemGetInfo on an
 * H200, CUDA 13.0, driver 580, says 552402944 bytes in use. Other kinds of card have the same
 * figure until one of them is measured.
 */
#define CONTEXT_BYTES UINT64_C(552402944)

uint64_t rvli_driver_share_bytes(const rvl_profile *profile)
{
    return profile->capacity_bytes > CONTEXT_BYTES ? CONTEXT_BYTES : 0;
}

/* The bytes on a device that a context holds, as the ledger calls them. */
static void name_share(const rvli_client *client, char cause[RVLI_WIRE_TEXT_BYTES])
{
    snprintf(cause, RVLI_WIRE_TEXT_BYTES, "CUDA context of %.200s", client->name);
}

void rvli_machine_tell_refusal(rvli_machine *machine, const rvli_client *client, int device,
                               uint64_t requested_bytes, uint64_t free_bytes)
{
    rvli_machine_refusal *refused = &machine->refused;
    if (refused->count++ > 0)
        return;
    refused->device = device;
    refused->requested_bytes = requested_bytes;
    refused->free_bytes = free_bytes;
    memcpy(refused->process, client->name, sizeof refused->process);
}

static uint64_t free_bytes(rvli_machine *machine, int device)
{
    uint64_t left = 0, total = 0;
    (void)rvl_device_get_memory(machine->context, device, &left, &total);
    return left;
}

/* ---- Requests ---- */

/* "train.py" says less than which of eight it is: the id goes with the program's name. */
static rvl_status greet(rvli_machine *machine, rvli_client *client,
                        const rvli_wire_request *request, rvli_wire_answer *answer)
{
    if (client->greeted || request->bytes != RVLI_WIRE_VERSION)
        return RVL_ERR_VERSION;
    snprintf(client->name, sizeof client->name, "%.200s[%ld]",
             request->text[0] != '\0' ? request->text : "?", (long)client->pid);
    rvl_status status = rvl_process_define(machine->context, client->name, &client->process);
    client->greeted = status == RVL_OK;
    machine->greeted += client->greeted;
    answer->count = (uint32_t)machine->gpus;
    return status;
}

static rvl_status describe(rvli_machine *machine, rvli_wire_answer *answer)
{
    answer->total_bytes = machine->profile.capacity_bytes;
    snprintf(answer->text, sizeof answer->text, "%s",
             machine->profile.name != NULL ? machine->profile.name : "");
    return RVL_OK;
}

static rvl_status take_share(rvli_machine *machine, rvli_client *client, int device)
{
    char cause[RVLI_WIRE_TEXT_BYTES];
    uint64_t bytes = rvli_driver_share_bytes(&machine->profile), bit = UINT64_C(1) << device;
    if (client->contexts & bit)
        return RVL_OK;
    name_share(client, cause);
    rvl_status status = rvl_external_set(machine->context, device, cause, bytes);
    if (status == RVL_OK)
        client->contexts |= bit;
    else if (status == RVL_ERR_DEVICE_OOM)
        rvli_machine_tell_refusal(machine, client, device, bytes, free_bytes(machine, device));
    return status;
}

static rvl_status allocate(rvli_machine *machine, rvli_client *client,
                           const rvli_wire_request *request, rvli_wire_answer *answer)
{
    rvl_addr addr = 0;
    rvl_alloc_options options = {.struct_size = sizeof options,
                                 .tag = request->text,
                                 .process = client->process,
                                 .device = request->device};
    rvl_status status = rvli_intmap_reserve(&client->memory);
    if (status == RVL_OK)
        status = rvl_alloc(machine->context, request->bytes, &options, &addr);
    if (status == RVL_OK)
        (void)rvli_intmap_insert(&client->memory, addr, 0); /* there is room */
    if (status == RVL_ERR_DEVICE_OOM)
        rvli_machine_tell_refusal(machine, client, request->device, request->bytes,
                                  free_bytes(machine, request->device));
    answer->id = addr;
    return status;
}

/* The address of another process, or none, is nobody's to free: the connection goes on. */
static void release(rvli_machine *machine, rvli_client *client, uint64_t addr)
{
    if (rvli_intmap_remove(&client->memory, addr, NULL))
        (void)rvl_free(machine->context, addr);
}

static rvl_status take_host(rvli_machine *machine, rvli_client *client, uint64_t bytes)
{
    uint64_t limit = machine->host_limit_bytes;
    uint64_t left = limit == 0 ? UINT64_MAX - machine->host_bytes : limit - machine->host_bytes;
    if (bytes > left) {
        rvli_machine_tell_refusal(machine, client, RVL_NO_DEVICE, bytes, left);
        return RVL_ERR_HOST_OOM;
    }
    client->host_bytes += bytes;
    machine->host_bytes += bytes;
    if (machine->host_bytes > machine->host_peak_bytes)
        machine->host_peak_bytes = machine->host_bytes;
    return RVL_OK;
}

static void give_host(rvli_machine *machine, rvli_client *client, uint64_t bytes)
{
    if (bytes > client->host_bytes)
        bytes = client->host_bytes;
    client->host_bytes -= bytes;
    machine->host_bytes -= bytes;
}

static rvl_status answer_to(rvli_machine *machine, rvli_client *client,
                            const rvli_wire_request *request, rvli_wire_answer *answer)
{
    switch ((rvli_wire_kind)request->kind) {
    case RVLI_WIRE_HELLO:
        return greet(machine, client, request, answer);
    case RVLI_WIRE_DEVICE:
        return describe(machine, answer);
    case RVLI_WIRE_CONTEXT:
        return take_share(machine, client, request->device);
    case RVLI_WIRE_ALLOC:
        return allocate(machine, client, request, answer);
    case RVLI_WIRE_MEMORY:
        return rvl_device_get_memory(machine->context, request->device, &answer->free_bytes,
                                     &answer->total_bytes);
    case RVLI_WIRE_HOST_TAKE:
        return take_host(machine, client, request->bytes);
    case RVLI_WIRE_STAGE:
        return rvl_stage(machine->context, request->text);
    case RVLI_WIRE_MEET:
        return rvli_meeting_join(machine, client, request, &answer->id);
    case RVLI_WIRE_MET:
        return rvli_meeting_ask(machine, request->id, answer->text);
    case RVLI_WIRE_BROUGHT:
        return rvli_meeting_read(machine, request->id, request->rank, &answer->id);
    case RVLI_WIRE_NCCL_TAKE:
        return rvli_nccl_take(machine, client, request->device, answer);
    case RVLI_WIRE_NCCL_GIVE:
        return rvli_nccl_give(machine, client, request->device);
    case RVLI_WIRE_FREE:
    case RVLI_WIRE_HOST_GIVE:
    case RVLI_WIRE_PART:
    case RVLI_WIRE_UNKNOWN:
        break;
    }
    return RVL_ERR_INVALID;
}

rvli_client_next rvli_client_serve(rvli_machine *machine, rvli_client *client,
                                   const rvli_wire_request *request, rvli_wire_answer *answer)
{
    bool first = request->kind == RVLI_WIRE_HELLO;
    if (request->kind < RVLI_WIRE_HELLO || request->kind > RVLI_WIRE_LAST ||
        client->greeted == first)
        return RVLI_CLIENT_END;
    if (request->kind == RVLI_WIRE_FREE) {
        release(machine, client, request->id);
        return RVLI_CLIENT_QUIET;
    }
    if (request->kind == RVLI_WIRE_HOST_GIVE) {
        give_host(machine, client, request->bytes);
        return RVLI_CLIENT_QUIET;
    }
    if (request->kind == RVLI_WIRE_PART) {
        rvli_meeting_part(machine, client, request->id, request->rank);
        return RVLI_CLIENT_QUIET;
    }
    if (request->kind == RVLI_WIRE_UNKNOWN) {
        rvli_unknown_count(&machine->unknown, request->bytes, request->text);
        return RVLI_CLIENT_QUIET;
    }
    bool known = request->device >= 0 && request->device < machine->gpus;
    answer->status = known ? answer_to(machine, client, request, answer) : RVL_ERR_NO_DEVICE;
    return RVLI_CLIENT_ANSWER;
}

void rvli_client_take_back(rvli_machine *machine, rvli_client *client)
{
    char cause[RVLI_WIRE_TEXT_BYTES];
    for (size_t i = 0; i < client->memory.capacity; i++)
        if (client->memory.slots[i].key != 0)
            (void)rvl_free(machine->context, client->memory.slots[i].key);
    rvli_intmap_destroy(&client->memory);
    name_share(client, cause);
    for (int device = 0; device < machine->gpus; device++)
        if (client->contexts & UINT64_C(1) << device)
            (void)rvl_external_set(machine->context, device, cause, 0);
    rvli_nccl_take_back(machine, client);
    rvli_meeting_forget(machine, client);
    give_host(machine, client, client->host_bytes);
}
