/* SPDX-License-Identifier: MIT */
/*
 * The contexts, one for each device and, with disk backups, each directory; and their tags. A
 * context is opened when it is first needed and never closed, so it may be used without a lock.
 */
#include "hooks/region/saver_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hooks/region/guard.h"
#include "reveille/control.h"

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(rvli_saved_context *) contexts; /* added at the front, never removed */

/* ---- Fork ---- */

static void lock_all(void)
{
    pthread_mutex_lock(&open_lock);
    rvli_saver_lock();
}

static void unlock_all(void)
{
    rvli_saver_unlock();
    pthread_mutex_unlock(&open_lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_all, unlock_all, unlock_all);
}

/* ---- Contexts ---- */

static rvli_saved_context *find_context(int device, const char *directory)
{
    for (rvli_saved_context *each = atomic_load(&contexts); each != NULL; each = each->next)
        if (each->device == device &&
            (directory == NULL
                 ? each->directory == NULL
                 : each->directory != NULL && strcmp(each->directory, directory) == 0))
            return each;
    return NULL;
}

/* The directory for its disk backups, or for the overflow of a store; NULL: none. */
static const char *directory_of(const rvli_saved_context *in)
{
    const rvli_process_settings *settings = rvli_settings();
    bool overflows = settings->store_path != NULL && settings->store_overflow;
    return in->directory == NULL && overflows ? settings->disk_directory : in->directory;
}

static rvl_status open_context(rvli_saved_context *in)
{
    const rvli_process_settings *settings = rvli_settings();
    bool overflows = settings->store_path != NULL && settings->store_overflow;
    const rvl_cuda_options cuda = {
        .struct_size = sizeof cuda,
        .devices = &in->device,
        .device_count = 1,
        .host_keep = RVL_HOST_KEEP_ALL, /* rvli_saver_trim() returns the rest to the system */
        .flags = (settings->host_ahead ? RVL_CUDA_HOST_AHEAD : 0u) |
                 (settings->host_pageable ? RVL_CUDA_HOST_PAGEABLE : 0u),
    };
    const rvl_context_options options = {
        .struct_size = sizeof options,
        .backend_options = &cuda,
        .disk_directory = directory_of(in),
        .store_path = settings->store_path,
        .flags = RVL_CONTEXT_DISK_TMPFS /* as in torch_memory_saver */ |
                 (overflows ? RVL_CONTEXT_STORE_OVERFLOW : 0u),
    };
    rvl_status status = rvl_context_open("cuda", &options, &in->context);
    if (status != RVL_OK)
        return status;
    rvl_device_info info = {.struct_size = sizeof info};
    status = rvl_device_get_info(in->context, 0, &info);
    in->granularity_bytes = info.granularity_bytes;
    if (status == RVL_OK)
        status = rvl_context_set_guard(in->context, &rvli_hooks_guard);
    if (status == RVL_OK && settings->control)
        status = rvl_control_open(NULL);
    return status;
}

/* With open_lock held. */
static rvl_status add_context(int device, const char *directory, rvli_saved_context **in_out)
{
    rvli_saved_context *in = calloc(1, sizeof *in);
    if (in == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a context");
    in->device = device;
    in->directory = directory;
    if (directory_of(in) != NULL)
        rvli_saver_make_directories(directory_of(in));
    rvl_status status = open_context(in);
    if (status != RVL_OK) {
        free(in);
        return status;
    }
    in->next = atomic_load(&contexts);
    atomic_store(&contexts, in);
    *in_out = in;
    return RVL_OK;
}

rvl_status rvli_saver_context_of(int device, const char *directory, rvli_saved_context **in_out)
{
    rvl_status status = RVL_OK;
    *in_out = find_context(device, directory);
    if (*in_out != NULL)
        return RVL_OK;
    pthread_mutex_lock(&open_lock);
    *in_out = find_context(device, directory);
    if (*in_out == NULL)
        status = add_context(device, directory, in_out);
    pthread_mutex_unlock(&open_lock);
    return status;
}

rvli_saved_context *rvli_saver_newest_context(void)
{
    return atomic_load(&contexts);
}

bool rvli_saver_owns(const rvl_context *context)
{
    const rvli_saved_context *each = atomic_load(&contexts);
    while (each != NULL && each->context != context)
        each = each->next;
    return each != NULL;
}

rvl_status rvli_saver_context(int device, rvl_context **context_out)
{
    rvli_saved_context *in = NULL;
    rvl_status status = rvli_saver_context_of(device, NULL, &in);
    if (status == RVL_OK)
        *context_out = in->context;
    return status;
}

rvl_status rvli_saver_context_at(size_t index, int *device_out, rvl_context **context_out)
{
    size_t newer = 0;
    rvli_saved_context *first = atomic_load(&contexts);
    for (const rvli_saved_context *each = first; each != NULL; each = each->next)
        newer++;
    if (index >= newer)
        return rvli_error(RVL_ERR_NOT_FOUND, "there is no context of this index: count from 0 "
                                             "until you get this error");
    for (newer -= index + 1; newer > 0; newer--)
        first = first->next;
    *device_out = first->device;
    *context_out = first->context;
    return RVL_OK;
}

/* ---- Tags ---- */

rvli_saved_tag *rvli_saver_find_tag(const rvli_saved_context *in, const char *name)
{
    rvli_saved_tag *tag = in->tags;
    while (tag != NULL && strcmp(tag->name, name) != 0)
        tag = tag->next;
    return tag;
}

/* Keeps the options of an existing tag, which others may have set. */
static rvl_status define_tag(const rvli_saved_context *in, const char *name, rvl_tag *number_out)
{
    const rvl_tag_options options = {.struct_size = sizeof options, .flags = RVL_TAG_POISON};
    rvli_error_before before;
    rvli_error_keep(&before);
    bool is_new = rvli_settings()->poison &&
                  rvl_tag_find(in->context, 0, name, number_out) == RVL_ERR_NOT_FOUND;
    rvli_error_put_back(&before);
    return rvl_tag_define(in->context, name, is_new ? &options : NULL, number_out);
}

rvl_status rvli_saver_tag_of(rvli_saved_context *in, const char *name, rvli_saved_tag **tag_out)
{
    rvl_status status = RVL_OK;
    rvli_saver_lock();
    rvli_saved_tag *tag = rvli_saver_find_tag(in, name);
    if (tag == NULL) {
        tag = calloc(1, sizeof *tag);
        status = tag != NULL ? define_tag(in, name, &tag->number)
                             : rvli_error(RVL_ERR_HOST_OOM, "no host memory for a tag");
        if (status == RVL_OK) {
            tag->name = name;
            tag->next = in->tags;
            in->tags = tag;
        } else {
            free(tag);
        }
    }
    rvli_saver_unlock();
    *tag_out = tag;
    return status;
}

bool rvli_saver_has_tag(rvli_saved_context *in, const char *name, const rvli_saved_tag **tag_out)
{
    *tag_out = NULL;
    if (name == NULL)
        return true;
    rvli_saver_lock();
    *tag_out = rvli_saver_find_tag(in, name);
    rvli_saver_unlock();
    return *tag_out != NULL;
}
