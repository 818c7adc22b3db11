/* SPDX-License-Identifier: MIT */
/*
 * The order of a step: what is allocated, released, paused and resumed when, for every way to share
 * a GPU (docs/strategies.md).
 *
 * Times are made up: a microsecond between events, a second between stages. Only the order matters
 * to a prediction. A term of 0 bytes has no events.
 */
#include <stdlib.h>

#include "base/grow.h"
#include "predict/llm/llm_internal.h"
#include "predict/llm/step/shown.h"

#define EVENT_NS 1000
#define STAGE_NS UINT64_C(1000000000)

enum { ENGINE, TRAINER };

static const char *const process_names[] = {"engine", "trainer"};

static const rvl_model_term engine_terms[] = {RVL_MODEL_WEIGHTS, RVL_MODEL_KV_CACHE,
                                              RVL_MODEL_CUDA_GRAPH, RVL_MODEL_BUFFERS};
/* Live from step to step. The first is for every pass, the others only for training. */
static const rvl_model_term state_terms[] = {RVL_MODEL_SHARDED_WEIGHTS, RVL_MODEL_MASTER_WEIGHTS,
                                             RVL_MODEL_OPTIMIZER};
static const rvl_model_term training_terms[] = {
    RVL_MODEL_GRADIENTS,       RVL_MODEL_GRADIENT_BUCKETS, RVL_MODEL_ALL_GATHER,
    RVL_MODEL_ACTIVATIONS,     RVL_MODEL_LOGITS,           RVL_MODEL_OPTIMIZER_TEMPORARIES,
    RVL_MODEL_BLAS_WORKSPACES, RVL_MODEL_DEQUANTISED,      RVL_MODEL_CACHED};
/* A step has one of them: all new weights at once, or a bucket. */
static const rvl_model_term update_terms[] = {RVL_MODEL_TRAINING_COPY, RVL_MODEL_UPDATE_BUCKET};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define ENGINE_TERMS engine_terms, COUNT(engine_terms)
#define STATE_TERMS state_terms, COUNT(state_terms)
#define OPTIMIZER_TERMS (state_terms + 1), COUNT(state_terms) - 1
#define TRAINING_TERMS training_terms, COUNT(training_terms)
#define UPDATE_TERMS update_terms, COUNT(update_terms)

typedef struct player {
    rvl_model_step *step;
    const rvl_model_options *options;
    int conductor;                           /* the process that marks stages */
    uint64_t first_id[RVL_MODEL_TERM_COUNT]; /* of the term's live allocations */
    uint64_t live[RVL_MODEL_TERM_COUNT];     /* their number */
    uint64_t *segment_ids;                   /* by index of a shown segment; 0: not live */
} player;

/* ---- Events ---- */

static bool grow(rvl_model_step *step)
{
    if (!RVLI_ROOM(step->events, step->event_count, step->event_room, 256)) {
        step->failed = true;
        return false;
    }
    return true;
}

/* after_ns: time since the previous event. The next event follows EVENT_NS later, as usual. */
static void add_after(player *p, int process, rvl_trace_event event, uint64_t after_ns)
{
    rvl_model_step *step = p->step;
    if (!grow(step))
        return;
    step->time_ns += after_ns - EVENT_NS;
    event.time_ns = step->time_ns;
    event.process = process_names[process];
    event.process_index = (uint32_t)process;
    event.tag_index = RVL_TRACE_NO_TAG;
    step->events[step->event_count++] = event;
    step->time_ns += EVENT_NS;
}

static void add(player *p, int process, rvl_trace_event event)
{
    add_after(p, process, event, EVENT_NS);
}

static void note(player *p, const char *text)
{
    p->step->comments[p->step->comment_count++] = (rvli_comment){p->step->event_count, text};
}

static void step_mark(player *p)
{
    add(p, p->conductor, (rvl_trace_event){.kind = RVL_EVENT_STEP});
}

static void stage(player *p, const char *name)
{
    p->step->time_ns += STAGE_NS;
    add(p, p->conductor, (rvl_trace_event){.kind = RVL_EVENT_STAGE, .name = name});
}

static const rvli_sizes *sizes_of(const player *p, rvl_model_term term)
{
    return &p->step->terms.term[term].sizes;
}

