/* SPDX-License-Identifier: MIT */
/*
 * The functions of reveille/hooks.h: what programs call besides torch_memory_saver's C interface.
 */
#include "hooks/library/hooks.h"

#include <stdatomic.h>
#include <string.h>

#include "base/error.h"
#include "hooks/nccl/known.h"
#include "hooks/nccl/move.h"
#include "hooks/process/settings.h"
#include "hooks/record/recorder.h"
#include "hooks/region/saver.h"
#include "nvtx/nvtx.h"
#include "reveille/hooks.h"

#define PRELOAD "preload"

/* The preload library wraps more functions, so with both libraries the mode is "preload". */
static _Atomic(const char *) mode_now;

void rvli_hooks_attach(const char *mode)
{
    const char *before = atomic_load(&mode_now);
    if (before == NULL || strcmp(mode, PRELOAD) == 0)
        atomic_store(&mode_now, mode);
    /* The preload library can share its memory with other processes (hooks/ipc/ipc.h), because it
     * wraps the calls for that. The torch library cannot. */
    if (strcmp(mode, PRELOAD) == 0)
        atomic_store(&rvli_saver_exportable, true);
}

const char *rvl_hooks_mode(void)
{
    return atomic_load(&mode_now);
}

static const char *named(const char *tag)
{
    return tag != NULL && tag[0] != '\0' ? tag : NULL;
}

/* A program without named communicators may use this name for a region. */
static bool means_communicators(const char *tag)
{
    return tag != NULL && strcmp(tag, RVL_COMMUNICATOR_TAG) == 0 && rvli_known_any();
}

static rvl_status move(const char *tag, rvl_transition_kind kind)
{
    rvl_status status = rvli_settings_check();
    if (status != RVL_OK)
        return status;
    if (means_communicators(tag))
        return rvli_communicators_move(kind);
    return kind == RVL_TRANSITION_PAUSE ? rvli_saver_pause(named(tag))
                                        : rvli_saver_resume(named(tag));
}

rvl_status rvl_hooks_pause(const char *tag)
{
    return move(tag, RVL_TRANSITION_PAUSE);
}

rvl_status rvl_hooks_resume(const char *tag)
{
    return move(tag, RVL_TRANSITION_RESUME);
}

rvl_status rvl_hooks_check_settings(void)
{
    return rvli_settings_check();
}

rvl_status rvl_hooks_get_context(int device, rvl_context **context_out)
{
    if (context_out == NULL || device < 0)
        return rvli_error(RVL_ERR_INVALID, "context_out is NULL, or the device's number negative");
    rvl_status status = rvli_settings_check();
    return status == RVL_OK ? rvli_saver_context(device, context_out) : status;
}

rvl_status rvl_hooks_get_context_at(size_t index, int *device_out, rvl_context **context_out)
{
    if (device_out == NULL || context_out == NULL)
        return rvli_error(RVL_ERR_INVALID, "device_out or context_out is NULL");
    return rvli_saver_context_at(index, device_out, context_out);
}

rvl_status rvl_hooks_get_nccl_bytes(int device, uint64_t *bytes_out)
{
    if (bytes_out == NULL || device < 0)
        return rvli_error(RVL_ERR_INVALID, "bytes_out is NULL, or the device's number negative");
    return rvli_recorder_nccl_bytes(device, bytes_out)
               ? RVL_OK
               : rvli_error(RVL_ERR_NOT_FOUND,
                            "nothing is recorded of this device: start the program by "
                            "`reveille record`, and use the device");
}

/* ---- Marks ---- */

static rvl_status check_name(const char *name)
{
    size_t length = name != NULL ? strnlen(name, RVLI_TAG_MAX_BYTES + 1) : 0;
    return length > 0 && length <= RVLI_TAG_MAX_BYTES
               ? RVL_OK
               : rvli_error(RVL_ERR_INVALID, "the name of a stage must have 1 to 255 bytes");
}

/* Larger numbers are NVTX's. */
static rvl_status check_number(uint64_t number)
{
    return number > 0 && number < RVLI_NVTX_FIRST_ID
               ? RVL_OK
               : rvli_error(RVL_ERR_INVALID, "the number of a range must be from 1 to 2^32 - 1");
}

rvl_status rvl_hooks_stage(const char *name)
{
    rvl_status status = check_name(name);
    return status == RVL_OK ? rvli_recorder_stage(name) : status;
}

rvl_status rvl_hooks_begin(uint64_t number, const char *name)
{
    rvl_status status = check_number(number);
    if (status == RVL_OK)
        status = check_name(name);
    return status == RVL_OK ? rvli_recorder_enter(number, name) : status;
}

rvl_status rvl_hooks_end(uint64_t number)
{
    rvl_status status = check_number(number);
    return status == RVL_OK ? rvli_recorder_leave(number) : status;
}

rvl_status rvl_hooks_step(void)
{
    return rvli_recorder_step();
}
