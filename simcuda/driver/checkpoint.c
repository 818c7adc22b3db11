/* SPDX-License-Identifier: MIT */
/*
 * The process checkpoint, for this process only. Its memory on the devices is released. Its
 * addresses stay reserved, and the content that is kept here stays known.
 *
 * It behaves as an H100 does, driver 580 (bench/gpu/driver/checkpoint.py,
 * bench/results/2026-11-24-h100/checkpoint.jsonl). A call out of turn returns
 * CUDA_ERROR_ILLEGAL_STATE. Managed memory is refused, and nothing changes. A process that has
 * another process's memory open can be checkpointed, but never restored. A process that finds no
 * room is never restored either: the first try returns CUDA_ERROR_OUT_OF_MEMORY, all later tries
 * CUDA_ERROR_OPERATING_SYSTEM. While a process is locked, its calls that need a context wait.
 *
 * Not simulated: checkpoints of other processes (CUDA_ERROR_NOT_SUPPORTED), and that memory
 * stays on the card while another process has it open.
 */
#include "simcuda/driver/checkpoint.h"

#include <unistd.h>

#include "simcuda/driver/client.h"
#include "simcuda/driver/ipc.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t unlocked = PTHREAD_COND_INITIALIZER;
static _Atomic CUprocessState state;
static bool lost;

void rvli_checkpoint_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    pthread_cond_init(&unlocked, NULL);
    state = CU_PROCESS_STATE_RUNNING;
    lost = false;
}

void rvli_checkpoint_wait(void)
{
    if (state == CU_PROCESS_STATE_RUNNING)
        return;
    pthread_mutex_lock(&mutex);
    while (state != CU_PROCESS_STATE_RUNNING)
        pthread_cond_wait(&unlocked, &mutex);
    pthread_mutex_unlock(&mutex);
}

static CUresult move(bool away)
{
    rvli_wire_answer answer;
    return rvli_result(rvli_client_ask(RVLI_WIRE_AWAY, 0, away, NULL, &answer));
}

static CUresult check(int process)
{
    CUresult result = rvli_driver_ready();
    return result == CUDA_SUCCESS && process != (int)getpid() ? CUDA_ERROR_NOT_SUPPORTED : result;
}

/* ---- Entry points ---- */

CUresult cuCheckpointProcessGetState(int process, CUprocessState *state_out)
{
    CUresult result = check(process);
    if (result == CUDA_SUCCESS && state_out == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *state_out = state;
    return result;
}

/* All work is complete at once, so there is nothing to wait for. */
CUresult cuCheckpointProcessLock(int process, CUcheckpointLockArgs *arguments)
{
    CUresult result = check(process);
    if (result == CUDA_SUCCESS && arguments != NULL && arguments->reserved0 != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    if (state == CU_PROCESS_STATE_RUNNING)
        state = CU_PROCESS_STATE_LOCKED;
    else
        result = CUDA_ERROR_ILLEGAL_STATE;
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuCheckpointProcessCheckpoint(int process, CUcheckpointCheckpointArgs *arguments)
{
    (void)arguments;
    CUresult result = check(process);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    if (state != CU_PROCESS_STATE_LOCKED)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (rvli_range_any(RVLI_RANGE_MANAGED))
        result = CUDA_ERROR_NOT_SUPPORTED;
    else
        result = move(true);
    if (result == CUDA_SUCCESS)
        state = CU_PROCESS_STATE_CHECKPOINTED;
    pthread_mutex_unlock(&mutex);
    return result;
}

/* Whether open memory of other processes prevents a restore. */
static CUresult check_foreign(void)
{
    if (rvli_ipc_any_open())
        return CUDA_ERROR_INVALID_VALUE;
    return rvli_vmm_any_imported() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuCheckpointProcessRestore(int process, CUcheckpointRestoreArgs *arguments)
{
    (void)arguments;
    CUresult result = check(process);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    if (state != CU_PROCESS_STATE_CHECKPOINTED) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (lost) {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    } else {
        result = check_foreign();
        if (result == CUDA_SUCCESS)
            result = move(false);
        lost = result != CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        state = CU_PROCESS_STATE_LOCKED;
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuCheckpointProcessUnlock(int process, CUcheckpointUnlockArgs *arguments)
{
    (void)arguments;
    CUresult result = check(process);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    if (state == CU_PROCESS_STATE_LOCKED) {
        state = CU_PROCESS_STATE_RUNNING;
        pthread_cond_broadcast(&unlocked);
    } else {
        result = CUDA_ERROR_ILLEGAL_STATE;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}