static const char *tag_of(const player *p, rvl_model_term term)
{
    return rvli_term_tag(term, p->step->train);
}

static void alloc_one(player *p, int process, rvl_model_term term, uint64_t bytes,
                      rvl_backup backup, uint32_t flags)
{
    if (p->live[term] == 0)
        p->first_id[term] = p->step->last_id[process] + 1;
    add(p, process,
        (rvl_trace_event){.kind = RVL_EVENT_ALLOC,
                          .id = ++p->step->last_id[process],
                          .bytes = bytes,
                          .tag = tag_of(p, term),
                          .backup = backup,
                          .flags = flags});
    p->live[term]++;
}

/* Allocates the first `count` sizes of a term. */
static void alloc_some(player *p, int process, rvl_model_term term, size_t count, rvl_backup backup,
                       uint32_t flags)
{
    const rvli_sizes *sizes = sizes_of(p, term);
    p->live[term] = 0;
    for (size_t i = 0; i < sizes->count && i < count; i++)
        alloc_one(p, process, term, sizes->items[i], backup, flags);
}

static void alloc(player *p, int process, const rvl_model_term *terms, size_t count,
                  rvl_backup backup)
{
    for (size_t i = 0; i < count; i++)
        alloc_some(p, process, terms[i], SIZE_MAX, backup, 0);
}

static void release_one(player *p, int process, rvl_model_term term)
{
    for (uint64_t i = 0; i < p->live[term]; i++)
        add(p, process, (rvl_trace_event){.kind = RVL_EVENT_FREE, .id = p->first_id[term] + i});
    p->live[term] = 0;
}

static void release(player *p, int process, const rvl_model_term *terms, size_t count)
{
    for (size_t i = 0; i < count; i++)
        release_one(p, process, terms[i]);
}

static void pause(player *p, int process, const rvl_model_term *terms, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (sizes_of(p, terms[i])->count > 0)
            add(p, process, (rvl_trace_event){.kind = RVL_EVENT_PAUSE, .tag = tag_of(p, terms[i])});
    }
}

/* Resumes the trainer's terms with their content, from the backup. The engine's come back without
 * it: the update overwrites them. */
static void resume(player *p, int process, const rvl_model_term *terms, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (sizes_of(p, terms[i])->count > 0)
            add(p, process,
                (rvl_trace_event){.kind = RVL_EVENT_RESUME,
                                  .tag = tag_of(p, terms[i]),
                                  .skip_content = process == ENGINE});
    }
}

static void resume_one(player *p, int process, rvl_model_term term)
{
    resume(p, process, &term, 1);
}

static void external(player *p, int process, rvl_model_term term, bool there)
{
    const rvli_sizes *sizes = sizes_of(p, term);
    if (sizes->count > 0)
        add(p, process,
            (rvl_trace_event){.kind = RVL_EVENT_EXTERNAL,
                              .bytes = there ? sizes->total : 0,
                              .name = tag_of(p, term)});
}

/* Starts or ends a process, with its context and NCCL's buffers. */
static void process(player *p, int which, bool there)
{
    external(p, which, which == ENGINE ? RVL_MODEL_ENGINE_CONTEXT : RVL_MODEL_TRAINER_CONTEXT,
             there);
    external(p, which, which == ENGINE ? RVL_MODEL_ENGINE_NCCL : RVL_MODEL_TRAINER_NCCL, there);
}

/* ---- Without a trainer ---- */

static bool wakes_whole(const player *p)
{
    return p->options->strategy == RVL_MODEL_V2 || p->options->wake == RVL_WAKE_TOGETHER;
}

