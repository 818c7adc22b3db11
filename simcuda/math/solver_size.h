/* SPDX-License-Identifier: MIT */
/*
 * Workspaces of cuSOLVER's dense functions, by rules.
 *
 * The rules follow 26,600 queries of cuSOLVER 12.0.4 on an H100 (bench/gpu/driver/workspaces.py,
 * bench/results/2026-11-27-h100/solver.csv, of which tests/data/solver.csv is a part). Most are
 * exact up to the rounding of parts. docs/fidelity/libraries.md has the error of each.
 *
 * The older functions count numbers of the matrix's type, and so do these rules. The 64-bit
 * functions (cusolverDnX...) count bytes.
 */
#ifndef RVL_SIMCUDA_MATH_SOLVER_SIZE_H
#define RVL_SIMCUDA_MATH_SOLVER_SIZE_H

#include <stdbool.h>
#include <stdint.h>

/* The types that BLAS calls S, D, C and Z. */
typedef enum rvli_solver_type {
    RVLI_SOLVER_S,
    RVLI_SOLVER_D,
    RVLI_SOLVER_C,
    RVLI_SOLVER_Z,
} rvli_solver_type;

uint64_t rvli_solver_type_bytes(rvli_solver_type type);

/* Cholesky, LU and symmetric indefinite factors. */
uint64_t rvli_solver_potrf_bytes(rvli_solver_type type, bool lower, uint64_t n);
uint64_t rvli_solver_getrf(rvli_solver_type type, uint64_t m, uint64_t n);
uint64_t rvli_solver_sytrf(rvli_solver_type type, uint64_t n);

/* QR: the factors, Q (m rows, n columns, k reflectors), and Q times a matrix of m rows and n
 * columns. */
uint64_t rvli_solver_geqrf(uint64_t m, uint64_t n);
uint64_t rvli_solver_orgqr(uint64_t m, uint64_t n, uint64_t k);
uint64_t rvli_solver_ormqr(uint64_t m, uint64_t n, uint64_t k);

/* Eigenvalues: by divide and conquer, by Jacobi's method alone and in a batch, and of general
 * matrices. */
uint64_t rvli_solver_syevd(uint64_t n);
uint64_t rvli_solver_syevj(uint64_t n);
uint64_t rvli_solver_syevj_batch(uint64_t n, uint64_t batch);
uint64_t rvli_solver_syev_batch_bytes(rvli_solver_type type, uint64_t n, uint64_t batch);
uint64_t rvli_solver_geev(uint64_t n);

/* Singular values: by QR, by Jacobi's method alone and in a batch, and approximate ones. */
uint64_t rvli_solver_gesvd(uint64_t m, uint64_t n);
uint64_t rvli_solver_gesvdj(bool economy, uint64_t m, uint64_t n);
uint64_t rvli_solver_gesvdj_batch(void);
uint64_t rvli_solver_gesvda(rvli_solver_type type, uint64_t m, uint64_t n, uint64_t batch);

#endif
