/* SPDX-License-Identifier: MIT */
/* What a thread may do next. Each is one call, or a few that belong together. */
#ifndef RVL_STRESS_ACTIONS_H
#define RVL_STRESS_ACTIONS_H

#include "owner.h"

typedef struct action {
    void (*run)(owner *o);
    unsigned weight;
    const char *name;
} action;

/* memory.c: allocations of the thread, and their transitions. */
void action_alloc(owner *o);
void action_free(owner *o);
void action_pause(owner *o);
void action_resume(owner *o);
void action_forecast(owner *o);
void action_find(owner *o);
void action_find_backup(owner *o);
void action_touch(owner *o);
void action_tag(owner *o);

/* reading.c: statistics, marks, texts, and arguments that are refused. */
void action_tag_stats(owner *o);
void action_device(owner *o);
void action_marks(owner *o);
void action_external(owner *o);
void action_stages(owner *o);
void action_texts(owner *o);
void action_refused(owner *o);

/* guards.c, listening.c, sharing.c: who is asked, who hears, and memory of other processes. */
void action_guard(owner *o);
void action_listen(owner *o);
void action_share(owner *o);

/* sleeping.c: a context of the thread's own goes to sleep. */
void action_sleep(owner *o);

/* traces.c, predict.c: what needs no context. */
void action_trace(owner *o);
void action_model(owner *o);
void action_snapshot(owner *o);

/* shared.c: tags that all threads move. */
void action_shared(owner *o);

/* forks.c: a child that is refused, has a context of its own, and may be killed. */
void action_fork(owner *o);

#ifdef STRESS_HOOKS
/* hooks.c: what is offered beside the hook libraries. */
void action_hooks(owner *o);

/* Lets the fake driver close what it keeps of memory that was exported. */
void hooks_settle(void);

/* communicators.c: those of NCCL, where none is loaded. Of any thread. */
void action_communicators(caller *by);
#endif

/* Compares all that the model has of the thread with what the library says. */
void owner_compare(owner *o);

/* What a call may answer beside its own when faults are about. */
uint32_t may_by_fault(const owner *o);

/*
 * Before and after each pause and resume of the thread, for the guard. touched: the tags that
 * allocations move of. otherwise: what may come if the guard lets it pass. Answers what may come.
 */
uint32_t guard_begin(owner *o, bool pause, unsigned touched, uint32_t otherwise);
/* The same for tags that other threads move too. */
uint32_t guard_begin_shared(owner *o, bool pause, uint32_t otherwise);
void guard_end(owner *o, rvl_status status);

/* In a forked child: what belongs to the whole process is the parent's. */
extern bool stress_is_child;

/* The folder of this process, and the one in it for backups on disk. */
extern char stress_folder[256];
extern char stress_disk_folder[300];
void stress_folders_make(void);
void stress_folders_remove(void);

/* Files of a trace that its own thread alone writes. */
void stress_path(const owner *o, const char *what, char *path_out, size_t size);

#endif
