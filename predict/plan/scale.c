/* SPDX-License-Identifier: MIT */
/*
 * Scales the sizes of one tag on the way into a replay.
 *
 * The allocations of a process under the tag on a device are laid end to end in granules, from the
 * time when none of them is live until none is live again. Sizes are scaled by G / P, where P is
 * the peak in granules and G the wanted size. An allocation that lay from a to b then has floor(b G
 * / P) - floor(a G / P) granules. So the sizes add up to G exactly, each is as close to its share
 * as whole granules allow, and G = P changes nothing. Allocations with no granule left are dropped,
 * with their frees, and so are pauses of processes that have nothing left.
 *
 * Only live allocations are remembered.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#include "predict/plan/plan_internal.h"

/* ---- The allocations of a tag ---- */

/* The allocations of a process on a device. */
typedef struct group {
    UT_hash_handle hh;
    uint64_t key;    /* process and device */
    uint64_t live;   /* allocations */
    uint64_t laid;   /* granules laid out since none was live */
    uint64_t in_use; /* granules */
} group;

typedef struct live_key {
    uint64_t id;
    uint64_t process;
} live_key;

/* A live allocation, and its place among those of its group. */
typedef struct live_share {
    UT_hash_handle hh;
    live_key key;
    group *of;
    uint64_t from; /* granules */
    uint64_t to;
    struct live_share *next; /* next unused one */
} live_share;

typedef struct sharer {
    const rvli_scaled_tag *tag;
    group *groups;
    live_share *live;
    live_share *unused;
    uint64_t peak_granules; /* highest peak of any group */
    char *process;          /* process of the first allocation */
    bool failed;            /* no memory */
} sharer;

/* How an event relates to the tag. */
typedef enum part_kind {
    PART_NONE,
    PART_SIZED, /* an allocation, or its free */
    PART_OTHER, /* a pause or resume */
    PART_GONE   /* an event about parts of a scaled allocation */
} part_kind;

typedef struct part {
    part_kind kind;
    uint64_t from; /* PART_SIZED: its first granule */
    uint64_t to;
} part;

static bool is_shared(const sharer *s, const rvl_trace_event *event)
{
    return event->tag != NULL && strcmp(event->tag, s->tag->name) == 0 &&
           (s->tag->process == NULL || strcmp(event->process, s->tag->process) == 0);
}

static group *group_of(sharer *s, const rvl_trace_event *event)
{
    uint64_t key = (uint64_t)event->process_index << 32 | event->device;
    group *found;
    HASH_FIND(hh, s->groups, &key, sizeof key, found);
    if (found != NULL)
        return found;
    found = calloc(1, sizeof *found);
    if (found == NULL)
        return NULL;
    found->key = key;
    HASH_ADD(hh, s->groups, key, sizeof found->key, found);
    if (found->hh.tbl != NULL)
        return found;
    free(found);
    return NULL;
}

static live_share *new_share(sharer *s)
{
    live_share *share = s->unused;
    if (share == NULL)
        return malloc(sizeof *share);
    s->unused = share->next;
    return share;
}

static void put_share(sharer *s, live_share *share)
{
    share->next = s->unused;
    s->unused = share;
}

static bool add_share(sharer *s, const rvl_trace_event *event, group *of, uint64_t granules)
{
    live_share *share = new_share(s);
    if (share == NULL)
        return false;
    memset(share, 0, sizeof *share);
    share->key = (live_key){.id = event->id, .process = event->process_index};
    share->of = of;
    share->from = of->laid;
    share->to = of->laid + granules;
    HASH_ADD(hh, s->live, key, sizeof share->key, share);
    if (share->hh.tbl != NULL)
        return true;
    put_share(s, share);
    return false;
}

static part share_alloc(sharer *s, const rvl_trace_event *event)
{
    uint64_t granularity = s->tag->granularity_bytes;
    uint64_t granules = event->bytes / granularity + (event->bytes % granularity != 0);
    if (s->process == NULL)
        s->process = strdup(event->process);
    group *of = group_of(s, event);
    if (s->process == NULL || of == NULL || !add_share(s, event, of, granules)) {
        s->failed = true;
        return (part){PART_NONE, 0, 0};
    }
    part made = {PART_SIZED, of->laid, of->laid + granules};
    of->laid += granules;
    of->in_use += granules;
    of->live++;
    if (of->in_use > s->peak_granules)
        s->peak_granules = of->in_use;
    return made;
}

