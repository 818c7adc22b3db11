/* SPDX-License-Identifier: MIT */
/*
 * Large host tensors of PyTorch, counted as the node with the real cards would hold them.
 *
 * PyTorch's host allocator is in libc10.so, and cannot be replaced by a plugin. It calls
 * posix_memalign() and free(). So this library's imports of the two functions are replaced, and
 * those of no other library. The machine counts the memory, and refuses requests beyond
 * `--host-memory`. PyTorch then raises the error that it raises when the kernel refuses.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/intmap.h"
#include "simcuda/driver/client.h"
#include "simcuda/driver/host_files.h"
#include "simcuda/driver/host_pages.h"
#include "simcuda/driver/imports.h"

#define COUNTED_BYTES ((size_t)1 << 20) /* smaller ones are not counted */
#define LIBRARY "libc10.so"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static rvli_intmap blocks; /* counted blocks: bytes by address */
static atomic_size_t block_count;

static void lock_blocks(void)
{
    pthread_mutex_lock(&mutex);
}

static void unlock_blocks(void)
{
    pthread_mutex_unlock(&mutex);
}

/* ---- Replacements for posix_memalign() and free() ---- */

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

/* Removes a block and returns its bytes. 0: it was not counted. */
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

/* Only the machine's limit refuses. Without a machine, the memory is granted. */
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

/* Called from Python: whether an address lies in the pages that large tensors share. */
bool rvli_host_tensors_share(const void *memory);

bool rvli_host_tensors_share(const void *memory)
{
    return rvli_host_pages_has(memory);
}

/* Begins counting. False: PyTorch's internals are not as expected. free() is replaced first,
 * since it passes on unknown blocks. */
bool rvli_host_tensors_count(void);

bool rvli_host_tensors_count(void)
{
    static bool begun;
    if (begun || !rvli_host_pages_counted())
        return true;
    begun = rvli_imports_replace(LIBRARY, "free", (uintptr_t)give) &&
            rvli_imports_replace(LIBRARY, "posix_memalign", (uintptr_t)take);
    if (begun) {
        rvli_host_files_follow();
        pthread_atfork(lock_blocks, unlock_blocks, unlock_blocks);
    }
    return begun;
}
