/* SPDX-License-Identifier: MIT */
/*
 * The trace is a step of an engine and a trainer that share a card: weights in many blocks, a large
 * cache, and a trainer's state that is backed up to the host. Each transition has its own stage, so
 * the time of a stage is that of a transition. The first round has to allocate host memory, the
 * second reuses it.
 */
#include "calibrate/agree.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "calibrate/samples.h"
#include "reveille/replay.h"

#define WEIGHTS_MAX 64u
#define SETTLE_MS 400u
#define EVENTS_MAX 256u
#define TIME_COUNTS_NS 5000000u

typedef struct builder {
    rvl_trace_event events[EVENTS_MAX];
    size_t count;
    uint64_t next_id;
    uint64_t time_ns;
} builder;

static rvl_trace_event *add(builder *made, rvl_event_kind kind)
{
    rvl_trace_event *event = &made->events[made->count++];
    *event = (rvl_trace_event){.kind = kind, .process = "program", .time_ns = made->time_ns};
    made->time_ns += 1000000;
    return event;
}

static void add_alloc(builder *made, const char *tag, uint64_t bytes, rvl_backup backup)
{
    rvl_trace_event *event = add(made, RVL_EVENT_ALLOC);
    event->id = ++made->next_id;
    event->bytes = bytes;
    event->tag = tag;
    event->backup = backup;
}

static void add_move(builder *made, rvl_event_kind kind, const char *tag, const char *stage)
{
    add(made, RVL_EVENT_STAGE)->name = stage;
    add(made, kind)->tag = tag;
}

static uint64_t granules(uint64_t bytes, uint64_t granularity_bytes)
{
    uint64_t whole = bytes / granularity_bytes * granularity_bytes;
    return whole > 0 ? whole : granularity_bytes;
}

static void add_round(builder *made)
{
    add_move(made, RVL_EVENT_PAUSE, "weights", "pause weights");
    add_move(made, RVL_EVENT_PAUSE, "cache", "pause cache");
    add_move(made, RVL_EVENT_PAUSE, "state", "pause state");
    add_move(made, RVL_EVENT_RESUME, "state", "resume state");
    add_move(made, RVL_EVENT_PAUSE, "state", "pause state");
    add_move(made, RVL_EVENT_RESUME, "weights", "resume weights");
    add_move(made, RVL_EVENT_RESUME, "cache", "resume cache");
    add_move(made, RVL_EVENT_RESUME, "state", "resume state");
}

static void build(builder *made, uint64_t room, uint64_t host, uint64_t granularity)
{
    uint64_t state = room / 8 < host ? room / 8 : host;
    uint64_t most = room / 4 / granularity;
    uint64_t weights = most < 1 ? 1 : most < WEIGHTS_MAX ? most : WEIGHTS_MAX;
    add(made, RVL_EVENT_STAGE)->name = "allocate";
    for (uint64_t i = 0; i < weights; i++)
        add_alloc(made, "weights", granules(room / 4 / weights, granularity), RVL_BACKUP_NONE);
    add_alloc(made, "cache", granules(room / 2, granularity), RVL_BACKUP_NONE);
    for (unsigned i = 0; i < 4; i++)
        add_alloc(made, "state", granules(state / 4, granularity), RVL_BACKUP_HOST);
    add_round(made);
    add_round(made);
}

static rvl_status replay(const builder *made, uint64_t capacity, uint64_t granularity,
                         const char *backend, const char *device, rvl_replay **replay_out)
{
    const rvl_trace_device traced = {
        .index = 0, .capacity_bytes = capacity, .granularity_bytes = granularity};
    const rvl_replay_events events = {.struct_size = sizeof events,
                                      .name = "the trace of the calibration",
                                      .devices = &traced,
                                      .device_count = 1,
                                      .device_size = sizeof traced,
                                      .events = made->events,
                                      .event_count = made->count,
                                      .event_size = sizeof *made->events};
    const rvl_replay_options options = {.struct_size = sizeof options,
                                        .backend = backend,
                                        .device = device,
                                        .settle_ms = device == NULL ? SETTLE_MS : 0};
    return rvl_replay_run_events(&events, &options, replay_out);
}

static rvl_status compare(const rvl_replay *ours, const rvl_replay *real, agreement *agreement_out)
{
    rvl_stage_stats stage = {.struct_size = sizeof stage};
    agreement found = {.count = 0};
    rvl_status status = RVL_OK;
    for (uint32_t i = 0;
         i < AGREE_STAGES_MAX && rvl_replay_get_stage(ours, 0, i, &stage, NULL) == RVL_OK; i++) {
        agree_stage *one = &found.stages[found.count++];
        uint64_t end_bytes = 0;
        snprintf(one->name, sizeof one->name, "%s", stage.name);
        one->predicted_peak_bytes = stage.peak_bytes;
        one->predicted_ns = stage.transition_ns;
        status = rvl_replay_get_stage(real, 0, i, &stage, NULL);
        if (status == RVL_OK)
            status = rvl_replay_get_measured(real, 0, i, &one->measured_peak_bytes, &end_bytes);
        if (status != RVL_OK)
            return status;
        one->measured_ns = stage.transition_ns;
    }
    *agreement_out = found;
    return RVL_OK;
}

rvl_status agree_replay(uint64_t room_bytes, uint64_t host_bytes, uint64_t granularity_bytes,
                        const char *device, agreement *agreement_out)
{
    builder made = {.count = 0};
    rvl_replay *ours = NULL, *real = NULL;
    build(&made, room_bytes, host_bytes, granularity_bytes);
    rvl_status status = replay(&made, room_bytes, granularity_bytes, "sim", device, &ours);
    if (status == RVL_OK)
        status = replay(&made, room_bytes, granularity_bytes, "cuda", NULL, &real);
    if (status == RVL_OK)
        status = compare(ours, real, agreement_out);
    rvl_replay_close(ours);
    rvl_replay_close(real);
    return status;
}

double agree_share(uint64_t predicted, uint64_t measured)
{
    return measured == 0 ? 0 : ((double)predicted - (double)measured) / (double)measured;
}

double agree_worst_peak(const agreement *it)
{
    double worst = 0;
    for (size_t i = 0; i < it->count; i++)
        worst = fmax(worst, fabs(agree_share(it->stages[i].predicted_peak_bytes,
                                             it->stages[i].measured_peak_bytes)));
    return worst;
}

double agree_worst_time(const agreement *it)
{
    double worst = 0;
    for (size_t i = 0; i < it->count; i++) {
        const agree_stage *one = &it->stages[i];
        if (one->measured_ns >= TIME_COUNTS_NS || one->predicted_ns >= TIME_COUNTS_NS)
            worst = fmax(worst, fabs(agree_share(one->predicted_ns, one->measured_ns)));
    }
    return worst;
}
