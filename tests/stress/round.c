/* SPDX-License-Identifier: MIT */
#include "round.h"

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "actions.h"
#include "adversary.h"
#include "backends/sim/sim.h"
#include "random.h"
#include "tests/support/support.h"

#define KEEP_GRANULES 8
#define TOURS_MAX 40
#define FILES_CLOSE_WITHIN_MS 2000

/* ---- What may be done ---- */

static const action actions[] = {
    {action_alloc, 220, "alloc"},
    {action_free, 90, "free"},
    {action_pause, 80, "pause"},
    {action_resume, 110, "resume"},
    {action_forecast, 60, "forecast"},
    {action_find, 60, "find"},
    {action_find_backup, 60, "find_backup"},
    {action_touch, 80, "touch"},
    {action_tag, 30, "tag"},
    {action_tag_stats, 30, "tag_stats"},
    {action_device, 30, "device"},
    {action_marks, 15, "marks"},
    {action_external, 15, "external"},
    {action_stages, 20, "stages"},
    {action_texts, 10, "texts"},
    {action_refused, 20, "refused"},
    {action_shared, 90, "shared"},
    {action_guard, 15, "guard"},
    {action_listen, 5, "listen"},
    {action_share, 20, "share"},
    {action_sleep, 2, "sleep"},
    {action_trace, 2, "trace"},
    {action_fork, 1, "fork"},
#ifdef STRESS_HOOKS
    {action_hooks, 2, "hooks"},
#endif
};
#define ACTION_COUNT (sizeof actions / sizeof *actions)

/* These take long, and touch no context: of so many threads one does it, once. */
static const action rare_actions[] = {{action_model, 8, "model"},
                                      {action_snapshot, 40, "snapshot"}};
#define RARE_COUNT (sizeof rare_actions / sizeof *rare_actions)

static void run_action(owner *o, const action *what)
{
    o->by.step++;
    o->by.function = what->name;
    o->by.arguments = "";
    what->run(o);
}

static const action *any_action(owner *o)
{
    unsigned total = 0;
    for (size_t i = 0; i < ACTION_COUNT; i++)
        total += actions[i].weight;
    uint64_t drawn = random_below(&o->by.random, total);
    const action *each = actions;
    while (drawn >= each->weight)
        drawn -= each++->weight;
    return each;
}

/* ---- Opening ---- */

static arena draw_arena(const round_options *options)
{
    uint64_t *random = options->random;
    arena in = {.threads = options->threads};
    in.devices = 1 + (int)random_below(random, DEVICES_MAX);
    in.accounted = random_one_in(random, 3);
    in.overcommit = random_one_in(random, 6);
    in.has_disk = !random_one_in(random, 3);
    in.verifies = !random_one_in(random, 4);
    in.faulty = !options->tour && random_one_in(random, 4);
    in.roomy = random_one_in(random, 2);
    in.keep_bytes = random_one_in(random, 2) ? KEEP_GRANULES * GRANULE_BYTES : 0;
    in.shared_bytes_max =
        in.threads > 1 ? ((uint64_t)in.threads * SHARED_SLOTS + SHARED_TAGS) * SHARED_BYTES : 0;
    uint64_t most = (uint64_t)in.threads * OWNER_BYTES_MAX + in.shared_bytes_max + in.keep_bytes;
    uint64_t least = (uint64_t)in.threads * 24 * GRANULE_BYTES;
    in.capacity_bytes = in.roomy ? 2 * most : least;
    return in;
}

static void drop_line(void *user, rvl_log_level level, const char *message)
{
    (void)user, (void)level, (void)message;
}

