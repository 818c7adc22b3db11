/* SPDX-License-Identifier: MIT */
/*
 * User objects: a pointer of the program, for which its destructor is called when the last
 * reference is released. Graphs and their copies hold references. CUDA calls the destructor on
 * its own thread. Here, the thread that releases the last reference calls it, without a lock.
 */
#include <stdatomic.h>
#include <stdlib.h>

#include "simcuda/driver/graph.h"

struct CUuserObject_st {
    atomic_uint references;
    CUhostFn destroy;
    void *user;
};

static void release(CUuserObject object, unsigned count)
{
    if (atomic_fetch_sub(&object->references, count) != count)
        return;
    object->destroy(object->user);
    free(object);
}

CUresult cuUserObjectCreate(CUuserObject *object, void *user, CUhostFn destroy,
                            unsigned int references, unsigned int flags)
{
    if (object == NULL || destroy == NULL || references == 0 || references > INT32_MAX ||
        flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    CUuserObject made = malloc(sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_init(&made->references, references);
    made->destroy = destroy;
    made->user = user;
    *object = made;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    if (object == NULL || count == 0 || count > INT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    atomic_fetch_add(&object->references, count);
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    if (object == NULL || count == 0 || count > atomic_load(&object->references))
        return CUDA_ERROR_INVALID_VALUE;
    release(object, count);
    return CUDA_SUCCESS;
}

/* ---- References of a graph ---- */

static rvli_reference **find(rvli_reference **link, CUuserObject object)
{
    while (*link != NULL && (*link)->object != object)
        link = &(*link)->next;
    return link;
}

static bool hold(rvli_reference **references, CUuserObject object, unsigned count)
{
    rvli_reference **link = find(references, object);
    if (*link == NULL)
        *link = calloc(1, sizeof **link);
    if (*link == NULL)
        return false;
    (*link)->object = object;
    (*link)->count += count;
    return true;
}

bool rvli_objects_copy(const rvli_reference *from, rvli_reference **to)
{
    for (; from != NULL; from = from->next) {
        if (!hold(to, from->object, from->count))
            return false;
        atomic_fetch_add(&from->object->references, from->count);
    }
    return true;
}

void rvli_objects_release(rvli_reference **references)
{
    while (*references != NULL) {
        rvli_reference *first = *references;
        *references = first->next;
        release(first->object, first->count);
        free(first);
    }
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags)
{
    if (graph == NULL || object == NULL || count == 0 || count > INT32_MAX ||
        (flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!hold(&graph->references, object, count))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE)) /* otherwise the graph takes over the caller's */
        atomic_fetch_add(&object->references, count);
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    if (graph == NULL || object == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    rvli_reference **link = find(&graph->references, object);
    if (*link == NULL || (*link)->count < count)
        return CUDA_ERROR_INVALID_VALUE;
    (*link)->count -= count;
    if ((*link)->count == 0) {
        rvli_reference *gone = *link;
        *link = gone->next;
        free(gone);
    }
    release(object, count);
    return CUDA_SUCCESS;
}
