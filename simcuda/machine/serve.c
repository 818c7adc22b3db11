/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <string.h>

#include "reveille/record.h"
#include "simcuda/machine/deposits.h"
#include "simcuda/machine/internal.h"
#include "simcuda/machine/meeting.h"
#include "simcuda/machine/shared.h"

/*
 * Memory of the driver on a device. It takes one share for each context of a process, before any
 * allocation, and a fixed amount while any process has a context. On an H200, CUDA 13.0, driver
 * 580, a second context takes 548995072 bytes, in the same process or in another
 * (bench/gpu/driver, probe.py ctx_driver; reveille calibrate, context_takes). The first takes
 * 3407872 more, which NVML shows from the first cuInit() on. The profile of a measured card has
 * its own figure for a context. The fixed amount was not measured there, so the H200's is used.
 * Other cards use both of the H200's figures.
 */
#define CONTEXT_BYTES UINT64_C(548995072)
#define ONCE_BYTES UINT64_C(3407872)
#define ONCE "CUDA driver"

static bool has_room(const rvl_profile *profile, uint64_t bytes)
{
    return profile->capacity_bytes > bytes + ONCE_BYTES;
}

uint64_t rvli_driver_share_bytes(const rvl_profile *profile)
{
    uint64_t bytes =
        profile->driver.context_bytes > 0 ? profile->driver.context_bytes : CONTEXT_BYTES;
    return has_room(profile, bytes) ? bytes : 0;
}

/* Zero on a device that is too small for a context. */
static uint64_t once_bytes(const rvl_profile *profile)
{
    return rvli_driver_share_bytes(profile) > 0 ? ONCE_BYTES : 0;
}

/* The ledger's name for the bytes of a process's contexts on a device. */
static void name_share(const rvli_client *client, char cause[RVLI_WIRE_TEXT_BYTES])
{
    snprintf(cause, RVLI_WIRE_TEXT_BYTES, "CUDA context of %.200s", client->tenant->name);
}

static bool has_context(const rvli_machine *machine, int device)
{
    for (const rvli_client *each = machine->clients; each != NULL; each = each->next)
        if (each->contexts[device] > 0 && !each->tenant->away)
            return true;
    return false;
}

/* The fixed amount is charged while any process has a context. */
static rvl_status settle_once(rvli_machine *machine, int device, bool wanted)
{
    return rvl_external_set(machine->context, device, ONCE,
                            wanted ? once_bytes(&machine->profile) : 0);
}

/* Only what a trace can express is recorded: not requests of 0 bytes, or of an excessive size. */
static void record_refusal(rvli_machine *machine, const rvli_client *client,
                           const rvl_refusal *refusal)
{
    rvl_refusal known = *refusal;
    known.struct_size = sizeof known;
    known.process = client->tenant->process;
    (void)rvl_record_refuse(machine->context, &known);
}

void rvli_machine_tell_refusal(rvli_machine *machine, const rvli_client *client, int device,
                               uint64_t requested_bytes, uint64_t free_bytes, const char *tag)
{
    rvli_machine_refusal *refused = &machine->refused;
    if (tag != NULL)
        record_refusal(machine, client,
                       &(rvl_refusal){.device = device,
                                      .requested_bytes = requested_bytes,
                                      .free_bytes = free_bytes,
                                      .tag = tag});
    if (refused->count++ > 0)
        return;
    refused->device = device;
    refused->requested_bytes = requested_bytes;
    refused->free_bytes = free_bytes;
    memcpy(refused->process, client->tenant->name, sizeof refused->process);
}

static uint64_t free_bytes(rvli_machine *machine, int device)
{
    uint64_t left = 0, total = 0;
    (void)rvl_device_get_memory(machine->context, device, &left, &total);
    return left;
}

/* ---- Requests ---- */

static void count_user(rvli_machine *machine, rvli_client *client)
{
    machine->users += !client->user;
    client->user = true;
}

