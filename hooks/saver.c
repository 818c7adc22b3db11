/* SPDX-License-Identifier: MIT */
#include "hooks/saver.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/cuda/pinned.h"
#include "base/addrmap.h"
#include "base/error.h"
#include "base/text.h"
#include "core/model.h"
#include "hooks/captures.h"
#include "hooks/disk_names.h"
#include "hooks/recorder.h"
#include "hooks/ipc_export.h"
#include "hooks/runtime.h"

typedef struct saver_tag {
    struct saver_tag *next;
    const char *name; /* interned */
    rvl_tag number;
    bool retain; /* as the context has it */
} saver_tag;

typedef struct saver_context {
    struct saver_context *next;
    rvl_context *context;
    int device;            /* the driver's number of it; 0 in the context */
    const char *directory; /* interned; NULL: no disk backups */
    uint64_t granularity_bytes;
    _Atomic bool not_exportable; /* the driver has refused to make memory that is */
    saver_tag *tags;             /* guarded by table_lock */
} saver_context;

typedef struct record {
    rvl_addr addr;
    uint64_t size_bytes;
    saver_context *in;
    saver_tag *tag;
    rvl_backup backup;
    bool reclaimed;      /* host memory goes back to the system at resume */
    const uint8_t *host; /* the backup that was last retained */
    rvli_disk_name *name;
} record;

_Atomic uint64_t rvli_saver_live;
_Atomic bool rvli_saver_exportable;

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static rvli_addrmap table; /* of records; guarded by table_lock */
static bool table_ready;
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(saver_context *) contexts; /* added at the front, never removed */

/* Between the lowest and the highest address that was ever ours; an address elsewhere never was. */
static _Atomic uint64_t lowest = UINT64_MAX;
static _Atomic uint64_t highest;

static _Atomic uint64_t margin_bytes;
static _Atomic int retain_choice = -1; /* -1: as the environment has it */
static _Atomic(const char *) directory_choice;

/* ---- Fork ---- */

static void lock_all(void)
{
    pthread_mutex_lock(&open_lock);
    pthread_mutex_lock(&table_lock);
}

static void unlock_all(void)
{
    pthread_mutex_unlock(&table_lock);
    pthread_mutex_unlock(&open_lock);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(lock_all, unlock_all, unlock_all);
}

/* Memory may be asked for before any constructor of ours has run. */
static void lock_table(void)
{
    pthread_mutex_lock(&table_lock);
    if (!table_ready)
        rvli_addrmap_init(&table);
    table_ready = true;
}

/* ---- Choices ---- */

void rvli_saver_set_margin(uint64_t bytes)
{
    atomic_store(&margin_bytes, bytes);
}

void rvli_saver_set_retain(bool on)
{
    atomic_store(&retain_choice, on);
}

bool rvli_saver_get_retain(void)
{
    int choice = atomic_load(&retain_choice);
    return choice >= 0 ? choice != 0 : rvli_settings()->retain;
}

static const char *directory_now(void)
{
    const char *choice = atomic_load(&directory_choice);
    return choice != NULL ? choice : rvli_settings()->disk_directory;
}

/* Whether it worked shows when the directory is used. */
static void make_directories(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length >= sizeof part)
        return;
    for (size_t i = 1; i <= length; i++)
        if (path[i] == '/' || path[i] == '\0') {
            memcpy(part, path, i);
            part[i] = '\0';
            (void)mkdir(part, 0777);
        }
}

