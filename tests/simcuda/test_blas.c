/* SPDX-License-Identifier: MIT */
/*
 * What cuBLAS takes on a device and launches, and the results of cuBLASLt, in a program under
 * `reveille run`, for CUDA 12 or 13 (MAJOR).
 *   test_blas        handles and captures
 *   test_blas BITS   the memory for products of numbers with so many bits, in a separate process
 *   test_blas once   which products have the same kernel
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <cuda.h>

#include "simcuda/blas/lt.h"

#define MIB ((size_t)1 << 20)
#define WORKSPACE (64 * MIB)
#define PAGE (2 * MIB) /* for the small pieces of all handles */
#define ALLOC_FAILED 3
#define NOT_INITIALIZED 1
#define INVALID_VALUE 7

#define EXECUTION_FAILED 13
#define REAL 0       /* CUDA_R_32F */
#define BRAIN 14     /* CUDA_R_16BF */
#define TRANSPOSED 3 /* CUBLASLT_MATMUL_DESC_TRANSA */
#define COMPUTE 68   /* CUBLAS_COMPUTE_32F */
#define NODES_MOST 8
#define MANY                                                                                       \
    4096 /* products in a graph: with one stream it takes 12 MiB (docs/fidelity/libraries.md) */

/* Its header needs the runtime's, which some packages lack. */
typedef struct handle handle;
int cublasCreate_v2(handle **made);
int cublasDestroy_v2(handle *of);
int cublasGetVersion_v2(handle *of, int *version);
int cublasSetStream_v2(handle *of, CUstream stream);
int cublasSgemm_v2(handle *of, int a_transposed, int b_transposed, int m, int n, int k,
                   const float *alpha, const float *a, int lda, const float *b, int ldb,
                   const float *beta, float *c, int ldc);
int cublasDgemm_v2(handle *of, int a_transposed, int b_transposed, int m, int n, int k,
                   const double *alpha, const double *a, int lda, const double *b, int ldb,
                   const double *beta, double *c, int ldc);
int cublasGemmEx(handle *of, int a_transposed, int b_transposed, int m, int n, int k,
                 const void *alpha, const void *a, int a_type, int lda, const void *b, int b_type,
                 int ldb, const void *beta, void *c, int c_type, int ldc, int compute,
                 int algorithm);
int cublasGemmStridedBatchedEx(handle *of, int a_transposed, int b_transposed, int m, int n, int k,
                               const void *alpha, const void *a, int a_type, int lda,
                               long long stride_a, const void *b, int b_type, int ldb,
                               long long stride_b, const void *beta, void *c, int c_type, int ldc,
                               long long stride_c, int count, int compute, int algorithm);
int cublasSgeqrfBatched(handle *of, int m, int n, void *a, int lda, void *tau, int *wrong,
                        int batch);
int cublasZgetrsBatched(handle *of, int op, int n, int columns, void *a, int lda, const int *pivots,
                        void *b, int ldb, int *wrong, int batch);
int cublasSetVector(void);
int cublasSetEnvironmentMode(handle *of, int mode);
int cublasGetEnvironmentMode(handle *of, int *mode);
const char *cublasGetStatusName(int status);

static size_t used(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    return total_bytes - free_bytes;
}

/* Runs first, while there is no context: the library makes one, as its runtime does. */
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

/* In no header, but cuSOLVER cannot be loaded without it. */
static void the_environment_mode_is_kept(void **state)
{
    handle *made = NULL;
    int mode = -1;
    (void)state;
    assert_int_equal(cublasCreate_v2(&made), 0);
    assert_int_equal(cublasGetEnvironmentMode(made, &mode), 0);
    assert_int_equal(mode, 0);
    assert_int_equal(cublasSetEnvironmentMode(made, 1), 0);
    assert_int_equal(cublasGetEnvironmentMode(made, &mode), 0);
    assert_int_equal(mode, 1);
    assert_int_equal(cublasDestroy_v2(made), 0);
}

