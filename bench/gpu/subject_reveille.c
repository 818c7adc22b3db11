/* SPDX-License-Identifier: MIT */
/* Reveille, through its public API. */
#include <stdio.h>
#include <stdlib.h>

#include "reveille/cuda.h"
#include "reveille/reveille.h"
#include "subject.h"

static void check(rvl_status status, const char *what)
{
    if (status == RVL_OK)
        return;
    rvl_error error = {.struct_size = sizeof error};
    rvl_last_error(&error);
    fprintf(stderr, "bench_gpu: reveille %s: %s: %s\n", what, rvl_status_name(status),
            error.message);
    exit(1);
}

rvl_context *reveille_open(const work *w)
{
    const int first = 0;
    rvl_context *context = NULL;
    rvl_cuda_options cuda = {.struct_size = sizeof cuda,
                             .devices = &first,
                             .device_count = 1,
                             .host_keep = w->backup == BACKUP_GIVEN_BACK ? RVL_HOST_KEEP_NONE
                                                                         : RVL_HOST_KEEP_ALL};
    rvl_context_options options = {.struct_size = sizeof options,
                                   .backend_options = &cuda,
                                   .keep_bytes = w->kind == WORK_HAND_OVER ? 1024 * GIB : 0,
                                   .flags = w->no_verify ? RVL_CONTEXT_NO_VERIFY : 0,
                                   .disk_directory = w->disk_directory};
    check(rvl_context_open("cuda", &options, &context), "open");
    return context;
}

void reveille_close(rvl_context *context)
{
    check(rvl_context_close(context, NULL), "close");
}

static rvl_tag tag_of(rvl_context *context, const char *name)
{
    rvl_tag tag = 0;
    check(rvl_tag_define(context, name, NULL, &tag), "define");
    return tag;
}

static rvl_backup policy_of(backup_kind backup)
{
    if (backup == BACKUP_NONE)
        return RVL_BACKUP_NONE;
    return backup == BACKUP_ON_DISK ? RVL_BACKUP_DISK : RVL_BACKUP_HOST;
}

void reveille_allocate(rvl_context *context, const work *w, const char *tag, uint64_t *addrs_out)
{
    rvl_tag_options tag_options = {.struct_size = sizeof tag_options,
                                   .coalesce_bytes = w->coalesce_bytes,
                                   .flags = w->retain_backups ? RVL_TAG_RETAIN_BACKUPS : 0};
    rvl_alloc_options options = {.struct_size = sizeof options, .backup = policy_of(w->backup)};
    check(rvl_tag_define(context, tag, &tag_options, &options.tag_id), "define");
    for (size_t i = 0; i < w->count; i++)
        check(rvl_alloc(context, w->size, &options, &addrs_out[i]), "alloc");
}

void reveille_free(rvl_context *context, const work *w, const uint64_t *addrs)
{
    for (size_t i = 0; i < w->count; i++)
        check(rvl_free(context, addrs[i]), "free");
}

void reveille_pause(rvl_context *context, const char *name)
{
    rvl_tag tag = tag_of(context, name);
    check(rvl_pause(context, &tag, 1, NULL), "pause");
}

void reveille_resume(rvl_context *context, const char *name)
{
    rvl_tag tag = tag_of(context, name);
    check(rvl_resume(context, &tag, 1, NULL), "resume");
}

/* ---- As one subject among others ---- */

static rvl_context *the_context;

static void open_reveille(const work *w, const char *library)
{
    (void)library;
    the_context = reveille_open(w);
}

static void allocate(const work *w, const char *tag, uint64_t *addrs_out)
{
    reveille_allocate(the_context, w, tag, addrs_out);
}

static void pause_tag(const char *name)
{
    reveille_pause(the_context, name);
}

static void resume_tag(const char *name)
{
    reveille_resume(the_context, name);
}

const subject subject_reveille = {"reveille", open_reveille, allocate, pause_tag, resume_tag};
