/* SPDX-License-Identifier: MIT */
#include "hooks/nccl/known.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "hooks/nccl/asleep.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static rvli_known *all; /* in the order of adding */
static size_t all_count;
static bool claimed;
static unsigned process_generation;

/* ---- Fork ---- */

static void lock_all(void)
{
    pthread_mutex_lock(&lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&lock);
}

/*
 * In a forked child: forgets the list, since communicators do not work there. Does not free it: a
 * thread that the child lacks may have been using it.
 */
static void forget_all(void)
{
    all = NULL;
    all_count = 0;
    claimed = false;
    process_generation++;
    pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_all, unlock_all, forget_all);
}

/* ---- The list ---- */

/* With the lock held. Returns all_count if it is not in the list. */
static size_t find(const void *comm)
{
    size_t i = 0;
    while (i < all_count && all[i].comm != comm)
        i++;
    return i;
}

/* With the lock held. */
static rvl_status append(void *comm, int device)
{
    rvli_known *grown = realloc(all, (all_count + 1) * sizeof *all);
    if (grown == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the list of communicators");
    all = grown;
    all[all_count++] = (rvli_known){.comm = comm, .device = device};
    return RVL_OK;
}

rvl_status rvl_communicator_add(void *comm)
{
    rvli_nccl nccl;
    int device = 0;
    if (comm == NULL)
        return rvli_error(RVL_ERR_INVALID, "the communicator is NULL");
    rvl_status status = rvli_nccl_find(&nccl);
    if (status == RVL_OK)
        status = rvli_nccl_check(&nccl, "ncclCommCuDevice", nccl.ncclCommCuDevice(comm, &device));
    if (status != RVL_OK)
        return status;
    rvli_nccl_watch_sleep();
    pthread_mutex_lock(&lock);
    if (find(comm) == all_count)
        status = append(comm, device);
    pthread_mutex_unlock(&lock);
    return status;
}

rvl_status rvl_communicator_remove(void *comm)
{
    rvl_status status = RVL_OK;
    rvli_nccl_call *call = NULL;
    pthread_mutex_lock(&lock);
    size_t at = find(comm);
    if (at == all_count) {
        status = rvli_error(RVL_ERR_NOT_FOUND, "the communicator was not added");
    } else if (claimed) {
        status = rvli_error(RVL_ERR_BUSY, "a move of the communicators is prepared: commit or "
                                          "abort that first");
    } else {
        call = all[at].call;
        memmove(all + at, all + at + 1, (all_count - at - 1) * sizeof *all);
        all_count--;
    }
    pthread_mutex_unlock(&lock);
    rvli_nccl_call_drop(call);
    return status;
}

bool rvli_known_any(void)
{
    pthread_mutex_lock(&lock);
    bool any = all_count > 0;
    pthread_mutex_unlock(&lock);
    return any;
}

rvl_status rvli_known_list(rvli_known **known_out, size_t *count_out)
{
    rvl_status status = RVL_OK;
    pthread_mutex_lock(&lock);
    rvli_known *known = calloc(all_count + 1, sizeof *known);
    if (known == NULL)
        status = rvli_error(RVL_ERR_HOST_OOM, "no host memory for the list of communicators");
    for (size_t i = 0; status == RVL_OK && i < all_count; i++) {
        known[i] = all[i];
        rvli_nccl_call_share(known[i].call);
    }
    if (status == RVL_OK) {
        *known_out = known;
        *count_out = all_count;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void rvli_known_free(rvli_known *known, size_t count)
{
    for (size_t i = 0; i < count; i++)
        rvli_nccl_call_drop(known[i].call);
    free(known);
}

void rvli_known_set_call(void *comm, rvli_nccl_call *call)
{
    rvli_nccl_call *gone = NULL;
    pthread_mutex_lock(&lock);
    size_t at = find(comm);
    if (at < all_count) {
        gone = all[at].call;
        all[at].call = rvli_nccl_call_share(call);
    }
    pthread_mutex_unlock(&lock);
    rvli_nccl_call_drop(gone);
}

void rvli_known_end_call(void *comm, const rvli_nccl_call *call)
{
    rvli_nccl_call *gone = NULL;
    pthread_mutex_lock(&lock);
    size_t at = find(comm);
    if (at < all_count && all[at].call == call) {
        gone = all[at].call;
        all[at].call = NULL;
    }
    pthread_mutex_unlock(&lock);
    rvli_nccl_call_drop(gone);
}

void rvli_known_count(void *comm, rvl_transition_kind kind)
{
    pthread_mutex_lock(&lock);
    size_t at = find(comm);
    if (at < all_count && kind == RVL_TRANSITION_PAUSE)
        all[at].pauses++;
    else if (at < all_count)
        all[at].resumes++;
    pthread_mutex_unlock(&lock);
}

/* ---- One move at a time ---- */

rvl_status rvli_known_claim(unsigned *generation_out)
{
    pthread_mutex_lock(&lock);
    bool is_free = !claimed;
    claimed = true;
    *generation_out = process_generation;
    pthread_mutex_unlock(&lock);
    if (is_free)
        return RVL_OK;
    rvli_error(RVL_ERR_BUSY, "the communicators are prepared for a move: commit or abort that "
                             "first");
    rvli_error_tag(RVL_COMMUNICATOR_TAG);
    return RVL_ERR_BUSY;
}

void rvli_known_release(void)
{
    pthread_mutex_lock(&lock);
    claimed = false;
    pthread_mutex_unlock(&lock);
}

rvl_status rvli_known_check_process(unsigned generation)
{
    pthread_mutex_lock(&lock);
    bool same = generation == process_generation;
    pthread_mutex_unlock(&lock);
    return same
               ? RVL_OK
               : rvli_error(RVL_ERR_FORKED, "the move belongs to the parent process: end it there");
}
