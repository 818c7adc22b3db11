/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/capture.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct capture {
    struct capture *next;
    uint64_t id;
    CUstreamCaptureMode mode;
    CUgraph graph;
    bool own_graph; /* the capture made the graph */
    CUstream origin;
    const void *thread;
    CUstream *streams; /* all streams in the capture */
    size_t stream_count;
    bool lost;
    bool unjoined; /* a stream in it was destroyed, and its work was never joined */
} capture;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static capture *captures;
static atomic_size_t live; /* avoids the lock while nothing is captured */
static uint64_t ids;
static __thread CUstreamCaptureMode thread_mode; /* its address identifies the thread */

void rvli_capture_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    captures = NULL;
    atomic_store(&live, 0);
}

/* ---- With the lock held ---- */

static capture *find(uint64_t id)
{
    capture *each = id != 0 ? captures : NULL;
    while (each != NULL && each->id != id)
        each = each->next;
    return each;
}

static capture *capture_of(CUstream stream)
{
    return find(rvli_stream_of(stream)->after.capture);
}

/* A captured stream that synchronizes with the legacy stream. */
static capture *find_implicit(CUstream stream)
{
    if (!rvli_stream_is_legacy(stream))
        return NULL;
    for (capture *each = captures; each != NULL; each = each->next)
        for (size_t i = 0; i < each->stream_count; i++)
            if (!(each->streams[i]->flags & CU_STREAM_NON_BLOCKING))
                return each;
    return NULL;
}

static CUresult lose(capture *of, CUresult result)
{
    of->lost = true;
    return result;
}

static bool set_frontier(rvli_frontier *of, uint64_t id, const CUgraphNode *nodes, size_t count)
{
    CUgraphNode *copy = malloc((count + 1) * sizeof(CUgraphNode)); /* never of size 0 */
    if (copy == NULL)
        return false;
    if (count > 0)
        memcpy(copy, nodes, count * sizeof(CUgraphNode));
    free(of->nodes);
    *of = (rvli_frontier){id, copy, count};
    return true;
}

static void clear_frontier(rvli_frontier *of)
{
    free(of->nodes);
    *of = (rvli_frontier){0};
}

static bool has(const rvli_frontier *of, CUgraphNode node)
{
    for (size_t i = 0; i < of->count; i++)
        if (of->nodes[i] == node)
            return true;
    return false;
}

static bool add_to_frontier(rvli_frontier *of, const CUgraphNode *nodes, size_t count)
{
    CUgraphNode *more = realloc(of->nodes, (of->count + count + 1) * sizeof(CUgraphNode));
    if (more == NULL)
        return false;
    of->nodes = more;
    for (size_t i = 0; i < count; i++)
        if (!has(of, nodes[i]))
            more[of->count++] = nodes[i];
    return true;
}

static bool join(capture *to, CUstream stream, const CUgraphNode *nodes, size_t count)
{
    CUstream *streams = realloc(to->streams, (to->stream_count + 1) * sizeof(CUstream));
    if (streams == NULL)
        return false;
    to->streams = streams;
    if (!set_frontier(&stream->after, to->id, nodes, count))
        return false;
    streams[to->stream_count++] = stream;
    return true;
}

/* Ends a capture and returns its graph. If nobody takes the graph, the caller frees it without
 * the lock. */
static CUgraph end(capture *of)
{
    CUgraph graph = of->graph;
    capture **link = &captures;
    while (*link != of)
        link = &(*link)->next;
    *link = of->next;
    atomic_fetch_sub(&live, 1);
    for (size_t i = 0; i < of->stream_count; i++)
        clear_frontier(&of->streams[i]->after);
    if (!of->own_graph)
        graph = NULL;
    free(of->streams);
    free(of);
    return graph;
}

/* Whether the last work of the origin stream depends on everything in the capture. */
static bool is_joined(const capture *of)
{
    CUgraph graph = of->graph;
    for (size_t i = 0; i < graph->count; i++)
        graph->nodes[i]->mark = 0;
    for (size_t i = 0; i < of->origin->after.count; i++)
        of->origin->after.nodes[i]->mark = 1;
    for (size_t i = graph->count; i > 0; i--) /* dependencies point to earlier nodes */
        for (size_t j = 0; graph->nodes[i - 1]->mark && j < graph->nodes[i - 1]->before_count; j++)
            graph->nodes[i - 1]->before[j]->mark = 1;
    for (size_t i = 0; i < of->stream_count; i++)
        for (size_t j = 0; j < of->streams[i]->after.count; j++)
            if (!of->streams[i]->after.nodes[j]->mark)
                return false;
    return !of->unjoined;
}

