/* SPDX-License-Identifier: MIT */
/* Code that belongs to no context, in a program under `reveille run`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda.h>

static const char code[] = ".version 8.0\n.target sm_80\n.address_size 64\n"
                           ".visible .global .align 4 .u32 count = 7;\n"
                           ".visible .entry one()\n{\n ret;\n}\n"
                           ".visible .entry other()\n{\n ret;\n}\n";

static void a_library_gives_its_kernels(void **state)
{
    CUlibrary library = NULL, of = NULL;
    CUkernel kernel = NULL, again = NULL, other = NULL;
    CUfunction function = NULL;
    const char *name = NULL;
    int threads = 0;
    (void)state;
    assert_int_equal(cuLibraryLoadData(&library, NULL, NULL, NULL, 0, NULL, NULL, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_null(library);
    assert_int_equal(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetKernel(&kernel, NULL, "one"), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuLibraryGetKernel(&kernel, library, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLibraryGetKernel(&kernel, library, "none"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuLibraryGetKernel(&kernel, library, "one"), CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetKernel(&other, library, "other"), CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetKernel(&again, library, "one"), CUDA_SUCCESS);
    assert_ptr_equal(again, kernel);
    assert_ptr_not_equal(other, kernel);
    assert_int_equal(cuKernelGetName(&name, other), CUDA_SUCCESS);
    assert_string_equal(name, "other");
    assert_int_equal(cuKernelGetLibrary(&of, other), CUDA_SUCCESS);
    assert_ptr_equal(of, library);
    assert_int_equal(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
    assert_int_equal(cuKernelGetFunction(&function, NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(
        cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0),
        CUDA_SUCCESS);
    assert_int_equal(threads, 1024);
    assert_int_equal(
        cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536, kernel, 0),
        CUDA_SUCCESS);
    assert_int_equal(cuKernelSetCacheConfig(NULL, CU_FUNC_CACHE_PREFER_L1, 0),
                     CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuLaunchKernel(function, 1, 1, 1, 1024, 1, 1, 0, NULL, NULL, NULL),
                     CUDA_SUCCESS);
    assert_int_equal(cuLaunchKernel((CUfunction)other, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLibraryUnload(library), CUDA_SUCCESS);
    assert_int_equal(cuLibraryUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuKernelGetName(&name, kernel), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                     CUDA_ERROR_INVALID_HANDLE);
}

/* Loading succeeds. All that needs the code fails. */
static void broken_code_is_found_out_when_it_is_used(void **state)
{
    CUlibrary library = NULL;
    CUkernel kernel = NULL;
    CUmodule module = NULL;
    unsigned count = 0;
    (void)state;
    assert_int_equal(cuLibraryLoadData(&library, "no code", NULL, NULL, 0, NULL, NULL, 0),
                     CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetKernel(&kernel, library, "one"), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuLibraryGetKernelCount(&count, library), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuLibraryEnumerateKernels(&kernel, 1, library), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(cuLibraryGetModule(&module, library), CUDA_ERROR_INVALID_IMAGE);
    assert_null(kernel);
    assert_null(module);
    assert_int_equal(cuLibraryUnload(library), CUDA_SUCCESS);
}

/* Its variables exist once there is a context, and a second lookup returns the same ones. */
static void a_library_has_variables_in_a_context(void **state)
{
    CUlibrary library = NULL;
    CUmodule module = NULL, again = NULL;
    CUkernel kernels[3] = {NULL};
    CUfunction function = NULL;
    CUdeviceptr addr = 0, other = 0;
    size_t bytes = 0;
    unsigned count = 0, value = 0;
    (void)state;
    assert_int_equal(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
    assert_int_equal(count, 2);
    assert_int_equal(cuLibraryEnumerateKernels(kernels, 3, library), CUDA_SUCCESS);
    assert_non_null(kernels[1]);
    assert_null(kernels[2]);
    assert_int_equal(cuLibraryGetGlobal(&addr, &bytes, library, "count"), CUDA_SUCCESS);
    assert_int_equal(bytes, 4);
    assert_int_equal(cuMemcpyDtoH(&value, addr, 4), CUDA_SUCCESS);
    assert_int_equal(value, 0); /* initial values in PTX are not read */
    assert_int_equal(cuLibraryGetGlobal(&other, NULL, library, "none"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuLibraryGetModule(&module, library), CUDA_SUCCESS);
    assert_int_equal(cuLibraryGetModule(&again, library), CUDA_SUCCESS);
    assert_ptr_equal(module, again);
    assert_int_equal(cuModuleGetGlobal(&other, NULL, module, "count"), CUDA_SUCCESS);
    assert_int_equal(other, addr);
    assert_int_equal(cuModuleGetFunction(&function, module, "one"), CUDA_SUCCESS);
    assert_ptr_equal((void *)function, (void *)kernels[0]);
    assert_int_equal(cuFuncGetModule(&again, function), CUDA_SUCCESS);
    assert_ptr_equal(again, module);
    assert_int_equal(cuModuleUnload(module), CUDA_ERROR_NOT_PERMITTED);
    assert_int_equal(cuLibraryUnload(library), CUDA_SUCCESS);
    assert_int_equal(cuMemGetAddressRange(&other, &bytes, addr), CUDA_ERROR_NOT_FOUND);
}

static void a_library_needs_a_driver_and_no_context(void **state)
{
    CUlibrary library = NULL;
    CUcontext context;
    (void)state;
    assert_int_equal(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0),
                     CUDA_ERROR_NOT_INITIALIZED);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_int_equal(cuLibraryLoadData(&library, code, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
    assert_int_equal(cuLibraryUnload(library), CUDA_SUCCESS);
    assert_int_equal(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

#if CUDA_VERSION >= 12090
static void take_log(void *data, CUlogLevel level, char *message, size_t bytes)
{
    (void)level, (void)message, (void)bytes;
    ++*(int *)data;
}

static void the_log_is_empty(void **state)
{
    CUlogsCallbackHandle first = NULL, second = NULL;
    CUlogIterator at = 7;
    char text[] = "text";
    size_t bytes = sizeof text;
    int calls = 0;
    (void)state;
    assert_int_equal(cuLogsRegisterCallback(NULL, &calls, &first), CUDA_ERROR_INVALID_VALUE);
    assert_null(first);
    assert_int_equal(cuLogsRegisterCallback(take_log, &calls, &first), CUDA_SUCCESS);
    assert_int_equal(cuLogsRegisterCallback(take_log, &calls, &second), CUDA_SUCCESS);
    assert_ptr_not_equal(first, second);
    assert_int_equal(cuLibraryUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(calls, 0);
    assert_int_equal(cuLogsUnregisterCallback(first), CUDA_SUCCESS);
    assert_int_equal(cuLogsUnregisterCallback(first), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLogsUnregisterCallback(second), CUDA_SUCCESS);
    assert_int_equal(cuLogsCurrent(&at, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(at, 7);
    assert_int_equal(cuLogsCurrent(&at, 0), CUDA_SUCCESS);
    assert_int_equal(at, 0);
    assert_int_equal(cuLogsDumpToMemory(&at, text, NULL, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLogsDumpToMemory(&at, text, &bytes, 0), CUDA_SUCCESS);
    assert_int_equal(bytes, 0);
    assert_string_equal(text, "");
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_needs_a_driver_and_no_context),
        cmocka_unit_test(a_library_gives_its_kernels),
        cmocka_unit_test(broken_code_is_found_out_when_it_is_used),
        cmocka_unit_test(a_library_has_variables_in_a_context),
#if CUDA_VERSION >= 12090
        cmocka_unit_test(the_log_is_empty),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
