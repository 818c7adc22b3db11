/* SPDX-License-Identifier: MIT */
/* The runtime's calls for code that belongs to no context, in a program under `reveille run`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda_runtime_api.h>

#if CUDART_VERSION >= 12080

static const char code[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                           ".visible .global .align 4 .u32 count = 7;\n"
                           ".visible .entry one()\n{\n ret;\n}\n"
                           ".visible .entry other()\n{\n ret;\n}\n";

/* A failure is also the thread's last error, until that is read. */
static void assert_fails(cudaError_t got, cudaError_t expected)
{
    assert_int_equal(got, expected);
    assert_int_equal(cudaGetLastError(), expected);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static cudaError_t load(cudaLibrary_t *library, const char *text)
{
    return cudaLibraryLoadData(library, text, NULL, NULL, 0, NULL, NULL, 0);
}

static void kernels_are_found_and_launched(void **state)
{
    const dim3 one = {1, 1, 1}, most = {1024, 1, 1}, more = {1025, 1, 1};
    cudaLibrary_t library = NULL;
    cudaKernel_t kernel = NULL, again = NULL, all[3] = {NULL};
    unsigned count = 0;
    (void)state;
    assert_fails(load(&library, NULL), cudaErrorInvalidValue);
    assert_null(library);
    assert_int_equal(load(&library, code), cudaSuccess);
    assert_int_equal(cudaLibraryGetKernelCount(&count, library), cudaSuccess);
    assert_int_equal(count, 2);
    assert_fails(cudaLibraryGetKernelCount(NULL, library), cudaErrorInvalidValue);
    assert_fails(cudaLibraryGetKernel(&kernel, library, "none"), cudaErrorSymbolNotFound);
    assert_fails(cudaLibraryGetKernel(&kernel, NULL, "one"), cudaErrorInvalidResourceHandle);
    assert_null(kernel);
    assert_int_equal(cudaLibraryGetKernel(&kernel, library, "other"), cudaSuccess);
    assert_int_equal(cudaLibraryGetKernel(&again, library, "other"), cudaSuccess);
    assert_ptr_equal(again, kernel);
    assert_int_equal(cudaLibraryEnumerateKernels(all, 3, library), cudaSuccess);
    assert_ptr_equal(all[1], kernel);
    assert_null(all[2]);
    assert_fails(cudaLibraryEnumerateKernels(NULL, 3, library), cudaErrorInvalidValue);
    assert_int_equal(cudaLaunchKernel(kernel, one, most, NULL, 0, NULL), cudaSuccess);
    assert_fails(cudaLaunchKernel(kernel, one, more, NULL, 0, NULL), cudaErrorInvalidConfiguration);
    assert_int_equal(cudaLibraryUnload(library), cudaSuccess);
    assert_fails(cudaLibraryUnload(NULL), cudaErrorInvalidResourceHandle);
}

/* More than 48 KiB must be requested, up to the device's limit. */
static void a_kernel_gets_shared_memory(void **state)
{
    const dim3 one = {1, 1, 1};
    cudaLibrary_t library = NULL;
    cudaKernel_t kernel = NULL;
    (void)state;
    assert_int_equal(load(&library, code), cudaSuccess);
    assert_int_equal(cudaLibraryGetKernel(&kernel, library, "one"), cudaSuccess);
    assert_fails(cudaLaunchKernel(kernel, one, one, NULL, 65536, NULL),
                 cudaErrorInvalidConfiguration);
    assert_fails(cudaKernelSetAttributeForDevice(
                     kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20, 0),
                 cudaErrorInvalidValue);
    assert_int_equal(cudaKernelSetAttributeForDevice(
                         kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536, 0),
                     cudaSuccess);
    assert_int_equal(cudaLaunchKernel(kernel, one, one, NULL, 65536, NULL), cudaSuccess);
    assert_int_equal(cudaLibraryUnload(library), cudaSuccess);
}

static void variables_have_addresses(void **state)
{
    cudaLibrary_t library = NULL;
    void *addr = NULL;
    size_t bytes = 0;
    unsigned value = 11, got = 0;
    (void)state;
    assert_int_equal(load(&library, code), cudaSuccess);
    assert_fails(cudaLibraryGetGlobal(&addr, &bytes, library, "none"), cudaErrorSymbolNotFound);
    assert_null(addr);
    assert_int_equal(cudaLibraryGetGlobal(NULL, &bytes, library, "count"), cudaSuccess);
    assert_int_equal(bytes, 4);
    assert_int_equal(cudaLibraryGetGlobal(&addr, &bytes, library, "count"), cudaSuccess);
    assert_int_equal(cudaMemcpy(addr, &value, sizeof value, cudaMemcpyHostToDevice), cudaSuccess);
    assert_int_equal(cudaMemcpy(&got, addr, sizeof got, cudaMemcpyDeviceToHost), cudaSuccess);
    assert_int_equal(got, value);
    assert_int_equal(cudaLibraryUnload(library), cudaSuccess);
    assert_fails(cudaMemcpy(&got, addr, sizeof got, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
}

static void code_comes_from_a_file(void **state)
{
    char path[] = "/tmp/reveille-library-XXXXXX";
    int file = mkstemp(path);
    cudaLibrary_t library = NULL;
    unsigned count = 0;
    (void)state;
    assert_true(file >= 0);
    assert_int_equal(write(file, code, sizeof code), sizeof code);
    close(file);
    assert_int_equal(cudaLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0),
                     cudaSuccess);
    assert_int_equal(cudaLibraryGetKernelCount(&count, library), cudaSuccess);
    assert_int_equal(count, 2);
    assert_int_equal(cudaLibraryUnload(library), cudaSuccess);
    unlink(path);
    library = NULL;
    assert_fails(cudaLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0),
                 cudaErrorFileNotFound);
    assert_null(library);
}

/* Loading succeeds. Its use fails. */
static void broken_code_is_found_out_late(void **state)
{
    cudaLibrary_t library = NULL;
    cudaKernel_t kernel = NULL;
    (void)state;
    assert_int_equal(load(&library, "no code"), cudaSuccess);
    assert_fails(cudaLibraryGetKernel(&kernel, library, "one"), cudaErrorInvalidKernelImage);
    assert_null(kernel);
    assert_int_equal(cudaLibraryUnload(library), cudaSuccess);
}
#endif

int main(void)
{
#if CUDART_VERSION >= 12080
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_found_and_launched),
        cmocka_unit_test(a_kernel_gets_shared_memory),
        cmocka_unit_test(variables_have_addresses),
        cmocka_unit_test(code_comes_from_a_file),
        cmocka_unit_test(broken_code_is_found_out_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    puts("SKIP: the headers' runtime has no libraries yet");
    return 77;
#endif
}