/* ---- What captures forbid ---- */

/* The three modes are those of cuThreadExchangeStreamCaptureMode(). */
static bool forbids(const capture *of)
{
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return false;
    if (of->thread == &thread_mode)
        return of->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
           of->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

static CUresult check_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    for (capture *each = captures; each != NULL; each = each->next)
        if (forbids(each))
            result = lose(each, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    return result;
}

CUresult rvli_capture_unsafe(void)
{
    if (atomic_load(&live) == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    CUresult result = check_unsafe();
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult rvli_capture_wait_context(void)
{
    int device = -1;
    CUresult result = CUDA_SUCCESS;
    if (atomic_load(&live) == 0)
        return CUDA_SUCCESS;
    (void)rvli_current_device(&device);
    pthread_mutex_lock(&mutex);
    for (capture *each = captures; each != NULL; each = each->next)
        if (each->origin->device == device)
            result = lose(each, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult rvli_capture_wait_stream(CUstream stream)
{
    if (atomic_load(&live) == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    capture *of = capture_of(stream), *implicit = find_implicit(stream);
    CUresult result = of != NULL         ? lose(of, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
                      : implicit != NULL ? lose(implicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
                                         : check_unsafe();
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult rvli_capture_wait_event(CUevent event)
{
    if (atomic_load(&live) == 0 && event->at.capture == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    capture *of = find(event->at.capture);
    CUresult result = of != NULL              ? lose(of, CUDA_ERROR_CAPTURED_EVENT)
                      : event->at.capture > 0 ? CUDA_ERROR_INVALID_VALUE
                                              : check_unsafe();
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult rvli_capture_refuse(CUstream stream)
{
    if (atomic_load(&live) == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    capture *of = capture_of(stream);
    CUresult result = of != NULL ? lose(of, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) : CUDA_SUCCESS;
    pthread_mutex_unlock(&mutex);
    return result;
}

/* ---- Work ---- */

static CUresult work_locked(CUstream stream, CUgraphNodeType type, const rvli_node_params *params,
                            bool *captured_out)
{
    CUgraphNode node;
    capture *of = capture_of(stream), *implicit = find_implicit(stream);
    if (implicit != NULL)
        return lose(implicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (of == NULL)
        return CUDA_SUCCESS;
    *captured_out = true;
    if (of->lost)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    rvli_frontier *after = &rvli_stream_of(stream)->after;
    CUresult result = rvli_graph_add(of->graph, type, params, after->nodes, after->count, &node);
    if (result == CUDA_SUCCESS) {
        after->nodes[0] = node; /* a failed capture still has room for one node */
        after->count = 1;
    }
    return result;
}

CUresult rvli_capture_work(CUstream stream, CUgraphNodeType type, const rvli_node_params *params,
                           bool *captured_out)
{
    *captured_out = false;
    if (atomic_load(&live) == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    CUresult result = work_locked(stream, type, params, captured_out);
    pthread_mutex_unlock(&mutex);
    return result;
}

static bool is_host(uint64_t addr)
{
    rvli_range range;
    return !rvli_range_find(addr, &range) || !rvli_range_on_device(&range);
}

CUresult rvli_capture_copy(CUstream stream, uint64_t to, uint64_t from, size_t bytes,
                           bool *captured_out)
{
    rvli_node_params params = {.copy = {.WidthInBytes = bytes, .Height = 1, .Depth = 1}};
    *captured_out = false;
    if (atomic_load(&live) == 0)
        return CUDA_SUCCESS;
    CUDA_MEMCPY3D *copy = &params.copy;
    copy->srcMemoryType = is_host(from) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy->dstMemoryType = is_host(to) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    copy->srcHost = (const void *)from;
    copy->srcDevice = from;
    copy->dstHost = (void *)to;
    copy->dstDevice = to;
    copy->srcPitch = copy->dstPitch = bytes;
    return rvli_capture_work(stream, CU_GRAPH_NODE_TYPE_MEMCPY, &params, captured_out);
}

CUresult rvli_capture_fill(CUstream stream, uint64_t addr, unsigned value, size_t count,
                           size_t unit_bytes, bool *captured_out)
{
    const rvli_node_params params = {.fill = {.dst = addr,
                                              .value = value,
                                              .elementSize = (unsigned)unit_bytes,
                                              .width = count,
                                              .height = 1}};
    return rvli_capture_work(stream, CU_GRAPH_NODE_TYPE_MEMSET, &params, captured_out);
}

/* ---- Events ---- */

CUresult rvli_capture_record(CUevent event, CUstream stream, bool *captured_out)
{
    CUresult result = CUDA_SUCCESS;
    *captured_out = false;
    if (atomic_load(&live) == 0 && event->at.capture == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    const capture *of = capture_of(stream);
    capture *implicit = find_implicit(stream);
    const rvli_frontier *after = &rvli_stream_of(stream)->after;
    if (implicit != NULL)
        result = lose(implicit, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    else if (of == NULL)
        clear_frontier(&event->at);
    else if (of->lost)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (!set_frontier(&event->at, of->id, after->nodes, after->count))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    *captured_out = of != NULL;
    pthread_mutex_unlock(&mutex);
    return result;
}

static CUresult depend_locked(CUstream stream, const rvli_frontier *at, capture *in, capture *from)
{
    if (from == NULL)
        return at->capture > 0 ? CUDA_ERROR_INVALID_VALUE
               : in != NULL    ? lose(in, CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
                               : CUDA_SUCCESS;
    if (rvli_stream_is_legacy(stream))
        return lose(from, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (from->lost || (in != NULL && in->lost))
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (in != NULL && in != from) {
        lose(in, CUDA_ERROR_STREAM_CAPTURE_MERGE);
        return lose(from, CUDA_ERROR_STREAM_CAPTURE_MERGE);
    }
    CUstream joined = rvli_stream_of(stream);
    bool good = in == NULL ? join(from, joined, at->nodes, at->count)
                           : add_to_frontier(&joined->after, at->nodes, at->count);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult rvli_capture_depend(CUstream stream, CUevent event, bool *captured_out)
{
    *captured_out = false;
    if (atomic_load(&live) == 0 && event->at.capture == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    capture *in = capture_of(stream), *from = find(event->at.capture);
    CUresult result = depend_locked(stream, &event->at, in, from);
    *captured_out = in != NULL || from != NULL;
    pthread_mutex_unlock(&mutex);
    return result;
}

CUgraph rvli_capture_graph(CUstream stream)
{
    if (atomic_load(&live) == 0)
        return NULL;
    pthread_mutex_lock(&mutex);
    const capture *of = capture_of(stream);
    CUgraph graph = of != NULL ? of->graph : NULL;
    pthread_mutex_unlock(&mutex);
    return graph;
}

/* ---- What is freed ---- */

void rvli_capture_drop_stream(CUstream stream)
{
    CUgraph gone = NULL;
    pthread_mutex_lock(&mutex);
    capture *of = find(stream->after.capture);
    if (of != NULL && of->origin == stream)
        gone = end(of);
    else if (of != NULL) {
        size_t left = 0;
        for (size_t i = 0; i < of->stream_count; i++)
            if (of->streams[i] != stream)
                of->streams[left++] = of->streams[i];
        of->unjoined = of->unjoined || !is_joined(of);
        of->stream_count = left;
    }
    clear_frontier(&stream->after);
    pthread_mutex_unlock(&mutex);
    if (gone != NULL)
        rvli_graph_free(gone);
}

void rvli_capture_drop_event(CUevent event)
{
    clear_frontier(&event->at);
}

/* ---- Entry points ---- */

static CUresult begin_locked(capture *made, const CUgraphNode *nodes, size_t count)
{
    if (capture_of(made->origin) != NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    made->id = ++ids;
    if (!join(made, made->origin, nodes, count)) {
        free(made->streams);
        made->streams = NULL;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->next = captures;
    captures = made;
    atomic_fetch_add(&live, 1);
    return CUDA_SUCCESS;
}

static CUresult begin(CUstream stream, CUgraph graph, const CUgraphNode *nodes, size_t count,
                      CUstreamCaptureMode mode)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result != CUDA_SUCCESS)
        return result;
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (rvli_stream_is_legacy(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    capture *made = calloc(1, sizeof *made);
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->own_graph = graph == NULL;
    made->graph = graph != NULL ? graph : rvli_graph_new();
    made->mode = mode;
    made->origin = rvli_stream_of(stream);
    made->thread = &thread_mode;
    result = made->graph != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&mutex);
        result = begin_locked(made, nodes, count);
        pthread_mutex_unlock(&mutex);
    }
    if (result != CUDA_SUCCESS) {
        if (made->own_graph && made->graph != NULL)
            rvli_graph_free(made->graph);
        free(made);
    }
    return result;
}

CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode mode)
{
    return begin(stream, NULL, NULL, 0, mode);
}

CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *nodes,
                                     const CUgraphEdgeData *data, size_t count,
                                     CUstreamCaptureMode mode)
{
    (void)data;
    if (graph == NULL || (count > 0 && nodes == NULL))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        if (nodes[i] == NULL || nodes[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    return begin(stream, graph, nodes, count, mode);
}

/* Returns the result of ending a capture on this stream. In the first three cases, the capture
 * goes on. */
static CUresult judge(capture *of, CUstream stream, bool *ends_out)
{
    *ends_out = false;
    if (of == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (of->origin != rvli_stream_of(stream))
        return lose(of, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    *ends_out = true;
    if (of->thread != &thread_mode && of->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (of->lost)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    return is_joined(of) ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    int device;
    bool ends = false;
    CUgraph whole = NULL, gone = NULL;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && graph == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    capture *of = capture_of(stream);
    result = judge(of, stream, &ends);
    if (ends) {
        whole = of->graph;
        gone = end(of);
    }
    pthread_mutex_unlock(&mutex);
    *graph = result == CUDA_SUCCESS ? whole : NULL;
    if (result != CUDA_SUCCESS && gone != NULL)
        rvli_graph_free(gone);
    return result;
}

static CUstreamCaptureStatus status_of(const capture *of)
{
    return of == NULL ? CU_STREAM_CAPTURE_STATUS_NONE
           : of->lost ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                      : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    return cuStreamGetCaptureInfo(stream, status, NULL, NULL, NULL, NULL, NULL);
}

/* The stream owns the list of nodes, which is valid until its next call. */
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                CUgraph *graph, const CUgraphNode **nodes,
                                const CUgraphEdgeData **data, size_t *count)
{
    int device;
    CUresult result = rvli_current_device(&device);
    if (result == CUDA_SUCCESS && status == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    const capture *of = capture_of(stream);
    bool implicit = find_implicit(stream) != NULL;
    if (!implicit)
        *status = status_of(of);
    if (!implicit && *status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        const rvli_frontier *after = &rvli_stream_of(stream)->after;
        if (id != NULL)
            *id = of->id;
        if (graph != NULL)
            *graph = of->graph;
        if (nodes != NULL)
            *nodes = after->nodes;
        if (data != NULL)
            *data = NULL; /* only full dependencies */
        if (count != NULL)
            *count = after->count;
    }
    pthread_mutex_unlock(&mutex);
    return implicit ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

static CUresult update_locked(CUstream stream, const CUgraphNode *nodes, size_t count, bool set)
{
    const capture *of = capture_of(stream);
    if (of == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (of->lost)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    for (size_t i = 0; i < count; i++)
        if (nodes == NULL || nodes[i] == NULL || nodes[i]->graph != of->graph)
            return CUDA_ERROR_INVALID_VALUE;
    rvli_frontier *after = &rvli_stream_of(stream)->after;
    bool good =
        set ? set_frontier(after, of->id, nodes, count) : add_to_frontier(after, nodes, count);
    return good ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *nodes,
                                           const CUgraphEdgeData *data, size_t count,
                                           unsigned int flags)
{
    (void)data;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    CUresult result =
        update_locked(stream, nodes, count, flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
    pthread_mutex_unlock(&mutex);
    return result;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    if (mode == NULL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}
