/* SPDX-License-Identifier: MIT */
/*
 * Shared by the files of the saver: saver.c allocates, saver_free.c frees, saver_pause.c pauses and
 * resumes after the check in saver_fit.c, saver_contexts.c has the contexts and their tags,
 * saver_table.c the allocations by address, and saver_choices.c the settings of the process.
 */
#ifndef RVL_HOOKS_REGION_SAVER_INTERNAL_H
#define RVL_HOOKS_REGION_SAVER_INTERNAL_H

#include "hooks/process/disk_names.h"
#include "hooks/region/saver.h"

typedef struct rvli_saved_tag {
    struct rvli_saved_tag *next;
    const char *name; /* interned */
    rvl_tag number;
    bool retain; /* the setting in the context */
} rvli_saved_tag;

typedef struct rvli_saved_context {
    struct rvli_saved_context *next;
    rvl_context *context;
    int device;            /* the driver's number; the context has it as device 0 */
    const char *directory; /* interned; NULL: no disk backups */
    uint64_t granularity_bytes;
    _Atomic bool not_exportable; /* the driver has refused to make exportable memory */
    rvli_saved_tag *tags;        /* guarded by rvli_saver_lock() */
} rvli_saved_context;

/* An allocation of a region. */
typedef struct rvli_saved {
    rvl_addr addr;
    uint64_t size_bytes;
    rvli_saved_context *in;
    rvli_saved_tag *tag;
    rvl_backup backup;
    bool reclaimed;      /* return host memory to the system at resume */
    const uint8_t *host; /* the last retained backup */
    rvli_disk_name *name;
    struct rvli_saved *next_deferred; /* in the list of deferred frees */
} rvli_saved;

/* ---- saver_contexts.c ---- */

/* The context of a device and a directory (NULL: without disk backups), opened if needed. */
rvl_status rvli_saver_context_of(int device, const char *directory, rvli_saved_context **in_out);

/* The head of the list of contexts; NULL: none. */
rvli_saved_context *rvli_saver_newest_context(void);

/* Returns NULL if the context has no such tag. With the lock held. */
rvli_saved_tag *rvli_saver_find_tag(const rvli_saved_context *in, const char *name);

/*
 * Finds a tag by name in a context. Returns false if it was never used there. Without a name,
 * returns true with *tag_out NULL. Takes the lock.
 */
bool rvli_saver_has_tag(rvli_saved_context *in, const char *name, const rvli_saved_tag **tag_out);

/* The tag of an interned name, created if needed. */
rvl_status rvli_saver_tag_of(rvli_saved_context *in, const char *name, rvli_saved_tag **tag_out);

/* ---- saver_table.c: the lock guards the table and the tags ---- */

void rvli_saver_lock(void);
void rvli_saver_unlock(void);

/* These two take the lock. Remove returns NULL if no allocation begins there. */
rvl_status rvli_saver_insert(rvli_saved *new);
rvli_saved *rvli_saver_remove(rvl_addr addr);

/* The last allocation that begins at or before addr. With the lock held, as for those below. */
rvli_saved *rvli_saver_floor(rvl_addr addr, rvl_addr *begin_out);

/* Iterates over the allocations of a tag in a context, from *at = 0; tag NULL: all tags. */
rvli_saved *rvli_saver_next(const rvli_saved_context *in, const rvli_saved_tag *tag, uint64_t *at);

/* The bytes of the host backups of live allocations that keep their host memory. */
uint64_t rvli_saver_kept_bytes(void);

/* ---- saver_choices.c ---- */

uint64_t rvli_saver_margin(void);
const char *rvli_saver_directory(void);

/* Creates a directory and its parents. Failures show when it is used. */
void rvli_saver_make_directories(const char *path);

/* ---- saver_fit.c ---- */

/* RVL_ERR_DEVICE_OOM: the resume of a tag (NULL: of all) would not fit in all contexts together. */
rvl_status rvli_saver_check_fit(const char *name);

/* ---- saver.c ---- */

/* Returns idle host memory of backups to the system, except for keep_bytes for the next pause. */
void rvli_saver_trim(uint64_t keep_bytes);

#endif
