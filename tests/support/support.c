/* SPDX-License-Identifier: MIT */
#include "support.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/sim/sim.h"

rvl_context *support_open(support_options options, fault_injector **fault_out)
{
    int count = options.devices > 0 ? options.devices : 1;
    rvl_profile profile = {.struct_size = sizeof profile};
    assert_int_equal(rvl_profile_find("h200", &profile), RVL_OK);
    profile.name = NULL;
    profile.capacity_bytes = options.capacity_bytes > 0 ? options.capacity_bytes : 64 * MIB;
    if (options.granularity_bytes > 0)
        profile.granularity_bytes = options.granularity_bytes;
    const rvl_profile *devices[RVL_MAX_DEVICES];
    for (int device = 0; device < count; device++)
        devices[device] = &profile;
    rvl_sim_options sim = {
        .struct_size = sizeof sim,
        .memory = options.memory,
        .flags = options.overcommit ? RVL_SIM_OVERCOMMIT : 0,
        .devices = devices,
        .device_count = (size_t)count,
    };
    rvl_context_options context_options = {
        .struct_size = sizeof context_options,
        .backend_options = &sim,
        .process_name = "test",
        .keep_bytes = options.keep_bytes,
        .flags = (options.no_verify ? RVL_CONTEXT_NO_VERIFY : 0u) |
                 (options.store_overflow ? RVL_CONTEXT_STORE_OVERFLOW : 0u) |
                 RVL_CONTEXT_DISK_TMPFS,
        .disk_directory = options.disk_directory,
        .store_path = options.store_path,
    };
    rvl_context *context = NULL;
    rvl_status status =
        fault_out != NULL ? fault_context_open(&rvli_sim_ops, &context_options, fault_out, &context)
                          : rvl_context_open("sim", &context_options, &context);
    assert_int_equal(status, RVL_OK);
    assert_non_null(context);
    return context;
}

rvl_addr support_alloc(rvl_context *context, const char *tag, int device, uint64_t size,
                       rvl_backup backup)
{
    rvl_addr addr = 0;
    rvl_alloc_options options = {
        .struct_size = sizeof options,
        .tag = tag,
        .device = device,
        .backup = backup,
    };
    assert_int_equal(rvl_alloc(context, size, &options, &addr), RVL_OK);
    assert_true(addr != 0);
    return addr;
}

rvl_tag support_tag(rvl_context *context, const char *name)
{
    rvl_tag tag = 0;
    assert_int_equal(rvl_tag_find(context, 0, name, &tag), RVL_OK);
    return tag;
}

static uint64_t pattern(uint64_t seed, uint64_t place)
{
    uint64_t word =
        (seed + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ place * UINT64_C(0xD6E8FEB86659FD93);
    return word ^ word >> 29;
}

/* One word in each page is enough to tell pages apart, and cheap. */
#define STRIDE_BYTES 4096u

void support_fill(rvl_addr addr, uint64_t size, uint64_t seed)
{
    for (uint64_t place = 0; place < size; place += STRIDE_BYTES)
        *(volatile uint64_t *)(uintptr_t)(addr + place) = pattern(seed, place);
}

bool support_holds(rvl_addr addr, uint64_t size, uint64_t seed)
{
    for (uint64_t place = 0; place < size; place += STRIDE_BYTES)
        if (*(volatile uint64_t *)(uintptr_t)(addr + place) != pattern(seed, place))
            return false;
    return true;
}

rvl_state support_state(rvl_context *context, rvl_addr addr)
{
    rvl_allocation allocation = {.struct_size = sizeof allocation};
    assert_int_equal(rvl_allocation_find(context, addr, &allocation), RVL_OK);
    return allocation.state;
}

rvl_device_stats support_stats(rvl_context *context, int device)
{
    rvl_device_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_device_get_stats(context, device, &stats), RVL_OK);
    return stats;
}

static bool sleeps(pid_t thread)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *behind_name = strrchr(text, ')');
    return behind_name != NULL && strncmp(behind_name, ") S", 3) == 0;
}

/* Several looks in a row: on its way it may have waited for a moment. */
bool support_await_sleep(_Atomic pid_t *thread)
{
    enum { LOOKS = 10, LOOKS_MAX = 10000 };
    int asleep = 0;
    for (int i = 0; i < LOOKS_MAX && asleep < LOOKS; i++) {
        usleep(1000);
        asleep = *thread != 0 && sleeps(*thread) ? asleep + 1 : 0;
    }
    return asleep == LOOKS;
}
