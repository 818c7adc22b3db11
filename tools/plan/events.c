/* SPDX-License-Identifier: MIT */
/*
 * Events in memory, with the sizes of one tag scaled.
 *
 * What a process allocates under the tag on a device, from when none of it is live until none is
 * live again, is laid end to end in granules. Scaled by G / P, an allocation that lay from a to b
 * has floor(b G / P) - floor(a G / P) granules: together they have what G asks for, to the granule,
 * each as near its part as whole granules allow, and G = P changes nothing. What has no granule
 * left is left out, with its free, and pauses of what is not there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "plan/plan.h"

/* ---- Reading ---- */

static bool grow_events(plan_events *events, size_t *room)
{
    if (events->count < *room)
        return true;
    size_t wanted = *room > 0 ? 2 * *room : 1024;
    rvl_trace_event *grown = realloc(events->owned, wanted * sizeof *grown);
    if (grown == NULL)
        return false;
    events->owned = grown;
    *room = wanted;
    return true;
}

static rvl_status read_events(plan_events *events, rvl_trace_error *error)
{
    size_t room = 0;
    rvl_status status = RVL_OK;
    for (;;) {
        if (!grow_events(events, &room))
            return RVL_ERR_HOST_OOM;
        rvl_trace_event *event = &events->owned[events->count];
        status = rvl_trace_reader_next(events->reader, event, error);
        if (status != RVL_OK)
            break;
        if (event->process_index >= events->process_count)
            events->process_count = event->process_index + 1;
        events->count++;
    }
    events->events = events->owned;
    return status == RVL_ERR_NOT_FOUND ? RVL_OK : status;
}

static bool has_stage(const plan_events *events)
{
    for (size_t i = 0; i < events->count; i++) {
        if (events->events[i].kind == RVL_EVENT_STAGE)
            return true;
    }
    return false;
}

int plan_events_read(const plan_arguments *arguments, const char *const *paths, size_t path_count,
                     char *why, size_t why_size, plan_events *events_out)
{
    plan_events events = {0};
    rvl_trace_error error = {.struct_size = sizeof error};
    rvl_replay_options options = {.struct_size = sizeof options,
                                  .partial = arguments->partial,
                                  .snapshot_process = arguments->snapshot_process,
                                  .snapshot_device = arguments->snapshot_device};
    rvl_status status = rvl_replay_open_reader(paths, path_count, &options, &error, &events.reader);
    if (status == RVL_OK) {
        events.device_count = rvl_trace_reader_devices(events.reader, &events.devices);
        status = read_events(&events, &error);
    }
    if (status == RVL_OK && has_stage(&events)) {
        *events_out = events;
        return 0;
    }
    int code = EXIT_BAD_INPUT;
    if (status != RVL_OK)
        code = describe_replay(status, &error, why, why_size);
    else
        snprintf(why, why_size,
                 "%s: the trace has no stage, so there is none to fit: mark them with rvl_stage()",
                 paths[0]);
    plan_events_free(&events);
    return code;
}

void plan_events_of_step(const rvl_model_step *step, plan_events *events_out)
{
    plan_events events = {.devices = rvl_model_step_device(step), .device_count = 1};
    events.count = rvl_model_step_events(step, &events.events);
    for (size_t i = 0; i < events.count; i++) {
        if (events.events[i].process_index >= events.process_count)
            events.process_count = events.events[i].process_index + 1;
    }
    *events_out = events;
}

void plan_events_free(plan_events *events)
{
    free(events->shares);
    free(events->owned);
    rvl_trace_reader_close(events->reader);
    *events = (plan_events){0};
}

/* ---- Who has part in a tag ---- */

/* A process on a device. */
typedef struct group {
    uint32_t process;
    uint32_t device;
    uint64_t live;   /* allocations */
    uint64_t laid;   /* granules, since none was live */
    uint64_t in_use; /* granules */
} group;

typedef struct live_key {
    uint64_t id;
    uint64_t process;
} live_key;

typedef struct live_share {
    UT_hash_handle hh;
    live_key key;
    plan_share share;
} live_share;

typedef struct sharer {
    plan_events *events;
    const char *process; /* NULL: any */
    const char *tag;
    size_t room;
    group *groups;
    live_share *live;
    bool failed; /* no memory */
} sharer;

static bool is_scaled(const sharer *s, const rvl_trace_event *event)
{
    return event->tag != NULL && strcmp(event->tag, s->tag) == 0 &&
           (s->process == NULL || strcmp(event->process, s->process) == 0);
}