rvl_status rvli_saver_set_directory(const char *path)
{
    if (path == NULL || path[0] == '\0')
        return rvli_error(RVL_ERR_INVALID, "the directory of disk backups has no name: give one");
    const char *kept = rvli_intern(path);
    if (kept == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for the path of a directory");
    make_directories(kept);
    atomic_store(&directory_choice, kept);
    return RVL_OK;
}

/* ---- Contexts ---- */

static saver_context *find_context(int device, const char *directory)
{
    for (saver_context *each = atomic_load(&contexts); each != NULL; each = each->next)
        if (each->device == device &&
            (directory == NULL
                 ? each->directory == NULL
                 : each->directory != NULL && strcmp(each->directory, directory) == 0))
            return each;
    return NULL;
}

static rvl_status open_context(saver_context *in)
{
    const rvl_cuda_options cuda = {
        .struct_size = sizeof cuda,
        .devices = &in->device,
        .device_count = 1,
        .host_keep = RVL_HOST_KEEP_ALL, /* what shall go is given back by trim() */
    };
    const rvl_context_options options = {
        .struct_size = sizeof options,
        .backend_options = &cuda,
        .disk_directory = in->directory,
        .disk_tmpfs = true, /* as torch_memory_saver allows it */
    };
    rvl_status status = rvl_context_open("cuda", &options, &in->context);
    if (status != RVL_OK)
        return status;
    rvl_device_info info = {.struct_size = sizeof info};
    status = rvl_device_get_info(in->context, 0, &info);
    in->granularity_bytes = info.granularity_bytes;
    return status;
}

/* With open_lock held. */
static rvl_status add_context(int device, const char *directory, saver_context **in_out)
{
    saver_context *in = calloc(1, sizeof *in);
    if (in == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for a context");
    in->device = device;
    in->directory = directory;
    if (directory != NULL)
        make_directories(directory);
    uint64_t before_bytes = rvli_recorder_context_begin(device);
    rvl_status status = open_context(in);
    rvli_recorder_context_end(device, before_bytes);
    if (status != RVL_OK) {
        free(in);
        return status;
    }
    in->next = atomic_load(&contexts);
    atomic_store(&contexts, in);
    *in_out = in;
    return RVL_OK;
}

static rvl_status context_of(int device, const char *directory, saver_context **in_out)
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

rvl_status rvli_saver_context(int device, rvl_context **context_out)
{
    saver_context *in = NULL;
    rvl_status status = context_of(device, NULL, &in);
    if (status == RVL_OK)
        *context_out = in->context;
    return status;
}

rvl_status rvli_saver_context_at(size_t index, int *device_out, rvl_context **context_out)
{
    size_t newer = 0;
    saver_context *first = atomic_load(&contexts);
    for (const saver_context *each = first; each != NULL; each = each->next)
        newer++;
    if (index >= newer)
        return rvli_error(RVL_ERR_NOT_FOUND, "there are not so many contexts: count from 0 until "
                                             "this is answered");
    for (newer -= index + 1; newer > 0; newer--)
        first = first->next;
    *device_out = first->device;
    *context_out = first->context;
    return RVL_OK;
}

#define FIRST_DEVICE "on device 0"

/* A context's only device has the number 0 in it; who reads of a failure knows the driver's. */
static rvl_status tell_device(const saver_context *in, rvl_status status)
{
    rvl_error error = *rvli_error_get();
    if (status == RVL_OK || error.device != 0)
        return status;
    char rest[sizeof error.message] = "";
    char *at = strstr(error.message, FIRST_DEVICE);
    if (at != NULL) {
        rvli_text_copy(rest, sizeof rest, at + strlen(FIRST_DEVICE));
        rvli_text text = rvli_text_begin(at, sizeof error.message - (size_t)(at - error.message));
        rvli_text_add(&text, "on device ");
        rvli_text_add_u64(&text, (uint64_t)in->device);
        rvli_text_add(&text, rest);
    }
    error.device = in->device;
    rvli_error_set(&error);
    return status;
}

/* ---- Tags ---- */

/* With table_lock held. */
static saver_tag *find_tag(const saver_context *in, const char *name)
{
    saver_tag *tag = in->tags;
    while (tag != NULL && strcmp(tag->name, name) != 0)
        tag = tag->next;
    return tag;
}

static rvl_status tag_of(saver_context *in, const char *name, saver_tag **tag_out)
{
    rvl_status status = RVL_OK;
    lock_table();
    saver_tag *tag = find_tag(in, name);
    if (tag == NULL) {
        tag = calloc(1, sizeof *tag);
        status = tag != NULL ? rvl_tag_define(in->context, name, NULL, &tag->number)
                             : rvli_error(RVL_ERR_HOST_OOM, "no host memory for a tag");
        if (status == RVL_OK) {
            tag->name = name;
            tag->next = in->tags;
            in->tags = tag;
        } else {
            free(tag);
        }
    }
    pthread_mutex_unlock(&table_lock);
    *tag_out = tag;
    return status;
}

/* ---- Allocating ---- */

static rvl_status check_margin(const saver_context *in, uint64_t size_bytes)
{
    uint64_t margin = atomic_load(&margin_bytes), free_bytes = 0, total_bytes = 0;
    if (margin == 0)
        return RVL_OK;
    rvl_status status = rvl_device_memory(in->context, 0, &free_bytes, &total_bytes);
    if (status != RVL_OK)
        return status;
    uint64_t mask = in->granularity_bytes - 1;
    uint64_t needed = size_bytes > UINT64_MAX - mask ? UINT64_MAX : (size_bytes + mask) & ~mask;
    if (needed <= free_bytes && margin <= free_bytes - needed)
        return RVL_OK;
    rvli_error(RVL_ERR_DEVICE_OOM, "the allocation would leave less than the memory margin free");
    rvli_error_bytes(in->device, needed, free_bytes);
    return RVL_ERR_DEVICE_OOM;
}

static rvl_status backup_of(const rvli_thread_settings *settings, rvl_backup *backup_out)
{
    if (settings->host_backup && settings->disk_backup)
        return rvli_error(RVL_ERR_INVALID, "a region has its backup in host memory or on disk, not "
                                           "both: disable one");
    *backup_out = settings->host_backup   ? RVL_BACKUP_HOST
                  : settings->disk_backup ? RVL_BACKUP_DISK
                                          : RVL_BACKUP_NONE;
    return RVL_OK;
}

static rvl_status insert(record *new)
{
    lock_table();
    rvl_status status = rvli_addrmap_insert(&table, new->addr, new);
    if (status == RVL_OK) {
        atomic_fetch_add(&rvli_saver_live, 1);
        if (new->addr < atomic_load(&lowest))
            atomic_store(&lowest, new->addr);
        if (new->addr > atomic_load(&highest))
            atomic_store(&highest, new->addr);
    }
    pthread_mutex_unlock(&table_lock);
    return status;
}

static record *remove_record(rvl_addr addr)
{
    if (addr < atomic_load_explicit(&lowest, memory_order_relaxed) ||
        addr > atomic_load_explicit(&highest, memory_order_relaxed))
        return NULL;
    lock_table();
    record *gone = rvli_addrmap_remove(&table, addr);
    if (gone != NULL)
        atomic_fetch_sub(&rvli_saver_live, 1);
    pthread_mutex_unlock(&table_lock);
    return gone;
}

/* Not every system can make exportable memory (containers, MIG): then it is made without. */
static rvl_status allocate_for(record *new, uint64_t size_bytes)
{
    saver_context *in = new->in;
    rvl_alloc_options options = {
        .struct_size = sizeof options, .tag_id = new->tag->number, .backup = new->backup};
    if (atomic_load_explicit(&rvli_saver_exportable, memory_order_relaxed) &&
        !atomic_load_explicit(&in->not_exportable, memory_order_relaxed))
        options.flags = RVL_ALLOC_EXPORTABLE;
    rvl_status status = rvl_alloc(in->context, size_bytes, &options, &new->addr);
    if (options.flags == 0 || (status != RVL_ERR_NOT_SUPPORTED && status != RVL_ERR_INVALID))
        return status;
    options.flags = 0;
    status = rvl_alloc(in->context, size_bytes, &options, &new->addr);
    if (status == RVL_OK)
        atomic_store(&in->not_exportable, true);
    return status;
}

static rvl_status allocate(record *new, uint64_t size_bytes)
{
    rvl_status status = check_margin(new->in, size_bytes);
    if (status == RVL_OK)
        status = allocate_for(new, size_bytes);
    if (status != RVL_OK)
        return tell_device(new->in, status);
    status = insert(new);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        rvl_free(new->in->context, new->addr);
        rvli_error_set(&cause);
    }
    return status;
}

rvl_status rvli_saver_alloc(int device, uint64_t size_bytes, const rvli_thread_settings *settings,
                            rvl_addr *addr_out)
{
    record *new = calloc(1, sizeof *new);
    if (new == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory for an allocation");
    new->size_bytes = size_bytes;
    new->reclaimed = settings->reclaimed;
    rvl_status status = backup_of(settings, &new->backup);
    if (status == RVL_OK)
        status =
            context_of(device, new->backup == RVL_BACKUP_DISK ? directory_now() : NULL, &new->in);
    if (status == RVL_OK)
        status = tag_of(new->in, settings->tag, &new->tag);
    if (status == RVL_OK)
        status = allocate(new, size_bytes);
    if (status == RVL_OK)
        *addr_out = new->addr;
    else
        free(new);
    return status;
}

bool rvli_saver_find(rvl_addr addr, rvl_context **context_out, rvl_addr *begin_out)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    if (atomic_load(&rvli_saver_live) == 0)
        return false;
    lock_table();
    const record *in = rvli_addrmap_floor(&table, addr, begin_out);
    if (in != NULL)
        *context_out = in->in->context;
    pthread_mutex_unlock(&table_lock);
    if (in == NULL)
        return false;
    rvl_status status = rvl_allocation_find(*context_out, addr, &facts);
    return (status == RVL_OK && facts.addr == *begin_out) ||
           (status == RVL_ERR_FORKED && addr == *begin_out);
}

/* ---- Host memory ---- */

/* What the pool has idle goes back to the system, but for what the next pause will need. */
static void trim(uint64_t keep_bytes)
{
    rvli_pinned_trim(rvli_settings()->keep_host ? keep_bytes : 0);
}

/* Bytes that backups of live allocations need which keep their host memory. Lock held. */
static uint64_t kept_bytes(void)
{
    uint64_t bytes = 0, at = 0;
    const record *each;
    while ((each = rvli_addrmap_ceil(&table, at, &at)) != NULL) {
        if (each->backup == RVL_BACKUP_HOST && !each->reclaimed)
            bytes += (each->size_bytes + each->in->granularity_bytes - 1) &
                     ~(each->in->granularity_bytes - 1);
        at++;
    }
    return bytes;
}

/* ---- Freeing ---- */

/* What cudaFree does of itself: nobody may be using the memory. There is no public call for it. */
static rvl_status wait_until_unused(const record *gone, rvl_state state)
{
    rvl_context *context = gone->in->context;
    if (state == RVL_STATE_PAUSED)
        return RVL_OK;
    if (rvli_capture_running())
        return rvli_error(RVL_ERR_BUSY, "memory cannot be freed while a stream is captured: end "
                                        "the capture first");
    return context->ops.synchronize(context->self, 0);
}

rvl_status rvli_saver_free(rvl_addr addr)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    /* Out of the table first: once freed, the address may come to another thread. */
    record *gone = remove_record(addr);
    if (gone == NULL)
        return RVL_ERR_NOT_FOUND;
    saver_context *in = gone->in;
    rvl_status status = rvl_allocation_find(in->context, addr, &facts);
    if (status == RVL_OK)
        status = wait_until_unused(gone, facts.state);
    if (status == RVL_OK)
        status = rvl_free(in->context, addr);
    if (status != RVL_OK) {
        rvl_error cause = *rvli_error_get();
        if (insert(gone) != RVL_OK)
            free(gone);
        rvli_error_set(&cause);
        return tell_device(in, status);
    }
    rvli_ipc_forget(in->context, facts.id);
    rvli_disk_name_remove(gone->name);
    free(gone);
    if (facts.backup_bytes > 0) /* whoever frees it then expects the host memory back, too */
        trim(0);
    return RVL_OK;
}

