/* SPDX-License-Identifier: MIT */
/* Physical memory and addresses, separately, in a program under `reveille run --gpus 2`. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda.h>

#define PAGE ((size_t)2 << 20)

static void map(CUdeviceptr addr, int device)
{
    const CUmemAllocationProp kind = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};
    CUmemGenericAllocationHandle handle = 0;
    assert_int_equal(cuMemCreate(&handle, PAGE, &kind, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemMap(addr, PAGE, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
}

static int device_at(CUdeviceptr addr)
{
    int device = -7;
    assert_int_equal(cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, addr),
                     CUDA_SUCCESS);
    return device;
}

/* PyTorch makes a tensor of memory that it mapped on its device, and asks for its device. */
static void memory_lies_where_it_was_made(void **state)
{
    CUdeviceptr addr = 0;
    int device = -7;
    void *answers[] = {&device};
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    (void)state;
    assert_int_equal(cuMemAddressReserve(&addr, 2 * PAGE, 0, 0, 0), CUDA_SUCCESS);
    map(addr, 1);
    map(addr + PAGE, 0);
    assert_int_equal(device_at(addr), 1);
    assert_int_equal(device_at(addr + PAGE - 1), 1);
    assert_int_equal(device_at(addr + PAGE), 0);
    assert_int_equal(cuPointerGetAttributes(1, asked, answers, addr + 4), CUDA_SUCCESS);
    assert_int_equal(device, 1);
    assert_int_equal(cuMemUnmap(addr, PAGE), CUDA_SUCCESS);
    map(addr, 0); /* memory of the other card, at the same address */
    assert_int_equal(device_at(addr), 0);
    assert_int_equal(cuMemUnmap(addr, 2 * PAGE), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(addr, 2 * PAGE), CUDA_SUCCESS);
}

static CUresult let(CUdeviceptr addr, size_t bytes, int device, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
                                    .flags = flags};
    return cuMemSetAccess(addr, bytes, &access, 1);
}

/* As on an H200: the context stays usable, and only refused calls do nothing. */
static void memory_without_access_is_refused(void **state)
{
    const CUmemAccess_flags all = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CUdeviceptr addr = 0;
    unsigned char seven = 7, got = 0;
    (void)state;
    assert_int_equal(cuMemAddressReserve(&addr, 2 * PAGE, 0, 0, 0), CUDA_SUCCESS);
    map(addr, 0);
    assert_int_equal(cuMemsetD8(addr, 7, 64), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemsetD8Async(addr, 7, 64, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyHtoD(addr, &seven, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoH(&got, addr, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoD(addr, addr + 64, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(let(addr, PAGE, 9, all), CUDA_ERROR_INVALID_VALUE); /* no such device */
    assert_int_equal(let(addr, 2 * PAGE, 0, all), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyHtoD(addr, &seven, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(let(addr, PAGE, 0, all), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoD(addr + PAGE - 1, &seven, 1), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH(&got, addr + PAGE - 1, 1), CUDA_SUCCESS);
    assert_int_equal(got, 7);
    map(addr + PAGE, 0); /* a copy to memory that no device may access */
    assert_int_equal(cuMemsetD8(addr + PAGE - 32, 9, 64), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemcpyDtoH(&got, addr + PAGE - 1, 1), CUDA_SUCCESS);
    assert_int_equal(got, 7);
    assert_int_equal(let(addr, PAGE, 1, all), CUDA_SUCCESS);
    assert_int_equal(let(addr, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH(&got, addr + PAGE - 1, 1),
                     CUDA_SUCCESS); /* the other device still has access */
    assert_int_equal(let(addr, PAGE, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH(&got, addr + PAGE - 1, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuCtxSynchronize(), CUDA_SUCCESS);
    assert_int_equal(cuMemUnmap(addr, 2 * PAGE), CUDA_SUCCESS);
    assert_int_equal(cuMemAddressFree(addr, 2 * PAGE), CUDA_SUCCESS);
}

static int begin(void **state)
{
    CUcontext context;
    (void)state;
    return cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
           cuCtxSetCurrent(context) != CUDA_SUCCESS;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_lies_where_it_was_made),
                                       cmocka_unit_test(memory_without_access_is_refused)};
    return cmocka_run_group_tests(tests, begin, NULL);
}
