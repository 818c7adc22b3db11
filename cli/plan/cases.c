/* SPDX-License-Identifier: MIT */
/*
 * One case: its events made, replayed, and, where a tag's largest size is asked for, replayed with
 * other sizes until the granule is found beyond which a stage does not fit.
 *
 * A model's KV cache is sized by its memory fraction, and so that is what is sought there, to the
 * millionth; the steps are made again for every try. Anything else is scaled (events.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "plan/plan.h"

#define PPM 1000000
#define GRANULES_MAX UINT32_MAX

struct plan_subject {
    const plan_arguments *arguments;
    rvl_model **models; /* by value of the axis "model" */
    size_t model_count;
    plan_events events; /* of traces */
};

/* ---- Subjects ---- */

static int open_models(const plan_axis *axis, plan_subject *subject)
{
    subject->models = calloc(axis->count, sizeof(rvl_model *));
    if (subject->models == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    for (; subject->model_count < axis->count; subject->model_count++) {
        const char *path = axis->values[subject->model_count];
        rvl_status status = rvl_model_open(path, &subject->models[subject->model_count]);
        if (status != RVL_OK)
            return model_explain(status, path);
    }
    return 0;
}

static int read_traces(const plan_arguments *arguments, plan_events *events_out)
{
    char why[EXPLANATION_BYTES];
    int code = plan_events_open(arguments, arguments->traces, arguments->trace_count, why,
                                sizeof why, events_out);
    return code == 0 ? 0 : complain(code, "%s", why);
}

int plan_subject_open(const plan_arguments *arguments, plan_subject **subject_out)
{
    plan_subject *subject = calloc(1, sizeof *subject);
    if (subject == NULL)
        return complain(EXIT_INTERNAL, "out of host memory");
    const plan_axis *models = plan_find_axis(arguments, "model");
    subject->arguments = arguments;
    int status = 0;
    if (models != NULL)
        status = open_models(models, subject);
    else if (!arguments->per_rank)
        status = read_traces(arguments, &subject->events);
    if (status != 0) {
        plan_subject_close(subject);
        return status;
    }
    *subject_out = subject;
    return 0;
}

void plan_subject_close(plan_subject *subject)
{
    if (subject == NULL)
        return;
    for (size_t i = 0; i < subject->model_count; i++)
        rvl_model_close(subject->models[i]);
    free(subject->models);
    plan_events_close(&subject->events);
    free(subject);
}

/* ---- What a case is made of ---- */

typedef struct plan_case {
    const plan_subject *subject;
    const rvl_model *model; /* NULL: traces */
    const char *trace;      /* the only one; NULL: all */
    const char *tag;
    rvl_model_options options; /* of the step; device and wake count for traces, too */
    rvl_replay_options replay;
    plan_events events; /* of traces, or of step */
    rvl_model_step *step;
    plan_tag scaled;      /* the largest size of it is sought */
    uint64_t last_number; /* of granules, at the last try */
    int64_t last_room;    /* granules that it left free at the peak */
    bool tried;
    plan_outcome *outcome;
} plan_case;

static void fail(plan_case *c, plan_state state, const char *key, const char *message)
{
    c->outcome->state = state;
    model_as_options(key, message, c->outcome->why, sizeof c->outcome->why);
}

/* Of traces the place is told, too. */
static void fail_replay(plan_case *c, rvl_status status)
{
    char why[EXPLANATION_BYTES];
    const rvl_error *error = rvli_error_get();
    describe_replay(status, why, sizeof why);
    c->outcome->why_is_placed =
        c->model == NULL && error->status == status && error->file[0] != '\0';
    if (!c->outcome->why_is_placed)
        snprintf(why, sizeof why, "%s",
                 error->status == status ? error->message : rvl_status_text(status));
    fail(c, status == RVL_ERR_HOST_OOM ? PLAN_FAILED : PLAN_REFUSED, "", why);
}

static uint32_t gpus_of(const plan_case *c)
{
    const rvl_model_options *o = &c->options;
    if (c->model == NULL)
        return (uint32_t)c->events.device_count;
    uint32_t engine = (o->tp > 0 ? o->tp : 1) * (o->pp > 0 ? o->pp : 1);
    return o->train_ranks > engine ? o->train_ranks : engine;
}

/* Values were checked when they were parsed. */
static void set_case(plan_case *c, size_t number)
{
    const plan_arguments *arguments = c->subject->arguments;
    char why[MODEL_WHY_BYTES];
    c->options = (rvl_model_options){.struct_size = sizeof c->options,
                                     .given = arguments->given,
                                     .given_count = arguments->given_count,
                                     .given_size = sizeof *arguments->given};
    for (size_t i = 0; i < arguments->axis_count; i++) {
        const char *value = plan_value(arguments, number, i);
        if (strcmp(arguments->axes[i].name, "trace") == 0) {
            c->trace = value;
            continue;
        }
        if (strcmp(arguments->axes[i].name, "model") != 0) {
            model_set(&c->options, arguments->axes[i].name, value, why);
            continue;
        }
        for (size_t k = 0; k < c->subject->model_count; k++) {
            if (arguments->axes[i].values[k] == value)
                c->model = c->subject->models[k];
        }
    }
    c->tag = arguments->tag;
    c->replay = (rvl_replay_options){.struct_size = sizeof c->replay};
    verdict_ask(&arguments->headroom, &c->replay);
    if (c->model == NULL) {
        c->events = c->subject->events;
        c->replay.device = c->options.device;
        c->replay.wake = c->options.wake;
        c->replay.conductor = arguments->conductor;
    }
    c->outcome->gpus = gpus_of(c);
}

/* The trace of one rank, which nobody else reads. What is wrong with it names it. */
static bool read_own(plan_case *c)
{
    plan_outcome *outcome = c->outcome;
    int code = plan_events_open(c->subject->arguments, &c->trace, 1, outcome->why,
                                sizeof outcome->why, &c->events);
    if (code == 0)
        outcome->gpus = gpus_of(c);
    else
        outcome->state = code == EXIT_INTERNAL ? PLAN_FAILED : PLAN_REFUSED;
    outcome->why_is_placed = strncmp(outcome->why, c->trace, strlen(c->trace)) == 0;
    return code == 0;
}

/* A step with these options. A fraction that leaves no room is told from other faults. */
static bool make_step(plan_case *c, bool *no_room_out)
{
    plan_events_close(&c->events);
    rvl_model_step_close(c->step);
    c->step = NULL;
    rvl_status status = rvl_model_step_make(c->model, &c->options, &c->step);
    c->outcome->assumed_bytes = 0;
    for (int term = 0; term < RVL_MODEL_TERM_COUNT; term++) {
        if (rvl_model_step_doubt(c->step, (rvl_model_term)term) == RVL_MODEL_DOUBT_ASSUMED)
            c->outcome->assumed_bytes += rvl_model_step_bytes(c->step, (rvl_model_term)term);
    }
    *no_room_out = status == RVL_ERR_INVALID && strcmp(rvli_error_get()->key, "mem-fraction") == 0;
    if (status == RVL_OK)
        status = plan_events_of_step(c->step, &c->events);
    if (status != RVL_OK)
        fail(c,
             *no_room_out ? PLAN_DOES_NOT_FIT
                          : (status == RVL_ERR_HOST_OOM ? PLAN_FAILED : PLAN_REFUSED),
             rvli_error_get()->key, rvli_error_get()->message);
    return status == RVL_OK;
}

/* ---- What a replay says ---- */

/*
 * The command of the recording did not come to its end, for a reason that no size here changes. Of
 * what it would have done after that nothing is known. true: refused.
 */
static bool refuse_unfinished(plan_case *c, const rvl_replay *replay)
{
    char why[PLAN_WHY_BYTES - 16];
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    bool unfinished =
        rvl_replay_get_verdict(replay, &verdict) == RVL_OK &&
        (verdict.kind == RVL_VERDICT_FAILED || verdict.kind == RVL_VERDICT_OUT_OF_MEMORY);
    for (size_t i = 0; unfinished && i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        unfinished = rvl_replay_get_device(replay, i, &device) == RVL_OK &&
                     device.peak_bytes <= device.capacity_bytes;
    }
    if (!unfinished)
        return false;
    snprintf(why, sizeof why,
             "%.256s. What the command would have needed after that is not known: plan from a run "
             "that ended well",
             verdict.text);
    fail(c, PLAN_REFUSED, "", why);
    return true;
}

/* PLAN_FITS, PLAN_TIGHT or PLAN_DOES_NOT_FIT. */
static plan_state state_of(const rvl_replay *replay, uint64_t *headroom_bytes_out)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    if (rvl_replay_get_verdict(replay, &verdict) != RVL_OK)
        return PLAN_DOES_NOT_FIT;
    *headroom_bytes_out = verdict.headroom_bytes;
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        if (rvl_replay_get_device(replay, i, &device) != RVL_OK || !device.fits)
            return PLAN_DOES_NOT_FIT;
    }
    return verdict.spare_bytes < verdict.headroom_bytes ? PLAN_TIGHT : PLAN_FITS;
}

