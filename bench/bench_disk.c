/* SPDX-License-Identifier: MIT */
/*
 * How fast backups reach a disk and come back: GB/s of writing a file and of reading it again, by
 * the queue with either engine, beside a plain loop of pwrite and pread (as dd does it) and four
 * threads with a quarter of the file each. Past the page cache where the file system allows it.
 *
 *     bench_disk [DIRECTORY [GIB [DEPTH [REQUEST_MIB]]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "bench/plain_disk.h"
#include "core/backup/disk/file.h"
#include "core/backup/disk/queue.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)
#define THREADS 4u

typedef struct setting {
    rvli_disk_file file;
    uint64_t bytes;
    unsigned depth;
    uint64_t request_bytes;
    unsigned char *buffers; /* depth, or THREADS if that is more */
} setting;

static void require(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "bench_disk: %s failed: %s\n", what, rvli_error_get()->message);
    exit(1);
}

static void by_queue(const setting *s, bool write, rvli_disk_engine engine)
{
    rvli_disk_queue *queue = NULL;
    rvli_disk_request requests[RVLI_DISK_MAX_DEPTH];
    require(rvli_disk_queue_open(engine, s->depth, &queue) == RVL_OK, "opening the queue");
    uint64_t count = s->bytes / s->request_bytes;
    for (uint64_t i = 0; i < count + s->depth; i++) {
        rvli_disk_request *request = &requests[i % s->depth];
        if (i >= s->depth)
            require(rvli_disk_queue_wait(queue, request) == RVL_OK, "a request");
        if (i >= count)
            continue;
        *request = (rvli_disk_request){.fd = s->file.fd,
                                       .write = write,
                                       .buffer = s->buffers + (i % s->depth) * s->request_bytes,
                                       .offset = i * s->request_bytes,
                                       .bytes = s->request_bytes};
        require(rvli_disk_queue_submit(queue, request) == RVL_OK, "submitting a request");
    }
    rvli_disk_queue_close(queue);
}

static void by_uring(const setting *s, bool write)
{
    by_queue(s, write, RVLI_DISK_URING);
}

static void by_threads(const setting *s, bool write)
{
    by_queue(s, write, RVLI_DISK_THREADS);
}

static void by_loop(const setting *s, bool write)
{
    require(plain_disk_move(s->file.fd, write, s->bytes, s->request_bytes, 1, s->buffers),
            "a plain call");
}

static void by_parts(const setting *s, bool write)
{
    require(plain_disk_move(s->file.fd, write, s->bytes, s->request_bytes, THREADS, s->buffers),
            "a plain call of some threads");
}

static double measured_gb_s(const setting *s, bool write,
                            void (*move)(const setting *s, bool write))
{
    uint64_t begin_ns = rvli_monotonic_ns();
    move(s, write);
    if (write) /* nothing to do where the page cache is passed by */
        require(fdatasync(s->file.fd) == 0, "bringing the data to the disk");
    return (double)s->bytes / (double)(rvli_monotonic_ns() - begin_ns);
}

/* A new file each: what has been written once is overwritten faster. */
static void measure(const char *what, const char *directory, setting s,
                    void (*move)(const setting *s, bool write))
{
    require(rvli_disk_file_open(directory, s.bytes, &s.file) == RVL_OK, "opening the file");
    double write_gb_s = measured_gb_s(&s, true, move);
    double read_gb_s = measured_gb_s(&s, false, move);
    printf("%-18s write %6.2f GB/s  read %6.2f GB/s%s\n", what, write_gb_s, read_gb_s,
           s.file.direct ? "" : "  (page cache)");
    rvli_disk_file_close(&s.file);
}

static bool uring_is_here(void)
{
    rvli_disk_queue *queue = NULL;
    if (rvli_disk_queue_open(RVLI_DISK_URING, 1, &queue) != RVL_OK)
        return false;
    rvli_disk_queue_close(queue);
    return true;
}

static uint64_t number_of(int argc, char **argv, int place, uint64_t otherwise)
{
    return place < argc ? strtoull(argv[place], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    const char *directory = argc > 1 ? argv[1] : ".";
    uint64_t gib = number_of(argc, argv, 2, 4);
    uint64_t depth = number_of(argc, argv, 3, 16);
    uint64_t mib = number_of(argc, argv, 4, 4);
    if (gib == 0 || depth == 0 || depth > RVLI_DISK_MAX_DEPTH || mib == 0 || mib > 1024) {
        fprintf(stderr, "usage: bench_disk [DIRECTORY [GIB [DEPTH (1 to 64) [REQUEST_MIB]]]]\n");
        return 1;
    }
    setting s = {.depth = (unsigned)depth, .request_bytes = mib * MIB};
    s.bytes = gib * GIB / s.request_bytes * s.request_bytes;
    uint64_t memory_bytes = (depth > THREADS ? depth : THREADS) * s.request_bytes;
    s.buffers = plain_disk_buffers(memory_bytes);
    require(s.buffers != NULL, "allocating buffers");
    printf("%s: %llu GiB, depth %u, requests of %llu MiB\n", directory, (unsigned long long)gib,
           s.depth, (unsigned long long)mib);
    if (uring_is_here())
        measure("queue, io_uring", directory, s, by_uring);
    else
        printf("%-18s %s\n", "queue, io_uring", rvli_error_get()->message);
    measure("queue, threads", directory, s, by_threads);
    measure("plain, 1 thread", directory, s, by_loop);
    measure("plain, 4 threads", directory, s, by_parts);
    free(s.buffers);
    return 0;
}
