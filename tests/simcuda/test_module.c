/* SPDX-License-Identifier: MIT */
/* Device code in a context: modules, launches and occupancy, in a program under `reveille run`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda.h>

#include "cubin_writer.h"

static const cubin_kernel kernels[] = {
    {"few", 16, 0, 0, {0}},          {"many", 168, 0, 400, {0}},    {"most", 255, 0, 0, {0}},
    {"bound", 16, 0, 0, {96, 1, 1}}, {"shared", 16, 40000, 0, {0}},
};
static unsigned char cubin[CUBIN_BYTES_MOST];
static size_t cubin_bytes;
static CUcontext contexts[2];
static CUmodule module;

static CUfunction find(const char *name)
{
    CUfunction function = NULL;
    assert_int_equal(cuModuleGetFunction(&function, module, name), CUDA_SUCCESS);
    return function;
}

static int attribute(const char *name, CUfunction_attribute which)
{
    int value = -99;
    assert_int_equal(cuFuncGetAttribute(&value, which, find(name)), CUDA_SUCCESS);
    return value;
}

static CUresult launch(CUfunction function, unsigned grid, unsigned threads, unsigned shared_bytes)
{
    return cuLaunchKernel(function, grid, 1, 1, threads, 1, 1, shared_bytes, NULL, NULL, NULL);
}

static int set_up(void **state)
{
    const cubin_shape shape = {.version = 90,
                               .kernels = kernels,
                               .kernel_count = sizeof kernels / sizeof *kernels,
                               .variables = true};
    (void)state;
    cubin_bytes = cubin_write(&shape, cubin);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    for (int i = 1; i >= 0; i--) {
        assert_int_equal(cuDevicePrimaryCtxRetain(&contexts[i], i), CUDA_SUCCESS);
        assert_int_equal(cuCtxSetCurrent(contexts[i]), CUDA_SUCCESS);
    }
    return cuModuleLoadData(&module, cubin) == CUDA_SUCCESS ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return cuModuleUnload(module) == CUDA_SUCCESS ? 0 : -1;
}

/* ---- Loading ---- */