/* Requests that a process without a GPU may make, such as a controller of workers. */
static bool is_mark(const rvli_wire_request *request)
{
    return request->kind == RVLI_WIRE_NAME || request->kind == RVLI_WIRE_END ||
           request->kind == RVLI_WIRE_STAGE || request->kind == RVLI_WIRE_ENTER ||
           request->kind == RVLI_WIRE_LEAVE || request->kind == RVLI_WIRE_ENGINE ||
           request->kind == RVLI_WIRE_LENGTH;
}

static rvl_status greet(rvli_machine *machine, rvli_client *client,
                        const rvli_wire_request *request, rvli_wire_answer *answer)
{
    if (client->greeted || request->bytes != RVLI_WIRE_VERSION)
        return RVL_ERR_VERSION;
    client->greeted = true;
    if (request->id == 0) /* else it only marks stages */
        count_user(machine, client);
    answer->count = (uint32_t)machine->gpus;
    return RVL_OK;
}

static rvl_status name(rvli_machine *machine, rvli_client *client, const rvli_wire_request *request,
                       rvli_wire_answer *answer)
{
    rvl_status status = rvli_name_client(machine, client, request);
    if (status == RVL_OK)
        memcpy(answer->text, client->tenant->name, sizeof answer->text);
    return status;
}

static rvl_status describe(rvli_machine *machine, rvli_wire_answer *answer)
{
    answer->total_bytes = machine->profile.capacity_bytes;
    answer->streams_bytes = machine->profile.driver.streams_bytes;
    answer->graph_bytes = machine->profile.driver.graph_bytes;
    answer->kernel_bytes = machine->profile.driver.first_kernel_bytes;
    snprintf(answer->text, sizeof answer->text, "%s",
             machine->profile.name != NULL ? machine->profile.name : "");
    return RVL_OK;
}

/* A program may have two copies of the driver's library, so other connections count, too. */
rvl_status rvli_driver_share_set(rvli_machine *machine, const rvli_client *client, int device,
                                 uint32_t contexts)
{
    char cause[RVLI_WIRE_TEXT_BYTES];
    name_share(client, cause);
    for (const rvli_client *each = machine->clients; each != NULL; each = each->next)
        if (each != client && each->tenant == client->tenant && !each->tenant->away)
            contexts += each->contexts[device];
    return rvl_external_set(machine->context, device, cause,
                            contexts * rvli_driver_share_bytes(&machine->profile));
}

static rvl_status take_share(rvli_machine *machine, rvli_client *client, int device)
{
    uint64_t bytes = rvli_driver_share_bytes(&machine->profile);
    rvl_status status = settle_once(machine, device, true);
    if (status == RVL_OK)
        status = rvli_driver_share_set(machine, client, device, client->contexts[device] + 1);
    if (status == RVL_OK)
        client->contexts[device]++;
    else
        (void)settle_once(machine, device, has_context(machine, device));
    if (status == RVL_ERR_DEVICE_OOM)
        rvli_machine_tell_refusal(machine, client, device, bytes, free_bytes(machine, device),
                                  "CUDA context");
    return status;
}

static void give_share(rvli_machine *machine, rvli_client *client, int device)
{
    if (device < 0 || device >= machine->gpus || client->contexts[device] == 0)
        return;
    client->contexts[device]--;
    (void)rvli_driver_share_set(machine, client, device, client->contexts[device]);
    (void)settle_once(machine, device, has_context(machine, device));
}

static rvl_status allocate(rvli_machine *machine, rvli_client *client,
                           const rvli_wire_request *request, rvli_wire_answer *answer)
{
    rvl_addr addr = 0;
    rvl_alloc_options options = {.struct_size = sizeof options,
                                 .tag = request->text,
                                 .process = client->tenant->process,
                                 .device = request->device};
    rvl_status status = rvli_intmap_reserve(&client->memory);
    if (status == RVL_OK)
        status = rvl_alloc(machine->context, request->bytes, &options, &addr);
    if (status == RVL_OK)
        (void)rvli_intmap_insert(&client->memory, addr, 1); /* reserved above */
    if (status == RVL_ERR_DEVICE_OOM)
        rvli_machine_tell_refusal(machine, client, request->device, request->bytes,
                                  free_bytes(machine, request->device), NULL);
    answer->id = addr;
    return status;
}

