/* SPDX-License-Identifier: MIT */
/* Opening and closing a context, and the public API for devices, processes and tags. */
#include "core/context/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "core/backup/backup.h"
#include "core/backup/disk/file.h"
#include "core/backup/disk_space.h"
#include "core/backup/store/client.h"
#include "core/context/allocate.h"
#include "core/learn_ops.h"
#include "core/listener.h"
#include "core/log_ops.h"
#include "core/memory/blocks.h"
#include "core/memory/coalesce.h"
#include "core/prefetch.h"
#include "core/sleep/obstacles.h"
#include "core/tables.h"
#include "reveille/record.h"

#define KNOWN_FLAGS                                                                                \
    (RVL_CONTEXT_LOG_OPS | RVL_CONTEXT_NO_VERIFY | RVL_CONTEXT_DISK_TMPFS |                        \
     RVL_CONTEXT_STORE_OVERFLOW)

#define FIRST_STAGE "start"

/* ---- Opening ---- */

static rvl_status read_devices(rvl_context *context)
{
    context->devices = calloc((size_t)context->device_count, sizeof *context->devices);
    if (context->devices == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the devices");
    for (int device = 0; device < context->device_count; device++) {
        rvli_ledger_init(&context->devices[device].ledger);
        rvl_status status =
            context->ops.device_facts(context->self, device, &context->devices[device].facts);
        if (status != RVL_OK) {
            rvli_error_op("device_facts");
            return status;
        }
    }
    return RVL_OK;
}

static rvl_status add_log(rvl_context *context)
{
    rvli_backend_ops wrapped;
    void *self = NULL;
    rvl_status status = rvli_log_wrap(&context->ops, context->self, context->log, context->log_user,
                                      &wrapped, &self);
    if (status == RVL_OK) {
        context->ops = wrapped;
        context->self = self;
    }
    return status;
}

/* Forecasts for real devices learn. Simulated devices cost exactly what their profile states. */
static rvl_status add_learner(rvl_context *context)
{
    rvli_backend_ops wrapped;
    rvl_status status = rvli_learn_wrap(&context->ops, context->self, context->device_count,
                                        &wrapped, &context->learner);
    if (status == RVL_OK) {
        context->ops = wrapped;
        context->self = context->learner;
    }
    return status;
}

static rvl_status open_backend(rvl_context *context, const rvli_backend_ops *ops,
                               const rvl_context_options *options)
{
    rvl_status status = rvli_backend_ops_copy(&context->ops, ops);
    if (status == RVL_OK)
        status = context->ops.open(options->backend_options, &context->clock, &context->self,
                                   &context->device_count);
    if (status == RVL_OK && !context->clock.virtual_time)
        status = add_learner(context);
    if (status == RVL_OK && (options->flags & RVL_CONTEXT_LOG_OPS) && options->log != NULL)
        status = add_log(context);
    return status;
}

static void free_context(rvl_context *context)
{
    rvli_listener_leave(context);
    rvli_tables_destroy(context);
    rvli_ledger_destroy(context);
    free(context->devices);
    rvli_disk_remover_delete(context->disk_remover);
    free(context->disk_directory);
    rvli_store_client_delete(context->store);
    rvli_index_destroy(&context->by_addr);
    rvli_pool_destroy(&context->allocation_pool);
    rvli_pool_destroy(&context->carrier_pool);
    rvli_pool_destroy(&context->block_pool);
    if (context->self != NULL)
        context->ops.close(context->self);
    pthread_cond_destroy(&context->moved);
    pthread_mutex_destroy(&context->lock);
    free(context);
}

static rvl_context *new_context(const rvl_context_options *options)
{
    rvl_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return NULL;
    pthread_mutex_init(&context->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&context->moved, &monotonic);
    pthread_condattr_destroy(&monotonic);
    rvli_index_init(&context->by_addr);
    rvli_pool_init(&context->allocation_pool, sizeof(rvli_allocation));
    rvli_pool_init(&context->carrier_pool, sizeof(rvli_carrier));
    rvli_pool_init(&context->block_pool, sizeof(rvli_block));
    context->log = options->log;
    context->log_user = options->log_user;
    context->keep_bytes = options->keep_bytes;
    context->verify = (options->flags & RVL_CONTEXT_NO_VERIFY) == 0;
    context->fork_generation = rvli_fork_generation();
    return context;
}

static rvl_status set_disk_directory(rvl_context *context, const rvl_context_options *options)
{
    if (options->disk_directory == NULL)
        return RVL_OK;
    context->disk_directory = strdup(options->disk_directory);
    if (context->disk_directory == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a context");
    rvl_status status =
        rvli_disk_directory_check(options->disk_directory, options->flags & RVL_CONTEXT_DISK_TMPFS);
    return status == RVL_OK ? rvli_disk_remover_new(&context->disk_remover) : status;
}

static rvl_status set_store(rvl_context *context, const rvl_context_options *options)
{
    context->store_overflow = (options->flags & RVL_CONTEXT_STORE_OVERFLOW) != 0;
    if (context->store_overflow && (options->store_path == NULL || options->disk_directory == NULL))
        return rvli_error(RVL_ERR_INVALID, "RVL_CONTEXT_STORE_OVERFLOW is for a store_path with a "
                                           "disk_directory beside it: name both");
    return options->store_path != NULL ? rvli_store_client_new(options->store_path, &context->store)
                                       : RVL_OK;
}

/* Adds the first entries of the tables: process 0 and the stage before the first mark. */
static rvl_status fill_tables(rvl_context *context, const rvl_context_options *options)
{
    rvli_process *self;
    rvl_status status =
        rvli_process_add(context, options->process_name ? options->process_name : "self", &self);
    return status == RVL_OK ? rvli_ledger_begin_stage(context, FIRST_STAGE) : status;
}

rvl_status rvli_context_open_ops(const rvli_backend_ops *ops,
                                 const rvl_context_options *user_options, rvl_context **context_out)
{
    rvl_context_options options;
    rvl_status status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK)
        status = rvli_flags_check(options.flags, KNOWN_FLAGS, 0);
    if (status != RVL_OK)
        return status;
    if (context_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "context_out is NULL");

    status = rvli_sleep_check_open(ops);
    if (status != RVL_OK)
        return status;
    rvl_context *context = new_context(&options);
    if (context == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a context");
    uint64_t before_bytes[RVL_MAX_DEVICES];
    rvli_listener_tell_opening(ops, before_bytes);
    status = set_disk_directory(context, &options);
    if (status == RVL_OK)
        status = set_store(context, &options);
    if (status == RVL_OK)
        status = open_backend(context, ops, &options);
    if (status == RVL_OK)
        status = read_devices(context);
    if (status == RVL_OK)
        status = fill_tables(context, &options);
    if (status != RVL_OK) {
        free_context(context);
        return status;
    }
    rvli_listener_enter(context);
    rvli_listener_tell_opened(context, before_bytes);
    *context_out = context;
    return RVL_OK;
}

/* ---- Closing ---- */

/*
 * Frees the record of an allocation that the backend refuses to release. Closing the backend
 * releases it.
 */
static void abandon(rvl_context *context, rvli_allocation *allocation)
{
    rvli_allocation *mover = rvli_mover(allocation);
    while (mover->blocks != NULL) {
        rvli_block *block = mover->blocks;
        mover->blocks = block->next;
        rvli_pool_put(&context->block_pool, block);
    }
    rvli_backup_drop(context, mover->backup);
    mover->backup = NULL;
    rvli_index_remove(&context->by_addr, allocation);
    rvli_pool_put(&context->allocation_pool, allocation);
}

/* Frees everything that is left. Returns the first error. */
static rvl_status free_everything(rvl_context *context, uint64_t *live_out)
{
    rvl_status first = RVL_OK;
    *live_out = rvli_index_count(&context->by_addr);
    for (;;) {
        rvli_allocation *allocation = rvli_index_any(&context->by_addr);
        if (allocation == NULL)
            return first;
        if (rvli_rides_with_others(allocation)) {
            rvli_listener_tell_free(context, allocation->addr);
            rvli_rider_leave(context, allocation);
            continue;
        }
        rvli_listener_tell_free(context, allocation->addr);
        rvli_change_begin(context); /* no other thread may call: the lock is not needed */
        rvl_status status = rvli_free_allocation(context, allocation);
        if (status != RVL_OK)
            abandon(context, allocation);
        if (status != RVL_OK && first == RVL_OK)
            first = status;
    }
}

rvl_status rvl_context_close(rvl_context *context, uint64_t *live_out)
{
    if (context == NULL) {
        if (live_out != NULL)
            *live_out = 0;
        return RVL_OK;
    }
    rvl_status status = rvli_context_check_change(context);
    if (status != RVL_OK)
        return status;

    rvli_lock(context);
    bool prepared = context->prepared > 0, waking = context->wakes > 0;
    rvli_unlock(context);
    if (prepared)
        return rvli_error(RVL_ERR_BUSY, "a transition is prepared: commit or abort it first");
    if (waking)
        return rvli_error(RVL_ERR_BUSY, "a resume was started: rvl_resume_finish() first");

    uint64_t live = 0;
    rvl_status recorded = rvli_recording(&context->recorder) ? rvl_record_stop(context) : RVL_OK;
    rvl_status freed = free_everything(context, &live);
    rvl_status closed = rvli_blocks_close(context);
    const rvli_backend_ops ops = context->ops;
    uint64_t ordinals = rvli_listener_ordinals(context);
    free_context(context);
    rvli_listener_tell_closed(&ops, ordinals);
    if (live_out != NULL)
        *live_out = live;
    if (recorded != RVL_OK)
        return recorded;
    return freed != RVL_OK ? freed : closed;
}

/* ---- Devices, clock ---- */

int rvl_device_count(const rvl_context *context)
{
    return context != NULL ? context->device_count : 0;
}

rvl_status rvl_device_get_info(const rvl_context *context, int device, rvl_device_info *info_out)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_device_check(context, device);
    if (status != RVL_OK)
        return status;
    const rvli_device_facts *facts = &context->devices[device].facts;
    rvl_device_info info = {
        .capacity_bytes = facts->capacity_bytes,
        .granularity_bytes = facts->granularity_bytes,
        .simulated = context->ops.simulated,
        .overcommit = facts->overcommit,
        .rdma = facts->rdma,
    };
    memcpy(info.name, facts->name, sizeof info.name);
    return rvli_result_write(info_out, &info, sizeof info);
}

rvl_status rvl_device_synchronize(rvl_context *context, int device)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_device_check(context, device);
    if (status != RVL_OK)
        return status;
    status = context->ops.synchronize(context->self, device);
    if (status != RVL_OK) {
        rvli_error_op("synchronize");
        rvli_error_bytes(context->devices[device].facts.ordinal, 0, 0);
    }
    return status;
}

