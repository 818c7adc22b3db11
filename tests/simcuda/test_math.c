/* SPDX-License-Identifier: MIT */
/* The device memory of handles and plans of cuFFT, cuSOLVER and cuSPARSE, in a program under
 * `reveille run`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <cuda.h>

#define MIB ((size_t)1 << 20)
#define PAGE (2 * MIB)
#define COMPLEX 4 /* CUDA_C_32F */
#define PRIME 2203351

int cufftCreate(int *handle);
int cufftDestroy(int handle);
int cufftSetAutoAllocation(int handle, int allocates);
int cufftXtMakePlanMany(int handle, int dimensions, long long *lengths, long long *in_embed,
                        long long in_stride, long long in_distance, int in_type,
                        long long *out_embed, long long out_stride, long long out_distance,
                        int out_type, long long batch, size_t *bytes, int type);
int cufftXtExec(int handle, void *in, void *out, int direction);
int cufftPlan1d(int *handle, int n, int type, int batch);
int cufftPlanMany(int *handle, int dimensions, int *lengths, int *in_embed, int in_stride,
                  int in_distance, int *out_embed, int out_stride, int out_distance, int type,
                  int batch);
int cufftGetSize(int handle, size_t *bytes);
int cufftXtSetGPUs(void);
int cusolverDnCreate(void **made);
int cusolverDnDestroy(void *of);
int cusolverDnSgeqrf_bufferSize(void *handle, int m, int n, void *a, int lda, int *work);
int cusolverDnXgeev_bufferSize(void *handle, void *settings, int left, int right, int64_t n,
                               int type_a, const void *a, int64_t lda, int type_w, const void *w,
                               int type_left, const void *vl, int64_t ldvl, int type_right,
                               const void *vr, int64_t ldvr, int compute, size_t *device_bytes,
                               size_t *host_bytes);
int cusolverDnSgeqrf(void *handle, int m, int n, void *a, int lda, void *tau, void *work, int size,
                     int *info);
int cusolverDnSgebrd(void *handle);
int cusparseCreate(void **made);
int cusparseDestroy(void *of);
int cusparseCreateCsr(void **made, int64_t m, int64_t n, int64_t nnz, void *offsets, void *indices,
                      void *values, int offset_type, int index_type, int base, int value_type);
int cusparseSpMatGetSize(void *of, int64_t *rows, int64_t *columns, int64_t *entries);
int cusparseDestroySpMat(void *of);
int cusparseSpMM(void *handle);
int cusparseSpGEMM_compute(void *handle, int op_a, int op_b, const void *alpha, void *a, void *b,
                           const void *beta, void *c, int compute, int algorithm, void *notes,
                           size_t *bytes, void *buffer);

static size_t used(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    return total_bytes - free_bytes;
}

static void each_solver_has_its_own_memory(void **state)
{
    void *first = NULL, *second = NULL;
    (void)state;
    assert_int_equal(cusolverDnCreate(NULL), 3);
    assert_int_equal(cusolverDnCreate(&first), 0); /* makes a context */
    const size_t before = used();
    assert_int_equal(cusolverDnCreate(&second), 0);
    assert_int_equal(used() - before, 96 * MIB);
    assert_int_equal(cusolverDnDestroy(second), 0);
    assert_int_equal(used(), before);
    assert_int_equal(cusolverDnDestroy(first), 0);
    assert_int_equal(before - used(), 96 * MIB + PAGE);
    assert_int_equal(cusolverDnDestroy(NULL), 1);
}

