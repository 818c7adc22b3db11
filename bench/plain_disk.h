/* SPDX-License-Identifier: MIT */
/*
 * What a disk gives a plain program: loops of pwrite and pread, as dd does it, one thread or some
 * with a share of the file each. Shared by the benchmarks that compare with it.
 */
#ifndef RVL_BENCH_PLAIN_DISK_H
#define RVL_BENCH_PLAIN_DISK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Writes or reads the first bytes of a file, threads at a time; buffers holds one request for each
 * thread. bytes is a multiple of request_bytes. False: a call failed, or moved too little.
 */
bool plain_disk_move(int fd, bool write, uint64_t bytes, uint64_t request_bytes, unsigned threads,
                     unsigned char *buffers);

/* Memory for requests, filled with noise: some disks make less of zeros. NULL: there is none. */
unsigned char *plain_disk_buffers(uint64_t bytes);

#endif
