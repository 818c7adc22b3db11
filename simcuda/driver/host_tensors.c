/* SPDX-License-Identifier: MIT */
/*
 * Large tensors of PyTorch in host memory, counted as the node of the real cards would hold them.
 *
 * PyTorch's allocator for the host is in libc10.so, and knows no plugin. It calls posix_memalign()
 * and free(), so the entries of these two in that library's table of functions are replaced, and
 * those of no other library. The machine counts what they take, and refuses what is beyond
 * `--host-memory`: PyTorch raises what it raises when the kernel refuses.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/intmap.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/host_pages.h"

#define COUNTED_BYTES ((size_t)1 << 20) /* smaller ones are not asked for one by one */
#define LIBRARY "/libc10.so"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static rvli_intmap blocks; /* that are counted: bytes by address */
static atomic_size_t block_count;

static void lock_blocks(void)
{
    pthread_mutex_lock(&mutex);
}

static void unlock_blocks(void)
{
    pthread_mutex_unlock(&mutex);
}

/* ---- In the place of posix_memalign() and free() ---- */

static bool note(void *memory, size_t bytes)
{
    lock_blocks();
    bool noted = rvli_intmap_reserve(&blocks) == RVL_OK &&
                 rvli_intmap_insert(&blocks, (uintptr_t)memory, bytes) == RVL_OK;
    unlock_blocks();
    if (noted)
        atomic_fetch_add(&block_count, 1);
    return noted;
}

/* 0: it is not counted. */
static size_t forget(const void *memory)
{
    uint64_t bytes = 0;
    if (atomic_load(&block_count) == 0)
        return 0;
    lock_blocks();
    bool known = rvli_intmap_remove(&blocks, (uintptr_t)memory, &bytes);
    unlock_blocks();
    if (known)
        atomic_fetch_sub(&block_count, 1);
    return known ? (size_t)bytes : 0;
}

static void let_go(void *memory, size_t bytes)
{
    if (rvli_host_pages_has(memory))
        rvli_host_pages_unmap(memory, bytes);
    else
        free(memory);
}

static void give_back(size_t bytes)
{
    rvli_client_tell(RVLI_WIRE_HOST_GIVE, bytes, RVLI_WIRE_PAGEABLE);
}

/* Only the machine's bound refuses: without a machine, memory is there all the same. */
static bool count(size_t bytes)
{
    const rvli_wire_request request = {
        .kind = RVLI_WIRE_HOST_TAKE, .bytes = bytes, .id = RVLI_WIRE_PAGEABLE};
    rvli_wire_answer answer;
    return rvli_client_send(&request, &answer) != RVL_ERR_HOST_OOM;
}

static int take(void **memory_out, size_t alignment, size_t bytes)
{
    if (bytes < COUNTED_BYTES)
        return posix_memalign(memory_out, alignment, bytes);
    if (!count(bytes))
        return ENOMEM;
    void *got = NULL;
    int error = 0;
    if (rvli_host_pages_shared(bytes))
        error = (got = rvli_host_pages_map(bytes)) != NULL ? 0 : ENOMEM;
    else
        error = posix_memalign(&got, alignment, bytes);
    if (error == 0 && !note(got, bytes)) {
        let_go(got, bytes);
        error = ENOMEM;
    }
    if (error != 0)
        give_back(bytes);
    else
        *memory_out = got;
    return error;
}

static void give(void *memory)
{
    size_t bytes = forget(memory);
    if (bytes == 0) {
        free(memory);
        return;
    }
    let_go(memory, bytes);
    give_back(bytes);
}

/* ---- The table of functions of PyTorch's library ---- */

typedef struct table {
    uintptr_t base;
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * relocations[2]; /* of calls, and of addresses that are taken */
    size_t counts[2];
    uintptr_t relro, relro_end; /* what the loader has made read-only */
} table;

static void read_dynamic(const ElfW(Dyn) * entry, table *of)
{
    for (; entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB:
            of->symbols = (const void *)entry->d_un.d_ptr; /* the loader has added the base */
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
    if (slash == NULL || strcmp(slash, LIBRARY) != 0)
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

/* False: PyTorch is not as it is known. free() goes first: it lets through what it does not know.
 */
bool rvli_host_tensors_count(void);

bool rvli_host_tensors_count(void)
{
    static bool begun;
    table of = {0};
    if (begun || !rvli_host_pages_counted())
        return true;
    begun = dl_iterate_phdr(find_table, &of) == 1 && of.symbols != NULL && of.names != NULL &&
            replace(&of, "free", (uintptr_t)give) &&
            replace(&of, "posix_memalign", (uintptr_t)take);
    if (begun)
        pthread_atfork(lock_blocks, unlock_blocks, unlock_blocks);
    return begun;
}
