/* SPDX-License-Identifier: MIT */
/*
 * Stands in for cuDNN's libcudnn_graph.so.9: descriptors that keep what is set, and return it.
 * Like the real library when it plans without a device, it has no handles, and refuses them.
 */
#include <stdlib.h>
#include <string.h>

#include "simcuda/dnn/functions.h"

#define ATTRIBUTES 16
#define BYTES 4096

typedef struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    char bytes[BYTES];
} attribute;

typedef struct described {
    cudnnBackendDescriptorType_t type;
    int finalized;
    int count;
    attribute attributes[ATTRIBUTES];
} described;

static size_t element_bytes(cudnnBackendAttributeType_t type)
{
    return type == CUDNN_TYPE_CHAR ? 1 : type == CUDNN_TYPE_INT32 ? 4 : 8;
}

static attribute *find(described *of, cudnnBackendAttributeName_t name)
{
    for (int i = 0; i < of->count; i++)
        if (of->attributes[i].name == name)
            return &of->attributes[i];
    return NULL;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t descriptorType,
                                           cudnnBackendDescriptor_t *descriptor)
{
    described *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    made->type = descriptorType;
    *descriptor = made;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    free(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    ((described *)descriptor)->finalized = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t elementCount, const void *arrayOfElements)
{
    described *of = descriptor;
    size_t length = (size_t)elementCount * element_bytes(attributeType);
    if (attributeType == CUDNN_TYPE_HANDLE || length > BYTES)
        return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
    attribute *place = find(of, attributeName);
    if (place == NULL && of->count == ATTRIBUTES)
        return CUDNN_STATUS_INTERNAL_ERROR;
    if (place == NULL)
        place = &of->attributes[of->count++];
    place->name = attributeName;
    place->type = attributeType;
    place->count = elementCount;
    memcpy(place->bytes, arrayOfElements, length);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t requestedElementCount, int64_t *elementCount,
                                       void *arrayOfElements)
{
    described *of = descriptor;
    attribute *found = find(of, attributeName);
    if (!of->finalized)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    if (found == NULL || found->type != attributeType)
        return CUDNN_STATUS_BAD_PARAM;
    int64_t count = found->count < requestedElementCount ? found->count : requestedElementCount;
    *elementCount = found->count;
    if (count > 0)
        memcpy(arrayOfElements, found->bytes, (size_t)count * element_bytes(attributeType));
    return CUDNN_STATUS_SUCCESS;
}

/* PLANNER_VERSION: another version than the default. */
size_t cudnnGetVersion(void)
{
    const char *version = getenv("PLANNER_VERSION");
    return version != NULL ? strtoul(version, NULL, 10) : 91234;
}

size_t cudnnGetCudartVersion(void)
{
    return 13000;
}

size_t cudnnGetMaxDeviceVersion(void)
{
    return 1299;
}

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int *value)
{
    *value = 9 + (int)type;
    return CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "fine" : "not fine";
}

void cudnnGetLastErrorString(char *message, size_t max_size)
{
    strncpy(message, "the planner's reason", max_size);
}