static void add_share(sharer *s, plan_share share)
{
    plan_events *events = s->events;
    if (events->share_count == s->room) {
        size_t room = s->room > 0 ? 2 * s->room : 64;
        plan_share *shares = realloc(events->shares, room * sizeof *shares);
        s->failed = s->failed || shares == NULL;
        if (shares == NULL)
            return;
        events->shares = shares;
        s->room = room;
    }
    events->shares[events->share_count++] = share;
}

static group *group_of(sharer *s, const rvl_trace_event *event)
{
    for (uint32_t i = 0; i < s->events->group_count; i++) {
        group *known = &s->groups[i];
        if (known->process == event->process_index && known->device == event->device)
            return known;
    }
    group *groups = realloc(s->groups, (s->events->group_count + 1) * sizeof *groups);
    s->failed = s->failed || groups == NULL;
    if (groups == NULL)
        return NULL;
    s->groups = groups;
    groups[s->events->group_count] =
        (group){.process = event->process_index, .device = event->device};
    return &groups[s->events->group_count++];
}

static void remember(sharer *s, const rvl_trace_event *event, const plan_share *share)
{
    live_share *live = calloc(1, sizeof *live);
    s->failed = s->failed || live == NULL;
    if (live == NULL)
        return;
    live->key = (live_key){.id = event->id, .process = event->process_index};
    live->share = *share;
    HASH_ADD(hh, s->live, key, sizeof live->key, live);
    if (live->hh.tbl == NULL) {
        s->failed = true;
        free(live);
    }
}

static void share_alloc(sharer *s, size_t index, const rvl_trace_event *event)
{
    plan_events *events = s->events;
    group *of = group_of(s, event);
    if (of == NULL)
        return;
    uint64_t granules =
        event->bytes / events->granularity_bytes + (event->bytes % events->granularity_bytes != 0);
    plan_share share = {.event = index,
                        .group = (uint32_t)(of - s->groups),
                        .process = event->process_index,
                        .sized = true,
                        .from = of->laid,
                        .to = of->laid + granules};
    of->laid += granules;
    of->in_use += granules;
    of->live++;
    if (of->in_use > events->peak_granules)
        events->peak_granules = of->in_use;
    if (events->process == NULL)
        events->process = event->process;
    add_share(s, share);
    remember(s, event, &share);
}

static void share_free(sharer *s, size_t index, const rvl_trace_event *event)
{
    live_share *live;
    live_key key = {.id = event->id, .process = event->process_index};
    HASH_FIND(hh, s->live, &key, sizeof key, live);
    if (live == NULL)
        return;
    plan_share share = live->share;
    group *of = &s->groups[share.group];
    of->in_use -= share.to - share.from;
    if (--of->live == 0)
        of->laid = 0;
    share.event = index;
    add_share(s, share);
    HASH_DEL(s->live, live);
    free(live);
}

static void share_event(sharer *s, size_t index, const rvl_trace_event *event)
{
    if (event->kind == RVL_EVENT_FREE) {
        share_free(s, index, event);
    } else if (!is_scaled(s, event)) {
        return;
    } else if (event->kind == RVL_EVENT_ALLOC) {
        share_alloc(s, index, event);
    } else {
        add_share(s, (plan_share){.event = index, .process = event->process_index});
    }
}

static rvl_status share(plan_events *events, const char *process, const char *tag)
{
    sharer s = {.events = events, .process = process, .tag = tag};
    live_share *live, *next;
    free(events->shares);
    events->shares = NULL;
    events->share_count = 0;
    events->group_count = 0;
    events->peak_granules = 0;
    events->process = NULL;
    for (size_t i = 0; i < events->count && !s.failed; i++)
        share_event(&s, i, &events->events[i]);
    HASH_ITER (hh, s.live, live, next) {
        HASH_DEL(s.live, live);
        free(live);
    }
    free(s.groups);
    if (s.failed)
        return RVL_ERR_HOST_OOM;
    return events->peak_granules > 0 ? RVL_OK : RVL_ERR_NOT_FOUND;
}

rvl_status plan_events_share(plan_events *events, const char *tag, uint64_t granularity_bytes)
{
    events->granularity_bytes = granularity_bytes;
    rvl_status status = share(events, NULL, tag);
    const char *slash = strchr(tag, '/');
    if (status != RVL_ERR_NOT_FOUND || slash == NULL)
        return status;
    char *process = strndup(tag, (size_t)(slash - tag));
    if (process == NULL)
        return RVL_ERR_HOST_OOM;
    status = share(events, process, slash + 1);
    free(process);
    return status;
}

/* ---- What they come to, scaled ---- */

