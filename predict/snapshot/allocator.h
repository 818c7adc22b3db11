/* SPDX-License-Identifier: MIT */
/*
 * A model of PyTorch's CUDA caching allocator (docs/snapshot.md has its rules).
 *
 * It has no memory and no clock: it computes where each block would be, and counts bytes. It asks
 * its owner where segments lie. The owner reads that from a recording or makes addresses up, so one
 * model serves both to check a recording and to predict.
 */
#ifndef RVL_PREDICT_SNAPSHOT_ALLOCATOR_H
#define RVL_PREDICT_SNAPSHOT_ALLOCATOR_H

#include "base/addrmap.h"
#include "base/intmap.h"
#include "base/pool.h"
#include "reveille/status.h"
#include "predict/snapshot/block.h"
#include "predict/snapshot/settings.h"

#define RVLI_MIN_BLOCK UINT64_C(512)
#define RVLI_SMALL_SIZE (UINT64_C(1) << 20)
#define RVLI_SMALL_BUFFER (UINT64_C(2) << 20)
#define RVLI_MIN_LARGE_ALLOC (UINT64_C(10) << 20)
#define RVLI_ROUND_LARGE (UINT64_C(2) << 20)

/* Changes of segments, with the names that trace entries use. */
typedef enum rvli_snapshot_change {
    RVLI_CHANGE_ALLOC,
    RVLI_CHANGE_FREE,
    RVLI_CHANGE_MAP,
    RVLI_CHANGE_UNMAP,
    RVLI_CHANGE_RANGE,    /* a range of addresses is reserved; has no entry */
    RVLI_CHANGE_COMPLETE, /* a pending block was waited for; addr: its event */
    RVLI_CHANGE_CATCH_UP  /* the model left the recording; the owner applies all open entries */
} rvli_snapshot_change;

/*
 * Called for each change. For RVLI_CHANGE_ALLOC and RVLI_CHANGE_RANGE it returns the address; 0
 * means that the owner has none, and the change does not happen. Other return values are ignored.
 */
typedef uint64_t (*rvli_snapshot_change_fn)(void *owner, rvli_snapshot_change change, uint64_t addr,
                                            uint64_t size, uint32_t stream);

/* Bytes at an instant. reserved = allocated + pending + free_bytes. */
typedef struct rvli_bytes {
    uint64_t requested; /* as requested, of live blocks */
    uint64_t allocated; /* size of live blocks */
    uint64_t pending;
    uint64_t free_bytes;
    uint64_t releasable; /* the part of free_bytes that empty_cache would release */
    uint64_t reserved;
} rvli_bytes;

/* The blocks of one pool, size class and stream. */
typedef struct rvli_bucket {
    rvli_bins free_blocks;
    rvli_cached_block *unmapped;
    uint32_t side;
    uint32_t stream;
    uint32_t next; /* of the same side: bucket + 1; 0: none */
} rvli_bucket;

/* The small or the large blocks of one pool: side 2 * pool + (small ? 1 : 0). */
typedef struct rvli_side {
    uint64_t calls; /* searches; counted only with garbage collection */
    uint32_t first; /* bucket + 1; 0: none */
    bool freeable;  /* a private pool that is no longer in use */
    bool mixed;     /* its buckets are not sorted by stream, the order of lists */
} rvli_side;

typedef struct rvli_request {
    uint64_t size;
    uint64_t event;
    uint64_t addr; /* recorded address; 0: any */
    uint32_t stream;
    uint32_t pool;
    bool unlimited; /* ignore the limits of the device */
    bool retries;   /* memory was just released: it may be a retry, which does not search again */
} rvli_request;

