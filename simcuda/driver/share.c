/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/share.h"

#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 64

/*
 * As measured on an H200, driver 580, by tests/simcuda/facts.c (facts.h200.txt: cost, streams).
 * Other kinds of card have the same until one is measured. The profile of a measured card says what
 * 34 streams take, and what the first graph and the first kernel take there and not on an H200:
 * streams go by the H200's steps, scaled to that, and the other two come on top.
 *
 * Streams and instantiated graphs have two pieces of memory each, in the same pages: 512 KiB of a
 * stream beside 64 KiB of a graph, and 48 KiB of either. The first stream needs none of the 512.
 * Of the pieces of 48 KiB, the context has room for the first 40: any number from 35 to 43 gives
 * the readings of 1 to 192 streams, of whatever priority, and of 1 to 1024 graphs. What kernels of
 * graphs take beside that is in graph_share.h.
 *
 * Graphs that are destroyed leave their memory to later ones, and the card kept it all. Whether it
 * does so with streams was not measured; here it is so.
 *
 * Code: bench/gpu/driver (probe.py) on the same machine, 2026-11-22, bench/results/2026-11-22-h200:
 * a kernel's code is rounded up to 256 bytes and has 2 KiB more; the context has room for 384 KiB,
 * then there are pages, of which one holds 31 kernels of 64 KiB or 512 of 2 KiB ("modules").
 * Variables of an image lie in pages of their own, smaller ones together ("small", "special"). The
 * first image that calls assert() brings 90 MiB ("assert_module"); what printf() and malloc() in
 * kernels bring was not told apart, and is not counted. Unloading gives memory back on a card, and
 * not here.
 *
 * Local memory: what a thread's stack needs, for all threads that the device has room for at once,
 * by the largest of the kernels launched so far. The context has it for 1024 bytes ("local_up").
 */
#define GRAPHS_A_PAGE 32
#define GRAPHS_A_STREAM 8 /* that the piece of a stream has room for */
#define PIECES_A_PAGE 42
#define PIECES_FREE 40
#define STREAMS_MEASURED 34u /* of which a profile has the bytes */
#define CODE_ROOM_BYTES ((size_t)384 << 10)
#define CODE_ALIGN_BYTES 256u
#define CODE_MORE_BYTES 2048u
#define OWN_PAGES_BYTES ((size_t)1 << 20) /* variables from here on share no page */
#define ASSERT_BYTES ((size_t)90 << 20)
#define LOCAL_BYTES 1024u

typedef struct both_share {
    size_t streams, graphs;
    size_t pages;
} both_share;

typedef struct kernels_share {
    rvli_graph_share slots;
    bool begun; /* a graph has been made */
} kernels_share;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static both_share both[DEVICES_MAX];             /* of streams and graphs */
static kernels_share graph_kernels[DEVICES_MAX]; /* of graphs */
static size_t local_pages[DEVICES_MAX];

/* Small things side by side in pages. */
typedef struct heap {
    size_t room_bytes; /* that is left in the page with most */
} heap;

typedef struct code_share {
    heap code, variables;
    bool begun;   /* code has the context's room */
    bool asserts; /* what assert() needs is there */
} code_share;

static code_share codes[DEVICES_MAX];

/* Pieces of physical memory, kept until the device's last context goes. */
typedef struct kept {
    uint64_t *ids;
    size_t count, room;
} kept;

static kept pieces[DEVICES_MAX];

void rvli_share_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    for (int device = 0; device < DEVICES_MAX; device++)
        pieces[device].count = 0; /* they are the parent's */
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

/* As on an H200. */
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

/* With what streams and graphs had before; *more_out: the pages that are to be taken. */
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

/* One that is gone may be of a context that is gone, too. */
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

/* The first graph takes what a profile says, too. */
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

/* An image says what its code has: one of 2^47 bytes is broken, and fits nowhere. */
#define BYTES_MOST (UINT64_C(1) << 47)

/* What a profile says of the first kernel. */
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
