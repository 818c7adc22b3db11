/* SPDX-License-Identifier: MIT */
#include "backends/cuda/pinned.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/cuda/arena.h"
#include "backends/cuda/hostmem.h"
#include "backends/cuda/numa.h"
#include "base/error.h"
#include "base/workers.h"

#define MIB (UINT64_C(1) << 20)
#define ALIGNMENT_BYTES (2 * MIB) /* a huge page */

/*
 * Large enough that the cost of calls to register does not matter, and small enough that the first
 * copy begins early. Several threads populate a chunk. Between 32 and 256 MiB, and 4 and 16 pieces,
 * a first pause of 16 GiB takes the same time within 10 % (H200 host, 16 cores).
 */
#define CHUNK_BYTES (64 * MIB)
#define PIECES 8
#define PIECE_BYTES (CHUNK_BYTES / PIECES)

#define WORKERS_MAX 12 /* more would wait for each other */
#define SPARE_PART 8   /* allocation ahead leaves 1/8 of the system's memory */
#define ARENA_BYTES_MIN (UINT64_C(16) << 30)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

typedef enum chunk_state {
    CHUNK_RAW = 0,  /* only address space */
    CHUNK_MAKING,   /* pieces are queued or being populated */
    CHUNK_PINNED,   /* registered with the driver */
    CHUNK_PAGEABLE, /* populated, but not registered */
    CHUNK_FAILED,   /* its pages could not be allocated */
    CHUNK_GIVING    /* queued to be returned to the system */
} chunk_state;

typedef struct chunk chunk;

typedef struct piece {
    rvli_job job;
    chunk *owner;
} piece;

struct chunk {
    _Atomic int state;         /* chunk_state; changed with the lock held */
    _Atomic int pieces_left;   /* pieces to populate */
    _Atomic bool out_of_pages; /* a piece could not be populated */
    _Atomic bool ahead;        /* being made before a buffer needs it: yields to other processes */
    bool wanted;               /* allocated again while it was being returned */
    int node_wanted;           /* the preferred node of the last buffer that asked for it */
    bool placed;               /* its pages prefer `node` */
    int node;
    uint64_t used_bytes;
    piece pieces[PIECES]; /* the first is also used to return the chunk */
};

typedef struct pool {
    unsigned users;
    _Atomic unsigned registering_users; /* how many of them want memory registered */
    CUdevice device;
    CUcontext context;
    char *base;
    uint64_t size;
    chunk *chunks;
    uint64_t chunk_end; /* chunks from this number on were never made */
    rvli_arena arena;
    rvli_workers *workers; /* NULL until the first allocation */
    rvli_pinned_facts facts;
    uint64_t moving;       /* chunks that are being made or returned */
    uint64_t making;       /* how many of these are being made */
    uint64_t wanted_bytes; /* sum of rvli_pinned_want() over all devices */
    uint64_t spare_bytes;  /* of the system's memory, left by allocation ahead */
    uint64_t keep_bytes;   /* limit of the latest free: also for chunks that were being made */
    _Atomic uint64_t coming_bytes; /* still to be populated */
} pool;

/* Held while the pool is created or destroyed, which releases `lock` in between. */
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t settled = PTHREAD_COND_INITIALIZER; /* a chunk was made or returned */
static pool the;

/* ---- Chunks ---- */

static char *chunk_base(const chunk *c)
{
    return the.base + (uint64_t)(c - the.chunks) * CHUNK_BYTES;
}

static chunk *chunk_at(const char *at)
{
    return &the.chunks[(uint64_t)(at - the.base) / CHUNK_BYTES];
}

static void set_state(chunk *c, chunk_state state)
{
    atomic_store_explicit(&c->state, (int)state, memory_order_release);
}

static chunk_state state_of(chunk *c)
{
    return (chunk_state)atomic_load_explicit(&c->state, memory_order_acquire);
}

