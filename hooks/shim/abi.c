/* SPDX-License-Identifier: MIT */
#include "hooks/shim/abi.h"

#include <string.h>

#include "base/text.h"
#include "hooks/process/message.h"
#include "hooks/process/settings.h"
#include "hooks/region/saver.h"
#include "hooks/shim/runtime.h"

/* Programs search the file for this name to learn that it supports disk backups. */
__attribute__((used)) static const char disk_backup_variable[] = "TMS_INIT_ENABLE_DISK_BACKUP";

#define KEPT "pinned"
#define RECLAIMED "mmap"

/* ---- The calling thread ---- */

void tms_set_current_tag(const char *tag)
{
    if (tag == NULL)
        rvli_give_up("tms_set_current_tag: the tag is NULL: give it a name");
    if (strlen(tag) > RVLI_TAG_MAX_BYTES)
        rvli_give_up(
            "tms_set_current_tag: the name of the tag has more than 255 bytes: shorten it");
    const char *kept = rvli_intern(tag);
    if (kept == NULL)
        rvli_give_up("tms_set_current_tag: no host memory for the name of a tag");
    rvli_thread_settings_get()->tag = kept;
}

const char *tms_get_current_tag(void)
{
    return rvli_thread_settings_get()->tag;
}

void tms_set_interesting_region(bool on)
{
    rvli_thread_settings_get()->region = on ? RVLI_REGION_INSIDE : RVLI_REGION_OUTSIDE;
}

bool tms_get_interesting_region(void)
{
    return rvli_thread_settings_get()->region == RVLI_REGION_INSIDE;
}

void tms_set_enable_cpu_backup(bool on)
{
    rvli_thread_settings_get()->host_backup = on;
}

bool tms_get_enable_cpu_backup(void)
{
    return rvli_thread_settings_get()->host_backup;
}

void tms_set_cpu_backup_backend(const char *kind)
{
    bool reclaimed = kind != NULL && strcmp(kind, RECLAIMED) == 0;
    if (kind != NULL && kind[0] != '\0' && !reclaimed && strcmp(kind, KEPT) != 0) {
        char message[RVLI_MESSAGE_BYTES];
        rvli_text text = rvli_text_begin(message, sizeof message);
        rvli_text_add(&text, "tms_set_cpu_backup_backend: there is no \"");
        rvli_text_add(&text, kind);
        rvli_text_add(&text, "\": name " KEPT " or " RECLAIMED);
        rvli_give_up(message);
    }
    rvli_thread_settings_get()->reclaimed = reclaimed;
}

const char *tms_get_cpu_backup_backend(void)
{
    return rvli_thread_settings_get()->reclaimed ? RECLAIMED : KEPT;
}

void tms_set_enable_disk_backup(bool on)
{
    rvli_thread_settings_get()->disk_backup = on;
}

bool tms_get_enable_disk_backup(void)
{
    return rvli_thread_settings_get()->disk_backup;
}

/* ---- The process ---- */

void tms_set_disk_backup_dir(const char *directory)
{
    if (rvli_saver_set_directory(directory) != RVL_OK)
        rvli_give_up_error("tms_set_disk_backup_dir");
}

void set_memory_margin_bytes(uint64_t bytes)
{
    rvli_saver_set_margin(bytes);
}

void tms_set_retain_cpu_backup(bool on)
{
    rvli_saver_set_retain(on);
}

bool tms_get_retain_cpu_backup(void)
{
    return rvli_saver_get_retain();
}

/* ---- Pausing and resuming ---- */

/* Ends the process on a failure: the package ignores the result and would go on without notice. */
static int end_unless_done(rvl_status status, const char *what, const char *tag)
{
    char message[RVLI_MESSAGE_BYTES];
    if (status == RVL_OK || status == RVL_ERR_NOT_FOUND)
        return RVLI_CUDA_SUCCESS; /* a tag that was never used has no memory */
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, what);
    if (tag != NULL) {
        rvli_text_add(&text, "(\"");
        rvli_text_add(&text, tag);
        rvli_text_add(&text, "\")");
    }
    rvli_say_error(message);
    rvli_saver_say_state();
    rvli_end_process();
    abort();
}

static const char *named(const char *tag)
{
    return tag != NULL && tag[0] != '\0' ? tag : NULL;
}

int tms_pause(const char *tag)
{
    return end_unless_done(rvli_saver_pause(named(tag)), "tms_pause", named(tag));
}

int tms_resume(const char *tag)
{
    return end_unless_done(rvli_saver_resume(named(tag)), "tms_resume", named(tag));
}

uint8_t *tms_get_cpu_backup_pointer(const uint8_t *gpu, uint64_t bytes)
{
    return (uint8_t *)(uintptr_t)rvli_saver_backup((uintptr_t)gpu, bytes);
}

/* ---- The CUDA runtime ---- */

int cudaGetLastError(void)
{
    rvli_runtime_cudaGetLastError next = RVLI_RUNTIME(cudaGetLastError);
    return next != NULL ? next() : RVLI_CUDA_INSUFFICIENT_DRIVER;
}

int cudaHostGetFlags(unsigned *flags, void *pointer)
{
    rvli_runtime_cudaHostGetFlags next = RVLI_RUNTIME(cudaHostGetFlags);
    return next != NULL ? next(flags, pointer) : RVLI_CUDA_INSUFFICIENT_DRIVER;
}
