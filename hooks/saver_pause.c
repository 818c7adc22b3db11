/* SPDX-License-Identifier: MIT */
/*
 * Pausing and resuming by tag, on every device. What is shared with other processes is taken from
 * them first; a disk backup has a name while it is paused; a retained backup stays readable.
 */
#include "hooks/saver_internal.h"

#include "base/error.h"
#include "base/text.h"
#include "core/model.h"
#include "hooks/captures.h"
#include "hooks/ipc_export.h"
#include "hooks/recorder.h"

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
    bool shared = false;
    rvl_status status = rvli_ipc_suspend(in->context, number, &shared);
    if (status == RVL_OK)
        status = rvl_pause(in->context, number, tag != NULL, NULL);
    if (shared)
        rvli_ipc_settle(in->context, status == RVL_OK);
    if (status == RVL_OK && in->directory != NULL)
        name_files(in, tag);
    return status;
}

/* Its other options may be the program's, and rvl_tag_define() would set them all. */
static void set_retain(rvli_saved_context *in, rvli_saved_tag *tag, bool retain)
{
    if (tag->retain == retain)
        return;
    rvli_lock(in->context);
    rvli_tag_get(in->context, tag->number)->retain_backups = retain;
    rvli_unlock(in->context);
    tag->retain = retain;
}

/* Where each backup lies that will be retained; the context says it no more once it is resumed. */
static void prepare_resume(rvli_saved_context *in, const rvli_saved_tag *tag, bool retain)
{
    uint64_t at = 0, size_bytes;
    const void *host;
    rvli_saved *each;
    rvli_saver_lock();
    for (rvli_saved_tag *other = in->tags; other != NULL; other = other->next)
        if (tag == NULL || tag == other)
            set_retain(in, other, retain);
    while (retain && (each = rvli_saver_next(in, tag, &at)) != NULL)
        if (rvl_backup_find(in->context, each->addr, &host, &size_bytes) == RVL_OK)
            each->host = host;
    rvli_saver_unlock();
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
    rvl_status status = rvli_context_check_change(in->context);
    if (status == RVL_OK) {
        prepare_resume(in, tag, retain);
        status = rvl_resume(in->context, tag != NULL ? &tag->number : NULL, tag != NULL, NULL);
    }
    if (status == RVL_OK && !retain) /* else its file and host memory stay */
        after_resume(in, tag);
    return status;
}

/* ---- All of them ---- */

static rvl_status refuse_capture(const char *what)
{
    if (!rvli_capture_running())
        return RVL_OK;
    char message[sizeof(((rvl_error *)NULL)->message)];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "a stream is being captured: end the capture before ");
    rvli_text_add(&text, what);
    return rvli_error(RVL_ERR_BUSY, message);
}

static rvl_status move_tag(const char *name, move_fn move)
{
    bool found = false;
    for (rvli_saved_context *in = rvli_saver_newest_context(); in != NULL; in = in->next) {
        rvli_saver_lock();
        const rvli_saved_tag *tag = rvli_saver_find_tag(in, name);
        rvli_saver_unlock();
        if (tag == NULL)
            continue;
        found = true;
        rvl_status status = rvli_saver_tell_device(in, move(in, tag));
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

static rvl_status move_all(move_fn move)
{
    rvl_status status = RVL_OK;
    for (rvli_saved_context *in = rvli_saver_newest_context(); in != NULL && status == RVL_OK;
         in = in->next)
        status = rvli_saver_tell_device(in, move(in, NULL));
    return status;
}

rvl_status rvli_saver_pause(const char *tag)
{
    rvl_status status = refuse_capture("pausing");
    if (status != RVL_OK)
        return status;
    rvli_saver_free_deferred();
    uint64_t pause = rvli_recorder_pause(tag); /* before anybody else can have the memory */
    status = tag != NULL ? move_tag(tag, pause_one) : move_all(pause_one);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        rvli_recorder_pause_failed(pause);
        rvli_error_set(&cause);
    }
    return status;
}

rvl_status rvli_saver_resume(const char *tag)
{
    rvl_status status = refuse_capture("resuming");
    if (status != RVL_OK)
        return status;
    status = tag != NULL ? move_tag(tag, resume_one) : move_all(resume_one);
    if (status == RVL_OK)
        rvli_recorder_resume(tag);
    return status;
}