static rvl_status take_host(rvli_machine *machine, rvli_client *client, uint64_t kind,
                            uint64_t bytes)
{
    static const char *const names[] = {"pinned", "pageable"};
    if (kind >= RVLI_WIRE_HOST_KINDS)
        return RVL_ERR_INVALID;
    uint64_t limit = machine->host_limit_bytes == 0 ? UINT64_MAX : machine->host_limit_bytes;
    uint64_t *held = machine->host_bytes, all = held[RVLI_WIRE_PINNED] + held[RVLI_WIRE_PAGEABLE];
    if (bytes > limit - all) {
        rvli_machine_tell_refusal(machine, client, RVL_NO_DEVICE, bytes, limit - all, names[kind]);
        return RVL_ERR_HOST_OOM;
    }
    client->host_bytes[kind] += bytes;
    held[kind] += bytes;
    rvli_machine_host *peak = &machine->host_peak;
    if (all + bytes > peak->pinned_bytes + peak->pageable_bytes)
        *peak = (rvli_machine_host){held[RVLI_WIRE_PINNED], held[RVLI_WIRE_PAGEABLE]};
    return RVL_OK;
}

static void give_host(rvli_machine *machine, rvli_client *client, uint64_t kind, uint64_t bytes)
{
    if (kind >= RVLI_WIRE_HOST_KINDS)
        return;
    if (bytes > client->host_bytes[kind])
        bytes = client->host_bytes[kind];
    client->host_bytes[kind] -= bytes;
    machine->host_bytes[kind] -= bytes;
}

/* The fixed amount is released with the last process on a device. */
static rvl_status set_away(rvli_machine *machine, rvli_client *client, bool away)
{
    rvl_status status = rvli_away_set(machine, client->tenant, away);
    for (int device = 0; device < machine->gpus; device++)
        (void)settle_once(machine, device, has_context(machine, device));
    return status;
}

static rvl_status give_contents(const rvli_machine *machine, int *file_out)
{
    *file_out = rvli_shared_contents(machine->shared);
    return *file_out >= 0 ? RVL_OK : RVL_ERR_IO;
}

static rvl_status answer_to(rvli_machine *machine, rvli_client *client,
                            const rvli_wire_request *request, rvli_wire_answer *answer,
                            int *file_out)
{
    switch ((rvli_wire_kind)request->kind) {
    case RVLI_WIRE_HELLO:
        return greet(machine, client, request, answer);
    case RVLI_WIRE_NAME:
        return name(machine, client, request, answer);
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
        return take_host(machine, client, request->id, request->bytes);
    case RVLI_WIRE_STAGE:
        rvli_marks_flat(machine, client, request);
        return RVL_OK;
    case RVLI_WIRE_MEET:
        return rvli_meeting_join(machine, client, request, &answer->id);
    case RVLI_WIRE_MET:
        return rvli_meeting_ask(machine, request->id, answer->text);
    case RVLI_WIRE_BROUGHT:
        return rvli_meeting_read(machine, request->id, request->rank, &answer->id);
    case RVLI_WIRE_NCCL_TAKE:
        return rvli_nccl_take(machine, client, request->device, request->bytes, answer);
    case RVLI_WIRE_NCCL_GIVE:
        return rvli_nccl_give(machine, client, request->device, request->bytes);
    case RVLI_WIRE_EXPORT:
        return rvli_shared_export(machine, client, request->id, answer);
    case RVLI_WIRE_EXPORT_FILE:
        return rvli_shared_export_file(machine, client, request->id, answer, file_out);
    case RVLI_WIRE_OPEN:
        return rvli_shared_import(machine, client, request, RVLI_SHARED_BY_KEY, answer);
    case RVLI_WIRE_IMPORT:
        return rvli_shared_import(machine, client, request, RVLI_SHARED_BY_FILE, answer);
    case RVLI_WIRE_CONTENTS:
        return give_contents(machine, file_out);
    case RVLI_WIRE_BRING:
        return rvli_deposits_bring(machine, client, request, &answer->place);
    case RVLI_WIRE_COME:
        return rvli_deposits_come(machine, client, request, answer);
    case RVLI_WIRE_TAKE:
        return rvli_deposits_take(machine, client, request, answer);
    case RVLI_WIRE_DONE:
        return rvli_deposits_done(machine, request, answer);
    case RVLI_WIRE_AWAY:
        return set_away(machine, client, request->bytes != 0);
    case RVLI_WIRE_ENGINE:
        rvli_engines_note(machine, request);
        return RVL_OK;
    case RVLI_WIRE_LENGTH:
        rvli_lengths_note(machine, request->bytes);
        return RVL_OK;
    case RVLI_WIRE_ENTER:
        rvli_marks_enter(machine, client, request);
        return RVL_OK;
    case RVLI_WIRE_LEAVE:
        rvli_marks_leave(machine, client, request);
        return RVL_OK;
    case RVLI_WIRE_CONTEXT_GIVE:
    case RVLI_WIRE_REFUSED:
    case RVLI_WIRE_POOL:
    case RVLI_WIRE_FREE:
    case RVLI_WIRE_HOST_GIVE:
    case RVLI_WIRE_PART:
    case RVLI_WIRE_UNKNOWN:
    case RVLI_WIRE_ASSUMED:
    case RVLI_WIRE_RACE:
    case RVLI_WIRE_TAKEN:
    case RVLI_WIRE_WAITS:
    case RVLI_WIRE_END:
        break;
    }
    return RVL_ERR_INVALID;
}

