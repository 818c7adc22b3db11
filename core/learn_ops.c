/* SPDX-License-Identifier: MIT */
#include "core/learn_ops.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/cost.h"
#include "base/error.h"

#define FS_PER_NS 1e6
#define FADES 0.9 /* factor on the weight of old measurements at each new one */
#define APART                                                                                      \
    2.0 /* ratio of sizes that is enough to separate the cost of a call from that of a             \
           byte */

/*
 * Timing a call takes two readings of the clock and a lock, as much as the decorator's other
 * overhead. So for each kind of call and device, the first calls are timed, and then one of every
 * few.
 */
#define TIMED_FIRST 64
#define TIMED_OF 16

/* Calls that are timed individually. */
#define CALL_MAP(X)                                                                                \
    X(create)                                                                                      \
    X(release)                                                                                     \
    X(map)                                                                                         \
    X(set_access)                                                                                  \
    X(unmap)

enum {
#define CALL_NUMBER(name) CALL_##name,
    CALL_MAP(CALL_NUMBER)
#undef CALL_NUMBER
        CALLS
};

/*
 * Sums for a linear regression of time over bytes. A size is weighted by its known cost, so that a
 * relative error counts the same at every size, and a slow call counts as much as a fast one.
 */
typedef struct line {
    double w, wx, wxx, wy, wxy;
    double least_bytes, most_bytes;
} line;

/* Total time for a total of bytes. */
typedef struct rate {
    double ns, bytes;
} rate;

typedef struct device_record {
    rvl_cost_model known; /* as the backend reports it */
    line calls[CALLS];
    _Atomic uint32_t begun[CALLS]; /* calls so far; updated without the lock */
    rate out, in, making;
    /* Since the device last had nothing queued: */
    uint64_t begin_ns;
    uint64_t out_bytes, in_bytes, made_bytes;
    uint64_t other_count; /* fills and digests: with them, nothing is learned about copies */
    uint64_t events;      /* recorded and not waited for */
    bool queued_since;    /* something was queued since the last event */
    uint64_t host_bytes;  /* in buffers */
    uint64_t host_most;   /* peak of host_bytes */
} device_record;

struct rvli_learner {
    rvli_backend_ops inner;
    void *self;
    int device_count;
    pthread_mutex_t lock;
    device_record devices[];
};

/* ---- Recording ---- */

static device_record *lock_record(rvli_learner *learner, int device)
{
    if (device < 0 || device >= learner->device_count)
        return NULL;
    pthread_mutex_lock(&learner->lock);
    return &learner->devices[device];
}

static void unlock(rvli_learner *learner)
{
    pthread_mutex_unlock(&learner->lock);
}

static void add_to_line(line *it, rvl_cost known, double bytes, double ns)
{
    double usual = (double)rvli_cost_ns(known, (uint64_t)bytes) + 1;
    double weight = 1 / (usual * usual);
    it->w = it->w * FADES + weight;
    it->wx = it->wx * FADES + weight * bytes;
    it->wxx = it->wxx * FADES + weight * bytes * bytes;
    it->wy = it->wy * FADES + weight * ns;
    it->wxy = it->wxy * FADES + weight * bytes * ns;
    if (it->most_bytes == 0 || bytes < it->least_bytes)
        it->least_bytes = bytes;
    if (bytes > it->most_bytes)
        it->most_bytes = bytes;
}

static rvl_cost known_cost(const rvl_cost_model *known, int call)
{
    const rvl_cost costs[CALLS] = {
#define KNOWN(name) known->name,
        CALL_MAP(KNOWN)
#undef KNOWN
    };
    return costs[call];
}

/* Returns whether to time this call. */
static bool is_timed(rvli_learner *learner, int device, int call)
{
    if (device < 0 || device >= learner->device_count)
        return false;
    uint32_t before =
        atomic_load_explicit(&learner->devices[device].begun[call], memory_order_relaxed);
    /* Concurrent threads may count two calls as one. The count is only used for sampling. */
    atomic_store_explicit(&learner->devices[device].begun[call], before + 1, memory_order_relaxed);
    return before < TIMED_FIRST || before % TIMED_OF == 0;
}

static void note_call(rvli_learner *learner, int device, int call, uint64_t bytes,
                      uint64_t begin_ns, rvl_status status)
{
    uint64_t end_ns = rvli_monotonic_ns();
    device_record *record = status == RVL_OK ? lock_record(learner, device) : NULL;
    if (record == NULL)
        return;
    add_to_line(&record->calls[call], known_cost(&record->known, call), (double)bytes,
                (double)(end_ns - begin_ns));
    unlock(learner);
}

static bool is_idle(const device_record *record)
{
    return !record->queued_since && record->events == 0;
}

static void forget_queued(device_record *record)
{
    record->out_bytes = record->in_bytes = record->made_bytes = record->other_count = 0;
    record->events = 0;
    record->queued_since = false;
}

