/* SPDX-License-Identifier: MIT */
/*
 * Pauses and resumes by tag on every device. The file of a disk backup has a name while the
 * allocation is paused. A retained backup stays readable.
 */
#include "hooks/region/saver_internal.h"

#include "base/error.h"
#include "hooks/record/recorder.h"
#include "hooks/region/guard.h"
#include "reveille/listen.h"

typedef rvl_status (*move_fn)(rvli_saved_context *in, const rvli_saved_tag *tag);

/* ---- One context ---- */

static void name_files(rvli_saved_context *in, const rvli_saved_tag *tag)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    uint64_t at = 0, offset, size_bytes;
    rvli_saved *each;
    int file;
    rvli_saver_lock();
    while ((each = rvli_saver_next(in, tag, &at)) != NULL)
        if (each->name == NULL &&
            rvl_backup_find_file(in->context, each->addr, &file, &offset, &size_bytes) == RVL_OK &&
            rvl_allocation_find(in->context, each->addr, &facts) == RVL_OK)
            each->name = rvli_disk_name_add(in->directory, file, in->device, facts.id);
    rvli_saver_unlock();
}

static rvl_status pause_one(rvli_saved_context *in, const rvli_saved_tag *tag)
{
    const rvl_tag *number = tag != NULL ? &tag->number : NULL;
    rvl_status status = rvl_pause(in->context, number, tag != NULL, NULL);
    if (status == RVL_OK && in->directory != NULL)
        name_files(in, tag);
    return status;
}

/* Keeps the tag's other options, which the program may have set. */
static rvl_status set_retain(const rvli_saved_context *in, rvli_saved_tag *tag, bool retain)
{
    rvl_status status = tag->retain != retain
                            ? rvl_tag_set_retain_backups(in->context, tag->number, retain)
                            : RVL_OK;
    if (status == RVL_OK)
        tag->retain = retain;
    return status;
}

/*
 * Stores the addresses of backups that will be retained: after the resume, the context no longer
 * returns them.
 */
static rvl_status prepare_resume(rvli_saved_context *in, const rvli_saved_tag *tag, bool retain)
{
    uint64_t at = 0, size_bytes;
    const void *host;
    rvli_saved *each;
    rvl_status status = RVL_OK;
    rvli_saver_lock();
    for (rvli_saved_tag *other = in->tags; other != NULL && status == RVL_OK; other = other->next)
        if (tag == NULL || tag == other)
            status = set_retain(in, other, retain);
    while (status == RVL_OK && retain && (each = rvli_saver_next(in, tag, &at)) != NULL)
        if (rvl_backup_find(in->context, each->addr, &host, &size_bytes) == RVL_OK)
            each->host = host;
    rvli_saver_unlock();
    return status;
}

static void after_resume(rvli_saved_context *in, const rvli_saved_tag *tag)
{
    uint64_t at = 0, keep_bytes = 0;
    bool reclaim = !rvli_settings()->keep_host;
    rvli_saved *each;
    rvli_saver_lock();
    while ((each = rvli_saver_next(in, tag, &at)) != NULL) {
        reclaim = reclaim || (each->backup == RVL_BACKUP_HOST && each->reclaimed);
        rvli_disk_name_remove(each->name);
        each->name = NULL;
    }
    if (reclaim)
        keep_bytes = rvli_saver_kept_bytes();
    rvli_saver_unlock();
    if (reclaim)
        rvli_saver_trim(keep_bytes);
}

static rvl_status resume_one(rvli_saved_context *in, const rvli_saved_tag *tag)
{
    bool retain = rvli_saver_get_retain();
    rvl_status status = prepare_resume(in, tag, retain);
    if (status == RVL_OK)
        status = rvl_resume(in->context, tag != NULL ? &tag->number : NULL, tag != NULL, NULL);
    if (status == RVL_OK && !retain) /* otherwise its file and host memory are kept */
        after_resume(in, tag);
    return status;
}

/* ---- All of them ---- */

/* Moves the tag in each of its contexts, until one fails. */
static rvl_status move_all(const char *name, move_fn move)
{
    bool found = name == NULL;
    const rvli_saved_tag *tag;
    for (rvli_saved_context *in = rvli_saver_newest_context(); in != NULL; in = in->next) {
        if (!rvli_saver_has_tag(in, name, &tag))
            continue;
        found = true;
        rvl_status status = move(in, tag);
        if (status != RVL_OK)
            return status;
    }
    if (found)
        return RVL_OK;
    rvli_error(RVL_ERR_NOT_FOUND, "no allocation of a region ever had this tag: see how it is "
                                  "spelled where the region is entered");
    rvli_error_tag(name);
    return RVL_ERR_NOT_FOUND;
}

/* A failed move may have succeeded in some contexts: records the actual states. */
static rvl_status move_recorded(const char *name, move_fn move)
{
    rvli_guard_begin_move();
    rvl_status status = move_all(name, move);
    rvli_guard_end_move();
    if (status == RVL_OK)
        return status;
    rvl_error cause = *rvli_error_get();
    rvli_recorder_settle(name, rvl_address_is_paused);
    rvli_error_set(&cause);
    return status;
}

rvl_status rvli_saver_pause(const char *tag)
{
    rvl_status status = rvli_guard_refuse_capture(RVL_TRANSITION_PAUSE);
    if (status != RVL_OK)
        return status;
    rvli_saver_free_deferred();
    rvli_recorder_pause(tag); /* before another process can get the memory */
    return move_recorded(tag, pause_one);
}

rvl_status rvli_saver_resume(const char *tag)
{
    rvl_status status = rvli_guard_refuse_capture(RVL_TRANSITION_RESUME);
    if (status == RVL_OK)
        status = rvli_saver_check_fit(tag);
    if (status == RVL_OK)
        status = move_recorded(tag, resume_one);
    if (status == RVL_OK)
        rvli_recorder_resume(tag);
    return status;
}
