/* SPDX-License-Identifier: MIT */
#include "gpu.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The kernel of digest.cu, by the same parameters. */
static void fake_digest(void **params)
{
    uint64_t granules, granule_bytes, granule_count, digests;
    memcpy(&granules, params[0], sizeof granules);
    memcpy(&granule_bytes, params[1], sizeof granule_bytes);
    memcpy(&granule_count, params[2], sizeof granule_count);
    memcpy(&digests, params[3], sizeof digests);
    for (uint64_t i = 0; i < granule_count; i++)
        ((rvli_digest *)(uintptr_t)digests)[i] = rvli_digest_of(
            (const void *)(uintptr_t)((const uint64_t *)(uintptr_t)granules)[i], granule_bytes);
}

/* And the one by a secret. */
static void fake_secret_digest(void **params)
{
    uint64_t granules, granule_bytes, granule_count, digests;
    rvli_secret secret;
    memcpy(&granules, params[0], sizeof granules);
    memcpy(&granule_bytes, params[1], sizeof granule_bytes);
    memcpy(&granule_count, params[2], sizeof granule_count);
    memcpy(&digests, params[3], sizeof digests);
    memcpy(&secret.low, params[4], sizeof secret.low);
    memcpy(&secret.high, params[5], sizeof secret.high);
    for (uint64_t i = 0; i < granule_count; i++)
        ((rvli_digest *)(uintptr_t)digests)[i] = rvli_secret_digest_of(
            &secret, (const void *)(uintptr_t)((const uint64_t *)(uintptr_t)granules)[i],
            granule_bytes);
}

/* The control is found in the driver that was opened: on a real one there is nothing to link. */
void gpu_fake_kernels(void)
{
    static const size_t sizes[] = {8, 8, 8, 8, 8, 8};
    bool (*set)(const char *, void (*)(void **), size_t, const size_t *) = NULL;
    void *library = dlopen(getenv("RVL_CUDA_LIBRARY"), RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "fake_kernel_set") : NULL;
    assert_non_null(symbol);
    memcpy(&set, &symbol, sizeof set);
    assert_true(set("rvl_digest", fake_digest, 4, sizes));
    assert_true(set("rvl_secret_digest", fake_secret_digest, 6, sizes));
    dlclose(library); /* the library under test holds it, too */
}

bool gpu_is_there(void)
{
    rvl_status status = rvli_cuda_driver_load();
    if (status == RVL_OK && gpu_is_fake())
        gpu_fake_kernels();
    if (status == RVL_OK)
        return true;
    SKIP_LINE("%s", rvli_error_get()->message);
    if (gpu_is_fake())
        exit(1); /* the fake driver is always there */
    return false;
}

bool gpu_is_fake(void)
{
    return getenv("RVL_CUDA_LIBRARY") != NULL;
}

bool gpu_is_simulated(void)
{
    return getenv("REVEILLE_MACHINE") != NULL;
}

rvl_context *gpu_open(const rvl_cuda_options *options, fault_injector **fault_out)
{
    rvl_context *context = NULL;
    rvl_context_options context_options = {.struct_size = sizeof context_options,
                                           .backend_options = options};
    rvl_status status = fault_out != NULL ? fault_context_open(&rvli_cuda_ops, &context_options,
                                                               fault_out, &context)
                                          : rvl_context_open("cuda", &context_options, &context);
    if (status != RVL_OK)
        fail_msg("%s", rvli_error_get()->message);
    return context;
}

static uint64_t *buffer_of(uint64_t size)
{
    uint64_t *buffer = malloc(size);
    assert_non_null(buffer);
    return buffer;
}

static uint64_t pattern(uint64_t seed, uint64_t place)
{
    return (seed + place) * UINT64_C(0x9E3779B97F4A7C15);
}

static void wait_for_copies(rvl_context *context, int device)
{
    uint64_t event = 0;
    assert_int_equal(context->ops.record_event(context->self, device, &event), RVL_OK);
    assert_int_equal(context->ops.wait_event(context->self, device, event), RVL_OK);
}

/* By the driver itself: what the backend counts and keeps is not for the test's own copies. */
static void copy(rvl_context *context, int device, rvl_addr addr, void *buffer, uint64_t size,
                 bool to_device)
{
    wait_for_copies(context, device);
    CUdevice of;
    CUcontext current;
    assert_int_equal(rvli_cuda.cuDeviceGet(&of, context->devices[device].facts.ordinal),
                     CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuDevicePrimaryCtxRetain(&current, of), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuCtxPushCurrent(current), CUDA_SUCCESS);
    assert_int_equal(to_device ? rvli_cuda.cuMemcpyHtoDAsync(addr, buffer, size, NULL)
                               : rvli_cuda.cuMemcpyDtoHAsync(buffer, addr, size, NULL),
                     CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuStreamSynchronize(NULL), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuCtxPopCurrent(&current), CUDA_SUCCESS);
    assert_int_equal(rvli_cuda.cuDevicePrimaryCtxRelease(of), CUDA_SUCCESS);
}

void gpu_fill(rvl_context *context, int device, rvl_addr addr, uint64_t size, uint64_t seed)
{
    uint64_t *buffer = buffer_of(size);
    for (uint64_t i = 0; i < size / 8; i++)
        buffer[i] = pattern(seed, i);
    copy(context, device, addr, buffer, size, true);
    free(buffer);
}

bool gpu_holds(rvl_context *context, int device, rvl_addr addr, uint64_t size, uint64_t seed)
{
    bool same = true;
    uint64_t *buffer = buffer_of(size);
    memset(buffer, 0, size);
    copy(context, device, addr, buffer, size, false);
    for (uint64_t i = 0; i < size / 8 && same; i++)
        same = buffer[i] == pattern(seed, i);
    free(buffer);
    return same;
}

bool gpu_is_filled(rvl_context *context, int device, rvl_addr addr, uint64_t size, uint8_t byte)
{
    uint64_t *buffer = buffer_of(size);
    copy(context, device, addr, buffer, size, false);
    const uint8_t *at = (const uint8_t *)buffer;
    bool same = at[0] == byte && memcmp(at, at + 1, size - 1) == 0;
    free(buffer);
    return same;
}

uint64_t gpu_free_bytes(rvl_context *context)
{
    uint64_t free_bytes = 0, total = 0;
    assert_int_equal(context->ops.memory_info(context->self, 0, &free_bytes, &total), RVL_OK);
    return free_bytes;
}

pid_t gpu_spawn(const char *verb, const char *word, int *to_out, int *from_out)
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[1]);
        close(from[0]);
        execl("/proc/self/exe", "test", verb, word, (char *)NULL);
        _exit(127);
    }
    assert_true(child > 0);
    close(to[0]);
    close(from[1]);
    *to_out = to[1];
    *from_out = from[0];
    return child;
}
