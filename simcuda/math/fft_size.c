/* SPDX-License-Identifier: MIT */
#include "simcuda/math/fft_size.h"

#include "simcuda/math/numbers.h"

/* The algorithm for a length. */
typedef enum way {
    ONE_KERNEL,
    KERNELS,     /* several, with intermediate data in memory */
    CHIRP,       /* Bluestein's algorithm in one kernel */
    CHIRP_PADDED /* with the padded data in memory */
} way;

#define ONE_KERNEL_MOST 16384
#define PADDED_LEAST 4096

static uint64_t largest_factor(uint64_t n)
{
    uint64_t largest = 1;
    for (uint64_t factor = 2; factor * factor <= n; factor++)
        for (; n % factor == 0; n /= factor)
            largest = factor;
    return n > 1 ? n : largest;
}

/* The way for adjacent numbers, or for numbers that are apart, of which one kernel handles
 * fewer. */
static way way_of(uint64_t n, bool apart, uint64_t number_bytes)
{
    const uint64_t factor = largest_factor(n);
    const uint64_t less = number_bytes == 16 ? 2048 : 4096;
    if (factor > 127)
        return n <= less ? CHIRP : CHIRP_PADDED;
    if (n > (apart ? less : ONE_KERNEL_MOST))
        return KERNELS;
    return factor > (apart ? 13 : 31) && n != factor && number_bytes > 4 ? KERNELS : ONE_KERNEL;
}

/* Workspace, as a multiple of the data. */
static double copies_of(way by, uint64_t n)
{
    const double padded = 4 * 1.03; /* 4.00 to 4.1 */
    if (by == CHIRP_PADDED)
        return n < PADDED_LEAST ? 4.0 * PADDED_LEAST / (double)n : padded;
    return by == KERNELS ? 1 : 0;
}

/* ---- Real numbers: an even length as half the length, an odd one in pairs of the batch ---- */

/* Adds one copy of the data to the workspace of the half, or of a pair. */
static double copies_of_real(uint64_t n, uint64_t number_bytes)
{
    const way whole = way_of(n, false, number_bytes);
    const way by = n % 2 == 0 ? way_of(n / 2, false, number_bytes) : whole;
    const uint64_t factor = largest_factor(n);
    if (by == CHIRP_PADDED)
        return 1 + copies_of(by, n % 2 == 0 ? n / 2 : n);
    if (whole == ONE_KERNEL && (factor < 13 || n == factor))
        return 0;
    return n % 2 == 0 ? 1 : 2;
}

static uint64_t numbers_of(const rvli_fft_plan *plan)
{
    const uint64_t last = plan->lengths[plan->dimensions - 1];
    uint64_t numbers = plan->batch;
    for (int i = 0; i < plan->dimensions - 1; i++)
        numbers *= plan->lengths[i];
    const bool alone = plan->dimensions == 1 && last <= ONE_KERNEL_MOST;
    const uint64_t half = alone ? rvli_parts(last, 2) : last / 2 + 1;
    return numbers * (plan->real ? half : last);
}

/* An odd length takes twice the data of an even length's half, for an even number of transforms. */
static double share_of_pairs(const rvli_fft_plan *plan)
{
    const bool odd = plan->lengths[plan->dimensions - 1] % 2 != 0;
    return odd ? (double)rvli_up(plan->batch, 2) / (double)plan->batch : 1;
}

static double copies_of_plan(const rvli_fft_plan *plan)
{
    const int last = plan->dimensions - 1;
    const uint64_t n = plan->lengths[last];
    double copies = plan->real ? copies_of_real(n, plan->number_bytes) * share_of_pairs(plan)
                               : copies_of(way_of(n, plan->apart, plan->number_bytes), n);
    for (int i = 0; i < last; i++) {
        const double of_length =
            copies_of(way_of(plan->lengths[i], true, plan->number_bytes), plan->lengths[i]);
        copies = of_length > copies ? of_length : copies;
    }
    return copies;
}

uint64_t rvli_fft_workspace_bytes(const rvli_fft_plan *plan)
{
    return (uint64_t)(copies_of_plan(plan) * (double)(numbers_of(plan) * plan->number_bytes));
}

/* ---- Tables ---- */

static uint64_t table_bytes(uint64_t n, bool apart, uint64_t number_bytes)
{
    const way by = way_of(n, apart, number_bytes);
    return by == CHIRP || by == CHIRP_PADDED ? 4 * n * number_bytes : 0;
}

uint64_t rvli_fft_table_bytes(const rvli_fft_plan *plan)
{
    const int last = plan->dimensions - 1;
    const uint64_t n = plan->lengths[last];
    const uint64_t halves = plan->real && n % 2 == 0 ? n / 2 : n;
    uint64_t bytes = table_bytes(halves, false, plan->number_bytes);
    if (plan->real && n % 2 != 0)
        bytes *= 2;
    for (int i = 0; i < last; i++)
        bytes += table_bytes(plan->lengths[i], true, plan->number_bytes);
    return bytes;
}
