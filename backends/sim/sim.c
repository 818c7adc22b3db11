/* SPDX-License-Identifier: MIT */
/* The ops of the simulated backend, as specified in core/backend.h. */
#include "backends/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "base/options.h"
#include "base/process_cost.h"
#include "base/text.h"
#include "reveille/context.h"

#define DEFAULT_POISON 0xA5

/* ---- Devices and blocks ---- */

static rvli_sim_device *lock_device(void *self, int device)
{
    rvli_sim *sim = self;
    if (device < 0 || device >= sim->device_count) {
        rvli_error(RVL_ERR_NO_DEVICE, "no such simulated device");
        return NULL;
    }
    rvli_mutex_lock(&sim->devices[device].lock);
    return &sim->devices[device];
}

static rvl_status unlock_device(rvli_sim_device *device, rvl_status status)
{
    rvli_mutex_unlock(&device->lock);
    return status;
}

static rvl_status invalid(const char *message)
{
    return rvli_error(RVL_ERR_INVALID, message);
}

static bool whole_granules(const rvli_sim_device *device, uint64_t size)
{
    return size > 0 && (size & (device->profile.granularity_bytes - 1)) == 0; /* a power of two */
}

rvli_sim_block *rvli_sim_block_of(rvli_sim_device *device, rvli_handle handle)
{
    if (handle == 0 || handle > device->block_count || device->blocks[handle - 1].size == 0)
        return NULL;
    return &device->blocks[handle - 1];
}

/* Returns an unused block record, or NULL without host memory. */
static rvli_sim_block *new_block(rvli_sim_device *device)
{
    if (device->free_block != 0) {
        rvli_sim_block *block = &device->blocks[device->free_block - 1];
        device->free_block = block->mappings;
        return block;
    }
    if (device->block_count == device->block_capacity) {
        uint32_t capacity = device->block_capacity ? device->block_capacity * 2 : 64;
        rvli_sim_block *blocks = rvli_memory_grow(
            device->blocks, device->block_capacity * sizeof *blocks, capacity * sizeof *blocks);
        if (blocks == NULL)
            return NULL;
        device->blocks = blocks;
        device->block_capacity = capacity;
    }
    return &device->blocks[device->block_count++];
}

static void forget_block(rvli_sim_device *device, rvli_sim_block *block)
{
    block->size = 0;
    block->mappings = device->free_block;
    device->free_block = (uint32_t)(block - device->blocks) + 1;
}

static uint64_t free_bytes(const rvli_sim_device *device)
{
    uint64_t taken = device->used_bytes - device->away_bytes + device->external_bytes;
    return taken < device->profile.capacity_bytes ? device->profile.capacity_bytes - taken : 0;
}

static rvl_status out_of_memory(const rvli_sim_device *device, uint64_t requested)
{
    rvli_error(RVL_ERR_DEVICE_OOM, "the simulated device has no room");
    rvli_error_bytes(RVL_NO_DEVICE, requested, free_bytes(device));
    return RVL_ERR_DEVICE_OOM;
}

/* ---- Open and close ---- */

static void free_host_buffers(rvli_sim_device *device)
{
    const rvli_intmap *buffers = &device->host_buffers;
    for (size_t i = 0; i < buffers->capacity; i++)
        free((void *)(uintptr_t)buffers->slots[i].key);
    rvli_intmap_destroy(&device->host_buffers);
}

static void close_device(rvli_sim_device *device)
{
    free_host_buffers(device);
    rvli_sim_ranges_destroy(&device->ranges);
    rvli_memory_free(device->blocks, device->block_capacity * sizeof *device->blocks);
    if (device->backed)
        rvli_sim_backed_close(device);
    pthread_mutex_destroy(&device->lock);
}

static void sim_close(void *self)
{
    rvli_sim *sim = self;
    for (int device = 0; device < sim->device_count; device++)
        close_device(&sim->devices[device]);
    free(sim);
}