/* ---- Pausing and resuming ---- */

typedef rvl_status (*move_fn)(saver_context *in, const saver_tag *tag);

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

/* The records of a tag in a context, one after the other; NULL: of all tags. Lock held. */
static record *next_record(const saver_context *in, const saver_tag *tag, uint64_t *at)
{
    record *each;
    while ((each = rvli_addrmap_ceil(&table, *at, at)) != NULL) {
        ++*at;
        if (each->in == in && (tag == NULL || each->tag == tag))
            return each;
    }
    return NULL;
}

static void name_files(saver_context *in, const saver_tag *tag)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    uint64_t at = 0, offset, size_bytes;
    record *each;
    int file;
    lock_table();
    while ((each = next_record(in, tag, &at)) != NULL)
        if (each->name == NULL &&
            rvl_backup_find_file(in->context, each->addr, &file, &offset, &size_bytes) == RVL_OK &&
            rvl_allocation_find(in->context, each->addr, &facts) == RVL_OK)
            each->name = rvli_disk_name_add(in->directory, file, in->device, facts.id);
    pthread_mutex_unlock(&table_lock);
}

static rvl_status pause_one(saver_context *in, const saver_tag *tag)
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

static rvl_status set_retain(saver_context *in, saver_tag *tag, bool retain)
{
    const rvl_tag_options options = {.struct_size = sizeof options, .retain_backups = retain};
    rvl_tag number;
    if (tag->retain == retain)
        return RVL_OK;
    rvl_status status = rvl_tag_define(in->context, tag->name, &options, &number);
    if (status == RVL_OK)
        tag->retain = retain;
    return status;
}

