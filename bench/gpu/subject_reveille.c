/* SPDX-License-Identifier: MIT */
/* Reveille, through its public API. */
#include <stdio.h>
#include <stdlib.h>

#include "reveille/cuda.h"
#include "reveille/reveille.h"
#include "subject.h"

static rvl_context *context;

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

static void open_reveille(const work *w, const char *library)
{
    (void)library;
    const int first = 0;
    rvl_cuda_options cuda = {.struct_size = sizeof cuda,
                             .devices = &first,
                             .device_count = 1,
                             .host_keep = w->backup == BACKUP_GIVEN_BACK ? RVL_HOST_KEEP_NONE
                                                                         : RVL_HOST_KEEP_ALL};
    rvl_context_options options = {.struct_size = sizeof options,
                                   .backend_options = &cuda,
                                   .keep_bytes = w->hand_over ? 1024 * GIB : 0};
    check(rvl_context_open("cuda", &options, &context), "open");
}

static rvl_tag tag_of(const char *name)
{
    rvl_tag tag = 0;
    check(rvl_tag_define(context, name, NULL, &tag), "define");
    return tag;
}

static void allocate(const work *w, const char *tag, uint64_t *addrs_out)
{
    rvl_alloc_options options = {.struct_size = sizeof options,
                                 .tag_id = tag_of(tag),
                                 .backup =
                                     w->backup == BACKUP_NONE ? RVL_BACKUP_NONE : RVL_BACKUP_HOST};
    for (size_t i = 0; i < w->count; i++)
        check(rvl_alloc(context, w->size, &options, &addrs_out[i]), "alloc");
}

static void pause_tag(const char *name)
{
    rvl_tag tag = tag_of(name);
    check(rvl_pause(context, &tag, 1, NULL), "pause");
}

static void resume_tag(const char *name)
{
    rvl_tag tag = tag_of(name);
    check(rvl_resume(context, &tag, 1, NULL), "resume");
}

const subject subject_reveille = {"reveille", open_reveille, allocate, pause_tag, resume_tag, NULL};
