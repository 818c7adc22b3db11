/* SPDX-License-Identifier: MIT */
#include "core/backup/disk_space.h"

#include <fcntl.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/workers.h"

struct rvli_disk_remover {
    rvli_job job;
    rvli_workers *workers; /* one thread, started when first needed; NULL: none */
    pthread_mutex_t lock;  /* guards the fields below, and the users of files */
    pthread_cond_t idle;
    bool working; /* the job is queued or runs */
    rvli_disk_share *gathered;
};

/* ---- Freeing ---- */

/* Detaches shares from their files. No hole is punched in a file that is about to be closed. */
static void unuse(rvli_disk_remover *remover, rvli_disk_share *shares)
{
    pthread_mutex_lock(&remover->lock);
    for (rvli_disk_share *share = shares; share != NULL; share = share->next)
        share->last = --share->in->users == 0;
    for (rvli_disk_share *share = shares; share != NULL; share = share->next)
        if (share->in->users == 0)
            share->size = 0;
    pthread_mutex_unlock(&remover->lock);
}

/* If the file system cannot punch holes, the space is freed with the file. */
static void give_back(rvli_disk_share *share)
{
    if (share->size > 0)
        (void)fallocate(share->in->file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        (off_t)share->offset, (off_t)share->size);
    if (share->last) {
        rvli_disk_file_close(&share->in->file);
        free(share->in);
    }
    free(share);
}

/* Returns false if nothing was gathered. */
static bool give_back_gathered(rvli_disk_remover *remover)
{
    pthread_mutex_lock(&remover->lock);
    rvli_disk_share *shares = remover->gathered;
    remover->gathered = NULL;
    pthread_mutex_unlock(&remover->lock);
    if (shares == NULL)
        return false;
    unuse(remover, shares);
    while (shares != NULL) {
        rvli_disk_share *next = shares->next;
        give_back(shares);
        shares = next;
    }
    return true;
}

static void run(rvli_job *job)
{
    rvli_disk_remover *remover = (rvli_disk_remover *)job; /* the job is the first member */
    while (give_back_gathered(remover)) {
    }
    pthread_mutex_lock(&remover->lock);
    remover->working = false;
    pthread_cond_broadcast(&remover->idle);
    pthread_mutex_unlock(&remover->lock);
}

/* A thread frees the space, or the caller if no thread can be started. */
void rvli_disk_space_clear(rvl_context *context)
{
    rvli_disk_remover *remover = context->disk_remover;
    if (remover == NULL)
        return;
    rvl_error cause = *rvli_error_get();
    pthread_mutex_lock(&remover->lock);
    bool begin = remover->gathered != NULL && !remover->working;
    if (begin && remover->workers == NULL)
        (void)rvli_workers_start(1, NULL, NULL, &remover->workers);
    remover->working = remover->working || begin;
    bool by_thread = remover->workers != NULL;
    pthread_mutex_unlock(&remover->lock);
    rvli_error_set(&cause);
    if (begin && by_thread)
        rvli_workers_queue(remover->workers, &remover->job);
    else if (begin)
        run(&remover->job);
}

/* Waits until all dropped space is freed. */
static void settle(rvl_context *context)
{
    rvli_disk_remover *remover = context->disk_remover;
    rvli_disk_space_clear(context);
    pthread_mutex_lock(&remover->lock);
    while (remover->working)
        pthread_cond_wait(&remover->idle, &remover->lock);
    pthread_mutex_unlock(&remover->lock);
}

rvl_status rvli_disk_remover_new(rvli_disk_remover **remover_out)
{
    rvli_disk_remover *remover = calloc(1, sizeof *remover);
    if (remover == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for disk backups");
    remover->job.run = run;
    pthread_mutex_init(&remover->lock, NULL);
    pthread_cond_init(&remover->idle, NULL);
    *remover_out = remover;
    return RVL_OK;
}

void rvli_disk_remover_delete(rvli_disk_remover *remover)
{
    if (remover == NULL)
        return;
    if (remover->workers != NULL)
        rvli_workers_stop(remover->workers); /* after the queued jobs */
    give_back_gathered(remover);
    pthread_cond_destroy(&remover->idle);
    pthread_mutex_destroy(&remover->lock);
    free(remover);
}

/* ---- Files and shares ---- */

/* If the disk is full, tries again after dropped space is freed. */
static rvl_status open_file(rvl_context *context, uint64_t size, rvli_disk_file *file_out)
{
    rvl_status status = rvli_disk_file_open(context->disk_directory, size, file_out);
    if (status != RVL_ERR_DISK_FULL)
        return status;
    settle(context);
    return rvli_disk_file_open(context->disk_directory, size, file_out);
}

rvl_status rvli_disk_share_new(rvl_context *context, rvli_disk_space *in, uint64_t size,
                               rvli_disk_share **share_out)
{
    rvli_disk_share *share = calloc(1, sizeof *share);
    if (share == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a backup");
    share->in = in;
    share->size = size;
    if (in != NULL) {
        rvli_disk_remover *remover = context->disk_remover;
        pthread_mutex_lock(&remover->lock);
        share->offset = in->used_bytes;
        in->used_bytes += size;
        in->users++;
        pthread_mutex_unlock(&remover->lock);
    }
    *share_out = share;
    return RVL_OK;
}

rvl_status rvli_disk_space_open(rvl_context *context, uint64_t size, rvli_disk_share **keeper_out)
{
    rvli_disk_space *in = calloc(1, sizeof *in);
    if (in == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a backup");
    rvl_status status = open_file(context, size, &in->file);
    if (status != RVL_OK) {
        free(in);
        return status;
    }
    status = rvli_disk_share_new(context, in, 0, keeper_out);
    if (status != RVL_OK) {
        rvli_disk_file_close(&in->file);
        free(in);
    }
    return status;
}

void rvli_disk_share_drop(rvl_context *context, rvli_disk_share *share)
{
    rvli_disk_remover *remover = context->disk_remover;
    if (share->in == NULL) {
        free(share);
        return;
    }
    pthread_mutex_lock(&remover->lock);
    share->next = remover->gathered;
    remover->gathered = share;
    pthread_mutex_unlock(&remover->lock);
}
