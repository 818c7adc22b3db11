/* SPDX-License-Identifier: MIT */
/*
 * Processes and tags, by name (uthash) and by number; and the list of a tag's allocations.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "core/tables.h"

#define NAME_BYTES_MAX 255u

static rvl_status no_memory(const char *what)
{
    return rvli_error(RVL_ERR_HOST_OOM, what);
}

/* ---- Processes ---- */

static void free_process(rvli_process *process)
{
    free(process->name);
    free(process);
}

/* With the lock held. NULL: no memory. */
static rvli_process *new_process(rvl_context *context, const char *name)
{
    size_t slots = (size_t)context->process_count + 1;
    rvli_process **by_number = realloc(context->processes, slots * sizeof(rvli_process *));
    if (by_number == NULL)
        return NULL;
    context->processes = by_number;

    rvli_process *process = calloc(1, sizeof *process);
    if (process == NULL)
        return NULL;
    process->number = context->process_count;
    process->name = strdup(name);
    if (process->name != NULL)
        HASH_ADD_KEYPTR(hh, context->processes_by_name, process->name, strlen(name), process);
    if (process->name == NULL || process->hh.tbl == NULL) {
        free_process(process);
        return NULL;
    }
    context->processes[context->process_count++] = process;
    return process;
}

rvl_status rvli_process_add(rvl_context *context, const char *name, rvli_process **process_out)
{
    size_t length = name != NULL ? strnlen(name, NAME_BYTES_MAX + 1) : 0;
    if (length == 0 || length > NAME_BYTES_MAX)
        return rvli_error(RVL_ERR_INVALID, "a process name must have 1 to 255 bytes");

    rvli_lock(context);
    rvli_process *process = NULL;
    HASH_FIND(hh, context->processes_by_name, name, length, process);
    if (process == NULL)
        process = new_process(context, name);
    rvli_unlock(context);

    if (process == NULL)
        return no_memory("no host memory for a process");
    *process_out = process;
    return RVL_OK;
}

rvli_process *rvli_process_get(const rvl_context *context, rvl_process number)
{
    return number < context->process_count ? context->processes[number] : NULL;
}

/* ---- Tags ---- */

static void free_tag(const rvl_context *context, rvli_tag *tag)
{
    for (int device = 0; tag->holders != NULL && device < context->device_count; device++)
        free(tag->holders[device]);
    free(tag->key);
    free(tag->holders);
    free(tag);
}

/* Returns the slot for the next number, and makes its chunk if needed. NULL: no memory, or full. */
static rvli_tag **tag_slot(rvl_context *context)
{
    uint32_t index = atomic_load_explicit(&context->tag_count, memory_order_relaxed);
    uint32_t chunk = index / RVLI_TAG_CHUNK;
    if (chunk >= RVLI_TAG_CHUNKS)
        return NULL;
    rvli_tag **tags = atomic_load_explicit(&context->tag_chunks[chunk], memory_order_relaxed);
    if (tags == NULL) {
        tags = calloc(RVLI_TAG_CHUNK, sizeof(rvli_tag *));
        if (tags == NULL)
            return NULL;
        atomic_store_explicit(&context->tag_chunks[chunk], tags, memory_order_release);
    }
    return &tags[index % RVLI_TAG_CHUNK];
}

static size_t key_bytes(const rvli_tag_key *key)
{
    return offsetof(rvli_tag_key, name) + strlen(key->name);
}

/* With the lock held. NULL: no memory. */
static rvli_tag *new_tag(rvl_context *context, rvli_process *process, const rvli_tag_key *key)
{
    rvli_tag **slot = tag_slot(context);
    rvli_tag *tag = slot != NULL ? calloc(1, sizeof *tag) : NULL;
    if (tag == NULL)
        return NULL;
    size_t bytes = key_bytes(key);
    tag->process = process;
    tag->number = atomic_load_explicit(&context->tag_count, memory_order_relaxed) + 1;
    tag->key = calloc(1, bytes + 1);
    tag->holders = calloc((size_t)context->device_count, sizeof(rvli_holder *));
    if (tag->key != NULL && tag->holders != NULL) {
        memcpy(tag->key, key, bytes);
        HASH_ADD_KEYPTR(hh, context->tags_by_key, tag->key, bytes, tag);
    }
    if (tag->hh.tbl == NULL) {
        free_tag(context, tag);
        return NULL;
    }
    *slot = tag;
    atomic_store_explicit(&context->tag_count, tag->number, memory_order_release);
    return tag;
}

/* Returns false if the name is too long. */
static bool make_key(rvl_process process, const char *name, rvli_tag_key *key_out)
{
    size_t length = strnlen(name, NAME_BYTES_MAX + 1);
    if (length > NAME_BYTES_MAX)
        return false;
    *key_out = (rvli_tag_key){.process = process};
    memcpy(key_out->name, name, length);
    return true;
}