/* Less room than the tightest stage so far? */
static bool is_tighter(uint64_t capacity, uint64_t peak, const plan_outcome *outcome)
{
    if (outcome->stage[0] == '\0')
        return true;
    int64_t room = (int64_t)(capacity - peak);
    return room < (int64_t)(outcome->capacity_bytes - outcome->peak_bytes);
}

static void note_stage(const rvl_replay *replay, size_t index, uint32_t stage,
                       const rvl_replay_device *device, plan_outcome *outcome,
                       uint64_t *transition_ns)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    if (rvl_replay_get_stage(replay, index, stage, &stats, NULL) != RVL_OK)
        return;
    *transition_ns += stats.transition_ns;
    if (stats.host_bytes > outcome->host_bytes)
        outcome->host_bytes = stats.host_bytes;
    if (!is_tighter(device->capacity_bytes, stats.peak_bytes, outcome))
        return;
    outcome->capacity_bytes = device->capacity_bytes;
    outcome->peak_bytes = stats.peak_bytes;
    outcome->device = device->device;
    outcome->doubt_bytes = device->capacity_doubt_bytes;
    snprintf(outcome->stage, sizeof outcome->stage, "%s", stats.name);
}

static void note_replay(const rvl_replay *replay, plan_outcome *outcome)
{
    outcome->state = state_of(replay, &outcome->headroom_bytes);
    outcome->why[0] = '\0';
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        uint64_t transition_ns = 0;
        if (rvl_replay_get_device(replay, i, &device) != RVL_OK)
            continue;
        for (uint32_t stage = 0; stage < device.stage_count; stage++)
            note_stage(replay, i, stage, &device, outcome, &transition_ns);
        if (transition_ns > outcome->transition_ns)
            outcome->transition_ns = transition_ns;
    }
}