uint64_t rvl_clock_ns(const rvl_context *context)
{
    return context != NULL ? rvli_clock_now((rvli_clock *)&context->clock) : 0;
}

rvl_status rvl_private_let_pass(rvl_context *context, uint64_t ns)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK && context->clock.virtual_time)
        rvli_clock_wait_until(&context->clock, rvli_clock_now(&context->clock) + ns);
    return status;
}

rvl_status rvl_private_spend(rvl_context *context, int device, uint64_t ns)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK)
        status = rvli_device_check(context, device);
    if (status != RVL_OK)
        return status;
    rvli_lock(context);
    rvli_ledger_spend(context, device, ns);
    rvli_unlock(context);
    return RVL_OK;
}

/* ---- Processes and tags ---- */

rvl_status rvl_process_define(rvl_context *context, const char *name, rvl_process *process_out)
{
    rvli_process *process;
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK && process_out == NULL)
        status = rvli_error(RVL_ERR_INVALID, "process_out is NULL");
    if (status == RVL_OK)
        status = rvli_process_add(context, name, &process);
    if (status == RVL_OK)
        *process_out = process->number;
    return status;
}

/* block_bytes must be whole granules of every device. */
static rvl_status check_tag_options(const rvl_context *context, const rvl_tag_options *options)
{
    rvl_status status = rvli_flags_check(options->flags, RVL_TAG_RETAIN_BACKUPS | RVL_TAG_POISON,
                                         options->reserved);
    if (status != RVL_OK)
        return status;
    if (options->block_bytes != 0 && options->coalesce_bytes != 0)
        return rvli_error(RVL_ERR_INVALID,
                          "block_bytes cuts memory, coalesce_bytes joins it: give one of them");
    for (int device = 0; device < context->device_count; device++)
        if (options->block_bytes % context->devices[device].facts.granularity_bytes != 0)
            return rvli_error(RVL_ERR_INVALID,
                              "block_bytes is not a multiple of the device's granularity");
    return rvli_coalesce_check(context, options->coalesce_bytes);
}

