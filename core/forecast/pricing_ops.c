/* SPDX-License-Identifier: MIT */
#include "core/forecast/pricing_ops.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pricer.h"

typedef struct pricing_device {
    rvli_device_facts facts;
    rvli_pricer pricer;
    uint64_t free_bytes; /* 0 once more is created than was free */
} pricing_device;

typedef struct pricing {
    int device_count;
    pricing_device devices[];
} pricing;

static rvli_pricer *pricer_of(void *self, int device)
{
    pricing *prices = self;
    return &prices->devices[device].pricer;
}

/* ---- Open and close ---- */

/* Like the model's device, except for facts that could stop the forecast, or touch a disk. */
static void open_device(pricing_device *device, const rvl_context *of, rvli_clock *clock,
                        int number)
{
    const rvli_device *model = &of->devices[number];
    device->facts = model->facts;
    rvli_learned_costs(of->learner, number, &device->facts.cost);
    device->facts.overcommit = true;
    device->facts.host_accounted = true;
    device->pricer = (rvli_pricer){
        .cost = device->facts.cost,
        .waits = model->facts.waits,
        .clock = clock,
        .lane = number,
        .clearing = rvli_clearing_from(&model->clearing, rvli_clock_now(&of->clock)),
        .host_bytes = model->host.bytes,
        .host_made_bytes = model->host.most_bytes,
    };
    device->free_bytes = model->free_bytes;
}

