/* SPDX-License-Identifier: MIT */
/* Files are mapped, pipes read, gzip members unpacked one after the other. */
#include "snapshot/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

/* A snapshot of a hundred million events; what unpacks to more is taken for a bomb. */
#define UNPACKED_MAX (UINT64_C(8) << 30)
#define CHUNK_BYTES ((size_t)1 << 16)
#define WINDOW_BITS_GZIP (15 + 16)
#define PICKLE_FIRST_BYTE 0x80

/* ---- Bytes that grow ---- */

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
        if (got == 0)
            break;
        bytes.used += (size_t)got;
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

static rvl_status why_not(int code, const char **why_out)
{
    *why_out = code == Z_MEM_ERROR   ? NULL
               : code == Z_BUF_ERROR ? "the gzip stream ends early"
                                     : "not a valid gzip stream";
    return code == Z_MEM_ERROR ? RVL_ERR_HOST_OOM : RVL_ERR_CORRUPT_TRACE;
}

static rvl_status check_unpacked(const buffer *bytes, const char **why_out)
{
    *why_out = "what it unpacks to is not a pickle of protocol 2 to 5";
    if (bytes->used > 0 && bytes->data[0] != PICKLE_FIRST_BYTE)
        return RVL_ERR_CORRUPT_TRACE;
    *why_out = "it unpacks to more than 8 GiB: unpack it first";
    return bytes->used <= UNPACKED_MAX ? RVL_OK : RVL_ERR_CORRUPT_TRACE;
}

/* Points zlib at input and room; its counters have 32 bits. */
static void point(z_stream *stream, const rvli_file *packed, uint64_t *in, const buffer *bytes)
{
    uint64_t left = packed->size - *in;
    size_t room = bytes->capacity - bytes->used;
    stream->next_in = (Bytef *)(uintptr_t)(packed->data + *in); /* zlib does not write there */
    stream->avail_in = left < INT32_MAX ? (uInt)left : (uInt)INT32_MAX;
    stream->next_out = bytes->data + bytes->used;
    stream->avail_out = room < INT32_MAX ? (uInt)room : (uInt)INT32_MAX;
}

static rvl_status unpack_members(z_stream *stream, const rvli_file *packed, buffer *bytes,
                                 const char **why_out)
{
    uint64_t in = 0;
    rvl_status status = RVL_OK;
    while (status == RVL_OK) {
        if (!make_room(bytes))
            return why_not(Z_MEM_ERROR, why_out);
        point(stream, packed, &in, bytes);
        int code = inflate(stream, Z_NO_FLUSH);
        in = (uint64_t)(stream->next_in - packed->data);
        bytes->used = (size_t)(stream->next_out - bytes->data);
        if (code == Z_STREAM_END && in == packed->size)
            return check_unpacked(bytes, why_out);
        if (code == Z_STREAM_END)
            code = inflateReset(stream);
        else if (code == Z_OK && in == packed->size && bytes->used < bytes->capacity)
            code = Z_BUF_ERROR;
        status = code == Z_OK ? check_unpacked(bytes, why_out) : why_not(code, why_out);
    }
    return status;
}

static rvl_status unpack(rvli_file *file, const char **why_out)
{
    z_stream stream = {0};
    buffer bytes = {0};
    int code = inflateInit2(&stream, WINDOW_BITS_GZIP);
    if (code != Z_OK)
        return why_not(Z_MEM_ERROR, why_out);
    rvl_status status = unpack_members(&stream, file, &bytes, why_out);
    inflateEnd(&stream);
    if (status != RVL_OK) {
        free(bytes.data);
        return status;
    }
    rvli_file_close(file);
    keep(file, &bytes);
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
    if (status == RVL_OK && file.size > 1 && file.data[0] == 0x1f && file.data[1] == 0x8b)
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
    else
        free((void *)(uintptr_t)file->data);
    *file = (rvli_file){0};
}
