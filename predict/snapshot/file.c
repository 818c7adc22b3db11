/* SPDX-License-Identifier: MIT */
/* Maps files, reads pipes, and unpacks gzip members one by one. */
#include "predict/snapshot/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <libdeflate.h>

#include "base/memory.h"

/*
 * Recorded snapshots compress 8 to 15 times. One that repeats its stacks in every entry compresses
 * 54 times. A file with a ratio above RATIO_MAX (plus UNPACKED_BASE bytes) is taken for a bomb.
 */
#define RATIO_MAX 100
#define UNPACKED_BASE (UINT64_C(16) << 20)
#define UNPACKED_MAX (UINT64_C(8) << 30) /* a snapshot of a hundred million events */
#define CHUNK_BYTES ((size_t)1 << 16)
#define MEMBER_BYTES_MIN 18
#define FIRST_BYTES 64
#define PICKLE_FIRST_BYTE 0x80
#define GZIP_FIRST_BYTE 0x1f
#define GZIP_SECOND_BYTE 0x8b

/* ---- Growing buffer ---- */

typedef struct buffer {
    unsigned char *data;
    size_t used;
    size_t capacity;
} buffer;

static bool make_room(buffer *bytes)
{
    size_t larger = bytes->capacity > 0 ? bytes->capacity * 2 : CHUNK_BYTES;
    if (bytes->used < bytes->capacity)
        return true;
    unsigned char *data = realloc(bytes->data, larger);
    if (data == NULL)
        return false;
    bytes->data = data;
    bytes->capacity = larger;
    return true;
}

static void keep(rvli_file *file, buffer *bytes)
{
    unsigned char *data = bytes->used > 0 ? realloc(bytes->data, bytes->used) : NULL;
    *file = (rvli_file){.data = data != NULL ? data : bytes->data, .size = bytes->used};
}

/* ---- Reading ---- */

/* Whether to read on. A device such as /dev/zero never ends. */
static bool may_be_snapshot(const buffer *bytes)
{
    return bytes->used == 0 || bytes->data[0] == PICKLE_FIRST_BYTE ||
           bytes->data[0] == GZIP_FIRST_BYTE;
}

static rvl_status read_all(int descriptor, rvli_file *file, const char **why_out)
{
    buffer bytes = {0};
    for (;;) {
        if (!make_room(&bytes)) {
            free(bytes.data);
            *why_out = NULL;
            return RVL_ERR_HOST_OOM;
        }
        ssize_t got = read(descriptor, bytes.data + bytes.used, bytes.capacity - bytes.used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            free(bytes.data);
            *why_out = strerror(errno);
            return RVL_ERR_IO;
        }
        bytes.used += got > 0 ? (size_t)got : 0;
        if (got == 0 || !may_be_snapshot(&bytes))
            break;
    }
    keep(file, &bytes);
    return RVL_OK;
}

