/* SPDX-License-Identifier: MIT */
#include "hooks/preload/lookup.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "hooks/preload/driver_calls.h"
#include "hooks/preload/observe.h"
#include "hooks/preload/runtime_calls.h"
#include "hooks/process/message.h"

void *rvli_libc_dlsym;
void *rvli_libc_dlvsym;

/* ---- The C library's symbol table ---- */

typedef struct library {
    const ElfW(Sym) * symbols;
    const char *strings;
    const ElfW(Half) * versions;
    const uint32_t *hash;
    uintptr_t base;
} library;

#define VERSION_HIDDEN 0x8000u /* not the default version */

static const void *at(uintptr_t base, uintptr_t pointer)
{
    return (const void *)(pointer < base ? base + pointer : pointer);
}

static bool read_library(const struct dl_phdr_info *info, library *library_out)
{
    const ElfW(Dyn) *entry = NULL;
    uintptr_t base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(base + info->dlpi_phdr[i].p_vaddr);
    library found = {.base = base};
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            found.symbols = at(base, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_STRTAB)
            found.strings = at(base, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_VERSYM)
            found.versions = at(base, entry->d_un.d_ptr);
        else if (entry->d_tag == DT_GNU_HASH)
            found.hash = at(base, entry->d_un.d_ptr);
    }
    *library_out = found;
    return found.symbols != NULL && found.strings != NULL && found.hash != NULL;
}

static uint32_t gnu_hash(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

/*
 * The table has a bucket count, the first hashed symbol, the words of a filter and its shift; then
 * the filter, the buckets and the chain.
 */
static void *find_symbol(const library *in, const char *name)
{
    uint32_t bucket_count = in->hash[0], first = in->hash[1], filter_words = in->hash[2];
    const uint32_t *buckets = in->hash + 4 + filter_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = buckets + bucket_count;
    uint32_t hash = gnu_hash(name);
    uint32_t index = bucket_count > 0 ? buckets[hash % bucket_count] : 0;
    for (bool last = index < first; !last; index++) {
        const ElfW(Sym) *symbol = &in->symbols[index];
        uint32_t entry = chain[index - first];
        last = entry & 1;
        if ((entry | 1) == (hash | 1) && symbol->st_shndx != SHN_UNDEF &&
            strcmp(in->strings + symbol->st_name, name) == 0 &&
            (in->versions == NULL || !(in->versions[index] & VERSION_HIDDEN)))
            return (void *)(in->base + symbol->st_value);
    }
    return NULL;
}

static bool is_libc(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name != NULL ? name + 1 : path;
    return strncmp(name, "libc.so.", 8) == 0 || strncmp(name, "libdl.so.", 9) == 0;
}

static int search(struct dl_phdr_info *info, size_t size, void *user)
{
    library found;
    (void)size;
    (void)user;
    if (!is_libc(info->dlpi_name) || !read_library(info, &found))
        return 0;
    void *function = find_symbol(&found, "dlvsym");
    if (function != NULL)
        __atomic_store_n(&rvli_libc_dlvsym, function, __ATOMIC_RELEASE);
    function = find_symbol(&found, "dlsym");
    if (function != NULL)
        __atomic_store_n(&rvli_libc_dlsym, function, __ATOMIC_RELEASE);
    return 0;
}

/* May run on any thread at any time, even before main() and our own constructors. */
static void need_libc(void)
{
    if (__atomic_load_n(&rvli_libc_dlsym, __ATOMIC_ACQUIRE) != NULL)
        return;
    dl_iterate_phdr(search, NULL);
    if (rvli_libc_dlsym == NULL || rvli_libc_dlvsym == NULL)
        rvli_give_up("dlsym was not found in the C library: run without the preload library, and "
                     "say which C library this is");
}

/* ---- Look-ups ---- */

/* The call or the slot of a name; -1: none. */
typedef struct meaning {
    int call; /* of the driver */
    int slot; /* of the runtime */
} meaning;

/* Whether the name is intercepted. Checks its first letters first. */
static bool concerns_us(void *handle, const char *name, const void *caller, meaning *meaning_out)
{
    if (name == NULL || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT ||
        rvli_is_own(caller))
        return false;
    meaning_out->slot = rvli_runtime_slot_of(name);
    meaning_out->call = meaning_out->slot < 0 ? rvli_driver_call_of(name) : -1;
    return meaning_out->slot >= 0 || meaning_out->call >= 0;
}

static void *front_of(const meaning *in, void *found)
{
    if (found == NULL)
        return NULL;
    if (in->call >= 0)
        return rvli_driver_front_at(in->call, found);
    rvli_runtime_note((rvli_runtime_slot)in->slot, found);
    return rvli_runtime_front((rvli_runtime_slot)in->slot);
}

void *rvli_lookup_dlsym(void *handle, const char *name, const void *caller)
{
    void *(*next)(void *, const char *);
    meaning in;
    need_libc();
    if (!concerns_us(handle, name, caller, &in))
        return NULL;
    memcpy(&next, &rvli_libc_dlsym, sizeof next);
    return front_of(&in, next(handle, name));
}

void *rvli_lookup_dlvsym(void *handle, const char *name, const char *version, const void *caller)
{
    void *(*next)(void *, const char *, const char *);
    meaning in;
    need_libc();
    if (!concerns_us(handle, name, caller, &in))
        return NULL;
    memcpy(&next, &rvli_libc_dlvsym, sizeof next);
    return front_of(&in, next(handle, name, version));
}
