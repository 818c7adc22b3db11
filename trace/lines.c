/* SPDX-License-Identifier: MIT */
#include "trace/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zstd.h>

#include "base/error.h"
#include "trace/format.h"

#define BUFFER_BYTES ((size_t)4 * RVLI_TRACE_LINE_BYTES_MAX)
#define PACKED_BYTES RVLI_TRACE_LINE_BYTES_MAX

struct rvli_lines {
    int file;
    uint64_t bytes_read;
    uint64_t bytes_total;
    bool at_end; /* there is no more text to read */
    bool cut;
    bool any;           /* a whole line has been returned */
    size_t begin, end;  /* unread text in buffer */
    ZSTD_DCtx *zstd;    /* NULL: plain */
    bool frame_open;    /* the last zstd frame is not finished */
    bool more_unpacked; /* zstd holds text that did not fit in buffer */
    ZSTD_inBuffer packed_in;
    char *packed;
    char buffer[BUFFER_BYTES + RVLI_LINES_PADDING];
};

static bool ends_in_zst(const char *path)
{
    size_t length = strlen(path);
    return length >= 4 && strcmp(path + length - 4, ".zst") == 0;
}

static rvl_status os_error(const char *message)
{
    int number = errno;
    rvli_error(RVL_ERR_IO, message);
    rvli_error_errno(number);
    return RVL_ERR_IO;
}

static const char *why_not_open(int number)
{
    switch (number) {
    case ENOENT:
        return "no such file";
    case EACCES:
        return "you may not read this file: chmod or its owner can allow it";
    default:
        return "the file cannot be opened";
    }
}

static rvl_status open_file(rvli_lines *lines, const char *path)
{
    struct stat facts;
    lines->file = open(path, O_RDONLY | O_CLOEXEC);
    if (lines->file < 0)
        return os_error(why_not_open(errno));
    if (fstat(lines->file, &facts) != 0)
        return os_error("the file cannot be examined");
    if (S_ISDIR(facts.st_mode))
        return rvli_error(RVL_ERR_IO, "this is a folder, not a trace");
    if (S_ISREG(facts.st_mode))
        lines->bytes_total = (uint64_t)facts.st_size;
    if (!ends_in_zst(path))
        return RVL_OK;
    lines->zstd = ZSTD_createDCtx();
    lines->packed = malloc(PACKED_BYTES);
    if (lines->zstd == NULL || lines->packed == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory to decompress a trace");
    lines->packed_in.src = lines->packed;
    return RVL_OK;
}

rvl_status rvli_lines_open(const char *path, rvli_lines **lines_out)
{
    rvli_lines *lines = calloc(1, sizeof *lines);
    if (lines == NULL)
        return rvli_error(RVL_ERR_HOST_OOM, "no host memory to read a trace");
    rvl_status status = open_file(lines, path);
    if (status != RVL_OK) {
        rvli_lines_close(lines);
        return status;
    }
    *lines_out = lines;
    return RVL_OK;
}

void rvli_lines_close(rvli_lines *lines)
{
    if (lines == NULL)
        return;
    if (lines->file >= 0)
        close(lines->file);
    ZSTD_freeDCtx(lines->zstd);
    free(lines->packed);
    free(lines);
}

/* ---- Filling the buffer ---- */

/* Reads from the file; 0 at its end. */
static rvl_status read_some(rvli_lines *lines, char *into, size_t room, size_t *count_out)
{
    for (;;) {
        ssize_t count = read(lines->file, into, room);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return os_error("the file cannot be read");
        lines->bytes_read += (uint64_t)count;
        *count_out = (size_t)count;
        return RVL_OK;
    }
}

static rvl_status fill_plain(rvli_lines *lines)
{
    size_t count = 0;
    rvl_status status =
        read_some(lines, lines->buffer + lines->end, BUFFER_BYTES - lines->end, &count);
    lines->end += count;
    lines->at_end = count == 0;
    return status;
}

static rvl_status fill_packed(rvli_lines *lines, const char **why_out)
{
    ZSTD_outBuffer out = {lines->buffer + lines->end, BUFFER_BYTES - lines->end, 0};
    while (out.pos == 0) {
        if (lines->packed_in.pos == lines->packed_in.size && !lines->more_unpacked) {
            size_t count = 0;
            rvl_status status = read_some(lines, lines->packed, PACKED_BYTES, &count);
            if (status != RVL_OK)
                return status;
            lines->packed_in.size = count;
            lines->packed_in.pos = 0;
            if (count == 0) {
                lines->at_end = true;
                lines->cut = lines->frame_open;
                *why_out =
                    "the zstd stream ends early: the file was cut off " RVLI_TRACE_PARTIAL_HINT;
                return lines->frame_open ? RVL_ERR_CORRUPT_TRACE : RVL_OK;
            }
        }
        size_t left = ZSTD_decompressStream(lines->zstd, &out, &lines->packed_in);
        if (ZSTD_isError(left)) {
            *why_out = "not a valid zstd stream";
            return RVL_ERR_CORRUPT_TRACE;
        }
        lines->frame_open = left != 0;
        lines->more_unpacked = left != 0 && out.pos == out.size;
    }
    lines->end += out.pos;
    return RVL_OK;
}

static rvl_status fill(rvli_lines *lines, const char **why_out)
{
    memmove(lines->buffer, lines->buffer + lines->begin, lines->end - lines->begin);
    lines->end -= lines->begin;
    lines->begin = 0;
    return lines->zstd != NULL ? fill_packed(lines, why_out) : fill_plain(lines);
}

/* ---- Lines ---- */

rvl_status rvli_lines_next(rvli_lines *lines, const char **line_out, size_t *length_out,
                           const char **why_out)
{
    size_t searched = 0;
    for (;;) {
        char *begin = lines->buffer + lines->begin;
        size_t unread = lines->end - lines->begin;
        char *newline = memchr(begin + searched, '\n', unread - searched);
        bool too_long = newline != NULL ? newline - begin > RVLI_TRACE_LINE_BYTES_MAX
                                        : unread > RVLI_TRACE_LINE_BYTES_MAX;
        if (too_long) {
            *why_out = "the line is longer than 65536 bytes";
            return RVL_ERR_CORRUPT_TRACE;
        }
        if (newline != NULL) {
            *line_out = begin;
            *length_out = (size_t)(newline - begin);
            lines->begin += *length_out + 1;
            lines->any = true;
            return RVL_OK;
        }
        searched = unread;
        if (lines->at_end) {
            lines->cut = true;
            *why_out = lines->any
                           ? "the last line breaks off: it has no newline " RVLI_TRACE_PARTIAL_HINT
                           : "not a whole trace: it breaks off in its first line, which must be "
                             "`reveille-trace 1.N`";
            return unread == 0 ? RVL_ERR_NOT_FOUND : RVL_ERR_CORRUPT_TRACE;
        }
        rvl_status status = fill(lines, why_out);
        if (status != RVL_OK)
            return status;
    }
}

bool rvli_lines_cut(const rvli_lines *lines)
{
    return lines->cut;
}

uint32_t rvli_lines_column(const rvli_lines *lines)
{
    size_t whole = lines->end - lines->begin;
    return (uint32_t)(whole < RVLI_TRACE_LINE_BYTES_MAX ? whole : RVLI_TRACE_LINE_BYTES_MAX) + 1;
}

uint64_t rvli_lines_bytes_read(const rvli_lines *lines)
{
    return lines->bytes_read;
}

uint64_t rvli_lines_bytes_total(const rvli_lines *lines)
{
    return lines->bytes_total;
}
