/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/contents.h"
#include "simcuda/driver/graph_memory.h"

#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/capture.h"

#define DEVICES_MAX 64
#define CHUNK_BYTES ((size_t)32 << 20)

struct rvli_graph_memory {
    uint64_t base;
    size_t size_bytes;
    int device;
    unsigned owners; /* number of nodes, plus 1 while in use */
    bool in_use;
};

typedef struct shared {
    uint64_t *chunks; /* the machine's ids */
    size_t count;
    cuuint64_t used, used_high, reserved_high;
} shared;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static shared devices[DEVICES_MAX];

void rvli_graph_memory_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    memset(devices, 0, sizeof devices);
}

/* ---- The memory of a device, with the lock held ---- */

static CUresult grow(shared *of, int device, size_t bytes)
{
    size_t wanted = (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES, had = of->count;
    CUresult result = CUDA_SUCCESS;
    if (wanted <= had)
        return CUDA_SUCCESS;
    uint64_t *chunks = realloc(of->chunks, wanted * sizeof *chunks);
    if (chunks == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    of->chunks = chunks;
    while (result == CUDA_SUCCESS && of->count < wanted) {
        result = rvli_physical_take(device, CHUNK_BYTES, "graph memory", &chunks[of->count]);
        of->count += result == CUDA_SUCCESS;
    }
    while (result != CUDA_SUCCESS && of->count > had)
        rvli_physical_give(chunks[--of->count]);
    if (of->count * CHUNK_BYTES > of->reserved_high)
        of->reserved_high = of->count * CHUNK_BYTES;
    return result;
}

static void use(rvli_graph_memory *of)
{
    shared *all = &devices[of->device];
    of->in_use = true;
    of->owners++;
    all->used += of->size_bytes;
    all->used_high = all->used > all->used_high ? all->used : all->used_high;
}

/* Returns whether the last owner is gone. The caller then deletes the memory without the lock. */
static bool unuse(rvli_graph_memory *of)
{
    of->in_use = false;
    devices[of->device].used -= of->size_bytes;
    return --of->owners == 0;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + RVLI_PAGE_BYTES - 1) / RVLI_PAGE_BYTES * RVLI_PAGE_BYTES;
}

static void delete_memory(rvli_graph_memory *of)
{
    rvli_range range;
    if (rvli_range_take(of->base, RVLI_RANGE_GRAPH, &range))
        rvli_addresses_release(of->base, whole_pages(of->size_bytes));
    free(of);
}

/* ---- Addresses ---- */

static CUresult make(int device, size_t bytes, rvli_graph_memory **made_out)
{
    rvli_range range = {.kind = RVLI_RANGE_GRAPH, .device = device, .size_bytes = bytes};
    rvli_graph_memory *made = calloc(1, sizeof *made);
    if (made == NULL || bytes > SIZE_MAX / 2) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range.base = rvli_addresses_reserve(whole_pages(bytes), RVLI_PAGE_BYTES, 0);
    range.of = made;
    if (range.base == 0 || rvli_range_add(&range) != CUDA_SUCCESS) {
        if (range.base != 0)
            rvli_addresses_release(range.base, whole_pages(bytes));
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *made =
        (rvli_graph_memory){.base = range.base, .size_bytes = bytes, .device = device, .owners = 1};
    *made_out = made;
    return CUDA_SUCCESS;
}

void rvli_graph_memory_retain(rvli_graph_memory *of)
{
    pthread_mutex_lock(&mutex);
    of->owners++;
    pthread_mutex_unlock(&mutex);
}

void rvli_graph_memory_release(rvli_graph_memory *of)
{
    pthread_mutex_lock(&mutex);
    bool last = --of->owners == 0;
    pthread_mutex_unlock(&mutex);
    if (last)
        delete_memory(of);
}

static rvli_graph_memory *find(CUdeviceptr addr)
{
    rvli_range range;
    return rvli_range_find(addr, &range) && range.kind == RVLI_RANGE_GRAPH && range.base == addr
               ? range.of
               : NULL;
}

CUresult rvli_graph_memory_free(const rvli_range *range)
{
    rvli_graph_memory *of = range->of;
    rvli_contents_forget(range->base, range->size_bytes);
    pthread_mutex_lock(&mutex);
    bool was = of->in_use;
    bool last = was && unuse(of);
    pthread_mutex_unlock(&mutex);
    if (last)
        delete_memory(of);
    return was ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- Captures and nodes ---- */

static rvli_node_params alloc_params(int device, size_t bytes, rvli_graph_memory *of)
{
    return (rvli_node_params){
        .memory = {.alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                           .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                                        .id = device}},
                             .bytesize = bytes,
                             .dptr = of->base},
                   .of = of}};
}

CUresult rvli_graph_memory_capture(CUstream stream, int device, size_t bytes, CUdeviceptr *addr)
{
    rvli_graph_memory *made = NULL;
    bool captured = false;
    CUresult result = make(device, bytes, &made);
    if (result != CUDA_SUCCESS)
        return result;
    const rvli_node_params params = alloc_params(device, bytes, made);
    result = rvli_capture_work(stream, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &params, &captured);
    if (result == CUDA_SUCCESS && captured)
        *addr = made->base;
    else
        rvli_graph_memory_release(made);
    return result;
}

