/* SPDX-License-Identifier: MIT */
/* What is read of a context, marks, texts, and arguments that every call must refuse. */
#include <stdio.h>
#include <string.h>

#include "actions.h"
#include "random.h"
#include "reveille/calibrate.h"
#include "reveille/replay.h"

#define HOLDERS_MAX 64
#define STAGES_MAX 40 /* of one thread in a round */

/* ---- Tags ---- */

static void compare_tag(owner *o, int i, const rvl_tag_stats *stats)
{
    caller *by = &o->by;
    const owned_tag *tag = &o->tags[i];
    tag_sums sums = owner_sums(o, i);
    uint64_t active = 0, paused = 0, peak = 0;
    for (int device = 0; device < DEVICES_MAX; device++) {
        active += sums.active_bytes[device];
        paused += sums.paused_bytes[device];
        peak += tag->peak_bytes[device];
    }
    EXPECT(by, stats->allocation_count, sums.count);
    if (tag->blurred)
        return;
    EXPECT(by, stats->pauses >= tag->pauses, true);
    EXPECT_WITHIN(by, stats->active_bytes, active, tag->shares ? UINT64_MAX : active);
    EXPECT_WITHIN(by, stats->paused_bytes, paused, tag->shares ? UINT64_MAX : paused);
    EXPECT_WITHIN(by, stats->peak_bytes, peak, tag->shares ? UINT64_MAX : peak);
    EXPECT_WITHIN(by, stats->host_backup_bytes, sums.host_bytes,
                  tag->shares ? UINT64_MAX : sums.host_bytes);
    if (tag->shares)
        return;
    EXPECT(by, stats->pauses, tag->pauses);
    EXPECT(by, stats->resumes, tag->resumes);
}

void action_tag_stats(owner *o)
{
    for (int i = 0; i < OWNER_TAGS; i++) {
        rvl_tag_stats stats = {.struct_size = sizeof stats};
        ANSWER(&o->by, MAY_OK, rvl_tag_get_stats, o->in->context, o->tags[i].number, -1, &stats);
        compare_tag(o, i, &stats);
    }
}

/* ---- Devices ---- */

static void compare_device(owner *o, int device)
{
    const arena *in = o->in;
    caller *by = &o->by;
    rvl_device_stats stats = {.struct_size = sizeof stats};
    ANSWER(by, MAY_OK, rvl_device_get_stats, in->context, device, &stats);
    EXPECT(by, stats.capacity_bytes, in->capacity_bytes);
    EXPECT(by, stats.allocation_count, stats.alloc_calls - stats.free_calls);
    EXPECT_WITHIN(by, stats.peak_bytes, stats.used_bytes, UINT64_MAX);
    EXPECT_WITHIN(by, stats.used_bytes, stats.external_bytes + stats.kept_bytes, UINT64_MAX);
    EXPECT_WITHIN(by, stats.host_backup_bytes, 0, stats.host_peak_bytes);
    EXPECT_WITHIN(by, stats.disk_backup_bytes, 0, stats.disk_peak_bytes);
    EXPECT_WITHIN(by, stats.kept_bytes, 0, in->keep_bytes);
    if (!in->overcommit && !in->faulty)
        EXPECT_WITHIN(by, stats.peak_bytes, 0, in->capacity_bytes);
    if (!in->faulty)
        EXPECT_WITHIN(by, stats.used_bytes, owner_used_bytes(o, device), UINT64_MAX);
    bool oom = CALL(by, rvl_device_overcommitted, in->context, device);
    if (in->threads == 1 || !oom)
        EXPECT_WITHIN(by, stats.oom.happened, 0, oom);
}

