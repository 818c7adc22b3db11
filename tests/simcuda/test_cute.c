/* SPDX-License-Identifier: MIT */
/*
 * CuTe DSL's runtime, in a program under `reveille run`: the exceptions that compiled code
 * raises, and with the word "archive" the library linked from the package's archive.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

typedef void raise_function(const char *kind, const char **parts, int32_t count);
void CuteDSLRT_TVMFFISetRaisedCudaError(raise_function *raise, int32_t code);
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(raise_function *raise, int32_t grid_x, int32_t grid_y,
                                              int32_t grid_z, int32_t block_x, int32_t block_y,
                                              int32_t block_z, int32_t threads,
                                              int64_t dynamic_shared_bytes, int32_t device);

static char raised_kind[64], raised_text[512];

static void keep(const char *kind, const char **parts, int32_t count)
{
    assert_int_equal(count, 1);
    assert_true(strlen(kind) < sizeof raised_kind && strlen(parts[0]) < sizeof raised_text);
    snprintf(raised_kind, sizeof raised_kind, "%s", kind);
    snprintf(raised_text, sizeof raised_text, "%s", parts[0]);
}

static void an_error_is_raised_by_name(void **state)
{
    (void)state;
    CuteDSLRT_TVMFFISetRaisedCudaError(keep, cudaErrorMemoryAllocation);
    assert_string_equal(raised_kind, "RuntimeError");
    assert_string_equal(raised_text, "CUDA error of a CuTe DSL kernel: cudaErrorMemoryAllocation "
                                     "(out of memory)");
}

/* Including the longest numbers. */
static void a_refused_launch_is_raised_with_its_numbers(void **state)
{
    (void)state;
    CuteDSLRT_TVMFFISetRaisedCudaLaunchError(keep, 1, 2, 3, 4, 5, 6, 120, 300000, 1);
    assert_string_equal(raised_text,
                        "CuTe DSL kernel refused: grid 1x2x3, block 4x5x6 (120 threads), 300000 "
                        "bytes of dynamic shared memory are over the limits of device 1");
    CuteDSLRT_TVMFFISetRaisedCudaLaunchError(keep, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN,
                                             INT32_MIN, INT32_MIN, INT32_MIN, INT64_MIN, INT32_MIN);
    assert_non_null(strstr(raised_text, "-9223372036854775808"));
    assert_non_null(strstr(raised_text, "of device -2147483648"));
}

/* The package's own functions, on simulated memory. */
static void the_archive_allocates_simulated_memory(void **state)
{
    const size_t size_bytes = (size_t)64 << 20;
    size_t before, after, freed, total;
    void *addr = NULL;
    (void)state;
    void *library = dlopen("libcute_dsl_runtime.so", RTLD_NOW);
    assert_non_null(library);
    int (*allocate)(void **, size_t) = NULL;
    int (*release)(void *) = NULL;
    *(void **)&allocate = dlsym(library, "_cudaMalloc");
    *(void **)&release = dlsym(library, "_cudaFree");
    assert_true(allocate != NULL && release != NULL);
    assert_int_equal(cudaMemGetInfo(&before, &total), cudaSuccess);
    assert_int_equal(allocate(&addr, size_bytes), 0);
    assert_int_equal(cudaMemGetInfo(&after, &total), cudaSuccess);
    assert_int_equal(before - after, size_bytes);
    assert_int_equal(release(addr), 0);
    assert_int_equal(cudaMemGetInfo(&freed, &total), cudaSuccess);
    assert_int_equal(freed, before);
    assert_int_equal(allocate(&addr, total), cudaErrorMemoryAllocation);
    dlclose(library);
}

int main(int count, char **words)
{
    const struct CMUnitTest raised[] = {
        cmocka_unit_test(an_error_is_raised_by_name),
        cmocka_unit_test(a_refused_launch_is_raised_with_its_numbers),
    };
    const struct CMUnitTest archive[] = {
        cmocka_unit_test(the_archive_allocates_simulated_memory),
    };
    return count > 1 && strcmp(words[1], "archive") == 0
               ? cmocka_run_group_tests(archive, NULL, NULL)
               : cmocka_run_group_tests(raised, NULL, NULL);
}