static rvl_status check_profile(const rvl_profile *profile)
{
    uint64_t granularity = profile->granularity_bytes;
    if (granularity < 4096 || (granularity & (granularity - 1)) != 0)
        return invalid("a device's granularity must be a power of two, 4096 at least");
    rvl_status status = rvli_flags_check(profile->flags, RVL_PROFILE_NO_RDMA | RVL_PROFILE_MEASURED,
                                         profile->reserved);
    if (status != RVL_OK)
        return status;
    if (profile->capacity_bytes == 0 || profile->capacity_bytes > (uint64_t)INT64_MAX)
        return invalid("a device's capacity must be 1 to 2^63 - 1 bytes");
    return RVL_OK;
}

static rvl_status open_device(rvli_sim_device *device, int number, const rvl_profile *profile,
                              const rvl_sim_options *options, rvli_clock *clock)
{
    rvl_status status = rvli_options_read(&device->profile, sizeof device->profile, profile);
    if (status == RVL_OK)
        status = check_profile(&device->profile);
    if (status != RVL_OK)
        return status;
    device->backed = options->memory == RVL_SIM_BACKED;
    device->overcommit = (options->flags & RVL_SIM_OVERCOMMIT) != 0;
    device->host_ahead = (options->flags & RVL_SIM_HOST_AHEAD) != 0;
    device->poison = (uint8_t)(options->poison ? options->poison : DEFAULT_POISON);
    device->pricer = (rvli_pricer){.cost = device->profile.cost,
                                   .waits = device->profile.waits,
                                   .clock = clock,
                                   .lane = number};
    device->number = number;
    device->memory_file = -1;
    if (device->backed)
        status = rvli_sim_backed_open(device);
    if (status != RVL_OK)
        return status;
    pthread_mutex_init(&device->lock, NULL);
    rvli_sim_ranges_init(&device->ranges, device->backed, number,
                         device->profile.granularity_bytes);
    return RVL_OK;
}

static rvl_status check_options(const rvl_sim_options *options)
{
    rvl_status status =
        rvli_flags_check(options->flags, RVL_SIM_OVERCOMMIT | RVL_SIM_HOST_AHEAD, 0);
    if (status != RVL_OK)
        return status;
    if ((unsigned)options->memory > RVL_SIM_ACCOUNTED)
        return invalid("a kind of simulated memory that this version does not know");
    if (options->poison < 0 || options->poison > 255)
        return invalid("the poison must be a byte");
    if (options->devices != NULL &&
        (options->device_count == 0 || options->device_count > RVL_MAX_DEVICES))
        return invalid("a simulation has 1 to 64 devices");
    return RVL_OK;
}

static rvl_status sim_open(const void *user_options, rvli_clock *clock, void **self_out,
                           int *device_count_out)
{
    rvl_sim_options options;
    rvl_profile h200 = {.struct_size = sizeof h200};
    const rvl_profile *one_h200[] = {&h200};
    rvl_status status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK)
        status = check_options(&options);
    if (status == RVL_OK)
        status = rvl_profile_find("h200", &h200);
    if (status != RVL_OK)
        return status;
    const rvl_profile *const *profiles = options.devices ? options.devices : one_h200;
    size_t count = options.devices ? options.device_count : 1;

    rvli_sim *sim = calloc(1, sizeof *sim + count * sizeof *sim->devices);
    if (sim == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a simulation");
    for (size_t i = 0; i < count && status == RVL_OK; i++) {
        status = open_device(&sim->devices[i], (int)i, profiles[i], &options, clock);
        sim->device_count += status == RVL_OK;
    }
    if (status != RVL_OK) {
        sim_close(sim);
        return status;
    }
    clock->virtual_time = true;
    clock->lane_count = sim->device_count;
    *self_out = sim;
    *device_count_out = sim->device_count;
    return RVL_OK;
}

