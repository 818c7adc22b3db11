/* SPDX-License-Identifier: MIT */
#include "backends/cuda/staging.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/pinned.h"

#define KIB (UINT64_C(1) << 10)
/*
 * 4 MiB keeps the link as busy as registered memory. 1 MiB does not (26 to 43 of 55 GB/s), and
 * 8 MiB keeps it less busy than 4 MiB.
 */
#define BUFFER_BYTES_MAX (4096 * KIB)
#define BUFFER_BYTES_MIN (256 * KIB) /* below that the driver's own buffer is as good */

struct rvli_staging_copy {
    bool to_device;
    char *host;
    CUdeviceptr addr;
    uint64_t size;
    uint64_t taken;    /* bytes of pieces that were taken or will be skipped */
    unsigned carrying; /* pieces in progress */
    CUresult result;
    uint64_t ticket;
    rvli_staging_copy *previous, *next;
};

/* ---- Copies and their pieces, with the lock held ---- */

static void append(rvli_staging *staging, rvli_staging_copy *copy)
{
    copy->ticket = ++staging->tickets;
    copy->previous = staging->last;
    if (staging->last != NULL)
        staging->last->next = copy;
    else
        staging->first = copy;
    staging->last = copy;
    if (staging->next == NULL)
        staging->next = copy;
}

static void take_out(rvli_staging *staging, rvli_staging_copy *copy)
{
    if (copy->previous != NULL)
        copy->previous->next = copy->next;
    else
        staging->first = copy->next;
    if (copy->next != NULL)
        copy->next->previous = copy->previous;
    else
        staging->last = copy->previous;
}

static void end_copy(rvli_staging *staging, rvli_staging_copy *copy)
{
    take_out(staging, copy);
    if (copy->result == CUDA_SUCCESS)
        rvli_pinned_count_staged(copy->size);
    else if (staging->failed_ticket == 0 || copy->ticket < staging->failed_ticket) {
        staging->failed_ticket = copy->ticket;
        staging->failure = copy->result;
    }
    free(copy);
    pthread_cond_broadcast(&staging->ended);
}

static bool take_piece(rvli_staging *staging, rvli_staging_piece *piece)
{
    rvli_staging_copy *copy = staging->next;
    if (copy == NULL)
        return false;
    uint64_t left = copy->size - copy->taken;
    *piece = (rvli_staging_piece){
        .copy = copy,
        .host = copy->host + copy->taken,
        .addr = copy->addr + copy->taken,
        .size = left < staging->buffer_bytes ? left : staging->buffer_bytes,
    };
    copy->carrying++;
    copy->taken += piece->size;
    if (copy->taken == copy->size)
        staging->next = copy->next;
    return true;
}

/* Ends a piece. After a failure, skips the rest of its copy. */
static void end_piece(rvli_staging *staging, rvli_staging_piece *piece, CUresult result)
{
    rvli_staging_copy *copy = piece->copy;
    piece->copy = NULL;
    copy->carrying--;
    if (result != CUDA_SUCCESS && copy->result == CUDA_SUCCESS)
        copy->result = result;
    if (copy->result != CUDA_SUCCESS && copy->taken < copy->size) {
        copy->taken = copy->size;
        staging->next = copy->next;
    }
    if (copy->taken == copy->size && copy->carrying == 0)
        end_copy(staging, copy);
}

/* ---- The carriers' threads ---- */

/* Copies past the caches, since the destination is not read soon. */
static void copy_past_caches(char *to, const char *from, uint64_t size)
{
#ifdef __SSE2__
    enum { LINE = 64, WORD = sizeof(__m128i) };
    uint64_t done = (uintptr_t)to % WORD == 0 ? size / LINE * LINE : 0;
    for (uint64_t line = 0; line < done; line += LINE)
        for (uint64_t at = line; at < line + LINE; at += WORD)
            _mm_stream_si128((__m128i *)(void *)(to + at),
                             _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
    _mm_sfence();
    memcpy(to + done, from + done, size - done);
#else
    memcpy(to, from, size);
#endif
}

/*
 * Waits for the stream: a failed piece may still use its buffer, which must not be written
 * meanwhile.
 */
static CUresult settle(rvli_staging_carrier *carrier)
{
    CUresult result = rvli_cuda.cuStreamSynchronize(carrier->stream);
    atomic_store(&carrier->unsettled, result != CUDA_SUCCESS);
    return result;
}

static void end_carried(rvli_staging_carrier *carrier, unsigned slot, CUresult result)
{
    if (result != CUDA_SUCCESS)
        settle(carrier);
    pthread_mutex_lock(&carrier->staging->lock);
    end_piece(carrier->staging, &carrier->pieces[slot], result);
    pthread_mutex_unlock(&carrier->staging->lock);
}

static void send_off(rvli_staging_carrier *carrier, unsigned slot)
{
    rvli_staging_piece *piece = &carrier->pieces[slot];
    char *buffer = carrier->buffers[slot];
    CUresult result = atomic_load(&carrier->unsettled) ? settle(carrier) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && piece->copy->to_device) {
        memcpy(buffer, piece->host, piece->size);
        result = rvli_cuda.cuMemcpyHtoDAsync(piece->addr, buffer, piece->size, carrier->stream);
    } else if (result == CUDA_SUCCESS) {
        result = rvli_cuda.cuMemcpyDtoHAsync(buffer, piece->addr, piece->size, carrier->stream);
    }
    if (result == CUDA_SUCCESS)
        result = rvli_cuda.cuEventRecord(carrier->passed[slot], carrier->stream);
    if (result != CUDA_SUCCESS)
        end_carried(carrier, slot, result);
}