/* With the lock held. */
static rvli_tag *find_tag(const rvl_context *context, const rvli_tag_key *key)
{
    rvli_tag *tag = NULL;
    HASH_FIND(hh, context->tags_by_key, key, key_bytes(key), tag);
    return tag;
}

rvl_status rvli_tag_add(rvl_context *context, rvl_process process, const char *name,
                        rvli_tag **tag_out)
{
    rvli_tag_key key;
    if (!make_key(process, name, &key))
        return rvli_error(RVL_ERR_INVALID, "a tag name may have at most 255 bytes");

    rvli_lock(context);
    rvli_process *owner = rvli_process_get(context, process);
    rvli_tag *tag = find_tag(context, &key);
    if (tag == NULL && owner != NULL)
        tag = new_tag(context, owner, &key);
    rvli_unlock(context);

    if (owner == NULL)
        return rvli_error(RVL_ERR_INVALID, "no process of this number: rvl_process_define() first");
    if (tag == NULL)
        return no_memory("no host memory for a tag");
    *tag_out = tag;
    return RVL_OK;
}

rvli_tag_callbacks rvli_tag_get_callbacks(rvl_context *context, const rvli_tag *tag)
{
    rvli_lock(context);
    const rvli_tag_callbacks callbacks = tag->callbacks;
    rvli_unlock(context);
    return callbacks;
}

rvli_tag *rvli_tag_lookup(rvl_context *context, rvl_process process, const char *name)
{
    rvli_tag_key key;
    if (!make_key(process, name, &key))
        return NULL;
    rvli_lock(context);
    rvli_tag *tag = find_tag(context, &key);
    rvli_unlock(context);
    return tag;
}

rvl_status rvli_tag_reach(rvli_tag *tag, int device)
{
    if (tag->holders[device] != NULL)
        return RVL_OK;
    rvli_holder *holder = calloc(1, sizeof *holder);
    if (holder == NULL)
        return no_memory("no host memory for a tag on a device");
    holder->process = tag->process->name;
    holder->tag = tag->key->name[0] != '\0' ? tag->key->name : NULL;
    tag->holders[device] = holder;
    return RVL_OK;
}

rvli_tag *rvli_tag_get(const rvl_context *context, rvl_tag number)
{
    if (number == 0 || number > atomic_load_explicit(&context->tag_count, memory_order_acquire))
        return NULL;
    rvli_tag **chunk = atomic_load_explicit(&context->tag_chunks[(number - 1) / RVLI_TAG_CHUNK],
                                            memory_order_acquire);
    return chunk[(number - 1) % RVLI_TAG_CHUNK];
}

void rvli_tables_destroy(rvl_context *context)
{
    rvli_tag *tag, *next_tag;
    HASH_ITER (hh, context->tags_by_key, tag, next_tag) {
        HASH_DEL(context->tags_by_key, tag);
        free_tag(context, tag);
    }
    for (uint32_t i = 0; i < RVLI_TAG_CHUNKS; i++) { /* chunks are made in order */
        rvli_tag **chunk = atomic_load_explicit(&context->tag_chunks[i], memory_order_relaxed);
        if (chunk == NULL)
            break;
        free(chunk);
    }

    rvli_process *process, *next_process;
    HASH_ITER (hh, context->processes_by_name, process, next_process) {
        HASH_DEL(context->processes_by_name, process);
        free_process(process);
    }
    free(context->processes);
}

/* ---- Allocations of a tag ---- */

void rvli_tag_link(rvli_allocation *allocation)
{
    rvli_tag *tag = allocation->tag;
    allocation->previous = NULL;
    allocation->next = tag->allocations;
    if (tag->allocations != NULL)
        tag->allocations->previous = allocation;
    tag->allocations = allocation;
}

void rvli_tag_unlink(rvli_allocation *allocation)
{
    if (allocation->previous != NULL)
        allocation->previous->next = allocation->next;
    else
        allocation->tag->allocations = allocation->next;
    if (allocation->next != NULL)
        allocation->next->previous = allocation->previous;
}

bool rvli_backup_is_shared(const rvl_context *context, int device, rvl_backup policy)
{
    return context->store != NULL && policy == RVL_BACKUP_HOST &&
           !context->devices[device].facts.host_accounted;
}

void rvli_allocation_move(rvli_allocation *allocation, rvli_move move)
{
    rvl_state to = (rvl_state)allocation->state;
    if (rvli_state_move((rvl_state)allocation->state, move, &to))
        allocation->state = (uint8_t)to;
}

void rvli_allocation_lose(rvli_allocation *allocation)
{
    rvli_allocation_move(allocation, RVLI_MOVE_LOSE);
    if (allocation->kind != RVLI_KIND_IMPORT)
        allocation->tag->holders[allocation->device]->paused_bytes += allocation->size;
}