/* Replays as it stands; keeps the replay if it is wanted. */
static void conclude(plan_case *c, uint64_t granules, rvl_replay **replay_out)
{
    rvl_replay *replay;
    rvl_status status = plan_events_replay(&c->events, &c->scaled, granules, &c->replay, &replay);
    if (status != RVL_OK) {
        fail_replay(c, status);
        return;
    }
    bool refused = refuse_unfinished(c, replay);
    if (!refused)
        note_replay(replay, c->outcome);
    if (replay_out != NULL && !refused)
        *replay_out = replay;
    else
        rvl_replay_close(replay);
}

/* ---- The largest size of a tag ---- */

/* Capacity and granularity of the largest device of the case. */
static void measure_devices(const plan_case *c, uint64_t *capacity_out, uint64_t *granularity_out)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    *capacity_out = 0;
    *granularity_out = 1;
    if (c->replay.device != NULL && rvl_profile_load(c->replay.device, &profile) == RVL_OK) {
        *capacity_out = profile.capacity_bytes;
        *granularity_out = profile.granularity_bytes;
        return;
    }
    for (size_t i = 0; i < c->events.device_count; i++) {
        const rvl_trace_device *device = &c->events.devices[i];
        if (device->capacity_bytes > *capacity_out)
            *capacity_out = device->capacity_bytes;
        if (device->granularity_bytes > *granularity_out)
            *granularity_out = device->granularity_bytes;
    }
}

