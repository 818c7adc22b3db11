/* SPDX-License-Identifier: MIT */
/*
 * What calls and copies cost on the context's clock.
 *
 * A call holds the caller up for its price. A copy is queued on one of two engines, one a
 * direction, and runs beside the caller; waiting for it moves the clock to its end. Host memory is
 * made by an engine of its own, once: a copy to it runs beside, and cannot end before it is there.
 */
#include "backends/sim/sim.h"

#include "base/cost.h"

void rvli_sim_charge(rvli_sim_device *device, rvl_cost cost, uint64_t bytes)
{
    rvli_clock_add(device->clock, device->number, rvli_cost_ns(cost, bytes));
}

void rvli_sim_queue_copy(rvli_sim_device *device, uint64_t *engine_end_ns, rvl_cost cost,
                         uint64_t bytes)
{
    uint64_t start_ns = rvli_clock_now(device->clock);
    if (start_ns < *engine_end_ns)
        start_ns = *engine_end_ns;
    *engine_end_ns = start_ns + rvli_cost_ns(cost, bytes);
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
