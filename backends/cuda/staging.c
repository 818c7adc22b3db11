/* SPDX-License-Identifier: MIT */
#include "backends/cuda/staging.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KIB (UINT64_C(1) << 10)
#define BUFFER_BYTES_MAX (4096 * KIB)
#define BUFFER_BYTES_MIN (256 * KIB) /* below that the driver's own buffer does as well */
#define SHARE_BYTES_MIN (256 * KIB)  /* less than that is not worth waking a thread for */

/* ---- Making the ring ---- */

static void destroy_events(rvli_staging *ring)
{
    for (int i = 0; i < RVLI_STAGING_BUFFERS; i++) {
        if (ring->passed[i] != NULL)
            rvli_cuda.cuEventDestroy(ring->passed[i]);
        ring->passed[i] = NULL;
    }
}

static bool make_events(rvli_staging *ring)
{
    for (int i = 0; i < RVLI_STAGING_BUFFERS; i++)
        if (rvli_cuda.cuEventCreate(&ring->passed[i], CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
            ring->passed[i] = NULL;
            destroy_events(ring);
            return false;
        }
    return true;
}

/* Where not much may be pinned, smaller buffers may still be had. */
static bool make_buffers(rvli_staging *ring)
{
    void *memory = NULL;
    for (uint64_t bytes = BUFFER_BYTES_MAX; bytes >= BUFFER_BYTES_MIN; bytes /= 2)
        if (rvli_cuda.cuMemHostAlloc(&memory, RVLI_STAGING_BUFFERS * bytes,
                                     CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS) {
            ring->memory = memory;
            ring->buffer_bytes = bytes;
            return true;
        }
    return false;
}

/* Without helpers it works as well, more slowly. */
static void start_helpers(rvli_staging *ring)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores > 1)
        rvli_workers_start(RVLI_STAGING_HELPERS, NULL, NULL, &ring->helpers);
}

static bool make_ring(rvli_staging *ring)
{
    if (ring->memory != NULL)
        return true;
    if (!make_events(ring))
        return false;
    if (!make_buffers(ring)) {
        destroy_events(ring);
        return false;
    }
    start_helpers(ring);
    return true;
}

void rvli_staging_open(rvli_staging *ring)
{
    *ring = (rvli_staging){0};
    pthread_mutex_init(&ring->lock, NULL);
    pthread_mutex_init(&ring->shares_lock, NULL);
    pthread_cond_init(&ring->shares_done, NULL);
}

void rvli_staging_close(rvli_staging *ring)
{
    if (ring->helpers != NULL)
        rvli_workers_stop(ring->helpers);
    destroy_events(ring);
    if (ring->memory != NULL)
        rvli_cuda.cuMemFreeHost(ring->memory);
    pthread_cond_destroy(&ring->shares_done);
    pthread_mutex_destroy(&ring->shares_lock);
    pthread_mutex_destroy(&ring->lock);
}

/* ---- Between a buffer and pageable memory ---- */

static void run_share(rvli_job *job)
{
    rvli_staging_share *share = (rvli_staging_share *)(void *)job;
    rvli_staging *ring = share->ring;
    memcpy(share->to, share->from, share->size);
    pthread_mutex_lock(&ring->shares_lock);
    if (--ring->shares_left == 0)
        pthread_cond_signal(&ring->shares_done);
    pthread_mutex_unlock(&ring->shares_lock);
}

/* Bytes that each of the threads copies. */
static uint64_t share_bytes(uint64_t size)
{
    uint64_t each = size / (RVLI_STAGING_HELPERS + 1);
    return each < SHARE_BYTES_MIN ? SHARE_BYTES_MIN : each;
}

/* Hands shares to the helpers; how many bytes are left for the calling thread. */
static uint64_t hand_out(rvli_staging *ring, char *to, const char *from, uint64_t size)
{
    unsigned count = 0;
    uint64_t each = share_bytes(size);
    for (; ring->helpers != NULL && count < RVLI_STAGING_HELPERS && size > each; count++) {
        size -= each;
        ring->shares[count] = (rvli_staging_share){
            .job.run = run_share, .ring = ring, .to = to + size, .from = from + size, .size = each};
    }
    ring->shares_left = count; /* no helper is at work yet */
    for (unsigned i = 0; i < count; i++)
        rvli_workers_queue(ring->helpers, &ring->shares[i].job);
    return size;
}

static void copy_bytes(rvli_staging *ring, char *to, const char *from, uint64_t size)
{
    memcpy(to, from, hand_out(ring, to, from, size));
    pthread_mutex_lock(&ring->shares_lock);
    while (ring->shares_left > 0)
        pthread_cond_wait(&ring->shares_done, &ring->shares_lock);
    pthread_mutex_unlock(&ring->shares_lock);
}

/* ---- Over the link ---- */