static void receive(rvli_staging_carrier *carrier, unsigned slot)
{
    rvli_staging_piece *piece = &carrier->pieces[slot];
    CUresult result = rvli_cuda.cuEventSynchronize(carrier->passed[slot]);
    if (result == CUDA_SUCCESS && !piece->copy->to_device)
        copy_past_caches(piece->host, carrier->buffers[slot], piece->size);
    end_carried(carrier, slot, result);
}

static bool carries(const rvli_staging_carrier *carrier)
{
    for (int i = 0; i < RVLI_STAGING_BUFFERS; i++)
        if (carrier->pieces[i].copy != NULL)
            return true;
    return false;
}

/*
 * Takes a piece if there is one. Waits for one only if the carrier has none in progress. Returns
 * false when staging closes.
 */
static bool next_piece(rvli_staging_carrier *carrier, unsigned slot)
{
    rvli_staging *staging = carrier->staging;
    bool goes_on = true;
    pthread_mutex_lock(&staging->lock);
    while (!take_piece(staging, &carrier->pieces[slot]) && !carries(carrier) && goes_on) {
        goes_on = !staging->stop;
        if (goes_on)
            pthread_cond_wait(&staging->queued, &staging->lock);
    }
    pthread_mutex_unlock(&staging->lock);
    return goes_on;
}

/* Copies one buffer while the other is on the link. */
static void carry(rvli_job *job)
{
    rvli_staging_carrier *carrier = (rvli_staging_carrier *)(void *)job;
    unsigned slot = 0;
    while (next_piece(carrier, slot)) {
        if (carrier->pieces[slot].copy != NULL)
            send_off(carrier, slot);
        slot = (slot + 1) % RVLI_STAGING_BUFFERS;
        if (carrier->pieces[slot].copy != NULL)
            receive(carrier, slot);
    }
}

static void begin_thread(void *context)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* other threads may be capturing */
    rvli_cuda.cuCtxSetCurrent(context);
    rvli_cuda.cuThreadExchangeStreamCaptureMode(&mode);
}

/* ---- Making threads and buffers ---- */

/* Tries smaller buffers if pinned memory is limited. */
static bool make_buffers(rvli_staging *staging, uint64_t carriers)
{
    void *memory = NULL;
    for (uint64_t bytes = BUFFER_BYTES_MAX; bytes >= BUFFER_BYTES_MIN; bytes /= 2)
        if (rvli_cuda.cuMemHostAlloc(&memory, carriers * RVLI_STAGING_BUFFERS * bytes,
                                     CU_MEMHOSTALLOC_PORTABLE) == CUDA_SUCCESS) {
            staging->memory = memory;
            staging->buffer_bytes = bytes;
            return true;
        }
    return false;
}

