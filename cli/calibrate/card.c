/* SPDX-License-Identifier: MIT */
#include "calibrate/card.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "reveille/cuda.h"

#define MEASURING_NS (UINT64_C(45) * 1000000000)

typedef struct entry {
    const char *name;
    int version;
    size_t offset;
    bool needed;
} entry;

#define NEEDED(name, version) {#name, version, offsetof(card, name), true},
#define OPTIONAL(name, version) {#name, version, offsetof(card, name), false},
static const entry entries[] = {CARD_ENTRY_MAP(NEEDED) CARD_OPTIONAL_MAP(OPTIONAL)};

static rvl_status find_entries(card *it)
{
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *pointer = NULL;
        rvl_status status = rvl_cuda_get_entry(entries[i].name, entries[i].version, &pointer);
        if (status == RVL_ERR_NOT_FOUND && !entries[i].needed)
            continue;
        if (status != RVL_OK)
            return status;
        memcpy((char *)it + entries[i].offset, &pointer, sizeof pointer);
    }
    return RVL_OK;
}

bool card_ok(card *it, CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return true;
    if (it->failed == NULL) {
        it->failed = what;
        it->result = result;
    }
    return false;
}

/* Stores the driver's error in the error record. Returns the status. */
static rvl_status refuse(const card *it)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    const char *name = NULL;
    if (it->cuGetErrorName == NULL || it->cuGetErrorName(it->result, &name) != CUDA_SUCCESS)
        name = "?";
    snprintf(message, sizeof message, "%s: the driver answers %s", it->failed, name);
    return rvli_error(
        it->result == CUDA_ERROR_OUT_OF_MEMORY ? RVL_ERR_DEVICE_OOM : RVL_ERR_NO_DEVICE, message);
}

rvl_status card_find(card *it, int ordinal)
{
    int rdma = 0;
    it->ordinal = ordinal;
    rvl_status status = find_entries(it);
    if (status != RVL_OK)
        return status;
    if (!card_ok(it, it->cuInit(0), "starting the driver") ||
        !card_ok(it, it->cuDriverGetVersion(&it->driver_version), "asking for its version") ||
        !card_ok(it, it->cuDeviceGet(&it->device, ordinal), "finding a card of this number") ||
        !card_ok(it, it->cuDeviceGetName(it->name, (int)sizeof it->name, it->device),
                 "asking for the card's name") ||
        !card_ok(it, it->cuDeviceGetPCIBusId(it->bus_id, (int)sizeof it->bus_id, it->device),
                 "asking for the card's bus id"))
        return refuse(it);
    if (it->cuDeviceGetAttribute(&rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                                 it->device) != CUDA_SUCCESS)
        rdma = 0;
    it->rdma = rdma != 0;
    return RVL_OK;
}

rvl_status card_open(card *it)
{
    size_t free_bytes = 0, total_bytes = 0, granularity = 0;
    const CUmemAllocationProp kind = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = it->ordinal},
    };
    if (!card_ok(it, it->cuDevicePrimaryCtxRetain(&it->context, it->device), "making a context") ||
        !card_ok(it, it->cuCtxSetCurrent(it->context), "using the context") ||
        !card_ok(it, it->cuMemGetInfo(&free_bytes, &total_bytes), "asking for free memory") ||
        !card_ok(it,
                 it->cuMemGetAllocationGranularity(&granularity, &kind,
                                                   CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                 "asking for the granularity"))
        return refuse(it);
    it->total_bytes = total_bytes;
    it->granularity_bytes = granularity;
    return RVL_OK;
}

rvl_status card_measure(card *it, bool (*part)(card *it))
{
    it->failed = NULL;
    if (part(it))
        return RVL_OK;
    return it->failed != NULL ? refuse(it) : rvli_error_get()->status;
}

void card_close(card *it)
{
    if (it->context == NULL)
        return;
    it->cuCtxSetCurrent(NULL);
    it->cuDevicePrimaryCtxRelease(it->device);
    it->context = NULL;
}

uint64_t card_free_bytes(card *it)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (!card_ok(it, it->cuMemGetInfo(&free_bytes, &total_bytes), "asking for free memory"))
        return 0;
    return free_bytes;
}

bool card_has_time(const card *it)
{
    return now_ns() - it->began_ns < MEASURING_NS;
}

/* The driver clears released memory at about 400 GiB/s (docs/fidelity/transitions.md). */
void settle(uint64_t released_bytes)
{
    sleep_ms(100 + (unsigned)(released_bytes / GIB) * 5);
}

void sleep_ms(unsigned milliseconds)
{
    struct timespec left = {.tv_sec = milliseconds / 1000,
                            .tv_nsec = milliseconds % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

void card_note_released(card *it, uint64_t bytes)
{
    it->released_bytes += bytes;
}

CUmemAllocationProp card_block(const card *it)
{
    CUmemAllocationProp kind = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = it->ordinal},
    };
    kind.allocFlags.gpuDirectRDMACapable = it->rdma;
    return kind;
}
