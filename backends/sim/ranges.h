/* SPDX-License-Identifier: MIT */
/*
 * Address ranges of a simulated device, and their mappings.
 *
 * Accounted memory has its own address space, in which an address contains its range. The top bits
 * are the device, then comes the size class (a power of two), then the number of the range in its
 * class. So a range is found without a search, however many there are. Backed memory gets its
 * addresses from the kernel and finds ranges in an ordered map.
 *
 * Usually a range has one mapping, stored in place. Several are a sorted array. Not thread-safe:
 * the caller holds the device's lock.
 */
#ifndef RVL_BACKENDS_SIM_RANGES_H
#define RVL_BACKENDS_SIM_RANGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/addrmap.h"
#include "base/pool.h"
#include "reveille/status.h"

#define RVLI_SIM_CLASSES 64u

/* A block mapped at an offset of a range. */
typedef struct rvli_sim_mapping {
    uint64_t offset;
    uint64_t size;
    uint32_t block; /* index of the block */
    bool accessible;
} rvli_sim_mapping;

/* The mappings of a range that has more than one, or one not at its start. */
typedef struct rvli_sim_mappings {
    uint32_t capacity;
    rvli_sim_mapping items[];
} rvli_sim_mappings;

typedef struct rvli_sim_range {
    uint64_t size;           /* 0: not reserved */
    rvli_sim_mappings *many; /* NULL: at most one mapping, at the start */
    uint64_t one_size;       /* size of that mapping */
    uint32_t one_block;      /* its block; while not reserved: next free range of the class */
    uint32_t count : 31;     /* number of mappings */
    uint32_t one_accessible : 1;
} rvli_sim_range;

_Static_assert(sizeof(rvli_sim_range) == 32, "two a cache line: replays have millions");

typedef struct rvli_sim_class {
    rvli_sim_range *ranges;
    uint32_t count; /* slots ever used */
    uint32_t capacity;
    uint32_t free; /* number of a free slot plus one; 0: none */
} rvli_sim_class;

typedef struct rvli_sim_ranges {
    bool backed;
    uint64_t device;    /* number of the device */
    uint64_t alignment; /* backed; accounted ranges are aligned to their size */
    rvli_sim_class classes[RVLI_SIM_CLASSES]; /* accounted */
    rvli_addrmap by_addr;                     /* backed */
    rvli_pool pool;                           /* backed */
} rvli_sim_ranges;

/* alignment: of reserved ranges. */
void rvli_sim_ranges_init(rvli_sim_ranges *ranges, bool backed, int device, uint64_t alignment);
/* Frees all memory and, if backed, the address ranges. */
void rvli_sim_ranges_destroy(rvli_sim_ranges *ranges);

/* Reserves size bytes. RVL_ERR_HOST_OOM, RVL_ERR_DEVICE_OOM (no such range left). */
rvl_status rvli_sim_ranges_reserve(rvli_sim_ranges *ranges, uint64_t size, uint64_t *addr_out);

/* Releases a whole, empty range. RVL_ERR_INVALID. */
rvl_status rvli_sim_ranges_release(rvli_sim_ranges *ranges, uint64_t addr, uint64_t size);

/* Finds the range that contains addr, and its first address. Returns NULL if there is none. */
rvli_sim_range *rvli_sim_ranges_find(const rvli_sim_ranges *ranges, uint64_t addr,
                                     uint64_t *base_out);

/*
 * For accounted addresses: the number of the device, and the slot of the range, reserved or not
 * (NULL: no such slot). Derived from the address alone.
 */
int rvli_sim_ranges_device(uint64_t addr);
rvli_sim_range *rvli_sim_ranges_slot(const rvli_sim_ranges *ranges, uint64_t addr,
                                     uint64_t *base_out);

/* Adds a mapping at offset. RVL_ERR_INVALID (overlap, out of the range), RVL_ERR_HOST_OOM. */
rvl_status rvli_sim_range_map(rvli_sim_range *range, uint64_t offset, uint64_t size,
                              uint32_t block);

/*
 * Finds the mappings that fill [offset, offset + size) exactly. Stores the first and returns their
 * number; 0 if whole adjacent mappings do not fill it.
 */
uint32_t rvli_sim_range_whole(const rvli_sim_range *range, uint64_t offset, uint64_t size,
                              uint32_t *first_out);

/* Whether every byte of [offset, offset + size) is mapped and accessible. */
bool rvli_sim_range_accessible(const rvli_sim_range *range, uint64_t offset, uint64_t size);

/* The i-th mapping. */
rvli_sim_mapping rvli_sim_range_mapping(const rvli_sim_range *range, uint32_t i);
void rvli_sim_range_set_accessible(rvli_sim_range *range, uint32_t i, bool accessible);

/* Removes count mappings, beginning with the i-th. */
void rvli_sim_range_unmap(rvli_sim_range *range, uint32_t i, uint32_t count);

#endif
