/* SPDX-License-Identifier: MIT */
/* The devices of an instance: look-up, loss, and making the context current. */
#include "backends/cuda/cuda.h"

#include "base/error.h"

rvl_status rvli_cuda_device_of(void *self, int number, rvli_cuda_device **device_out)
{
    rvli_cuda_instance *instance = self;
    if (number < 0 || number >= instance->device_count)
        return rvli_error(RVL_ERR_NO_DEVICE, "no such CUDA device in this context");
    rvli_cuda_device *device = &instance->devices[number];
    int lost = atomic_load_explicit(&device->lost, memory_order_relaxed);
    if (lost != 0)
        return rvli_cuda_check((CUresult)lost, "using a device that failed before");
    *device_out = device;
    return RVL_OK;
}

rvl_status rvli_cuda_device_check(rvli_cuda_device *device, CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return RVL_OK;
    rvl_status status = rvli_cuda_check(result, what);
    if (status == RVL_ERR_DEVICE_LOST)
        atomic_store_explicit(&device->lost, (int)result, memory_order_relaxed);
    return status;
}

/* ---- The calling thread ---- */

/*
 * During a capture in global mode, recording or waiting for an event on any thread would end the
 * capture, unless that thread is in relaxed mode. Relaxed is safe here: our streams are never part
 * of a capture.
 */
static _Thread_local CUstreamCaptureMode callers_mode __attribute__((tls_model("initial-exec")));

rvl_status rvli_cuda_enter(rvli_cuda_device *device)
{
    rvl_status status = rvli_cuda_device_check(device, rvli_cuda.cuCtxPushCurrent(device->context),
                                               "making the device's context current");
    if (status != RVL_OK)
        return status;
    callers_mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = rvli_cuda.cuThreadExchangeStreamCaptureMode(&callers_mode);
    if (result != CUDA_SUCCESS) {
        CUcontext popped;
        rvli_cuda.cuCtxPopCurrent(&popped);
    }
    return rvli_cuda_device_check(device, result, "setting the thread's capture mode");
}

void rvli_cuda_leave(void)
{
    CUcontext popped;
    rvli_cuda.cuThreadExchangeStreamCaptureMode(&callers_mode);
    rvli_cuda.cuCtxPopCurrent(&popped);
}
