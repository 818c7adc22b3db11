/* SPDX-License-Identifier: MIT */
/*
 * What the tests of core share: a context on small simulated devices of backed memory. Its
 * addresses may be touched, and faults come on demand.
 */
#ifndef RVL_TESTS_SUPPORT_SUPPORT_H
#define RVL_TESTS_SUPPORT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "fault.h"
#include "reveille/reveille.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define GRANULE (2 * MIB)

typedef struct support_options {
    int devices;                /* 0: 1 */
    uint64_t capacity_bytes;    /* 0: 64 MiB */
    uint64_t granularity_bytes; /* 0: 2 MiB */
    rvl_sim_memory memory;
    bool overcommit;
    uint64_t keep_bytes;
    const char *disk_directory; /* in memory is fine */
    bool no_verify;
    const char *store_path;
    bool store_overflow;
} support_options;

/* Opens a context; fault_out may be NULL: no call fails then. Fails the test if it cannot. */
rvl_context *support_open(support_options options, fault_injector **fault_out);

/* Allocates under a tag of process 0 on a device; fails the test if it cannot. */
rvl_addr support_alloc(rvl_context *context, const char *tag, int device, uint64_t size,
                       rvl_backup backup);

/* Number of a tag of process 0. */
rvl_tag support_tag(rvl_context *context, const char *name);

/* Writes, or checks, a pattern that depends on the seed and the place. Backed memory only. */
void support_fill(rvl_addr addr, uint64_t size, uint64_t seed);
bool support_holds(rvl_addr addr, uint64_t size, uint64_t seed);

/* State of the allocation at addr; fails the test if there is none. */
rvl_state support_state(rvl_context *context, rvl_addr addr);

/*
 * Waits until another thread of this process, which has noted its number (gettid()) at `thread` and
 * gone into a call, sleeps there. false: it does not within ten seconds.
 */
bool support_await_sleep(_Atomic pid_t *thread);

/* Counters of a device. */
rvl_device_stats support_stats(rvl_context *context, int device);

#endif
