/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/share.h"

#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 64

/*
 * Measured on an H200, driver 580, by tests/simcuda/facts.c (facts.h200.txt: cost, streams).
 * Other kinds of card use these figures until they are measured. The profile of a measured card
 * has the bytes of 34 streams, and what the first graph and the first kernel take there but not
 * on an H200. Streams follow the H200's steps, scaled to the profile's figure. The other two are
 * added.
 *
 * Streams and instantiated graphs have two pieces of memory each, in the same pages: 512 KiB for
 * a stream beside 64 KiB for a graph, and 48 KiB for either. The first stream needs no piece of
 * 512 KiB. The context has room for the first 40 pieces of 48 KiB. Any number from 35 to 43
 * gives the measured values of 1 to 192 streams, of any priority, and of 1 to 1024 graphs.
 * graph_share.h has what the kernels of graphs take in addition.
 *
 * Destroyed graphs leave their memory to later graphs: the card kept all of it. For streams this
 * was not measured, and is assumed.
 *
 * Code: bench/gpu/driver (probe.py) on the same machine, 2026-11-22,
 * bench/results/2026-11-22-h200. A kernel's code is rounded up to 256 bytes, plus 2 KiB. The
 * context has room for 384 KiB. Beyond that, pages are taken, each of which holds 31 kernels of
 * 64 KiB or 512 of 2 KiB ("modules"). Variables of an image have separate pages; smaller ones
 * share them ("small", "special"). The first image that calls assert() takes 90 MiB
 * ("assert_module"). What printf() and malloc() in kernels take could not be separated, and is
 * not counted. On a card, unloading returns memory. Here it does not.
 *
 * Local memory: what a thread's stack needs, for all threads that fit on the device at once, by
 * the largest kernel launched so far. The context has room for 1024 bytes ("local_up").
 */
#define GRAPHS_A_PAGE 32
#define GRAPHS_A_STREAM 8 /* that fit in one piece of a stream */
#define PIECES_A_PAGE 42
#define PIECES_FREE 40
#define STREAMS_MEASURED 34u /* the number behind a profile's figure */
#define CODE_ROOM_BYTES ((size_t)384 << 10)
#define CODE_ALIGN_BYTES 256u
#define CODE_MORE_BYTES 2048u
#define OWN_PAGES_BYTES ((size_t)1 << 20) /* larger variables do not share a page */
#define ASSERT_BYTES ((size_t)90 << 20)
#define LOCAL_BYTES 1024u

typedef struct both_share {
    size_t streams, graphs;
    size_t pages;
} both_share;

typedef struct kernels_share {
    rvli_graph_share slots;
    bool begun; /* a graph was made */
} kernels_share;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static both_share both[DEVICES_MAX];             /* streams and graphs */
static kernels_share graph_kernels[DEVICES_MAX]; /* kernels of graphs */
static size_t local_pages[DEVICES_MAX];

/* Small objects that share pages. */
typedef struct heap {
    size_t room_bytes; /* left in the page with the most room */
} heap;

typedef struct code_share {
    heap code, variables;
    bool begun;   /* the context's room for code was added */
    bool asserts; /* what assert() needs was taken */
} code_share;

static code_share codes[DEVICES_MAX];

/* Pieces of physical memory, kept until the device's last context is destroyed. */
typedef struct kept {
    uint64_t *ids;
    size_t count, room;
} kept;

static kept pieces[DEVICES_MAX];

void rvli_share_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    for (int device = 0; device < DEVICES_MAX; device++)
        pieces[device].count = 0; /* the parent's pieces */
    memset(both, 0, sizeof both);
    memset(graph_kernels, 0, sizeof graph_kernels);
    memset(local_pages, 0, sizeof local_pages);
    memset(codes, 0, sizeof codes);
}

static size_t pages_for(uint64_t bytes)
{
    return (size_t)((bytes + RVLI_PAGE_BYTES - 1) / RVLI_PAGE_BYTES);
}

static size_t whole(size_t count, size_t a_page)
{
    return (count + a_page - 1) / a_page;
}

/* Pages by the H200's figures. */
static size_t steps_of(size_t streams, size_t graphs)
{
    size_t large = (streams > 0 ? streams - 1 : 0) * GRAPHS_A_STREAM + graphs;
    size_t small = streams + graphs;
    return whole(large, GRAPHS_A_PAGE) +
           whole(small > PIECES_FREE ? small - PIECES_FREE : 0, PIECES_A_PAGE);
}

static size_t pages_of(int device, size_t streams, size_t graphs)
{
    uint64_t measured = rvli_device_figures(device)->streams_bytes;
    size_t steps = steps_of(streams, graphs);
    return measured == 0 ? steps : pages_for(steps * measured / steps_of(STREAMS_MEASURED, 0));
}

