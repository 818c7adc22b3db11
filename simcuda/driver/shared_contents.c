/* SPDX-License-Identifier: MIT */
#include "simcuda/driver/shared_contents.h"

#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simcuda/driver/client.h"

#define PAGE_BYTES UINT64_C(4096)
#define BLOCK_BYTES 512 /* the unit of st_blocks */
#define PART_BYTES ((size_t)4096)

static int file = -1;
static size_t room_bytes;

/* With a limit on file sizes, writing far out in the sparse file would end the program. */
static bool may_be_written(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY;
}

bool rvli_shared_contents_begin(size_t most_bytes)
{
    rvli_wire_answer answer;
    const rvli_wire_request request = {.kind = RVLI_WIRE_CONTENTS};
    room_bytes = most_bytes;
    if (file >= 0)
        return true;
    int got = -1;
    if (may_be_written() && rvli_client_send_for_file(&request, &answer, &got) == RVL_OK)
        file = got;
    return file >= 0;
}

void rvli_shared_contents_forget_file(void)
{
    if (file >= 0)
        close(file);
    file = -1;
}

static off_t bytes_at(const rvli_shared_place *of)
{
    return (off_t)(of->place + of->at);
}

static off_t known_at(const rvli_shared_place *of)
{
    return (off_t)(of->place + (of->size_bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES +
                   of->at);
}

/* Bytes in a hole or beyond the end are 0. */
static void read_at(off_t at, void *to, size_t bytes)
{
    ssize_t got = file >= 0 ? pread(file, to, bytes, at) : 0;
    size_t done = got > 0 ? (size_t)got : 0;
    memset((char *)to + done, 0, bytes - done);
}

static void punch(off_t at, size_t bytes)
{
    (void)fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, (off_t)bytes);
}

/* Counts twice the bytes, and a page at each end. */
static bool has_room(size_t bytes)
{
    struct stat facts;
    return fstat(file, &facts) == 0 &&
           (uint64_t)facts.st_blocks * BLOCK_BYTES + 2 * bytes + 4 * PAGE_BYTES <= room_bytes;
}

static bool mark_known(off_t at, size_t bytes)
{
    char ones[PART_BYTES];
    size_t done = 0;
    memset(ones, 1, sizeof ones);
    while (done < bytes) {
        size_t part = bytes - done < sizeof ones ? bytes - done : sizeof ones;
        if (pwrite(file, ones, part, at + (off_t)done) != (ssize_t)part)
            return false;
        done += part;
    }
    return true;
}

void rvli_shared_contents_write(const rvli_shared_place *to, const void *from, size_t bytes)
{
    if (file < 0)
        return;
    if (!has_room(bytes) || pwrite(file, from, bytes, bytes_at(to)) != (ssize_t)bytes ||
        !mark_known(known_at(to), bytes))
        rvli_shared_contents_forget(to, bytes);
}

void rvli_shared_contents_list(const rvli_shared_place *from, bool *known, size_t bytes)
{
    read_at(known_at(from), known, bytes);
}

/* Unknown bytes were never written, or were dropped: they are 0. */
bool rvli_shared_contents_read(const rvli_shared_place *from, void *to, size_t bytes)
{
    bool known[PART_BYTES];
    bool all = true;
    read_at(bytes_at(from), to, bytes);
    for (size_t done = 0, part; done < bytes && all; done += part) {
        part = bytes - done < sizeof known ? bytes - done : sizeof known;
        read_at(known_at(from) + (off_t)done, known, part);
        all = memchr(known, false, part) == NULL;
    }
    return all;
}

void rvli_shared_contents_forget(const rvli_shared_place *of, size_t bytes)
{
    if (file < 0)
        return;
    punch(known_at(of), bytes); /* first, so that no process takes zeros for content */
    punch(bytes_at(of), bytes);
}
