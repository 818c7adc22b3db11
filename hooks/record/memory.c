/* SPDX-License-Identifier: MIT */
/*
 * The memory that is recorded: live allocations, and the tags that they were given. A pause of all
 * tags has to name each.
 */
#include "hooks/record/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/addrmap.h"
#include "base/pool.h"
#include "hooks/record/usage.h"

/*
 * The name of the empty tag in a trace. It is memory of a region, too, and is paused with all tags.
 */
#define NAMELESS_TAG "\"\""

typedef struct used_tag {
    struct used_tag *next;
    const char *name; /* interned */
    bool paused;      /* false: some of it may be active */
} used_tag;

static rvli_addrmap known[RVLI_RECORDED_SPACES]; /* values: rvli_recorded */
static rvli_pool memory;                         /* for rvli_recorded */
static uint64_t last_id;
static used_tag *tags;

void rvli_record_begin_memory(void)
{
    for (int space = 0; space < RVLI_RECORDED_SPACES; space++)
        rvli_addrmap_init(&known[space]);
    rvli_pool_init(&memory, sizeof(rvli_recorded));
    last_id = 0;
    tags = NULL;
}

void rvli_record_forget_memory(void)
{
    for (int space = 0; space < RVLI_RECORDED_SPACES; space++)
        rvli_addrmap_destroy(&known[space]);
    rvli_pool_destroy(&memory);
    while (tags != NULL) {
        used_tag *gone = tags;
        tags = gone->next;
        free(gone);
    }
}

/* ---- Allocations ---- */

static bool note_tag(const char *name)
{
    used_tag *tag = tags;
    while (tag != NULL && tag->name != name && strcmp(tag->name, name) != 0)
        tag = tag->next;
    if (tag == NULL) {
        tag = malloc(sizeof *tag);
        if (tag == NULL)
            return false;
        *tag = (used_tag){.next = tags, .name = name};
        tags = tag;
    }
    tag->paused = false;
    return true;
}

static void write_free(uint64_t id)
{
    rvli_record_write(&(rvl_trace_event){.kind = RVL_EVENT_FREE, .id = id});
}

static rvli_recorded *forget_key(rvli_recorded_space space, uint64_t key)
{
    rvli_recorded *gone = rvli_addrmap_remove(&known[space], key);
    if (gone != NULL && gone->nccl)
        rvli_record_nccl(gone->device, -(int64_t)gone->size_bytes);
    else if (gone != NULL)
        write_free(gone->id);
    return gone;
}

static void write_memory(const rvli_recorded *kept, const char *tag, uint32_t flags)
{
    rvli_record_write(&(rvl_trace_event){.kind = RVL_EVENT_ALLOC,
                                         .id = kept->id,
                                         .device = rvli_usage_device_at(kept->device)->place,
                                         .bytes = kept->size_bytes,
                                         .tag = tag,
                                         .backup = kept->backup,
                                         .flags = flags});
}

/* Without host memory, leaves the allocation out: its bytes stay unexplained. */
static void write_alloc(rvli_recorded_space space, uint64_t key, rvli_recorded *kept)
{
    const char *tag = kept->tag;
    if (tag != NULL && tag[0] == '\0')
        tag = NAMELESS_TAG;
    if ((tag != NULL && !note_tag(tag)) ||
        rvli_addrmap_insert(&known[space], key, kept) != RVL_OK) {
        rvli_pool_put(&memory, kept);
        return;
    }
    if (kept->nccl) {
        rvli_record_nccl(kept->device, (int64_t)kept->size_bytes);
        return;
    }
    kept->id = ++last_id;
    write_memory(kept, tag, kept->paused ? RVL_ALLOC_PAUSED : 0);
}

void rvli_recorder_alloc(rvli_recorded_space space, uint64_t key, const rvli_recorded *what)
{
    if (!rvli_recorder_on() || what->size_bytes == 0 || !rvli_record_enter())
        return;
    int device = what->device >= 0 ? what->device : rvli_usage_current();
    /* An old entry was freed by a call that the hooks did not see. */
    rvli_recorded *stale = forget_key(space, key);
    if (stale != NULL)
        rvli_pool_put(&memory, stale);
    rvli_recorded *kept = rvli_record_knows_device(device) ? rvli_pool_get(&memory) : NULL;
    if (kept != NULL) {
        *kept = *what;
        kept->device = device;
        write_alloc(space, key, kept);
        rvli_record_use_device(device);
    }
    pthread_mutex_unlock(&rvli_record_lock);
}

/* ---- Refusals ---- */

/* Without the lock. Returns 0 for a device that does not report its use. */
static uint64_t free_of(int device)
{
    uint64_t used_bytes, capacity_bytes = rvli_usage_device_at(device)->capacity_bytes;
    if (!rvli_record_read_use(device, &used_bytes) || used_bytes > capacity_bytes)
        return 0;
    return capacity_bytes - used_bytes;
}

void rvli_recorder_refuse(const rvli_refused *refused)
{
    if (!rvli_recorder_on() || refused->requested_bytes == 0 || rvli_usage_load() != RVL_OK)
        return;
    int device = refused->device >= 0 ? refused->device : rvli_usage_current();
    if (!rvli_record_knows_device(device))
        return;
    uint64_t bytes = refused->requested_bytes;
    rvl_trace_event event = {
        .kind = RVL_EVENT_REFUSE,
        .device = rvli_usage_device_at(device)->place,
        .bytes = bytes < INT64_MAX ? bytes : INT64_MAX, /* the most that a trace can hold */
        .free_bytes =
            refused->free_bytes != RVLI_RECORDER_UNMEASURED ? refused->free_bytes : free_of(device),
        .tag = refused->tag != NULL && refused->tag[0] == '\0' ? NAMELESS_TAG : refused->tag,
    };
    if (!rvli_record_enter())
        return;
    rvli_record_write(&event);
    rvli_record_use_device(device);
    pthread_mutex_unlock(&rvli_record_lock);
}

