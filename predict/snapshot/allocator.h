/* SPDX-License-Identifier: MIT */
/*
 * A model of PyTorch's CUDA caching allocator (docs/snapshot.md has its rules).
 *
 * It has no memory and no clock: it answers where a block would be, and counts. Where segments come
 * to lie is asked of its owner, who knows a recording or makes addresses up; so one model serves
 * both for checking a recording and for predicting.
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

/* What happens to segments, as trace entries call it. */
typedef enum rvli_snapshot_change {
    RVLI_CHANGE_ALLOC,
    RVLI_CHANGE_FREE,
    RVLI_CHANGE_MAP,
    RVLI_CHANGE_UNMAP,
    RVLI_CHANGE_RANGE,    /* addresses are reserved: of no entry */
    RVLI_CHANGE_COMPLETE, /* a pending block was waited for; addr: its event */
    RVLI_CHANGE_CATCH_UP  /* the model is off the recording; the owner does what that has left */
} rvli_snapshot_change;

/*
 * Told of each change. Of RVLI_CHANGE_ALLOC and RVLI_CHANGE_RANGE the answer is the address, 0: the
 * owner knows of none, and the change does not happen. Other answers are ignored.
 */
typedef uint64_t (*rvli_snapshot_change_fn)(void *owner, rvli_snapshot_change change, uint64_t addr,
                                            uint64_t size, uint32_t stream);

/* Bytes at an instant. reserved = allocated + pending + free_bytes. */
typedef struct rvli_bytes {
    uint64_t requested; /* by live blocks */
    uint64_t allocated; /* live blocks */
    uint64_t pending;
    uint64_t free_bytes;
    uint64_t releasable; /* of the free bytes, those that empty_cache would give back */
    uint64_t reserved;
} rvli_bytes;

/* The blocks of one pool, size class and stream. */
typedef struct rvli_bucket {
    rvli_bins free_blocks;
    rvli_cached_block *unmapped;
    uint32_t side;
    uint32_t stream;
    uint32_t next; /* of the same side; bucket + 1, 0 for none */
} rvli_bucket;

/* The small or the large blocks of one pool: side 2 * pool + (small ? 1 : 0). */
typedef struct rvli_side {
    uint64_t calls; /* searches, counted while there is garbage collection */
    uint32_t first; /* bucket + 1, 0 for none */
    bool freeable;  /* a private pool that nobody uses any more */
    bool mixed;     /* its buckets are not by rising stream, which is how they are listed */
} rvli_side;

typedef struct rvli_request {
    uint64_t size;
    uint64_t event;
    uint64_t addr; /* where it was recorded to be; 0: anywhere */
    uint32_t stream;
    uint32_t pool;
    bool unlimited; /* however little the device has */
    bool retries;   /* it may have had memory given back just now, and not searched again */
} rvli_request;

typedef struct rvli_allocator {
    rvli_settings settings;
    uint64_t capacity_bytes; /* 0: unknown */
    uint64_t allowed_bytes;  /* by the memory fraction; 0: not set */
    uint64_t range_bytes;    /* of a new range of addresses, before rounding */
    const uint64_t *streams; /* as recorded, by index */
    rvli_snapshot_change_fn change;
    void *owner;
    rvli_bytes bytes;
    uint64_t retries;
    uint32_t segment_count; /* that were made so far */
    bool tied;              /* somewhere the choice was by address, between segments */
    bool misplaced;         /* the last request was not where the recording has it */
    rvli_pool blocks;
    rvli_cached_block *pending; /* linked by left (before) and right (after) */
    rvli_snapshot_range *ranges;
    rvli_bucket *buckets;
    uint32_t bucket_count;
    rvli_intmap bucket_numbers; /* bucket + 1 by side and stream, where there are many */
    rvli_side *sides;
    uint32_t side_count;
    rvli_addrmap by_addr; /* free blocks, once one has been asked for by its address */
    bool indexed;
    rvli_cached_block **list; /* room for what is to be released */
    size_t list_capacity;
    size_t list_count;
} rvli_allocator;

void rvli_allocator_init(rvli_allocator *allocator, const rvli_settings *settings,
                         const uint64_t *streams, rvli_snapshot_change_fn change, void *owner);
void rvli_allocator_destroy(rvli_allocator *allocator);

/* Sets what the device has; 0: without bound. A memory fraction counts from it. */
void rvli_allocator_limit(rvli_allocator *allocator, uint64_t capacity_bytes);

/* RVL_OK; RVL_ERR_DEVICE_OOM; RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_malloc(rvli_allocator *allocator, const rvli_request *request,
                                 rvli_cached_block **block_out);

/* What is left of a request that the recording has failed: it searched. As above. */
rvl_status rvli_allocator_fail(rvli_allocator *allocator, const rvli_request *request);

/* The two halves of a free: the block is given up; no stream uses it any more. */
void rvli_allocator_free(rvli_allocator *allocator, rvli_cached_block *block);
void rvli_allocator_complete(rvli_allocator *allocator, rvli_cached_block *block);

/* RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_empty_cache(rvli_allocator *allocator);

/* Whether a request would make the allocator give memory back by itself, its limits being known. */
bool rvli_allocator_would_release(rvli_allocator *allocator, const rvli_request *request);
bool rvli_allocator_has_block(rvli_allocator *allocator, const rvli_request *request);
/* What would be reserved with a segment for the request. */
uint64_t rvli_allocator_needs(const rvli_allocator *allocator, const rvli_request *request);

/*
 * Puts the free blocks in allocator->list that would be given back, in order, and changes nothing:
 * by empty_cache (the first ones), by garbage collection that is to reclaim some bytes, or to make
 * room for a request among blocks above max_split. RVL_OK or RVL_ERR_HOST_OOM.
 */
rvl_status rvli_allocator_list_cached(rvli_allocator *allocator, size_t most);
rvl_status rvli_allocator_list_garbage(rvli_allocator *allocator, uint64_t target_bytes);
rvl_status rvli_allocator_list_oversize(rvli_allocator *allocator, const rvli_request *request,
                                        bool *enough_out);

/* Gives back what is in the list, or one free block. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_release_list(rvli_allocator *allocator);
rvl_status rvli_allocator_release(rvli_allocator *allocator, rvli_cached_block *block);

/* Adds a segment that holds one free block, beyond all limits. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_add_segment(rvli_allocator *allocator, uint32_t pool, bool small,
                                      uint32_t stream, uint64_t addr, uint64_t size,
                                      rvli_cached_block **block_out);

/* Makes a part of a free block live. RVL_OK or RVL_ERR_HOST_OOM. */
rvl_status rvli_allocator_carve(rvli_allocator *allocator, rvli_cached_block *room, uint64_t addr,
                                uint64_t size, uint64_t requested, rvli_cached_block **block_out);

/*
 * The free block that begins at, or the one that holds, an address; NULL: none. From the first call
 * on free blocks are in a map by address.
 */
rvli_cached_block *rvli_allocator_find_free(rvli_allocator *allocator, uint64_t addr);

/*
 * The live block that keeps the most free bytes beside it from being given back; NULL: none.
 * Looks at every bucket and free block, and adds their number to *work.
 */
const rvli_cached_block *rvli_allocator_pinning(const rvli_allocator *allocator,
                                                uint64_t *bytes_out, uint64_t *work);

uint64_t rvli_allocator_round(const rvli_settings *settings, uint64_t size);

#endif
