/* SPDX-License-Identifier: MIT */
/* What a handle of cuBLAS takes on a device, and what cuBLASLt answers, from a program under
 * `reveille run`: of CUDA 12 or 13 (MAJOR). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda.h>

#include "simcuda/blas/lt.h"

#define MIB ((size_t)1 << 20)
#define WORKSPACE (64 * MIB)
#define PAGE (2 * MIB) /* of the small pieces of all handles */
#define ALLOC_FAILED 3
#define NOT_INITIALIZED 1
#define INVALID_VALUE 7

/* Its header needs the runtime's, which not every package has. */
typedef struct handle handle;
int cublasCreate_v2(handle **made);
int cublasDestroy_v2(handle *of);
int cublasGetVersion_v2(handle *of, int *version);
int cublasSgemm_v2(void);
int cublasSetVector(void);
const char *cublasGetStatusName(int status);

static size_t used(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    return total_bytes - free_bytes;
}

/* First, since there is no context yet: the library makes one, as its runtime does. */
static void a_handle_brings_a_context(void **state)
{
    handle *made = NULL;
    CUcontext context = NULL;
    CUdevice device = -1;
    (void)state;
    assert_int_equal(cublasCreate_v2(NULL), INVALID_VALUE);
    assert_int_equal(cublasCreate_v2(&made), 0);
    assert_int_equal(cuCtxGetCurrent(&context), CUDA_SUCCESS);
    assert_non_null(context);
    assert_int_equal(cuCtxGetDevice(&device), CUDA_SUCCESS);
    assert_int_equal(device, 0);
    assert_int_equal(cublasDestroy_v2(made), 0);
    assert_int_equal(cublasDestroy_v2(NULL), NOT_INITIALIZED);
}

static void each_handle_has_a_workspace(void **state)
{
    handle *first = NULL, *second = NULL;
    size_t before = used();
    (void)state;
    assert_int_equal(cublasCreate_v2(&first), 0);
    assert_int_equal(used() - before, WORKSPACE + PAGE);
    assert_int_equal(cublasCreate_v2(&second), 0);
    assert_int_equal(used() - before, 2 * WORKSPACE + PAGE);
    assert_int_equal(cublasDestroy_v2(first), 0);
    assert_int_equal(used() - before, WORKSPACE + PAGE);
    assert_int_equal(cublasDestroy_v2(second), 0);
    assert_int_equal(used(), before);
}

static void a_handle_that_does_not_fit_takes_nothing(void **state)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUdeviceptr filling = 0;
    handle *made = (handle *)&filling;
    (void)state;
    assert_int_equal(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    free_bytes = free_bytes / PAGE * PAGE;
    for (size_t room = 0; room <= WORKSPACE; room += WORKSPACE / 4) {
        assert_int_equal(cuMemAlloc(&filling, free_bytes - room), CUDA_SUCCESS);
        size_t before = used();
        assert_int_equal(cublasCreate_v2(&made), ALLOC_FAILED);
        assert_ptr_equal(made, &filling);
        assert_int_equal(used(), before);
        assert_int_equal(cuMemFree(filling), CUDA_SUCCESS);
    }
    assert_string_equal(cublasGetStatusName(ALLOC_FAILED), "CUBLAS_STATUS_ALLOC_FAILED");
    assert_int_equal(cuMemAlloc(&filling, free_bytes - WORKSPACE - PAGE), CUDA_SUCCESS);
    assert_int_equal(cublasCreate_v2(&made), 0);
    assert_int_equal(cublasDestroy_v2(made), 0);
    assert_int_equal(cuMemFree(filling), CUDA_SUCCESS);
}

static void it_is_of_its_version(void **state)
{
    handle *made = NULL;
    int version = 0;
    (void)state;
    assert_int_equal(cublasCreate_v2(&made), 0);
    assert_int_equal(cublasGetVersion_v2(made, &version), 0);
    assert_int_equal(version / 10000, MAJOR);
    assert_int_equal(cublasLtGetVersion(), version);
    assert_int_equal(cublasDestroy_v2(made), 0);
}

static void what_computes_is_taken(void **state)
{
    (void)state;
    assert_int_equal(cublasSgemm_v2(), 0);
    assert_int_equal(cublasSetVector(), RVLI_BLAS_NOT_SUPPORTED);
}

static void a_product_has_one_algorithm(void **state)
{
    rvli_lt_handle *made = NULL;
    rvli_lt_product *product = NULL;
    rvli_lt_layout *layout = NULL;
    rvli_lt_preference *preference = NULL;
    rvli_lt_found found = {.workspace_bytes = 1};
    int count = 0;
    (void)state;
    assert_int_equal(cublasLtCreate(&made), 0);
    assert_int_equal(cublasLtMatmulDescCreate(&product, 68, 0), 0);
    assert_int_equal(cublasLtMatrixLayoutCreate(&layout, 14, 64, 64, 64), 0);
    assert_int_equal(cublasLtMatmulPreferenceCreate(&preference), 0);
    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(made, product, layout, layout, layout, layout,
                                                    preference, 0, &found, &count),
                     RVLI_BLAS_INVALID_VALUE);
    assert_int_equal(cublasLtMatmulAlgoGetHeuristic(made, product, layout, layout, layout, layout,
                                                    preference, 4, &found, &count),
                     0);
    assert_int_equal(count, 1);
    assert_int_equal(found.state, RVLI_BLAS_SUCCESS);
    assert_int_equal(found.workspace_bytes, 0);
    assert_int_equal(cublasLtMatmul(made, product, NULL, NULL, layout, NULL, layout, NULL, NULL,
                                    layout, NULL, layout, &found.algorithm, NULL, 0, NULL),
                     0);
    assert_int_equal(cublasLtMatmulPreferenceDestroy(preference), 0);
    assert_int_equal(cublasLtMatrixLayoutDestroy(layout), 0);
    assert_int_equal(cublasLtMatmulDescDestroy(product), 0);
    assert_int_equal(cublasLtDestroy(made), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_brings_a_context),
        cmocka_unit_test(each_handle_has_a_workspace),
        cmocka_unit_test(a_handle_that_does_not_fit_takes_nothing),
        cmocka_unit_test(it_is_of_its_version),
        cmocka_unit_test(what_computes_is_taken),
        cmocka_unit_test(a_product_has_one_algorithm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