/* ---- Frees ---- */

/* With the lock held. Returns NULL if the key is not recorded. */
static rvli_recorded *find_key(rvli_recorded_space space, uint64_t key)
{
    return rvli_record_has_file() ? rvli_addrmap_get(&known[space], key) : NULL;
}

void rvli_recorder_retain(rvli_recorded_space space, uint64_t key)
{
    if (!rvli_recorder_on())
        return;
    pthread_mutex_lock(&rvli_record_lock);
    rvli_recorded *held = find_key(space, key);
    if (held != NULL)
        held->references++;
    pthread_mutex_unlock(&rvli_record_lock);
}

bool rvli_recorder_free(rvli_recorded_space space, uint64_t key, rvli_recorded *was_out)
{
    if (!rvli_recorder_on())
        return false;
    pthread_mutex_lock(&rvli_record_lock);
    rvli_recorded *gone = find_key(space, key);
    if (gone != NULL && gone->references > 0) {
        gone->references--;
        gone = NULL;
    } else if (gone != NULL) {
        gone = forget_key(space, key);
    }
    if (gone != NULL) {
        if (was_out != NULL)
            *was_out = *gone;
        rvli_pool_put(&memory, gone);
    }
    pthread_mutex_unlock(&rvli_record_lock);
    return gone != NULL;
}

void rvli_record_free_addresses(int device)
{
    uint64_t at = 0;
    rvli_recorded *each;
    while ((each = rvli_addrmap_ceil(&known[RVLI_RECORDED_ADDRESS], at, &at)) != NULL) {
        if (each->device == device && each->tag == NULL)
            rvli_pool_put(&memory, forget_key(RVLI_RECORDED_ADDRESS, at));
        at++;
    }
}

void rvli_record_free_all(void)
{
    for (int space = 0; space < RVLI_RECORDED_SPACES; space++) {
        uint64_t at = 0;
        const rvli_recorded *each;
        while ((each = rvli_addrmap_ceil(&known[space], at, &at)) != NULL) {
            if (!each->nccl) /* NCCL's sum ends in rvli_record_end_growth() */
                write_free(each->id);
            at++;
        }
    }
}

/* ---- Pauses ---- */

static void write_transition(rvl_event_kind kind, used_tag *tag)
{
    rvli_record_write(&(rvl_trace_event){.kind = kind, .tag = tag->name});
    tag->paused = kind == RVL_EVENT_PAUSE;
}

/* Whether a tag has this name; NULL matches every tag. */
static bool is_called(const used_tag *tag, const char *name)
{
    return name == NULL || strcmp(tag->name, name[0] != '\0' ? name : NAMELESS_TAG) == 0;
}

void rvli_recorder_pause(const char *tag)
{
    if (!rvli_recorder_on())
        return;
    pthread_mutex_lock(&rvli_record_lock);
    for (used_tag *each = tags; each != NULL; each = each->next)
        if (!each->paused && is_called(each, tag))
            write_transition(RVL_EVENT_PAUSE, each);
    pthread_mutex_unlock(&rvli_record_lock);
}

void rvli_recorder_resume(const char *tag)
{
    if (!rvli_recorder_on())
        return;
    pthread_mutex_lock(&rvli_record_lock);
    for (used_tag *each = tags; each != NULL; each = each->next)
        if (is_called(each, tag))
            write_transition(RVL_EVENT_RESUME, each);
    pthread_mutex_unlock(&rvli_record_lock);
}

/* The next allocation of a tag, at *key or above. */
static rvli_recorded *next_of(const used_tag *tag, uint64_t *key)
{
    rvli_recorded *each;
    while ((each = rvli_addrmap_ceil(&known[RVLI_RECORDED_ADDRESS], *key, key)) != NULL &&
           (each->tag == NULL || !is_called(tag, each->tag)))
        ++*key;
    return each;
}

/*
 * Records allocations that stay paused while others of their tag are active: each is freed, and
 * allocated again as paused.
 */
static void write_part(used_tag *tag, rvli_recorder_paused is_paused)
{
    uint64_t key = 0;
    rvli_recorded *each;
    for (; (each = next_of(tag, &key)) != NULL; key++)
        if (is_paused(key)) {
            write_free(each->id);
            each->id = 0;
        }
    write_transition(RVL_EVENT_RESUME, tag);
    for (key = 0; (each = next_of(tag, &key)) != NULL; key++)
        if (each->id == 0) {
            each->id = ++last_id;
            write_memory(each, tag->name, RVL_ALLOC_PAUSED);
        }
}

static void settle(used_tag *tag, rvli_recorder_paused is_paused)
{
    uint64_t key = 0, paused = 0, active = 0;
    for (; next_of(tag, &key) != NULL; key++)
        *(is_paused(key) ? &paused : &active) += 1;
    if (paused > 0 && active > 0)
        write_part(tag, is_paused);
    else if (active > 0)
        write_transition(RVL_EVENT_RESUME, tag);
}

void rvli_recorder_settle(const char *tag, rvli_recorder_paused is_paused)
{
    if (!rvli_recorder_on())
        return;
    pthread_mutex_lock(&rvli_record_lock);
    for (used_tag *each = tags; each != NULL; each = each->next)
        if (is_called(each, tag))
            settle(each, is_paused);
    pthread_mutex_unlock(&rvli_record_lock);
}
