/* SPDX-License-Identifier: MIT */
/*
 * The rules for workspaces of cuSOLVER and cuFFT, compared with an H100: test_math_sizes SOLVER
 * FFT. The files are parts of solver.csv and fft.csv in bench/results/2026-11-27-h100
 * (bench/gpu/driver/workspaces.py).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "simcuda/math/fft_size.h"
#include "simcuda/math/numbers.h"
#include "simcuda/math/solver_size.h"
#include "simcuda/math/sparse_size.h"

#define ROWS_LEAST 250
#define LOWER 0

static const char *solver_file, *fft_file;

/* ---- cuSOLVER ---- */

typedef struct row {
    char function[64];
    rvli_solver_type type;
    int second; /* the triangle, or whether the result is economy-sized */
    uint64_t m, n, k, batch, said;
} row;

static uint64_t numbers_of(const row *of, const char *name)
{
    const struct {
        const char *name;
        uint64_t numbers;
    } rules[] = {
        {"getrf", rvli_solver_getrf(of->type, of->m, of->n)},
        {"sytrf", rvli_solver_sytrf(of->type, of->n)},
        {"geqrf", rvli_solver_geqrf(of->m, of->n)},
        {"orgqr", rvli_solver_orgqr(of->m, of->n, of->k)},
        {"ormqr", rvli_solver_ormqr(of->m, of->n, of->k)},
        {"gesvd", rvli_solver_gesvd(of->m, of->n)},
        {"gesvdj", rvli_solver_gesvdj(of->second != 0, of->m, of->n)},
        {"gesvdjBatched", rvli_solver_gesvdj_batch()},
        {"gesvdaStridedBatched", rvli_solver_gesvda(of->type, of->m, of->n, of->batch)},
        {"syevd", rvli_solver_syevd(of->n)},
        {"syevj", rvli_solver_syevj(of->n)},
        {"syevjBatched", rvli_solver_syevj_batch(of->n, of->batch)},
        {"geev", rvli_solver_geev(of->n)},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].name, name) == 0)
            return rules[i].numbers;
    fail_msg("%s is unknown", name);
    return 0;
}

static uint64_t asked(const row *of)
{
    const uint64_t bytes = rvli_solver_type_bytes(of->type);
    const char *name = of->function;
    const uint64_t potrf = rvli_solver_potrf_bytes(of->type, of->second == LOWER, of->n);
    if (strcmp(name, "potrf") == 0)
        return rvli_parts(potrf, bytes);
    if (name[0] != 'X')
        return numbers_of(of, name);
    if (strcmp(name, "Xpotrf") == 0)
        return potrf;
    if (strcmp(name, "XsyevBatched") == 0)
        return rvli_solver_syev_batch_bytes(of->type, of->n, of->batch);
    if (strcmp(name, "Xsytrs") == 0)
        return 0;
    return bytes * numbers_of(of, name + 1) + (strcmp(name, "Xgeev") == 0 ? 0 : 128);
}

/* The allowed error of a rule, in thousandths. 0: exact to the byte. */
static uint64_t bound_of(const row *of)
{
    static const struct {
        const char *name;
        uint64_t thousandths;
    } bounds[] = {{"potrf", 0},        {"sytrf", 0},         {"syevj", 0},
                  {"syevjBatched", 0}, {"gesvdjBatched", 0}, {"Xpotrf", 0},
                  {"Xsytrs", 0},       {"getrf", 90},        {"gesvd", 20},
                  {"gesvdj", 85},      {"Xgeev", 40},        {"gesvdaStridedBatched", 12}};
    if (strstr(of->function, "geqrf") != NULL)
        return of->m < 16384 ? 1 : 1000;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (strcmp(bounds[i].name, of->function) == 0)
            return bounds[i].thousandths;
    return 2;
}

static void check(const row *of)
{
    const uint64_t got = asked(of);
    const uint64_t off = got > of->said ? got - of->said : of->said - got;
    if (off * 1000 > of->said * bound_of(of))
        fail_msg("%s of type %d, m %lu, n %lu, k %lu, batch %lu: %lu, and %lu on the card",
                 of->function, (int)of->type, (unsigned long)of->m, (unsigned long)of->n,
                 (unsigned long)of->k, (unsigned long)of->batch, (unsigned long)got,
                 (unsigned long)of->said);
}

/* Rejects a card's result that has overflowed. */
static bool read_row(const char *text, row *into)
{
    unsigned long m, n, k, batch;
    long said;
    char type;
    if (sscanf(text, "%63[^,],%c,%*d,%d,%lu,%lu,%lu,%lu,%ld", into->function, &type, &into->second,
               &m, &n, &k, &batch, &said) != 8 ||
        said < 0 || (into->function[0] != 'X' && said == INT32_MAX))
        return false;
    into->type = (rvli_solver_type)(strchr("SDCZ", type) - "SDCZ");
    into->m = m;
    into->n = n;
    into->k = k;
    into->batch = batch;
    into->said = (uint64_t)said;
    return true;
}