/* Populates pages without touching them, so that lack of memory is an error and not a signal. */
static bool populate(char *at, uint64_t size)
{
    if (madvise(at, size, MADV_POPULATE_WRITE) == 0)
        return true;
    if (errno != EINVAL)
        return false;
    for (uint64_t offset = 0; offset < size; offset += 4096) /* before Linux 5.14 */
        *(volatile char *)(at + offset) = 0;
    return true;
}

/* With the lock held. */
static void begin_making(chunk *c);
static void trim(uint64_t keep_bytes);

/* Sets the new state of a chunk, and wakes its waiters. */
static void finish(chunk *c, chunk_state state)
{
    pthread_mutex_lock(&lock);
    bool ahead = atomic_exchange(&c->ahead, false);
    set_state(c, state);
    the.facts.pinned_bytes += state == CHUNK_PINNED ? CHUNK_BYTES : 0;
    the.facts.pageable_bytes += state == CHUNK_PAGEABLE ? CHUNK_BYTES : 0;
    the.moving--;
    the.making -= state != CHUNK_RAW;
    /* A chunk that was returned, or that failed while it was made ahead, may be needed by now. */
    if ((state == CHUNK_RAW && c->wanted) || (state == CHUNK_FAILED && c->used_bytes > 0 && ahead))
        begin_making(c);
    else if (state != CHUNK_RAW && c->used_bytes == 0)
        trim(the.keep_bytes); /* freed while it was being made */
    c->wanted = false;
    pthread_cond_broadcast(&settled);
    pthread_mutex_unlock(&lock);
}

static bool try_to_register(chunk *c)
{
    if (atomic_load(&the.registering_users) == 0)
        return false;
    if (rvli_cuda.cuMemHostRegister(chunk_base(c), CHUNK_BYTES, CU_MEMHOSTREGISTER_PORTABLE) ==
        CUDA_SUCCESS)
        return true;
    pthread_mutex_lock(&lock);
    the.facts.refusals++;
    pthread_mutex_unlock(&lock);
    return false;
}

/* Frees the pages of an incomplete chunk at once: it cannot be used. */
static void finish_making(chunk *c)
{
    if (atomic_load(&c->out_of_pages)) {
        madvise(chunk_base(c), CHUNK_BYTES, MADV_DONTNEED);
        finish(c, CHUNK_FAILED);
        return;
    }
    finish(c, try_to_register(c) ? CHUNK_PINNED : CHUNK_PAGEABLE);
}

/*
 * A pause allocates all its memory at once, and other processes may take some before the last chunk
 * is made. Then the kernel could kill this process, even while populating. So the available memory
 * is checked again for each chunk, by its first piece, which begins first.
 */
static void run_piece(rvli_job *job)
{
    piece *p = (piece *)(void *)job;
    chunk *c = p->owner;
    uint64_t spare = atomic_load(&c->ahead) ? the.spare_bytes : 0;
    if (p == c->pieces && rvli_hostmem_available() < CHUNK_BYTES + spare)
        atomic_store(&c->out_of_pages, true);
    if (!atomic_load(&c->out_of_pages) &&
        !populate(chunk_base(c) + (uint64_t)(p - c->pieces) * PIECE_BYTES, PIECE_BYTES))
        atomic_store(&c->out_of_pages, true);
    atomic_fetch_sub(&the.coming_bytes, PIECE_BYTES);
    if (atomic_fetch_sub(&c->pieces_left, 1) == 1)
        finish_making(c);
}

static void queue_pieces(chunk *c)
{
    for (int i = 0; i < PIECES; i++) {
        c->pieces[i] = (piece){.job.run = run_piece, .owner = c};
        rvli_workers_queue(the.workers, &c->pieces[i].job);
    }
}

/* Runs before the pages are populated, because existing pages would not move. */
static void run_placing(rvli_job *job)
{
    chunk *c = ((piece *)(void *)job)->owner;
    rvli_numa_prefer(chunk_base(c), CHUNK_BYTES, c->node);
    queue_pieces(c);
}

