/* SPDX-License-Identifier: MIT */
/*
 * What tests of a wake in order share: four layers on two devices, kept in several ways, and what
 * fails on demand. A test is linked with --wrap for malloc, calloc, pthread_create and
 * rvli_disk_queue_wait.
 *
 * Batches end where the device changes: neighbours in the order arrive one by one here.
 */
#ifndef RVL_TESTS_CORE_WAKE_SCENE_H
#define RVL_TESTS_CORE_WAKE_SCENE_H

#include <pthread.h>
#include <semaphore.h>

#include "tests/support/support.h"

/* Small granules: scenes are played thousands of times, and all content is digested. */
#undef GRANULE
#define GRANULE (UINT64_C(64) << 10)
#define COUNT 4
#define BYTES (2 * GRANULE)
#define CAPACITY (64 * GRANULE)
#define ALL_OPS ((UINT64_C(1) << RVLI_OP_COUNT) - 1)

/* ---- What fails ---- */

extern bool scene_no_thread;
extern _Atomic int scene_fail_read; /* the n-th wait for the disk from now on; 0: none */

/* ---- The scene ---- */

typedef struct layout {
    rvl_backup backup;
    uint64_t keep_bytes;
    uint64_t coalesce_bytes;
    bool retain;
} layout;

#define LAYOUTS 5
extern const layout layouts[LAYOUTS];

typedef struct scene {
    rvl_context *context;
    fault_injector *fault;
    rvl_addr layers[COUNT]; /* on devices 0, 1, 0, 1 */
    rvl_tag tag;
    int maps;
    /* Told by the library's thread: */
    rvl_arrival arrivals[COUNT];
    _Atomic int arrived;
    bool gated; /* after the first it goes on when told */
    sem_t first, go_on;
    char recording[32]; /* path; as scene_record() has made it */
} scene;

void scene_open_awake(scene *s, layout how);
void scene_open_asleep(scene *s, layout how);
void scene_close(scene *s);

/* Options of a resume that notes its arrivals. */
rvl_resume_options scene_told(scene *s);
rvl_resuming *scene_start(scene *s, const rvl_resume_options *options);

rvl_status scene_pause(scene *s);
rvl_status scene_resume(scene *s);

/* Changes a bit of a layer's backup. A second time it is right again. */
void scene_damage(const scene *s, int layer);

/* ---- What is so ---- */

rvl_state scene_state(const scene *s, int layer);
bool scene_holds(const scene *s, int layer);
void scene_check_awake(const scene *s);
/* All are paused, in host memory, and nothing of them is on a device. */
void scene_check_asleep(const scene *s);
/* What is asleep has its backup, what is awake its content; with the fault gone all comes back. */
void scene_check_recovers(scene *s);
rvl_error scene_error(void);

/* ---- Calls on other threads ---- */

typedef struct waiter {
    scene *s;
    rvl_status (*call)(scene *s);
    _Atomic pid_t thread;
    rvl_status answer;
    pthread_t self;
} waiter;

void waiter_run(waiter *w);
/* Returns once the call sleeps. */
void waiter_begin(waiter *w);
/* The call has succeeded. */
void waiter_end(waiter *w);

/* ---- Who is told ---- */

/* How often a guard was asked about resumes, and how they ended. */
typedef struct watch {
    int before, done, undone;
} watch;

rvl_guard watch_guard(watch *w);
rvl_guard watch_refusing_guard(void);

/* Records the context. Closing the scene then answers how many resumes the recording has. */
void scene_record(scene *s);
int scene_close_recorded(scene *s);

#endif
