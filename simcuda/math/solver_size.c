/* SPDX-License-Identifier: MIT */
#include "simcuda/math/solver_size.h"

#include "simcuda/math/numbers.h"

#define PANEL 32       /* columns that are factored together */
#define WIDE_PANEL 128 /* of reflectors */
#define QR_ROWS 1024   /* workspace of a QR factorization for each column */
#define TALL_ROWS UINT64_C(16384)
#define Q_BYTES_LEAST 128 /* additional bytes of the 64-bit functions */

uint64_t rvli_solver_type_bytes(rvli_solver_type type)
{
    return type == RVLI_SOLVER_S ? 4 : type == RVLI_SOLVER_Z ? 16 : 8;
}

/* ---- Factors ---- */

uint64_t rvli_solver_potrf_bytes(rvli_solver_type type, bool lower, uint64_t n)
{
    static const uint64_t upper_bytes[] = {256, 384, 384, 640};
    const uint64_t tiles = 2 * rvli_parts(n, PANEL);
    return lower ? rvli_up(128 + tiles * tiles, 32) : upper_bytes[type];
}

/* Panels of tall matrices use a special kernel. */
static uint64_t getrf_of_panels(rvli_solver_type type, uint64_t m)
{
    static const uint64_t tall[] = {8960, 8704, 8704, 8576}, taller[] = {9728, 9216, 9216, 8960};
    return m > 2048 ? taller[type] : m > 1536 ? tall[type] : 0;
}

uint64_t rvli_solver_getrf(rvli_solver_type type, uint64_t m, uint64_t n)
{
    const uint64_t least = rvli_min(m, n);
    const uint64_t of_32_bits = rvli_solver_type_bytes(type) / 4;
    const uint64_t factors = 64 + 2 * rvli_up(least, PANEL);
    const uint64_t pivots = 2 * rvli_min(512, rvli_max(PANEL, rvli_power_of_two(least)));
    const uint64_t rows = rvli_parts(rvli_max(pivots, m * n / 1024), of_32_bits);
    return rvli_parts(factors, of_32_bits) + rvli_max(rows, getrf_of_panels(type, m));
}

uint64_t rvli_solver_sytrf(rvli_solver_type type, uint64_t n)
{
    static const uint64_t least[] = {24608, 13328, 13328, 11016};
    return rvli_max(least[type], (n < 4096 ? 64 : 128) * n + 64);
}

/* ---- QR ---- */

/* From 16,384 rows on, cuSOLVER uses half or a quarter of this for a tall matrix. Here, it is
 * half. */
uint64_t rvli_solver_geqrf(uint64_t m, uint64_t n)
{
    if (m < TALL_ROWS)
        return QR_ROWS * (rvli_max(n, 256) + 512);
    return n < m ? QR_ROWS / 2 * n : rvli_max(QR_ROWS / 2 * n, 680 * TALL_ROWS);
}

uint64_t rvli_solver_orgqr(uint64_t m, uint64_t n, uint64_t k)
{
    const uint64_t panel = rvli_min(k, WIDE_PANEL);
    const uint64_t small = WIDE_PANEL * WIDE_PANEL;
    const uint64_t products = 2 * panel * n;
    return 33024 + rvli_up(m * panel + (products > small ? products - small : 0), 32);
}

uint64_t rvli_solver_ormqr(uint64_t m, uint64_t n, uint64_t k)
{
    return 65792 + rvli_up(256 * m + 512 * n + rvli_max(m, n) * k + k * k + k, 32);
}

/* ---- Eigenvalues ---- */

/* Two ways to reduce a matrix. The second is used from about 690 rows on. */
uint64_t rvli_solver_syevd(uint64_t n)
{
    return rvli_max(3 * n * n + 768 * n + 65632, 4 * n * n + 127 * n + 32976);
}

uint64_t rvli_solver_syevj(uint64_t n)
{
    const uint64_t blocks = rvli_parts(n, PANEL);
    const uint64_t large = 2 * rvli_parts(n, 2048);
    return n < 4096 ? n * n + n + 4 * blocks * blocks + 1025 * (blocks - 1) + 2049
                    : n * n + 4096 * n + (UINT64_C(8) << 20) + large * large;
}

uint64_t rvli_solver_syevj_batch(uint64_t n, uint64_t batch)
{
    const uint64_t blocks = rvli_parts(n, PANEL);
    return batch * (1024 * blocks + (n + 1) * (n + 1)) + 1024 + 4 * blocks * blocks;
}

uint64_t rvli_solver_syev_batch_bytes(rvli_solver_type type, uint64_t n, uint64_t batch)
{
    return batch * rvli_solver_type_bytes(type) * rvli_solver_syevd(n) + 2 * Q_BYTES_LEAST;
}

/* One kernel handles up to 96 rows. Beyond, there are two ways with panels. */
uint64_t rvli_solver_geev(uint64_t n)
{
    if (n <= 3 * PANEL)
        return n * n + 2 * n + 33152;
    return rvli_max(n * rvli_min(3 * n, 388) + 16704, n * n + 4 * n + 128);
}

/* ---- Singular values ---- */

/*
 * If there are more rows than columns, the workspace has the factors of QR, Q, and copies. Which
 * of them depends on both sizes. The result is the maximum of three planes. Measured sizes lie
 * below it, by up to 2 %.
 */
static uint64_t gesvd_of_tall(double m, double n, double factors)
{
    const double square = 67800 + 257 * m + 6.6 * n + 3 * m * n + 3 * n * n;
    const double copies =
        741648 + 15 * m + 11.85 * n + 1.984 * m * n + 2.52 * n * n + .098 * factors;
    const double small =
        272 * m + 1617 * n + 1.53 * m * n - 2.878 * n * n + 1.774 * factors - 710758;
    const double most = square > copies ? square : copies;
    return (uint64_t)(most > small ? most : small);
}

uint64_t rvli_solver_gesvd(uint64_t m, uint64_t n)
{
    if (m <= n)
        return 65984 + 260 * n + 3 * n * n;
    return gesvd_of_tall((double)m, (double)n, (double)rvli_solver_geqrf(m, n));
}

static uint64_t gesvdj_of_square(uint64_t n)
{
    const uint64_t blocks = rvli_parts(n, PANEL);
    return 2 * n * n + 4 * blocks * blocks + 2082 * blocks + 1040;
}

/* The factors of QR, then Q times the result for R. A wide matrix is first transposed. */
uint64_t rvli_solver_gesvdj(bool economy, uint64_t m, uint64_t n)
{
    if (m == n)
        return gesvdj_of_square(n);
    if (m < n)
        return rvli_solver_gesvdj(economy, n, m) + rvli_up(m * n, 32);
    return rvli_max(rvli_solver_geqrf(m, n) + n, rvli_solver_ormqr(m, economy ? n : m, n) + n) + 64;
}

uint64_t rvli_solver_gesvdj_batch(void)
{
    return 992;
}

/* Counted in units of eight bytes. */
uint64_t rvli_solver_gesvda(rvli_solver_type type, uint64_t m, uint64_t n, uint64_t batch)
{
    uint64_t one = 1025 + 5 * n + m * n + 2 * n * n;
    if (n > PANEL)
        one += 64640 + 765 * n + 2 * n * n;
    const uint64_t all = 1032 + batch * one;
    return type == RVLI_SOLVER_S || type == RVLI_SOLVER_C ? 2 * all : all;
}
