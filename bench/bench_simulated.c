/* SPDX-License-Identifier: MIT */
/*
 * What a call costs a program on simulated GPUs: each asks the machine, which is another process.
 *
 *   reveille run -- bench_simulated [PAIRS [LIMIT_US]]
 *
 * Prints microseconds of an allocation and its free, the best and the median of several rounds, for
 * each kind of memory. With a LIMIT_US the exit status is 1 if the best round of cudaMalloc takes
 * more.
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS 9
#define PAIRS 2000
#define MIB ((size_t)1 << 20)

typedef cudaError_t pair_of_calls(size_t size);

static cudaError_t plain(size_t size)
{
    void *memory = NULL;
    cudaError_t error = cudaMalloc(&memory, size);
    return error == cudaSuccess ? cudaFree(memory) : error;
}

static cudaError_t pooled(size_t size)
{
    void *memory = NULL;
    cudaError_t error = cudaMallocAsync(&memory, size, NULL);
    return error == cudaSuccess ? cudaFreeAsync(memory, NULL) : error;
}

static cudaError_t pinned(size_t size)
{
    void *memory = NULL;
    cudaError_t error = cudaMallocHost(&memory, size);
    return error == cudaSuccess ? cudaFreeHost(memory) : error;
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The best round, in microseconds a pair. */
static double measure(const char *what, pair_of_calls *pair, size_t size, long pairs)
{
    double rounds[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double begin_us = now_us();
        for (long i = 0; i < pairs; i++) {
            cudaError_t error = pair(size);
            if (error != cudaSuccess) {
                fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
                exit(1);
            }
        }
        rounds[round] = (now_us() - begin_us) / (double)pairs;
    }
    qsort(rounds, ROUNDS, sizeof *rounds, ascending);
    printf("%-40s %6.2f us, median %6.2f\n", what, rounds[0], rounds[ROUNDS / 2]);
    return rounds[0];
}

int main(int argc, char **argv)
{
    long pairs = argc > 1 ? atol(argv[1]) : PAIRS;
    double limit_us = argc > 2 ? atof(argv[2]) : 0;
    if (pairs <= 0 || limit_us < 0) {
        fputs("usage: reveille run -- bench_simulated [PAIRS [LIMIT_US]]\n", stderr);
        return 2;
    }
    if (cudaFree(NULL) != cudaSuccess) {
        fputs("no GPU: run it under `reveille run --`\n", stderr);
        return 2;
    }
    double best_us = measure("cudaMalloc of 4 MiB, cudaFree", plain, 4 * MIB, pairs);
    measure("cudaMalloc of 512 bytes, cudaFree", plain, 512, pairs);
    measure("cudaMallocAsync of 4 MiB, cudaFreeAsync", pooled, 4 * MIB, pairs);
    measure("cudaMallocHost of 4 KiB, cudaFreeHost", pinned, 4096, pairs);
    return limit_us > 0 && best_us > limit_us;
}
