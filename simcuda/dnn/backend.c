/* SPDX-License-Identifier: MIT */
/*
 * Graphs of operations, their heuristics and plans. Descriptors are the planner's. There is one
 * difference: a handle never reaches the planner. Where cuDNN would go from a handle to its
 * device, the planner gets the device's properties. Executing a plan launches a kernel that does
 * nothing.
 *
 * cuDNN finds the handle of heuristics and engines through their graph, and a plan's handle in
 * the plan. So a table keeps the graphs and plans that have a handle.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "simcuda/dnn/dnn.h"

typedef struct holder {
    cudnnBackendDescriptor_t descriptor;
    cudnnHandle_t handle;
    UT_hash_handle hh;
} holder;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static holder *holders;

static cudnnStatus_t no_planner(void)
{
    return rvli_dnn_fail(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED, "there is no real cuDNN");
}

/* ---- The handle of a graph or a plan ---- */

static cudnnHandle_t handle_of(cudnnBackendDescriptor_t descriptor)
{
    holder *found;
    pthread_mutex_lock(&mutex);
    HASH_FIND_PTR(holders, &descriptor, found);
    cudnnHandle_t handle = found != NULL ? found->handle : NULL;
    pthread_mutex_unlock(&mutex);
    return handle;
}

static void forget(cudnnBackendDescriptor_t descriptor)
{
    holder *found;
    pthread_mutex_lock(&mutex);
    HASH_FIND_PTR(holders, &descriptor, found);
    if (found != NULL)
        HASH_DEL(holders, found);
    pthread_mutex_unlock(&mutex);
    free(found);
}