static void play_wake(player *p)
{
    bool sleeps = p->options->strategy != RVL_MODEL_V0;
    uint32_t flags = sleeps ? RVL_ALLOC_PAUSED : 0;
    step_mark(p);
    stage(p, "asleep");
    external(p, ENGINE, RVL_MODEL_ASLEEP, true);
    external(p, ENGINE, RVL_MODEL_ENGINE_NCCL, true);
    alloc_some(p, ENGINE, RVL_MODEL_WEIGHTS, SIZE_MAX, RVL_BACKUP_NONE, flags);
    alloc_some(p, ENGINE, RVL_MODEL_KV_CACHE, SIZE_MAX, RVL_BACKUP_NONE, flags);
    stage(p, "weights_awake");
    if (sleeps)
        resume_one(p, ENGINE, RVL_MODEL_WEIGHTS);
    if (sleeps && wakes_whole(p))
        resume_one(p, ENGINE, RVL_MODEL_KV_CACHE);
    stage(p, "training_copy_loaded");
    external(p, TRAINER, RVL_MODEL_TRAINER_CONTEXT, true);
    alloc(p, TRAINER, UPDATE_TERMS, RVL_BACKUP_NONE);
    stage(p, "training_copy_freed");
    release(p, TRAINER, UPDATE_TERMS);
    external(p, TRAINER, RVL_MODEL_TRAINER_RESIDUE, true);
    stage(p, "kv_cache_awake");
    if (sleeps && !wakes_whole(p))
        resume_one(p, ENGINE, RVL_MODEL_KV_CACHE);
}

/* ---- A full step ---- */

/* A term's sizes in a pass without gradients. */
static const rvli_sizes *forward_sizes(const player *p, rvl_model_term term)
{
    return p->step->terms.by_program ? &p->step->terms.forward[term] : sizes_of(p, term);
}

static void alloc_forward(player *p, rvl_model_term term, size_t count)
{
    const rvli_sizes *sizes = forward_sizes(p, term);
    for (size_t i = 0; i < sizes->count && i < count; i++)
        alloc_one(p, TRAINER, term, sizes->items[i], RVL_BACKUP_NONE, 0);
}

/* Allocates the whole weights for one pass. */
static void gather(player *p)
{
    alloc_forward(p, RVL_MODEL_ALL_GATHER, SIZE_MAX);
    release_one(p, TRAINER, RVL_MODEL_ALL_GATHER);
}

/* Buckets are gathered and sent one after the other. */
static void update(player *p)
{
    if (sizes_of(p, RVL_MODEL_UPDATE_BUCKET)->count == 0) {
        gather(p);
        return;
    }
    alloc(p, TRAINER, UPDATE_TERMS, RVL_BACKUP_NONE);
    release(p, TRAINER, UPDATE_TERMS);
}

/* A pass without gradients does not need the last size of the logits, their gradient. */
static void log_probabilities(player *p)
{
    size_t logits = forward_sizes(p, RVL_MODEL_LOGITS)->count;
    alloc_forward(p, RVL_MODEL_ALL_GATHER, SIZE_MAX);
    alloc_forward(p, RVL_MODEL_LOGITS, logits > 1 ? logits - 1 : logits);
    release_one(p, TRAINER, RVL_MODEL_LOGITS);
    release_one(p, TRAINER, RVL_MODEL_ALL_GATHER);
}

/* ---- The moments of a step ---- */

/* All segments as one allocation: the reserved bytes do not change between the moments. */
static void alloc_reserved(player *p)
{
    const uint64_t *moment = p->step->terms.moments[RVLI_MOMENT_PASSES];
    uint64_t bytes = 0;
    for (size_t i = 0; i < COUNT(training_terms); i++)
        bytes += moment[training_terms[i]];
    if (bytes > 0)
        alloc_one(p, TRAINER, RVL_MODEL_CACHED, bytes, RVL_BACKUP_NONE, 0);
}

/* Writes what the segments contain from now on. Shrinking terms come first: there is no room for
 * both. */
static void show_moment(player *p, const uint64_t *before, const uint64_t *moment)
{
    uint64_t after_ns = EVENT_NS;
    for (int rises = 0; rises <= 1; rises++) {
        for (size_t i = 0; i < COUNT(training_terms); i++) {
            rvl_model_term term = training_terms[i];
            uint64_t had = before != NULL ? before[term] : 0;
            if (term == RVL_MODEL_CACHED || had == moment[term] ||
                (moment[term] > had) != (rises != 0))
                continue;
            add_after(p, TRAINER,
                      (rvl_trace_event){.kind = RVL_EVENT_PART,
                                        .id = p->first_id[RVL_MODEL_CACHED],
                                        .bytes = moment[term],
                                        .tag = tag_of(p, term)},
                      after_ns);
            after_ns = 0;
        }
    }
}