static void set_tag_options(rvl_context *context, rvli_tag *tag, const rvl_tag_options *options)
{
    rvli_lock(context);
    tag->block_bytes = options->block_bytes;
    atomic_store_explicit(&tag->coalesce_bytes, options->coalesce_bytes, memory_order_relaxed);
    tag->retain_backups = (options->flags & RVL_TAG_RETAIN_BACKUPS) != 0;
    tag->poison = (options->flags & RVL_TAG_POISON) != 0;
    tag->callbacks = (rvli_tag_callbacks){
        .before_unmap = options->before_unmap,
        .after_map = options->after_map,
        .user = options->callback_user,
    };
    rvli_unlock(context);
}

rvl_status rvl_tag_define(rvl_context *context, const char *name,
                          const rvl_tag_options *user_options, rvl_tag *tag_out)
{
    rvl_tag_options options;
    rvli_tag *tag;
    rvl_status status = rvli_context_check_change(context);
    if (status == RVL_OK && (name == NULL || tag_out == NULL))
        status = rvli_error(RVL_ERR_INVALID, "the name or tag_out is NULL");
    if (status == RVL_OK)
        status = rvli_options_read(&options, sizeof options, user_options);
    if (status == RVL_OK)
        status = check_tag_options(context, &options);
    if (status == RVL_OK)
        status = rvli_tag_add(context, options.process, name, &tag);
    if (status != RVL_OK)
        return status;
    if (user_options != NULL)
        set_tag_options(context, tag, &options);
    *tag_out = tag->number;
    return RVL_OK;
}