/* Granules beyond the headroom that are free at the highest peak of any device; below 0: missing.
 */
static int64_t room_of(const rvl_replay *replay, uint64_t headroom_bytes, uint64_t granularity)
{
    int64_t least = INT64_MAX;
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        rvl_replay_get_device(replay, i, &device);
        uint64_t capacity = device.capacity_bytes / granularity;
        uint64_t taken = (device.peak_bytes + headroom_bytes + granularity - 1) / granularity;
        int64_t room = (int64_t)capacity - (int64_t)taken;
        least = room < least ? room : least;
    }
    return least;
}

/*
 * Where there is no room left: a line through the last two tries, or, after the first, one that
 * loses a granule of room with every granule of the tag. UINT64_MAX: it cannot be said.
 */
static uint64_t guess_granules(plan_case *c, uint64_t granules, int64_t room)
{
    double slope = 1;
    if (c->tried && granules != c->last_number)
        slope = ((double)c->last_room - (double)room) / ((double)granules - (double)c->last_number);
    c->tried = true;
    c->last_number = granules;
    c->last_room = room;
    if (slope <= 0)
        return room >= 0 ? GRANULES_MAX : UINT64_MAX;
    double guess = (double)granules + (double)room / slope;
    return guess <= 0 ? 0 : guess >= GRANULES_MAX ? GRANULES_MAX : (uint64_t)guess;
}

static rvl_status granules_fit(void *user, uint64_t granules, bool *fits_out, uint64_t *guess_out)
{
    plan_case *c = user;
    rvl_replay *replay;
    uint64_t headroom_bytes = 0;
    rvl_status status = plan_events_replay(&c->events, &c->scaled, granules, &c->replay, &replay);
    *fits_out = false;
    if (status == RVL_ERR_DEVICE_OOM) /* not even addresses are left */
        return RVL_OK;
    if (status != RVL_OK) {
        fail_replay(c, status);
        return status;
    }
    if (refuse_unfinished(c, replay)) {
        rvl_replay_close(replay);
        return RVL_ERR_STATE;
    }
    *fits_out = state_of(replay, &headroom_bytes) == PLAN_FITS;
    if (c->scaled.granularity_bytes > 0)
        *guess_out = guess_granules(c, granules,
                                    room_of(replay, headroom_bytes, c->scaled.granularity_bytes));
    rvl_replay_close(replay);
    return RVL_OK;
}

static void refuse_tag(plan_case *c, rvl_status status)
{
    char tags[96], message[PLAN_WHY_BYTES - 16];
    plan_events_list_tags(&c->events, tags, sizeof tags);
    snprintf(message, sizeof message, "nothing is allocated under the tag %.64s; there are: %s",
             c->tag, tags[0] != '\0' ? tags : "none");
    if (status == RVL_ERR_NOT_FOUND)
        fail(c, PLAN_REFUSED, "--max", message);
    else
        fail_replay(c, status);
}

