/* SPDX-License-Identifier: MIT */
/*
 * A trainer that loads a model of 32 billion parameters in float32 takes 130 GB of host memory.
 * With a simulated GPU, nothing computes with their values. So above a size that the user sets,
 * all memory maps one file in memory, again and again. A write to one part appears in the
 * others, and only the file's pages take memory. All of it lies in one range of addresses that
 * is reserved first, so an address alone shows whether its content is lost.
 */
#include "simcuda/driver/host_pages.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "simcuda/wire/wire.h"

/* The kernel allows a process 65530 mappings. With this size, they cover 1.5 TB or more. */
#define FILE_BYTES ((size_t)32 << 20)
#define ROOM_BYTES ((size_t)1 << 44) /* of addresses, which are never reused */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool counted;
static size_t kept_bytes = SIZE_MAX;
static int file = -1;
static char *room, *next;

static void begin(void)
{
    const char *text = getenv(RVLI_WIRE_HOST_VARIABLE);
    counted = text != NULL && *text != '\0';
    if (counted && *text != 'a')
        kept_bytes = strtoull(text, NULL, 10);
    if (kept_bytes == SIZE_MAX)
        return;
    void *got =
        mmap(NULL, ROOM_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    file = memfd_create("reveille-host", MFD_CLOEXEC);
    if (got == MAP_FAILED || file < 0 || ftruncate(file, FILE_BYTES) != 0)
        kept_bytes = SIZE_MAX; /* use normal memory */
    else
        room = next = got;
}

bool rvli_host_pages_counted(void)
{
    pthread_once(&once, begin);
    return counted;
}

bool rvli_host_pages_shared(size_t size_bytes)
{
    pthread_once(&once, begin);
    return size_bytes > kept_bytes;
}

static size_t whole_pages(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static char *take_room(size_t bytes)
{
    pthread_mutex_lock(&mutex);
    char *base = bytes <= (size_t)(room + ROOM_BYTES - next) ? next : NULL;
    if (base != NULL)
        next += bytes;
    pthread_mutex_unlock(&mutex);
    return base;
}

void *rvli_host_pages_map(size_t size_bytes)
{
    if (size_bytes > ROOM_BYTES)
        return NULL;
    size_t all = whole_pages(size_bytes);
    char *base = take_room(all);
    for (size_t done = 0, part; base != NULL && done < all; done += part) {
        part = all - done < FILE_BYTES ? all - done : FILE_BYTES;
        if (mmap(base + done, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
            MAP_FAILED)
            continue;
        rvli_host_pages_unmap(base, all);
        return NULL;
    }
    return base;
}

/* The addresses stay reserved, so that an old address never belongs to other memory. */
void rvli_host_pages_unmap(void *memory, size_t size_bytes)
{
    (void)mmap(memory, whole_pages(size_bytes), PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

bool rvli_host_pages_has(const void *memory)
{
    const char *at = memory;
    return room != NULL && at >= room && at < room + ROOM_BYTES;
}