void action_device(owner *o)
{
    const arena *in = o->in;
    caller *by = &o->by;
    EXPECT(by, CALL(by, rvl_device_count, in->context), in->devices);
    int device = (int)random_below(&by->random, (uint64_t)in->devices);
    compare_device(o, device);
    rvl_device_info info = {.struct_size = sizeof info};
    ANSWER(by, MAY_OK, rvl_device_get_info, in->context, device, &info);
    EXPECT(by, info.capacity_bytes, in->capacity_bytes);
    EXPECT(by, info.granularity_bytes, GRANULE_BYTES);
    EXPECT(by, info.simulated, true);
    EXPECT(by, info.overcommit, in->overcommit);
    uint64_t free_bytes = 0, total_bytes = 0;
    if (ANSWER(by, MAY_OK | may_by_fault(o), rvl_device_get_memory, in->context, device,
               &free_bytes, &total_bytes) == RVL_OK) {
        EXPECT(by, total_bytes, in->capacity_bytes);
        EXPECT_WITHIN(by, free_bytes, 0, total_bytes);
    }
    char text[RVL_SUMMARY_BYTES] = "";
    if (ANSWER(by, MAY_OK | may_by_fault(o), rvl_device_get_summary, in->context, device, text,
               sizeof text) == RVL_OK)
        EXPECT(by, strncmp(text, "Reveille ", 9), 0);
    rvl_host_memory memory = {.struct_size = sizeof memory};
    if (ANSWER(by, MAY_OK | may_by_fault(o), rvl_host_get_memory, in->context, &memory) == RVL_OK)
        EXPECT(by, memory.pageable_bytes, 0);
    ANSWER(by, MAY_OK | may_by_fault(o), rvl_device_synchronize, in->context, device);
    ANSWER(by, MAY_OK | may_by_fault(o), rvl_host_trim, in->context, random_below(&by->random, 2));
    uint64_t before_ns = CALL(by, rvl_clock_ns, in->context);
    EXPECT_WITHIN(by, CALL(by, rvl_clock_ns, in->context), before_ns, UINT64_MAX);
}

/* ---- Marks ---- */

void action_marks(owner *o)
{
    caller *by = &o->by;
    const arena *in = o->in;
    if (o->stages >= STAGES_MAX)
        return;
    char name[16];
    snprintf(name, sizeof name, "stage%d", (int)random_below(&by->random, 3));
    uint32_t before = CALL(by, rvl_stage_count, in->context);
    ANSWER(by, MAY_OK, rvl_stage, in->context, name);
    o->stages++;
    uint32_t count = CALL(by, rvl_stage_count, in->context);
    EXPECT_WITHIN(by, count, before + 1, in->threads == 1 ? before + 1 : UINT32_MAX);
    if (random_one_in(&by->random, 3)) {
        ANSWER(by, MAY_OK, rvl_step, in->context);
        o->steps++;
    }
    if (in->threads > 1)
        return;
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    ANSWER(by, MAY_OK, rvl_stage_get_stats, in->context, count - 1, 0, &stats);
    EXPECT(by, count, o->stages + 1);
    EXPECT(by, strcmp(stats.mark, name), 0);
    EXPECT(by, strncmp(stats.name, name, strlen(name)), 0);
    EXPECT_WITHIN(by, stats.step, 0, o->steps);
}

/* What a stage that has ended says does not change any more, and its holders sum to its peak. */
void action_stages(owner *o)
{
    caller *by = &o->by;
    rvl_context *context = o->in->context;
    uint32_t count = CALL(by, rvl_stage_count, context);
    uint32_t stage = (uint32_t)random_below(&by->random, count);
    int device = (int)random_below(&by->random, (uint64_t)o->in->devices);
    if (stage == count - 1 && o->in->threads > 1)
        return;
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    ANSWER(by, MAY_OK, rvl_stage_get_stats, context, stage, device, &stats);
    EXPECT_WITHIN(by, stats.end_bytes, 0, stats.peak_bytes);
    if (stats.peak_bytes < o->in->capacity_bytes)
        EXPECT(by, stats.free_at_peak_bytes, o->in->capacity_bytes - stats.peak_bytes);
    rvl_holder holders[HOLDERS_MAX];
    size_t holder_count = 0;
    ANSWER(by, MAY_OK, rvl_stage_get_holders, context, stage, device, holders, sizeof *holders,
           HOLDERS_MAX, &holder_count);
    uint64_t sum = 0;
    for (size_t i = 0; i < holder_count && i < HOLDERS_MAX; i++) {
        sum += holders[i].bytes;
        EXPECT(by, i == 0 || holders[i].bytes <= holders[i - 1].bytes, true);
    }
    if (holder_count <= HOLDERS_MAX)
        EXPECT(by, sum, stats.peak_bytes);
}

void action_external(owner *o)
{
    caller *by = &o->by;
    const arena *in = o->in;
    int device = (int)random_below(&by->random, (uint64_t)in->devices);
    uint64_t bytes = random_below(&by->random, EXTERNAL_GRANULES_MAX * GRANULE_BYTES);
    uint64_t before = o->external_bytes[device];
    uint64_t needed[DEVICES_MAX] = {0};
    needed[device] = bytes > before ? bytes - before : 0;
    uint32_t may = owner_may_fit(o, needed) | may_by_fault(o);
    if (needed[device] > 0 && in->keep_bytes > 0 && !in->overcommit)
        may |= MAY(RVL_ERR_DEVICE_OOM); /* blocks that are kept do not give way to others */
    if (ANSWER(by, may, rvl_external_set, in->context, device, o->cause, bytes) == RVL_OK)
        o->external_bytes[device] = bytes;
}

