/* SPDX-License-Identifier: MIT */
/*
 * Memory: what a communicator takes, which the machine counts (simcuda/machine/nccl.c), what
 * NCCL allocates for a program, and what a program registers.
 */
#include <stdlib.h>

#include "simcuda/driver/client.h"
#include "simcuda/driver/registered.h"
#include "simcuda/nccl/comm.h"

/* ---- Memory of a communicator ---- */

static void give_part(const rvli_comm *comm, rvli_wire_nccl_part part)
{
    rvli_wire_answer answer;
    (void)rvli_client_ask(RVLI_WIRE_NCCL_GIVE, comm->card, part, NULL, &answer);
}

/* Sizes are added up only the first time, since a resume takes the same memory again. */
static rvli_nccl_result take_part(rvli_comm *comm, rvli_wire_nccl_part part, bool first)
{
    rvli_wire_answer answer;
    rvl_status status = rvli_client_ask(RVLI_WIRE_NCCL_TAKE, comm->card, part, NULL, &answer);
    if (status == RVL_ERR_DEVICE_OOM)
        return rvli_nccl_driven(CUDA_ERROR_OUT_OF_MEMORY);
    if (status != RVL_OK)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "the machine answers with error %d",
                              (int)status);
    comm->suspendable_bytes += first ? answer.free_bytes : 0;
    comm->total_bytes += first ? answer.total_bytes : 0;
    return RVLI_NCCL_SUCCESS;
}

rvli_nccl_result rvli_comm_take_memory(rvli_comm *comm)
{
    bool first = comm->suspendable_bytes == 0;
    rvli_nccl_result result = take_part(comm, RVLI_WIRE_NCCL_MADE, first);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if (comm->used)
        result = take_part(comm, RVLI_WIRE_NCCL_COLLECTIVE, false);
    if (result == RVLI_NCCL_SUCCESS) { /* NCCL's kernels have asserts */
        result = rvli_nccl_driven(rvli_registered_assert(comm->device));
        if (result != RVLI_NCCL_SUCCESS && comm->used)
            give_part(comm, RVLI_WIRE_NCCL_COLLECTIVE);
    }
    if (result != RVLI_NCCL_SUCCESS) {
        give_part(comm, RVLI_WIRE_NCCL_MADE);
        if (first)
            comm->suspendable_bytes = comm->total_bytes = 0;
        return result;
    }
    comm->holds = true;
    return RVLI_NCCL_SUCCESS;
}

rvli_nccl_result rvli_comm_use_memory(rvli_comm *comm)
{
    if (comm->used || !comm->holds)
        return RVLI_NCCL_SUCCESS;
    rvli_nccl_result result = take_part(comm, RVLI_WIRE_NCCL_COLLECTIVE, true);
    comm->used = result == RVLI_NCCL_SUCCESS;
    return result;
}

void rvli_comm_give_memory(rvli_comm *comm)
{
    if (comm->holds && comm->used)
        give_part(comm, RVLI_WIRE_NCCL_COLLECTIVE);
    if (comm->holds)
        give_part(comm, RVLI_WIRE_NCCL_MADE);
    comm->holds = false;
}

/* ---- Memory for the program: separate physical memory, as in NCCL ---- */

static CUresult map_at(CUdeviceptr addr, size_t bytes, const CUmemAllocationProp *kind)
{
    const CUmemAccessDesc access = {.location = kind->location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUresult result = cuMemCreate(&handle, bytes, kind, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuMemMap(addr, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) {
        result = cuMemSetAccess(addr, bytes, &access, 1);
        if (result != CUDA_SUCCESS)
            (void)cuMemUnmap(addr, bytes);
    }
    (void)cuMemRelease(handle); /* it stays as long as it is mapped */
    return result;
}

static CUresult allocate(size_t size_bytes, void **memory_out)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    size_t grain = 0;
    CUdeviceptr addr = 0;
    CUresult result = cuCtxGetDevice(&kind.location.id);
    if (result == CUDA_SUCCESS)
        result = cuMemGetAllocationGranularity(&grain, &kind, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result == CUDA_SUCCESS && size_bytes > SIZE_MAX - grain)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        return result;
    size_t bytes = (size_bytes + grain - 1) / grain * grain;
    result = cuMemAddressReserve(&addr, bytes, grain, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = map_at(addr, bytes, &kind);
    if (result == CUDA_SUCCESS)
        *memory_out = (void *)addr;
    else
        (void)cuMemAddressFree(addr, bytes);
    return result;
}

rvli_nccl_result ncclMemAlloc(void **memory, size_t size_bytes)
{
    if (memory == NULL || size_bytes == 0)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "ncclMemAlloc: the size is 0, or there is no place for the address");
    return rvli_nccl_driven(allocate(size_bytes, memory));
}

rvli_nccl_result ncclMemFree(void *memory)
{
    CUdeviceptr base = 0;
    size_t bytes = 0;
    if (memory == NULL)
        return RVLI_NCCL_SUCCESS;
    CUresult result = cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)memory);
    if (result == CUDA_SUCCESS && base != (CUdeviceptr)memory)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = cuMemUnmap(base, bytes);
    return rvli_nccl_driven(result == CUDA_SUCCESS ? cuMemAddressFree(base, bytes) : result);
}