static bool make_carrier(rvli_staging *staging, unsigned number)
{
    rvli_staging_carrier *carrier = &staging->carriers[number];
    *carrier = (rvli_staging_carrier){.job.run = carry, .staging = staging};
    bool good = rvli_cuda.cuStreamCreate(&carrier->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    for (unsigned i = 0; i < RVLI_STAGING_BUFFERS && good; i++) {
        carrier->buffers[i] =
            staging->memory + ((uint64_t)number * RVLI_STAGING_BUFFERS + i) * staging->buffer_bytes;
        good =
            rvli_cuda.cuEventCreate(&carrier->passed[i], CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS;
        if (!good)
            carrier->passed[i] = NULL;
    }
    return good;
}

static void unmake(rvli_staging *staging)
{
    for (unsigned i = 0; i < staging->carrier_count; i++) {
        rvli_staging_carrier *carrier = &staging->carriers[i];
        for (unsigned k = 0; k < RVLI_STAGING_BUFFERS; k++)
            if (carrier->passed[k] != NULL)
                rvli_cuda.cuEventDestroy(carrier->passed[k]);
        if (carrier->stream != NULL)
            rvli_cuda.cuStreamDestroy(carrier->stream);
    }
    staging->carrier_count = 0;
    if (staging->memory != NULL)
        rvli_cuda.cuMemFreeHost(staging->memory);
    staging->memory = NULL;
}

static unsigned wanted_threads(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores < 1                          ? 1
           : cores > RVLI_STAGING_THREADS_MAX ? RVLI_STAGING_THREADS_MAX
                                              : (unsigned)cores;
}

/* It also works with fewer threads than carriers, more slowly. */
static bool make(rvli_staging *staging, CUcontext context)
{
    unsigned wanted = wanted_threads();
    bool good = make_buffers(staging, wanted);
    while (good && staging->carrier_count < wanted)
        good = make_carrier(staging, staging->carrier_count++);
    good = good && rvli_workers_start(wanted, begin_thread, context, &staging->threads) == RVL_OK;
    for (unsigned i = 0; i < wanted && good; i++)
        rvli_workers_queue(staging->threads, &staging->carriers[i].job);
    if (!good)
        unmake(staging);
    return good;
}

void rvli_staging_open(rvli_staging *staging)
{
    *staging = (rvli_staging){0};
    pthread_mutex_init(&staging->lock, NULL);
    pthread_cond_init(&staging->queued, NULL);
    pthread_cond_init(&staging->ended, NULL);
}

void rvli_staging_close(rvli_staging *staging)
{
    pthread_mutex_lock(&staging->lock);
    staging->stop = true;
    pthread_cond_broadcast(&staging->queued);
    pthread_mutex_unlock(&staging->lock);
    if (staging->threads != NULL)
        rvli_workers_stop(staging->threads);
    unmake(staging);
    pthread_cond_destroy(&staging->ended);
    pthread_cond_destroy(&staging->queued);
    pthread_mutex_destroy(&staging->lock);
}

/* ---- Queueing ---- */

static CUresult settle_all(rvli_staging *staging)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < staging->carrier_count && result == CUDA_SUCCESS; i++)
        if (atomic_load(&staging->carriers[i].unsettled))
            result = settle(&staging->carriers[i]);
    return result;
}

static CUresult queue(rvli_staging *staging, const rvli_staging_copy *what)
{
    CUresult result = settle_all(staging);
    rvli_staging_copy *copy = result == CUDA_SUCCESS ? malloc(sizeof *copy) : NULL;
    if (copy == NULL)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
    *copy = *what;
    append(staging, copy);
    pthread_cond_broadcast(&staging->queued);
    return CUDA_SUCCESS;
}

static bool begin(rvli_staging *staging, CUcontext context, const rvli_staging_copy *what,
                  CUresult *result_out)
{
    pthread_mutex_lock(&staging->lock);
    if (!atomic_load(&staging->made) && make(staging, context))
        atomic_store(&staging->made, true);
    bool made = atomic_load(&staging->made);
    *result_out = made ? queue(staging, what) : CUDA_SUCCESS;
    pthread_mutex_unlock(&staging->lock);
    return made;
}

bool rvli_staging_to_host(rvli_staging *staging, CUcontext context, char *host, CUdeviceptr addr,
                          uint64_t size, CUresult *result_out)
{
    const rvli_staging_copy copy = {.host = host, .addr = addr, .size = size};
    return begin(staging, context, &copy, result_out);
}

bool rvli_staging_to_device(rvli_staging *staging, CUcontext context, CUdeviceptr addr,
                            const char *host, uint64_t size, CUresult *result_out)
{
    const rvli_staging_copy copy = {
        .to_device = true, .host = (char *)(uintptr_t)host, .addr = addr, .size = size};
    return begin(staging, context, &copy, result_out);
}

/* ---- Waiting ---- */

/* With the lock held. */
static CUresult await(rvli_staging *staging, uint64_t ticket)
{
    while (staging->first != NULL && staging->first->ticket <= ticket)
        pthread_cond_wait(&staging->ended, &staging->lock);
    bool failed = staging->failed_ticket != 0 && staging->failed_ticket <= ticket;
    return failed ? staging->failure : CUDA_SUCCESS;
}

/* Clears a failure once it has been returned and no mark is left that could return it. */
static void forget_told(rvli_staging *staging, CUresult told)
{
    if (told != CUDA_SUCCESS && staging->marks == 0)
        staging->failed_ticket = 0;
}

uint64_t rvli_staging_mark(rvli_staging *staging)
{
    if (!atomic_load(&staging->made))
        return 0;
    pthread_mutex_lock(&staging->lock);
    uint64_t mark = staging->tickets;
    staging->marks += mark != 0;
    pthread_mutex_unlock(&staging->lock);
    return mark;
}

CUresult rvli_staging_wait(rvli_staging *staging, uint64_t mark)
{
    if (mark == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&staging->lock);
    CUresult result = await(staging, mark);
    staging->marks--;
    forget_told(staging, result);
    pthread_mutex_unlock(&staging->lock);
    return result;
}

CUresult rvli_staging_drain(rvli_staging *staging)
{
    if (!atomic_load(&staging->made))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&staging->lock);
    CUresult result = await(staging, staging->tickets);
    forget_told(staging, result);
    pthread_mutex_unlock(&staging->lock);
    return result;
}
