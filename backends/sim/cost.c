/* SPDX-License-Identifier: MIT */
/*
 * What calls and copies cost on the context's clock.
 *
 * A call holds the caller up for its price. A copy is queued on one of two engines, one a
 * direction, and runs beside the caller; waiting for it moves the clock to its end. Host memory is
 * made by an engine of its own, once: a copy to it runs beside, and cannot end before it is there.
 */
#include "backends/sim/sim.h"

#define FS_PER_NS UINT64_C(1000000)

/* Splits the multiplication so that terabytes do not overflow. */
static uint64_t price_ns(rvl_cost cost, uint64_t bytes)
{
    return cost.call_ns + bytes / FS_PER_NS * cost.fs_per_byte +
           bytes % FS_PER_NS * cost.fs_per_byte / FS_PER_NS;
}

void rvli_sim_charge(rvli_sim_device *device, rvl_cost cost, uint64_t bytes)
{
    rvli_clock_add(device->clock, device->number, price_ns(cost, bytes));
}

void rvli_sim_queue_copy(rvli_sim_device *device, uint64_t *engine_end_ns, rvl_cost cost,
                         uint64_t bytes)
{
    uint64_t start_ns = rvli_clock_now(device->clock);
    if (start_ns < *engine_end_ns)
        start_ns = *engine_end_ns;
    *engine_end_ns = start_ns + price_ns(cost, bytes);
}

void rvli_sim_make_host(rvli_sim_device *device, uint64_t size)
{
    rvl_cost cost = device->profile.cost.host_alloc;
    uint64_t made = 0;
    device->host_bytes += size;
    if (device->host_bytes > device->host_made_bytes) {
        made = device->host_bytes - device->host_made_bytes;
        device->host_made_bytes = device->host_bytes;
    }
    rvli_sim_charge(device, (rvl_cost){.call_ns = cost.call_ns}, 0);
    if (made > 0)
        rvli_sim_queue_copy(device, &device->host_made_end_ns,
                            (rvl_cost){.fs_per_byte = cost.fs_per_byte}, made);
}
