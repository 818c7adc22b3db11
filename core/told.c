/* SPDX-License-Identifier: MIT */
#include "core/told.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

/* Both of reveille/hooks.h. */
static rvl_status (*hooks_stage)(const char *name);
static rvl_status (*hooks_step)(void);

static pthread_once_t look_once = PTHREAD_ONCE_INIT;
static _Atomic bool nobody;

static void look(void)
{
    void *stage = dlsym(RTLD_DEFAULT, "rvl_hooks_stage");
    void *step = dlsym(RTLD_DEFAULT, "rvl_hooks_step");
    if (stage == NULL || step == NULL)
        return;
    memcpy(&hooks_stage, &stage, sizeof stage);
    memcpy(&hooks_step, &step, sizeof step);
}

static bool somebody(void)
{
    if (atomic_load_explicit(&nobody, memory_order_relaxed))
        return false;
    pthread_once(&look_once, look);
    return hooks_stage != NULL;
}

void rvli_tell_stage(const char *name)
{
    if (somebody())
        (void)hooks_stage(name);
}

void rvli_tell_step(void)
{
    if (somebody())
        (void)hooks_step();
}

void rvli_tell_nobody(void)
{
    atomic_store(&nobody, true);
}