static rvl_status load(int descriptor, rvli_file *file, const char **why_out)
{
    struct stat facts;
    if (fstat(descriptor, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0) {
        size_t bytes = (size_t)facts.st_size;
        void *mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (mapping != MAP_FAILED) {
            madvise(mapping, bytes, MADV_SEQUENTIAL);
            *file = (rvli_file){
                .data = mapping, .size = bytes, .mapping = mapping, .mapping_bytes = bytes};
            return RVL_OK;
        }
    }
    return read_all(descriptor, file, why_out);
}

/* ---- Unpacking ---- */

static rvl_status refuse(const char *why, const char **why_out)
{
    *why_out = why; /* NULL: no memory */
    return why != NULL ? RVL_ERR_CORRUPT_TRACE : RVL_ERR_HOST_OOM;
}

static inline uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* The most bytes that a file may unpack to. */
static uint64_t unpacked_max(const rvli_file *packed)
{
    return least(UNPACKED_BASE + packed->size * RATIO_MAX, UNPACKED_MAX);
}

/* Exact for a file of one member below 4 GiB: its last bytes store its size. */
static size_t guess_size(const rvli_file *packed)
{
    uint64_t said = 0;
    if (packed->size >= MEMBER_BYTES_MIN) {
        const unsigned char *tail = packed->data + packed->size - 4;
        said = (uint64_t)tail[0] | (uint64_t)tail[1] << 8 | (uint64_t)tail[2] << 16 |
               (uint64_t)tail[3] << 24;
    }
    return (size_t)least(most(most(said, packed->size), CHUNK_BYTES), unpacked_max(packed));
}

/* Doubles the buffer, up to a limit. */
static rvl_status enlarge(buffer *bytes, uint64_t limit, const char **why_out)
{
    size_t larger = (size_t)least((uint64_t)bytes->capacity * 2, limit);
    if (bytes->capacity >= limit)
        return refuse("it unpacks to more than 100 times its size, or to more than 8 GiB: no "
                      "recorded snapshot does; if you trust it, gunzip it first",
                      why_out);
    void *data = rvli_memory_grow(bytes->data, bytes->capacity, larger);
    if (data == NULL)
        return refuse(NULL, why_out);
    bytes->data = data;
    bytes->capacity = larger;
    return RVL_OK;
}

/*
 * If a member does not fit, doubles the buffer and unpacks the member again. Doubling bounds the
 * cost.
 */
static rvl_status unpack_members(struct libdeflate_decompressor *unpacker, const rvli_file *packed,
                                 buffer *bytes, const char **why_out)
{
    rvl_status status = RVL_OK;
    for (uint64_t at = 0; status == RVL_OK && at < packed->size;) {
        size_t took = 0, gave = 0;
        enum libdeflate_result result = libdeflate_gzip_decompress_ex(
            unpacker, packed->data + at, packed->size - at, bytes->data + bytes->used,
            bytes->capacity - bytes->used, &took, &gave);
        at += took;
        bytes->used += gave;
        if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
            status = enlarge(bytes, unpacked_max(packed), why_out);
        else if (result != LIBDEFLATE_SUCCESS)
            status = refuse("not a whole gzip stream: cut short or damaged", why_out);
    }
    return status;
}

/*
 * Unpacks only the first bytes, so that a large file that is not a pickle is not unpacked to its
 * end.
 */
static bool begins_as_pickle(struct libdeflate_decompressor *unpacker, const rvli_file *packed)
{
    unsigned char first[FIRST_BYTES] = {PICKLE_FIRST_BYTE};
    size_t took, gave;
    enum libdeflate_result result = libdeflate_gzip_decompress_ex(
        unpacker, packed->data, packed->size, first, sizeof first, &took, &gave);
    return result != LIBDEFLATE_INSUFFICIENT_SPACE || first[0] == PICKLE_FIRST_BYTE;
}

static rvl_status unpack_with(struct libdeflate_decompressor *unpacker, const rvli_file *packed,
                              buffer *bytes, const char **why_out)
{
    static const char no_pickle[] = "what it unpacks to is not a pickle of protocol 2 to 5";
    if (!begins_as_pickle(unpacker, packed))
        return refuse(no_pickle, why_out);
    bytes->capacity = guess_size(packed);
    bytes->data = rvli_memory_alloc(bytes->capacity);
    if (bytes->data == NULL)
        return refuse(NULL, why_out);
    rvl_status status = unpack_members(unpacker, packed, bytes, why_out);
    if (status == RVL_OK && bytes->used > 0 && bytes->data[0] != PICKLE_FIRST_BYTE)
        status = refuse(no_pickle, why_out);
    return status;
}

static rvl_status unpack(rvli_file *file, const char **why_out)
{
    buffer bytes = {0};
    struct libdeflate_decompressor *unpacker = libdeflate_alloc_decompressor();
    if (unpacker == NULL)
        return refuse(NULL, why_out);
    rvl_status status = unpack_with(unpacker, file, &bytes, why_out);
    libdeflate_free_decompressor(unpacker);
    if (status != RVL_OK) {
        rvli_memory_free(bytes.data, bytes.capacity);
        return status;
    }
    rvli_file_close(file);
    *file = (rvli_file){.data = bytes.data, .size = bytes.used, .unpacked_bytes = bytes.capacity};
    return RVL_OK;
}

/* ---- Opening ---- */

rvl_status rvli_file_open(const char *path, rvli_file *file_out, const char **why_out)
{
    rvli_file file = {0};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        *why_out = strerror(errno);
        return RVL_ERR_IO;
    }
    rvl_status status = load(descriptor, &file, why_out);
    close(descriptor);
    if (status == RVL_OK && file.size > 1 && file.data[0] == GZIP_FIRST_BYTE &&
        file.data[1] == GZIP_SECOND_BYTE)
        status = unpack(&file, why_out);
    if (status == RVL_OK)
        *file_out = file;
    else
        rvli_file_close(&file);
    return status;
}

void rvli_file_close(rvli_file *file)
{
    if (file->mapping != NULL)
        munmap(file->mapping, file->mapping_bytes);
    else if (file->unpacked_bytes > 0)
        rvli_memory_free((void *)(uintptr_t)file->data, file->unpacked_bytes);
    else
        free((void *)(uintptr_t)file->data);
    *file = (rvli_file){0};
}