static rvl_status pricing_open(const void *options, rvli_clock *clock, void **self_out,
                               int *device_count_out)
{
    const rvl_context *model = options;
    size_t count = (size_t)model->device_count;
    pricing *prices = malloc(sizeof *prices + count * sizeof prices->devices[0]);
    if (prices == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a dry run");
    prices->device_count = model->device_count;
    clock->virtual_time = true;
    clock->lane_count = model->device_count;
    for (int device = 0; device < model->device_count; device++)
        open_device(&prices->devices[device], model, clock, device);
    *self_out = prices;
    *device_count_out = model->device_count;
    return RVL_OK;
}

static void pricing_close(void *self)
{
    free(self);
}

static rvl_status pricing_device_facts(void *self, int device, rvli_device_facts *facts_out)
{
    pricing *prices = self;
    *facts_out = prices->devices[device].facts;
    return RVL_OK;
}

/* ---- Calls ---- */

/* A forecast only moves existing allocations, and never reserves an address. */
static rvl_status pricing_reserve(void *self, int device, uint64_t size, uint64_t *addr_out)
{
    (void)self, (void)device, (void)size, (void)addr_out;
    return rvli_error(RVL_ERR_NOT_SUPPORTED, "a dry run reserves nothing");
}

static rvl_status pricing_release_range(void *self, int device, uint64_t addr, uint64_t size)
{
    (void)self, (void)device, (void)addr, (void)size;
    return RVL_OK;
}

static rvl_status pricing_create(void *self, int device, uint64_t size, uint32_t properties,
                                 rvli_handle *block_out)
{
    (void)properties;
    pricing *prices = self;
    uint64_t *free_bytes = &prices->devices[device].free_bytes;
    rvli_price_create(pricer_of(self, device), size, *free_bytes);
    *free_bytes -= size < *free_bytes ? size : *free_bytes;
    *block_out = 1;
    return RVL_OK;
}

static rvl_status pricing_release(void *self, int device, rvli_handle block, uint64_t size)
{
    (void)block;
    pricing *prices = self;
    rvli_price_release(pricer_of(self, device), size);
    prices->devices[device].free_bytes += size;
    return RVL_OK;
}

static rvl_status pricing_map(void *self, int device, uint64_t addr, uint64_t size,
                              rvli_handle block)
{
    (void)addr, (void)block;
    rvli_pricer *pricer = pricer_of(self, device);
    rvli_price_call(pricer, pricer->cost.map, size);
    return RVL_OK;
}

static rvl_status pricing_set_access(void *self, int device, uint64_t addr, uint64_t size,
                                     uint64_t device_mask)
{
    (void)addr, (void)device_mask;
    rvli_pricer *pricer = pricer_of(self, device);
    rvli_price_call(pricer, pricer->cost.set_access, size);
    return RVL_OK;
}

static rvl_status pricing_unmap(void *self, int device, uint64_t addr, uint64_t size)
{
    (void)addr;
    rvli_price_unmap(pricer_of(self, device), size);
    return RVL_OK;
}

static rvl_status pricing_memory_info(void *self, int device, uint64_t *free_out,
                                      uint64_t *total_out)
{
    pricing *prices = self;
    *free_out = *total_out = prices->devices[device].facts.capacity_bytes;
    return RVL_OK;
}

/* ---- Copies ---- */

static rvl_status pricing_fill(void *self, int device, uint64_t addr, uint64_t size, uint8_t byte)
{
    (void)addr, (void)byte;
    rvli_pricer *pricer = pricer_of(self, device);
    rvli_price_copy(pricer, RVLI_IN, pricer->cost.fill, size);
    return RVL_OK;
}

static rvl_status pricing_host_alloc(void *self, int device, uint64_t size, void **host_out)
{
    static char no_bytes; /* nothing is ever copied to it */
    rvli_price_host_alloc(pricer_of(self, device), size);
    *host_out = &no_bytes;
    return RVL_OK;
}

static rvl_status pricing_host_free(void *self, int device, void *host, uint64_t size)
{
    (void)host;
    rvli_price_host_free(pricer_of(self, device), size);
    return RVL_OK;
}

static rvl_status pricing_copy_to_host(void *self, int device, void *host, uint64_t addr,
                                       uint64_t size)
{
    (void)host, (void)addr;
    rvli_price_copy_to_host(pricer_of(self, device), size);
    return RVL_OK;
}

static rvl_status pricing_copy_to_device(void *self, int device, uint64_t addr, const void *host,
                                         uint64_t size)
{
    (void)host, (void)addr;
    rvli_pricer *pricer = pricer_of(self, device);
    rvli_price_copy(pricer, RVLI_IN, pricer->cost.copy_to_device, size);
    return RVL_OK;
}

/*
 * Every digest is 0. core/forecast/rehearsal.c gives other digests to backups that count as
 * changed.
 */
static rvl_status pricing_digest(void *self, int device, uint64_t addr, uint64_t size,
                                 bool arriving, const rvli_secret *secret, rvli_digest *digests_out)
{
    (void)addr;
    (void)secret;
    pricing *prices = self;
    rvli_pricer *pricer = pricer_of(self, device);
    uint64_t granules = size / prices->devices[device].facts.granularity_bytes;
    memset(digests_out, 0, granules * sizeof *digests_out);
    rvli_price_copy(pricer, arriving ? RVLI_IN : RVLI_OUT, pricer->cost.digest, size);
    return RVL_OK;
}

/* ---- Waiting ---- */

static rvl_status pricing_record_event(void *self, int device, uint64_t *event_out)
{
    *event_out = rvli_price_queued_end_ns(pricer_of(self, device));
    return RVL_OK;
}

static rvl_status pricing_wait_event(void *self, int device, uint64_t event)
{
    rvli_clock_wait_until(pricer_of(self, device)->clock, event);
    return RVL_OK;
}

static rvl_status pricing_wait_user(void *self, void *event)
{
    (void)self, (void)event;
    return RVL_OK;
}

static rvl_status pricing_synchronize(void *self, int device)
{
    rvli_price_synchronize(pricer_of(self, device));
    return RVL_OK;
}

static rvl_status pricing_is_capturing(void *self, void *stream, bool *capturing_out)
{
    (void)self, (void)stream;
    *capturing_out = false;
    return RVL_OK;
}

const rvli_backend_ops rvli_pricing_ops = {.size = sizeof rvli_pricing_ops,
                                           .version = RVLI_BACKEND_VERSION,
                                           .name = "pricing",
                                           .simulated = true,
                                           .open = pricing_open,
                                           .close = pricing_close,
                                           .device_facts = pricing_device_facts,
#define PRICING_OP(op, parameters, arguments) .op = pricing_##op,
                                           RVLI_BACKEND_OP_MAP(PRICING_OP)
                                               RVLI_BACKEND_DIGEST_MAP(PRICING_OP)
#undef PRICING_OP
};
