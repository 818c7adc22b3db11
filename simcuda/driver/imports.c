/* SPDX-License-Identifier: MIT */
/*
 * The table of a loaded library into which the loader has put the functions that the library
 * imports. Replacing an entry redirects the calls of this library only.
 */
#include "simcuda/driver/imports.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct table {
    const char *library;
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * relocations[2]; /* of calls, and of function addresses */
    size_t counts[2];
    uintptr_t relro, relro_end; /* the range that the loader has made read-only */
} table;

static void read_dynamic(const ElfW(Dyn) * entry, table *of)
{
    for (; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            of->symbols = (const void *)entry->d_un.d_ptr; /* with the base address added */
            break;
        case DT_STRTAB:
            of->names = (const void *)entry->d_un.d_ptr;
            break;
        case DT_JMPREL:
            of->relocations[0] = (const void *)entry->d_un.d_ptr;
            break;
        case DT_PLTRELSZ:
            of->counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        case DT_RELA:
            of->relocations[1] = (const void *)entry->d_un.d_ptr;
            break;
        case DT_RELASZ:
            of->counts[1] = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        }
    }
}

static int find_table(struct dl_phdr_info *library, size_t size, void *user)
{
    (void)size;
    table *of = user;
    const char *slash = strrchr(library->dlpi_name, '/');
    if (slash == NULL || strcmp(slash + 1, of->library) != 0)
        return 0;
    of->base = library->dlpi_addr;
    for (size_t i = 0; i < library->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &library->dlpi_phdr[i];
        if (part->p_type == PT_DYNAMIC)
            read_dynamic((const void *)(of->base + part->p_vaddr), of);
        if (part->p_type == PT_GNU_RELRO) {
            of->relro = of->base + part->p_vaddr;
            of->relro_end = of->relro + part->p_memsz;
        }
    }
    return 1;
}

static bool put(const table *of, uintptr_t slot, uintptr_t function)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = slot & ~(page - 1);
    bool read_only = slot >= of->relro && slot < of->relro_end;
    if (read_only && mprotect((void *)first, page, PROT_READ | PROT_WRITE) != 0)
        return false;
    *(uintptr_t *)slot = function;
    return !read_only || mprotect((void *)first, page, PROT_READ) == 0;
}

static bool replace(const table *of, const char *name, uintptr_t function)
{
    bool found = false;
    for (size_t kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < of->counts[kind]; i++) {
            const ElfW(Rela) *each = &of->relocations[kind][i];
            size_t symbol = ELF64_R_SYM(each->r_info);
            if (symbol == 0 || strcmp(of->names + of->symbols[symbol].st_name, name) != 0)
                continue;
            if (!put(of, of->base + each->r_offset, function))
                return false;
            found = true;
        }
    }
    return found;
}

bool rvli_imports_replace(const char *library, const char *name, uintptr_t function)
{
    table of = {.library = library};
    return dl_iterate_phdr(find_table, &of) == 1 && of.symbols != NULL && of.names != NULL &&
           replace(&of, name, function);
}