static uint64_t ring_bytes(const rvli_staging *ring)
{
    return RVLI_STAGING_BUFFERS * ring->buffer_bytes;
}

/* Offsets of a copy go round the ring: every piece but the last fills a buffer. */
static char *buffer_at(const rvli_staging *ring, uint64_t offset)
{
    return ring->memory + offset % ring_bytes(ring);
}

static CUevent event_at(const rvli_staging *ring, uint64_t offset)
{
    return ring->passed[offset / ring->buffer_bytes % RVLI_STAGING_BUFFERS];
}

static uint64_t piece_at(const rvli_staging *ring, uint64_t offset, uint64_t size)
{
    return size - offset < ring->buffer_bytes ? size - offset : ring->buffer_bytes;
}

/* Queues pieces until the ring is full of what has not been taken from it. */
static CUresult fill_ring(rvli_staging *ring, CUstream stream, CUdeviceptr addr, uint64_t size,
                          uint64_t taken, uint64_t *queued)
{
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && *queued < size && *queued - taken < ring_bytes(ring)) {
        uint64_t piece = piece_at(ring, *queued, size);
        result =
            rvli_cuda.cuMemcpyDtoHAsync(buffer_at(ring, *queued), addr + *queued, piece, stream);
        if (result == CUDA_SUCCESS)
            result = rvli_cuda.cuEventRecord(event_at(ring, *queued), stream);
        *queued += piece;
    }
    return result;
}

static CUresult pull(rvli_staging *ring, CUstream stream, char *host, CUdeviceptr addr,
                     uint64_t size)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t queued = 0, piece = 0;
    for (uint64_t taken = 0; taken < size; taken += piece) {
        piece = piece_at(ring, taken, size);
        result = fill_ring(ring, stream, addr, size, taken, &queued);
        if (result == CUDA_SUCCESS)
            result = rvli_cuda.cuEventSynchronize(event_at(ring, taken));
        if (result != CUDA_SUCCESS)
            break;
        copy_bytes(ring, host + taken, buffer_at(ring, taken), piece);
    }
    return result;
}

static CUresult push(rvli_staging *ring, CUstream stream, CUdeviceptr addr, const char *host,
                     uint64_t size)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t last = 0, piece = 0;
    for (uint64_t done = 0; done < size && result == CUDA_SUCCESS; done += piece) {
        char *buffer = buffer_at(ring, done);
        piece = piece_at(ring, done, size);
        last = done;
        if (done >= ring_bytes(ring))
            result = rvli_cuda.cuEventSynchronize(event_at(ring, done));
        if (result != CUDA_SUCCESS)
            break;
        copy_bytes(ring, buffer, host + done, piece);
        result = rvli_cuda.cuMemcpyHtoDAsync(addr + done, buffer, piece, stream);
        if (result == CUDA_SUCCESS)
            result = rvli_cuda.cuEventRecord(event_at(ring, done), stream);
    }
    return result == CUDA_SUCCESS ? rvli_cuda.cuEventSynchronize(event_at(ring, last)) : result;
}

/* ---- Copies ---- */

/* No buffer may be written to while a copy that failed half-way still uses it. */
static CUresult settle(rvli_staging *ring, CUstream stream)
{
    CUresult result = rvli_cuda.cuStreamSynchronize(stream);
    ring->unsettled = result != CUDA_SUCCESS;
    return result;
}

/* Takes the ring; false: there is none. */
static bool begin(rvli_staging *ring, CUstream stream, CUresult *result_out)
{
    pthread_mutex_lock(&ring->lock);
    if (!make_ring(ring)) {
        pthread_mutex_unlock(&ring->lock);
        *result_out = CUDA_SUCCESS;
        return false;
    }
    *result_out = ring->unsettled ? settle(ring, stream) : CUDA_SUCCESS;
    return true;
}

static void end(rvli_staging *ring, CUstream stream, CUresult result)
{
    if (result != CUDA_SUCCESS)
        settle(ring, stream);
    pthread_mutex_unlock(&ring->lock);
}

CUresult rvli_staging_to_host(rvli_staging *ring, CUstream stream, char *host, CUdeviceptr addr,
                              uint64_t size, bool *staged_out)
{
    CUresult result = CUDA_SUCCESS;
    *staged_out = begin(ring, stream, &result);
    if (!*staged_out)
        return CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = pull(ring, stream, host, addr, size);
    end(ring, stream, result);
    return result;
}

CUresult rvli_staging_to_device(rvli_staging *ring, CUstream stream, CUdeviceptr addr,
                                const char *host, uint64_t size, bool *staged_out)
{
    CUresult result = CUDA_SUCCESS;
    *staged_out = begin(ring, stream, &result);
    if (!*staged_out)
        return CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        result = push(ring, stream, addr, host, size);
    end(ring, stream, result);
    return result;
}
