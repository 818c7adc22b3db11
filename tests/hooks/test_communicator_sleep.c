/* SPDX-License-Identifier: MIT */
/*
 * When a process with communicators of NCCL may sleep: the rule, on made-up communicators and
 * mappings. Of named ones on simulated GPUs: tests/simcuda/test_communicator_ranks.c.
 */
#include <stdio.h>
#include <string.h>

#include <cuda.h>

#include "base/error.h"
#include "reveille/communicator.h"
#include "reveille/cuda.h"
#include "tests/support/support.h"

/* ---- What the driver has mapped here ---- */

#define WRAP __attribute__((visibility("default"))) /* shared libraries name the same functions */

static const char maps[] = "1000-2000 rw-s 00000000 00:06 7    /dev/nvidiactl\n"
                           "3000-4000 rw-s 00000000 00:06 7    /usr/lib/libcuda.so.1\n"
                           "5000-6000 rw-p 00000000 00:00 0\n";

FILE *__real_fopen(const char *path, const char *mode);
WRAP FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode)
{
    return strcmp(path, "/proc/self/maps") == 0
               ? fmemopen((void *)(uintptr_t)maps, sizeof maps - 1, "r")
               : __real_fopen(path, mode);
}

static struct {
    bool there; /* the driver knows an allocation at 0x1000 */
    CUmemAllocationHandleType handles;
    CUmemLocationType location;
    const char *lacks; /* a function that this driver has not */
    unsigned retained, released;
} driver;

static CUresult retain(CUmemGenericAllocationHandle *handle_out, void *at)
{
    if (!driver.there || (uintptr_t)at != 0x1000)
        return CUDA_ERROR_INVALID_VALUE;
    driver.retained++;
    *handle_out = 7;
    return CUDA_SUCCESS;
}

static CUresult get_properties(CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    assert_int_equal(handle, 7);
    *properties = (CUmemAllocationProp){.requestedHandleTypes = driver.handles,
                                        .location.type = driver.location};
    return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
    driver.released += handle == 7;
    return CUDA_SUCCESS;
}

WRAP rvl_status __wrap_rvl_cuda_get_entry(const char *name, int cuda_version, void **entry_out);
rvl_status __wrap_rvl_cuda_get_entry(const char *name, int cuda_version, void **entry_out)
{
    static const struct {
        const char *name;
        uintptr_t function;
    } functions[] = {{"cuMemRetainAllocationHandle", (uintptr_t)retain},
                     {"cuMemGetAllocationPropertiesFromHandle", (uintptr_t)get_properties},
                     {"cuMemRelease", (uintptr_t)release}};
    (void)cuda_version;
    if (driver.lacks != NULL && strcmp(name, driver.lacks) == 0)
        return rvli_error(RVL_ERR_NOT_FOUND, "no such entry point");
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(name, functions[i].name) == 0)
            *entry_out = (void *)functions[i].function;
    return RVL_OK;
}

/* ---- The rule ---- */

static rvl_communicator communicator(int rank_count, rvl_state state, bool can_pause)
{
    return (rvl_communicator){.struct_size = sizeof(rvl_communicator),
                              .rank_count = rank_count,
                              .state = state,
                              .can_pause = can_pause};
}

static void check_refused(const rvl_communicator *all, size_t count, const char *message)
{
    assert_int_equal(rvl_communicator_check_sleep(all, count), RVL_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(rvli_error_get()->message, message));
    assert_string_equal(rvli_error_get()->tag, RVL_COMMUNICATOR_TAG);
}

static void what_is_not_paused_forbids_it(void **state)
{
    (void)state;
    static const rvl_state moving[] = {RVL_STATE_ACTIVE, RVL_STATE_PAUSING, RVL_STATE_RESUMING};
    driver.there = false;
    assert_int_equal(rvl_communicator_check_sleep(NULL, 0), RVL_OK);
    for (size_t i = 0; i < 3; i++) {
        const rvl_communicator all[] = {
            communicator(1, moving[i], true), communicator(2, RVL_STATE_PAUSED, true),
            communicator(2, moving[i], true), communicator(8, moving[i], true)};
        assert_int_equal(rvl_communicator_check_sleep(all, 2), RVL_OK);
        check_refused(all, 3, "1 communicator of NCCL connects this process with others, and no");
        check_refused(all, 4, "2 communicators of NCCL connect this process with others, and no");
        check_refused(all, 4, "pause them on all ranks (in Python by group=, or pause(\"nccl\"))");
    }
    const rvl_communicator old = communicator(2, RVL_STATE_ACTIVE, false);
    check_refused(&old, 1, "destroy them first; with NCCL 2.29.7 and later they can be paused");
}

static void what_is_not_understood_is_refused(void **state)
{
    (void)state;
    rvl_communicator one = {.struct_size = 1};
    assert_int_equal(rvl_communicator_check_sleep(NULL, 1), RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_check_sleep(&one, 1), RVL_ERR_INVALID);
}

/* A program of an older library has smaller ones. */
static void each_has_the_size_of_the_first(void **state)
{
    (void)state;
    enum { OLDER = offsetof(rvl_communicator, size_bytes) };
    char both[2 * OLDER];
    for (int i = 0; i < 2; i++) {
        rvl_communicator each =
            communicator(i + 1, i == 0 ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE, true);
        each.struct_size = OLDER;
        memcpy(both + i * OLDER, &each, OLDER);
    }
    const rvl_communicator *all = (const void *)both;
    assert_int_equal(rvl_communicator_check_sleep(all, 1), RVL_OK);
    check_refused(all, 2, "1 communicator of NCCL connects");
}

/* Paused or not: what the driver has mapped here tells. */
static void host_memory_that_is_shared_forbids_it(void **state)
{
    (void)state;
    static const struct {
        bool there;
        CUmemAllocationHandleType handles;
        CUmemLocationType location;
        const char *lacks;
        bool shared;
    } kinds[] = {
        {true, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_HOST_NUMA, NULL, false},
        {true, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_DEVICE, NULL, false},
        {true, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_HOST_NUMA, NULL,
         true},
        {true, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_HOST, NULL, true},
        {true, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_LOCATION_TYPE_HOST, "cuMemRelease",
         false},
        {false, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_INVALID, NULL, false},
    };
    const rvl_communicator paused = communicator(2, RVL_STATE_PAUSED, true);
    const rvl_communicator alone = communicator(1, RVL_STATE_PAUSED, true);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        driver.there = kinds[i].there;
        driver.handles = kinds[i].handles;
        driver.location = kinds[i].location;
        driver.lacks = kinds[i].lacks;
        driver.retained = driver.released = 0;
        rvli_error(RVL_ERR_VETOED, "an error of before");
        assert_int_equal(rvl_communicator_check_sleep(&alone, 1), RVL_OK);
        assert_int_equal(driver.retained, 0);
        if (kinds[i].shared)
            check_refused(&paused, 1, "set NCCL_CUMEM_HOST_ENABLE=0 for all ranks, or destroy");
        else
            assert_int_equal(rvl_communicator_check_sleep(&paused, 1), RVL_OK);
        assert_int_equal(rvli_error_get()->status,
                         kinds[i].shared ? RVL_ERR_NOT_SUPPORTED : RVL_ERR_VETOED);
        assert_int_equal(driver.retained, kinds[i].there && kinds[i].lacks == NULL);
        assert_int_equal(driver.released, driver.retained);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_paused_forbids_it),
        cmocka_unit_test(what_is_not_understood_is_refused),
        cmocka_unit_test(each_has_the_size_of_the_first),
        cmocka_unit_test(host_memory_that_is_shared_forbids_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