static part share_free(sharer *s, const rvl_trace_event *event)
{
    live_share *share = NULL;
    live_key key = {.id = event->id, .process = event->process_index};
    if (s->live != NULL)
        HASH_FIND(hh, s->live, &key, sizeof key, share);
    if (share == NULL)
        return (part){PART_NONE, 0, 0};
    part freed = {PART_SIZED, share->from, share->to};
    share->of->in_use -= share->to - share->from;
    if (--share->of->live == 0)
        share->of->laid = 0;
    HASH_DEL(s->live, share);
    put_share(s, share);
    return freed;
}

/* Whether an event is for a scaled allocation. The parts of such an allocation are not known. */
static bool is_sized(const sharer *s, const rvl_trace_event *event)
{
    live_share *share = NULL;
    live_key key = {.id = event->id, .process = event->process_index};
    if (s->live != NULL)
        HASH_FIND(hh, s->live, &key, sizeof key, share);
    return share != NULL;
}

static part share_event(sharer *s, const rvl_trace_event *event)
{
    if (event->kind == RVL_EVENT_FREE)
        return share_free(s, event);
    if (event->kind == RVL_EVENT_PART)
        return (part){is_sized(s, event) ? PART_GONE : PART_NONE, 0, 0};
    if (!is_shared(s, event))
        return (part){PART_NONE, 0, 0};
    return event->kind == RVL_EVENT_ALLOC ? share_alloc(s, event) : (part){PART_OTHER, 0, 0};
}

/* Clears everything, as before the first event. */
static void begin_sharing(sharer *s)
{
    live_share *share, *next_share;
    group *each, *next_group;
    HASH_ITER (hh, s->live, share, next_share) {
        HASH_DEL(s->live, share);
        put_share(s, share);
    }
    HASH_ITER (hh, s->groups, each, next_group) {
        HASH_DEL(s->groups, each);
        free(each);
    }
}

static void end_sharing(sharer *s)
{
    begin_sharing(s);
    while (s->unused != NULL) {
        live_share *share = s->unused;
        s->unused = share->next;
        free(share);
    }
    free(s->process);
    s->process = NULL;
}

static bool note_share(void *user, const rvl_trace_event *event)
{
    sharer *s = user;
    share_event(s, event);
    return !s->failed;
}

/* Measures the tag, of one process or of any. */
static rvl_status measure(const rvli_subject *subject, rvli_scaled_tag *tag)
{
    sharer s = {.tag = tag};
    rvl_status status = rvli_subject_walk(subject, note_share, &s);
    if (s.failed)
        status = RVL_ERR_HOST_OOM;
    if (status == RVL_OK && s.peak_granules == 0)
        status = RVL_ERR_NOT_FOUND;
    if (status == RVL_OK) {
        tag->peak_granules = s.peak_granules;
        tag->holder = s.process;
        s.process = NULL;
    }
    end_sharing(&s);
    return status;
}

rvl_status rvli_scaled_tag_measure(const rvli_subject *subject, const char *name,
                                   uint64_t granularity_bytes, rvli_scaled_tag *tag_out)
{
    rvli_scaled_tag tag = {.name = name, .granularity_bytes = granularity_bytes};
    rvl_status status = measure(subject, &tag);
    const char *slash = strchr(name, '/');
    if (status == RVL_ERR_NOT_FOUND && slash != NULL) {
        tag.name = slash + 1;
        tag.process = strndup(name, (size_t)(slash - name));
        status = tag.process != NULL ? measure(subject, &tag) : RVL_ERR_HOST_OOM;
    }
    if (status == RVL_OK)
        *tag_out = tag;
    else
        rvli_scaled_tag_forget(&tag);
    return status;
}

void rvli_scaled_tag_forget(rvli_scaled_tag *tag)
{
    free(tag->process);
    free(tag->holder);
    *tag = (rvli_scaled_tag){0};
}

/* ---- Scaling ---- */

/* floor(laid * granules / peak), with peak and granules below 2^32. */
static uint64_t scale(uint64_t laid, uint64_t granules, uint64_t peak)
{
    return laid / peak * granules + laid % peak * granules / peak;
}

typedef struct scaler {
    sharer shared;
    uint64_t granules;
    bool *seen; /* by process: it has allocations left under the tag */
    uint32_t seen_count;
} scaler;

/* false: no memory. */
static bool see_process(scaler *s, uint32_t process)
{
    if (process >= s->seen_count) {
        uint32_t count = 2 * process + 16;
        bool *seen = realloc(s->seen, count * sizeof *seen);
        if (seen == NULL)
            return false;
        memset(seen + s->seen_count, 0, (count - s->seen_count) * sizeof *seen);
        s->seen = seen;
        s->seen_count = count;
    }
    s->seen[process] = true;
    return true;
}