static cudnnStatus_t keep(cudnnBackendDescriptor_t descriptor, cudnnHandle_t handle)
{
    holder *added = calloc(1, sizeof *added);
    forget(descriptor);
    if (added == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no host memory");
    *added = (holder){.descriptor = descriptor, .handle = handle};
    pthread_mutex_lock(&mutex);
    HASH_ADD_PTR(holders, descriptor, added);
    bool good = added->hh.tbl != NULL;
    pthread_mutex_unlock(&mutex);
    if (good)
        return CUDNN_STATUS_SUCCESS;
    free(added);
    return rvli_dnn_fail(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no host memory");
}

/* ---- From a handle to the properties of its device ---- */

static cudnnStatus_t give_properties(const rvli_planner *planner,
                                     cudnnBackendDescriptor_t descriptor,
                                     cudnnBackendAttributeName_t name, cudnnHandle_t handle)
{
    if (handle == NULL)
        return CUDNN_STATUS_SUCCESS;
    return rvli_dnn_planned(
        planner->set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle->properties));
}

static cudnnStatus_t set_handle(const rvli_planner *planner, cudnnBackendDescriptor_t descriptor,
                                cudnnBackendAttributeName_t name, const void *elements)
{
    cudnnHandle_t handle = *(cudnnHandle_t const *)elements;
    if (handle == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "handle is NULL");
    cudnnStatus_t status = keep(descriptor, handle);
    if (status == CUDNN_STATUS_SUCCESS && name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        status = give_properties(planner, descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, handle);
    return status;
}

/* Heuristics and engines belong to a graph. Their device is that of the graph's handle. */
static cudnnStatus_t set_graph(const rvli_planner *planner, cudnnBackendDescriptor_t descriptor,
                               cudnnBackendAttributeName_t name, const void *elements)
{
    cudnnBackendDescriptor_t graph = *(cudnnBackendDescriptor_t const *)elements;
    cudnnStatus_t status = rvli_dnn_planned(
        planner->set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, elements));
    if (status == CUDNN_STATUS_SUCCESS)
        status = give_properties(planner, descriptor,
                                 name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH
                                     ? CUDNN_ATTR_ENGINEHEUR_DEVICEPROP
                                     : CUDNN_ATTR_ENGINE_DEVICEPROP,
                                 handle_of(graph));
    return status;
}

/* Describes a device by its number or a handle, for which cuDNN would ask the driver. */
static cudnnStatus_t set_device(const rvli_planner *planner, cudnnBackendDescriptor_t descriptor,
                                cudnnBackendAttributeName_t name, const void *elements)
{
    cudnnHandle_t handle;
    int32_t device = -1;
    if (name == CUDNN_ATTR_DEVICEPROP_DEVICE_ID)
        device = *(const int32_t *)elements;
    else if ((handle = *(cudnnHandle_t const *)elements) != NULL)
        device = handle->device;
    char *text = cuInit(0) == CUDA_SUCCESS ? rvli_dnn_properties(device) : NULL;
    if (text == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM, "there is no such device");
    cudnnStatus_t status = planner->set(descriptor, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, (int64_t)strlen(text), text);
    free(text);
    return rvli_dnn_planned(status);
}

/* ---- Entry points ---- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t descriptorType,
                                           cudnnBackendDescriptor_t *descriptor)
{
    const rvli_planner *planner = rvli_dnn_planner();
    return planner == NULL ? no_planner()
                           : rvli_dnn_planned(planner->create(descriptorType, descriptor));
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    const rvli_planner *planner = rvli_dnn_planner();
    if (planner == NULL)
        return no_planner();
    forget(descriptor);
    return rvli_dnn_planned(planner->destroy(descriptor));
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    const rvli_planner *planner = rvli_dnn_planner();
    return planner == NULL ? no_planner() : rvli_dnn_planned(planner->finalize(descriptor));
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t elementCount, const void *arrayOfElements)
{
    const rvli_planner *planner = rvli_dnn_planner();
    if (planner == NULL)
        return no_planner();
    bool one = descriptor != NULL && elementCount == 1 && arrayOfElements != NULL;
    switch ((int)attributeName) {
    case CUDNN_ATTR_OPERATIONGRAPH_HANDLE:
    case CUDNN_ATTR_EXECUTION_PLAN_HANDLE:
        if (one && attributeType == CUDNN_TYPE_HANDLE)
            return set_handle(planner, descriptor, attributeName, arrayOfElements);
        break;
    case CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH:
    case CUDNN_ATTR_ENGINE_OPERATION_GRAPH:
        if (one && attributeType == CUDNN_TYPE_BACKEND_DESCRIPTOR)
            return set_graph(planner, descriptor, attributeName, arrayOfElements);
        break;
    case CUDNN_ATTR_DEVICEPROP_HANDLE:
    case CUDNN_ATTR_DEVICEPROP_DEVICE_ID:
        if (one)
            return set_device(planner, descriptor, attributeName, arrayOfElements);
        break;
    default:
        break;
    }
    return rvli_dnn_planned(
        planner->set(descriptor, attributeName, attributeType, elementCount, arrayOfElements));
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t requestedElementCount, int64_t *elementCount,
                                       void *arrayOfElements)
{
    const rvli_planner *planner = rvli_dnn_planner();
    if (planner == NULL)
        return no_planner();
    cudnnHandle_t handle = NULL;
    if ((int)attributeName == CUDNN_ATTR_OPERATIONGRAPH_HANDLE ||
        (int)attributeName == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        handle = handle_of(descriptor);
    if (handle == NULL || requestedElementCount < 1 || arrayOfElements == NULL)
        return rvli_dnn_planned(planner->get(descriptor, attributeName, attributeType,
                                             requestedElementCount, elementCount, arrayOfElements));
    *(cudnnHandle_t *)arrayOfElements = handle;
    if (elementCount != NULL)
        *elementCount = 1;
    return CUDNN_STATUS_SUCCESS;
}

/* Checks only what is known of a plan here: that it has its workspace. */
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t executionPlan,
                                  cudnnBackendDescriptor_t variantPack)
{
    const rvli_planner *planner = rvli_dnn_planner();
    int64_t workspace_bytes = 0, count = 0;
    void *workspace = NULL;
    if (planner == NULL)
        return no_planner();
    if (handle == NULL || executionPlan == NULL || variantPack == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "an argument is NULL");
    cudnnStatus_t status = planner->get(executionPlan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                        CUDNN_TYPE_INT64, 1, &count, &workspace_bytes);
    if (status == CUDNN_STATUS_SUCCESS)
        status = planner->get(variantPack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
                              1, &count, (void *)&workspace);
    if (status == CUDNN_STATUS_SUCCESS && workspace_bytes > 0 && workspace == NULL)
        return rvli_dnn_fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the plan has no workspace");
    return status == CUDNN_STATUS_SUCCESS ? rvli_dnn_launch(handle) : rvli_dnn_planned(status);
}
