/* SPDX-License-Identifier: MIT */
/*
 * Sleep: the process uses no memory of its devices.
 *
 * A pause leaves what no tag can hold: contexts, graphs, kernels, streams. A sleep pauses all tags
 * and then has the driver take the rest of the process off the devices (the process checkpoint of
 * CUDA 12.8 and newer). A wake does the opposite: afterwards addresses, graphs and streams are as
 * before.
 *
 * On real devices the process sleeps as a whole, with all its contexts, and `context` may be any of
 * them or NULL. A simulated context sleeps by itself.
 *
 * While a process sleeps, every call about its contexts returns RVL_ERR_STATE. The process must not
 * call CUDA otherwise: some calls wait until it wakes, and some end the process (docs/sleep.md).
 */
#ifndef REVEILLE_SLEEP_H
#define REVEILLE_SLEEP_H

#include "reveille/transition.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of a sleep. */
#define RVL_SLEEP_DISCARD 1u       /* skip the backups: the content is about to be overwritten */
#define RVL_SLEEP_SHARED_EVENTS 2u /* sleep even if events of other processes are open here */

typedef struct rvl_sleep_options {
    size_t struct_size;
    uint64_t flags;      /* RVL_SLEEP_* */
    uint64_t timeout_ns; /* how long to wait for other threads' calls, and then for the devices;
                            0: ten seconds */
} rvl_sleep_options;

/*
 * Puts the process to sleep. When it returns RVL_OK, all device memory of the process is free for
 * others. After a failure the process is awake. If another process meanwhile took memory that
 * cannot be reclaimed, tags stay paused, and the message says so.
 *
 * A process that could not wake up is refused before anything is done. Returns as rvl_pause();
 * RVL_ERR_BUSY (memory or events of another process are open here, a transition is prepared, a
 * resume is in progress, another program has locked the process, or rvl_sleep_forbid() was called);
 * RVL_ERR_NOT_SUPPORTED (the driver is older than CUDA 12.8, nvidia-smi is missing, the process has
 * managed memory, or rvl_communicator_check_sleep() refuses a communicator); RVL_ERR_STATE (the
 * process already sleeps); RVL_ERR_TIMEOUT (calls or work on the devices did not end in time);
 * RVL_ERR_INVALID (`context` is NULL, and no context on real devices is open); RVL_ERR_IO (the
 * driver failed. native_code of rvl_last_error() has its error). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_sleep(rvl_context *context, const rvl_sleep_options *options);

/* Flags of a wake. */
#define RVL_WAKE_UP_PAUSED                                                                         \
    1u /* the tags stay paused: call rvl_resume() for each as you need it                          \
        */

typedef struct rvl_wake_up_options {
    size_t struct_size;
    uint64_t flags;      /* RVL_WAKE_UP_* */
    uint64_t timeout_ns; /* how long to wait for others to free memory; 0: do not wait */
} rvl_wake_up_options;

/*
 * Wakes the process, and resumes the tags that the sleep has paused. Tags that were paused before
 * stay paused. It first makes sure that there is room, because the driver loses a process that it
 * restores without room. After a failure the process is still asleep.
 *
 * Returns as rvl_resume(); RVL_ERR_STATE (the process does not sleep); RVL_ERR_BUSY (another thread
 * is putting the process to sleep or waking it); RVL_ERR_TIMEOUT (memory was not freed in time);
 * RVL_ERR_DEVICE_LOST (the driver could not restore the process, and never will. End it).
 * Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_wake_up(rvl_context *context, const rvl_wake_up_options *options);

/*
 * Returns whether the context sleeps, or is going to sleep or waking. NULL: this process.
 * Thread-safe. Since 0.1.
 */
RVL_API bool rvl_context_is_asleep(const rvl_context *context);

/*
 * Forecasts rvl_sleep() with these arguments. Changes nothing. In the result, sizes are those of
 * the pause. time_ns is for all steps, and assumes an H100 for the driver's steps. Returns as
 * rvl_sleep(). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_sleep_forecast(rvl_context *context, const rvl_sleep_options *options,
                                      rvl_forecast *forecast_out);

/*
 * Forecasts rvl_wake_up(). Sizes and time are as in rvl_sleep_forecast(). Returns as rvl_wake_up().
 * Since 0.1.
 */
RVL_API rvl_status rvl_wake_up_forecast(rvl_context *context, const rvl_wake_up_options *options,
                                        rvl_forecast *forecast_out);

/*
 * Forbids sleeping from now on, for a reason that Reveille cannot see: call it when you open memory
 * of another process through CUDA yourself. why: a sentence that names what to close; it is copied.
 * key: any number that you choose, such as an address. The same key may be used several times.
 * Returns RVL_OK; RVL_ERR_INVALID (`why` is NULL or empty); RVL_ERR_HOST_OOM. Thread-safe. Since
 * 0.1.
 */
RVL_API rvl_status rvl_sleep_forbid(uint64_t key, const char *why);

/*
 * Undoes one rvl_sleep_forbid() with that key. Returns RVL_OK or RVL_ERR_NOT_FOUND (nothing is
 * forbidden by that key). Thread-safe. Since 0.1.
 */
RVL_API rvl_status rvl_sleep_allow(uint64_t key);

#ifdef __cplusplus
}
#endif
#endif
