/* SPDX-License-Identifier: MIT */
/*
 * Runs one case: makes its events and replays them. If the largest size of a tag is asked for, it
 * replays them with other sizes until it finds the largest number of granules with which every
 * stage fits.
 *
 * A model's KV cache is sized by its memory fraction, so for that tag the search is for the
 * fraction, to the millionth. The step is made again for every try. All other tags are scaled
 * (scale.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/options.h"
#include "base/text.h"
#include "predict/plan/plan_internal.h"
#include "reveille/verdict.h"

#define PPM 1000000
#define GRANULES_MAX UINT32_MAX

/* ---- The inputs of a case ---- */

typedef struct planned {
    const rvl_model *model; /* NULL: traces */
    const char *tag;
    rvl_model_options options; /* of the step */
    rvl_replay_options replay;
    rvli_subject subject; /* the events of the traces, or of step */
    rvl_model_step *step;
    rvli_scaled_tag scaled; /* the tag with the largest size to find */
    uint64_t last_number;   /* granules at the last try */
    int64_t last_room;      /* granules that the last try left free at the peak */
    bool tried;
    rvl_plan_result *result;
} planned;

static void fail(rvl_plan_result *result, rvl_plan_state state, const char *key, const char *why)
{
    result->state = state;
    snprintf(result->key, sizeof result->key, "%s", key);
    snprintf(result->why, sizeof result->why, "%s", why);
}

/* Puts the place in a file in front of the message, as far as it is known. */
static void add_place(const rvl_error *error, rvl_plan_result *result)
{
    rvli_text text = rvli_text_begin(result->why, sizeof result->why);
    rvli_text_add(&text, error->file);
    for (int i = 0; i < 2; i++) {
        uint32_t number = i == 0 ? error->line : error->column;
        if (number > 0) {
            rvli_text_add(&text, ":");
            rvli_text_add_u64(&text, number);
        }
    }
    rvli_text_add(&text, ": ");
    rvli_text_add(&text, error->message);
    result->flags |= RVL_PLAN_WHY_HAS_FILE;
}

void rvli_case_refuse(rvl_status status, rvl_plan_result *result)
{
    const rvl_error *error = rvli_error_get();
    const bool told = error->status == status;
    fail(result, status == RVL_ERR_HOST_OOM ? RVL_PLAN_FAILED : RVL_PLAN_REFUSED,
         told ? error->key : "", told ? error->message : rvl_status_text(status));
    if (told && error->file[0] != '\0')
        add_place(error, result);
}

/*
 * Refuses a case after a failed replay. The events of a step are in no file, so its place is
 * removed.
 */
static void fail_replay(const planned *c, rvl_status status)
{
    if (c->model != NULL && rvli_error_get()->status == status)
        rvli_error_place("", 0, 0);
    rvli_case_refuse(status, c->result);
}

static uint32_t gpus_of(const planned *c)
{
    const rvl_model_options *o = &c->options;
    if (c->model == NULL)
        return (uint32_t)c->subject.device_count;
    uint32_t engine = (o->tp > 0 ? o->tp : 1) * (o->pp > 0 ? o->pp : 1);
    return o->train_ranks > engine ? o->train_ranks : engine;
}

/*
 * Makes a step with the current options. *no_room_out: the memory fraction leaves no room, which is
 * not an error of the options.
 */
static bool make_step(planned *c, bool *no_room_out)
{
    rvli_subject_close(&c->subject);
    rvl_model_step_close(c->step);
    c->step = NULL;
    rvl_status status = rvl_model_step_make(c->model, &c->options, &c->step);
    c->result->assumed_bytes = 0;
    for (int term = 0; term < RVL_MODEL_TERM_COUNT; term++) {
        if (rvl_model_step_doubt(c->step, (rvl_model_term)term) == RVL_MODEL_DOUBT_ASSUMED)
            c->result->assumed_bytes += rvl_model_step_bytes(c->step, (rvl_model_term)term);
    }
    *no_room_out = status == RVL_ERR_INVALID && strcmp(rvli_error_get()->key, "mem-fraction") == 0;
    if (status == RVL_OK)
        status = rvli_subject_of_step(c->step, &c->subject);
    if (status != RVL_OK)
        rvli_case_refuse(status, c->result);
    if (*no_room_out)
        c->result->state = RVL_PLAN_DOES_NOT_FIT;
    return status == RVL_OK;
}

