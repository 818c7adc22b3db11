/* SPDX-License-Identifier: MIT */
#include "hooks/shim/runtime.h"

#include <dlfcn.h>
#include <link.h>

#include "hooks/shim/library.h"
#include "hooks/shim/name_table.h"

_Atomic(void *) rvli_runtime_found[RVLI_RUNTIME_COUNT];

static const char *const names[] = {
#define NAME(name, parameters) #name,
    RVLI_RUNTIME_MAP(NAME)
#undef NAME
};

/* The bounds of this library: symbols that the linker defines. */
extern const char own_begin[] __asm__("__ehdr_start") __attribute__((visibility("hidden")));
extern const char own_end[] __asm__("_end") __attribute__((visibility("hidden")));

const void *rvli_own_begin(void)
{
    return own_begin;
}

bool rvli_is_own(const void *address)
{
    return ((const char *)address >= own_begin && (const char *)address < own_end) ||
           rvli_library_contains(address);
}

static const char *name_at(int slot)
{
    return slot < RVLI_RUNTIME_COUNT ? names[slot] : NULL;
}

int rvli_runtime_slot_of(const char *name)
{
    static rvli_name_table table = {.at = name_at};
    _Static_assert(RVLI_RUNTIME_COUNT <= RVLI_NAME_TABLE_MAX, "the table is too small");
    return rvli_name_table_find(&table, name);
}

static void *foreign(void *function)
{
    return function != NULL && !rvli_is_own(function) ? function : NULL;
}

/*
 * Searches a loaded library and its dependencies. path NULL: the global scope, which is not
 * RTLD_DEFAULT: that begins with this library where it was linked with -Bsymbolic.
 */
static void *search_library(const char *path, const char *name)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        return NULL;
    void *function = foreign(dlsym(library, name));
    dlclose(library);
    return function;
}

static void *search_caller(const void *caller, const char *name)
{
    Dl_info info;
    struct link_map *map = NULL;
    if (caller == NULL || rvli_is_own(caller) ||
        dladdr1(caller, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return NULL;
    return map->l_name[0] != '\0' ? search_library(map->l_name, name) : NULL;
}

static void *search_known(const char *name)
{
    static const char *const libraries[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
    void *function = NULL;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && function == NULL; i++)
        function = search_library(libraries[i], name);
    return function;
}

/* Keeps the library loaded if the program closes it: we go on calling its functions. */
static void keep_loaded(const void *function)
{
    Dl_info info;
    if (dladdr(function, &info) != 0 && info.dli_fname != NULL)
        (void)dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

void rvli_runtime_note(rvli_runtime_slot slot, void *function)
{
    void *none = NULL;
    if (foreign(function) != NULL &&
        atomic_compare_exchange_strong(&rvli_runtime_found[slot], &none, function))
        keep_loaded(function);
}

void *rvli_runtime_search(rvli_runtime_slot slot, const void *caller)
{
    const char *name = names[slot];
    void *function = foreign(dlsym(RTLD_NEXT, name));
    if (function == NULL)
        function = search_caller(caller, name);
    if (function == NULL)
        function = search_library(NULL, name);
    if (function == NULL)
        function = search_known(name);
    rvli_runtime_note(slot, function);
    return atomic_load(&rvli_runtime_found[slot]);
}
