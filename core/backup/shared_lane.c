/* SPDX-License-Identifier: MIT */
#include "core/backup/shared_lane.h"

#include <unistd.h>

#include "base/error.h"

static rvli_store_client *store_of(const rvli_lane *l)
{
    return l->all->store;
}

/*
 * Uses the segment that the store found, if it is equal. *taken_out: it is mapped in place. Closes
 * the descriptor.
 */
static rvl_status take_found(const rvli_lane *l, int fd, rvli_store_place place, bool *taken_out)
{
    bool equal = false;
    rvl_status status = rvli_segment_compare(l->buffer, l->bytes, fd, &equal);
    if (status == RVL_OK && equal) {
        status = rvli_segment_map(store_of(l), l->item->backup, l->number, fd, place, true);
        *taken_out = status == RVL_OK;
    } else {
        rvli_store_drop(store_of(l), place);
    }
    close(fd);
    return status;
}

/*
 * Hands the draft over to the store. If another user was first, uses that user's segment if it is
 * equal.
 */
static rvl_status add_draft(rvli_lane *l, bool apart)
{
    rvli_store_place place = {0};
    int first = -1;
    bool taken = false;
    rvl_status status =
        rvli_store_add(store_of(l), l->digest, l->bytes, l->draft.fd, apart, &place, &first);
    if (status != RVL_OK)
        return status;
    l->claimed = false;
    if (first >= 0) {
        status = take_found(l, first, place, &taken);
        l->another_was_first = taken;
        return status != RVL_OK || taken ? status : add_draft(l, true);
    }
    status = rvli_segment_map(store_of(l), l->item->backup, l->number, l->draft.fd, place, false);
    rvli_draft_taken(&l->draft); /* its room now belongs to the segment */
    return status;
}

static rvl_status write_draft(rvli_lane *l)
{
    rvl_status status = rvli_draft_write(&l->draft, l->buffer);
    l->full = status == RVL_ERR_HOST_OOM;
    return status;
}

/* Nothing was copied: checks the digest of the segment that was found. */
static rvl_status settle_found(rvli_lane *l)
{
    bool right = l->checked;
    rvl_status status = RVL_OK;
    if (!right)
        status = rvli_segment_has_digest(&l->all->secret, l->digest, l->bytes, l->found_fd, &right);
    if (status == RVL_OK && right && !l->checked)
        rvli_store_checked(store_of(l), l->place);
    if (status == RVL_OK && right)
        status =
            rvli_segment_map(store_of(l), l->item->backup, l->number, l->found_fd, l->place, true);
    else
        rvli_store_drop(store_of(l), l->place);
    close(l->found_fd);
    l->found_fd = -1;
    l->wrong = status == RVL_OK && !right;
    return status;
}

/* If the store has other content with this digest, the segment is added next to it. */
static rvl_status settle_copy(rvli_lane *l)
{
    bool taken = false, apart = l->apart || l->found_fd >= 0;
    rvl_status status = RVL_OK;
    if (l->found_fd >= 0) {
        status = take_found(l, l->found_fd, l->place, &taken);
        l->found_fd = -1;
        if (status != RVL_OK || taken)
            return status;
        status = rvli_draft_reserve(store_of(l), &l->draft, l->bytes);
        l->full = status == RVL_ERR_HOST_OOM;
    }
    if (status == RVL_OK)
        status = write_draft(l);
    if (status == RVL_OK)
        status = add_draft(l, apart);
    return status;
}

void rvli_lane_give_up_claim(rvli_lane *l)
{
    rvli_error_before before;
    if (!l->claimed)
        return;
    rvli_error_keep(&before);
    rvli_store_unclaim(store_of(l), l->digest, l->bytes, l->place.connection);
    rvli_error_put_back(&before);
    l->claimed = false;
}

static void run_lane(rvli_job *job)
{
    rvli_lane *l = (rvli_lane *)(void *)job;
    l->status = l->copied ? settle_copy(l) : settle_found(l);
    if (l->status != RVL_OK)
        l->error = *rvli_error_get();
    rvli_draft_discard(store_of(l), &l->draft);
    rvli_lane_give_up_claim(l);
    pthread_mutex_lock(&l->all->lock);
    l->at_work = false;
    pthread_cond_signal(&l->all->done);
    pthread_mutex_unlock(&l->all->lock);
}

rvli_lane rvli_lane_of(rvli_lanes *all)
{
    return (rvli_lane){
        .job.run = run_lane, .all = all, .found_fd = -1, .draft.fd = -1, .status = RVL_OK};
}

void rvli_lane_begin(rvli_lane *l)
{
    l->at_work = true; /* no other thread uses it yet */
    if (l->all->workers != NULL)
        rvli_workers_queue(l->all->workers, &l->job);
    else
        run_lane(&l->job);
}

void rvli_lane_await(rvli_lane *l)
{
    pthread_mutex_lock(&l->all->lock);
    while (l->at_work)
        pthread_cond_wait(&l->all->done, &l->all->lock);
    pthread_mutex_unlock(&l->all->lock);
}
