/* SPDX-License-Identifier: MIT */
/*
 * Primary contexts, and each thread's stack of current ones.
 *
 * A context stays after the release of its last reference in the list until fake_reset(), so that
 * using it is noticed; the next reference is to a new one. A reset empties the stacks of all
 * threads by changing the epoch that they belong to.
 */
#include <stdlib.h>

#include "internal.h"

#define STACK_DEPTH 64

typedef struct fake_stack {
    uint64_t epoch;
    int depth;
    CUcontext contexts[STACK_DEPTH];
} fake_stack;

static CUcontext contexts; /* newest first */
static uint64_t epoch = 1;
static _Thread_local fake_stack thread_stack;

static fake_stack *stack_get(void)
{
    if (thread_stack.epoch != epoch) {
        thread_stack.epoch = epoch;
        thread_stack.depth = 0;
    }
    return &thread_stack;
}

static CUcontext top(void)
{
    const fake_stack *stack = stack_get();
    return stack->depth > 0 ? stack->contexts[stack->depth - 1] : NULL;
}

/* Whether a handle is a context, and one that has not been destroyed. */
static CUresult check_handle(CUcontext handle)
{
    for (CUcontext each = contexts; each != NULL; each = each->next)
        if (each == handle)
            return each->references > 0 ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult fake_context_current(CUcontext *context_out)
{
    *context_out = top();
    return check_handle(*context_out);
}

CUresult fake_context_check(void)
{
    CUcontext context;
    CUresult result = fake_context_current(&context);
    return result == CUDA_SUCCESS ? context->error : result;
}

void fake_context_stats(fake_live *live)
{
    for (CUcontext each = contexts; each != NULL; each = each->next)
        live->context_references += each->references;
}

void fake_context_reset(void)
{
    while (contexts != NULL) {
        CUcontext context = contexts;
        contexts = context->next;
        free(context);
    }
    epoch++;
}

/* ---- Primary contexts ---- */

/* The primary context of a device, NULL if it has none. */
static CUcontext primary_of(int device)
{
    for (CUcontext each = contexts; each != NULL; each = each->next)
        if (each->device == device && each->references > 0)
            return each;
    return NULL;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    FAKE_ENTER(cuDevicePrimaryCtxRetain, FAKE_NEEDS_INIT);
    if (pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!fake_device_exists(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = primary_of(dev);
    if (context == NULL) {
        context = calloc(1, sizeof *context);
        if (context == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        context->device = dev;
        context->next = contexts;
        contexts = context;
    }
    context->references++;
    *pctx = context;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
    FAKE_ENTER(cuDevicePrimaryCtxRelease, FAKE_NEEDS_INIT);
    if (!fake_device_exists(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    CUcontext context = primary_of(dev);
    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (--context->references == 0)
        fake_streams_drop(context);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    FAKE_ENTER(cuDevicePrimaryCtxGetState, FAKE_NEEDS_INIT);
    if (flags == NULL || active == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (!fake_device_exists(dev))
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = primary_of(dev) != NULL;
    return CUDA_SUCCESS;
}

/* ---- The current context ---- */

static CUresult push(CUcontext context)
{
    fake_stack *stack = stack_get();
    if (stack->depth == STACK_DEPTH)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack->contexts[stack->depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *pctx)
{
    FAKE_ENTER(cuCtxGetCurrent, FAKE_NEEDS_INIT);
    if (pctx == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = top();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext ctx)
{
    FAKE_ENTER(cuCtxSetCurrent, FAKE_NEEDS_INIT);
    fake_stack *stack = stack_get();
    if (ctx == NULL) {
        stack->depth -= stack->depth > 0;
        return CUDA_SUCCESS;
    }
    CUresult result = check_handle(ctx);
    if (result != CUDA_SUCCESS)
        return result;
    if (stack->depth == 0)
        return push(ctx);
    stack->contexts[stack->depth - 1] = ctx;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext ctx)
{
    FAKE_ENTER(cuCtxPushCurrent, FAKE_NEEDS_INIT);
    CUresult result = check_handle(ctx);
    return result == CUDA_SUCCESS ? push(ctx) : result;
}

CUresult cuCtxPopCurrent(CUcontext *pctx)
{
    FAKE_ENTER(cuCtxPopCurrent, FAKE_NEEDS_INIT);
    fake_stack *stack = stack_get();
    if (stack->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack->depth--;
    if (pctx != NULL)
        *pctx = stack->contexts[stack->depth];
    return CUDA_SUCCESS;
}

/* ---- What is asked of a context; NULL: the current one ---- */

static CUresult context_or_current(CUcontext handle, CUcontext *context_out)
{
    if (handle == NULL)
        return fake_context_current(context_out);
    *context_out = handle;
    return check_handle(handle);
}

static CUresult get_device(CUcontext handle, CUdevice *device)
{
    CUcontext context;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_or_current(handle, &context);
    if (result == CUDA_SUCCESS)
        *device = context->device;
    return result;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    FAKE_ENTER(cuCtxGetDevice, FAKE_NEEDS_INIT);
    return get_device(NULL, device);
}

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    FAKE_ENTER(cuCtxGetDevice, FAKE_NEEDS_INIT);
    return get_device(ctx, device);
}

static CUresult synchronize(CUcontext handle)
{
    CUcontext context;
    CUresult result = context_or_current(handle, &context);
    if (result != CUDA_SUCCESS)
        return result;
    if (context->error != CUDA_SUCCESS)
        return context->error;
    return fake_streams_drain(context) ? context->error : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuCtxSynchronize(void)
{
    FAKE_ENTER(cuCtxSynchronize, FAKE_NEEDS_INIT);
    return synchronize(NULL);
}

CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
    FAKE_ENTER(cuCtxSynchronize, FAKE_NEEDS_INIT);
    return synchronize(ctx);
}