CUresult rvli_graph_memory_capture_free(CUstream stream, CUdeviceptr addr)
{
    bool captured;
    const rvli_node_params params = {.freed = addr};
    if (find(addr) == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return rvli_capture_work(stream, CU_GRAPH_NODE_TYPE_MEM_FREE, &params, &captured);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *wanted)
{
    rvli_graph_memory *made = NULL;
    if (wanted == NULL || wanted->bytesize == 0 ||
        wanted->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        !rvli_device_exists(wanted->poolProps.location.id))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = make(wanted->poolProps.location.id, wanted->bytesize, &made);
    if (result != CUDA_SUCCESS)
        return result;
    const rvli_node_params params = alloc_params(made->device, made->size_bytes, made);
    result = rvli_graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &params, before, count, node);
    if (result == CUDA_SUCCESS)
        wanted->dptr = made->base;
    else
        rvli_graph_memory_release(made);
    return result;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    if (node == NULL || params == NULL || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->params.memory.alloc;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                               size_t count, CUdeviceptr addr)
{
    const rvli_node_params params = {.freed = addr};
    if (find(addr) == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return rvli_graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_FREE, &params, before, count, node);
}

CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr *addr)
{
    if (node == NULL || addr == NULL || node->type != CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_INVALID_VALUE;
    *addr = node->params.freed;
    return CUDA_SUCCESS;
}

/* ---- Launches ---- */

static bool allocates(CUgraphNode node)
{
    return node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !node->disabled;
}

/* The peak of the nodes' bytes in use, above the bytes in use before. */
static size_t peak_of(CUgraphNode *order, size_t count)
{
    size_t now = 0, peak = 0;
    for (size_t i = 0; i < count; i++) {
        const rvli_graph_memory *freed =
            order[i]->type == CU_GRAPH_NODE_TYPE_MEM_FREE ? find(order[i]->params.freed) : NULL;
        if (allocates(order[i]))
            now += order[i]->params.memory.of->size_bytes;
        if (freed != NULL && freed->size_bytes <= now)
            now -= freed->size_bytes;
        peak = now > peak ? now : peak;
    }
    return peak;
}

CUresult rvli_graph_memory_prepare(CUgraphNode *order, size_t count, int device, bool auto_free)
{
    size_t peak = peak_of(order, count), left = 0;
    if (peak == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < count; i++)
        if (allocates(order[i]) && order[i]->params.memory.of->in_use)
            left += order[i]->params.memory.of->size_bytes;
    CUresult result = left > 0 && !auto_free ? CUDA_ERROR_INVALID_VALUE
                                             : grow(&devices[device], device,
                                                    (size_t)devices[device].used - left + peak);
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        if (allocates(order[i]) && order[i]->params.memory.of->in_use)
            (void)unuse(order[i]->params.memory.of); /* the node still owns it */
    pthread_mutex_unlock(&mutex);
    return result;
}

void rvli_graph_memory_do(CUgraphNode node)
{
    rvli_range range;
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
        if (rvli_range_find(node->params.freed, &range) && range.kind == RVLI_RANGE_GRAPH)
            (void)rvli_graph_memory_free(&range);
        return;
    }
    pthread_mutex_lock(&mutex);
    use(node->params.memory.of);
    pthread_mutex_unlock(&mutex);
}

/* ---- Graph memory of a device ---- */

static CUresult check_device(CUdevice device)
{
    CUresult result = rvli_driver_ready();
    return result == CUDA_SUCCESS && !rvli_device_exists(device) ? CUDA_ERROR_INVALID_DEVICE
                                                                 : result;
}

void rvli_graph_memory_trim(int device)
{
    pthread_mutex_lock(&mutex);
    shared *of = &devices[device];
    while (of->count > 0 && (of->count - 1) * CHUNK_BYTES >= of->used)
        rvli_physical_give(of->chunks[--of->count]);
    pthread_mutex_unlock(&mutex);
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    CUresult result = check_device(device);
    if (result == CUDA_SUCCESS)
        rvli_graph_memory_trim(device);
    return result;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    CUresult result = value == NULL ? CUDA_ERROR_INVALID_VALUE : check_device(device);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    const shared *of = &devices[device];
    switch ((int)attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
        *(cuuint64_t *)value = of->used;
        break;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *(cuuint64_t *)value = of->used_high;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *(cuuint64_t *)value = of->count * CHUNK_BYTES;
        break;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *(cuuint64_t *)value = of->reserved_high;
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    CUresult result = value == NULL ? CUDA_ERROR_INVALID_VALUE : check_device(device);
    if (result != CUDA_SUCCESS)
        return result;
    if (*(cuuint64_t *)value != 0 || (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH &&
                                      attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
        devices[device].used_high = devices[device].used;
    else
        devices[device].reserved_high = devices[device].count * CHUNK_BYTES;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}
