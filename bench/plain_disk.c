/* SPDX-License-Identifier: MIT */
#include "plain_disk.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/backup/disk/file.h"

#define MAX_THREADS 64u

typedef struct part {
    int fd;
    bool write, moved;
    uint64_t begin, end, request_bytes;
    unsigned char *buffer;
    pthread_t thread;
} part;

static void *move_part(void *argument)
{
    part *p = argument;
    p->moved = true;
    for (uint64_t at = p->begin; at < p->end && p->moved; at += p->request_bytes) {
        ssize_t moved = p->write ? pwrite(p->fd, p->buffer, p->request_bytes, (off_t)at)
                                 : pread(p->fd, p->buffer, p->request_bytes, (off_t)at);
        p->moved = moved == (ssize_t)p->request_bytes;
    }
    return NULL;
}

bool plain_disk_move(int fd, bool write, uint64_t bytes, uint64_t request_bytes, unsigned threads,
                     unsigned char *buffers)
{
    part parts[MAX_THREADS];
    uint64_t count = bytes / request_bytes;
    unsigned begun = 0;
    if (threads == 0 || threads > MAX_THREADS)
        return false;
    for (unsigned i = 0; i < threads; i++)
        parts[i] = (part){.fd = fd,
                          .write = write,
                          .begin = count * i / threads * request_bytes,
                          .end = count * (i + 1) / threads * request_bytes,
                          .request_bytes = request_bytes,
                          .buffer = buffers + i * request_bytes};
    while (begun + 1 < threads &&
           pthread_create(&parts[begun].thread, NULL, move_part, &parts[begun]) == 0)
        begun++;
    bool all = begun + 1 == threads;
    if (all) /* the last part is this thread's */
        move_part(&parts[begun]);
    for (unsigned i = 0; i < begun; i++) {
        pthread_join(parts[i].thread, NULL);
        all = all && parts[i].moved;
    }
    return all && parts[threads - 1].moved;
}

unsigned char *plain_disk_buffers(uint64_t bytes)
{
    unsigned char *buffers = aligned_alloc(RVLI_DISK_ALIGNMENT, bytes);
    for (uint64_t i = 0; buffers != NULL && i < bytes; i++)
        buffers[i] = (unsigned char)(i * UINT64_C(2654435761) >> 13);
    return buffers;
}
