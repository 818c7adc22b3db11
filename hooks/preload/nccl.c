/* SPDX-License-Identifier: MIT */
#include "hooks/preload/nccl.h"

#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NAME "libnccl.so"
/* Few places in a program allocate. Each is looked up once, or again after a collision. */
#define PLACES 256u

static _Atomic uintptr_t nccls[PLACES], others[PLACES];

typedef struct search {
    uintptr_t code;
    bool is_nccl;
} search;

static bool has_name(const char *path)
{
    const char *name = strrchr(path, '/');
    return strncmp(name != NULL ? name + 1 : path, NAME, sizeof NAME - 1) == 0;
}

static int find(struct dl_phdr_info *info, size_t size, void *user)
{
    search *wanted = user;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + part->p_vaddr;
        if (part->p_type == PT_LOAD && wanted->code >= begin &&
            wanted->code - begin < part->p_memsz) {
            wanted->is_nccl = has_name(info->dlpi_name);
            return 1;
        }
    }
    return 0;
}

bool rvli_is_nccl(const void *code)
{
    search wanted = {.code = (uintptr_t)code};
    size_t place = (wanted.code * UINT64_C(0x9e3779b97f4a7c15) >> 32) % PLACES;
    if (code == NULL || atomic_load_explicit(&others[place], memory_order_relaxed) == wanted.code)
        return false;
    if (atomic_load_explicit(&nccls[place], memory_order_relaxed) == wanted.code)
        return true;
    dl_iterate_phdr(find, &wanted);
    atomic_store_explicit(wanted.is_nccl ? &nccls[place] : &others[place], wanted.code,
                          memory_order_relaxed);
    return wanted.is_nccl;
}