static rvl_status sim_device_facts(void *self, int device, rvli_device_facts *facts_out)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    rvli_device_facts facts = {
        .ordinal = device,
        .capacity_bytes = d->profile.capacity_bytes,
        .granularity_bytes = d->profile.granularity_bytes,
        .overcommit = d->overcommit,
        .host_accounted = !d->backed,
        .digests = d->backed,
        .rdma = (d->profile.flags & RVL_PROFILE_NO_RDMA) == 0,
        .host_ahead = d->host_ahead,
        .cost = d->profile.cost,
        .waits = d->profile.waits,
    };
    rvli_text_copy(facts.name, sizeof facts.name, d->profile.name ? d->profile.name : "");
    *facts_out = facts;
    return unlock_device(d, RVL_OK);
}

/* ---- Ranges ---- */

static rvl_status sim_reserve(void *self, int device, uint64_t size, uint64_t *addr_out)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    if (!whole_granules(d, size))
        return unlock_device(d, invalid("a range must be a multiple of the granularity"));
    rvl_status status = rvli_sim_ranges_reserve(&d->ranges, size, addr_out);
    if (status == RVL_OK)
        rvli_price_call(&d->pricer, d->pricer.cost.reserve, size);
    return unlock_device(d, status);
}

static rvl_status sim_release_range(void *self, int device, uint64_t addr, uint64_t size)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    rvl_status status = rvli_sim_ranges_release(&d->ranges, addr, size);
    if (status == RVL_OK)
        rvli_price_call(&d->pricer, d->pricer.cost.release_range, size);
    return unlock_device(d, status);
}

/* ---- Blocks ---- */

/* With the lock held. */
static rvl_status create_block(rvli_sim_device *d, uint64_t size, rvli_handle *block_out)
{
    uint32_t extent = 0;
    if (!whole_granules(d, size))
        return invalid("a block must be a multiple of the granularity");
    if (!d->overcommit && size > free_bytes(d))
        return out_of_memory(d, size);
    if (size > (uint64_t)INT64_MAX - d->used_bytes)
        return invalid("more than 2^63 bytes in use");
    rvli_sim_block *block = new_block(d);
    if (block == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a simulated block");
    if (d->backed) {
        rvl_status status = rvli_sim_backed_create(d, size, &extent);
        if (status != RVL_OK) {
            forget_block(d, block);
            return status;
        }
    }
    *block = (rvli_sim_block){.size = size, .extent = extent};
    d->used_bytes += size;
    *block_out = (rvli_handle)(block - d->blocks) + 1;
    return RVL_OK;
}

static rvl_status sim_create(void *self, int device, uint64_t size, uint32_t properties,
                             rvli_handle *block_out)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    if ((properties & RVLI_BLOCK_RDMA) && (d->profile.flags & RVL_PROFILE_NO_RDMA))
        return unlock_device(d, rvli_error(RVL_ERR_NOT_SUPPORTED,
                                           "GPUDirect RDMA does not reach this simulated device"));
    uint64_t free_before = free_bytes(d);
    rvl_status status = create_block(d, size, block_out);
    if (status == RVL_OK)
        rvli_price_create(&d->pricer, size, free_before);
    return unlock_device(d, status);
}

static rvl_status sim_release(void *self, int device, rvli_handle handle, uint64_t size)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    rvli_sim_block *block = rvli_sim_block_of(d, handle);
    if (block == NULL || block->size != size)
        return unlock_device(d, invalid("no such block, or of another size"));
    if (block->mappings > 0)
        return unlock_device(d, invalid("the block is still mapped"));
    if (d->backed)
        rvli_sim_backed_release(d, block->extent, size);
    forget_block(d, block);
    d->used_bytes -= size;
    rvli_price_release(&d->pricer, size);
    return unlock_device(d, RVL_OK);
}

/* ---- Mappings ---- */

