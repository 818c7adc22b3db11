/* SPDX-License-Identifier: MIT */
/*
 * Instantiated graphs: a copy of the graph, in execution order. A launch calls its host
 * functions and does its copies and fills. Kernels are accepted, but do not run.
 */
#include <stdlib.h>
#include <string.h>

#include "simcuda/driver/capture.h"
#include "simcuda/driver/code.h"
#include "simcuda/driver/graph_memory.h"
#include "simcuda/driver/share.h"

struct CUgraphExec_st {
    CUgraph graph;
    CUgraphNode *order;
    unsigned long long flags;
    int device;
    rvli_graph_needs needs;
};

static uint64_t arguments_of(CUgraphNode node, int device)
{
    const CUDA_KERNEL_NODE_PARAMS *of = &node->params.kernel;
    return rvli_code_arguments(device, of->func != NULL ? of->func : (CUfunction)of->kern);
}

static void add_needs(CUgraph graph, int device, rvli_graph_needs *needs)
{
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNode node = graph->nodes[i];
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL)
            rvli_graph_needs_add(needs, arguments_of(node, device));
        else if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            add_needs(node->params.child, device, needs);
    }
}

static void free_exec(CUgraphExec exec)
{
    if (exec->graph != NULL)
        rvli_graph_free(exec->graph);
    free(exec->order);
    free(exec);
}

/* Rejects a graph with a cycle, also in a child graph. What a child graph needs is checked when
 * it runs. */
static bool has_order(CUgraph graph)
{
    CUgraphNode *order = malloc((graph->count + 1) * sizeof(CUgraphNode));
    bool good = order != NULL && rvli_graph_order(graph, order);
    for (size_t i = 0; good && i < graph->count; i++)
        good = graph->nodes[i]->type != CU_GRAPH_NODE_TYPE_GRAPH ||
               has_order(graph->nodes[i]->params.child);
    free(order);
    return good;
}

static CUresult fill_exec(CUgraphExec made, CUgraph graph)
{
    made->graph = rvli_graph_copy(graph);
    made->order = malloc((graph->count + 1) * sizeof(CUgraphNode));
    if (made->graph == NULL || made->order == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!has_order(made->graph) || !rvli_graph_order(made->graph, made->order))
        return CUDA_ERROR_INVALID_VALUE;
    add_needs(made->graph, made->device, &made->needs);
    return rvli_share_graph(made->device, &made->needs);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && (exec == NULL || graph == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH))
        return CUDA_ERROR_NOT_SUPPORTED;
    CUgraphExec made = result == CUDA_SUCCESS ? calloc(1, sizeof *made) : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    made->flags = flags;
    made->device = device;
    result = fill_exec(made, graph);
    if (result == CUDA_SUCCESS)
        *exec = made;
    else
        free_exec(made);
    return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *parameters)
{
    if (parameters == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = cuGraphInstantiate(exec, graph, parameters->flags);
    parameters->hErrNode_out = NULL;
    parameters->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
    if (exec == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    rvli_share_graph_gone(exec->device, &exec->needs);
    free_exec(exec);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t *flags)
{
    if (exec == NULL || flags == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = exec->flags;
    return CUDA_SUCCESS;
}

/* ---- Launches ---- */

static CUresult do_copy(const CUDA_MEMCPY3D *copy, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    if (copy->srcMemoryType == CU_MEMORYTYPE_ARRAY || copy->dstMemoryType == CU_MEMORYTYPE_ARRAY)
        return CUDA_SUCCESS; /* arrays have no content */
    uint64_t from =
        copy->srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)copy->srcHost : copy->srcDevice;
    uint64_t to =
        copy->dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)copy->dstHost : copy->dstDevice;
    size_t from_height = copy->srcHeight > 0 ? copy->srcHeight : copy->Height;
    size_t to_height = copy->dstHeight > 0 ? copy->dstHeight : copy->Height;
    for (size_t z = 0; z < copy->Depth; z++)
        for (size_t y = 0; result == CUDA_SUCCESS && y < copy->Height; y++) {
            size_t from_row = (copy->srcZ + z) * from_height + copy->srcY + y;
            size_t to_row = (copy->dstZ + z) * to_height + copy->dstY + y;
            result = cuMemcpyAsync(to + to_row * copy->dstPitch + copy->dstXInBytes,
                                   from + from_row * copy->srcPitch + copy->srcXInBytes,
                                   copy->WidthInBytes, stream);
        }
    return result;
}

static CUresult do_fill(const CUDA_MEMSET_NODE_PARAMS *fill, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t y = 0; result == CUDA_SUCCESS && y < fill->height; y++) {
        CUdeviceptr row = fill->dst + y * fill->pitch;
        if (fill->elementSize == 1)
            result = cuMemsetD8Async(row, (unsigned char)fill->value, fill->width, stream);
        else if (fill->elementSize == 2)
            result = cuMemsetD16Async(row, (unsigned short)fill->value, fill->width, stream);
        else
            result = cuMemsetD32Async(row, fill->value, fill->width, stream);
    }
    return result;
}

static CUresult do_graph(CUgraph graph, CUstream stream);

static CUresult do_node(CUgraphNode node, CUstream stream)
{
    if (node->disabled)
        return CUDA_SUCCESS;
    switch ((int)node->type) {
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return do_copy(&node->params.copy, stream);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return do_fill(&node->params.fill, stream);
    case CU_GRAPH_NODE_TYPE_HOST:
        node->params.host.fn(node->params.host.userData);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return do_graph(node->params.child, stream);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        rvli_graph_memory_do(node);
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return rvli_event_record(node->params.event, stream);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        rvli_owed_depend(stream, node->params.event);
        return CUDA_SUCCESS;
    default:
        return CUDA_SUCCESS;
    }
}

