/* SPDX-License-Identifier: MIT */
/*
 * Simulated GPUs: the state of a backend instance, and its parts.
 *
 * A simulated device is as strict as a real driver: blocks are mapped whole, mappings are unmapped
 * whole, and only empty ranges are released. Each device has one lock, so each op is atomic.
 */
#ifndef RVL_BACKENDS_SIM_SIM_H
#define RVL_BACKENDS_SIM_SIM_H

#include <pthread.h>

#include "backends/sim/ranges.h"
#include "base/intmap.h"
#include "base/pool.h"
#include "base/pricer.h"
#include "core/backend.h"

/* A piece of simulated physical memory. Its handle is its index plus one. */
typedef struct rvli_sim_block {
    uint64_t size;     /* 0: the index is free */
    uint32_t mappings; /* places where it is mapped; while free: next free index */
    uint32_t extent;   /* backed: start of its extent, in granules */
} rvli_sim_block;

typedef struct rvli_sim_device {
    pthread_mutex_t lock;
    int number;
    rvl_profile profile;
    bool backed;
    bool overcommit;
    bool host_ahead;
    uint8_t poison;
    rvli_pricer pricer;

    uint64_t used_bytes;
    uint64_t external_bytes;
    uint64_t away_bytes; /* part of used_bytes that is in host memory while the process sleeps */
    rvli_sim_ranges ranges;

    rvli_sim_block *blocks;
    uint32_t block_count; /* indices ever used */
    uint32_t block_capacity;
    uint32_t free_block; /* index of a free block plus one; 0: none */

    rvli_intmap host_buffers; /* backed: address to size; close frees them all */
    int memory_file;          /* backed: the bytes of all blocks */
    uint32_t next_extent;     /* backed: the next extent; extents are never reused */
} rvli_sim_device;

typedef struct rvli_sim {
    int device_count;
    _Atomic int process; /* rvli_process_state */
    rvli_sim_device devices[];
} rvli_sim;

extern const rvli_backend_ops rvli_sim_ops;

/* The block of a handle; NULL if there is none. With the lock held. */
rvli_sim_block *rvli_sim_block_of(rvli_sim_device *device, rvli_handle handle);

/* ---- backed.c: real bytes behind the addresses ---- */

rvl_status rvli_sim_backed_open(rvli_sim_device *device);
void rvli_sim_backed_close(rvli_sim_device *device);
/* Reserves and releases an inaccessible, aligned address range of the process. */
rvl_status rvli_sim_backed_reserve(uint64_t size, uint64_t alignment, uint64_t *addr_out);
void rvli_sim_backed_release_range(uint64_t addr, uint64_t size);
/* Creates the bytes of a block, filled with the poison. */
rvl_status rvli_sim_backed_create(rvli_sim_device *device, uint64_t size, uint32_t *extent_out);
void rvli_sim_backed_release(rvli_sim_device *device, uint32_t extent, uint64_t size);
rvl_status rvli_sim_backed_map(rvli_sim_device *device, uint64_t addr, uint64_t size,
                               uint32_t extent);
rvl_status rvli_sim_backed_set_access(uint64_t addr, uint64_t size, bool accessible);
rvl_status rvli_sim_backed_unmap(uint64_t addr, uint64_t size);

#endif
