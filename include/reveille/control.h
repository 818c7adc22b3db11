/* SPDX-License-Identifier: MIT */
/*
 * Sleep from outside: a process lets others of its user have it sleep and wake, so that one that
 * schedules them may swap engines on a device. The command is `reveille sleep PID`.
 *
 * It is off until the process asks for it, since a process that sleeps must make no call of CUDA
 * (reveille/sleep.h): only its author knows when that is so.
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
    uint64_t timeout_ns; /* as in the options of that function */
} rvl_control_request;

#define RVL_CONTROL_WHY_BYTES 256

/*
 * Does what is asked, on a thread of the library. Returns its status; if that is no RVL_OK, why it
 * failed may be written to why_out, which has RVL_CONTROL_WHY_BYTES; what is left empty is taken
 * from the error record. RVL_ERR_BUSY, before anything is done: the program is at work.
 */
typedef rvl_status (*rvl_control_fn)(void *user, const rvl_control_request *request, char *why_out);

typedef struct rvl_control_options {
    size_t struct_size;
    rvl_control_fn move; /* NULL: rvl_sleep() or rvl_wake_up() of the whole process */
    void *user;
} rvl_control_options;

/*
 * Listens from now on, on a thread of the library that no signal interrupts, until
 * rvl_control_close() or the end of the process. A second call replaces what the first has said,
 * unless options is NULL. A child of a fork does not listen: it may call this itself. Processes of
 * other users get no answer. Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_VERSION; RVL_ERR_HOST_OOM;
 * RVL_ERR_IO (no socket could be made); RVL_ERR_BUSY (another thread is in rvl_control_close()).
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_control_open(const rvl_control_options *options);

/*
 * Listens no more. Waits for what is being done. Returns RVL_OK (also where nobody listened);
 * RVL_ERR_STATE (called from within `move`); RVL_ERR_BUSY (another thread is in
 * rvl_control_close()). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_control_close(void);

typedef struct rvl_control_answer {
    size_t struct_size;
    bool changed; /* false: the process slept, or was awake, already */
    uint8_t reserved[7];
    uint64_t time_ns; /* that it took there */
} rvl_control_answer;

/*
 * Has another process sleep or wake, and waits for its answer. One that ends meanwhile leaves its
 * devices empty.
 *
 * Returns RVL_OK; RVL_ERR_INVALID; RVL_ERR_VERSION; RVL_ERR_NOT_FOUND (there is no such process, or
 * it does not listen to this user); RVL_ERR_IO (the process has ended meanwhile, and its devices
 * are free); RVL_ERR_TIMEOUT (the process takes no request, or gives no answer for five minutes
 * beyond timeout_ns); or what that process answered, with its message. Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_control_ask(int process, const rvl_control_request *request,
                                   rvl_control_answer *answer_out);

#ifdef __cplusplus
}
#endif
#endif