/* With the lock held. */
static rvl_status map_block(rvli_sim_device *d, uint64_t addr, uint64_t size, rvli_handle handle)
{
    uint64_t base = 0;
    rvli_sim_block *block = rvli_sim_block_of(d, handle);
    rvli_sim_range *range = rvli_sim_ranges_find(&d->ranges, addr, &base);
    if (block == NULL || block->size != size)
        return invalid("a block is mapped whole or not at all");
    if (range == NULL || ((addr - base) & (d->profile.granularity_bytes - 1)) != 0)
        return invalid("a block is mapped at a granule of a reserved range");
    uint32_t index = (uint32_t)(handle - 1);
    rvl_status status = rvli_sim_range_map(range, addr - base, size, index);
    if (status != RVL_OK)
        return status;
    if (d->backed)
        status = rvli_sim_backed_map(d, addr, size, block->extent);
    if (status != RVL_OK) {
        uint32_t first = 0;
        rvli_sim_range_whole(range, addr - base, size, &first);
        rvli_sim_range_unmap(range, first, 1);
        return status;
    }
    block->mappings++;
    return RVL_OK;
}

static rvl_status sim_map(void *self, int device, uint64_t addr, uint64_t size, rvli_handle block)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    rvl_status status = map_block(d, addr, size, block);
    if (status == RVL_OK)
        rvli_price_call(&d->pricer, d->pricer.cost.map, size);
    return unlock_device(d, status);
}

/*
 * Finds the whole adjacent mappings that make up [addr, addr + size). Returns NULL if they do not.
 */
static rvli_sim_range *whole_mappings(rvli_sim_device *d, uint64_t addr, uint64_t size,
                                      uint32_t *first_out, uint32_t *count_out)
{
    uint64_t base = 0;
    rvli_sim_range *range = rvli_sim_ranges_find(&d->ranges, addr, &base);
    if (range == NULL || size > range->size - (addr - base))
        return NULL;
    *count_out = rvli_sim_range_whole(range, addr - base, size, first_out);
    return *count_out > 0 ? range : NULL;
}

static rvl_status sim_set_access(void *self, int device, uint64_t addr, uint64_t size,
                                 uint64_t device_mask)
{
    uint32_t first = 0, count = 0;
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    const rvli_sim *sim = self;
    if (sim->device_count < 64 && device_mask >> sim->device_count != 0)
        return unlock_device(d, invalid("access for a device that does not exist"));
    rvli_sim_range *range = whole_mappings(d, addr, size, &first, &count);
    if (range == NULL)
        return unlock_device(d, invalid("access is set for whole mappings"));
    rvl_status status = RVL_OK;
    if (d->backed)
        status = rvli_sim_backed_set_access(addr, size, device_mask != 0);
    for (uint32_t i = 0; i < count && status == RVL_OK; i++)
        rvli_sim_range_set_accessible(range, first + i, device_mask != 0);
    if (status == RVL_OK)
        rvli_price_call(&d->pricer, d->pricer.cost.set_access, size);
    return unlock_device(d, status);
}

static rvl_status sim_unmap(void *self, int device, uint64_t addr, uint64_t size)
{
    uint32_t first = 0, count = 0;
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    rvli_sim_range *range = whole_mappings(d, addr, size, &first, &count);
    if (range == NULL)
        return unlock_device(d, invalid("mappings are unmapped whole"));
    rvl_status status = d->backed ? rvli_sim_backed_unmap(addr, size) : RVL_OK;
    if (status != RVL_OK)
        return unlock_device(d, status);
    for (uint32_t i = 0; i < count; i++)
        d->blocks[rvli_sim_range_mapping(range, first + i).block].mappings--;
    rvli_sim_range_unmap(range, first, count);
    rvli_price_unmap(&d->pricer, size);
    return unlock_device(d, RVL_OK);
}

/* ---- Memory ---- */

static rvl_status sim_memory_info(void *self, int device, uint64_t *free_out, uint64_t *total_out)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    *free_out = free_bytes(d);
    *total_out = d->profile.capacity_bytes;
    return unlock_device(d, RVL_OK);
}

static rvl_status sim_external_set(void *self, int device, uint64_t bytes)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    rvl_status status = RVL_OK;
    uint64_t room = free_bytes(d) + d->external_bytes;
    if (bytes > (uint64_t)INT64_MAX)
        status = invalid("external bytes of 2^63 or more");
    else if (!d->overcommit && bytes > d->external_bytes && bytes > room)
        status = out_of_memory(d, bytes - d->external_bytes);
    else
        d->external_bytes = bytes;
    return unlock_device(d, status);
}

