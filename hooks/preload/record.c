/* SPDX-License-Identifier: MIT */
/*
 * Recording, switched on by RVL_RECORD and related environment variables.
 *
 * A file without its end record means that the process was killed, so every orderly exit must close
 * the file. libreveille's destructor does so at exit(). The _exit() below does so for programs such
 * as forked Python workers.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/text.h"
#include "hooks/preload/nccl.h"
#include "hooks/preload/observe.h"
#include "hooks/process/message.h"
#include "hooks/process/settings.h"
#include "hooks/record/recorder.h"
#include "hooks/shim/runtime.h"
#include "nvtx/nvtx.h"

#define PATH_VARIABLE "RVL_RECORD"
#define NAME_VARIABLE "RVL_RECORD_NAME"
#define PERIOD_VARIABLE "RVL_RECORD_PERIOD_MS"
#define NVTX_VARIABLE "RVL_RECORD_NVTX"
#define INJECTION_VARIABLE "NVTX_INJECTION64_PATH"
#define NVML_VARIABLE "RVL_NVML_LIBRARY"
#define PERIOD_USUAL_MS 1000u
#define PERIOD_MAX_MS 3600000u
#define NS_PER_MS UINT64_C(1000000)

/* ---- Recording the program's calls ---- */

/*
 * For cuMemCreate(), device -1 is host memory. For other calls, it is the device of the thread's
 * context.
 */
static bool is_of_a_device(const rvli_seen *seen)
{
    return seen->kind != RVLI_SEEN_CREATE || seen->device >= 0;
}

static void see(const rvli_seen *seen)
{
    const rvli_recorded what = {
        .size_bytes = seen->size_bytes, .device = seen->device, .nccl = rvli_is_nccl(seen->caller)};
    if (!is_of_a_device(seen))
        return;
    if (seen->refused) {
        rvli_recorder_refuse(&(rvli_refused){.tag = what.nccl ? "nccl" : NULL,
                                             .device = seen->device,
                                             .requested_bytes = seen->size_bytes,
                                             .free_bytes = RVLI_RECORDER_UNMEASURED});
        return;
    }
    switch (seen->kind) {
    case RVLI_SEEN_ALLOC:
        rvli_recorder_alloc(RVLI_RECORDED_ADDRESS, seen->id, &what);
        break;
    case RVLI_SEEN_CREATE:
        rvli_recorder_alloc(RVLI_RECORDED_HANDLE, seen->id, &what);
        break;
    case RVLI_SEEN_FREE:
        rvli_recorder_free(RVLI_RECORDED_ADDRESS, seen->id, NULL);
        break;
    case RVLI_SEEN_RELEASE:
        rvli_recorder_free(RVLI_RECORDED_HANDLE, seen->id, NULL);
        break;
    }
}

/* ---- The beginning ---- */

static _Noreturn void refuse(const char *variable, const char *value, const char *understood)
{
    rvli_say_refused(variable, value, understood);
    rvli_end_process();
    abort();
}

static uint64_t read_period(void)
{
    const char *value = getenv(PERIOD_VARIABLE);
    char *end = NULL;
    if (value == NULL)
        return PERIOD_USUAL_MS * NS_PER_MS;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || number > PERIOD_MAX_MS)
        refuse(PERIOD_VARIABLE, value, "milliseconds, up to an hour; 0: none");
    return number * NS_PER_MS;
}

static _Noreturn void refuse_path(const char *path)
{
    const rvl_error *error = rvli_error_get();
    char message[RVLI_MESSAGE_BYTES];
    rvli_text text = rvli_text_begin(message, sizeof message);
    rvli_text_add(&text, "environment variable " PATH_VARIABLE ", \"");
    rvli_text_add(&text, path);
    rvli_text_add(&text, "\": ");
    rvli_text_add(&text, error->message);
    rvli_text_add(&text, error->native_name[0] != '\0' ? " (" : "");
    rvli_text_add(&text, error->native_name);
    rvli_text_add(&text, error->native_name[0] != '\0' ? ")" : "");
    rvli_text_add(&text, ", or unset the variable to run without recording");
    rvli_give_up(message);
}

static const char *read_name(void)
{
    const char *name = getenv(NAME_VARIABLE);
    if (name != NULL && (name[0] == '\0' || strlen(name) > RVLI_TAG_MAX_BYTES))
        refuse(NAME_VARIABLE, name, "a name of 1 to 255 bytes");
    return name;
}

static bool is_this_library(const char *path)
{
    struct stat named, own;
    Dl_info info;
    return dladdr(rvli_own_begin(), &info) != 0 && stat(path, &named) == 0 &&
           stat(info.dli_fname, &own) == 0 && named.st_dev == own.st_dev &&
           named.st_ino == own.st_ino;
}

/* NVTX loads only one library, so that variable must name this one. */
static const char *read_prefix(void)
{
    const char *prefix = getenv(NVTX_VARIABLE);
    const char *injected = getenv(INJECTION_VARIABLE);
    if (prefix != NULL && (injected == NULL || !is_this_library(injected)))
        refuse(NVTX_VARIABLE, prefix,
               "NVTX_INJECTION64_PATH to the path of the preload library, too");
    return prefix;
}

/* Checks only a path: a plain name is searched for when a device is first used. */
static void check_nvml(void)
{
    const char *library = getenv(NVML_VARIABLE);
    if (library != NULL && strchr(library, '/') != NULL && access(library, R_OK) != 0)
        refuse(NVML_VARIABLE, library, "the path of a library that can be read");
}

/* The recorder has already reported a mark that could not be written. */
static void enter(uint64_t id, const char *name)
{
    (void)rvli_recorder_enter(id, name);
}

static void leave(uint64_t id)
{
    (void)rvli_recorder_leave(id);
}

static const rvli_nvtx_sink nvtx_sink = {.enter = enter, .leave = leave};

/* Stops the program at its start if a value is not understood. */
__attribute__((constructor)) static void record_from_start(void)
{
    const char *path = getenv(PATH_VARIABLE);
    rvli_settings();
    const rvli_recorder_options options = {path, read_name(), read_period()};
    if (path == NULL)
        return;
    check_nvml();
    const char *prefix = read_prefix();
    if (rvli_recorder_start(&options) != RVL_OK)
        refuse_path(path);
    if (prefix != NULL)
        rvli_nvtx_listen(prefix, &nvtx_sink);
    rvli_observe(see);
}

/* ---- The end ---- */

__attribute__((visibility("default"))) _Noreturn void _exit(int status)
{
    (void)rvli_recorder_try_close();
    for (;;)
        syscall(SYS_exit_group, status);
}

__attribute__((visibility("default"))) _Noreturn void _Exit(int status)
{
    _exit(status);
}
