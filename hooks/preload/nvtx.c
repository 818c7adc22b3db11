/* SPDX-License-Identifier: MIT */
#include "hooks/preload/nvtx.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hooks/record/recorder.h"
#include "hooks/settings.h"

/* The parts of NVTX 3's binary interface that are used here. */
#define TABLE_CALLBACKS 1u
#define MODULE_CORE 1
#define MODULE_CORE2 5
#define CORE_RANGE_START_EX 4u
#define CORE_RANGE_START_A 5u
#define CORE_RANGE_PUSH_EX 8u
#define CORE_RANGE_PUSH_A 9u
#define CORE2_DOMAIN_RANGE_START_EX 2u
#define CORE2_DOMAIN_RANGE_PUSH_EX 4u
#define CORE2_DOMAIN_REGISTER_STRING_A 10u
#define MESSAGE_ASCII 1
#define MESSAGE_REGISTERED 3
#define NO_PUSH_POP_TRACKING (-2)

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
    const char *message; /* a registered one is what register_string() has answered */
} attributes;

static _Atomic(const char *) stage_prefix; /* NULL: no range is a stage */

void rvli_nvtx_set_prefix(const char *prefix)
{
    atomic_store(&stage_prefix, rvli_intern(prefix));
}

/* ---- Ranges ---- */

static void begin(const char *name)
{
    const char *prefix = atomic_load_explicit(&stage_prefix, memory_order_relaxed);
    if (prefix == NULL || name == NULL || strncmp(name, prefix, strlen(prefix)) != 0)
        return;
    const char *stage = name + strlen(prefix);
    size_t length = strnlen(stage, RVLI_TAG_MAX_BYTES + 1);
    if (length > 0 && length <= RVLI_TAG_MAX_BYTES)
        (void)rvli_recorder_stage(stage); /* what failed has been told */
}

static void begin_with(const attributes *range)
{
    if (range != NULL && range->size >= sizeof *range &&
        (range->message_type == MESSAGE_ASCII || range->message_type == MESSAGE_REGISTERED))
        begin(range->message);
}

static int push_a(const char *message)
{
    begin(message);
    return NO_PUSH_POP_TRACKING;
}

static int push_ex(const attributes *range)
{
    begin_with(range);
    return NO_PUSH_POP_TRACKING;
}

static uint64_t start_a(const char *message)
{
    begin(message);
    return 0;
}

static uint64_t start_ex(const attributes *range)
{
    begin_with(range);
    return 0;
}

static int domain_push_ex(void *domain, const attributes *range)
{
    (void)domain;
    return push_ex(range);
}

static uint64_t domain_start_ex(void *domain, const attributes *range)
{
    (void)domain;
    return start_ex(range);
}

static const char *register_string(void *domain, const char *string)
{
    (void)domain;
    return string != NULL ? rvli_intern(string) : NULL;
}

/* ---- Getting in ---- */

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
        {CORE_RANGE_START_EX, (function)start_ex},
        {CORE_RANGE_START_A, (function)start_a},
        {CORE_RANGE_PUSH_EX, (function)push_ex},
        {CORE_RANGE_PUSH_A, (function)push_a},
    };
    static const replacement core2[] = {
        {CORE2_DOMAIN_RANGE_START_EX, (function)domain_start_ex},
        {CORE2_DOMAIN_RANGE_PUSH_EX, (function)domain_push_ex},
        {CORE2_DOMAIN_REGISTER_STRING_A, (function)register_string},
    };
    const callbacks *from = get_table(TABLE_CALLBACKS);
    return from != NULL && from->struct_size >= sizeof *from &&
           fill(from, MODULE_CORE, core, sizeof core / sizeof *core) &&
           fill(from, MODULE_CORE2, core2, sizeof core2 / sizeof *core2);
}