/* Whether the bytes can be read and written. With the lock held. */
static bool accessible(rvli_sim_device *d, uint64_t addr, uint64_t size)
{
    uint64_t base = 0;
    const rvli_sim_range *range = rvli_sim_ranges_find(&d->ranges, addr, &base);
    return range != NULL && rvli_sim_range_accessible(range, addr - base, size);
}

static rvl_status sim_fill(void *self, int device, uint64_t addr, uint64_t size, uint8_t byte)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    if (!accessible(d, addr, size))
        return unlock_device(d, invalid("memory that is not mapped cannot be filled"));
    if (d->backed)
        memset((void *)(uintptr_t)addr, byte, size);
    rvli_price_copy(&d->pricer, RVLI_IN, d->pricer.cost.fill, size);
    return unlock_device(d, RVL_OK);
}

/* ---- Host memory and copies ---- */

/* Accounted memory has no bytes. Buffers have this address, which is never accessed. */
static char no_bytes;

#define PAGE_BYTES UINT64_C(4096) /* alignment of buffers */

static void *new_host_buffer(rvli_sim_device *device, uint64_t size)
{
    void *host = aligned_alloc(PAGE_BYTES, (size + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1));
    if (host == NULL || rvli_intmap_insert(&device->host_buffers, (uintptr_t)host, size) == RVL_OK)
        return host;
    free(host);
    return NULL;
}

static rvl_status sim_host_alloc(void *self, int device, uint64_t size, void **host_out)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    bool too_much = size > (uint64_t)INT64_MAX - d->pricer.host_bytes;
    void *host = too_much ? NULL : d->backed ? new_host_buffer(d, size) : &no_bytes;
    if (host == NULL)
        return unlock_device(d, rvli_error(RVL_ERR_HOST_OOM, "no host memory for a backup"));
    *host_out = host;
    rvli_price_host_alloc(&d->pricer, size);
    return unlock_device(d, RVL_OK);
}

static rvl_status sim_host_free(void *self, int device, void *host, uint64_t size)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    if (size > d->pricer.host_bytes ||
        (d->backed && !rvli_intmap_remove(&d->host_buffers, (uintptr_t)host, NULL)))
        return unlock_device(d, invalid("not a host buffer of this device"));
    if (d->backed)
        free(host);
    rvli_price_host_free(&d->pricer, size);
    return unlock_device(d, RVL_OK);
}

static rvl_status sim_copy_to_host(void *self, int device, void *host, uint64_t addr, uint64_t size)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    if (!accessible(d, addr, size))
        return unlock_device(d, invalid("memory that is not mapped cannot be copied"));
    if (d->backed)
        memcpy(host, (const void *)(uintptr_t)addr, size);
    rvli_price_copy_to_host(&d->pricer, size);
    return unlock_device(d, RVL_OK);
}

static rvl_status sim_copy_to_device(void *self, int device, uint64_t addr, const void *host,
                                     uint64_t size)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    if (!accessible(d, addr, size))
        return unlock_device(d, invalid("memory that is not mapped cannot be copied to"));
    if (d->backed)
        memcpy((void *)(uintptr_t)addr, host, size);
    rvli_price_copy(&d->pricer, RVLI_IN, d->pricer.cost.copy_to_device, size);
    return unlock_device(d, RVL_OK);
}

/* Copies are finished when their ops return, so digests can be computed at once. */
static rvl_status sim_digest(void *self, int device, uint64_t addr, uint64_t size, bool arriving,
                             const rvli_secret *secret, rvli_digest *digests_out)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    uint64_t granule = d->profile.granularity_bytes;
    if (!d->backed)
        return unlock_device(
            d, rvli_error(RVL_ERR_NOT_SUPPORTED, "accounted memory has no content: no digests"));
    if (!whole_granules(d, size) || !whole_granules(d, addr) || !accessible(d, addr, size))
        return unlock_device(d, invalid("digests are made of whole granules of mapped memory"));
    for (uint64_t i = 0; i < size / granule; i++) {
        const void *at = (const void *)(uintptr_t)(addr + i * granule);
        digests_out[i] = secret != NULL ? rvli_secret_digest_of(secret, at, granule)
                                        : rvli_digest_of(at, granule);
    }
    rvli_price_copy(&d->pricer, arriving ? RVLI_IN : RVLI_OUT, d->pricer.cost.digest, size);
    return unlock_device(d, RVL_OK);
}