/* ---- The result of a replay ---- */

/*
 * Refuses a recording if its command did not finish, for a reason that no size here changes. What
 * the command would have needed later is not known. true: refused.
 */
static bool refuse_unfinished(planned *c, const rvl_replay *replay)
{
    char why[RVL_PLAN_WHY_BYTES - 16];
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
    fail(c->result, RVL_PLAN_REFUSED, "", why);
    return true;
}

/* RVL_PLAN_FITS, RVL_PLAN_TIGHT or RVL_PLAN_DOES_NOT_FIT. */
static rvl_plan_state state_of(const rvl_replay *replay, uint64_t *headroom_bytes_out)
{
    rvl_verdict verdict = {.struct_size = sizeof verdict};
    if (rvl_replay_get_verdict(replay, &verdict) != RVL_OK)
        return RVL_PLAN_DOES_NOT_FIT;
    *headroom_bytes_out = verdict.headroom_bytes;
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        if (rvl_replay_get_device(replay, i, &device) != RVL_OK || !device.fits)
            return RVL_PLAN_DOES_NOT_FIT;
    }
    return verdict.spare_bytes < verdict.headroom_bytes ? RVL_PLAN_TIGHT : RVL_PLAN_FITS;
}

/* Whether a stage has less room than the tightest one so far. */
static bool is_tighter(uint64_t capacity, uint64_t peak, const rvl_plan_result *result)
{
    if (result->stage[0] == '\0')
        return true;
    int64_t room = (int64_t)(capacity - peak);
    return room < (int64_t)(result->capacity_bytes - result->peak_bytes);
}

static void note_stage(const rvl_replay *replay, size_t index, uint32_t stage,
                       const rvl_replay_device *device, rvl_plan_result *result,
                       uint64_t *transition_ns)
{
    rvl_stage_stats stats = {.struct_size = sizeof stats};
    if (rvl_replay_get_stage(replay, index, stage, &stats, NULL) != RVL_OK)
        return;
    *transition_ns += stats.transition_ns;
    if (stats.host_bytes > result->host_bytes)
        result->host_bytes = stats.host_bytes;
    if (!is_tighter(device->capacity_bytes, stats.peak_bytes, result))
        return;
    result->capacity_bytes = device->capacity_bytes;
    result->peak_bytes = stats.peak_bytes;
    result->device = device->device;
    result->capacity_doubt_bytes = device->capacity_doubt_bytes;
    snprintf(result->stage, sizeof result->stage, "%s", stats.name);
}

static void note_replay(const rvl_replay *replay, rvl_plan_result *result)
{
    result->state = state_of(replay, &result->headroom_bytes);
    result->key[0] = result->why[0] = '\0';
    for (size_t i = 0; i < rvl_replay_device_count(replay); i++) {
        rvl_replay_device device = {.struct_size = sizeof device};
        uint64_t transition_ns = 0;
        if (rvl_replay_get_device(replay, i, &device) != RVL_OK)
            continue;
        for (uint32_t stage = 0; stage < device.stage_count; stage++)
            note_stage(replay, i, stage, &device, result, &transition_ns);
        if (transition_ns > result->transition_ns)
            result->transition_ns = transition_ns;
    }
}

/* Replays the case, and notes the result. replay_out: keeps the replay; may be NULL. */
static void conclude(planned *c, uint64_t granules, rvl_replay **replay_out)
{
    rvl_replay *replay;
    rvl_status status =
        rvli_scaled_tag_replay(&c->subject, &c->scaled, granules, &c->replay, &replay);
    if (status != RVL_OK) {
        fail_replay(c, status);
        return;
    }
    bool refused = refuse_unfinished(c, replay);
    if (!refused)
        note_replay(replay, c->result);
    if (replay_out != NULL && !refused)
        *replay_out = replay;
    else
        rvl_replay_close(replay);
}

