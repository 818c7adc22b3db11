/* SPDX-License-Identifier: MIT */
#include "nvtx_by_hand.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Modules and places in their tables, as NVTX 3's binary interface has them. */
enum { CORE = 1, CORE2 = 5 };
enum { START_EX = 4, START_A = 5, PUSH_EX = 8, PUSH_A = 9, CORE_SIZE = 16 };
enum { DOMAIN_START_EX = 2, DOMAIN_PUSH_EX = 4, DOMAIN_REGISTER_A = 10, CORE2_SIZE = 16 };

typedef void (*function)(void);

static function core[CORE_SIZE], core2[CORE2_SIZE];
static function *core_table[CORE_SIZE + 1], *core2_table[CORE2_SIZE + 1];
static int domain; /* its address is the domain's */

static int get_module(int module, function ***table_out, unsigned *size_out)
{
    *size_out = module == CORE ? CORE_SIZE : CORE2_SIZE;
    *table_out = module == CORE ? core_table : core2_table;
    return module == CORE || module == CORE2;
}

static const void *get_table(uint32_t id)
{
    static const struct {
        size_t struct_size;
        int (*get_module)(int module, function ***table_out, unsigned *size_out);
    } callbacks = {sizeof callbacks, get_module};
    return id == 1 ? &callbacks : NULL;
}

static void open_tool(void)
{
    int (*initialize)(const void *(*get_table)(uint32_t id));
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *tool = path != NULL ? dlopen(path, RTLD_LAZY) : NULL;
    void *symbol = tool != NULL ? dlsym(tool, "InitializeInjectionNvtx2") : NULL;
    for (int i = 0; i < CORE_SIZE; i++) {
        core_table[i] = &core[i];
        core2_table[i] = &core2[i];
    }
    if (symbol == NULL)
        return;
    memcpy(&initialize, &symbol, sizeof initialize);
    if (!initialize(get_table)) {
        memset(core, 0, sizeof core);
        memset(core2, 0, sizeof core2);
    }
}

static function in(const function *table, int place)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_tool);
    return table[place];
}

void nvtx_push(const char *name)
{
    function call = in(core, PUSH_A);
    if (call != NULL)
        ((int (*)(const char *))call)(name);
}

void nvtx_push_range(const nvtx_range *range)
{
    function call = in(core, PUSH_EX);
    if (call != NULL)
        ((int (*)(const nvtx_range *))call)(range);
}

void nvtx_start(const char *name)
{
    function call = in(core, START_A);
    if (call != NULL)
        ((uint64_t(*)(const char *))call)(name);
}

void nvtx_start_range(const nvtx_range *range)
{
    function call = in(core, START_EX);
    if (call != NULL)
        ((uint64_t(*)(const nvtx_range *))call)(range);
}

void nvtx_domain_push(const nvtx_range *range)
{
    function call = in(core2, DOMAIN_PUSH_EX);
    if (call != NULL)
        ((int (*)(void *, const nvtx_range *))call)(&domain, range);
}

void nvtx_domain_start(const nvtx_range *range)
{
    function call = in(core2, DOMAIN_START_EX);
    if (call != NULL)
        ((uint64_t(*)(void *, const nvtx_range *))call)(&domain, range);
}

const void *nvtx_domain_register(const char *name)
{
    function call = in(core2, DOMAIN_REGISTER_A);
    return call != NULL ? ((const void *(*)(void *, const char *))call)(&domain, name) : NULL;
}
