/* SPDX-License-Identifier: MIT */
/*
 * The memory that the driver takes for code, in a program under `reveille run --gpus 2`. Kernels
 * are registered by hand, as compilers' start-up code does it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "cubin_writer.h"

#define MIB ((size_t)1 << 20)
#define ASSERT (90 * MIB) /* for assert(), once */

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int threads, void *thread_id, void *block_id, void *block_dim,
                            void *grid_dim, int *size);

/* The format of fat binaries: a header, and one part with a cubin. */
typedef struct fat {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t parts_bytes;
    uint16_t kind, part_version;
    uint32_t part_header_bytes;
    uint64_t bytes;
    uint32_t unused[3], architecture;
    uint64_t none[4];
    unsigned char cubin[CUBIN_BYTES_MOST];
} fat;

static const cubin_kernel kernels[] = {
    {"first", 40, 0, 0, {0}}, {"second", 16, 0, 0, {0}}, {"deep", 16, 0, 1536, {0}}};
#define KERNELS (sizeof kernels / sizeof *kernels)

typedef struct program {
    struct {
        uint32_t magic, version;
        const void *fat;
        const void *unused;
    } wrapper;
    fat fat;
    void **handle;
    char hosts[KERNELS]; /* their addresses identify the kernels */
} program;

/* The first kernel has so much code, and calls a function of the driver. */
static void begin(program *of, unsigned code_bytes, const char *calls)
{
    const cubin_shape shape = {.version = 90,
                               .kernels = kernels,
                               .kernel_count = KERNELS,
                               .code_bytes = code_bytes,
                               .calls = calls};
    *of = (program){.wrapper = {0x466243b1u, 1, &of->fat, NULL},
                    .fat = {.magic = 0xba55ed50u,
                            .version = 1,
                            .header_bytes = 16,
                            .kind = 2,
                            .part_version = 0x0101,
                            .part_header_bytes = 64,
                            .architecture = 90}};
    of->fat.bytes = (cubin_write(&shape, of->fat.cubin) + 7) / 8 * 8;
    of->fat.parts_bytes = 64 + of->fat.bytes;
    of->handle = __cudaRegisterFatBinary(&of->wrapper);
    assert_non_null(of->handle);
    for (size_t i = 0; i < KERNELS; i++)
        __cudaRegisterFunction(of->handle, &of->hosts[i], NULL, kernels[i].name, -1, NULL, NULL,
                               NULL, NULL, NULL);
}

static void end(program *of)
{
    __cudaUnregisterFatBinary(of->handle);
}