static void open_context(stress_round *r, caller *by, uint64_t *random)
{
    arena *in = &r->in;
    rvl_profile profile = {.struct_size = sizeof profile};
    ANSWER(by, MAY_OK, rvl_profile_find, "h200", &profile);
    profile.name = NULL;
    profile.capacity_bytes = in->capacity_bytes;
    profile.granularity_bytes = GRANULE_BYTES;
    const rvl_profile *profiles[DEVICES_MAX] = {&profile, &profile};
    rvl_sim_options sim = {.struct_size = sizeof sim,
                           .memory = in->accounted ? RVL_SIM_ACCOUNTED : RVL_SIM_BACKED,
                           .flags = in->overcommit ? RVL_SIM_OVERCOMMIT : 0,
                           .devices = profiles,
                           .device_count = (size_t)in->devices};
    rvl_context_options options = {.struct_size = sizeof options,
                                   .backend_options = &sim,
                                   .log = random_one_in(random, 3) ? drop_line : NULL,
                                   .keep_bytes = in->keep_bytes,
                                   .disk_directory = in->has_disk ? stress_disk_folder : NULL,
                                   .flags = RVL_CONTEXT_LOG_OPS | RVL_CONTEXT_DISK_TMPFS |
                                            (in->verifies ? 0 : RVL_CONTEXT_NO_VERIFY)};
    if (in->faulty) {
        rvl_status status = fault_context_open(&rvli_sim_ops, &options, &in->fault, &in->context);
        EXPECT(by, status, RVL_OK);
    } else {
        ANSWER(by, MAY_OK, rvl_context_open, "sim", &options, &in->context);
    }
}

static void begin_recording(stress_round *r, const round_options *options, caller *by)
{
    if (!options->tour && !options->keeps_trace && random_one_in(options->random, 2))
        return;
    snprintf(r->trace, sizeof r->trace, "%s/run.rvt", stress_folder);
    /* Where it replaces an older one its draft has a name for a moment, and a kill may fall there.
     */
    if (options->keeps_trace)
        unlink(r->trace);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_record_stop, r->in.context);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_record_start, r->in.context, "run.rvt.zst");
    ANSWER(by, MAY_OK, rvl_record_start, r->in.context, r->trace);
    ANSWER(by, MAY(RVL_ERR_STATE), rvl_record_start, r->in.context, r->trace);
}

static void begin_shared(stress_round *r, caller *by)
{
    for (int i = 0; i < SHARED_TAGS && r->in.threads > 1; i++) {
        char name[16];
        snprintf(name, sizeof name, "shared%d", i);
        rvl_tag_options tag = {.struct_size = sizeof tag,
                               .flags = i == 1 ? RVL_TAG_RETAIN_BACKUPS : 0};
        ANSWER(by, MAY_OK, rvl_tag_define, r->in.context, name, &tag, &r->shared_tags[i]);
        rvl_alloc_options options = {
            .struct_size = sizeof options, .tag_id = r->shared_tags[i], .backup = RVL_BACKUP_HOST};
        ANSWER(by, MAY_OK, rvl_alloc, r->in.context, SHARED_BYTES, &options, &r->anchors[i]);
        if (!r->in.accounted)
            support_fill(r->anchors[i], SHARED_BYTES, (uint64_t)i + 1);
    }
}

/* ---- Running ---- */

static void tour(owner *o)
{
    for (int i = 0; i < TOURS_MAX; i++) {
        for (size_t a = 0; a < ACTION_COUNT; a++)
            if (actions[a].run != action_fork || i == 0)
                run_action(o, &actions[a]);
        for (size_t a = 0; a < RARE_COUNT && i < 3; a++)
            run_action(o, &rare_actions[a]);
    }
}

static void *run_owner(void *argument)
{
    owner *o = argument;
    int place = adversary_enter(&o->by);
    guard_enter(o);
    if (o->by.thread == 0 && o->round->tours)
        tour(o);
    for (unsigned i = 0; i < o->round->steps; i++) {
        const action *what = any_action(o);
        if (what->run != action_fork || o->round->forks)
            run_action(o, what);
    }
    for (size_t i = 0; i < RARE_COUNT; i++)
        if (random_one_in(&o->by.random, rare_actions[i].weight))
            run_action(o, &rare_actions[i]);
    owner_compare(o);
    guard_enter(NULL);
    adversary_leave(place);
    return NULL;
}

