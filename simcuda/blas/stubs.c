/* SPDX-License-Identifier: MIT */
/*
 * cuBLAS's functions that blas.c does not have. Those that compute are accepted (blas.h): they
 * use no memory beyond what the caller provides. The others are not simulated
 * (simcuda/wire/stub.h).
 *
 * All have a handle first. In a product, the two transpositions and three sizes follow. These
 * six words are in registers. They are not read for other functions.
 */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "simcuda/blas/blas.h"
#include "simcuda/wire/stub.h"

/* cublasSgemm, cublasGemmEx, cublasIsamax: a letter for the type, or BLAS's name for the
 * operation. */
static bool computes(const char *name)
{
    static const char *const others[] = {"Set",      "Get",  "Create", "Destroy", "Init",
                                         "Shutdown", "Free", "Alloc",  "Logger",  "Xt"};
    name += strlen("cublas");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return false;
    return strstr(name, "Ex") != NULL ||
           (strchr("SDCZHI", name[0]) != NULL && islower((unsigned char)name[1]));
}

typedef struct words {
    void *handle;
    int a_transposed, b_transposed;
    uint64_t sizes[3]; /* 32 bits each, or 64 if the name says so */
} words;

/* cublasSgemm_v2, cublasDgemmBatched_64, cublasGemmEx. Not grouped products, which have lists of
 * sizes. */
static bool is_product(const char *name)
{
    name += strlen("cublas");
    if (strchr("SDCZH", name[0]) != NULL)
        name++;
    return (strncmp(name, "gemm", 4) == 0 || strncmp(name, "Gemm", 4) == 0) &&
           strstr(name, "Grouped") == NULL;
}

static rvli_product product_of(const char *name, const words *of)
{
    const char type = name[strlen("cublas")];
    const uint64_t mask = strstr(name, "_64") != NULL ? UINT64_MAX : UINT32_MAX;
    return (rvli_product){.precision = type == 'S' || type == 'C'   ? RVLI_PRECISION_32
                                       : type == 'D' || type == 'Z' ? RVLI_PRECISION_64
                                                                    : RVLI_PRECISION_16,
                          .a_transposed = of->a_transposed != 0,
                          .b_transposed = of->b_transposed != 0,
                          .batched = strstr(name, "Batched") != NULL,
                          .m = of->sizes[0] & mask,
                          .n = of->sizes[1] & mask,
                          .k = of->sizes[2] & mask};
}

static int stand_in(const char *name, const words *of, void *caller, atomic_flag *told)
{
    if (is_product(name)) {
        const rvli_product product = product_of(name, of);
        return rvli_blas_compute(of->handle, &product);
    }
    if (computes(name))
        return rvli_blas_compute(of->handle, NULL);
    rvli_stub_tell(name, caller, told);
    return RVLI_BLAS_NOT_SUPPORTED;
}

#define RVLI_ENTRY(name)                                                                           \
    __attribute__((weak)) int name(void *handle, int a, int b, uint64_t m, uint64_t n,             \
                                   uint64_t k);                                                    \
    int name(void *handle, int a, int b, uint64_t m, uint64_t n, uint64_t k)                       \
    {                                                                                              \
        static atomic_flag told = ATOMIC_FLAG_INIT;                                                \
        const words given = {handle, a, b, {m, n, k}};                                             \
        return stand_in(#name, &given, __builtin_return_address(0), &told);                        \
    }
#include "cublas_entries.inc"
