/* SPDX-License-Identifier: MIT */
/*
 * Graphs: work in the order of its dependencies. A node belongs to one graph, and lists the
 * nodes that come before it. An instantiated graph has its own copy.
 */
#ifndef RVL_SIMCUDA_GRAPH_H
#define RVL_SIMCUDA_GRAPH_H

#include "simcuda/driver/driver.h"

/* What a node does, by its type. */
typedef union rvli_node_params {
    CUDA_KERNEL_NODE_PARAMS kernel; /* without its arguments' addresses: nothing runs */
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUDA_HOST_NODE_PARAMS host;
    struct {
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        struct rvli_graph_memory *of;
    } memory;
    CUdeviceptr freed;
    CUgraph child;
    CUevent event;
} rvli_node_params;

struct CUgraphNode_st {
    CUgraph graph;
    CUgraphNodeType type;
    rvli_node_params params;
    CUgraphNode original; /* the node of which this is a copy */
    CUgraphNode *before;  /* the nodes that it depends on, in the order given */
    size_t before_count;
    bool disabled;
    unsigned mark; /* scratch for ordering nodes */
};

/* References to a user object. */
typedef struct rvli_reference {
    struct rvli_reference *next;
    CUuserObject object;
    unsigned count;
} rvli_reference;

struct CUgraph_st {
    CUgraphNode *nodes; /* in order of creation */
    size_t count;
    size_t room;
    CUgraph original;
    rvli_reference *references;
    bool owned; /* by a node of another graph, or by a capture */
};

/* ---- graph.c ---- */

CUgraph rvli_graph_new(void);
void rvli_graph_free(CUgraph graph);

/* Copies a graph with all its content. NULL: out of memory. */
CUgraph rvli_graph_copy(CUgraph of);

/* Adds a node. The parameters are copied; the node owns a child graph. */
CUresult rvli_graph_add(CUgraph graph, CUgraphNodeType type, const rvli_node_params *params,
                        const CUgraphNode *before, size_t before_count, CUgraphNode *node_out);

/* The copy of a node in a graph that was copied from the node's graph. NULL: there is none. */
CUgraphNode rvli_graph_find_copy(CUgraph graph, CUgraphNode original);

/* Stores graph->count nodes so that each comes after its dependencies. false: there is a cycle. */
bool rvli_graph_order(CUgraph graph, CUgraphNode *order);

/* ---- object.c ---- */

/* Copies a graph's references to user objects to its copy. false: out of memory. */
bool rvli_objects_copy(const rvli_reference *from, rvli_reference **to);
void rvli_objects_release(rvli_reference **references);

#endif
