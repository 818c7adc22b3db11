/* SPDX-License-Identifier: MIT */
/*
 * Address ranges of a simulated device, and what is mapped in them.
 *
 * Accounted memory owns its address space: an address says itself which range it lies in. The top
 * bits are the device, then comes the size class (a power of two), then the number of the range
 * within its class, so that no search is needed however many there are. Backed memory gets its
 * addresses from the kernel and finds the range in an ordered map.
 *
 * Usually a range holds one mapping, kept in place; several are a sorted array. Not thread-safe:
 * the device's lock is held.
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
    uint32_t block; /* index */
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
    uint64_t one_size;       /* its size */
    uint32_t one_block;      /* its block; next free range of the class while not reserved */
    uint32_t count : 31;     /* mappings */
    uint32_t one_accessible : 1;
} rvli_sim_range;

_Static_assert(sizeof(rvli_sim_range) == 32, "two a cache line: replays have millions");

typedef struct rvli_sim_class {
    rvli_sim_range *ranges;
    uint32_t count; /* ever used */
    uint32_t capacity;
    uint32_t free; /* number plus one of a free one, 0: none */
} rvli_sim_class;

typedef struct rvli_sim_ranges {
    bool backed;
    uint64_t device;                          /* number of the device */
    uint64_t alignment;                       /* backed; accounted ones are aligned to their size */
    rvli_sim_class classes[RVLI_SIM_CLASSES]; /* accounted */
    rvli_addrmap by_addr;                     /* backed */
    rvli_pool pool;                           /* backed */
} rvli_sim_ranges;

/* alignment: of what is reserved. */
void rvli_sim_ranges_init(rvli_sim_ranges *ranges, bool backed, int device, uint64_t alignment);
/* Gives back all memory and, if backed, the address ranges. */
void rvli_sim_ranges_destroy(rvli_sim_ranges *ranges);

/* Reserves size bytes. RVL_ERR_HOST_OOM, RVL_ERR_DEVICE_OOM (no such range to be had). */
rvl_status rvli_sim_ranges_reserve(rvli_sim_ranges *ranges, uint64_t size, uint64_t *addr_out);

/* Gives a whole, empty range back. RVL_ERR_INVALID. */
rvl_status rvli_sim_ranges_release(rvli_sim_ranges *ranges, uint64_t addr, uint64_t size);

/* The range that contains addr and where it begins; NULL if none. */
rvli_sim_range *rvli_sim_ranges_find(const rvli_sim_ranges *ranges, uint64_t addr,
                                     uint64_t *base_out);

/*
 * Accounted addresses: the device's number, and where a range's record is or would be (NULL: there
 * is no such place). Looks at nothing but the address.
 */
int rvli_sim_ranges_device(uint64_t addr);
rvli_sim_range *rvli_sim_ranges_slot(const rvli_sim_ranges *ranges, uint64_t addr,
                                     uint64_t *base_out);

/* Enters a mapping at offset. RVL_ERR_INVALID (overlap, out of the range), RVL_ERR_HOST_OOM. */
rvl_status rvli_sim_range_map(rvli_sim_range *range, uint64_t offset, uint64_t size,
                              uint32_t block);

/*
 * The mappings that fill [offset, offset + size) exactly: the first and how many; 0 if it is not a
 * row of whole neighbouring mappings.
 */
uint32_t rvli_sim_range_whole(const rvli_sim_range *range, uint64_t offset, uint64_t size,
                              uint32_t *first_out);

/* Whether every byte of [offset, offset + size) is mapped and accessible. */
bool rvli_sim_range_accessible(const rvli_sim_range *range, uint64_t offset, uint64_t size);

/* The i-th mapping. */
rvli_sim_mapping rvli_sim_range_mapping(const rvli_sim_range *range, uint32_t i);
void rvli_sim_range_set_accessible(rvli_sim_range *range, uint32_t i, bool accessible);

/* Removes count mappings from the i-th on. */
void rvli_sim_range_unmap(rvli_sim_range *range, uint32_t i, uint32_t count);

#endif