/* Where each backup lies that will be retained; the context says it no more once it is resumed. */
static rvl_status prepare_resume(saver_context *in, const saver_tag *tag, bool retain)
{
    rvl_status status = RVL_OK;
    uint64_t at = 0, size_bytes;
    const void *host;
    record *each;
    lock_table();
    for (saver_tag *other = in->tags; other != NULL && status == RVL_OK; other = other->next)
        if (tag == NULL || tag == other)
            status = set_retain(in, other, retain);
    while (retain && (each = next_record(in, tag, &at)) != NULL)
        if (rvl_backup_find(in->context, each->addr, &host, &size_bytes) == RVL_OK)
            each->host = host;
    pthread_mutex_unlock(&table_lock);
    return status;
}

static void after_resume(saver_context *in, const saver_tag *tag)
{
    uint64_t at = 0, keep_bytes = 0;
    bool reclaim = !rvli_settings()->keep_host;
    record *each;
    lock_table();
    while ((each = next_record(in, tag, &at)) != NULL) {
        reclaim = reclaim || (each->backup == RVL_BACKUP_HOST && each->reclaimed);
        rvli_disk_name_remove(each->name);
        each->name = NULL;
    }
    if (reclaim)
        keep_bytes = kept_bytes();
    pthread_mutex_unlock(&table_lock);
    if (reclaim)
        trim(keep_bytes);
}