static void begin_making(chunk *c)
{
    uint64_t number = (uint64_t)(c - the.chunks);
    if (the.chunk_end <= number)
        the.chunk_end = number + 1;
    set_state(c, CHUNK_MAKING);
    the.moving++;
    the.making++;
    atomic_fetch_add(&the.coming_bytes, CHUNK_BYTES);
    atomic_store(&c->out_of_pages, false);
    atomic_store(&c->pieces_left, PIECES);
    if (c->node_wanted == RVLI_NUMA_ANY || (c->placed && c->node == c->node_wanted)) {
        queue_pieces(c);
        return;
    }
    c->placed = true;
    c->node = c->node_wanted;
    c->pieces[0] = (piece){.job.run = run_placing, .owner = c};
    rvli_workers_queue(the.workers, &c->pieces[0].job);
}

static void run_giving(rvli_job *job)
{
    chunk *c = ((piece *)(void *)job)->owner;
    rvli_cuda.cuMemHostUnregister(chunk_base(c)); /* fails if it is not registered */
    madvise(chunk_base(c), CHUNK_BYTES, MADV_DONTNEED);
    finish(c, CHUNK_RAW);
}

/* With the lock held. */
static void begin_giving(chunk *c)
{
    the.facts.pinned_bytes -= state_of(c) == CHUNK_PINNED ? CHUNK_BYTES : 0;
    the.facts.pageable_bytes -= state_of(c) == CHUNK_PAGEABLE ? CHUNK_BYTES : 0;
    set_state(c, CHUNK_GIVING);
    the.moving++;
    c->pieces[0] = (piece){.job.run = run_giving, .owner = c};
    rvli_workers_queue(the.workers, &c->pieces[0].job);
}

/* ---- The pool ---- */

static void begin_worker(void *user)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* other threads may be capturing */
    rvli_cuda.cuCtxSetCurrent(user);
    rvli_cuda.cuThreadExchangeStreamCaptureMode(&mode);
}

static rvl_status start_workers(void)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned count = cores < 1 ? 1 : cores > WORKERS_MAX ? WORKERS_MAX : (unsigned)cores;
    if (the.workers != NULL)
        return RVL_OK;
    return rvli_workers_start(count, begin_worker, the.context, &the.workers);
}

/* Twice the host's memory, so that free space is never too fragmented. */
static uint64_t arena_bytes(void)
{
    uint64_t bytes = 2 * (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) /
                     CHUNK_BYTES * CHUNK_BYTES;
    return bytes > ARENA_BYTES_MIN ? bytes : ARENA_BYTES_MIN;
}