static cudaError_t launch(const char *host)
{
    return cudaLaunchKernel(host, (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, NULL);
}

static size_t used(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    assert_int_equal(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
    return total_bytes - free_bytes;
}

/* The tests build on each other: loaded code stays, as on a card. */
static void what_is_registered_takes_nothing(void **state)
{
    static program none;
    size_t before = used();
    char unknown = 0;
    (void)state;
    begin(&none, 100 * MIB, "__assertfail");
    assert_int_equal(used(), before);
    assert_int_equal(launch(&unknown), cudaSuccess);
    assert_int_equal(used(), before);
    end(&none);
}

/* Kernels of 64 KiB fit as on an H200: 5, and then 31 per page. */
static void kernels_lie_side_by_side(void **state)
{
    static program many[40];
    size_t before = used();
    (void)state;
    for (size_t i = 0; i < 40; i++) {
        begin(&many[i], 65408, NULL);
        for (int again = 0; again < 2; again++)
            assert_int_equal(launch(&many[i].hosts[0]), cudaSuccess);
        assert_int_equal(used() - before, i < 5 ? 0 : i < 36 ? 2 * MIB : 4 * MIB);
    }
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    before = used();
    assert_int_equal(launch(&many[0].hosts[0]), cudaSuccess); /* into the room of its context */
    assert_int_equal(used(), before);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    for (size_t i = 0; i < 40; i++)
        end(&many[i]);
}

static void a_large_kernel_has_pages(void **state)
{
    static program of;
    size_t before = used();
    (void)state;
    begin(&of, 3 * MIB, NULL);
    assert_int_equal(launch(&of.hosts[0]), cudaSuccess);
    assert_int_equal(used() - before, 4 * MIB);
    assert_int_equal(launch(&of.hosts[1]), cudaSuccess); /* in the same page as others */
    assert_int_equal(used() - before, 4 * MIB);
    end(&of);
}

static void what_assert_needs_is_loaded_once(void **state)
{
    static program one, other;
    size_t before = used();
    (void)state;
    begin(&one, 0, "__assertfail");
    assert_int_equal(launch(&one.hosts[1]), cudaSuccess);
    assert_int_equal(used() - before, ASSERT);
    begin(&other, 0, "__assertfail");
    assert_int_equal(launch(&other.hosts[0]), cudaSuccess);
    assert_int_equal(used() - before, ASSERT);
    end(&one);
    end(&other);
}

/* 132 multiprocessors with 2048 threads, each with 512 bytes more than the context provides. */
/* A reset loses a device's code, which is loaded again at its launch. Another device keeps its
 * code. */
static void what_is_lost_is_loaded_again(void **state)
{
    static program of;
    (void)state;
    begin(&of, 3 * MIB, NULL);
    for (int device = 1; device >= 0; device--) {
        assert_int_equal(cudaSetDevice(device), cudaSuccess);
        assert_int_equal(cudaDeviceReset(), cudaSuccess);
        size_t before = used();
        assert_int_equal(launch(&of.hosts[0]), cudaSuccess);
        assert_int_equal(used() - before, 4 * MIB);
    }
    assert_int_equal(cudaDeviceReset(), cudaSuccess);
    size_t before = used();
    for (int again = 0; again < 2; again++) {
        assert_int_equal(launch(&of.hosts[0]), cudaSuccess);
        assert_int_equal(used() - before, 4 * MIB);
    }
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    before = used();
    assert_int_equal(launch(&of.hosts[0]), cudaSuccess);
    assert_int_equal(used(), before);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    end(&of);
}

static void local_memory_is_for_all_threads(void **state)
{
    static program one, other;
    size_t before = used();
    (void)state;
    begin(&one, 0, NULL);
    begin(&other, 0, NULL);
    assert_int_equal(launch(&one.hosts[2]), cudaSuccess);
    assert_int_equal(used() - before, 132 * MIB);
    assert_int_equal(launch(&other.hosts[2]), cudaSuccess);
    assert_int_equal(used() - before, 132 * MIB);
    end(&one);
    end(&other);
}

static void what_does_not_fit_is_tried_again(void **state)
{
    static program of;
    size_t free_bytes = 0, total_bytes = 0, page = 2 * MIB;
    void *filling = NULL;
    (void)state;
    begin(&of, 50 * MIB, NULL);
    assert_int_equal(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
    assert_int_equal(cudaMalloc(&filling, free_bytes / page * page), cudaSuccess);
    size_t before = used();
    assert_int_equal(launch(&of.hosts[0]), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(used(), before);
    assert_int_equal(cudaFree(filling), cudaSuccess);
    before = used();
    assert_int_equal(launch(&of.hosts[0]), cudaSuccess);
    assert_int_equal(used() - before, 52 * MIB);
    end(&of);
}

static void variables_have_memory(void **state)
{
    static unsigned char cubin[CUBIN_BYTES_MOST];
    const cubin_shape shape = {
        .version = 90, .kernels = kernels, .kernel_count = KERNELS, .variables = true};
    CUmodule modules[2] = {NULL};
    CUfunction function = NULL;
    (void)state;
    (void)cubin_write(&shape, cubin);
    size_t before = used();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuModuleLoadData(&modules[i], cubin), CUDA_SUCCESS);
        assert_int_equal(cuModuleGetFunction(&function, modules[i], "second"), CUDA_SUCCESS);
        assert_int_equal(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL),
                         CUDA_SUCCESS);
        assert_int_equal(used() - before, 2 * MIB); /* both in one page */
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(cuModuleUnload(modules[i]), CUDA_SUCCESS);
}

static void a_module_is_loaded_likewise(void **state)
{
    static unsigned char cubin[CUBIN_BYTES_MOST];
    const cubin_shape shape = {
        .version = 90, .kernels = kernels, .kernel_count = KERNELS, .code_bytes = 20 * MIB};
    CUmodule module = NULL;
    CUfunction function = NULL;
    (void)state;
    (void)cubin_write(&shape, cubin);
    size_t before = used();
    assert_int_equal(cuModuleLoadData(&module, cubin), CUDA_SUCCESS);
    assert_int_equal(cuModuleGetFunction(&function, module, "first"), CUDA_SUCCESS);
    assert_int_equal(used(), before);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL),
                         CUDA_SUCCESS);
        assert_int_equal(used() - before, 22 * MIB);
    }
    assert_int_equal(cuModuleUnload(module), CUDA_SUCCESS);
}

static void a_forked_child_has_no_driver(void **state)
{
    static program of;
    int status = -1;
    (void)state;
    begin(&of, 6 * MIB, NULL);
    assert_int_equal(launch(&of.hosts[0]), cudaSuccess);
    pid_t child = fork();
    if (child == 0) {
        size_t before = 0, total = 0;
        bool good = cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                    cudaSetDevice(0) == cudaErrorInitializationError &&
                    cudaMemGetInfo(&before, &total) == cudaErrorInitializationError &&
                    launch(&of.hosts[0]) == cudaErrorInitializationError;
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    end(&of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_registered_takes_nothing),
        cmocka_unit_test(kernels_lie_side_by_side),
        cmocka_unit_test(a_large_kernel_has_pages),
        cmocka_unit_test(what_assert_needs_is_loaded_once),
        cmocka_unit_test(what_is_lost_is_loaded_again),
        cmocka_unit_test(local_memory_is_for_all_threads),
        cmocka_unit_test(variables_have_memory),
        cmocka_unit_test(what_does_not_fit_is_tried_again),
        cmocka_unit_test(a_module_is_loaded_likewise),
        cmocka_unit_test(a_forked_child_has_no_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