static void the_solver_asks_for_what_it_does_on_a_card(void **state)
{
    char text[256];
    size_t count = 0;
    row each;
    FILE *file = fopen(solver_file, "r");
    (void)state;
    assert_non_null(file);
    while (fgets(text, sizeof text, file) != NULL)
        if (read_row(text, &each)) {
            check(&each);
            count++;
        }
    fclose(file);
    assert_true(count >= ROWS_LEAST);
}

/* ---- cuFFT ---- */

static bool read_plan(const char *text, rvli_fft_plan *plan, uint64_t *said)
{
    int in, out, layout;
    unsigned long batch, bytes;
    char lengths[64], *at = lengths;
    if (sscanf(text, "%d,%d,%d,%lu,%63[^,],%lu", &in, &out, &layout, &batch, lengths, &bytes) != 6)
        return false;
    const int type = in > out ? in : out;
    *plan = (rvli_fft_plan){.batch = batch,
                            .number_bytes = type == 4   ? 8
                                            : type == 5 ? 16
                                                        : 4,
                            .real = in != out,
                            .apart = layout != 0 && batch > 1};
    while (plan->dimensions < RVLI_FFT_DIMENSIONS && *at != '\0') {
        plan->lengths[plan->dimensions++] = strtoul(at, &at, 10);
        at += *at == 'x';
    }
    *said = bytes;
    return true;
}

static bool is_near(uint64_t got, uint64_t said)
{
    const uint64_t off = got > said ? got - said : said - got;
    return off * 20 <= said || off <= 4096;
}

static bool has_powers_of_two(const rvli_fft_plan *plan)
{
    for (int i = 0; i < plan->dimensions; i++)
        if (rvli_power_of_two(plan->lengths[i]) != plan->lengths[i])
            return false;
    return !plan->apart && plan->dimensions == 1;
}

/* Nine of ten are within 5 % of the card's, and so are all but a few powers of two of adjacent
 * numbers. */
static void plans_ask_for_what_they_do_on_a_card(void **state)
{
    char text[256];
    size_t count = 0, near = 0;
    rvli_fft_plan plan;
    uint64_t said;
    FILE *file = fopen(fft_file, "r");
    (void)state;
    assert_non_null(file);
    while (fgets(text, sizeof text, file) != NULL)
        if (read_plan(text, &plan, &said)) {
            const uint64_t got = rvli_fft_workspace_bytes(&plan);
            if (has_powers_of_two(&plan) && !plan.real)
                assert_int_equal(got, said);
            near += is_near(got, said);
            count++;
        }
    fclose(file);
    assert_true(count >= ROWS_LEAST);
    assert_true(near * 10 >= count * 9);
}

/* Only Bluestein's algorithm has tables. */
static void only_large_primes_have_tables(void **state)
{
    const rvli_fft_plan smooth = {
        .lengths = {1 << 20}, .batch = 1, .number_bytes = 8, .dimensions = 1};
    rvli_fft_plan prime = smooth;
    (void)state;
    prime.lengths[0] = 2203351;
    assert_int_equal(rvli_fft_table_bytes(&smooth), 0);
    assert_int_equal(rvli_fft_table_bytes(&prime), 4 * 8 * 2203351ULL);
    prime.real = true;
    assert_int_equal(rvli_fft_table_bytes(&prime), 8 * 8 * 2203351ULL);
}

/* ---- cuSPARSE: rows of torch_math.csv ---- */

static void buffers_are_those_of_a_card(void **state)
{
    (void)state;
    assert_int_equal(rvli_sparse_product_bytes(true, 21015), 7015);
    assert_int_equal(rvli_sparse_product_bytes(false, 21015), 339);
    assert_int_equal(rvli_sparse_vector_bytes(216), 23);
    assert_int_equal(rvli_sparse_solve_bytes(790, 790, 1, 8), 72938);
    assert_int_equal(rvli_sparse_solve_bytes(25, 25, 2, 4), 3174);
    assert_int_equal(rvli_sparse_block_solve_bytes(605, false), 8192);
    assert_int_equal(rvli_sparse_block_solve_bytes(790, true), 10752);
    assert_int_equal(rvli_sparse_products(216, 6936, 578), 2592);
    assert_int_equal(rvli_sparse_estimate_bytes(216), 3671);
    assert_int_equal(rvli_sparse_compute_bytes(2592, 8), 88103);
}

static void a_result_has_no_more_entries_than_places(void **state)
{
    (void)state;
    assert_int_equal(rvli_sparse_entries(0, 10, 10), 0);
    assert_int_equal(rvli_sparse_entries(5, 0, 10), 0);
    assert_int_equal(rvli_sparse_entries(1000000, 10, 10), 100);
    assert_in_range(rvli_sparse_entries(1000, 1000, 1000), 995, 1000);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    solver_file = argv[1];
    fft_file = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_solver_asks_for_what_it_does_on_a_card),
        cmocka_unit_test(plans_ask_for_what_they_do_on_a_card),
        cmocka_unit_test(only_large_primes_have_tables),
        cmocka_unit_test(buffers_are_those_of_a_card),
        cmocka_unit_test(a_result_has_no_more_entries_than_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