/* Reported in host memory. PyTorch asserts it. */
static void a_batch_has_no_wrong_argument(void **state)
{
    handle *made = NULL;
    int wrong = -7;
    (void)state;
    assert_int_equal(cublasCreate_v2(&made), 0);
    assert_int_equal(cublasSgeqrfBatched(made, 4, 4, NULL, 4, NULL, &wrong, 2), 0);
    assert_int_equal(wrong, 0);
    wrong = -7;
    assert_int_equal(cublasZgetrsBatched(made, 0, 4, 1, NULL, 4, NULL, NULL, 4, &wrong, 2), 0);
    assert_int_equal(wrong, 0);
    assert_int_equal(cublasSgeqrfBatched(NULL, 4, 4, NULL, 4, NULL, NULL, 2), NOT_INITIALIZED);
    assert_int_equal(cublasDestroy_v2(made), 0);
}

static void what_is_not_simulated_is_refused(void **state)
{
    (void)state;
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

/* ---- Products ---- */

static const float one = 1.0f;

static int multiply(handle *of)
{
    return cublasSgemm_v2(of, 0, 0, 8, 8, 8, &one, NULL, 8, NULL, 8, &one, NULL, 8);
}

static int multiply_brain(handle *of)
{
    return cublasGemmEx(of, 0, 0, 8, 8, 8, &one, NULL, BRAIN, 8, NULL, BRAIN, 8, &one, NULL, BRAIN,
                        8, COMPUTE, -1);
}

static int multiply_batch(handle *of)
{
    return cublasGemmStridedBatchedEx(of, 0, 0, 8, 8, 8, &one, NULL, REAL, 8, 64, NULL, REAL, 8, 64,
                                      &one, NULL, REAL, 8, 64, 2, COMPUTE, -1);
}

static rvli_lt_layout *new_layout(int type, int rows, int columns)
{
    rvli_lt_layout *made = NULL;
    assert_int_equal(
        cublasLtMatrixLayoutCreate(&made, type, (uint64_t)rows, (uint64_t)columns, rows), 0);
    return made;
}

/* A transposed matrix has its rows and columns swapped. */
static int multiply_as(CUstream stream, int type, int a_transposed, int m, int n, int k)
{
    rvli_lt_product *operation = NULL;
    rvli_lt_layout *a = a_transposed ? new_layout(type, k, m) : new_layout(type, m, k);
    rvli_lt_layout *b = new_layout(type, k, n), *d = new_layout(type, m, n);
    assert_int_equal(cublasLtMatmulDescCreate(&operation, COMPUTE, REAL), 0);
    assert_int_equal(
        cublasLtMatmulDescSetAttribute(operation, TRANSPOSED, &a_transposed, sizeof a_transposed),
        0);
    int status = cublasLtMatmul(NULL, operation, &one, NULL, a, NULL, b, &one, NULL, d, NULL, d,
                                NULL, NULL, 0, stream);
    assert_int_equal(cublasLtMatmul(NULL, NULL, &one, NULL, a, NULL, b, &one, NULL, d, NULL, d,
                                    NULL, NULL, 0, stream),
                     INVALID_VALUE);
    assert_int_equal(cublasLtMatmulDescDestroy(operation), 0);
    assert_int_equal(cublasLtMatrixLayoutDestroy(a), 0);
    assert_int_equal(cublasLtMatrixLayoutDestroy(b), 0);
    assert_int_equal(cublasLtMatrixLayoutDestroy(d), 0);
    return status;
}

static int multiply_light(CUstream stream)
{
    return multiply_as(stream, REAL, 0, 8, 8, 8);
}

static handle *begin_capture(CUstream *stream)
{
    handle *made = NULL;
    assert_int_equal(cublasCreate_v2(&made), 0);
    assert_int_equal(cuStreamCreate(stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    assert_int_equal(cublasSetStream_v2(made, *stream), 0);
    assert_int_equal(cuStreamBeginCapture(*stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    return made;
}

static void drop(handle *of, CUstream stream)
{
    assert_int_equal(cublasDestroy_v2(of), 0);
    assert_int_equal(cuStreamDestroy(stream), CUDA_SUCCESS);
}

/* Checks that all nodes are kernels. */
static void check_graph(CUgraph graph, size_t kernels)
{
    CUgraphNode nodes[NODES_MOST];
    CUgraphNodeType type;
    size_t count = 0;
    assert_int_equal(cuGraphGetNodes(graph, NULL, &count), CUDA_SUCCESS);
    assert_int_equal(count, kernels);
    count = NODES_MOST;
    assert_int_equal(cuGraphGetNodes(graph, nodes, &count), CUDA_SUCCESS);
    for (size_t i = 0; i < count && i < kernels; i++) {
        assert_int_equal(cuGraphNodeGetType(nodes[i], &type), CUDA_SUCCESS);
        assert_int_equal(type, CU_GRAPH_NODE_TYPE_KERNEL);
    }
}

static void a_captured_product_is_a_node(void **state)
{
    CUstream stream;
    CUgraph graph;
    (void)state;
    handle *of = begin_capture(&stream);
    assert_int_equal(multiply(of), 0);
    assert_int_equal(multiply_batch(of), 0);
    assert_int_equal(multiply_light(stream), 0);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    check_graph(graph, 3);
    assert_int_equal(multiply(of), 0); /* the capture has ended */
    assert_int_equal(multiply_light(stream), 0);
    check_graph(graph, 3);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    drop(of, stream);
}

static void check_memory_of_graph(int (*product)(handle *of), size_t expected_bytes)
{
    CUstream stream;
    CUgraph graph;
    CUgraphExec exec;
    handle *of = begin_capture(&stream);
    for (int i = 0; i < MANY; i++)
        assert_int_equal(product(of), 0);
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    check_graph(graph, MANY);
    size_t before = used();
    assert_int_equal(cuGraphInstantiate(&exec, graph, 0), CUDA_SUCCESS);
    assert_int_equal(used() - before, expected_bytes);
    assert_int_equal(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    assert_int_equal(used() - before, expected_bytes);
    assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
    assert_int_equal(cuGraphDestroy(graph), CUDA_SUCCESS);
    drop(of, stream);
}

/* Products of 16-bit numbers have more arguments, and need their own slots. The others' launches
 * suffice. */
static void captured_products_take_memory(void **state)
{
    (void)state;
    check_memory_of_graph(multiply, 12 * MIB);
    check_memory_of_graph(multiply, 0);
    check_memory_of_graph(multiply_brain, 12 * MIB);
    check_memory_of_graph(multiply_brain, 0);
}

static void a_product_fails_with_its_capture(void **state)
{
    CUstream stream;
    CUgraph graph = NULL;
    (void)state;
    handle *of = begin_capture(&stream);
    assert_int_equal(multiply(of), 0);
    assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(multiply(of), EXECUTION_FAILED);
    assert_int_equal(multiply_light(stream), EXECUTION_FAILED);
    assert_string_equal(cublasGetStatusName(EXECUTION_FAILED), "CUBLAS_STATUS_EXECUTION_FAILED");
    assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(graph);
    assert_int_equal(multiply(of), 0);
    assert_int_equal(multiply(NULL), NOT_INITIALIZED);
    drop(of, stream);
}

/* ---- Code ---- */

/*
 * The products of bench/gpu/driver/probe.py, in its order. page_at() has the product with which
 * a card took a page (bench/results/2026-11-22-h200/driver.jsonl, "blas").
 */
static const int sizes[][3] = {
    {64, 64, 64},    {2048, 2048, 2048}, {2048, 2048, 2048}, {4096, 128, 4096},
    {1, 2048, 2048}, {2048, 1, 2048},    {4096, 4096, 4096}, {777, 2048, 512},
};
#define PRODUCTS (3 * (int)(sizeof sizes / sizeof *sizes))

static int bits; /* per number */

static int page_at(void)
{
    return bits == 16 ? 23 : bits == 32 ? 9 : 12; /* counted from 0 */
}

static int product(handle *of, int which)
{
    static const int transposed[][2] = {{1, 0}, {0, 1}, {0, 0}};
    const int *size = sizes[which / 3], *way = transposed[which % 3];
    const double wide = 1;
    int m = size[0], n = size[1], k = size[2], lda = way[0] ? k : m, ldb = way[1] ? n : k;
    if (bits == 16)
        return cublasGemmEx(of, way[0], way[1], m, n, k, &one, NULL, BRAIN, lda, NULL, BRAIN, ldb,
                            &one, NULL, BRAIN, m, COMPUTE, -1);
    if (bits == 64)
        return cublasDgemm_v2(of, way[0], way[1], m, n, k, &wide, NULL, lda, NULL, ldb, &wide, NULL,
                              m);
    return cublasSgemm_v2(of, way[0], way[1], m, n, k, &one, NULL, lda, NULL, ldb, &one, NULL, m);
}

/* If a page does not fit, nothing is kept, and it is requested again. */
static void products_take_code_as_on_a_card(void **state)
{
    handle *of = NULL;
    CUdeviceptr filling = 0;
    size_t free_bytes = 0, total_bytes = 0;
    (void)state;
    assert_int_equal(cublasCreate_v2(&of), 0);
    size_t before = used();
    for (int i = 0; i < page_at(); i++)
        assert_int_equal(product(of, i), 0);
    assert_int_equal(used(), before);

    assert_int_equal(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc(&filling, free_bytes / PAGE * PAGE), CUDA_SUCCESS);
    size_t full = used();
    assert_int_equal(product(of, page_at()), EXECUTION_FAILED);
    assert_int_equal(product(of, 0), 0);
    assert_int_equal(used(), full);
    assert_int_equal(cuMemFree(filling), CUDA_SUCCESS);

    for (int i = page_at(); i < PRODUCTS; i++) {
        assert_int_equal(product(of, i), 0);
        assert_int_equal(used(), before + PAGE);
    }
    assert_int_equal(cublasDestroy_v2(of), 0);
}

/* Products that differ in a deciding property have separate kernels, of which 20 fit. cuBLASLt's
 * products use cuBLAS's kernels. */
static void the_same_product_has_its_code_once(void **state)
{
    handle *of = NULL;
    (void)state;
    assert_int_equal(cublasCreate_v2(&of), 0);
    size_t before = used();
    for (int size = 1; size <= 2048; size *= 2) /* 12 */
        assert_int_equal(multiply_as(NULL, BRAIN, 1, size, 2048, 512), 0);
    for (int size = 1; size <= 2048; size++) /* of these 12 magnitudes */
        assert_int_equal(cublasGemmEx(of, 1, 0, size, 2047, 511, &one, NULL, BRAIN, 512, NULL,
                                      BRAIN, 512, &one, NULL, BRAIN, size, COMPUTE, -1),
                         0);
    assert_int_equal(used(), before);
    for (int size = 1; size <= 128; size *= 2) /* 8 more */
        assert_int_equal(multiply_as(NULL, BRAIN, 0, size, 2048, 512), 0);
    assert_int_equal(used(), before);
    assert_int_equal(multiply_as(NULL, BRAIN, 0, 256, 2048, 512), 0);
    assert_int_equal(used(), before + PAGE);
    assert_int_equal(cublasDestroy_v2(of), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest code[] = {cmocka_unit_test(products_take_code_as_on_a_card)};
    const struct CMUnitTest once[] = {cmocka_unit_test(the_same_product_has_its_code_once)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_handle_brings_a_context),
        cmocka_unit_test(each_handle_has_a_workspace),
        cmocka_unit_test(a_handle_that_does_not_fit_takes_nothing),
        cmocka_unit_test(it_is_of_its_version),
        cmocka_unit_test(the_environment_mode_is_kept),
        cmocka_unit_test(a_batch_has_no_wrong_argument),
        cmocka_unit_test(what_is_not_simulated_is_refused),
        cmocka_unit_test(a_product_has_one_algorithm),
        cmocka_unit_test(a_captured_product_is_a_node),
        cmocka_unit_test(captured_products_take_memory),
        cmocka_unit_test(a_product_fails_with_its_capture),
    };
    if (argc == 1)
        return cmocka_run_group_tests(tests, NULL, NULL);
    bits = atoi(argv[1]);
    return bits > 0 ? cmocka_run_group_tests(code, NULL, NULL)
                    : cmocka_run_group_tests(once, NULL, NULL);
}