static void run_owners(stress_round *r)
{
    pthread_t threads[THREADS_MAX];
    if (r->in.threads == 1) {
        run_owner(&r->owners[0]);
        return;
    }
    for (int i = 0; i < r->in.threads; i++)
        if (pthread_create(&threads[i], NULL, run_owner, &r->owners[i]) != 0)
            calls_give_up("a thread cannot be started");
    for (int i = 0; i < r->in.threads; i++)
        pthread_join(threads[i], NULL);
}

/* ---- Closing ---- */

/* Open files, each passed on by its number and name. */
static size_t walk_files(void (*each)(const char *number, const char *name))
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (folder == NULL)
        calls_give_up("/proc/self/fd");
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL; count++) {
        char name[256];
        ssize_t length = each != NULL ? readlinkat(dirfd(folder), entry->d_name, name, 255) : -1;
        if (length >= 0) {
            name[length] = '\0';
            each(entry->d_name, name);
        }
    }
    closedir(folder);
    return count;
}

static size_t count_files(void)
{
    return walk_files(NULL);
}

static void print_file(const char *number, const char *name)
{
    fprintf(stderr, "stress: open: %s %s\n", number, name);
}

/*
 * Names those that are open if they are not as many as before. A thread that has answered another
 * process closes its end when it next gets to run.
 */
static void expect_files(caller *by, size_t files)
{
    size_t found = count_files();
    for (int ms = 0; found != files && ms < FILES_CLOSE_WITHIN_MS; ms++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
#ifdef STRESS_HOOKS
        hooks_settle();
#endif
        found = count_files();
    }
    if (found != files)
        walk_files(print_file);
    EXPECT(by, found, files);
}

static void close_context(stress_round *r, caller *by)
{
    uint64_t live = 0, expected = round_count_owned(r);
    uint32_t may = MAY_OK;
    if (r->in.faulty && random_one_in(&by->random, 3)) {
        fault_set(r->in.fault,
                  &(fault_plan){.op_mask = UINT64_MAX, .countdown = 1, .for_good = true});
        may |= may_by_fault(&r->owners[0]);
    }
    ANSWER(by, may, rvl_context_close, r->in.context, &live);
    EXPECT(by, live, expected);
}

void round_run(const round_options *options, uint64_t *digest)
{
    size_t files = count_files();
    stress_round r = {.in = draw_arena(options),
                      .steps = options->steps,
                      .tours = options->tour,
                      .forks = options->forks};
    caller by = {.seed = options->seed, .thread = -1, .random = random_next(options->random)};
    r.owners = calloc((size_t)r.in.threads, sizeof *r.owners);
    if (r.owners == NULL)
        calls_give_up("no memory for the model");
    open_context(&r, &by, options->random);
    begin_shared(&r, &by);
    if (options->tour || random_one_in(options->random, 2))
        guard_set(&r, &by, true);
    for (int i = 0; i < r.in.threads; i++) {
        owner_begin(&r.owners[i], &r.in, options->seed, random_next(options->random), i);
        r.owners[i].round = &r;
    }
    begin_recording(&r, options, &by);
    run_owners(&r);
    if (r.in.faulty)
        fault_set(r.in.fault, &(fault_plan){0});
    round_compare(&r, &by);
    round_compare_recording(&r, &by);
    close_context(&r, &by);
    if (!options->tour) /* the first opens what stays open, such as the driver */
        expect_files(&by, files);
    for (int i = 0; i < r.in.threads; i++)
        *digest = stress_mix(*digest ^ r.owners[i].by.digest);
    *digest = stress_mix(*digest ^ by.digest);
    free(r.owners);
    counts->rounds++;
}