bool rvli_client_is_quiet(const rvli_wire_request *request)
{
    bool range = request->kind == RVLI_WIRE_ENTER || request->kind == RVLI_WIRE_LEAVE;
    return (range && request->ranks == 0) || request->kind == RVLI_WIRE_CONTEXT_GIVE ||
           request->kind == RVLI_WIRE_REFUSED || request->kind == RVLI_WIRE_POOL ||
           request->kind == RVLI_WIRE_FREE || request->kind == RVLI_WIRE_HOST_GIVE ||
           request->kind == RVLI_WIRE_PART || request->kind == RVLI_WIRE_UNKNOWN ||
           request->kind == RVLI_WIRE_ASSUMED || request->kind == RVLI_WIRE_RACE ||
           request->kind == RVLI_WIRE_TAKEN || request->kind == RVLI_WIRE_WAITS ||
           request->kind == RVLI_WIRE_END;
}

/* Limits the pool to the card's memory: on a full card, the driver waits for the GPU instead. */
static void note_pool(rvli_machine *machine, const rvli_client *client,
                      const rvli_wire_request *request)
{
    rvli_machine_pool *most = &machine->pool;
    if (request->device < 0 || request->device >= machine->gpus)
        return;
    uint64_t room = request->id + free_bytes(machine, request->device);
    uint64_t bytes = request->bytes < room ? request->bytes : room;
    if (bytes < most->card_bytes)
        return;
    most->device = request->device;
    most->reserved_bytes = request->id;
    most->card_bytes = bytes;
    memcpy(most->process, client->tenant->name, sizeof most->process);
}

/* Keeps each text once, since all ranks report it. */
static void note_race(rvli_machine *machine, const char *what)
{
    rvli_machine_races *races = &machine->races;
    for (size_t i = 0; i < races->count; i++)
        if (strcmp(races->texts[i], what) == 0)
            return;
    if (races->count < RVLI_MACHINE_RACES)
        memcpy(races->texts[races->count++], what, RVLI_WIRE_TEXT_BYTES);
}

/* A program's own allocator has refused, after the driver's refusals or by its own limit. */
static void note_refusal(rvli_machine *machine, const rvli_client *client,
                         const rvli_wire_request *request)
{
    bool on_device = request->device >= 0 && request->device < machine->gpus;
    record_refusal(machine, client,
                   &(rvl_refusal){.device = on_device ? request->device : RVL_NO_DEVICE,
                                  .requested_bytes = request->bytes,
                                  .free_bytes = request->id,
                                  .where = request->text[0] != '\0' ? request->text : NULL,
                                  .flags = RVL_REFUSE_BY_ALLOCATOR});
}