/* floor(laid * granules / peak), with peak and granules below 2^32. */
static uint64_t scale(uint64_t laid, uint64_t granules, uint64_t peak)
{
    return laid / peak * granules + laid % peak * granules / peak;
}

typedef struct scaled_source {
    const plan_events *events;
    uint64_t granules; /* UINT64_MAX: as it is */
    size_t at;
    size_t share;
    bool *seen; /* by process: it has something under the tag */
} scaled_source;

/* Gives an event its scaled size. false: nothing is left of it. */
static bool scale_event(scaled_source *source, const plan_share *share, rvl_trace_event *event)
{
    const plan_events *events = source->events;
    if (!share->sized)
        return source->seen[share->process];
    uint64_t granules = scale(share->to, source->granules, events->peak_granules) -
                        scale(share->from, source->granules, events->peak_granules);
    if (event->kind == RVL_EVENT_ALLOC)
        event->bytes = granules * events->granularity_bytes;
    if (granules > 0)
        source->seen[share->process] = true;
    return granules > 0;
}

static rvl_status next_scaled(void *user, rvl_trace_event *event_out)
{
    scaled_source *source = user;
    const plan_events *events = source->events;
    while (source->at < events->count) {
        size_t at = source->at++;
        *event_out = events->events[at];
        if (source->granules == UINT64_MAX || source->share >= events->share_count ||
            events->shares[source->share].event != at)
            return RVL_OK;
        if (scale_event(source, &events->shares[source->share++], event_out))
            return RVL_OK;
    }
    return RVL_ERR_NOT_FOUND;
}

static rvl_status rewind_scaled(void *user)
{
    scaled_source *source = user;
    source->at = 0;
    source->share = 0;
    memset(source->seen, 0, source->events->process_count * sizeof *source->seen);
    return RVL_OK;
}

rvl_status plan_events_replay(const plan_events *events, uint64_t granules,
                              const rvl_replay_options *options, rvl_trace_error *error_out,
                              rvl_replay **replay_out)
{
    scaled_source scaled = {.events = events, .granules = granules};
    rvl_replay_source source = {.struct_size = sizeof source,
                                .name = "the plan",
                                .devices = events->devices,
                                .device_count = events->device_count,
                                .next = next_scaled,
                                .rewind = rewind_scaled,
                                .user = &scaled};
    scaled.seen = calloc(events->process_count + 1, sizeof *scaled.seen);
    if (scaled.seen == NULL)
        return RVL_ERR_HOST_OOM;
    rvl_status status = rvl_replay_run_source(&source, options, error_out, replay_out);
    free(scaled.seen);
    return status;
}

/* ---- What is said about tags ---- */

static uint64_t largest_external(const plan_events *events, const char *cause)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < events->count; i++) {
        const rvl_trace_event *event = &events->events[i];
        if (event->kind == RVL_EVENT_EXTERNAL && strcmp(event->name, cause) == 0 &&
            event->bytes > largest)
            largest = event->bytes;
    }
    return largest;
}

uint32_t plan_events_fraction(const plan_events *events, const char *tag, uint64_t cache_bytes,
                              uint64_t capacity_bytes)
{
    const char *slash = strrchr(tag, '/');
    if (strcmp(slash != NULL ? slash + 1 : tag, "kv_cache") != 0)
        return 0;
    plan_events engine = *events;
    engine.shares = NULL;
    rvl_status status = share(&engine, events->process, "weights");
    free(engine.shares);
    uint64_t context = largest_external(events, "engine_context");
    if (status != RVL_OK || context >= capacity_bytes)
        return 0;
    double bytes = (double)(engine.peak_granules * engine.granularity_bytes + cache_bytes);
    double fraction = bytes / (double)(capacity_bytes - context);
    return fraction < 1 ? (uint32_t)(fraction * 1e6) : 1000000;
}

static bool appeared_before(const plan_events *events, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        const rvl_trace_event *event = &events->events[i];
        if (event->kind == RVL_EVENT_ALLOC && event->tag != NULL &&
            strcmp(event->tag, events->events[index].tag) == 0)
            return true;
    }
    return false;
}

void plan_events_list_tags(const plan_events *events, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < events->count && length + 8 < size; i++) {
        const rvl_trace_event *event = &events->events[i];
        if (event->kind != RVL_EVENT_ALLOC || event->tag == NULL || appeared_before(events, i))
            continue;
        const char *comma = length > 0 ? ", " : "";
        bool fits = length + strlen(comma) + strlen(event->tag) + 6 < size;
        length += (size_t)snprintf(text + length, size - length, "%s%s", comma,
                                   fits ? event->tag : "...");
        if (!fits)
            return;
    }
}