rvl_status rvl_tag_set_retain_backups(rvl_context *context, rvl_tag number, bool retain)
{
    rvl_status status = rvli_context_check_change(context);
    if (status != RVL_OK)
        return status;
    rvli_tag *tag = rvli_tag_get(context, number);
    if (tag == NULL)
        return rvli_error(RVL_ERR_INVALID, "no tag of this number: rvl_tag_define() first");
    rvli_lock(context);
    tag->retain_backups = retain;
    rvli_unlock(context);
    return RVL_OK;
}

rvl_status rvl_tag_find(rvl_context *context, rvl_process process, const char *name,
                        rvl_tag *tag_out)
{
    rvl_status status = rvli_context_check(context);
    if (status == RVL_OK && (name == NULL || tag_out == NULL))
        status = rvli_error(RVL_ERR_INVALID, "the name or tag_out is NULL");
    if (status != RVL_OK)
        return status;
    const rvli_tag *tag = rvli_tag_lookup(context, process, name);
    if (tag == NULL)
        return rvli_error(RVL_ERR_NOT_FOUND, "the process has no tag of this name");
    *tag_out = tag->number;
    return RVL_OK;
}

const char *rvl_tag_name(rvl_context *context, rvl_tag number)
{
    const rvli_tag *tag = context != NULL ? rvli_tag_get(context, number) : NULL;
    return tag != NULL ? tag->key->name : "";
}