/* Keeps the first, since the others may follow from it. */
static void note_wait(rvli_machine *machine, const char text[RVLI_WIRE_TEXT_BYTES])
{
    if (machine->waits[0] == '\0')
        memcpy(machine->waits, text, sizeof machine->waits);
}

static void take_note(rvli_machine *machine, rvli_client *client, const rvli_wire_request *request)
{
    if (request->kind == RVLI_WIRE_FREE)
        rvli_shared_release(machine, client, request->id);
    else if (request->kind == RVLI_WIRE_ENTER)
        rvli_marks_enter(machine, client, request);
    else if (request->kind == RVLI_WIRE_LEAVE)
        rvli_marks_leave(machine, client, request);
    else if (request->kind == RVLI_WIRE_CONTEXT_GIVE)
        give_share(machine, client, request->device);
    else if (request->kind == RVLI_WIRE_REFUSED)
        note_refusal(machine, client, request);
    else if (request->kind == RVLI_WIRE_POOL)
        note_pool(machine, client, request);
    else if (request->kind == RVLI_WIRE_HOST_GIVE)
        give_host(machine, client, request->id, request->bytes);
    else if (request->kind == RVLI_WIRE_PART)
        rvli_meeting_part(machine, client, request->id, request->rank);
    else if (request->kind == RVLI_WIRE_TAKEN)
        rvli_deposits_taken(machine, client, request);
    else if (request->kind == RVLI_WIRE_RACE)
        note_race(machine, request->text);
    else if (request->kind == RVLI_WIRE_WAITS)
        note_wait(machine, request->text);
    else if (request->kind == RVLI_WIRE_END)
        rvli_ends_note(machine, client->tenant, request);
    else if (request->kind == RVLI_WIRE_ASSUMED)
        rvli_unknown_count(&machine->assumed, request->bytes, request->text);
    else
        rvli_unknown_count(&machine->unknown, request->bytes, request->text);
}

static void note_time(rvli_machine *machine)
{
    if (machine->keeps_times)
        rvli_times_note(&machine->times, rvl_clock_ns(machine->context));
}

rvli_client_next rvli_client_serve(rvli_machine *machine, rvli_client *client,
                                   const rvli_wire_request *request, rvli_wire_answer *answer,
                                   int *file_out)
{
    bool first = request->kind == RVLI_WIRE_HELLO;
    if (request->kind < RVLI_WIRE_HELLO || request->kind > RVLI_WIRE_LAST ||
        client->greeted == first || (client->tenant == NULL && rvli_wire_needs_name(request)))
        return RVLI_CLIENT_END;
    if (!first && !is_mark(request))
        count_user(machine, client);
    if (rvli_client_is_quiet(request)) {
        take_note(machine, client, request);
        note_time(machine);
        return RVLI_CLIENT_QUIET;
    }
    bool known = request->device >= 0 && request->device < machine->gpus;
    answer->status =
        known ? answer_to(machine, client, request, answer, file_out) : RVL_ERR_NO_DEVICE;
    note_time(machine);
    return RVLI_CLIENT_ANSWER;
}

/* Removing an entry moves later ones up, so each slot is checked again until it is empty. */
static void release_all(rvli_machine *machine, rvli_client *client)
{
    for (size_t i = 0; i < client->memory.capacity; i++)
        while (client->memory.slots[i].key != 0)
            rvli_shared_release(machine, client, client->memory.slots[i].key);
    rvli_intmap_destroy(&client->memory);
}

void rvli_client_take_back(rvli_machine *machine, rvli_client *client)
{
    rvli_ends_lose(machine, client->tenant);
    rvli_marks_end(machine, client);
    release_all(machine, client);
    for (int device = 0; device < machine->gpus; device++)
        while (client->contexts[device] > 0)
            give_share(machine, client, device);
    rvli_nccl_take_back(machine, client);
    rvli_meeting_forget(machine, client);
    for (uint64_t kind = 0; kind < RVLI_WIRE_HOST_KINDS; kind++)
        give_host(machine, client, kind, client->host_bytes[kind]);
}