/* Sets the scaled size of an event. Drops the event if no granule is left. */
static rvl_status scale_event(void *user, rvl_trace_event *event, bool *keep_out)
{
    scaler *s = user;
    const rvli_scaled_tag *tag = s->shared.tag;
    if (event == NULL) { /* the events begin */
        begin_sharing(&s->shared);
        memset(s->seen, 0, s->seen_count * sizeof *s->seen);
        return RVL_OK;
    }
    part share = share_event(&s->shared, event);
    if (s->shared.failed)
        return RVL_ERR_HOST_OOM;
    if (share.kind == PART_OTHER)
        *keep_out = event->process_index < s->seen_count && s->seen[event->process_index];
    if (share.kind == PART_GONE)
        *keep_out = false;
    if (share.kind != PART_SIZED)
        return RVL_OK;
    uint64_t granules = scale(share.to, s->granules, tag->peak_granules) -
                        scale(share.from, s->granules, tag->peak_granules);
    if (event->kind == RVL_EVENT_ALLOC)
        event->bytes = granules * tag->granularity_bytes;
    *keep_out = granules > 0;
    return granules == 0 || see_process(s, event->process_index) ? RVL_OK : RVL_ERR_HOST_OOM;
}

rvl_status rvli_scaled_tag_replay(const rvli_subject *subject, const rvli_scaled_tag *tag,
                                  uint64_t granules, const rvl_replay_options *options,
                                  rvl_replay **replay_out)
{
    if (granules == UINT64_MAX)
        return rvli_subject_replay(subject, options, replay_out);
    scaler s = {.shared = {.tag = tag}, .granules = granules, .seen = calloc(16, sizeof(bool))};
    rvl_replay_options scaled = *options;
    scaled.filter = scale_event;
    scaled.filter_user = &s;
    scaled.event_size = sizeof(rvl_trace_event);
    s.seen_count = 16;
    rvl_status status =
        s.seen != NULL ? rvli_subject_replay(subject, &scaled, replay_out) : RVL_ERR_HOST_OOM;
    end_sharing(&s.shared);
    free(s.seen);
    return status;
}

/* ---- Facts about tags ---- */

typedef struct external_search {
    const char *cause;
    uint64_t largest;
} external_search;

static bool note_external(void *user, const rvl_trace_event *event)
{
    external_search *search = user;
    if (event->kind == RVL_EVENT_EXTERNAL && event->bytes > search->largest &&
        strcmp(event->name, search->cause) == 0)
        search->largest = event->bytes;
    return true;
}

uint32_t rvli_subject_fraction(const rvli_subject *subject, const rvli_scaled_tag *tag,
                               uint64_t cache_bytes, uint64_t capacity_bytes)
{
    external_search context = {.cause = "engine_context"};
    const char *slash = strrchr(tag->name, '/');
    if (strcmp(slash != NULL ? slash + 1 : tag->name, "kv_cache") != 0)
        return 0;
    rvli_scaled_tag weights = {
        .name = "weights", .process = tag->holder, .granularity_bytes = tag->granularity_bytes};
    rvl_status status = measure(subject, &weights);
    free(weights.holder);
    if (status == RVL_OK)
        status = rvli_subject_walk(subject, note_external, &context);
    if (status != RVL_OK || context.largest >= capacity_bytes)
        return 0;
    double bytes = (double)(weights.peak_granules * tag->granularity_bytes + cache_bytes);
    double fraction = bytes / (double)(capacity_bytes - context.largest);
    return fraction < 1 ? (uint32_t)(fraction * 1e6) : 1000000;
}

/* Tags in order of appearance, each once. */
typedef struct tag_list {
    char *text;
    size_t size;
    size_t length;
} tag_list;

/* Whether the text already lists a tag. */
static bool is_listed(const tag_list *list, const char *tag)
{
    size_t length = strlen(tag);
    for (const char *at = list->text; *at != '\0';) {
        size_t listed = strcspn(at, ",");
        if (listed == length && memcmp(at, tag, length) == 0)
            return true;
        at += listed;
        at += strspn(at, ", ");
    }
    return false;
}

static bool note_tag(void *user, const rvl_trace_event *event)
{
    tag_list *list = user;
    if (event->kind != RVL_EVENT_ALLOC || event->tag == NULL || is_listed(list, event->tag))
        return true;
    const char *comma = list->length > 0 ? ", " : "";
    bool fits = list->length + strlen(comma) + strlen(event->tag) + 6 < list->size;
    list->length += (size_t)snprintf(list->text + list->length, list->size - list->length, "%s%s",
                                     comma, fits ? event->tag : "...");
    return fits && list->length + 8 < list->size;
}

void rvli_subject_list_tags(const rvli_subject *subject, char *text, size_t size)
{
    tag_list list = {.text = text, .size = size};
    text[0] = '\0';
    rvli_subject_walk(subject, note_tag, &list);
}
