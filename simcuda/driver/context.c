/* SPDX-License-Identifier: MIT */
/*
 * Contexts: the device on which a thread works. The driver takes its share of a device for each
 * context (simcuda/machine/serve.c), and releases it when the context is destroyed. Memory
 * allocated in the context is freed with it. Code and streams are freed with the process's last
 * context on the device. Memory of pools, graphs and cuMemCreate stays.
 *
 * A device's primary context is made when it is retained. It is destroyed when its last user
 * releases it, and when it is reset; after a reset, its users must still release it. The next
 * retain makes it again, with the same handle. A destroyed context may still be current in some
 * thread: its calls return CUDA_ERROR_CONTEXT_IS_DESTROYED.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/capture.h"
#include "simcuda/driver/checkpoint.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/owed.h"
#include "simcuda/driver/pool.h"

#define DEVICES_MAX 64
#define DEPTH_MAX 64

struct CUctx_st {
    CUcontext next; /* in the list of non-primary contexts, alive or destroyed */
    int device;
    unsigned number; /* 0: a primary context */
    atomic_bool alive;
    unsigned flags;
    unsigned users; /* of a primary context */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st primaries[DEVICES_MAX];
static CUcontext own; /* made by the program; never freed, so that no handle is reused */
static unsigned numbers;
static unsigned alive[DEVICES_MAX]; /* number of contexts on each device */
static __thread CUcontext stack[DEPTH_MAX];
static __thread int depth;

void rvli_context_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    memset(alive, 0, sizeof alive);
    for (int device = 0; device < DEVICES_MAX; device++) {
        primaries[device].alive = false;
        primaries[device].users = 0;
    }
    for (CUcontext each = own; each != NULL; each = each->next)
        each->alive = false;
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
    if (!current()->alive)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    rvli_checkpoint_wait();
    *device_out = current()->device;
    return CUDA_SUCCESS;
}

CUresult rvli_current_alive(void)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && current() != NULL && !current()->alive)
        result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return result;
}

unsigned rvli_current_context(void)
{
    return current() != NULL ? current()->number : 0;
}

/* ---- Creation and destruction, with the lock held ---- */

static CUresult make(CUcontext context, int device)
{
    rvli_wire_answer answer;
    CUresult result = rvli_result(
        rvli_client_ask(RVLI_WIRE_CONTEXT, rvli_device_number(device), 0, NULL, &answer));
    if (result != CUDA_SUCCESS)
        return result;
    context->device = device;
    context->alive = true;
    alive[device]++;
    return CUDA_SUCCESS;
}

static void destroy(CUcontext context)
{
    const rvli_wire_request gone = {.kind = RVLI_WIRE_CONTEXT_GIVE,
                                    .device = rvli_device_number(context->device)};
    if (!context->alive)
        return;
    context->alive = false;
    rvli_memory_give_context(context->device, context->number);
    if (--alive[context->device] == 0)
        rvli_memory_give_device(context->device);
    rvli_client_post(&gone);
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
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    CUcontext of = &primaries[device];
    if (!of->alive)
        result = make(of, device);
    if (result == CUDA_SUCCESS) {
        of->users++;
        *context = of;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUresult result = check(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    CUcontext of = &primaries[device];
    if (of->users == 0)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else if (--of->users == 0)
        destroy(of);
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    CUresult result = check(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    destroy(&primaries[device]);
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
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
    *active = primaries[device].alive;
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

/* ---- Contexts made by the program ---- */

static CUresult create(CUcontext *context, unsigned int flags, CUdevice device)
{
    CUresult result = context == NULL ? CUDA_ERROR_INVALID_VALUE : check(device);
    CUcontext made = result == CUDA_SUCCESS && depth < DEPTH_MAX ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    pthread_mutex_lock(&mutex);
    result = make(made, device);
    if (result == CUDA_SUCCESS) {
        made->number = ++numbers;
        made->flags = flags;
        made->next = own;
        own = made;
    }
    pthread_mutex_unlock(&mutex);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    stack[depth++] = made;
    *context = made;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *context, CUctxCreateParams *parameters, unsigned int flags,
                     CUdevice device)
{
    (void)parameters;
    return create(context, flags, device);
}

/* Called by programs for CUDA 12 and earlier. CUDA 13's header has no prototypes for these. */
CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *parameters, int count,
                        unsigned int flags, CUdevice device);

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    return create(context, flags, device);
}

CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *parameters, int count,
                        unsigned int flags, CUdevice device)
{
    (void)parameters;
    (void)count;
    return create(context, flags, device);
}

CUresult cuCtxDestroy(CUcontext context)
{
    pthread_mutex_lock(&mutex);
    CUcontext found = own;
    while (found != NULL && found != context)
        found = found->next;
    CUresult result = context == NULL || found == NULL ? CUDA_ERROR_INVALID_CONTEXT
                      : !found->alive                  ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                       : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        destroy(found);
    pthread_mutex_unlock(&mutex);
    if (result == CUDA_SUCCESS && current() == context)
        depth--;
    return result;
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

/* Also works for a destroyed context. */
CUresult cuCtxGetDevice(CUdevice *device)
{
    CUresult result = device == NULL ? CUDA_ERROR_INVALID_VALUE : rvli_driver_ready();
    if (result == CUDA_SUCCESS && current() == NULL)
        result = CUDA_ERROR_INVALID_CONTEXT;
    if (result == CUDA_SUCCESS)
        *device = current()->device;
    return result;
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
        result = rvli_owed_settle_device(device);
    if (result == CUDA_SUCCESS)
        rvli_pools_settle();
    return result;
}

#if CUDA_VERSION >= 13000
/* context: current or not. NULL: the current one. */
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
