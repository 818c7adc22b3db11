/* SPDX-License-Identifier: MIT */
/*
 * A fork at any moment, with other threads anywhere in the library. The child is refused by the
 * inherited context, has one of its own, and ends or is killed; the parent's goes on.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "actions.h"
#include "adversary.h"
#include "random.h"
#include "round.h"

#define CHILD_STEPS 60
#define KILLED_WITHIN_US 20000

/*
 * The address sanitizer of GCC 12 does not unlock its allocator in a child. If another thread was
 * inside it, the child's first malloc() waits forever.
 */
#if defined(__SANITIZE_ADDRESS__)
#define MAY_FORK_BESIDE_THREADS false
#else
#define MAY_FORK_BESIDE_THREADS true
#endif

bool stress_is_child;

static void be_refused(owner *o)
{
    caller *by = &o->by;
    rvl_context *context = o->in->context;
    const uint32_t forked = MAY(RVL_ERR_FORKED);
    rvl_tag tag = o->tags[1].number;
    rvl_process process = 0;
    rvl_addr addr = 0;
    rvl_allocation found = {.struct_size = sizeof found};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_device_info info = {.struct_size = sizeof info};
    rvl_device_stats stats = {.struct_size = sizeof stats};
    rvl_tag_stats tag_stats = {.struct_size = sizeof tag_stats};
    rvl_stage_stats stage = {.struct_size = sizeof stage};
    rvl_export exported = {.struct_size = sizeof exported};
    rvl_import *import = NULL;
    rvl_transition *transition = NULL;
    rvl_resuming *wake = NULL;
    rvl_host_memory memory = {.struct_size = sizeof memory};
    const rvl_refusal refusal = {.struct_size = sizeof refusal, .requested_bytes = 1};
    const rvl_mark mark = {.struct_size = sizeof mark, .kind = RVL_EVENT_STAGE, .name = "child"};
    const void *host = NULL;
    int fd = -1;
    uint64_t one = 0, other = 0;
    size_t count = 0;
    ANSWER(by, forked, rvl_alloc, context, 1, NULL, &addr);
    ANSWER(by, forked, rvl_free, context, o->slots[0].addr);
    ANSWER(by, forked, rvl_pause, context, &tag, 1, NULL);
    ANSWER(by, forked, rvl_resume, context, &tag, 1, NULL);
    ANSWER(by, forked, rvl_pause_prepare, context, &tag, 1, NULL, &transition);
    ANSWER(by, forked, rvl_resume_prepare, context, &tag, 1, NULL, &transition);
    ANSWER(by, forked, rvl_resume_start, context, &tag, 1, NULL, &wake);
    ANSWER(by, forked, rvl_resume_start_prepare, context, &tag, 1, NULL, &wake);
    ANSWER(by, forked, rvl_allocation_wait, context, o->slots[0].addr, 0);
    ANSWER(by, forked, rvl_pause_forecast, context, &tag, 1, NULL, &forecast);
    ANSWER(by, forked, rvl_resume_forecast, context, &tag, 1, NULL, &forecast);
    ANSWER(by, forked, rvl_stage, context, "child");
    ANSWER(by, forked, rvl_step, context);
    ANSWER(by, forked, rvl_external_set, context, 0, "child", 1);
    ANSWER(by, forked, rvl_process_define, context, "child", &process);
    ANSWER(by, forked, rvl_tag_define, context, "child", NULL, &tag);
    ANSWER(by, forked, rvl_tag_find, context, 0, "child", &tag);
    ANSWER(by, forked, rvl_allocation_find, context, o->slots[0].addr, &found);
    ANSWER(by, forked, rvl_allocation_next, context, 0, &found);
    ANSWER(by, forked, rvl_backup_find, context, 1, &host, &one);
    ANSWER(by, forked, rvl_backup_find_file, context, 1, &fd, &one, &other);
    ANSWER(by, forked, rvl_context_set_guard, context, NULL);
    ANSWER(by, forked, rvl_tag_set_retain_backups, context, tag, true);
    ANSWER(by, forked, rvl_device_synchronize, context, 0);
    ANSWER(by, forked, rvl_host_trim, context, 0);
    ANSWER(by, forked, rvl_allocation_export, context, o->slots[0].addr, NULL, &fd, &one, 1,
           &exported);
    ANSWER(by, forked, rvl_import_begin, context, GRANULE_BYTES, NULL, &import);
    ANSWER(by, forked, rvl_import_pause, context, o->slots[0].addr);
    ANSWER(by, forked, rvl_import_resume, context, o->slots[0].addr);
    ANSWER(by, forked, rvl_import_release, context, o->slots[0].addr);
    ANSWER(by, forked, rvl_device_get_info, context, 0, &info);
    ANSWER(by, forked, rvl_device_get_stats, context, 0, &stats);
    ANSWER(by, forked, rvl_device_get_memory, context, 0, &one, &other);
    ANSWER(by, forked, rvl_tag_get_stats, context, tag, -1, &tag_stats);
    ANSWER(by, forked, rvl_stage_get_stats, context, 0, 0, &stage);
    ANSWER(by, forked, rvl_stage_get_holders, context, 0, 0, NULL, 0, 0, &count);
    ANSWER(by, forked, rvl_host_get_memory, context, &memory);
    ANSWER(by, forked, rvl_record_start, context, "child.rvt");
    ANSWER(by, forked, rvl_record_refuse, context, &refusal);
    ANSWER(by, forked, rvl_record_mark, context, &mark);
    ANSWER(by, forked, rvl_record_end, context, 0, 0, 0, NULL);
    ANSWER(by, forked, rvl_record_stop, context);
    ANSWER(by, forked, rvl_sleep, context, NULL);
    ANSWER(by, forked, rvl_wake_up, context, NULL);
    ANSWER(by, forked, rvl_sleep_forecast, context, NULL, &forecast);
    ANSWER(by, forked, rvl_wake_up_forecast, context, NULL, &forecast);
    ANSWER(by, forked, rvl_context_close, context, NULL);
}

static _Noreturn void be_child(owner *o)
{
    adversary_forget();
    stress_is_child = true;
    o->by.thread += 100;
    be_refused(o);
#if !defined(__SANITIZE_THREAD__) /* it cannot follow threads of a child of several threads */
    uint64_t digest = 0;
    snprintf(stress_folder + strlen(stress_folder), sizeof stress_folder - strlen(stress_folder),
             "/child-%d", (int)getpid());
    stress_folders_make();
    const round_options alone = {
        .seed = o->by.seed, .random = &o->by.random, .threads = 1, .steps = CHILD_STEPS};
    round_run(&alone, &digest);
    stress_folders_remove();
#endif
    _exit(0);
}

void action_fork(owner *o)
{
    bool kills = random_one_in(&o->by.random, 3);
    uint64_t after_us = random_below(&o->by.random, KILLED_WITHIN_US);
    if (o->in->threads > 1 && !MAY_FORK_BESIDE_THREADS)
        return;
    counts->forks++;
    pid_t child = fork();
    if (child < 0)
        calls_give_up("fork");
    if (child == 0)
        be_child(o);
    if (kills) {
        nanosleep(&(struct timespec){.tv_nsec = (long)after_us * 1000}, NULL);
        kill(child, SIGKILL);
    }
    int status = wait_for_child(child);
    bool killed = kills && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    counts->killed_children += killed;
    if (!killed)
        EXPECT(&o->by, status, 0);
}
