/* SPDX-License-Identifier: MIT */
/*
 * The process checkpoint, of this process alone, and the part of NVML that says what is free.
 *
 * As an H100 answers it, driver 580 (bench/gpu/driver/checkpoint.py): a call out of turn is
 * CUDA_ERROR_ILLEGAL_STATE and changes nothing; a restore without room is CUDA_ERROR_OUT_OF_MEMORY
 * once, then CUDA_ERROR_OPERATING_SYSTEM forever. Other calls wait on a card until the process is
 * unlocked. Here they answer CUDA_ERROR_NOT_READY and are counted, so that a test sees them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "internal.h"

static CUprocessState state;
static bool lost;
static uint64_t calls_meanwhile;

bool fake_process_runs(void)
{
    if (state == CU_PROCESS_STATE_RUNNING)
        return true;
    calls_meanwhile++;
    return false;
}

bool fake_process_is_away(void)
{
    return state == CU_PROCESS_STATE_CHECKPOINTED;
}

uint64_t fake_calls_asleep(void)
{
    FAKE_LOCKED;
    return calls_meanwhile;
}

void fake_process_reset(void)
{
    state = CU_PROCESS_STATE_RUNNING;
    lost = false;
    calls_meanwhile = 0;
}

/* ---- The checkpoint ---- */

static CUresult turn(int pid, CUprocessState from, CUprocessState to)
{
    if (pid != (int)getpid())
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (state != from)
        return CUDA_ERROR_ILLEGAL_STATE;
    state = to;
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessGetState(int pid, CUprocessState *state_out)
{
    FAKE_ENTER(cuCheckpointProcessGetState, FAKE_NEEDS_INIT);
    if (state_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (pid != (int)getpid())
        return CUDA_ERROR_OPERATING_SYSTEM;
    *state_out = state;
    return CUDA_SUCCESS;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args)
{
    FAKE_ENTER(cuCheckpointProcessLock, FAKE_NEEDS_INIT);
    if (args != NULL && args->reserved0 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    return turn(pid, CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED);
}

CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args)
{
    FAKE_ENTER(cuCheckpointProcessCheckpoint, FAKE_NEEDS_INIT);
    (void)args;
    return turn(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED);
}

CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args)
{
    FAKE_ENTER(cuCheckpointProcessRestore, FAKE_NEEDS_INIT);
    (void)args;
    if (lost)
        return CUDA_ERROR_OPERATING_SYSTEM;
    CUresult result = turn(pid, CU_PROCESS_STATE_CHECKPOINTED, CU_PROCESS_STATE_LOCKED);
    for (int device = 0; device < FAKE_MAX_DEVICES && result == CUDA_SUCCESS && !lost; device++)
        lost = fake_device_exists(device) && fake_used_bytes(device) > fake_room(device, false);
    if (result == CUDA_SUCCESS && lost) {
        state = CU_PROCESS_STATE_CHECKPOINTED;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args)
{
    FAKE_ENTER(cuCheckpointProcessUnlock, FAKE_NEEDS_INIT);
    (void)args;
    return turn(pid, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_RUNNING);
}

/* ---- NVML ---- */

typedef struct fake_nvml_memory {
    unsigned long long total, free, used;
} fake_nvml_memory;

FAKE_API int nvmlInit_v2(void);
FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device_out);
FAKE_API int nvmlDeviceGetMemoryInfo(void *device, fake_nvml_memory *memory_out);

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device_out)
{
    unsigned bus = 0;
    if (sscanf(bus_id, "%*x:%x", &bus) != 1)
        return 2;
    *device_out = (void *)(uintptr_t)bus;
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, fake_nvml_memory *memory_out)
{
    FAKE_LOCKED;
    int number = (int)(uintptr_t)device - FAKE_FIRST_PCI_BUS;
    if (!fake_device_exists(number))
        return 2;
    uint64_t capacity = fake_settings_get()->capacity_bytes;
    uint64_t room = fake_room(number, !fake_process_is_away());
    *memory_out = (fake_nvml_memory){.total = capacity, .free = room, .used = capacity - room};
    return 0;
}
