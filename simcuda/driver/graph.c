/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/graph_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Graphs and their copies ---- */

CUgraph rvli_graph_new(void)
{
    return calloc(1, sizeof(struct CUgraph_st));
}

static void free_node(CUgraphNode node)
{
    if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
        rvli_graph_free(node->params.child);
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        rvli_graph_memory_release(node->params.memory.of);
    free(node->before);
    free(node);
}

void rvli_graph_free(CUgraph graph)
{
    for (size_t i = 0; i < graph->count; i++)
        free_node(graph->nodes[i]);
    free(graph->nodes);
    rvli_objects_release(&graph->references);
    free(graph);
}

static bool reserve_node(CUgraph graph)
{
    if (graph->count < graph->room)
        return true;
    size_t room = graph->room == 0 ? 16 : graph->room * 2;
    CUgraphNode *nodes = realloc(graph->nodes, room * sizeof(CUgraphNode));
    if (nodes == NULL)
        return false;
    graph->nodes = nodes;
    graph->room = room;
    return true;
}

static bool depends(CUgraphNode node, CUgraphNode on)
{
    for (size_t i = 0; i < node->before_count; i++)
        if (node->before[i] == on)
            return true;
    return false;
}

static bool add_dependency(CUgraphNode node, CUgraphNode on)
{
    CUgraphNode *before = realloc(node->before, (node->before_count + 1) * sizeof(CUgraphNode));
    if (before == NULL)
        return false;
    node->before = before;
    before[node->before_count++] = on;
    return true;
}

static bool are_of(CUgraph graph, const CUgraphNode *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (nodes == NULL || nodes[i] == NULL || nodes[i]->graph != graph)
            return false;
    return true;
}