/* ---- The largest size of a tag ---- */

/* Finds the largest capacity and the largest granularity of the case's devices. */
static void measure_devices(const planned *c, uint64_t *capacity_out, uint64_t *granularity_out)
{
    rvl_profile profile = {.struct_size = sizeof profile};
    *capacity_out = 0;
    *granularity_out = 1;
    if (c->replay.device != NULL && rvl_profile_load(c->replay.device, &profile) == RVL_OK) {
        *capacity_out = profile.capacity_bytes;
        *granularity_out = profile.granularity_bytes;
        return;
    }
    for (size_t i = 0; i < c->subject.device_count; i++) {
        const rvl_trace_device *device = &c->subject.devices[i];
        if (device->capacity_bytes > *capacity_out)
            *capacity_out = device->capacity_bytes;
        if (device->granularity_bytes > *granularity_out)
            *granularity_out = device->granularity_bytes;
    }
}

/*
 * Returns the granules beyond the headroom that are free at the highest peak of any device. A
 * negative number of them is missing.
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
 * Guesses the number of granules that leaves no room, from a line through the last two tries. After
 * the first try, the line loses one granule of room for each granule of the tag. UINT64_MAX: no
 * guess.
 */
static uint64_t guess_granules(planned *c, uint64_t granules, int64_t room)
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
    planned *c = user;
    rvl_replay *replay;
    uint64_t headroom_bytes = 0;
    rvl_status status =
        rvli_scaled_tag_replay(&c->subject, &c->scaled, granules, &c->replay, &replay);
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
    *fits_out = state_of(replay, &headroom_bytes) == RVL_PLAN_FITS;
    if (c->scaled.granularity_bytes > 0)
        *guess_out = guess_granules(c, granules,
                                    room_of(replay, headroom_bytes, c->scaled.granularity_bytes));
    rvl_replay_close(replay);
    return RVL_OK;
}

static void refuse_tag(planned *c, rvl_status status)
{
    char tags[96], message[RVL_PLAN_WHY_BYTES - 16];
    rvli_subject_list_tags(&c->subject, tags, sizeof tags);
    snprintf(message, sizeof message, "nothing is allocated under the tag %.64s; there are: %s",
             c->tag, tags[0] != '\0' ? tags : "none");
    if (status == RVL_ERR_NOT_FOUND)
        fail(c->result, RVL_PLAN_REFUSED, "tag", message);
    else
        fail_replay(c, status);
}

static void find_granules(planned *c, rvl_replay **replay_out)
{
    uint64_t capacity, granularity, largest;
    measure_devices(c, &capacity, &granularity);
    rvl_status status = rvli_scaled_tag_measure(&c->subject, c->tag, granularity, &c->scaled);
    if (status != RVL_OK) {
        refuse_tag(c, status);
        return;
    }
    uint64_t most = capacity / granularity;
    uint64_t traced = c->scaled.peak_granules;
    if (most >= GRANULES_MAX || traced >= GRANULES_MAX) {
        fail(c->result, RVL_PLAN_REFUSED, "tag",
             "more than 2^32 granules: no such device can be planned");
        return;
    }
    c->result->traced_bytes = traced * granularity;
    if (rvli_largest(granules_fit, c, 0, most + 1, traced, &largest) != RVL_OK)
        return;
    if (largest > most) {
        c->result->largest_bytes = UINT64_MAX; /* the tag is never in use when it matters */
        conclude(c, UINT64_MAX, replay_out);
        return;
    }
    c->result->largest_bytes = largest * granularity;
    conclude(c, largest, replay_out);
    if (c->result->state == RVL_PLAN_FITS && largest == 0)
        c->result->state = RVL_PLAN_DOES_NOT_FIT;
    if (c->result->state == RVL_PLAN_FITS)
        c->result->mem_fraction_ppm =
            rvli_subject_fraction(&c->subject, &c->scaled, c->result->largest_bytes, capacity);
}