static void note_queued(rvli_learner *learner, int device, uint64_t out, uint64_t in,
                        uint64_t begin_ns, rvl_status status)
{
    device_record *record = status == RVL_OK ? lock_record(learner, device) : NULL;
    if (record == NULL)
        return;
    if (is_idle(record) && record->out_bytes + record->in_bytes + record->other_count == 0)
        record->begin_ns = begin_ns;
    record->queued_since = true;
    record->out_bytes += out;
    record->in_bytes += in;
    record->other_count += out == 0 && in == 0;
    unlock(learner);
}

static void add_to_rate(rate *it, uint64_t bytes, uint64_t ns)
{
    it->ns = it->ns * FADES + (double)ns;
    it->bytes = it->bytes * FADES + (double)bytes;
}

/* Everything queued has ended. */
static void note_ended(device_record *record)
{
    uint64_t ns = rvli_monotonic_ns() - record->begin_ns;
    bool one_way = record->other_count == 0 && (record->out_bytes == 0) != (record->in_bytes == 0);
    if (one_way && record->in_bytes > 0)
        add_to_rate(&record->in, record->in_bytes, ns);
    else if (one_way && record->made_bytes == 0)
        add_to_rate(&record->out, record->out_bytes, ns);
    else if (one_way && record->made_bytes >= record->out_bytes / 10 * 9)
        add_to_rate(&record->making, record->made_bytes, ns);
    forget_queued(record);
}

/* ---- The ops ---- */