/* Allocates everything for training. If terms add up, they do not change during the step. */
static void alloc_training(player *p)
{
    if (!p->step->terms.by_program) {
        alloc(p, TRAINER, TRAINING_TERMS, RVL_BACKUP_NONE);
        return;
    }
    alloc_reserved(p);
    show_moment(p, NULL, p->step->terms.moments[RVLI_MOMENT_PASSES]);
}

static void release_training(player *p)
{
    for (size_t i = COUNT(training_terms); i > 0; i--)
        release_one(p, TRAINER, training_terms[i - 1]);
}

/* ---- The segments of a step ---- */

static void show_segment(player *p, const rvli_shown_event *event, uint64_t after_ns)
{
    uint64_t *id = &p->segment_ids[event->segment];
    rvl_trace_event shown = {.kind = RVL_EVENT_PART, .bytes = event->bytes};
    if (event->kind == RVLI_SHOWN_ALLOC) {
        *id = ++p->step->last_id[TRAINER];
        shown.kind = RVL_EVENT_ALLOC;
        shown.tag = tag_of(p, RVL_MODEL_CACHED);
    } else if (event->kind == RVLI_SHOWN_PART) {
        shown.tag = tag_of(p, event->term);
    } else {
        shown.kind = RVL_EVENT_FREE;
    }
    shown.id = *id;
    if (event->kind == RVLI_SHOWN_FREE)
        *id = 0;
    add_after(p, TRAINER, shown, event->joins ? 0 : after_ns);
}

static void show_first_segments(player *p)
{
    const rvli_shown *shown = p->step->terms.shown;
    for (size_t i = 0; i < shown->begin_count; i++)
        show_segment(p, &shown->events[i], EVENT_NS);
}

/* Spreads the instants of the step over the time between two stages. */
static void show_step(player *p)
{
    const rvli_shown *shown = p->step->terms.shown;
    uint64_t instants = 1;
    for (size_t i = shown->begin_count; i < shown->event_count; i++)
        instants += !shown->events[i].joins;
    for (size_t i = shown->begin_count; i < shown->event_count; i++)
        show_segment(p, &shown->events[i], STAGE_NS / instants);
}

static void release_segments(player *p)
{
    for (size_t i = 0; i < p->step->terms.shown->segment_count; i++) {
        if (p->segment_ids[i] != 0)
            add(p, TRAINER, (rvl_trace_event){.kind = RVL_EVENT_FREE, .id = p->segment_ids[i]});
        p->segment_ids[i] = 0;
    }
}

static void train_in_segments(player *p)
{
    note(p, "The segments of the caching allocator, without what lives on, and what lies in them.");
    show_first_segments(p);
    show_step(p);
    release_segments(p);
}

static void train_in_one(player *p)
{
    alloc_training(p);
    if (p->step->terms.by_program)
        show_moment(p, p->step->terms.moments[RVLI_MOMENT_PASSES],
                    p->step->terms.moments[RVLI_MOMENT_UPDATE]);
    release_training(p);
}

static void train(player *p)
{
    external(p, TRAINER, RVL_MODEL_PAGED_OPTIMIZER, true);
    (p->step->terms.shown != NULL ? train_in_segments : train_in_one)(p);
    external(p, TRAINER, RVL_MODEL_PAGED_OPTIMIZER, false);
}

static void play_v0(player *p)
{
    step_mark(p);
    stage(p, "rollout");
    note(p, "Launched once; caching allocators keep what they have for good.");
    process(p, ENGINE, true);
    process(p, TRAINER, true);
    alloc(p, ENGINE, ENGINE_TERMS, RVL_BACKUP_NONE);
    const rvli_shown *shown = p->step->terms.shown;
    alloc(p, TRAINER, STATE_TERMS, RVL_BACKUP_NONE);
    if (shown != NULL)
        show_first_segments(p);
    else
        alloc_training(p);
    stage(p, "log_probabilities");
    stage(p, "train");
    if (shown != NULL)
        show_step(p);
    step_mark(p);
    stage(p, "update_weights");
    stage(p, "rollout");
}

static void launch_engine(player *p)
{
    process(p, ENGINE, true);
    alloc(p, ENGINE, ENGINE_TERMS, RVL_BACKUP_NONE);
}