static rvl_status resume_one(saver_context *in, const saver_tag *tag)
{
    bool retain = rvli_saver_get_retain();
    rvl_status status = prepare_resume(in, tag, retain);
    if (status == RVL_OK)
        status = rvl_resume(in->context, tag != NULL ? &tag->number : NULL, tag != NULL, NULL);
    if (status == RVL_OK && !retain) /* else its file and host memory stay */
        after_resume(in, tag);
    return status;
}

static rvl_status move_tag(const char *name, move_fn move)
{
    bool found = false;
    for (saver_context *in = atomic_load(&contexts); in != NULL; in = in->next) {
        lock_table();
        const saver_tag *tag = find_tag(in, name);
        pthread_mutex_unlock(&table_lock);
        if (tag == NULL)
            continue;
        found = true;
        rvl_status status = tell_device(in, move(in, tag));
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
    for (saver_context *in = atomic_load(&contexts); in != NULL && status == RVL_OK; in = in->next)
        status = tell_device(in, move(in, NULL));
    return status;
}

rvl_status rvli_saver_pause(const char *tag)
{
    rvl_status status = refuse_capture("pausing");
    if (status != RVL_OK)
        return status;
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

/* ---- Backups ---- */

/* With the lock held. */
static const uint8_t *find_backup(rvl_addr addr, uint64_t bytes)
{
    rvl_allocation facts = {.struct_size = sizeof facts};
    const void *host = NULL;
    uint64_t begin = 0, left = 0;
    const record *in = rvli_addrmap_floor(&table, addr, &begin);
    if (in == NULL || rvl_allocation_find(in->in->context, addr, &facts) != RVL_OK ||
        facts.addr != begin || facts.backup_bytes == 0 || bytes > facts.size_bytes - (addr - begin))
        return NULL;
    if (rvl_backup_find(in->in->context, addr, &host, &left) == RVL_OK)
        return host;
    return in->host != NULL ? in->host + (addr - begin) : NULL;
}

const uint8_t *rvli_saver_backup(rvl_addr addr, uint64_t bytes)
{
    lock_table();
    const uint8_t *host = find_backup(addr, bytes);
    pthread_mutex_unlock(&table_lock);
    return host;
}

/* ---- Errors ---- */

int rvli_saver_cuda_error(rvl_status status)
{
    int native = rvli_error_get()->native_code;
    switch (status) {
    case RVL_OK:
        return RVLI_CUDA_SUCCESS;
    case RVL_ERR_DEVICE_OOM:
    case RVL_ERR_HOST_OOM:
        return RVLI_CUDA_MEMORY_ALLOCATION;
    case RVL_ERR_INVALID:
        return RVLI_CUDA_INVALID_VALUE;
    case RVL_ERR_FORKED:
        return RVLI_CUDA_INITIALIZATION;
    case RVL_ERR_NO_DRIVER:
    case RVL_ERR_DRIVER_TOO_OLD:
        return RVLI_CUDA_INSUFFICIENT_DRIVER;
    case RVL_ERR_NO_DEVICE:
        return RVLI_CUDA_NO_DEVICE;
    case RVL_ERR_NOT_SUPPORTED:
        return RVLI_CUDA_NOT_SUPPORTED;
    case RVL_ERR_BUSY:
        return RVLI_CUDA_CAPTURE_UNSUPPORTED;
    default: /* the driver's numbers are the runtime's, but for those above */
        return native > 0 && native < RVLI_CUDA_UNKNOWN ? native : RVLI_CUDA_UNKNOWN;
    }
}
