/* SPDX-License-Identifier: MIT */
#include "nvtx/nvtx.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The parts of NVTX 3's binary interface that are used here. */
#define TABLE_CALLBACKS 1u
#define MODULE_CORE 1
#define MODULE_CORE2 5
#define CORE_RANGE_START_EX 4u
#define CORE_RANGE_START_A 5u
#define CORE_RANGE_END 7u
#define CORE_RANGE_PUSH_EX 8u
#define CORE_RANGE_PUSH_A 9u
#define CORE_RANGE_PUSH_W 10u
#define CORE_RANGE_POP 11u
#define CORE2_DOMAIN_RANGE_START_EX 2u
#define CORE2_DOMAIN_RANGE_END 3u
#define CORE2_DOMAIN_RANGE_PUSH_EX 4u
#define CORE2_DOMAIN_RANGE_POP 5u
#define CORE2_DOMAIN_REGISTER_STRING_A 10u
#define MESSAGE_ASCII 1
#define MESSAGE_REGISTERED 3
#define NO_PUSH_POP_TRACKING (-2)

#define DEPTH_MAX 64u /* maximum depth of pushes that can be stages */

typedef void (*function)(void);

typedef struct callbacks {
    size_t struct_size;
    int (*get_module)(int module, function ***table_out, unsigned *size_out);
} callbacks;

typedef struct attributes {
    uint16_t version;
    uint16_t size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type;
    int32_t reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message; /* if registered: the result of register_string() */
} attributes;

static _Atomic(const char *) stage_prefix; /* NULL: no range is a stage */
static const rvli_nvtx_sink *told;         /* set before the prefix */

void rvli_nvtx_listen(const char *prefix, const rvli_nvtx_sink *sink)
{
    told = sink;
    atomic_store(&stage_prefix, strdup(prefix)); /* never freed: another thread may be reading it */
}

/* ---- Ranges ---- */

/* A push of a thread, a stage or not: a pop does not tell which push it ends. */
typedef struct pushed {
    const void *domain;
    uint64_t id; /* 0: not a stage */
} pushed;

typedef struct pushes {
    unsigned depth; /* pushes beyond the list are only counted, and are not stages */
    pushed list[DEPTH_MAX];
} pushes;

static atomic_uint_fast64_t last_id;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

static void make_key(void)
{
    has_key = pthread_key_create(&key, free) == 0;
}

/*
 * The pushes of the calling thread. NULL without memory: then no push is a stage. Not
 * _Thread_local: with LD_AUDIT, libraries have almost no room for thread-local storage.
 */
static pushes *own_pushes(void)
{
    (void)pthread_once(&once, make_key);
    pushes *own = has_key ? pthread_getspecific(key) : NULL;
    if (own != NULL || !has_key)
        return own;
    own = calloc(1, sizeof *own);
    if (own != NULL && pthread_setspecific(key, own) != 0) {
        free(own);
        own = NULL;
    }
    return own;
}

/* Begins a stage and returns its id, or returns 0 if the range is not a stage. */
static uint64_t begin(const char *name)
{
    const char *prefix = atomic_load_explicit(&stage_prefix, memory_order_acquire);
    if (prefix == NULL || name == NULL || strncmp(name, prefix, strlen(prefix)) != 0)
        return 0;
    const char *stage = name + strlen(prefix);
    size_t length = strnlen(stage, RVLI_NVTX_NAME_MAX_BYTES + 1);
    if (length == 0 || length > RVLI_NVTX_NAME_MAX_BYTES)
        return 0;
    uint64_t id = RVLI_NVTX_FIRST_ID + atomic_fetch_add(&last_id, 1);
    told->enter(id, stage);
    return id;
}

static void end(uint64_t id)
{
    if (id >= RVLI_NVTX_FIRST_ID)
        told->leave(id);
}

static const char *message_of(const attributes *range)
{
    bool readable =
        range != NULL && range->size >= sizeof *range &&
        (range->message_type == MESSAGE_ASCII || range->message_type == MESSAGE_REGISTERED);
    return readable ? range->message : NULL;
}