static void a_solver_that_does_not_fit_takes_nothing(void **state)
{
    size_t free_bytes = 0, total_bytes = 0;
    CUdeviceptr filling = 0;
    void *made = &filling;
    (void)state;
    assert_int_equal(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
    assert_int_equal(cuMemAlloc(&filling, free_bytes / PAGE * PAGE - 80 * MIB), CUDA_SUCCESS);
    const size_t before = used();
    assert_int_equal(cusolverDnCreate(&made), 2);
    assert_ptr_equal(made, &filling);
    assert_int_equal(used(), before);
    assert_int_equal(cuMemFree(filling), CUDA_SUCCESS);
}

static void the_solver_answers(void **state)
{
    void *made = NULL;
    int work = -1;
    size_t device_bytes = 0, host_bytes = 1;
    (void)state;
    assert_int_equal(cusolverDnCreate(&made), 0);
    assert_int_equal(cusolverDnSgeqrf_bufferSize(made, 100, 100, NULL, 100, &work), 0);
    assert_int_equal(work, 768 * 1024);
    assert_int_equal(cusolverDnSgeqrf_bufferSize(made, -1, 100, NULL, 100, &work), 3);
    assert_int_equal(cusolverDnSgeqrf_bufferSize(NULL, 1, 1, NULL, 1, &work), 1);
    assert_int_equal(cusolverDnXgeev_bufferSize(made, NULL, 0, 1, 1024, 0, NULL, 1024, 0, NULL, 0,
                                                NULL, 1, 0, NULL, 1024, 0, &device_bytes,
                                                &host_bytes),
                     0);
    assert_int_equal(device_bytes, 4 * (1024 * 1024 + 4 * 1024 + 128));
    assert_int_equal(host_bytes, 0);
    assert_int_equal(cusolverDnXgeev_bufferSize(made, NULL, 0, 1, 4, 99, NULL, 4, 0, NULL, 0, NULL,
                                                1, 0, NULL, 4, 0, &device_bytes, &host_bytes),
                     9);
    assert_int_equal(cusolverDnSgeqrf(made, 4, 4, NULL, 4, NULL, NULL, 1, NULL), 0);
    assert_int_equal(cusolverDnSgeqrf(NULL, 4, 4, NULL, 4, NULL, NULL, 1, NULL), 1);
    assert_int_equal(cusolverDnSgebrd(made), 9);
    assert_int_equal(cusolverDnDestroy(made), 0);
}

static int plan_of(long long n, int allocates, size_t *bytes)
{
    int handle = 0;
    assert_int_equal(cufftCreate(&handle), 0);
    assert_int_equal(cufftSetAutoAllocation(handle, allocates), 0);
    assert_int_equal(cufftXtMakePlanMany(handle, 1, &n, NULL, 1, 1, COMPLEX, NULL, 1, 1, COMPLEX, 1,
                                         bytes, COMPLEX),
                     0);
    return handle;
}

static void a_plan_has_its_workspace_or_not(void **state)
{
    size_t bytes = 1;
    (void)state;
    assert_int_equal(cufftDestroy(plan_of(1 << 22, 0, &bytes)), 0); /* the code stays */
    assert_int_equal(bytes, (size_t)8 << 22);
    const size_t before = used();
    int handle = plan_of(1 << 22, 0, &bytes);
    assert_int_equal(used(), before);
    assert_int_equal(cufftXtExec(handle, NULL, NULL, -1), 0);
    assert_int_equal(cufftDestroy(handle), 0);
    handle = plan_of(1 << 22, 1, &bytes);
    assert_int_equal(used() - before, (size_t)8 << 22);
    assert_int_equal(cufftDestroy(handle), 0);
    assert_int_equal(used(), before);
    assert_int_equal(cufftDestroy(handle), 1);
    assert_int_equal(cufftXtExec(handle, NULL, NULL, -1), 1);
}

static void a_prime_has_tables_while_the_plan_lives(void **state)
{
    size_t bytes = 0;
    (void)state;
    assert_int_equal(cufftDestroy(plan_of(PRIME, 0, &bytes)), 0);
    const size_t before = used();
    const int handle = plan_of(PRIME, 0, &bytes);
    assert_in_range(used() - before, (size_t)32 * PRIME, (size_t)32 * PRIME + PAGE);
    assert_int_equal(cufftDestroy(handle), 0);
    assert_int_equal(used(), before);
}

static void plans_are_refused(void **state)
{
    long long n = 0;
    int handle = 0;
    size_t bytes = 0;
    (void)state;
    assert_int_equal(cufftCreate(NULL), 4);
    assert_int_equal(cufftCreate(&handle), 0);
    assert_int_equal(cufftXtMakePlanMany(handle, 1, &n, NULL, 1, 1, COMPLEX, NULL, 1, 1, COMPLEX, 1,
                                         &bytes, COMPLEX),
                     8);
    assert_int_equal(
        cufftXtMakePlanMany(handle, 1, &n, NULL, 1, 1, 3, NULL, 1, 1, COMPLEX, 1, &bytes, COMPLEX),
        16);
    assert_int_equal(cufftDestroy(handle), 0);
    assert_int_equal(cufftPlan1d(&handle, 1 << 20, 0x29, 1), 0);
    assert_int_equal(cufftGetSize(handle, &bytes), 0);
    assert_int_equal(bytes, (size_t)8 << 20);
    assert_int_equal(cufftDestroy(handle), 0);
    assert_int_equal(cufftXtSetGPUs(), 16);
}

/* Numbers that are not adjacent: from 4,096 on, they need several kernels, and so a workspace. */
static void strides_of_the_older_call_count(void **state)
{
    int n = 8192, handle = 0;
    size_t neighbours = 1, apart = 0;
    (void)state;
    assert_int_equal(cufftPlanMany(&handle, 1, &n, NULL, 1, n, NULL, 1, n, 0x29, 4), 0);
    assert_int_equal(cufftGetSize(handle, &neighbours), 0);
    assert_int_equal(cufftDestroy(handle), 0);
    assert_int_equal(cufftPlanMany(&handle, 1, &n, &n, 4, 1, &n, 4, 1, 0x29, 4), 0);
    assert_int_equal(cufftGetSize(handle, &apart), 0);
    assert_int_equal(cufftDestroy(handle), 0);
    assert_int_equal(neighbours, 0);
    assert_int_equal(apart, (size_t)8 * 8192 * 4);
}

static void a_product_of_sparse_matrices_gets_its_size(void **state)
{
    void *handle = NULL, *a = NULL, *c = NULL;
    int64_t rows = 0, columns = 0, entries = 0;
    size_t bytes = 0;
    char buffer;
    (void)state;
    assert_int_equal(cusparseCreate(NULL), 3);
    assert_int_equal(cusparseCreate(&handle), 0);
    assert_int_equal(cusparseCreateCsr(&a, 1000, 1000, 2000, NULL, NULL, NULL, 2, 2, 0, 0), 0);
    assert_int_equal(cusparseCreateCsr(&c, 1000, 1000, 0, NULL, NULL, NULL, 2, 2, 0, 0), 0);
    assert_int_equal(cusparseCreateCsr(&c, -1, 1000, 0, NULL, NULL, NULL, 2, 2, 0, 0), 3);
    assert_int_equal(
        cusparseSpGEMM_compute(handle, 0, 0, NULL, a, a, NULL, c, 0, 0, NULL, &bytes, NULL), 0);
    assert_int_equal(bytes, 2 * 12 * 4000 + 5159);
    assert_int_equal(
        cusparseSpGEMM_compute(handle, 0, 0, NULL, a, a, NULL, c, 0, 0, NULL, &bytes, &buffer), 0);
    assert_int_equal(cusparseSpMatGetSize(c, &rows, &columns, &entries), 0);
    assert_in_range(entries, 3900, 4000);
    assert_int_equal(cusparseSpMM(handle), 0);
    assert_int_equal(cusparseSpMM(NULL), 1);
    assert_int_equal(cusparseDestroySpMat(a), 0);
    assert_int_equal(cusparseDestroySpMat(c), 0);
    assert_int_equal(cusparseDestroy(handle), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_solver_has_its_own_memory),
        cmocka_unit_test(a_solver_that_does_not_fit_takes_nothing),
        cmocka_unit_test(the_solver_answers),
        cmocka_unit_test(a_plan_has_its_workspace_or_not),
        cmocka_unit_test(a_prime_has_tables_while_the_plan_lives),
        cmocka_unit_test(plans_are_refused),
        cmocka_unit_test(strides_of_the_older_call_count),
        cmocka_unit_test(a_product_of_sparse_matrices_gets_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
