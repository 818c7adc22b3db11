/* SPDX-License-Identifier: MIT */
/*
 * The driver's process checkpoint, applied to this process. core/backend.h specifies each op.
 *
 * Measured on an H100, driver 580 (bench/gpu/driver/checkpoint.py): A call in the wrong state
 * returns CUDA_ERROR_ILLEGAL_STATE and changes nothing. A lock that times out returns
 * CUDA_ERROR_NOT_READY. With managed memory the checkpoint returns CUDA_ERROR_NOT_SUPPORTED; in a
 * client of MPS the lock does, and in a process that CUPTI records every call does. A restore
 * without room returns CUDA_ERROR_OUT_OF_MEMORY once, and CUDA_ERROR_OPERATING_SYSTEM forever
 * after.
 */
#include "backends/cuda/cuda.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/room.h"
#include "base/error.h"
#include "base/text.h"

/* CUprocessState */
enum { RUNNING, LOCKED, CHECKPOINTED };

static rvl_status check_there(void)
{
    return rvli_cuda_process.cuCheckpointProcessLock != NULL
               ? RVL_OK
               : rvli_error(RVL_ERR_NOT_SUPPORTED,
                            "the CUDA driver has no process checkpoint (cuCheckpointProcessLock): "
                            "install a driver of CUDA 12.8 or newer");
}

/*
 * Returns a process with events that are mapped here; 0: none. Shared events are in files named
 * after their process, /dev/shm/cuda.shm.USER.PROCESS.NUMBER. Shared memory leaves no trace in a
 * process, whether it came by CUDA IPC or as a descriptor (measured, H100, driver 580).
 */
static unsigned long find_foreign_events(void)
{
    char line[PATH_MAX + 128];
    unsigned long found = 0, user, process;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && found == 0 && fgets(line, sizeof line, maps) != NULL) {
        const char *name = strstr(line, "/dev/shm/cuda.shm.");
        char *end = NULL;
        if (name == NULL)
            continue;
        user = strtoul(name + sizeof "/dev/shm/cuda.shm." - 1, &end, 16);
        (void)user;
        process = *end == '.' ? strtoul(end + 1, &end, 16) : 0;
        if (*end == '.' && process != (unsigned long)getpid())
            found = process;
    }
    if (maps != NULL)
        fclose(maps);
    return found;
}

static rvl_status refuse_events(unsigned long process)
{
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "process ");
    rvli_text_add_u64(&text, process);
    rvli_text_add(&text, " shares events with this one (CUDA IPC), so its memory may be open here, "
                         "and no process with another's memory open comes back: close what it "
                         "shares, or say RVL_SLEEP_SHARED_EVENTS if only events are open");
    return rvli_error(RVL_ERR_BUSY, message);
}

/* The free memory was read once. Reading it takes a tenth of a second. */
static _Atomic bool room_is_known;

rvl_status rvli_cuda_op_process_check(void *self)
{
    uint64_t unused = 0;
    rvl_status status = check_there();
    if (status == RVL_OK && !atomic_load(&room_is_known))
        status = rvli_cuda_op_process_room(self, 0, &unused);
    if (status != RVL_OK)
        return status;
    atomic_store(&room_is_known, true);
    unsigned long process = find_foreign_events();
    return process != 0 ? refuse_events(process) : RVL_OK;
}

rvl_status rvli_cuda_op_process_state(void *self, rvli_process_state *state_out)
{
    int state = RUNNING;
    (void)self;
    rvl_status status = check_there();
    if (status != RVL_OK)
        return status;
    CUresult result = rvli_cuda_process.cuCheckpointProcessGetState((int)getpid(), &state);
    status = rvli_cuda_check(result, "asking for the state of the process");
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        rvli_error_message("the driver takes no process off its devices that a profiler records "
                           "(CUPTI, Nsight): end the recording, or start without it");
    if (status == RVL_OK)
        *state_out = state == RUNNING        ? RVLI_PROCESS_RUNNING
                     : state == LOCKED       ? RVLI_PROCESS_LOCKED
                     : state == CHECKPOINTED ? RVLI_PROCESS_AWAY
                                             : RVLI_PROCESS_LOST;
    return status;
}

rvl_status rvli_cuda_op_process_lock(void *self, uint32_t timeout_ms)
{
    rvli_cuda_lock_options options = {.timeout_ms = timeout_ms};
    (void)self;
    rvl_status status = check_there();
    if (status != RVL_OK)
        return status;
    CUresult result = rvli_cuda_process.cuCheckpointProcessLock((int)getpid(), &options);
    status = rvli_cuda_check(result, "locking the process");
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        rvli_error_message("the driver cannot lock the process: it takes no client of MPS off its "
                           "devices; start it without nvidia-cuda-mps-control");
    if (result != CUDA_ERROR_NOT_READY)
        return status;
    rvl_error cause = *rvli_error_get();
    rvli_error(RVL_ERR_TIMEOUT, "the devices are still at work: wait for it, or give more time");
    rvli_error_native(cause.native_code, cause.native_name);
    return RVL_ERR_TIMEOUT;
}

rvl_status rvli_cuda_op_process_checkpoint(void *self)
{
    (void)self;
    rvl_status status = check_there();
    if (status != RVL_OK)
        return status;
    CUresult result = rvli_cuda_process.cuCheckpointProcessCheckpoint((int)getpid(), NULL);
    status = rvli_cuda_check(result, "taking the process off its devices");
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        rvli_error_message("the driver cannot take the process off its devices: it has managed "
                           "memory (cudaMallocManaged); free that first");
    return status;
}

rvl_status rvli_cuda_op_process_restore(void *self)
{
    (void)self;
    rvl_status status = check_there();
    return status == RVL_OK
               ? rvli_cuda_check(rvli_cuda_process.cuCheckpointProcessRestore((int)getpid(), NULL),
                                 "bringing the process back to its devices")
               : status;
}

rvl_status rvli_cuda_op_process_unlock(void *self)
{
    (void)self;
    rvl_status status = check_there();
    return status == RVL_OK
               ? rvli_cuda_check(rvli_cuda_process.cuCheckpointProcessUnlock((int)getpid(), NULL),
                                 "unlocking the process")
               : status;
}

rvl_status rvli_cuda_op_process_room(void *self, int number, uint64_t *free_out)
{
    const rvli_cuda_instance *instance = self;
    if (number < 0 || number >= instance->device_count)
        return rvli_error(RVL_ERR_NO_DEVICE, "no such CUDA device in this context");
    return rvli_room_of(instance->devices[number].bus_id, free_out);
}
