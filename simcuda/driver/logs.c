/* SPDX-License-Identifier: MIT */
/*
 * The driver's error log, since CUDA 12.9. This driver writes none. PyTorch registers a callback
 * when it is imported. The callback is accepted and never called.
 */
#include <stdlib.h>

#include "simcuda/driver/driver.h"

#if CUDA_VERSION >= 12090

struct CUlogsCallbackEntry_st {
    CUlogsCallbackHandle next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static CUlogsCallbackHandle callbacks;

CUresult cuLogsRegisterCallback(CUlogsCallback callback, void *data,
                                CUlogsCallbackHandle *callback_out)
{
    (void)data;
    CUlogsCallbackHandle made = callback != NULL ? malloc(sizeof *made) : NULL;
    if (made == NULL)
        return callback != NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    made->next = callbacks;
    callbacks = made;
    pthread_mutex_unlock(&mutex);
    if (callback_out != NULL)
        *callback_out = made;
    return CUDA_SUCCESS;
}

CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle callback)
{
    pthread_mutex_lock(&mutex);
    CUlogsCallbackHandle *link = &callbacks;
    while (*link != NULL && *link != callback)
        link = &(*link)->next;
    CUlogsCallbackHandle found = *link;
    if (found != NULL)
        *link = found->next;
    pthread_mutex_unlock(&mutex);
    free(found);
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLogsCurrent(CUlogIterator *iterator, unsigned int flags)
{
    if (iterator == NULL || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *iterator = 0;
    return CUDA_SUCCESS;
}

CUresult cuLogsDumpToMemory(CUlogIterator *iterator, char *buffer, size_t *size, unsigned int flags)
{
    (void)iterator;
    if (buffer == NULL || size == NULL || *size == 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *buffer = '\0';
    *size = 0;
    return CUDA_SUCCESS;
}

#endif
