/* SPDX-License-Identifier: MIT */
/*
 * Handles, and the library's version.
 *
 * A handle has streams and a small piece of memory. On an H200, cudnnCreate() of cuDNN 9.19 took
 * 8 MiB for streams, no matter whether 0, 16 or 128 existed before. That is 15 or 16 streams
 * (simcuda/driver/share.c). It took 2 MiB more if no small allocation had a page yet
 * (bench/gpu/driver, "conv" and "ops", 2026-11-22, bench/results/2026-11-22-h200). The exact
 * size of the piece is unknown.
 */
#include <cuda.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/dnn/dnn.h"
#include "simcuda/wire/current.h"
#include "simcuda/wire/kernel.h"

static cudnnStatus_t describe(const rvli_planner *planner, int device,
                              cudnnBackendDescriptor_t *made_out)
{
    char *text = rvli_dnn_properties(device);
    if (text == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_NOT_INITIALIZED, "the device cannot be described");
    cudnnBackendDescriptor_t made = NULL;
    cudnnStatus_t status = planner->create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made);
    if (status == CUDNN_STATUS_SUCCESS)
        status = planner->set(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                              (int64_t)strlen(text), text);
    if (status == CUDNN_STATUS_SUCCESS)
        status = planner->finalize(made);
    free(text);
    if (status == CUDNN_STATUS_SUCCESS)
        *made_out = made;
    else if (made != NULL)
        (void)planner->destroy(made);
    return rvli_dnn_planned(status);
}

#define OWN_BYTES 1024
#define NEWEST_KNOWN 91900

static void give_back(cudnnHandle_t of)
{
    (void)cuCtxPushCurrent(of->context);
    for (size_t i = 0; i < RVLI_DNN_STREAMS; i++)
        if (of->streams[i] != NULL)
            (void)cuStreamDestroy(of->streams[i]);
    if (of->own != 0)
        (void)cuMemFree(of->own);
    (void)cuCtxPopCurrent(NULL);
}

static cudnnStatus_t take(cudnnHandle_t of)
{
    CUresult result = cuCtxGetCurrent(&of->context);
    for (size_t i = 0; i < RVLI_DNN_STREAMS && result == CUDA_SUCCESS; i++)
        result = cuStreamCreate(&of->streams[i], CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        result = cuMemAlloc(&of->own, OWN_BYTES);
    if (result == CUDA_SUCCESS)
        return CUDNN_STATUS_SUCCESS;
    give_back(of);
    return rvli_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                         "no device memory for the handle");
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    const rvli_planner *planner = rvli_dnn_planner();
    int device = 0;
    if (handle == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle is NULL");
    if (planner == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, "there is no real cuDNN");
    if (rvli_current_or_first(&device) != CUDA_SUCCESS)
        return rvli_dnn_fail(CUDNN_STATUS_NOT_INITIALIZED, "there is no device");
    cudnnHandle_t made = calloc(1, sizeof *made);
    if (made == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no host memory");
    made->device = device;
    cudnnStatus_t status = describe(planner, device, &made->properties);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = take(made);
        if (status != CUDNN_STATUS_SUCCESS)
            (void)planner->destroy(made->properties);
    }
    if (status == CUDNN_STATUS_SUCCESS)
        *handle = made;
    else
        free(made);
    return status;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    const rvli_planner *planner = rvli_dnn_planner();
    if (handle == NULL || planner == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle is NULL");
    (void)planner->destroy(handle->properties);
    give_back(handle);
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId)
{
    if (handle == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle is NULL");
    handle->stream = streamId;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *streamId)
{
    if (handle == NULL || streamId == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle or stream is NULL");
    *streamId = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t rvli_dnn_launch(cudnnHandle_t handle)
{
    return rvli_library_kernel(handle->stream) == CUDA_SUCCESS
               ? CUDNN_STATUS_SUCCESS
               : rvli_dnn_fail(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER,
                               "the kernel cannot be launched on the handle's stream");
}

/* ---- Versions: those of the real library, or the newest known ones if there is none ---- */

size_t cudnnGetVersion(void)
{
    const rvli_planner *planner = rvli_dnn_planner();
    return planner != NULL ? planner->version() : NEWEST_KNOWN;
}

size_t cudnnGetCudartVersion(void)
{
    const rvli_planner *planner = rvli_dnn_planner();
    return planner != NULL ? planner->runtime_version() : CUDA_VERSION;
}

size_t cudnnGetMaxDeviceVersion(void)
{
    const rvli_planner *planner = rvli_dnn_planner();
    return planner != NULL ? planner->newest_device() : 0;
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int *value)
{
    const rvli_planner *planner = rvli_dnn_planner();
    if (planner == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, "there is no real cuDNN");
    return rvli_dnn_planned(planner->property(type, value));
}