/* Reserves address space, aligned to chunks. It uses no memory. */
static rvl_status reserve_arena(void)
{
    the.size = arena_bytes();
    char *mapped = mmap(NULL, the.size + CHUNK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        return rvli_error(RVL_ERR_HOST_OOM, "no address space for host backups (see ulimit -v)");
    uint64_t before = (CHUNK_BYTES - (uintptr_t)mapped % CHUNK_BYTES) % CHUNK_BYTES;
    the.base = mapped + before;
    if (before > 0)
        munmap(mapped, before);
    munmap(the.base + the.size, CHUNK_BYTES - before);
    madvise(the.base, the.size, MADV_HUGEPAGE); /* a preference */
    madvise(the.base, the.size, MADV_DONTFORK); /* children must not share it: a GPU writes it */
    return RVL_OK;
}

static rvl_status build(CUdevice device)
{
    the.device = device;
    rvl_status status = rvli_cuda_check(rvli_cuda.cuDevicePrimaryCtxRetain(&the.context, device),
                                        "retaining the primary context");
    if (status != RVL_OK)
        return status;
    status = reserve_arena();
    if (status == RVL_OK) {
        the.chunks = calloc(the.size / CHUNK_BYTES, sizeof *the.chunks);
        if (the.chunks == NULL)
            status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for the table of chunks");
    }
    the.spare_bytes = rvli_hostmem_total() / SPARE_PART;
    if (status == RVL_OK)
        status = rvli_arena_init(&the.arena, (uintptr_t)the.base, the.size);
    return status;
}

static void unregister_all(void)
{
    for (uint64_t i = 0; i < the.chunk_end; i++)
        if (state_of(&the.chunks[i]) == CHUNK_PINNED)
            rvli_cuda.cuMemHostUnregister(chunk_base(&the.chunks[i]));
}

/* With the lock held, and without other users. */
static void tear_down(void)
{
    if (the.workers != NULL) {
        pthread_mutex_unlock(&lock); /* the workers need the lock to finish */
        rvli_workers_stop(the.workers);
        pthread_mutex_lock(&lock);
    }
    if (the.context != NULL) {
        CUcontext popped;
        if (rvli_cuda.cuCtxPushCurrent(the.context) == CUDA_SUCCESS) {
            unregister_all();
            rvli_cuda.cuCtxPopCurrent(&popped);
        }
        rvli_cuda.cuDevicePrimaryCtxRelease(the.device);
    }
    rvli_arena_destroy(&the.arena);
    free(the.chunks);
    if (the.base != NULL)
        munmap(the.base, the.size);
    the = (pool){0};
}

rvl_status rvli_pinned_hold(CUdevice device, bool registered)
{
    rvl_status status = RVL_OK;
    pthread_mutex_lock(&users_lock);
    pthread_mutex_lock(&lock);
    if (the.users == 0)
        status = build(device);
    if (status == RVL_OK) {
        the.users++;
        atomic_fetch_add(&the.registering_users, registered);
    } else {
        rvl_error cause = *rvli_error_get();
        tear_down();
        rvli_error_set(&cause);
    }
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&users_lock);
    return status;
}

void rvli_pinned_let_go(bool registered)
{
    pthread_mutex_lock(&users_lock);
    pthread_mutex_lock(&lock);
    if (--the.users == 0)
        tear_down(); /* registering_users stays: chunks being made are still registered */
    else
        atomic_fetch_sub(&the.registering_users, registered);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&users_lock);
}

/* ---- Allocating ---- */

