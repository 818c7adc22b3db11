/* SPDX-License-Identifier: MIT */
/*
 * Contexts: which device a thread works on. The driver takes its share of a device with the first
 * context that a process has there (simcuda/machine/serve.c), and keeps it until the process ends.
 */
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/capture.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/pool.h"

#define DEVICES_MAX 64
#define DEPTH_MAX 64

struct CUctx_st {
    int device;
    bool primary;
    unsigned flags;
    unsigned users; /* of a primary one */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st primaries[DEVICES_MAX];
static __thread CUcontext stack[DEPTH_MAX];
static __thread int depth;

void rvli_context_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    memset(primaries, 0, sizeof primaries);
    depth = 0;
}

static CUcontext current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

CUresult rvli_current_device(int *device_out)
{
    CUresult result = rvli_driver_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (current() == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    *device_out = current()->device;
    return CUDA_SUCCESS;
}

static CUresult take_share(int device)
{
    rvli_wire_answer answer;
    return rvli_result(
        rvli_client_ask(RVLI_WIRE_CONTEXT, rvli_device_number(device), 0, NULL, &answer));
}

static CUresult check(CUdevice device)
{
    CUresult result = rvli_driver_ready();
    return result == CUDA_SUCCESS && !rvli_device_exists(device) ? CUDA_ERROR_INVALID_DEVICE
                                                                 : result;
}

/* ---- Primary contexts ---- */

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = context == NULL ? CUDA_ERROR_INVALID_VALUE : check(device);
    if (result == CUDA_SUCCESS)
        result = take_share(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    primaries[device].device = device;
    primaries[device].primary = true;
    primaries[device].users++;
    pthread_mutex_unlock(&mutex);
    *context = &primaries[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUresult result = check(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    if (primaries[device].users == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else
        primaries[device].users--;
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    CUresult result = check(device);
    if (result == CUDA_SUCCESS && (flags == NULL || active == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    *flags = primaries[device].flags;
    *active = primaries[device].users > 0;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
    CUresult result = check(device);
    if (result == CUDA_SUCCESS)
        primaries[device].flags = flags;
    return result;
}

/* ---- Contexts of the program's own ---- */

CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags,
                     CUdevice device)
{
    (void)parameters;
    CUresult result = context == NULL ? CUDA_ERROR_INVALID_VALUE : check(device);
    if (result == CUDA_SUCCESS)
        result = take_share(device);
    if (result == CUDA_SUCCESS && depth == DEPTH_MAX)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    CUcontext made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    made->device = device;
    made->flags = flags;
    stack[depth++] = made;
    *context = made;
    return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext context)
{
    if (context == NULL || context->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (current() == context)
        depth--;
    free(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && (context == NULL || depth == DEPTH_MAX))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        stack[depth++] = context;
    return result;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (result != CUDA_SUCCESS)
        return result;
    depth--;
    if (context != NULL)
        *context = stack[depth];
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = rvli_driver_ready();
    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL) {
        depth -= depth > 0;
        return CUDA_SUCCESS;
    }
    depth += depth == 0;
    stack[depth - 1] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *context = current();
    return result;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    return device == NULL ? CUDA_ERROR_INVALID_VALUE : rvli_current_device(device);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *flags = current()->flags;
    return result;
}

CUresult cuCtxSynchronize(void)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS)
        result = rvli_capture_wait_context();
    if (result == CUDA_SUCCESS)
        rvli_pools_settle();
    return result;
}

#if CUDA_VERSION >= 13000
/* Of a context, current or not. NULL: the current one. */
CUresult cuCtxSynchronize_v2(CUcontext context)
{
    if (context == NULL)
        return cuCtxSynchronize();
    CUresult result = cuCtxPushCurrent(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuCtxSynchronize();
    (void)cuCtxPopCurrent(NULL);
    return result;
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context)
{
    if (context == NULL)
        return cuCtxGetDevice(device);
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *device = context->device;
    return result;
}
#endif

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && least != NULL)
        *least = 0;
    if (result == CUDA_SUCCESS && greatest != NULL)
        *greatest = -5;
    return result;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result != CUDA_SUCCESS)
        return result;
    return peer == NULL || flags != 0 ? CUDA_ERROR_INVALID_VALUE
           : peer->device == device   ? CUDA_ERROR_INVALID_DEVICE
                                      : CUDA_SUCCESS;
}