/* An event is the time at which everything queued before it ends. */
static rvl_status sim_record_event(void *self, int device, uint64_t *event_out)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    *event_out = rvli_price_queued_end_ns(&d->pricer);
    return unlock_device(d, RVL_OK);
}

static rvl_status sim_wait_event(void *self, int device, uint64_t event)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    rvli_clock_wait_until(d->pricer.clock, event);
    return unlock_device(d, RVL_OK);
}

/* Simulated devices run no work of the caller. */
static rvl_status sim_wait_user(void *self, void *event)
{
    (void)self, (void)event;
    return RVL_OK;
}

static rvl_status sim_synchronize(void *self, int device)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    rvli_price_synchronize(&d->pricer);
    return unlock_device(d, RVL_OK);
}

static rvl_status sim_is_capturing(void *self, void *stream, bool *capturing_out)
{
    (void)self, (void)stream;
    *capturing_out = false;
    return RVL_OK;
}

/* Only accounted addresses contain their range; the device is in their bits. */
static rvl_status sim_prefetch(void *self, uint64_t addr, int depth)
{
    rvli_sim *sim = self;
    int device = rvli_sim_ranges_device(addr);
    if (device >= sim->device_count || sim->devices[device].backed)
        return RVL_OK;
    rvli_sim_device *d = lock_device(self, device);
    uint64_t base;
    const rvli_sim_range *range = rvli_sim_ranges_slot(&d->ranges, addr, &base);
    if (range != NULL && depth == 0)
        __builtin_prefetch(range);
    else if (range != NULL && depth == 1 && range->one_block < d->block_count)
        __builtin_prefetch(&d->blocks[range->one_block]);
    return unlock_device(d, RVL_OK);
}

/* Host memory is allocated once and kept, as its price assumes. */
static rvl_status sim_host_memory(void *self, rvli_host_facts *facts_out)
{
    rvli_sim *sim = self;
    rvli_host_facts facts = {0};
    for (int device = 0; device < sim->device_count; device++) {
        rvli_sim_device *d = lock_device(self, device);
        facts.used_bytes += d->pricer.host_bytes;
        facts.pinned_bytes += d->pricer.host_made_bytes;
        unlock_device(d, RVL_OK);
    }
    *facts_out = facts;
    return RVL_OK;
}

/* Kept host memory exists only as a price: there is nothing to free. */
static rvl_status sim_host_trim(void *self, uint64_t keep)
{
    (void)self, (void)keep;
    return RVL_OK;
}

/* Buffers may need more than `bytes`. The memory of the largest sum is kept. */
static rvl_status sim_host_ahead(void *self, int device, uint64_t bytes, uint64_t *coming_out)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    rvli_price_host_ahead(&d->pricer, bytes);
    *coming_out = bytes;
    return unlock_device(d, RVL_OK);
}

/* ---- Sleep of the whole process, as by the driver's checkpoint ---- */

static rvl_status out_of_turn(void)
{
    return rvli_error(RVL_ERR_STATE, "the simulated process is not in the state for this call");
}

static rvl_status step(rvli_sim *sim, rvli_process_state from, rvli_process_state to)
{
    int expected = (int)from;
    return atomic_compare_exchange_strong(&sim->process, &expected, (int)to) ? RVL_OK
                                                                             : out_of_turn();
}

/* Charges a call about the whole process to device 0: all devices share the clock. */
static void charge(rvli_sim *sim, rvl_cost cost, uint64_t bytes)
{
    rvli_sim_device *d = lock_device(sim, 0);
    rvli_price_call(&d->pricer, cost, bytes);
    unlock_device(d, RVL_OK);
}