/* Whether a fraction fits. A fraction so small that there is no cache counts as fitting. */
static rvl_status fraction_fits(void *user, uint64_t ppm, bool *fits_out, uint64_t *guess_out)
{
    planned *c = user;
    bool no_room;
    c->options.mem_fraction_ppm = (uint32_t)ppm;
    if (make_step(c, &no_room))
        return granules_fit(c, UINT64_MAX, fits_out, guess_out);
    *fits_out = no_room;
    return no_room ? RVL_OK : RVL_ERR_INVALID;
}

static void find_fraction(planned *c, rvl_replay **replay_out)
{
    uint64_t ppm;
    bool no_room;
    if (rvli_largest(fraction_fits, c, 0, PPM, UINT64_MAX, &ppm) != RVL_OK)
        return;
    c->options.mem_fraction_ppm = (uint32_t)ppm;
    bool fits = ppm > 0 && make_step(c, &no_room);
    if (!fits && ppm < PPM) { /* take the smallest fraction that leaves any room */
        c->options.mem_fraction_ppm = (uint32_t)ppm + 1;
        if (!make_step(c, &no_room))
            return;
    }
    if (c->step == NULL)
        return;
    conclude(c, UINT64_MAX, replay_out);
    if (fits) {
        c->result->mem_fraction_ppm = (uint32_t)ppm;
        c->result->largest_bytes = rvl_model_step_bytes(c->step, RVL_MODEL_KV_CACHE);
    }
}

static bool sized_by_fraction(const planned *c)
{
    if (c->model == NULL ||
        (strcmp(c->tag, "kv_cache") != 0 && strcmp(c->tag, "engine/kv_cache") != 0))
        return false;
    for (size_t i = 0; i < c->options.given_count; i++) {
        if (c->options.given[i].term == RVL_MODEL_KV_CACHE)
            return false;
    }
    return true;
}

static void work_out(planned *c, rvl_replay **replay_out)
{
    bool no_room;
    if (c->tag != NULL && sized_by_fraction(c))
        find_fraction(c, replay_out);
    else if (c->model != NULL && !make_step(c, &no_room))
        return;
    else if (c->tag != NULL)
        find_granules(c, replay_out);
    else
        conclude(c, UINT64_MAX, replay_out);
}

static rvl_status read_case(const rvl_plan_case *given, planned *c)
{
    rvl_plan_case known;
    rvl_status status =
        given == NULL ? RVL_ERR_INVALID : rvli_options_read(&known, sizeof known, given);
    if (given == NULL || (status == RVL_OK && known.plan == NULL))
        return rvli_error(RVL_ERR_INVALID, "the case or its plan is NULL");
    if (status == RVL_OK)
        status = rvli_options_read(&c->options, sizeof c->options, known.step);
    if (status == RVL_OK)
        status = rvli_options_read(&c->replay, sizeof c->replay, known.replay);
    if (status != RVL_OK)
        return status;
    if (c->replay.filter != NULL)
        return rvli_error(RVL_ERR_INVALID, "a plan replays with a filter of its own: leave it out");
    c->model = known.plan->model;
    c->tag = known.tag;
    c->subject = known.plan->traces;
    return RVL_OK;
}

rvl_status rvl_plan_run(const rvl_plan_case *given, rvl_plan_result *result_out,
                        rvl_replay **replay_out)
{
    rvl_plan_result result = {.state = RVL_PLAN_FAILED};
    rvl_replay *replay = NULL;
    planned c = {.result = &result};
    rvl_status status = read_case(given, &c);
    if (status == RVL_OK)
        status = rvli_result_write(result_out, &result, sizeof result);
    if (status != RVL_OK)
        return status;
    result.gpu_count = gpus_of(&c);
    const rvl_error before = *rvli_error_get();
    work_out(&c, replay_out != NULL ? &replay : NULL);
    if (c.model != NULL)
        rvli_subject_close(&c.subject);
    rvli_scaled_tag_forget(&c.scaled);
    rvl_model_step_close(c.step);
    if (replay_out != NULL)
        *replay_out = replay;
    rvli_result_write(result_out, &result, sizeof result);
    if (result.state == RVL_PLAN_FAILED)
        return RVL_ERR_HOST_OOM;
    rvli_error_set(&before); /* the result has the reason for a refusal */
    return RVL_OK;
}