static void a_module_needs_a_context(void **state)
{
    CUmodule other = NULL;
    (void)state;
    assert_int_equal(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&other, cubin), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxSetCurrent(contexts[0]), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(NULL, cubin), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuModuleLoadData(&other, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuModuleLoad(&other, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuModuleUnload(NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_null(other);
}

static void what_is_no_code_is_refused(void **state)
{
    CUmodule other = NULL;
    unsigned char for_another[CUBIN_BYTES_MOST];
    const cubin_shape older = {.version = 80, .kernels = kernels, .kernel_count = 1};
    static const struct {
        const char *text;
        CUresult result;
    } images[] = {
        {"no code", CUDA_ERROR_INVALID_IMAGE},
        {".target sm_80", CUDA_ERROR_INVALID_IMAGE},
        {".version 10.0\n.target sm_80\n", CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
        {".version 8.0\n.target sm_100\n", CUDA_ERROR_INVALID_PTX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof images / sizeof *images; i++)
        assert_int_equal(cuModuleLoadData(&other, images[i].text), images[i].result);
    cubin_write(&older, for_another);
    assert_int_equal(cuModuleLoadData(&other, for_another), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_int_equal(cuModuleLoadFatBinary(&other, "no code"), CUDA_ERROR_INVALID_IMAGE);
    assert_null(other);
}

/* The file has the size that it states. A truncated file is refused. */
static void a_module_comes_from_a_file(void **state)
{
    CUmodule other = NULL;
    CUlibrary library = NULL;
    CUfunction function = NULL;
    char path[] = "/tmp/reveille-module-XXXXXX";
    int file = mkstemp(path);
    (void)state;
    assert_true(file >= 0);
    assert_int_equal(write(file, cubin, cubin_bytes), cubin_bytes);
    assert_int_equal(cuModuleLoad(&other, path), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&function, other, "most"), CUDA_SUCCESS);
    assert_int_equal(cuModuleUnload(other), CUDA_SUCCESS);
    assert_int_equal(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0),
                     CUDA_SUCCESS);
    assert_int_equal(cuLibraryUnload(library), CUDA_SUCCESS);
    other = NULL;
    assert_int_equal(ftruncate(file, (off_t)cubin_bytes - 1), 0);
    assert_int_equal(cuModuleLoad(&other, path), CUDA_ERROR_INVALID_IMAGE);
    assert_int_equal(ftruncate(file, 0), 0);
    assert_int_equal(cuModuleLoad(&other, path), CUDA_ERROR_INVALID_IMAGE);
    close(file);
    unlink(path);
    assert_int_equal(cuModuleLoad(&other, path), CUDA_ERROR_FILE_NOT_FOUND);
    assert_int_equal(cuModuleLoad(&other, "/"), CUDA_ERROR_OUT_OF_MEMORY);
    assert_null(other);
}

static void options_are_answered(void **state)
{
    CUmodule other = NULL;
    char log[16] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                              CU_JIT_OPTIMIZATION_LEVEL};
    void *values[] = {log, (void *)sizeof log, (void *)3};
    (void)state;
    assert_int_equal(cuModuleLoadDataEx(&other, cubin, 3, options, values), CUDA_SUCCESS);
    assert_null(values[1]); /* empty */
    assert_ptr_equal(values[0], log);
    assert_ptr_equal(values[2], (void *)3);
    assert_int_equal(cuModuleUnload(other), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadDataEx(&other, cubin, 1, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

/* ---- Content of a module ---- */

static void functions_are_found_by_name(void **state)
{
    CUfunction functions[6] = {NULL}, function = NULL;
    CUmodule of = NULL;
    const char *name = NULL;
    unsigned count = 0;
    (void)state;
    assert_int_equal(cuModuleGetFunctionCount(&count, module), CUDA_SUCCESS);
    assert_int_equal(count, 5);
    assert_int_equal(cuModuleEnumerateFunctions(functions, 6, module), CUDA_SUCCESS);
    assert_null(functions[5]);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(cuFuncGetName(&name, functions[i]), CUDA_SUCCESS);
        assert_ptr_equal(find(name), functions[i]);
    }
    assert_int_equal(cuFuncGetModule(&of, functions[0]), CUDA_SUCCESS);
    assert_ptr_equal(of, module);
    assert_int_equal(cuModuleGetFunction(&function, module, "none"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuModuleGetFunction(&function, module, "seen"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuModuleGetFunction(&function, NULL, "few"), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuModuleGetFunction(NULL, module, "few"), CUDA_ERROR_INVALID_VALUE);
    assert_null(function);
}

/* A listed function reports what it can without its code, until it is requested by name. */
static void a_function_is_loaded_by_its_name(void **state)
{
    const CUfunction_attribute threads = CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    CUmodule other = NULL;
    CUfunction functions[2] = {NULL}, bound = NULL;
    CUfunctionLoadingState loaded = CU_FUNCTION_LOADING_STATE_MAX;
    int value = 0;
    (void)state;
    assert_int_equal(cuModuleLoadData(&other, cubin), CUDA_SUCCESS);
    assert_int_equal(cuModuleEnumerateFunctions(functions, 2, other), CUDA_SUCCESS);
    assert_int_equal(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, functions[0]),
                     CUDA_SUCCESS);
    assert_int_equal(value, 16);
    assert_int_equal(cuFuncGetAttribute(&value, threads, functions[0]),
                     CUDA_ERROR_FUNCTION_NOT_LOADED);
    assert_int_equal(cuFuncIsLoaded(&loaded, functions[0]), CUDA_SUCCESS);
    assert_int_equal(loaded, CU_FUNCTION_LOADING_STATE_UNLOADED);
    assert_int_equal(cuModuleGetFunction(&bound, other, "bound"), CUDA_SUCCESS);
    assert_ptr_equal(bound, functions[0]);
    assert_int_equal(cuFuncGetAttribute(&value, threads, bound), CUDA_SUCCESS);
    assert_int_equal(value, 96);
    assert_int_equal(cuFuncLoad(functions[1]), CUDA_SUCCESS);
    assert_int_equal(cuFuncGetAttribute(&value, threads, functions[1]), CUDA_SUCCESS);
    assert_int_equal(cuFuncIsLoaded(&loaded, functions[1]), CUDA_SUCCESS);
    assert_int_equal(loaded, CU_FUNCTION_LOADING_STATE_LOADED);
    assert_int_equal(cuModuleUnload(other), CUDA_SUCCESS);
    assert_int_equal(cuFuncLoad(bound), CUDA_ERROR_INVALID_HANDLE);
}

static void attributes_are_the_kernels_own(void **state)
{
    int value;
    (void)state;
    assert_int_equal(attribute("few", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
    assert_int_equal(attribute("many", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 384);
    assert_int_equal(attribute("most", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 256);
    assert_int_equal(attribute("bound", CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 96);
    assert_int_equal(attribute("many", CU_FUNC_ATTRIBUTE_NUM_REGS), 168);
    assert_int_equal(attribute("many", CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES), 400);
    assert_int_equal(attribute("shared", CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES), 40000);
    assert_int_equal(attribute("shared", CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES), 9152);
    assert_int_equal(attribute("few", CU_FUNC_ATTRIBUTE_BINARY_VERSION), 90);
    assert_int_equal(cuFuncGetAttribute(&value, (CUfunction_attribute)1000, find("few")),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, NULL),
                     CUDA_ERROR_INVALID_HANDLE);
}

static void a_variable_has_its_value_and_no_physical_memory(void **state)
{
    CUdeviceptr addr = 0, base = 0;
    CUmodule other = NULL;
    size_t bytes = 0, left = 0, left_after = 0, total = 0;
    unsigned value = 0;
    char zeroes[100], nothing[100] = {0};
    (void)state;
    assert_int_equal(cuMemGetInfo(&left, &total), CUDA_SUCCESS);
    assert_int_equal(cuModuleLoadData(&other, cubin), CUDA_SUCCESS);
    assert_int_equal(cuMemGetInfo(&left_after, &total), CUDA_SUCCESS);
    assert_int_equal(left_after, left); /* not counted at loading */
    assert_int_equal(cuModuleGetGlobal(&addr, &bytes, other, "seen"), CUDA_SUCCESS);
    assert_int_equal(bytes, 4);
    assert_int_equal(cuMemcpyDtoH(&value, addr, 4), CUDA_SUCCESS);
    assert_int_equal(value, 7);
    value = 8;
    assert_int_equal(cuMemcpyHtoD(addr, &value, 4), CUDA_SUCCESS);
    assert_int_equal(cuMemGetAddressRange(&base, &bytes, addr + 3), CUDA_SUCCESS);
    assert_int_equal(base, addr);
    assert_int_equal(bytes, 4);
    assert_int_equal(cuMemFree(addr), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuModuleGetGlobal(&addr, NULL, module, "seen"), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH(&value, addr, 4), CUDA_SUCCESS);
    assert_int_equal(value, 7); /* each module has its own */
    assert_int_equal(cuModuleGetGlobal(&addr, &bytes, other, "zeroes"), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH(zeroes, addr, bytes), CUDA_SUCCESS);
    assert_memory_equal(zeroes, nothing, 100);
    assert_int_equal(cuModuleGetGlobal(&addr, NULL, other, "few"), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuModuleGetGlobal(&addr, NULL, other, "none"), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(cuModuleGetGlobal(NULL, NULL, other, "seen"), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuModuleUnload(other), CUDA_SUCCESS);
    assert_int_equal(cuMemGetAddressRange(&base, &bytes, base), CUDA_ERROR_NOT_FOUND);
}

/* ---- Launches ---- */

static void launches_are_held_to_limits(void **state)
{
    CUfunction few = find("few");
    (void)state;
    assert_int_equal(launch(few, 1, 1024, 49152), CUDA_SUCCESS);
    assert_int_equal(launch(few, 0, 32, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(few, 1, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(few, 1, 1025, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(few, 2147483648u, 1, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(few, 1, 1, 49153), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernel(few, 1, 65536, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernel(few, 1, 1, 1, 1, 1, 65, 0, NULL, NULL, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(find("many"), 1, 384, 0), CUDA_SUCCESS);
    assert_int_equal(launch(find("many"), 1, 385, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    assert_int_equal(launch(find("bound"), 1, 97, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(find("shared"), 1, 32, 9153), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch(NULL, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuLaunchKernelEx(NULL, few, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void a_required_shape_is_required(void **state)
{
    static const char text[] = ".version 7.8\n.target sm_80\n.address_size 64\n"
                               ".visible .entry shaped()\n.reqntid 32, 4\n{ ret; }\n";
    CUmodule other = NULL;
    CUfunction shaped = NULL;
    int version = 0;
    (void)state;
    assert_int_equal(cuModuleLoadData(&other, text), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&shaped, other, "shaped"), CUDA_SUCCESS);
    assert_int_equal(launch(shaped, 1, 128, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLaunchKernel(shaped, 1, 1, 1, 32, 4, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
    assert_int_equal(cuFuncGetAttribute(&version, CU_FUNC_ATTRIBUTE_PTX_VERSION, shaped),
                     CUDA_SUCCESS);
    assert_int_equal(version, 80);
    assert_int_equal(cuModuleUnload(other), CUDA_SUCCESS);
}

static void more_shared_memory_must_be_asked_for(void **state)
{
    const CUfunction_attribute dynamic = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    CUfunction shared = find("shared");
    (void)state;
    assert_int_equal(cuFuncSetAttribute(shared, dynamic, 232448 - 40000), CUDA_SUCCESS);
    assert_int_equal(cuFuncSetAttribute(shared, dynamic, 232448 - 39999), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuFuncSetAttribute(shared, dynamic, -1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(attribute("shared", dynamic), 232448 - 40000);
    assert_int_equal(launch(shared, 1, 32, 232448 - 40000), CUDA_SUCCESS);
    assert_int_equal(launch(shared, 1, 32, 232448 - 39999), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_NUM_REGS, 1),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(
        cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101),
        CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuFuncSetAttribute(NULL, dynamic, 0), CUDA_ERROR_INVALID_HANDLE);
}

static CUresult launch_clusters(CUfunction function, unsigned grid, unsigned size)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value = {.clusterDim = {size, 1, 1}}};
    const CUlaunchConfig config = {grid, 1, 1, 32, 1, 1, 0, NULL, &attribute, 1};
    return cuLaunchKernelEx(&config, function, NULL, NULL);
}

static void clusters_divide_the_grid(void **state)
{
    CUfunction few = find("few");
    (void)state;
    assert_int_equal(launch_clusters(few, 16, 8), CUDA_SUCCESS);
    assert_int_equal(launch_clusters(few, 12, 8), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    assert_int_equal(launch_clusters(few, 16, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch_clusters(few, 16, 16), CUDA_ERROR_INVALID_CLUSTER_SIZE);
    assert_int_equal(
        cuFuncSetAttribute(few, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
        CUDA_SUCCESS);
    assert_int_equal(launch_clusters(few, 16, 16), CUDA_SUCCESS);
    assert_int_equal(launch_clusters(few, 32, 32), CUDA_ERROR_INVALID_CLUSTER_SIZE);
}

/* 132 multiprocessors of an H200, each with two blocks of 1024 threads. */
static void a_cooperative_launch_fits_on_the_device(void **state)
{
    CUfunction few = find("few");
    (void)state;
    assert_int_equal(cuLaunchCooperativeKernel(few, 264, 1, 1, 1024, 1, 1, 0, NULL, NULL),
                     CUDA_SUCCESS);
    assert_int_equal(cuLaunchCooperativeKernel(few, 265, 1, 1, 1024, 1, 1, 0, NULL, NULL),
                     CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_int_equal(cuLaunchCooperativeKernel(few, 65535, 65535, 65535, 1, 1, 1, 0, NULL, NULL),
                     CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

static void a_function_is_of_its_context(void **state)
{
    CUfunction few = find("few");
    (void)state;
    assert_int_equal(cuCtxSetCurrent(contexts[1]), CUDA_SUCCESS);
    assert_int_equal(launch(few, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuCtxSetCurrent(contexts[0]), CUDA_SUCCESS);
    assert_int_equal(launch(few, 1, 1, 0), CUDA_SUCCESS);
}

static void a_function_goes_with_its_module(void **state)
{
    CUmodule other = NULL;
    CUfunction few = NULL;
    int value;
    (void)state;
    assert_int_equal(cuModuleLoadData(&other, cubin), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&few, other, "few"), CUDA_SUCCESS);
    assert_int_equal(cuModuleUnload(other), CUDA_SUCCESS);
    assert_int_equal(launch(few, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, few),
                     CUDA_ERROR_INVALID_HANDLE);
}

/* ---- Time ---- */

/* A measured time depends on the number of kernels, not on this machine's clock, so it is the
 * same in each run. */
static void time_goes_by_kernels(void **state)
{
    CUevent from = NULL, to = NULL;
    float first = 0, again = 0;
    (void)state;
    assert_int_equal(cuEventCreate(&from, 0), CUDA_SUCCESS);
    assert_int_equal(cuEventCreate(&to, 0), CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuEventRecord(from, NULL), CUDA_SUCCESS);
        for (int kernel = 0; kernel < 3; kernel++)
            assert_int_equal(launch(find(i == 0 ? "few" : "many"), 1, 32, 0), CUDA_SUCCESS);
        usleep(i == 0 ? 0 : 20000);
        assert_int_equal(cuEventRecord(to, NULL), CUDA_SUCCESS);
        assert_int_equal(cuEventElapsedTime(i == 0 ? &first : &again, from, to), CUDA_SUCCESS);
    }
    assert_true(first > 2.99F && first < 3.01F);
    assert_true(first == again);
    assert_int_equal(cuEventRecord(from, NULL), CUDA_SUCCESS);
    assert_int_equal(cuEventRecord(to, NULL), CUDA_SUCCESS);
    assert_int_equal(cuEventElapsedTime(&first, from, to), CUDA_SUCCESS);
    assert_true(first > 0); /* programs divide by it */
    assert_int_equal(cuEventElapsedTime(&first, to, from), CUDA_SUCCESS);
    assert_true(first < 0);
    cuEventDestroy(from);
    cuEventDestroy(to);
}

/* ---- Occupancy ---- */

static int blocks_of(const char *name, int threads, size_t dynamic_bytes)
{
    int blocks = -1;
    assert_int_equal(
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, find(name), threads, dynamic_bytes),
        CUDA_SUCCESS);
    return blocks;
}

static size_t ten_bytes_a_thread(int threads)
{
    return (size_t)threads * 100;
}

static void occupancy_follows_from_needs(void **state)
{
    int grid = 0, threads = 0, blocks = 0;
    size_t bytes = 0;
    (void)state;
    assert_int_equal(blocks_of("few", 32, 0), 32);   /* by blocks */
    assert_int_equal(blocks_of("few", 1024, 0), 2);  /* by threads */
    assert_int_equal(blocks_of("many", 128, 0), 3);  /* by registers */
    assert_int_equal(blocks_of("shared", 32, 0), 5); /* by shared memory */
    assert_int_equal(blocks_of("few", 32, 49152), 4);
    assert_int_equal(blocks_of("few", 32, 49153), 0); /* more was not requested */
    assert_int_equal(blocks_of("bound", 128, 0), 16); /* beyond the limit in its code */
    assert_int_equal(blocks_of("many", 512, 0), 0);
    assert_int_equal(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, find("few"), 0, 0),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, NULL, 32, 0),
                     CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuOccupancyMaxPotentialBlockSize(&grid, &threads, find("few"), NULL, 0, 0),
                     CUDA_SUCCESS);
    assert_int_equal(threads, 1024);
    assert_int_equal(grid, 264);
    assert_int_equal(
        cuOccupancyMaxPotentialBlockSize(&grid, &threads, find("few"), ten_bytes_a_thread, 0, 500),
        CUDA_SUCCESS);
    assert_true(threads > 0 && threads <= 500);
    assert_true(blocks_of("few", threads, ten_bytes_a_thread(threads)) == grid / 132);
    assert_int_equal(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, find("few"), 2, 128),
                     CUDA_SUCCESS);
    assert_int_equal(bytes, 49152);
    assert_int_equal(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, find("few"), 8, 128),
                     CUDA_SUCCESS);
    assert_int_equal(blocks_of("few", 128, bytes), 8);
    assert_int_equal(blocks_of("few", 128, bytes + 128), 7);
    assert_int_equal(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, find("few"), 33, 32),
                     CUDA_ERROR_INVALID_VALUE);
}

/* ---- Linking ---- */

static const char no_kernel[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                ".visible .global .align 4 .u32 number;\n";
static const char one_kernel[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                                 ".visible .entry linked()\n{\n    ret;\n}\n";

static CUresult add(CUlinkState link, const char *text)
{
    return cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)(uintptr_t)text, strlen(text), "text", 0,
                         NULL, NULL);
}

/* The result is the input with kernels, which loads as a module. The link owns it. */
static void linking_answers_what_has_kernels(void **state)
{
    CUlinkState link = NULL;
    CUmodule linked = NULL;
    CUfunction function = NULL;
    CUjit_option option = CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES;
    void *image = NULL, *value = (void *)1;
    size_t bytes = 0;
    (void)state;
    assert_int_equal(cuLinkCreate(1, &option, &value, &link), CUDA_SUCCESS);
    assert_null(value); /* the log's size */
    assert_int_equal(add(link, no_kernel), CUDA_SUCCESS);
    assert_int_equal(cuLinkComplete(link, &image, &bytes), CUDA_SUCCESS);
    assert_int_equal(bytes, strlen(no_kernel));
    assert_int_equal(add(link, one_kernel), CUDA_SUCCESS);
    assert_int_equal(add(link, no_kernel), CUDA_SUCCESS);
    assert_int_equal(cuLinkComplete(link, &image, NULL), CUDA_SUCCESS);
    assert_ptr_not_equal(image, one_kernel);
    assert_string_equal(image, one_kernel);
    assert_int_equal(cuModuleLoadData(&linked, image), CUDA_SUCCESS);
    assert_int_equal(cuLinkDestroy(link), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&function, linked, "linked"), CUDA_SUCCESS);
    assert_int_equal(cuModuleUnload(linked), CUDA_SUCCESS);
}

static void linking_is_refused(void **state)
{
    CUlinkState link = NULL;
    void *image = NULL;
    (void)state;
    assert_int_equal(cuLinkCreate(0, NULL, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLinkCreate(1, NULL, NULL, &link), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    assert_int_equal(cuLinkCreate(0, NULL, NULL, &link), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(cuCtxSetCurrent(contexts[0]), CUDA_SUCCESS);
    assert_null(link);
    assert_int_equal(cuLinkCreate(0, NULL, NULL, &link), CUDA_SUCCESS);
    assert_int_equal(cuLinkComplete(link, &image, NULL), CUDA_ERROR_INVALID_VALUE); /* no input */
    assert_int_equal(add(link, ""), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(add(NULL, one_kernel), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(
        cuLinkAddData(link, CU_JIT_NUM_INPUT_TYPES, cubin, cubin_bytes, NULL, 0, NULL, NULL),
        CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(
        cuLinkAddData(link, CU_JIT_INPUT_CUBIN, cubin, cubin_bytes, NULL, 1, NULL, NULL),
        CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLinkComplete(link, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuLinkComplete(NULL, &image, NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuLinkDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
    assert_int_equal(cuLinkDestroy(link), CUDA_SUCCESS);
}

static void occupancy_of_clusters(void **state)
{
    CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                   .value = {.clusterDim = {4, 1, 1}}};
    const CUlaunchConfig config = {4, 1, 1, 1024, 1, 1, 0, NULL, &attribute, 1};
    int clusters = 0, blocks = 0;
    (void)state;
    assert_int_equal(cuOccupancyMaxActiveClusters(&clusters, find("few"), &config), CUDA_SUCCESS);
    assert_int_equal(clusters, 66);
    assert_int_equal(cuOccupancyMaxPotentialClusterSize(&blocks, find("shared"), &config),
                     CUDA_SUCCESS);
    assert_int_equal(blocks, 8);
    assert_int_equal(cuOccupancyMaxActiveClusters(&clusters, NULL, &config),
                     CUDA_ERROR_INVALID_HANDLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_module_needs_a_context),
        cmocka_unit_test(what_is_no_code_is_refused),
        cmocka_unit_test(a_module_comes_from_a_file),
        cmocka_unit_test(options_are_answered),
        cmocka_unit_test(functions_are_found_by_name),
        cmocka_unit_test(a_function_is_loaded_by_its_name),
        cmocka_unit_test(attributes_are_the_kernels_own),
        cmocka_unit_test(a_variable_has_its_value_and_no_physical_memory),
        cmocka_unit_test(launches_are_held_to_limits),
        cmocka_unit_test(a_required_shape_is_required),
        cmocka_unit_test(more_shared_memory_must_be_asked_for),
        cmocka_unit_test(clusters_divide_the_grid),
        cmocka_unit_test(a_cooperative_launch_fits_on_the_device),
        cmocka_unit_test(a_function_is_of_its_context),
        cmocka_unit_test(a_function_goes_with_its_module),
        cmocka_unit_test(time_goes_by_kernels),
        cmocka_unit_test(occupancy_follows_from_needs),
        cmocka_unit_test(occupancy_of_clusters),
        cmocka_unit_test(linking_answers_what_has_kernels),
        cmocka_unit_test(linking_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