static int push(const void *domain, const char *message)
{
    pushes *own = own_pushes();
    if (own == NULL)
        return NO_PUSH_POP_TRACKING;
    if (own->depth < DEPTH_MAX)
        own->list[own->depth] = (pushed){domain, begin(message)};
    own->depth++;
    return NO_PUSH_POP_TRACKING;
}

/* Pops the last push of a domain. */
static int pop(const void *domain)
{
    pushes *own = own_pushes();
    if (own == NULL)
        return NO_PUSH_POP_TRACKING;
    if (own->depth > DEPTH_MAX) {
        own->depth--;
        return NO_PUSH_POP_TRACKING;
    }
    unsigned at = own->depth;
    while (at > 0 && own->list[at - 1].domain != domain)
        at--;
    if (at == 0)
        return NO_PUSH_POP_TRACKING;
    end(own->list[at - 1].id);
    memmove(own->list + at - 1, own->list + at, (own->depth - at) * sizeof *own->list);
    own->depth--;
    return NO_PUSH_POP_TRACKING;
}

static int push_a(const char *message)
{
    return push(NULL, message);
}

static int push_ex(const attributes *range)
{
    return push(NULL, message_of(range));
}

/* A range named in wide characters is never a stage, but it is popped like others. */
static int push_w(const void *message)
{
    (void)message;
    return push(NULL, NULL);
}

static int pop_last(void)
{
    return pop(NULL);
}

static uint64_t start_a(const char *message)
{
    return begin(message);
}

static uint64_t start_ex(const attributes *range)
{
    return begin(message_of(range));
}

static int domain_push_ex(void *domain, const attributes *range)
{
    return push(domain, message_of(range));
}

static int domain_pop(void *domain)
{
    return pop(domain);
}

static uint64_t domain_start_ex(void *domain, const attributes *range)
{
    (void)domain;
    return start_ex(range);
}

static void domain_end(void *domain, uint64_t id)
{
    (void)domain;
    end(id);
}

static const char *register_string(void *domain, const char *string)
{
    (void)domain;
    return string != NULL ? strdup(string) : NULL; /* never freed */
}

/* ---- Injection ---- */

typedef struct replacement {
    unsigned slot;
    function with;
} replacement;

static int fill(const callbacks *from, int module, const replacement *list, size_t count)
{
    function **table = NULL;
    unsigned size = 0;
    if (!from->get_module(module, &table, &size) || table == NULL)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (list[i].slot < size && table[list[i].slot] != NULL)
            *table[list[i].slot] = list[i].with;
    return 1;
}

int InitializeInjectionNvtx2(rvli_nvtx_get_table get_table)
{
    static const replacement core[] = {
        {CORE_RANGE_START_EX, (function)start_ex}, {CORE_RANGE_START_A, (function)start_a},
        {CORE_RANGE_END, (function)end},           {CORE_RANGE_PUSH_EX, (function)push_ex},
        {CORE_RANGE_PUSH_A, (function)push_a},     {CORE_RANGE_PUSH_W, (function)push_w},
        {CORE_RANGE_POP, (function)pop_last},
    };
    static const replacement core2[] = {
        {CORE2_DOMAIN_RANGE_START_EX, (function)domain_start_ex},
        {CORE2_DOMAIN_RANGE_END, (function)domain_end},
        {CORE2_DOMAIN_RANGE_PUSH_EX, (function)domain_push_ex},
        {CORE2_DOMAIN_RANGE_POP, (function)domain_pop},
        {CORE2_DOMAIN_REGISTER_STRING_A, (function)register_string},
    };
    const callbacks *from = get_table(TABLE_CALLBACKS);
    return from != NULL && from->struct_size >= sizeof *from &&
           fill(from, MODULE_CORE, core, sizeof core / sizeof *core) &&
           fill(from, MODULE_CORE2, core2, sizeof core2 / sizeof *core2);
}
