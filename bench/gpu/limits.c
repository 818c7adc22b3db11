/* SPDX-License-Identifier: MIT */
#include "limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/error.h"
#include "bench/plain_disk.h"
#include "core/backup/disk/file.h"
#include "driver.h"
#include "need.h"
#include "subject.h"

#define TIMES 5
#define DISK_REQUEST_BYTES (4 * MIB)

/* Pinned memory, each way, best of five. */
static void measure_link(uint64_t size)
{
    void *host;
    CUdeviceptr addr = map_block(size);
    cuda_need(cuda.cuMemHostAlloc(&host, size, 0), "pinned memory");
    double out_s = 1e9, in_s = 1e9;
    for (int i = 0; i < TIMES; i++) {
        double begin = now_s();
        cuda_need(cuda.cuMemcpyDtoHAsync(host, addr, size, NULL), "copy out");
        cuda_need(cuda.cuCtxSynchronize(), "copy out");
        double middle = now_s();
        cuda_need(cuda.cuMemcpyHtoDAsync(addr, host, size, NULL), "copy in");
        cuda_need(cuda.cuCtxSynchronize(), "copy in");
        double end = now_s();
        out_s = middle - begin < out_s ? middle - begin : out_s;
        in_s = end - middle < in_s ? end - middle : in_s;
    }
    printf("{\"limit\":\"link\",\"bytes\":%llu,\"out_s\":%.6f,\"in_s\":%.6f}\n",
           (unsigned long long)size, out_s, in_s);
    fflush(stdout);
}

#ifdef RVL_HAVE_DIGEST_KERNEL

static const _Alignas(16) unsigned char digest_kernel[] = {
#include "digest.fatbin.inc"
};

/* The library's kernel, in granules of 2 MiB, into pinned memory: best of five. */
static void measure_digests(uint64_t size)
{
    uint64_t granule = 2 * MIB, count = size / granule;
    CUdeviceptr addr = map_block(size);
    CUmodule module;
    CUfunction kernel;
    void *pinned;
    double best_s = 1e9;
    cuda_need(cuda.cuModuleLoadData(&module, digest_kernel), "the kernel for digests");
    cuda_need(cuda.cuModuleGetFunction(&kernel, module, "rvl_digest"), "the kernel for digests");
    cuda_need(cuda.cuMemHostAlloc(&pinned, (count + 1) * 24, CU_MEMHOSTALLOC_DEVICEMAP),
              "addresses and results");
    uint64_t *granules = pinned, *digests = granules + count + count % 2; /* pairs are aligned */
    for (uint64_t i = 0; i < count; i++)
        granules[i] = addr + i * granule;
    cuda_need(cuda.cuMemsetD8Async(addr, 0x5E, size, NULL), "filling");
    cuda_need(cuda.cuCtxSynchronize(), "filling");
    void *params[] = {&granules, &granule, &count, &digests};
    for (int i = 0; i < TIMES; i++) {
        double begin = now_s();
        cuda_need(
            cuda.cuLaunchKernel(kernel, (unsigned)count, 1, 1, 512, 1, 1, 0, NULL, params, NULL),
            "computing digests");
        cuda_need(cuda.cuCtxSynchronize(), "computing digests");
        double taken_s = now_s() - begin;
        best_s = taken_s < best_s ? taken_s : best_s;
    }
    printf("{\"limit\":\"digest\",\"bytes\":%llu,\"digest_s\":%.6f}\n", (unsigned long long)size,
           best_s);
    fflush(stdout);
}

#endif

void measure_limits(bool small)
{
    char name[64] = "";
    int version = 0;
    cuda_need(cuda.cuDeviceGetName(name, (int)sizeof name, 0), "name");
    cuda_need(cuda.cuDriverGetVersion(&version), "version");
    printf("{\"machine\":\"%s\",\"driver\":%d,\"cores\":%ld}\n", name, version,
           sysconf(_SC_NPROCESSORS_ONLN));
    fflush(stdout);
    measure_link(small ? 8 * MIB : 4 * GIB);
#ifdef RVL_HAVE_DIGEST_KERNEL
    measure_digests(small ? 8 * MIB : 16 * GIB);
#endif
}

/* ---- The disk ---- */

static void need_ok(rvl_status status)
{
    if (status == RVL_OK)
        return;
    fprintf(stderr, "bench_gpu: --disk: %s\n", rvli_error_get()->message);
    exit(1);
}

void need_disk(const char *directory, uint64_t bytes)
{
    rvli_disk_file file;
    need_ok(rvli_disk_directory_check(directory, false));
    need_ok(rvli_disk_file_open(directory, bytes, &file));
    bool direct = file.direct;
    rvli_disk_file_close(&file);
    need(direct, "--disk: its file system knows no O_DIRECT, so the page cache would be measured: "
                 "name a directory of a disk");
}

static double moved_s(const rvli_disk_file *file, bool write, uint64_t bytes, unsigned threads,
                      unsigned char *buffers)
{
    double begin = now_s();
    need(plain_disk_move(file->fd, write, bytes, DISK_REQUEST_BYTES, threads, buffers),
         write ? "writing to the disk" : "reading from the disk");
    if (write)
        need(fdatasync(file->fd) == 0, "bringing the data to the disk");
    return now_s() - begin;
}

void measure_disk(const char *directory, uint64_t bytes, unsigned threads)
{
    rvli_disk_file file;
    bytes = bytes / DISK_REQUEST_BYTES * DISK_REQUEST_BYTES;
    unsigned char *buffers = plain_disk_buffers(threads * DISK_REQUEST_BYTES);
    need(buffers != NULL, "host memory");
    need_ok(rvli_disk_file_open(directory, bytes, &file));
    double write_s = moved_s(&file, true, bytes, threads, buffers);
    double read_s = moved_s(&file, false, bytes, threads, buffers);
    rvli_disk_file_close(&file);
    free(buffers);
    printf("{\"limit\":\"disk\",\"threads\":%u,\"bytes\":%llu,\"write_s\":%.6f,\"read_s\":%.6f}\n",
           threads, (unsigned long long)bytes, write_s, read_s);
    fflush(stdout);
}