static CUresult do_all(CUgraphNode *order, size_t count, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = do_node(order[i], stream);
    return result;
}

static CUresult do_graph(CUgraph graph, CUstream stream)
{
    CUgraphNode *order = malloc((graph->count + 1) * sizeof(CUgraphNode));
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (order != NULL && rvli_graph_order(graph, order))
        result = do_all(order, graph->count, stream);
    free(order);
    return result;
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && exec == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return result == CUDA_SUCCESS ? rvli_capture_refuse(stream) : result;
}

/* Not supported on a captured stream, as on an H200. */
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    CUresult result = cuGraphUpload(exec, stream);
    if (result == CUDA_SUCCESS)
        result = rvli_graph_memory_prepare(
            exec->order, exec->graph->count, exec->device,
            (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0);
    if (result != CUDA_SUCCESS)
        return result;
    rvli_time_pass(exec->needs.kernels);
    rvli_owed_set_launched_on(stream);
    result = do_all(exec->order, exec->graph->count, stream);
    rvli_owed_set_launched_on(NULL);
    return result;
}

/* ---- Updates ---- */

/* Whether two nodes do the same kind of work after the same nodes. */
static CUgraphExecUpdateResult compare(CUgraphNode have, CUgraphNode wanted)
{
    if (have->type != wanted->type)
        return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (have->before_count != wanted->before_count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < have->before_count; i++)
        if (have->before[i]->mark != wanted->before[i]->mark)
            return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

static CUgraphExecUpdateResult compare_graphs(CUgraph have, CUgraph wanted, CUgraphNode *node_out)
{
    CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    if (have->count != wanted->count)
        return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    for (size_t i = 0; i < have->count; i++)
        have->nodes[i]->mark = wanted->nodes[i]->mark = (unsigned)i;
    for (size_t i = 0; result == CU_GRAPH_EXEC_UPDATE_SUCCESS && i < have->count; i++) {
        *node_out = wanted->nodes[i];
        result = compare(have->nodes[i], wanted->nodes[i]);
    }
    for (size_t i = 0; result == CU_GRAPH_EXEC_UPDATE_SUCCESS && i < have->count; i++)
        if (wanted->nodes[i]->type == CU_GRAPH_NODE_TYPE_GRAPH)
            result = compare_graphs(have->nodes[i]->params.child, wanted->nodes[i]->params.child,
                                    node_out);
    return result;
}

/* Takes over what the nodes do. The order is the same. */
static CUresult replace(CUgraphExec exec, CUgraph with)
{
    CUgraph copy = rvli_graph_copy(with);
    CUgraphNode *order = malloc((with->count + 1) * sizeof(CUgraphNode));
    if (copy == NULL || order == NULL || !rvli_graph_order(copy, order)) {
        if (copy != NULL)
            rvli_graph_free(copy);
        free(order);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUgraph old = exec->graph;
    for (size_t i = 0; i < copy->count; i++) { /* the nodes of the first graph still find it */
        copy->nodes[i]->original = old->nodes[i]->original;
        copy->nodes[i]->disabled = old->nodes[i]->disabled;
    }
    free(exec->order);
    exec->graph = copy;
    exec->order = order;
    rvli_graph_free(old);
    return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
    CUgraphNode node = NULL;
    if (exec == NULL || graph == NULL || info == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphExecUpdateResult found = compare_graphs(exec->graph, graph, &node);
    *info = (CUgraphExecUpdateResultInfo){.result = found};
    if (found == CU_GRAPH_EXEC_UPDATE_SUCCESS)
        return replace(exec, graph);
    info->errorNode = node;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

/* ---- Single nodes, named as in the graph that was instantiated ---- */

static CUgraphNode find(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type)
{
    CUgraphNode found =
        exec != NULL && node != NULL ? rvli_graph_find_copy(exec->graph, node) : NULL;
    return found != NULL && found->type == type ? found : NULL;
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUgraphNode found = find(exec, node, CU_GRAPH_NODE_TYPE_KERNEL);
    if (found == NULL || params == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return cuGraphKernelNodeSetParams(found, params);
}

CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *params, CUcontext context)
{
    (void)context;
    CUgraphNode found = find(exec, node, CU_GRAPH_NODE_TYPE_MEMCPY);
    return found == NULL ? CUDA_ERROR_INVALID_VALUE : cuGraphMemcpyNodeSetParams(found, params);
}

CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
    (void)context;
    CUgraphNode found = find(exec, node, CU_GRAPH_NODE_TYPE_MEMSET);
    return found == NULL ? CUDA_ERROR_INVALID_VALUE : cuGraphMemsetNodeSetParams(found, params);
}

CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_HOST_NODE_PARAMS *params)
{
    CUgraphNode found = find(exec, node, CU_GRAPH_NODE_TYPE_HOST);
    return found == NULL ? CUDA_ERROR_INVALID_VALUE : cuGraphHostNodeSetParams(found, params);
}

CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled)
{
    CUgraphNode found = node != NULL ? find(exec, node, node->type) : NULL;
    if (found == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    found->disabled = enabled == 0;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int *enabled)
{
    CUgraphNode found = node != NULL && enabled != NULL ? find(exec, node, node->type) : NULL;
    if (found == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *enabled = !found->disabled;
    return CUDA_SUCCESS;
}
