/* SPDX-License-Identifier: MIT */
/*
 * A model of zeros is a sparse file. When PyTorch maps and reads it, the kernel fills its page
 * cache with zeros: 61 GB for each rank, which repeatedly evicts everything else. A hole that is
 * mapped privately reads as zeros, so it is replaced by anonymous zeros. For these, the kernel
 * uses one huge page as long as they are only read.
 */
#include "simcuda/driver/host_files.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simcuda/driver/imports.h"

#define LIBRARY "libtorch_cpu.so"
#define HOLE_BYTES ((uintptr_t)2 << 20) /* a huge page; smaller holes stay mapped to the file */

static uintptr_t up(uintptr_t address)
{
    return (address + HOLE_BYTES - 1) / HOLE_BYTES * HOLE_BYTES;
}

/* Replaces the whole huge pages between two addresses by zeros. On failure, the file's pages
 * stay. */
static void empty(uintptr_t begin, uintptr_t end)
{
    uintptr_t first = up(begin), last = end / HOLE_BYTES * HOLE_BYTES;
    if (first >= last)
        return;
    void *got = mmap((void *)first, last - first, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (got != MAP_FAILED)
        (void)madvise(got, last - first, MADV_HUGEPAGE);
}

/* Moves the file's position, and restores it. */
static void empty_holes(uintptr_t mapped, size_t bytes, int file, off_t offset)
{
    const off_t was = lseek(file, 0, SEEK_CUR), end = lseek(file, 0, SEEK_END);
    const off_t last = end - offset < (off_t)bytes ? end : offset + (off_t)bytes;
    off_t hole = was < 0 ? -1 : lseek(file, offset, SEEK_HOLE);
    while (hole >= 0 && hole < last) {
        off_t data = lseek(file, hole, SEEK_DATA);
        off_t stop = data < 0 || data > last ? last : data; /* no data follows the last hole */
        empty(mapped + (uintptr_t)(hole - offset), mapped + (uintptr_t)(stop - offset));
        hole = data < 0 ? -1 : lseek(file, data, SEEK_HOLE);
    }
    if (was >= 0)
        (void)lseek(file, was, SEEK_SET);
}

static void *map(void *hint, size_t bytes, int protection, int flags, int file, off_t offset)
{
    void *got = mmap(hint, bytes, protection, flags, file, offset);
    const int readable = PROT_READ | PROT_WRITE;
    if (got != MAP_FAILED && file >= 0 && (flags & MAP_PRIVATE) != 0 && protection == readable)
        empty_holes((uintptr_t)got, bytes, file, offset);
    return got;
}

void rvli_host_files_follow(void)
{
    (void)rvli_imports_replace(LIBRARY, "mmap", (uintptr_t)map);
    (void)rvli_imports_replace(LIBRARY, "mmap64", (uintptr_t)map);
}
