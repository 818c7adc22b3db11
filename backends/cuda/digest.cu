/* SPDX-License-Identifier: MIT */
/*
 * The digests of base/digest.h on the GPU: one block of threads a granule, wherever it lies.
 *
 * Each thread takes every blockDim-th 16 bytes, with several loads in flight, so that memory is
 * what it waits for; what is read once is not kept in the caches. Sums are made in registers, then
 * within each warp, then across the warps of the block.
 */
#include "base/digest_mix.h"

#define THREADS 512 /* as launched */
#define WARPS (THREADS / 32)
#define IN_FLIGHT 8
#define EVERY_LANE 0xFFFFFFFFu

struct sums {
    uint64_t low, high;
};

static __device__ __forceinline__ void add_pair(sums *sum, ulonglong2 words, uint64_t key)
{
    rvli_digest_add(words.x, key, &sum->low, &sum->high);
    rvli_digest_add(words.y, key + RVLI_DIGEST_STEP, &sum->low, &sum->high);
}

static __device__ __forceinline__ sums sum_of_thread(const ulonglong2 *pairs, uint64_t count)
{
    const uint64_t stride = 2 * THREADS * RVLI_DIGEST_STEP;
    uint64_t i = threadIdx.x;
    uint64_t key = rvli_digest_key(2 * i);
    sums sum = {0, 0};
    for (; i + (IN_FLIGHT - 1) * THREADS < count; i += IN_FLIGHT * THREADS) {
        ulonglong2 words[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            words[k] = __ldcs(pairs + i + k * THREADS);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++, key += stride)
            add_pair(&sum, words[k], key);
    }
    for (; i < count; i += THREADS, key += stride)
        add_pair(&sum, __ldcs(pairs + i), key);
    return sum;
}

static __device__ __forceinline__ sums sum_of_warp(sums sum)
{
    for (int distance = 16; distance > 0; distance /= 2) {
        sum.low += __shfl_down_sync(EVERY_LANE, sum.low, distance);
        sum.high += __shfl_down_sync(EVERY_LANE, sum.high, distance);
    }
    return sum;
}

/*
 * granules: the address of each; digests: a pair of numbers for each. Both in memory of the device
 * or of the host.
 */
extern "C" __global__ void __launch_bounds__(THREADS)
    rvl_digest(const uint64_t *granules, uint64_t granule_bytes, uint64_t granule_count,
               ulonglong2 *digests)
{
    __shared__ sums of_warps[WARPS];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (blockIdx.x >= granule_count)
        return;
    sums sum = sum_of_warp(sum_of_thread((const ulonglong2 *)granules[blockIdx.x],
                                         granule_bytes / sizeof(ulonglong2)));
    if (lane == 0)
        of_warps[warp] = sum;
    __syncthreads();
    if (warp > 0)
        return;
    sum = lane < WARPS ? of_warps[lane] : sums{0, 0};
    sum = sum_of_warp(sum);
    if (lane == 0)
        digests[blockIdx.x] = make_ulonglong2(sum.low, sum.high);
}
