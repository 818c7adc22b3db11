/* SPDX-License-Identifier: MIT */
/*
 * Sleep from outside: a process lets other processes of its user put it to sleep and wake it, so
 * that a scheduler may swap engines on a device. The command is `reveille sleep PID`.
 *
 * It is off until the process asks for it, because a sleeping process must not call CUDA
 * (reveille/sleep.h), and only its author knows when that is safe.
 */
#ifndef REVEILLE_CONTROL_H
#define REVEILLE_CONTROL_H

#include "reveille/sleep.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rvl_control_verb {
    RVL_CONTROL_SLEEP = 1, /* rvl_sleep() */
    RVL_CONTROL_WAKE_UP    /* rvl_wake_up() */
} rvl_control_verb;

typedef struct rvl_control_request {
    size_t struct_size;
    rvl_control_verb verb;
    uint32_t reserved;   /* 0 */
    uint64_t flags;      /* RVL_SLEEP_* or RVL_WAKE_UP_* */
    uint64_t timeout_ns; /* as in the options of the function */
} rvl_control_request;

#define RVL_CONTROL_WHY_BYTES 256

/*
 * Performs the request, on a thread of the library. Returns its status. On failure it may write a
 * reason to why_out, which has RVL_CONTROL_WHY_BYTES; if it leaves that empty, the message of the
 * error record is used. It returns RVL_ERR_BUSY, before it changes anything, if the program is at
 * work.
 */
typedef rvl_status (*rvl_control_fn)(void *user, const rvl_control_request *request, char *why_out);

typedef struct rvl_control_options {
    size_t struct_size;
    rvl_control_fn move; /* NULL: rvl_sleep() or rvl_wake_up() of the whole process */
    void *user;
} rvl_control_options;

/*
 * Starts to listen, on a thread of the library that blocks all signals, until rvl_control_close()
 * or the end of the process. A second call replaces the options of the first, unless options is
 * NULL. A forked child does not listen; it may call this itself. Processes of other users get no
 * answer. Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_VERSION; RVL_ERR_HOST_OOM; RVL_ERR_IO (no socket
 * could be made); RVL_ERR_BUSY (another thread is in rvl_control_close()). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_control_open(const rvl_control_options *options);

/*
 * Stops listening. Waits for a request that is being performed. Returns RVL_OK (also if the process
 * did not listen); RVL_ERR_STATE (called from within `move`); RVL_ERR_BUSY (another thread is in
 * rvl_control_close()). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_control_close(void);

typedef struct rvl_control_answer {
    size_t struct_size;
    bool changed; /* false: the process already slept, or was already awake */
    uint8_t reserved[7];
    uint64_t time_ns; /* how long it took there */
} rvl_control_answer;

/*
 * Asks another process to sleep or wake, and waits for its answer. If the process ends in the
 * meantime, its devices are free.
 *
 * Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_VERSION; RVL_ERR_NOT_FOUND (there is no such process, or
 * it does not listen to this user); RVL_ERR_IO (the process has ended, and its devices are free);
 * RVL_ERR_TIMEOUT (the process accepts no request, or does not answer within five minutes beyond
 * timeout_ns); or what that process answered, with its message. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_control_ask(int process, const rvl_control_request *request,
                                   rvl_control_answer *answer_out);

#ifdef __cplusplus
}
#endif
#endif