static void play_v1(player *p)
{
    step_mark(p);
    stage(p, "rollout");
    launch_engine(p);
    note(p, "The engine is shut down.");
    release(p, ENGINE, ENGINE_TERMS);
    process(p, ENGINE, false);
    stage(p, "log_probabilities");
    note(p, "The trainer is launched; it loads its state from disk.");
    process(p, TRAINER, true);
    alloc(p, TRAINER, STATE_TERMS, RVL_BACKUP_NONE);
    log_probabilities(p);
    stage(p, "train");
    train(p);
    step_mark(p);
    stage(p, "update_weights");
    note(p, "The trainer gathers the weights and saves them and its state to disk, then it ends.");
    gather(p);
    release(p, TRAINER, STATE_TERMS);
    process(p, TRAINER, false);
    note(p,
         "The engine is launched again; it loads the weights from disk and captures its graphs.");
    launch_engine(p);
    stage(p, "rollout");
}

/* The common part of v2 and v3. */
static void play_up_to_the_update(player *p)
{
    step_mark(p);
    stage(p, "rollout");
    note(p, "The trainer's state is offloaded to the host before the engine starts.");
    process(p, TRAINER, true);
    alloc(p, TRAINER, STATE_TERMS, RVL_BACKUP_HOST);
    pause(p, TRAINER, STATE_TERMS);
    launch_engine(p);
    note(p, "Generation has ended: the engine releases all it has, without a backup.");
    pause(p, ENGINE, ENGINE_TERMS);
    stage(p, "log_probabilities");
    resume_one(p, TRAINER, RVL_MODEL_SHARDED_WEIGHTS);
    log_probabilities(p);
    stage(p, "train");
    resume(p, TRAINER, OPTIMIZER_TERMS);
    train(p);
    pause(p, TRAINER, OPTIMIZER_TERMS);
    step_mark(p);
    stage(p, "update_weights");
}

static void play_v2(player *p)
{
    play_up_to_the_update(p);
    note(p, "The engine wakes as a whole, beside the trainer's weights.");
    resume(p, ENGINE, ENGINE_TERMS);
    update(p);
    pause(p, TRAINER, state_terms, 1);
    stage(p, "rollout");
}

static void play_v3(player *p)
{
    play_up_to_the_update(p);
    note(p, "What the update needs wakes; the trainer leaves before the KV cache comes.");
    resume_one(p, ENGINE, RVL_MODEL_WEIGHTS);
    resume_one(p, ENGINE, RVL_MODEL_BUFFERS);
    update(p);
    pause(p, TRAINER, state_terms, 1);
    stage(p, "rollout");
    resume_one(p, ENGINE, RVL_MODEL_KV_CACHE);
    resume_one(p, ENGINE, RVL_MODEL_CUDA_GRAPH);
}

/* ---- One half alone ---- */

static void play_serve(player *p)
{
    stage(p, "serve");
    launch_engine(p);
}

static void play_fine_tune(player *p)
{
    stage(p, "load");
    process(p, TRAINER, true);
    alloc(p, TRAINER, STATE_TERMS, RVL_BACKUP_NONE);
    stage(p, "train");
    train(p);
}

void rvli_step_play(rvl_model_step *step, const rvli_plan *plan)
{
    player p = {.step = step, .options = &plan->options};
    const rvli_shown *shown = step->terms.shown;
    if (shown != NULL)
        p.segment_ids = calloc(shown->segment_count + 1, sizeof *p.segment_ids);
    if (shown != NULL && p.segment_ids == NULL) {
        step->failed = true;
        return;
    }
    p.conductor = plan->options.train == RVL_MODEL_TRAIN_NONE ? ENGINE : TRAINER;
    if (plan->options.use == RVL_MODEL_USE_SERVE)
        play_serve(&p);
    else if (plan->options.use == RVL_MODEL_USE_FINE_TUNE)
        play_fine_tune(&p);
    else if (plan->options.train == RVL_MODEL_TRAIN_NONE)
        play_wake(&p);
    else if (plan->options.strategy == RVL_MODEL_V0)
        play_v0(&p);
    else if (plan->options.strategy == RVL_MODEL_V1)
        play_v1(&p);
    else if (plan->options.strategy == RVL_MODEL_V2 || plan->options.wake == RVL_WAKE_TOGETHER)
        play_v2(&p);
    else
        play_v3(&p);
    free(p.segment_ids);
}