static rvl_status sim_process_check(void *self)
{
    (void)self;
    return RVL_OK;
}

static rvl_status sim_process_state(void *self, rvli_process_state *state_out)
{
    rvli_sim *sim = self;
    *state_out = (rvli_process_state)atomic_load(&sim->process);
    return RVL_OK;
}

static rvl_status sim_process_lock(void *self, uint32_t timeout_ms)
{
    rvli_sim *sim = self;
    (void)timeout_ms;
    rvl_status status = step(sim, RVLI_PROCESS_RUNNING, RVLI_PROCESS_LOCKED);
    for (int device = 0; device < sim->device_count && status == RVL_OK; device++)
        status = sim_synchronize(self, device);
    if (status == RVL_OK)
        charge(sim, RVLI_PROCESS_LOCK, 0);
    return status;
}

/*
 * Devices are copied one after the other, so their bytes add up. The cost of the call is charged
 * once.
 */
static rvl_status sim_process_checkpoint(void *self)
{
    rvli_sim *sim = self;
    uint64_t bytes = 0;
    rvl_status status = step(sim, RVLI_PROCESS_LOCKED, RVLI_PROCESS_AWAY);
    for (int i = 0; i < sim->device_count && status == RVL_OK; i++) {
        rvli_sim_device *d = lock_device(self, i);
        d->away_bytes = d->used_bytes;
        bytes += d->away_bytes;
        unlock_device(d, RVL_OK);
    }
    if (status == RVL_OK)
        charge(sim, RVLI_PROCESS_CHECKPOINT, bytes);
    return status;
}

/* As on a card: without room, the process is lost. */
static rvl_status sim_process_restore(void *self)
{
    rvli_sim *sim = self;
    uint64_t bytes = 0;
    rvl_status status = step(sim, RVLI_PROCESS_AWAY, RVLI_PROCESS_LOCKED);
    for (int i = 0; i < sim->device_count && status == RVL_OK; i++) {
        rvli_sim_device *d = lock_device(self, i);
        if (d->away_bytes > free_bytes(d) && !d->overcommit)
            status = out_of_memory(d, d->away_bytes);
        bytes += d->away_bytes;
        d->away_bytes = status == RVL_OK ? 0 : d->away_bytes;
        unlock_device(d, RVL_OK);
    }
    if (status == RVL_OK)
        charge(sim, RVLI_PROCESS_RESTORE, bytes);
    else if (atomic_load(&sim->process) == RVLI_PROCESS_LOCKED)
        atomic_store(&sim->process, RVLI_PROCESS_LOST);
    return status;
}

static rvl_status sim_process_unlock(void *self)
{
    rvli_sim *sim = self;
    rvl_status status = step(sim, RVLI_PROCESS_LOCKED, RVLI_PROCESS_RUNNING);
    if (status == RVL_OK)
        charge(sim, RVLI_PROCESS_UNLOCK, 0);
    return status;
}

static rvl_status sim_process_room(void *self, int device, uint64_t *free_out)
{
    rvli_sim_device *d = lock_device(self, device);
    if (d == NULL)
        return RVL_ERR_NO_DEVICE;
    *free_out = free_bytes(d);
    return unlock_device(d, RVL_OK);
}

const rvli_backend_ops rvli_sim_ops = {
    .size = sizeof rvli_sim_ops,
    .version = RVLI_BACKEND_VERSION,
    .name = "sim",
    .simulated = true,
    .open = sim_open,
    .close = sim_close,
    .device_facts = sim_device_facts,
#define SIM_OP(op, parameters, arguments) .op = sim_##op,
    RVLI_BACKEND_OP_MAP(SIM_OP) RVLI_BACKEND_EXTERNAL_MAP(SIM_OP) RVLI_BACKEND_DIGEST_MAP(SIM_OP)
        RVLI_BACKEND_PREFETCH_MAP(SIM_OP) RVLI_BACKEND_HOST_MAP(SIM_OP)
            RVLI_BACKEND_PROCESS_MAP(SIM_OP)
#undef SIM_OP
};
