/* SPDX-License-Identifier: MIT */
/*
 * The functions of libreveille that a hook library calls.
 *
 * A hook library wraps CUDA's functions and keeps no state. Tables, contexts, pinned memory and the
 * recording are in libreveille, and all hook libraries of a process share them.
 *
 * A hook library does not link libreveille. The loader would look for it beside the name by which
 * the hook library was opened, and torch_memory_saver's package opens it by a link in another
 * folder. So the hook library opens libreveille itself, in the folder of its own real file, and
 * gets a table of the functions below. The table and its callers must be of one build.
 *
 * X(type, name, parameters, arguments), and V() for functions that return nothing: the member
 * `name` is rvli_`name`(). In a hook library, a function of that name forwards the call
 * (hooks/shim/library.c).
 */
#ifndef RVL_HOOKS_LIBRARY_LIBRARY_CALLS_H
#define RVL_HOOKS_LIBRARY_LIBRARY_CALLS_H

#include "base/error.h"
#include "hooks/ipc/foreign.h"
#include "hooks/ipc/ipc.h"
#include "hooks/process/captures.h"
#include "hooks/process/message.h"
#include "hooks/process/settings.h"
#include "hooks/record/recorder.h"
#include "hooks/region/region.h"
#include "hooks/region/saver.h"

#define RVLI_LIBRARY_CALLS_MAP(X, V)                                                               \
    X(const rvl_error *, error_get, (void), ())                                                    \
    X(const void *, capture_stream, (const void *stream, bool per_thread), (stream, per_thread))   \
    V(capture_begin, (const void *stream, int mode), (stream, mode))                               \
    V(capture_end, (int error, const void *stream), (error, stream))                               \
    X(bool, ipc_get, (uint64_t addr, rvli_ipc_handle * handle_out, int *error_out),                \
      (addr, handle_out, error_out))                                                               \
    X(bool, ipc_open,                                                                              \
      (const rvli_ipc_handle *handle, rvli_ipc_device device_of, uint64_t *addr_out,               \
       int *error_out),                                                                            \
      (handle, device_of, addr_out, error_out))                                                    \
    X(bool, ipc_close, (uint64_t addr, int *error_out), (addr, error_out))                         \
    V(foreign_open, (uint64_t key), (key))                                                         \
    V(foreign_close, (uint64_t key), (key))                                                        \
    X(bool, recorder_on, (void), ())                                                               \
    X(rvl_status, recorder_start, (const rvli_recorder_options *options), (options))               \
    X(bool, recorder_try_close, (void), ())                                                        \
    V(recorder_alloc, (rvli_recorded_space space, uint64_t key, const rvli_recorded *what),        \
      (space, key, what))                                                                          \
    V(recorder_refuse, (const rvli_refused *refused), (refused))                                   \
    V(recorder_retain, (rvli_recorded_space space, uint64_t key), (space, key))                    \
    X(bool, recorder_free, (rvli_recorded_space space, uint64_t key, rvli_recorded * was_out),     \
      (space, key, was_out))                                                                       \
    X(uint64_t, recorder_growth_begin, (rvli_recorded_growth growth, int device),                  \
      (growth, device))                                                                            \
    V(recorder_growth_end, (rvli_recorded_growth growth, int device, uint64_t before_bytes),       \
      (growth, device, before_bytes))                                                              \
    X(bool, recorder_context_reset, (int device), (device))                                        \
    X(bool, recorder_context_released, (int device), (device))                                     \
    X(rvl_status, recorder_stage, (const char *name), (name))                                      \
    X(rvl_status, recorder_enter, (uint64_t id, const char *name), (id, name))                     \
    X(rvl_status, recorder_leave, (uint64_t id), (id))                                             \
    X(int, region_alloc, (int device, size_t size, void **pointer_out),                            \
      (device, size, pointer_out))                                                                 \
    X(bool, region_free, (void *pointer, int *error_out), (pointer, error_out))                    \
    X(int, region_current_device, (int *device_out), (device_out))                                 \
    V(saver_free_deferred, (void), ())                                                             \
    X(rvl_status, saver_pause, (const char *tag), (tag))                                           \
    X(rvl_status, saver_resume, (const char *tag), (tag))                                          \
    X(const uint8_t *, saver_backup, (rvl_addr addr, uint64_t bytes), (addr, bytes))               \
    V(saver_set_margin, (uint64_t bytes), (bytes))                                                 \
    V(saver_set_retain, (bool on), (on))                                                           \
    V(saver_say_state, (void), ())                                                                 \
    X(bool, saver_get_retain, (void), ())                                                          \
    X(rvl_status, saver_set_directory, (const char *path), (path))                                 \
    X(const rvli_process_settings *, settings, (void), ())                                         \
    X(rvli_thread_settings *, settings_of_thread, (void), ())                                      \
    X(const char *, intern, (const char *name), (name))                                            \
    V(say, (const char *text), (text))                                                             \
    V(say_refused, (const char *variable, const char *value, const char *understood),              \
      (variable, value, understood))                                                               \
    V(say_error, (const char *what), (what))                                                       \
    V(end_process, (void), ())

typedef struct rvli_library_calls {
    const char *version; /* of libreveille */
#define RVLI_LIBRARY_CALL(type, name, parameters, arguments) type(*name) parameters;
#define RVLI_LIBRARY_CALL_VOID(name, parameters, arguments) void(*name) parameters;
    RVLI_LIBRARY_CALLS_MAP(RVLI_LIBRARY_CALL, RVLI_LIBRARY_CALL_VOID)
#undef RVLI_LIBRARY_CALL
#undef RVLI_LIBRARY_CALL_VOID
} rvli_library_calls;

/*
 * Exported by libreveille for hook libraries only. Registers a hook library of a mode ("preload" or
 * "torch"), and returns the table. Returns NULL if `version` is not libreveille's own.
 */
#define RVLI_LIBRARY_ATTACH "rvl_private_attach_hooks"
RVL_API const rvli_library_calls *rvl_private_attach_hooks(const char *mode, const char *version);

#endif