static void find_granules(plan_case *c, rvl_replay **replay_out)
{
    uint64_t capacity, granularity, largest;
    measure_devices(c, &capacity, &granularity);
    rvl_status status = plan_tag_measure(&c->events, c->tag, granularity, &c->scaled);
    if (status != RVL_OK) {
        refuse_tag(c, status);
        return;
    }
    uint64_t most = capacity / granularity;
    uint64_t traced = c->scaled.peak_granules;
    if (most >= GRANULES_MAX || traced >= GRANULES_MAX) {
        fail(c, PLAN_REFUSED, "--max", "more than 2^32 granules: no such device can be planned");
        return;
    }
    c->outcome->traced_bytes = traced * granularity;
    if (plan_largest(granules_fit, c, 0, most + 1, traced, &largest) != RVL_OK)
        return;
    if (largest > most) {
        c->outcome->largest_bytes = UINT64_MAX; /* it is never in use, or not where it matters */
        conclude(c, UINT64_MAX, replay_out);
        return;
    }
    c->outcome->largest_bytes = largest * granularity;
    conclude(c, largest, replay_out);
    if (c->outcome->state == PLAN_FITS && largest == 0)
        c->outcome->state = PLAN_DOES_NOT_FIT;
    if (c->outcome->state == PLAN_FITS)
        c->outcome->mem_fraction_ppm =
            plan_events_fraction(&c->events, &c->scaled, c->outcome->largest_bytes, capacity);
}

/* A fraction so small that there is no cache is on the side of those that fit. */
static rvl_status fraction_fits(void *user, uint64_t ppm, bool *fits_out, uint64_t *guess_out)
{
    plan_case *c = user;
    bool no_room;
    c->options.mem_fraction_ppm = (uint32_t)ppm;
    if (make_step(c, &no_room))
        return granules_fit(c, UINT64_MAX, fits_out, guess_out);
    *fits_out = no_room;
    return no_room ? RVL_OK : RVL_ERR_INVALID;
}

static void find_fraction(plan_case *c, rvl_replay **replay_out)
{
    uint64_t ppm;
    bool no_room;
    if (plan_largest(fraction_fits, c, 0, PPM, UINT64_MAX, &ppm) != RVL_OK)
        return;
    c->options.mem_fraction_ppm = (uint32_t)ppm;
    bool fits = ppm > 0 && make_step(c, &no_room);
    if (!fits && ppm < PPM) { /* the smallest that leaves room at all comes nearest */
        c->options.mem_fraction_ppm = (uint32_t)ppm + 1;
        if (!make_step(c, &no_room))
            return;
    }
    if (c->step == NULL)
        return;
    conclude(c, UINT64_MAX, replay_out);
    if (fits) {
        c->outcome->mem_fraction_ppm = (uint32_t)ppm;
        c->outcome->largest_bytes = rvl_model_step_bytes(c->step, RVL_MODEL_KV_CACHE);
    }
}

static bool sized_by_fraction(const plan_case *c)
{
    if (c->model == NULL || !model_is_cache(c->tag))
        return false;
    for (size_t i = 0; i < c->options.given_count; i++) {
        if (c->options.given[i].term == RVL_MODEL_KV_CACHE)
            return false;
    }
    return true;
}

void plan_case_run(const plan_subject *subject, size_t number, plan_outcome *outcome_out,
                   rvl_replay **replay_out)
{
    plan_case c = {.subject = subject, .outcome = outcome_out};
    bool no_room;
    *outcome_out = (plan_outcome){.state = PLAN_FAILED};
    if (replay_out != NULL)
        *replay_out = NULL;
    set_case(&c, number);
    if (c.trace != NULL && !read_own(&c))
        return;
    if (c.tag != NULL && sized_by_fraction(&c))
        find_fraction(&c, replay_out);
    else if (c.model == NULL || make_step(&c, &no_room)) {
        if (c.tag != NULL)
            find_granules(&c, replay_out);
        else
            conclude(&c, UINT64_MAX, replay_out);
    }
    if (c.trace != NULL || c.model != NULL)
        plan_events_close(&c.events);
    plan_tag_forget(&c.scaled);
    rvl_model_step_close(c.step);
}