static uint64_t rounded(uint64_t size)
{
    return (size + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
}

static bool must_be_made(chunk *c)
{
    chunk_state state = state_of(c);
    return state == CHUNK_RAW || state == CHUNK_GIVING ||
           (state == CHUNK_FAILED && c->used_bytes == 0);
}

/* The bytes of [at, end) in the chunk of `at`. */
static uint64_t span_in_chunk(const char *at, const char *end)
{
    const char *chunk_end = chunk_base(chunk_at(at)) + CHUNK_BYTES;
    return (uint64_t)((chunk_end < end ? chunk_end : end) - at);
}

static uint64_t bytes_to_make(char *at, const char *end)
{
    uint64_t bytes = 0;
    for (; at < end; at += span_in_chunk(at, end))
        bytes += must_be_made(chunk_at(at)) ? CHUNK_BYTES : 0;
    return bytes;
}

static void use_chunks(char *at, const char *end, int node)
{
    while (at < end) {
        chunk *c = chunk_at(at);
        uint64_t span = span_in_chunk(at, end);
        c->node_wanted = node;
        if (state_of(c) == CHUNK_GIVING)
            c->wanted = true;
        else if (must_be_made(c))
            begin_making(c);
        c->used_bytes += span;
        at += span;
    }
}

/* With the lock held. */
static rvl_status take(uint64_t size, int node, char **host_out)
{
    rvl_status status = start_workers();
    if (status != RVL_OK)
        return status;
    char *host = (char *)(uintptr_t)rvli_arena_take(&the.arena, size);
    if (host == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no room for a host backup of this size");
    uint64_t needed = bytes_to_make(host, host + size);
    /* The kernel's number still includes memory that is queued to be populated. */
    if (needed > 0 && needed + atomic_load(&the.coming_bytes) > rvli_hostmem_available()) {
        rvli_arena_give(&the.arena, (uintptr_t)host, size);
        return rvli_error(RVL_ERR_HOST_OOM,
                          "not enough host memory available for a backup: free some, raise the "
                          "cgroup's limit, or pause with discard");
    }
    use_chunks(host, host + size, node);
    the.facts.used_bytes += size;
    *host_out = host;
    return RVL_OK;
}

/*
 * Returns idle chunks to the system, highest first, until at most keep_bytes remain. With the lock
 * held.
 */
static void trim(uint64_t keep_bytes)
{
    uint64_t made = the.facts.pinned_bytes + the.facts.pageable_bytes;
    for (uint64_t i = the.chunk_end; made > keep_bytes && i-- > 0;) {
        chunk *c = &the.chunks[i];
        chunk_state state = state_of(c);
        if (c->used_bytes > 0 || (state != CHUNK_PINNED && state != CHUNK_PAGEABLE))
            continue;
        begin_giving(c);
        made -= CHUNK_BYTES;
    }
}

static void wait_until_settled(void)
{
    while (the.moving > 0)
        pthread_cond_wait(&settled, &lock);
}

void rvli_pinned_trim(uint64_t keep_bytes)
{
    pthread_mutex_lock(&lock);
    wait_until_settled(); /* chunks being made ahead may end up idle */
    trim(keep_bytes);
    wait_until_settled();
    pthread_mutex_unlock(&lock);
}

/* Whether idle chunks hold memory that a buffer elsewhere could use. */
static bool has_idle(void)
{
    for (uint64_t i = 0; i < the.chunk_end; i++)
        if (the.chunks[i].used_bytes == 0 && (state_of(&the.chunks[i]) == CHUNK_PINNED ||
                                              state_of(&the.chunks[i]) == CHUNK_PAGEABLE))
            return true;
    return false;
}

/* Before it fails, returns idle memory at other addresses to the system. */
rvl_status rvli_pinned_alloc(uint64_t size, int node, void **host_out)
{
    char *host = NULL;
    if (size == 0 || size > INT64_MAX)
        return rvli_error(RVL_ERR_INVALID, "a host buffer of 0 bytes, or of 2^63 or more");
    pthread_mutex_lock(&lock);
    rvl_status status = take(rounded(size), node, &host);
    if (status == RVL_ERR_HOST_OOM && has_idle()) {
        trim(0);
        wait_until_settled();
        status = take(rounded(size), node, &host);
    }
    pthread_mutex_unlock(&lock);
    if (status == RVL_OK)
        *host_out = host;
    return status;
}

static bool is_ours(const char *at, uint64_t size)
{
    return the.base != NULL && at >= the.base && at < the.base + the.size &&
           size <= (uint64_t)(the.base + the.size - at);
}

rvl_status rvli_pinned_free(void *host, uint64_t size, uint64_t keep_bytes)
{
    char *at = host;
    pthread_mutex_lock(&lock);
    rvl_status status = RVL_OK;
    if (size == 0 || size > INT64_MAX || !is_ours(at, rounded(size)) ||
        (uintptr_t)host % ALIGNMENT_BYTES != 0)
        status = rvli_error(RVL_ERR_INVALID, "not a host buffer of this backend");
    if (status == RVL_OK)
        status = rvli_arena_give(&the.arena, (uintptr_t)host, rounded(size));
    if (status == RVL_OK) {
        const char *end = at + rounded(size);
        the.facts.used_bytes -= rounded(size);
        while (at < end) {
            uint64_t span = span_in_chunk(at, end);
            chunk_at(at)->used_bytes -= span;
            at += span;
        }
        the.keep_bytes = keep_bytes;
        trim(keep_bytes);
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- Ahead ---- */

static uint64_t bytes_coming(void)
{
    return the.facts.pinned_bytes + the.facts.pageable_bytes + the.making * CHUNK_BYTES;
}

/* The limit for all memory of the pool, given what other processes leave. With the lock held. */
static uint64_t bound_ahead(uint64_t keep_bytes)
{
    uint64_t taken = atomic_load(&the.coming_bytes) + the.spare_bytes;
    uint64_t available = rvli_hostmem_available();
    uint64_t room = available > taken ? available - taken : 0;
    uint64_t bound = bytes_coming() + room;
    bound = bound < the.wanted_bytes + CHUNK_BYTES - 1 ? bound : the.wanted_bytes + CHUNK_BYTES - 1;
    return bound < keep_bytes ? bound : keep_bytes;
}

void rvli_pinned_want(uint64_t *own, uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    the.wanted_bytes += bytes - *own;
    *own = bytes;
    pthread_mutex_unlock(&lock);
}

/* Makes the lowest chunks first, because buffers are allocated from there. */
uint64_t rvli_pinned_ahead(uint64_t bytes, int node, uint64_t keep_bytes)
{
    pthread_mutex_lock(&lock);
    if (rvli_hostmem_available() < the.spare_bytes / 2)
        trim(0); /* other processes need it more */
    uint64_t bound = bound_ahead(keep_bytes);
    bool works = bytes_coming() + CHUNK_BYTES > bound || start_workers() == RVL_OK;
    for (uint64_t i = 0; works && bytes_coming() + CHUNK_BYTES <= bound; i++) {
        chunk *c = &the.chunks[i];
        if (i >= the.size / CHUNK_BYTES)
            break;
        if (c->used_bytes > 0 || !must_be_made(c) || state_of(c) == CHUNK_GIVING)
            continue;
        the.keep_bytes = keep_bytes;
        c->node_wanted = node;
        atomic_store(&c->ahead, true);
        begin_making(c);
    }
    uint64_t coming = bytes_coming();
    pthread_mutex_unlock(&lock);
    return coming < bytes ? coming : bytes;
}

/* ---- Waiting ---- */

rvl_status rvli_pinned_wait(const void *at, uint64_t size, rvli_pinned_span *span_out)
{
    const char *from = at;
    *span_out = (rvli_pinned_span){.bytes = size};
    if (!is_ours(from, 1)) { /* base and size are constant while the pool has users */
        span_out->pageable = true;
        return RVL_OK;
    }
    chunk *c = chunk_at(from);
    span_out->bytes = span_in_chunk(from, from + size);
    if (state_of(c) == CHUNK_PINNED)
        return RVL_OK;
    pthread_mutex_lock(&lock);
    while (state_of(c) == CHUNK_MAKING || state_of(c) == CHUNK_GIVING)
        pthread_cond_wait(&settled, &lock);
    span_out->pageable = state_of(c) == CHUNK_PAGEABLE;
    bool there = state_of(c) == CHUNK_PINNED || span_out->pageable;
    pthread_mutex_unlock(&lock);
    if (there)
        return RVL_OK;
    return rvli_error(RVL_ERR_HOST_OOM, "the host ran out of memory while a backup was made");
}

void rvli_pinned_count_staged(uint64_t bytes)
{
    pthread_mutex_lock(&lock);
    the.facts.staged_bytes += bytes;
    pthread_mutex_unlock(&lock);
}

rvli_pinned_facts rvli_pinned_get_facts(void)
{
    pthread_mutex_lock(&lock);
    rvli_pinned_facts facts = the.facts;
    facts.registers = atomic_load(&the.registering_users) > 0;
    pthread_mutex_unlock(&lock);
    return facts;
}

void rvli_pinned_settle(void)
{
    pthread_mutex_lock(&lock);
    wait_until_settled();
    pthread_mutex_unlock(&lock);
}