/* ---- Texts and numbers that need no context ---- */

void action_texts(owner *o)
{
    caller *by = &o->by;
    EXPECT(by, strcmp(CALL_NONE(by, rvl_version), RVL_VERSION_STRING), 0);
    EXPECT(by, strcmp(CALL(by, rvl_state_text, RVL_STATE_PAUSED), "paused"), 0);
    EXPECT(by, strcmp(CALL(by, rvl_status_name, RVL_ERR_FORKED), "RVL_ERR_FORKED"), 0);
    EXPECT(by, strcmp(CALL(by, rvl_status_text, (rvl_status)-99), "unknown status"), 0);
    rvl_error error = {.struct_size = sizeof error};
    ANSWER(by, MAY_OK, rvl_last_error, &error);
    EXPECT(by, error.status, by->before.status);

    uint64_t bytes = 0, number = random_below(&by->random, 1000) + 1;
    char text[32];
    snprintf(text, sizeof text, "%llu.5KiB", (unsigned long long)number);
    ANSWER(by, MAY_OK, rvl_size_parse, text, &bytes);
    EXPECT(by, bytes, number * 1024 + 512);
    ANSWER(by, MAY(RVL_ERR_INVALID), rvl_size_parse, "12 apples", &bytes);

    size_t count = CALL_NONE(by, rvl_profile_count);
    rvl_profile profile = {.struct_size = sizeof profile}, same = {.struct_size = sizeof same};
    ANSWER(by, MAY_OK, rvl_profile_get, random_below(&by->random, count), &profile);
    ANSWER(by, MAY_OK, rvl_profile_find, profile.name, &same);
    EXPECT(by, same.capacity_bytes, profile.capacity_bytes);
    ANSWER(by, MAY_OK, rvl_profile_load, profile.name, &same);
    EXPECT(by, same.capacity_bytes, profile.capacity_bytes);
    const rvl_measurement create = {.act = "create", .unit = "ns", .median_value = 1000 * number};
    uint64_t costs = 0;
    ANSWER(by, MAY_OK, rvl_profile_fit, &same, &create, sizeof create, 1, &costs);
    EXPECT(by, costs, 1u << RVL_COST_INDEX_create);
    EXPECT(by, same.cost.create.call_ns, 1000 * number);
    ANSWER(by, MAY(RVL_ERR_IO), rvl_profile_load, "/no such folder/card.json", &same);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_profile_get, count, &profile);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND) | MAY(RVL_ERR_INVALID), rvl_profile_find, "no such gpu",
           &profile);
}

/* ---- What is refused, and changes nothing ---- */

static void refuse_allocations(owner *o)
{
    caller *by = &o->by;
    rvl_context *context = o->in->context;
    const uint32_t invalid = MAY(RVL_ERR_INVALID);
    rvl_addr addr = 1;
    rvl_alloc_options options = {.struct_size = sizeof options, .device = o->in->devices};
    ANSWER(by, invalid, rvl_alloc, NULL, 1, NULL, &addr);
    ANSWER(by, invalid, rvl_alloc, context, 0, NULL, &addr);
    ANSWER(by, invalid, rvl_alloc, context, UINT64_MAX, NULL, &addr);
    ANSWER(by, invalid, rvl_alloc, context, 1, NULL, NULL);
    ANSWER(by, MAY(RVL_ERR_NO_DEVICE), rvl_alloc, context, 1, &options, &addr);
    options = (rvl_alloc_options){.struct_size = sizeof options, .flags = 1u << 31};
    ANSWER(by, MAY(RVL_ERR_VERSION), rvl_alloc, context, 1, &options, &addr);
    options = (rvl_alloc_options){.struct_size = sizeof options, .tag_id = UINT32_MAX};
    ANSWER(by, invalid, rvl_alloc, context, 1, &options, &addr);
    EXPECT(by, addr, 1);
    ANSWER(by, invalid, rvl_free, context, 1);
    for (int i = 0; i < OWNER_SLOTS; i++)
        if (o->slots[i].addr != 0)
            ANSWER(by, invalid, rvl_free, context, o->slots[i].addr + 1);
}

