/* SPDX-License-Identifier: MIT */
/* What the tests of the fake share: its entry points, loaded as the code under test loads them. */
#ifndef RVL_TESTS_CUDA_FAKE_DRIVER_H
#define RVL_TESTS_CUDA_FAKE_DRIVER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake.h"

#define MIB (UINT64_C(1) << 20)
#define GRANULE (2 * MIB)
#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef struct driver {
#define DRIVER_POINTER(name, version) __typeof__(&name) name;
    FAKE_ENTRY_MAP(DRIVER_POINTER)
#undef DRIVER_POINTER
} driver;

extern driver cu;

/* Setup of a group: opens the library and loads every entry point. */
int driver_load(void **state);

/* Setup of a test: initialized, with the primary context of device 0 current in this thread. */
int driver_start(void **state);
/* Its teardown: everything back to the beginning, and nothing may be left but that context. */
int driver_end(void **state);

/* A block of device 0. */
CUmemGenericAllocationHandle driver_create(uint64_t size);
/* A reserved range. */
CUdeviceptr driver_reserve(uint64_t size);
CUresult driver_access(CUdeviceptr addr, uint64_t size, int device, CUmemAccess_flags flags);
/* A block mapped alone in a range, readable and writable for device 0; and its end. */
CUdeviceptr driver_map(uint64_t size);
void driver_unmap(CUdeviceptr addr, uint64_t size);
CUmemAllocationProp driver_properties(int device);

/* The bytes of mapped device memory. */
static inline unsigned char *bytes_at(CUdeviceptr addr)
{
    return (unsigned char *)(uintptr_t)addr;
}

int test_memory(void);
int test_host(void);
int test_streams(void);

#endif
