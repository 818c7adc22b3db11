/* SPDX-License-Identifier: MIT */
/*
 * A program that runs under a hook library: one process a scenario, so that each begins with a
 * library that nobody has used. test_hooks.c says how each is run and how it must end.
 */
#ifndef RVL_TESTS_HOOKS_PROGRAM_H
#define RVL_TESTS_HOOKS_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "cudart_fake.h"
#include "fake.h"
#include "reveille/hooks.h"
#include "reveille/reveille.h"

#define MIB (UINT64_C(1) << 20)
#define SIZE (4 * MIB)

/* The hook's functions, found as ctypes finds them. */
typedef struct hook {
    bool preload;
    void *library;
    void *(*tms_torch_malloc)(ssize_t size, int device, void *stream);
    void (*tms_torch_free)(void *pointer, ssize_t size, int device, void *stream);
    void (*tms_set_current_tag)(const char *tag);
    const char *(*tms_get_current_tag)(void);
    void (*tms_set_interesting_region)(bool on);
    bool (*tms_get_interesting_region)(void);
    void (*tms_set_enable_cpu_backup)(bool on);
    bool (*tms_get_enable_cpu_backup)(void);
    void (*tms_set_cpu_backup_backend)(const char *kind);
    const char *(*tms_get_cpu_backup_backend)(void);
    void (*tms_set_enable_disk_backup)(bool on);
    bool (*tms_get_enable_disk_backup)(void);
    void (*tms_set_disk_backup_dir)(const char *directory);
    int (*tms_pause)(const char *tag);
    int (*tms_resume)(const char *tag);
    void (*set_memory_margin_bytes)(uint64_t bytes);
    void (*tms_set_retain_cpu_backup)(bool on);
    bool (*tms_get_retain_cpu_backup)(void);
    uint8_t *(*tms_get_cpu_backup_pointer)(const uint8_t *gpu, uint64_t bytes);
    int (*cudaGetLastError)(void);
    int (*cudaHostGetFlags)(unsigned *flags, void *pointer);
    rvl_status (*rvl_hooks_get_context)(int device, rvl_context **context_out);
    rvl_status (*rvl_hooks_get_context_at)(size_t index, int *device_out,
                                           rvl_context **context_out);
    rvl_status (*rvl_hooks_pause)(const char *tag);
    rvl_status (*rvl_hooks_resume)(const char *tag);
    rvl_status (*rvl_hooks_check_settings)(void);
    const char *(*rvl_hooks_mode)(void);
    rvl_status (*rvl_last_error)(rvl_error *error_out);
    rvl_status (*rvl_pause)(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                            const rvl_pause_options *options);
    rvl_status (*rvl_resume)(rvl_context *context, const rvl_tag *tags, size_t tag_count,
                             const rvl_resume_options *options);
    rvl_status (*rvl_host_get_memory)(rvl_context *context, rvl_host_memory *memory_out);
    rvl_status (*rvl_sleep_forecast)(rvl_context *context, const rvl_sleep_options *options,
                                     rvl_forecast *forecast_out);
    rvl_status (*rvl_control_ask)(int process, const rvl_control_request *request,
                                  rvl_control_answer *answer_out);
} hook;

extern hook h;

typedef enum keeping { NOTHING, HOST, RECLAIMED, DISK } keeping;

/* Enters a region, allocates SIZE bytes filled with a value, and leaves it. */
uint8_t *in_region(const char *tag, keeping backup, int device, uint8_t value);
void *hook_malloc(size_t size, int device);
void hook_free(void *pointer);

void fill(uint8_t *at, uint8_t value);
bool holds(const uint8_t *at, uint8_t value);
uint64_t used(int device);
/* Whether the driver has registered host memory. */
bool registered(const void *host);

void expect_failed(const char *file, int line, const char *what, long long got, long long wanted);

#define EXPECT(got, wanted)                                                                        \
    do {                                                                                           \
        long long got_ = (long long)(got), wanted_ = (long long)(wanted);                          \
        if (got_ != wanted_)                                                                       \
            expect_failed(__FILE__, __LINE__, #got, got_, wanted_);                                \
    } while (false)
#define EXPECT_TEXT(got, wanted) EXPECT(strcmp(got, wanted), 0)

typedef struct scenario {
    const char *name;
    void (*run)(void);
} scenario;

/* Ends with a NULL name. */
extern const scenario abi_scenarios[];
extern const scenario process_scenarios[];

#endif
