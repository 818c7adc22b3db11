/* SPDX-License-Identifier: MIT */
#include "hooks/shim/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "hooks/library/library_calls.h"
#include "hooks/shim/runtime.h"
#include "reveille/version.h"

#define LIBRARY "libreveille.so.0"

static _Atomic(const rvli_library_calls *) calls;
/* The address range of libreveille. */
static _Atomic uintptr_t library_begin, library_end;

/* ---- If it is missing ---- */

static _Noreturn void give_up(const char *path, const char *problem)
{
    char line[PATH_MAX + 512];
    rvli_text text = rvli_text_begin(line, sizeof line - 1);
    rvli_text_add(&text, "reveille: ");
    rvli_text_add(&text, path);
    rvli_text_add(&text, problem);
    line[text.length] = '\n';
    ssize_t written = write(STDERR_FILENO, line, text.length + 1);
    (void)written; /* nowhere else to report it */
    abort();
}

/* ---- Finding it ---- */

/* Paths from the folder of this library's own file: in that folder, or in a wheel. */
static const char *const places[] = {"/" LIBRARY, "/../lib/" LIBRARY};

/* The folder of this library's real file, with links resolved; "" if unknown. */
static void own_folder(char path[PATH_MAX])
{
    Dl_info info;
    path[0] = '\0';
    if (dladdr(rvli_own_begin(), &info) == 0 || realpath(info.dli_fname, path) == NULL)
        return;
    char *slash = strrchr(path, '/');
    *(slash != NULL ? slash : path) = '\0';
}

/*
 * Opens it in the global scope, so that dlsym(RTLD_DEFAULT) finds the functions of
 * reveille/hooks.h.
 */
static void *open_library(char path[PATH_MAX])
{
    char folder[PATH_MAX];
    void *found = dlopen(LIBRARY, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL | RTLD_NODELETE);
    rvli_text text = rvli_text_begin(path, PATH_MAX);
    rvli_text_add(&text, LIBRARY ", which this process has loaded,");
    own_folder(folder);
    for (size_t i = 0; i < sizeof places / sizeof *places && found == NULL; i++) {
        text = rvli_text_begin(path, PATH_MAX);
        rvli_text_add(&text, folder);
        rvli_text_add(&text, places[i]);
        found = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    }
    return found;
}

typedef struct search {
    uintptr_t inside, begin, end;
} search;

static int find_range(struct dl_phdr_info *info, size_t size, void *user)
{
    search *range = user;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + part->p_vaddr;
        if (part->p_type != PT_LOAD)
            continue;
        begin = at < begin ? at : begin;
        end = at + part->p_memsz > end ? at + part->p_memsz : end;
    }
    if (range->inside < begin || range->inside >= end)
        return 0;
    range->begin = begin;
    range->end = end;
    return 1;
}

static void note_range(const void *inside)
{
    search range = {.inside = (uintptr_t)inside};
    dl_iterate_phdr(find_range, &range);
    atomic_store(&library_end, range.end);
    atomic_store(&library_begin, range.begin);
}

/* Threads may run this at the same time: all find the same table. */
void rvli_library_need(void)
{
    char path[PATH_MAX];
    const rvli_library_calls *(*attach)(const char *, const char *);
    if (atomic_load_explicit(&calls, memory_order_acquire) != NULL)
        return;
    void *library = open_library(path);
    if (library == NULL)
        give_up(path, " cannot be opened: install libreveille and its hook libraries from one "
                      "package, in one folder");
    void *symbol = dlsym(library, RVLI_LIBRARY_ATTACH);
    note_range(symbol);
    memcpy(&attach, &symbol, sizeof attach);
    const rvli_library_calls *found =
        symbol != NULL ? attach(rvli_shim_mode, RVL_VERSION_STRING) : NULL;
    if (found == NULL)
        give_up(path, " is of another version than the hook library (" RVL_VERSION_STRING
                      "): install both from one package");
    atomic_store_explicit(&calls, found, memory_order_release);
}

bool rvli_library_contains(const void *address)
{
    uintptr_t begin = atomic_load_explicit(&library_begin, memory_order_relaxed);
    return begin != 0 && (uintptr_t)address >= begin &&
           (uintptr_t)address < atomic_load_explicit(&library_end, memory_order_relaxed);
}

__attribute__((constructor)) static void find_at_start(void)
{
    rvli_library_need();
}

/* ---- Forwarding ---- */

static const rvli_library_calls *library(void)
{
    const rvli_library_calls *found = atomic_load_explicit(&calls, memory_order_acquire);
    if (__builtin_expect(found == NULL, 0)) {
        rvli_library_need(); /* a call before our constructor */
        found = atomic_load(&calls);
    }
    return found;
}

#define HAND_ON(type, name, parameters, arguments)                                                 \
    type rvli_##name parameters                                                                    \
    {                                                                                              \
        return library()->name arguments;                                                          \
    }
#define HAND_ON_VOID(name, parameters, arguments)                                                  \
    void rvli_##name parameters                                                                    \
    {                                                                                              \
        library()->name arguments;                                                                 \
    }
RVLI_LIBRARY_CALLS_MAP(HAND_ON, HAND_ON_VOID)
#undef HAND_ON
#undef HAND_ON_VOID

/* ---- The cached settings of a thread ---- */

_Thread_local rvli_thread_settings *rvli_settings_at_hand;

rvli_thread_settings *rvli_thread_settings_fill(void)
{
    return rvli_settings_at_hand = rvli_settings_of_thread();
}