#define TIMED(name, parameters, arguments)                                                         \
    static rvl_status learn_##name parameters                                                      \
    {                                                                                              \
        rvli_learner *learner = self;                                                              \
        self = learner->self;                                                                      \
        if (!is_timed(learner, device, CALL_##name))                                               \
            return learner->inner.name arguments;                                                  \
        uint64_t begin_ns = rvli_monotonic_ns();                                                   \
        rvl_status status = learner->inner.name arguments;                                         \
        note_call(learner, device, CALL_##name, size, begin_ns, status);                           \
        return status;                                                                             \
    }
TIMED(create, (void *self, int device, uint64_t size, uint32_t properties, rvli_handle *block_out),
      (self, device, size, properties, block_out))
TIMED(release, (void *self, int device, rvli_handle block, uint64_t size),
      (self, device, block, size))
TIMED(map, (void *self, int device, uint64_t addr, uint64_t size, rvli_handle block),
      (self, device, addr, size, block))
TIMED(set_access, (void *self, int device, uint64_t addr, uint64_t size, uint64_t device_mask),
      (self, device, addr, size, device_mask))
TIMED(unmap, (void *self, int device, uint64_t addr, uint64_t size), (self, device, addr, size))
#undef TIMED

#define QUEUED(name, parameters, arguments, out, in)                                               \
    static rvl_status learn_##name parameters                                                      \
    {                                                                                              \
        rvli_learner *learner = self;                                                              \
        uint64_t begin_ns = rvli_monotonic_ns();                                                   \
        self = learner->self;                                                                      \
        rvl_status status = learner->inner.name arguments;                                         \
        note_queued(learner, device, out, in, begin_ns, status);                                   \
        return status;                                                                             \
    }
QUEUED(fill, (void *self, int device, uint64_t addr, uint64_t size, uint8_t byte),
       (self, device, addr, size, byte), 0, 0)
QUEUED(copy_to_host, (void *self, int device, void *host, uint64_t addr, uint64_t size),
       (self, device, host, addr, size), size, 0)
QUEUED(copy_to_device, (void *self, int device, uint64_t addr, const void *host, uint64_t size),
       (self, device, addr, host, size), 0, size)
#undef QUEUED

static rvl_status learn_host_alloc(void *self, int device, uint64_t size, void **host_out)
{
    rvli_learner *learner = self;
    rvl_status status = learner->inner.host_alloc(learner->self, device, size, host_out);
    device_record *record = status == RVL_OK ? lock_record(learner, device) : NULL;
    if (record == NULL)
        return status;
    record->host_bytes += size;
    if (record->host_bytes > record->host_most) {
        record->made_bytes += record->host_bytes - record->host_most;
        record->host_most = record->host_bytes;
    }
    unlock(learner);
    return status;
}

static rvl_status learn_host_free(void *self, int device, void *host, uint64_t size)
{
    rvli_learner *learner = self;
    rvl_status status = learner->inner.host_free(learner->self, device, host, size);
    device_record *record = status == RVL_OK ? lock_record(learner, device) : NULL;
    if (record == NULL)
        return status;
    record->host_bytes -= size < record->host_bytes ? size : record->host_bytes;
    unlock(learner);
    return status;
}

static rvl_status learn_record_event(void *self, int device, uint64_t *event_out)
{
    rvli_learner *learner = self;
    rvl_status status = learner->inner.record_event(learner->self, device, event_out);
    device_record *record = status == RVL_OK ? lock_record(learner, device) : NULL;
    if (record == NULL)
        return status;
    record->events++;
    record->queued_since = false;
    unlock(learner);
    return status;
}

static rvl_status learn_wait_event(void *self, int device, uint64_t event)
{
    rvli_learner *learner = self;
    rvl_status status = learner->inner.wait_event(learner->self, device, event);
    device_record *record = lock_record(learner, device);
    if (record == NULL)
        return status;
    record->events -= record->events > 0;
    if (status != RVL_OK)
        forget_queued(record); /* its time has no meaning */
    else if (is_idle(record))
        note_ended(record);
    unlock(learner);
    return status;
}

static rvl_status learn_synchronize(void *self, int device)
{
    rvli_learner *learner = self;
    rvl_status status = learner->inner.synchronize(learner->self, device);
    device_record *record = lock_record(learner, device);
    if (record == NULL)
        return status;
    forget_queued(record); /* this also waited for work of others */
    unlock(learner);
    return status;
}

static rvl_status learn_device_facts(void *self, int device, rvli_device_facts *facts_out)
{
    rvli_learner *learner = self;
    return learner->inner.device_facts(learner->self, device, facts_out);
}

static void learn_close(void *self)
{
    rvli_learner *learner = self;
    learner->inner.close(learner->self);
    pthread_mutex_destroy(&learner->lock);
    free(learner);
}

/* Other ops are forwarded unchanged. */
#define FORWARD(name, parameters, arguments)                                                       \
    static rvl_status forward_##name parameters                                                    \
    {                                                                                              \
        const rvli_learner *learner = self;                                                        \
        self = learner->self;                                                                      \
        return learner->inner.name arguments;                                                      \
    }
RVLI_BACKEND_ALL_OPS_MAP(FORWARD)
#undef FORWARD

rvl_status rvli_learn_wrap(const rvli_backend_ops *ops, void *self, int device_count,
                           rvli_backend_ops *ops_out, rvli_learner **learner_out)
{
    rvli_learner *learner =
        calloc(1, sizeof *learner + (size_t)device_count * sizeof learner->devices[0]);
    if (learner == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a decorator");
    learner->inner = *ops;
    learner->self = self;
    learner->device_count = device_count;
    for (int device = 0; device < device_count; device++) {
        rvli_device_facts facts = {0};
        if (ops->device_facts(self, device, &facts) == RVL_OK)
            learner->devices[device].known = facts.cost;
    }
    pthread_mutex_init(&learner->lock, NULL);
    *ops_out = *ops;
    ops_out->close = learn_close;
    ops_out->device_facts = learn_device_facts;
#define WRAP(name, parameters, arguments) ops_out->name = forward_##name;
    RVLI_BACKEND_ALL_OPS_MAP(WRAP)
#undef WRAP
#define LEARN(name) ops_out->name = learn_##name;
    CALL_MAP(LEARN)
    LEARN(fill)
    LEARN(copy_to_host)
    LEARN(copy_to_device)
    LEARN(host_alloc)
    LEARN(host_free)
    LEARN(record_event)
    LEARN(wait_event)
    LEARN(synchronize)
#undef LEARN
    *learner_out = learner;
    return RVL_OK;
}

void *rvli_learner_inner(const rvli_learner *learner)
{
    return learner->self;
}

/* ---- Results ---- */

static uint32_t whole(double value)
{
    return value <= 0 ? 0 : value >= UINT32_MAX ? UINT32_MAX : (uint32_t)(value + 0.5);
}

/* Scales both parts of the known cost alike: similar sizes cannot separate the two. */
static rvl_cost scaled(const line *it, rvl_cost known)
{
    double mean_bytes = it->wx / it->w;
    double before = (double)rvli_cost_ns(known, (uint64_t)mean_bytes);
    double factor = before > 0 ? it->wy / it->w / before : 0;
    if (before <= 0)
        return (rvl_cost){.call_ns = whole(it->wy / it->w)};
    return (rvl_cost){.call_ns = whole(known.call_ns * factor),
                      .fs_per_byte = whole(known.fs_per_byte * factor)};
}

static rvl_cost cost_of(const line *it, rvl_cost known)
{
    double determinant = it->w * it->wxx - it->wx * it->wx;
    if (it->w <= 0)
        return known;
    if (it->most_bytes < APART * it->least_bytes || determinant <= 0)
        return scaled(it, known);
    double fixed = (it->wxx * it->wy - it->wx * it->wxy) / determinant;
    double per_byte = (it->w * it->wxy - it->wx * it->wy) / determinant;
    if (fixed < 0 || per_byte < 0)
        return scaled(it, known);
    return (rvl_cost){.call_ns = whole(fixed), .fs_per_byte = whole(per_byte * FS_PER_NS)};
}

static void take_rate(const rate *it, rvl_cost *cost)
{
    if (it->bytes > 0)
        cost->fs_per_byte = whole(it->ns / it->bytes * FS_PER_NS);
}

void rvli_learned_costs(rvli_learner *learner, int device, rvl_cost_model *cost)
{
    device_record *record = learner != NULL ? lock_record(learner, device) : NULL;
    if (record == NULL)
        return;
#define TAKE(name) cost->name = cost_of(&record->calls[CALL_##name], cost->name);
    CALL_MAP(TAKE)
#undef TAKE
    take_rate(&record->out, &cost->copy_to_host);
    take_rate(&record->in, &cost->copy_to_device);
    take_rate(&record->making, &cost->host_alloc);
    unlock(learner);
}