static void refuse_transitions(owner *o)
{
    caller *by = &o->by;
    rvl_context *context = o->in->context;
    const uint32_t invalid = MAY(RVL_ERR_INVALID);
    rvl_tag tags[2] = {o->tags[1].number, UINT32_MAX};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    ANSWER(by, invalid, rvl_pause, context, tags, 2, NULL);
    ANSWER(by, invalid, rvl_resume, context, tags, 2, NULL);
    ANSWER(by, invalid, rvl_pause_forecast, context, tags, 2, NULL, &forecast);
    ANSWER(by, invalid, rvl_resume_forecast, context, tags, 2, NULL, &forecast);
    ANSWER(by, invalid, rvl_pause, context, NULL, 1, NULL);
    rvl_resuming *wake = NULL;
    ANSWER(by, invalid, rvl_resume_start, context, tags, 2, NULL, &wake);
    ANSWER(by, invalid, rvl_resume_start, context, tags, 1, NULL, NULL);
    ANSWER(by, invalid, rvl_resume_start_prepare, context, tags, 2, NULL, &wake);
    ANSWER(by, invalid, rvl_resume_start_commit, NULL);
    ANSWER(by, invalid, rvl_resume_start_abort, NULL);
    ANSWER(by, invalid, rvl_resume_finish, NULL);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_allocation_wait, context, 1, RVL_WAIT_FOREVER);
    struct {
        rvl_pause_options known;
        uint64_t newer;
    } newer = {.known = {.struct_size = sizeof newer}, .newer = 1};
    ANSWER(by, MAY(RVL_ERR_VERSION), rvl_pause, context, tags, 1, &newer.known);
}

/* What no store can be: nothing is made, and nobody is asked. */
static void refuse_stores(caller *by)
{
    const uint32_t invalid = MAY(RVL_ERR_INVALID);
    rvl_store *store = NULL;
    const rvl_store_options nowhere = {.struct_size = sizeof nowhere,
                                       .path = "/nowhere/at/all/store"};
    rvl_store_stats stats = {.struct_size = sizeof stats};
    ANSWER(by, invalid, rvl_store_open, NULL, &store);
    ANSWER(by, MAY(RVL_ERR_IO), rvl_store_open, &nowhere, &store);
    ANSWER(by, invalid, rvl_store_serve, store, -1);
    ANSWER(by, MAY(RVL_ERR_IO), rvl_store_get_stats, nowhere.path, &stats);
    CALL(by, rvl_store_close, store);
}

static void refuse_the_rest(owner *o)
{
    caller *by = &o->by;
    rvl_context *context = o->in->context;
    const uint32_t invalid = MAY(RVL_ERR_INVALID), no_device = MAY(RVL_ERR_NO_DEVICE);
    rvl_tag tag = 0;
    rvl_process process = 0;
    rvl_context *opened = NULL;
    rvl_allocation found = {.struct_size = sizeof found};
    rvl_stage_stats stage = {.struct_size = sizeof stage};
    ANSWER(by, invalid, rvl_process_define, context, "", &process);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_tag_find, context, o->process, "never", &tag);
    ANSWER(by, invalid, rvl_stage, context, "");
    ANSWER(by, invalid, rvl_external_set, context, 0, NULL, 1);
    ANSWER(by, no_device, rvl_external_set, context, RVL_MAX_DEVICES, "cause", 1);
    ANSWER(by, no_device, rvl_device_get_info, context, -1, NULL);
    ANSWER(by, no_device, rvl_device_synchronize, context, o->in->devices);
    ANSWER(by, invalid, rvl_tag_set_retain_backups, context, UINT32_MAX, true);
    ANSWER(by, invalid, rvl_host_trim, NULL, 0);
    refuse_stores(by);
    ANSWER(by, no_device, rvl_device_get_summary, context, o->in->devices, NULL, 0);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_allocation_find, context, 1, &found);
    ANSWER(by, MAY(RVL_ERR_NOT_FOUND), rvl_stage_get_stats, context, UINT32_MAX, 0, &stage);
    ANSWER(by, MAY(RVL_ERR_NO_BACKEND), rvl_context_open, "none", NULL, &opened);
    ANSWER(by, MAY_OK, rvl_context_close, NULL, NULL);
    EXPECT(by, strcmp(CALL(by, rvl_tag_name, context, UINT32_MAX), ""), 0);
}

void action_refused(owner *o)
{
    void (*const refuse[])(owner *) = {refuse_allocations, refuse_transitions, refuse_the_rest};
    refuse[random_below(&o->by.random, 3)](o);
}