/* With the lock held. */
static CUresult take_pieces(int device, size_t bytes, const char *kind)
{
    kept *of = &pieces[device];
    if (of->count == of->room) {
        size_t room = 2 * of->room + 16;
        uint64_t *ids = realloc(of->ids, room * sizeof *ids);
        if (ids == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        of->ids = ids;
        of->room = room;
    }
    CUresult result = rvli_physical_take(device, bytes, kind, &of->ids[of->count]);
    of->count += result == CUDA_SUCCESS;
    return result;
}

void rvli_share_give(int device)
{
    pthread_mutex_lock(&mutex);
    kept *of = &pieces[device];
    while (of->count > 0)
        rvli_physical_give(of->ids[--of->count]);
    both[device] = (both_share){0};
    graph_kernels[device] = (kernels_share){0};
    local_pages[device] = 0;
    codes[device] = (code_share){0};
    pthread_mutex_unlock(&mutex);
}

/* ---- Streams and graphs ---- */

/* Adds streams and graphs to the counts. *more_out: the pages to take. */
static both_share with_more(int device, size_t streams, size_t graphs, size_t *more_out)
{
    both_share of = both[device];
    of.streams += streams;
    of.graphs += graphs;
    size_t pages = pages_of(device, of.streams, of.graphs);
    *more_out = pages > of.pages ? pages - of.pages : 0;
    of.pages += *more_out;
    return of;
}

CUresult rvli_share_stream(int device)
{
    size_t more;
    pthread_mutex_lock(&mutex);
    both_share then = with_more(device, 1, 0, &more);
    CUresult result =
        more > 0 ? take_pieces(device, more * RVLI_PAGE_BYTES, "streams") : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        both[device] = then;
    pthread_mutex_unlock(&mutex);
    return result;
}

/* The object may belong to a context that was destroyed before, so the count may be 0. */
static void drop(size_t *count)
{
    *count -= *count > 0;
}

void rvli_share_stream_gone(int device)
{
    pthread_mutex_lock(&mutex);
    drop(&both[device].streams);
    pthread_mutex_unlock(&mutex);
}

/* The first graph also takes the profile's figure. */
static kernels_share begun(int device, size_t *more_out)
{
    *more_out = 0;
    if (graph_kernels[device].begun)
        return graph_kernels[device];
    *more_out = pages_for(rvli_device_figures(device)->graph_bytes);
    return (kernels_share){.slots = rvli_graph_share_begin(), .begun = true};
}

CUresult rvli_share_graph(int device, const rvli_graph_needs *needs)
{
    size_t first, more;
    pthread_mutex_lock(&mutex);
    both_share then = with_more(device, 0, 1, &more);
    kernels_share kernels = begun(device, &first);
    more += first + rvli_graph_share_add(&kernels.slots, needs);
    CUresult result =
        more > 0 ? take_pieces(device, more * RVLI_PAGE_BYTES, "graphs") : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) {
        both[device] = then;
        graph_kernels[device] = kernels;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

void rvli_share_graph_gone(int device, const rvli_graph_needs *needs)
{
    pthread_mutex_lock(&mutex);
    drop(&both[device].graphs);
    rvli_graph_share_drop(&graph_kernels[device].slots, needs);
    pthread_mutex_unlock(&mutex);
}

/* ---- Code ---- */

static CUresult take_kernels(int device, size_t size_bytes)
{
    return take_pieces(device, size_bytes, "kernels");
}

static CUresult put(heap *into, int device, size_t size_bytes)
{
    if (size_bytes <= into->room_bytes) {
        into->room_bytes -= size_bytes;
        return CUDA_SUCCESS;
    }
    size_t pages_bytes = (size_bytes + RVLI_PAGE_BYTES - 1) / RVLI_PAGE_BYTES * RVLI_PAGE_BYTES;
    CUresult result = take_kernels(device, pages_bytes);
    if (result == CUDA_SUCCESS && pages_bytes - size_bytes > into->room_bytes)
        into->room_bytes = pages_bytes - size_bytes;
    return result;
}

/* The image gives the size of its code. A size of 2^47 bytes is broken, and fits nowhere. */
#define BYTES_MOST (UINT64_C(1) << 47)

/* Takes the profile's figure for the first kernel. */
static CUresult begin_code(code_share *of, int device)
{
    uint64_t bytes = rvli_device_figures(device)->kernel_bytes;
    CUresult result = CUDA_SUCCESS;
    if (of->begun)
        return CUDA_SUCCESS;
    if (bytes > 0)
        result = take_kernels(device, pages_for(bytes) * RVLI_PAGE_BYTES);
    if (result == CUDA_SUCCESS)
        of->code.room_bytes = CODE_ROOM_BYTES;
    of->begun = result == CUDA_SUCCESS;
    return result;
}

CUresult rvli_share_code(int device, uint64_t bytes)
{
    code_share *of = &codes[device];
    size_t taken = (bytes + CODE_ALIGN_BYTES - 1) / CODE_ALIGN_BYTES * CODE_ALIGN_BYTES;
    if (bytes > BYTES_MOST)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&mutex);
    CUresult result = begin_code(of, device);
    if (result == CUDA_SUCCESS && bytes > 0)
        result = put(&of->code, device, taken + CODE_MORE_BYTES);
    pthread_mutex_unlock(&mutex);
    return result;
}

static CUresult take_variables(code_share *of, int device, size_t size_bytes)
{
    heap alone = {0};
    return put(size_bytes >= OWN_PAGES_BYTES ? &alone : &of->variables, device, size_bytes);
}

CUresult rvli_share_image(int device, uint64_t variable_bytes, bool asserts)
{
    code_share *of = &codes[device];
    CUresult result = variable_bytes > BYTES_MOST ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (result == CUDA_SUCCESS && asserts && !of->asserts) {
        result = take_kernels(device, ASSERT_BYTES);
        of->asserts = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS && variable_bytes > 0)
        result = take_variables(of, device, variable_bytes);
    pthread_mutex_unlock(&mutex);
    return result;
}

/* ---- Local memory ---- */

CUresult rvli_share_local(int device, uint64_t bytes)
{
    const rvli_card *card = rvli_device_card(device);
    if (bytes <= LOCAL_BYTES)
        return CUDA_SUCCESS;
    if (bytes > UINT32_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t threads = (size_t)card->multiprocessors * (size_t)card->threads_multiprocessor;
    size_t pages = pages_for((bytes - LOCAL_BYTES) * threads);
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (pages > local_pages[device])
        result =
            take_pieces(device, (pages - local_pages[device]) * RVLI_PAGE_BYTES, "local memory");
    if (result == CUDA_SUCCESS && pages > local_pages[device])
        local_pages[device] = pages;
    pthread_mutex_unlock(&mutex);
    return result;
}
