/* SPDX-License-Identifier: MIT */
/*
 * The digests of base/digest.h and base/secret_digest.h on the GPU: one block of threads for each
 * granule, at any address.
 *
 * Each thread reads every blockDim-th 16 bytes with several loads in flight, so that the speed of
 * memory is the limit. Loads bypass the caches, since each word is read once. Sums are computed in
 * registers, then within each warp, then across the warps of the block.
 */
#include "base/digest_mix.h"
#include "base/secret_digest_mix.h"

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
 * granules: the address of each granule; digests: a pair of numbers for each. Both may be in memory
 * of the device or of the host.
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

/* ---- With a secret ---- */

/* This thread's part of a granule's polynomial. */
static __device__ __forceinline__ rvli_mod part_of_thread(const ulonglong2 *pairs, uint64_t count,
                                                          rvli_mod root)
{
    const rvli_mod stride = rvli_mod_power(root, 2 * THREADS);
    uint64_t i = threadIdx.x;
    rvli_mod part = 0;
    if (i >= count)
        return 0;
    for (; i + (IN_FLIGHT - 1) * THREADS < count; i += IN_FLIGHT * THREADS) {
        ulonglong2 words[IN_FLIGHT];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            words[k] = __ldcs(pairs + i + k * THREADS);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            part = rvli_mod_add(rvli_mod_multiply(part, stride),
                                rvli_mod_add(rvli_mod_multiply(words[k].x, root), words[k].y));
    }
    for (; i < count; i += THREADS) {
        ulonglong2 words = __ldcs(pairs + i);
        part = rvli_mod_add(rvli_mod_multiply(part, stride),
                            rvli_mod_add(rvli_mod_multiply(words.x, root), words.y));
    }
    uint64_t following = 2 * (count - 1 - (i - THREADS)); /* words after this thread's last one */
    return rvli_mod_multiply(part, rvli_mod_power(root, following + 1));
}

static __device__ __forceinline__ rvli_mod parts_of_warp(rvli_mod part)
{
    for (int distance = 16; distance > 0; distance /= 2) {
        uint64_t low = __shfl_down_sync(EVERY_LANE, (uint64_t)part, distance);
        uint64_t high = __shfl_down_sync(EVERY_LANE, (uint64_t)(part >> 64), distance);
        part = rvli_mod_add(part, rvli_mod_of(low, high));
    }
    return part;
}

/* As rvl_digest; secret: base/secret_digest.h. */
extern "C" __global__ void __launch_bounds__(THREADS)
    rvl_secret_digest(const uint64_t *granules, uint64_t granule_bytes, uint64_t granule_count,
                      ulonglong2 *digests, uint64_t secret_low, uint64_t secret_high)
{
    __shared__ uint64_t low_of_warps[WARPS], high_of_warps[WARPS];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (blockIdx.x >= granule_count)
        return;
    rvli_mod part = parts_of_warp(part_of_thread((const ulonglong2 *)granules[blockIdx.x],
                                                 granule_bytes / sizeof(ulonglong2),
                                                 rvli_mod_of(secret_low, secret_high)));
    if (lane == 0) {
        low_of_warps[warp] = (uint64_t)part;
        high_of_warps[warp] = (uint64_t)(part >> 64);
    }
    __syncthreads();
    if (warp > 0)
        return;
    part = lane < WARPS ? rvli_mod_of(low_of_warps[lane], high_of_warps[lane]) : 0;
    part = rvli_mod_least(parts_of_warp(part));
    if (lane == 0)
        digests[blockIdx.x] = make_ulonglong2((uint64_t)part, (uint64_t)(part >> 64));
}
