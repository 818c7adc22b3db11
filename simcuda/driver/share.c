/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/share.h"

#include <string.h>

#define DEVICES_MAX 64

/*
 * As measured on an H200, driver 580, by tests/simcuda/facts.c (facts.h200.txt: cost, streams).
 * Other kinds of card have the same until one is measured.
 *
 * Streams: the first is free. Every four take a page, and every 41 one more; this gives all of the
 * 17 numbers read, from 1 to 192 streams, of whatever priority.
 *
 * Graphs: a kernel takes 3 KiB, beyond what the context has room for. The room lies between 4.25
 * and 6 MiB: any figure there gives the readings of kernels with up to 256 bytes of arguments, one
 * of them 2 MiB too high. Kernels with 2 KiB of arguments took 2.5 KiB more each; sizes of
 * arguments are not known here.
 *
 * Graphs that are destroyed leave their memory to later ones, and the card kept it all. Whether it
 * does so with streams was not measured; here it is so.
 */
#define STREAMS_A_PAGE 4
#define STREAMS_A_FURTHER_PAGE 41
#define KERNEL_BYTES ((size_t)3 << 10)
#define GRAPHS_ROOM_BYTES ((size_t)5 << 20)

typedef struct share {
    size_t count;
    size_t pages;
} share;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static share streams[DEVICES_MAX], graphs[DEVICES_MAX];

void rvli_share_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    memset(streams, 0, sizeof streams);
    memset(graphs, 0, sizeof graphs);
}

static size_t pages_of_streams(size_t count)
{
    return count == 0
               ? 0
               : (count - 1 + STREAMS_A_PAGE - 1) / STREAMS_A_PAGE + count / STREAMS_A_FURTHER_PAGE;
}

static size_t pages_of_graphs(size_t kernels)
{
    size_t bytes = kernels * KERNEL_BYTES;
    return bytes <= GRAPHS_ROOM_BYTES
               ? 0
               : (bytes - GRAPHS_ROOM_BYTES + RVLI_PAGE_BYTES - 1) / RVLI_PAGE_BYTES;
}

static CUresult take(share *of, int device, size_t more, size_t (*pages_of)(size_t),
                     const char *kind)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t id;
    pthread_mutex_lock(&mutex);
    size_t pages = pages_of(of->count + more);
    if (pages > of->pages) /* and never given back */
        result = rvli_physical_take(device, (pages - of->pages) * RVLI_PAGE_BYTES, kind, &id);
    if (result == CUDA_SUCCESS) {
        of->count += more;
        of->pages = pages > of->pages ? pages : of->pages;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

static void drop(share *of, size_t less)
{
    pthread_mutex_lock(&mutex);
    of->count -= less;
    pthread_mutex_unlock(&mutex);
}

CUresult rvli_share_stream(int device)
{
    return take(&streams[device], device, 1, pages_of_streams, "streams");
}

void rvli_share_stream_gone(int device)
{
    drop(&streams[device], 1);
}

CUresult rvli_share_graph(int device, size_t kernels)
{
    return take(&graphs[device], device, kernels, pages_of_graphs, "graphs");
}

void rvli_share_graph_gone(int device, size_t kernels)
{
    drop(&graphs[device], kernels);
}