/* ---- Registration by a program. It takes no device memory. ---- */

struct rvli_window {
    uint64_t mark;
    void *memory;
};
#define WINDOW_MARK UINT64_C(0x72766c5f77696e64)

static rvli_nccl_result make_window(rvli_comm *comm, void *memory, size_t size_bytes,
                                    rvli_window **made)
{
    rvli_nccl_result result = rvli_comm_check_ready(comm);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if (memory == NULL || size_bytes == 0 || made == NULL)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "there is no memory to register");
    rvli_window *window = calloc(1, sizeof *window);
    if (window == NULL)
        return rvli_nccl_fail(RVLI_NCCL_SYSTEM_ERROR, "out of host memory");
    *window = (rvli_window){WINDOW_MARK, memory};
    *made = window;
    return RVLI_NCCL_SUCCESS;
}

static rvli_nccl_result free_window(rvli_comm *comm, rvli_window *window)
{
    rvli_nccl_result result = rvli_comm_check(comm);
    if (result != RVLI_NCCL_SUCCESS || window == NULL)
        return result;
    if (window->mark != WINDOW_MARK)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "this was not registered");
    window->mark = 0;
    free(window);
    return RVLI_NCCL_SUCCESS;
}

rvli_nccl_result ncclCommRegister(rvli_comm *comm, void *memory, size_t size_bytes, void **handle)
{
    return make_window(comm, memory, size_bytes, (rvli_window **)handle);
}

rvli_nccl_result ncclCommDeregister(rvli_comm *comm, void *handle)
{
    return free_window(comm, handle);
}

rvli_nccl_result ncclCommWindowRegister(rvli_comm *comm, void *memory, size_t size_bytes,
                                        rvli_window **window, int flags)
{
    if (((uintptr_t)memory & (RVLI_NCCL_WINDOW_ALIGNMENT - 1)) != 0)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT,
                              "ncclCommWindowRegister: the memory begins at no multiple of %d",
                              RVLI_NCCL_WINDOW_ALIGNMENT);
    (void)flags;
    return make_window(comm, memory, size_bytes, window);
}

rvli_nccl_result ncclCommWindowDeregister(rvli_comm *comm, rvli_window *window)
{
    return free_window(comm, window);
}

rvli_nccl_result ncclWinGetUserPtr(rvli_comm *comm, rvli_window *window, void **memory)
{
    rvli_nccl_result result = rvli_comm_check(comm);
    if (result != RVLI_NCCL_SUCCESS)
        return result;
    if (window == NULL || window->mark != WINDOW_MARK || memory == NULL)
        return rvli_nccl_fail(RVLI_NCCL_INVALID_ARGUMENT, "ncclWinGetUserPtr: no window");
    *memory = window->memory;
    return RVLI_NCCL_SUCCESS;
}

RVLI_NCCL_ALSO(ncclMemAlloc)
RVLI_NCCL_ALSO(ncclMemFree)
RVLI_NCCL_ALSO(ncclCommRegister)
RVLI_NCCL_ALSO(ncclCommDeregister)
RVLI_NCCL_ALSO(ncclCommWindowRegister)
RVLI_NCCL_ALSO(ncclCommWindowDeregister)
RVLI_NCCL_ALSO(ncclWinGetUserPtr)