CUresult rvli_graph_add(CUgraph graph, CUgraphNodeType type, const rvli_node_params *params,
                        const CUgraphNode *before, size_t before_count, CUgraphNode *node_out)
{
    if (graph == NULL || node_out == NULL || !are_of(graph, before, before_count))
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode node = calloc(1, sizeof *node);
    if (node == NULL || !reserve_node(graph)) {
        free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    node->graph = graph;
    node->type = type;
    bool added = true;
    for (size_t i = 0; added && i < before_count; i++)
        added = depends(node, before[i]) || add_dependency(node, before[i]);
    if (!added) {
        free(node->before);
        free(node);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (params != NULL)
        node->params = *params;
    graph->nodes[graph->count++] = node;
    *node_out = node;
    return CUDA_SUCCESS;
}

CUgraphNode rvli_graph_find_copy(CUgraph graph, CUgraphNode original)
{
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->original == original)
            return graph->nodes[i];
    return NULL;
}

static bool copy_node(CUgraph graph, CUgraphNode of)
{
    CUgraphNode made;
    rvli_node_params params = of->params;
    if (of->type == CU_GRAPH_NODE_TYPE_GRAPH) {
        params.child = rvli_graph_copy(of->params.child);
        if (params.child == NULL)
            return false;
        params.child->owned = true;
    }
    if (rvli_graph_add(graph, of->type, &params, NULL, 0, &made) != CUDA_SUCCESS) {
        if (of->type == CU_GRAPH_NODE_TYPE_GRAPH)
            rvli_graph_free(params.child);
        return false;
    }
    if (of->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        rvli_graph_memory_retain(of->params.memory.of);
    made->original = of;
    made->disabled = of->disabled;
    return true;
}

/* A node has the same index in both graphs, so the index is looked up once for each node. */
static bool copy_dependencies(CUgraph to, CUgraph from)
{
    for (size_t i = 0; i < from->count; i++)
        from->nodes[i]->mark = (unsigned)i;
    for (size_t i = 0; i < from->count; i++)
        for (size_t j = 0; j < from->nodes[i]->before_count; j++)
            if (!add_dependency(to->nodes[i], to->nodes[from->nodes[i]->before[j]->mark]))
                return false;
    return true;
}

CUgraph rvli_graph_copy(CUgraph of)
{
    CUgraph made = rvli_graph_new();
    bool good = made != NULL;
    for (size_t i = 0; good && i < of->count; i++)
        good = copy_node(made, of->nodes[i]);
    good =
        good && copy_dependencies(made, of) && rvli_objects_copy(of->references, &made->references);
    if (!good && made != NULL)
        rvli_graph_free(made);
    if (good)
        made->original = of;
    return good ? made : NULL;
}

/* ---- Order ---- */

/* Repeatedly takes the nodes that wait for nothing, in the order of their creation. */
bool rvli_graph_order(CUgraph graph, CUgraphNode *order)
{
    size_t done = 0, before = 1;
    for (size_t i = 0; i < graph->count; i++)
        graph->nodes[i]->mark = 0;
    while (done < graph->count && before != done) {
        before = done;
        for (size_t i = 0; i < graph->count; i++) {
            CUgraphNode node = graph->nodes[i];
            bool ready = node->mark == 0;
            for (size_t j = 0; ready && j < node->before_count; j++)
                ready = node->before[j]->mark != 0;
            if (ready) {
                node->mark = 1;
                order[done++] = node;
            }
        }
    }
    return done == graph->count;
}

/* ---- Entry points ---- */

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    CUresult result = rvli_driver_ready();
    if (result == CUDA_SUCCESS && (graph == NULL || flags != 0))
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph made = result == CUDA_SUCCESS ? rvli_graph_new() : NULL;
    if (made == NULL)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    *graph = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
    if (graph == NULL || graph->owned)
        return CUDA_ERROR_INVALID_VALUE;
    rvli_graph_free(graph);
    return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph)
{
    if (clone == NULL || graph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph made = rvli_graph_copy(graph);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *clone = made;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *node, CUgraphNode original, CUgraph clone)
{
    if (node == NULL || original == NULL || clone == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraphNode found = rvli_graph_find_copy(clone, original);
    if (found != NULL)
        *node = found;
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/*
 * Lists are requested in two steps: first the count, then up to the caller's room. Room beyond
 * the count is filled with NULL.
 */
typedef struct list {
    CUgraphNode *into;
    size_t room;
    size_t count;
} list;

static void put(list *of, CUgraphNode node)
{
    if (of->into != NULL && of->count < of->room)
        of->into[of->count] = node;
    of->count++;
}

static void end_list(const list *of, size_t *count)
{
    for (size_t i = of->count; of->into != NULL && i < of->room; i++)
        of->into[i] = NULL;
    *count = of->into == NULL || of->count < of->room ? of->count : of->room;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    if (graph == NULL || count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    list found = {nodes, *count, 0};
    for (size_t i = 0; i < graph->count; i++)
        put(&found, graph->nodes[i]);
    end_list(&found, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    if (graph == NULL || count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    list found = {nodes, *count, 0};
    for (size_t i = 0; i < graph->count; i++)
        if (graph->nodes[i]->before_count == 0)
            put(&found, graph->nodes[i]);
    end_list(&found, count);
    return CUDA_SUCCESS;
}

static void clear_edges(CUgraphEdgeData *data, size_t count)
{
    if (data != NULL)
        memset(data, 0, count * sizeof *data);
}

CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                         size_t *count)
{
    if (graph == NULL || count == NULL || (from == NULL) != (to == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    list starts = {from, *count, 0}, ends = {to, *count, 0};
    for (size_t i = 0; i < graph->count; i++)
        for (size_t j = 0; j < graph->nodes[i]->before_count; j++) {
            put(&starts, graph->nodes[i]->before[j]);
            put(&ends, graph->nodes[i]);
        }
    if (from != NULL)
        clear_edges(data, *count);
    end_list(&starts, &(size_t){0});
    end_list(&ends, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type)
{
    if (node == NULL || type == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *type = node->type;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                    size_t *count)
{
    if (node == NULL || count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    list found = {nodes, *count, 0};
    for (size_t i = 0; i < node->before_count; i++)
        put(&found, node->before[i]);
    if (nodes != NULL)
        clear_edges(data, *count);
    end_list(&found, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *data,
                                      size_t *count)
{
    if (node == NULL || count == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    list found = {nodes, *count, 0};
    for (size_t i = 0; i < node->graph->count; i++)
        if (depends(node->graph->nodes[i], node))
            put(&found, node->graph->nodes[i]);
    if (nodes != NULL)
        clear_edges(data, *count);
    end_list(&found, count);
    return CUDA_SUCCESS;
}

static void remove_dependency(CUgraphNode node, CUgraphNode on)
{
    size_t left = 0;
    for (size_t i = 0; i < node->before_count; i++)
        if (node->before[i] != on)
            node->before[left++] = node->before[i];
    node->before_count = left;
}

/* A cycle is detected at instantiation. */
CUresult cuGraphAddDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                const CUgraphEdgeData *data, size_t count)
{
    (void)data;
    if (graph == NULL || !are_of(graph, from, count) || !are_of(graph, to, count))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (from[i] == to[i] || depends(to[i], from[i]))
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        bool added = add_dependency(to[i], from[i]);
        for (size_t j = 0; !added && j < i; j++)
            remove_dependency(to[j], from[j]);
        if (!added)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                   const CUgraphEdgeData *data, size_t count)
{
    (void)data;
    if (graph == NULL || !are_of(graph, from, count) || !are_of(graph, to, count))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (!depends(to[i], from[i]))
            return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        remove_dependency(to[i], from[i]);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroyNode(CUgraphNode node)
{
    size_t left = 0;
    if (node == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph graph = node->graph;
    if (node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || node->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (size_t i = 0; i < graph->count; i++) {
        remove_dependency(graph->nodes[i], node);
        if (graph->nodes[i] != node)
            graph->nodes[left++] = graph->nodes[i];
    }
    graph->count = left;
    free_node(node);
    return CUDA_SUCCESS;
}

/* ---- Debug output ---- */

static const char *name_of(CUgraphNodeType type)
{
    switch ((int)type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
        return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return "WAIT_EVENT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return "MEM_FREE";
    default:
        return "NODE";
    }
}

CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags)
{
    (void)flags;
    if (graph == NULL || path == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return CUDA_ERROR_OPERATING_SYSTEM;
    fprintf(file, "digraph dot {\n");
    for (size_t i = 0; i < graph->count; i++)
        graph->nodes[i]->mark = (unsigned)i;
    for (size_t i = 0; i < graph->count; i++) {
        fprintf(file, "\"node_%zu\"[label=\"%zu %s\"];\n", i, i, name_of(graph->nodes[i]->type));
        for (size_t j = 0; j < graph->nodes[i]->before_count; j++)
            fprintf(file, "\"node_%u\" -> \"node_%zu\";\n", graph->nodes[i]->before[j]->mark, i);
    }
    fprintf(file, "}\n");
    return fclose(file) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}