typedef struct rvli_allocator {
    rvli_settings settings;
    uint64_t capacity_bytes; /* 0: unknown */
    uint64_t allowed_bytes;  /* limit by the memory fraction; 0: not set */
    uint64_t range_bytes;    /* size of a new range of addresses, before rounding */
    const uint64_t *streams; /* recorded streams, by index */
    rvli_snapshot_change_fn change;
    void *owner;
    rvli_bytes bytes;
    uint64_t retries;
    uint32_t segment_count; /* segments made so far */
    bool tied;              /* a block was chosen by its address, among segments */
    bool misplaced;         /* the last request is not at its recorded address */
    rvli_pool blocks;
    rvli_cached_block *pending; /* linked by left (before) and right (after) */
    rvli_snapshot_range *ranges;
    rvli_bucket *buckets;
    uint32_t bucket_count;
    rvli_intmap bucket_numbers; /* bucket + 1 by side and stream, where there are many */
    rvli_side *sides;
    uint32_t side_count;
    rvli_addrmap by_addr; /* free blocks; filled by the first search by address */
    bool indexed;
    rvli_cached_block **list; /* blocks to release */
    size_t list_capacity;
    size_t list_count;
} rvli_allocator;

void rvli_allocator_init(rvli_allocator *allocator, const rvli_settings *settings,
                         const uint64_t *streams, rvli_snapshot_change_fn change, void *owner);
void rvli_allocator_destroy(rvli_allocator *allocator);

/* Sets the capacity of the device; 0: unlimited. The memory fraction is a share of it. */
void rvli_allocator_limit(rvli_allocator *allocator, uint64_t capacity_bytes);

/* RVL_OK; RVL_ERR_DEVICE_OOM; RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_malloc(rvli_allocator *allocator, const rvli_request *request,
                                 rvli_cached_block **block_out);

/* Counts the search of a request that failed in the recording. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_fail(rvli_allocator *allocator, const rvli_request *request);

/* A free has two halves: the program frees the block, and later no stream uses it any more. */
void rvli_allocator_free(rvli_allocator *allocator, rvli_cached_block *block);
void rvli_allocator_complete(rvli_allocator *allocator, rvli_cached_block *block);

/* RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_empty_cache(rvli_allocator *allocator);

/*
 * Whether a request would make the allocator release memory by itself. Always false without a
 * capacity.
 */
bool rvli_allocator_would_release(rvli_allocator *allocator, const rvli_request *request);
bool rvli_allocator_has_block(rvli_allocator *allocator, const rvli_request *request);
/* The bytes that would be reserved after adding a segment for the request. */
uint64_t rvli_allocator_needs(const rvli_allocator *allocator, const rvli_request *request);

/*
 * Each of these fills allocator->list with free blocks to release, in order, and releases nothing:
 * the first ones that empty_cache would release; those that garbage collection would release to
 * reclaim some bytes; those above max_split that would make room for a request. *enough_out: they
 * make enough room. RVL_OK or RVL_ERR_HOST_OOM.
 */
rvl_status rvli_allocator_list_cached(rvli_allocator *allocator, size_t most);
rvl_status rvli_allocator_list_garbage(rvli_allocator *allocator, uint64_t target_bytes);
rvl_status rvli_allocator_list_oversize(rvli_allocator *allocator, const rvli_request *request,
                                        bool *enough_out);

/* Releases the blocks in the list, or one free block. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_release_list(rvli_allocator *allocator);
rvl_status rvli_allocator_release(rvli_allocator *allocator, rvli_cached_block *block);

/* Adds a segment with one free block, regardless of all limits. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_add_segment(rvli_allocator *allocator, uint32_t pool, bool small,
                                      uint32_t stream, uint64_t addr, uint64_t size,
                                      rvli_cached_block **block_out);

/* Makes a part of a free block live. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_carve(rvli_allocator *allocator, rvli_cached_block *room, uint64_t addr,
                                uint64_t size, uint64_t requested, rvli_cached_block **block_out);

/*
 * Returns the free block that contains an address; NULL: none. The first call puts all free blocks
 * in a map by address, which is kept up to date from then on.
 */
rvli_cached_block *rvli_allocator_find_free(rvli_allocator *allocator, uint64_t addr);

/*
 * Returns the live block that keeps the most free bytes beside it from being released; NULL: none.
 * Visits every bucket and free block, and adds their number to *work.
 */
const rvli_cached_block *rvli_allocator_pinning(const rvli_allocator *allocator,
                                                uint64_t *bytes_out, uint64_t *work);

uint64_t rvli_allocator_round(const rvli_settings *settings, uint64_t size);

#endif
