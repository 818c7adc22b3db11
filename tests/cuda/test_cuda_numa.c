/* SPDX-License-Identifier: MIT */
/*
 * Host memory near the device that asks for it: files of the kernel and its call for placing are
 * those of a machine that the test makes up; the driver is the fake one.
 */
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "backends/cuda/numa.h"
#include "backends/cuda/pinned.h"
#include "fake.h"
#include "gpu.h"
#include "nothing_left.h"

#define CHUNK_BYTES (64 * MIB)
#define PLACINGS_MAX 16

/* ---- The machine ---- */

typedef struct file {
    const char *path;
    const char *text; /* NULL: there is no such file */
} file;

typedef struct placing {
    uint64_t at, size;
    int node;
} placing;

static file files[8];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static placing placings[PLACINGS_MAX];
static unsigned placing_count;

/* Visible, since a sanitizer's library names them too. */
#define WRAPPER __attribute__((visibility("default")))
FILE *__real_fopen(const char *path, const char *mode);
WRAPPER FILE *__wrap_fopen(const char *path, const char *mode);
WRAPPER long __wrap_syscall(long number, ...);

FILE *__wrap_fopen(const char *path, const char *mode)
{
    for (size_t i = 0; i < sizeof files / sizeof files[0] && files[i].path != NULL; i++)
        if (strcmp(path, files[i].path) == 0) {
            static char text[8][64];
            snprintf(text[i], sizeof text[i], "%s", files[i].text);
            return fmemopen(text[i], strlen(text[i]), "r");
        }
    return strncmp(path, "/sys/devices", 12) == 0 || strncmp(path, "/sys/bus", 8) == 0
               ? NULL
               : __real_fopen(path, mode);
}

static int only_node(const unsigned long *nodes, unsigned long count)
{
    int node = -1;
    for (unsigned long i = 0; i < count; i++)
        if (nodes[i / 64] >> i % 64 & 1) {
            assert_int_equal(node, -1);
            node = (int)i;
        }
    return node;
}

/* mbind alone is called by this name; it fails, which must not matter. */
long __wrap_syscall(long number, ...)
{
    va_list arguments;
    va_start(arguments, number);
    void *at = va_arg(arguments, void *);
    unsigned long size = va_arg(arguments, unsigned long);
    unsigned long mode = va_arg(arguments, unsigned long);
    const unsigned long *nodes = va_arg(arguments, unsigned long *);
    unsigned long bits = va_arg(arguments, unsigned long);
    unsigned long flags = va_arg(arguments, unsigned long);
    va_end(arguments);
    assert_int_equal(number, SYS_mbind);
    assert_int_equal(mode, MPOL_PREFERRED);
    assert_int_equal(flags, 0);
    pthread_mutex_lock(&lock);
    assert_true(placing_count < PLACINGS_MAX);
    placings[placing_count++] = (placing){(uintptr_t)at, size, only_node(nodes, bits - 1)};
    pthread_mutex_unlock(&lock);
    return -1;
}

static void set_machine(const char *online, const char *node_of_first, const char *node_of_second)
{
    const file made_up[] = {{"/sys/devices/system/node/online", online},
                            {"/sys/bus/pci/devices/0000:1a:00.0/numa_node", node_of_second},
                            {"/sys/bus/pci/devices/0000:19:00.0/numa_node", node_of_first}};
    size_t count = 0;
    memset(files, 0, sizeof files);
    for (size_t i = 0; i < sizeof made_up / sizeof made_up[0]; i++)
        if (made_up[i].text != NULL)
            files[count++] = made_up[i];
    placing_count = 0;
}

/* ---- Which node ---- */

static void nodes_are_read(void **state)
{
    (void)state;
    set_machine("0-1\n", "0\n", "1\n");
    assert_int_equal(rvli_numa_node_of("0000:19:00.0"), 0);
    assert_int_equal(rvli_numa_node_of("0000:1A:00.0"), 1);
    assert_int_equal(rvli_numa_node_of("0000:1a:00.0"), 1);
    assert_int_equal(rvli_numa_node_of("0000:1B:00.0"), RVLI_NUMA_ANY);
    assert_int_equal(rvli_numa_node_of(""), RVLI_NUMA_ANY);
    assert_int_equal(rvli_numa_node_of("0000:19:00.0 and much more than a name has"),
                     RVLI_NUMA_ANY);
    set_machine("0,2\n", "-1\n", "2\n");
    assert_int_equal(rvli_numa_node_of("0000:19:00.0"), RVLI_NUMA_ANY);
    assert_int_equal(rvli_numa_node_of("0000:1A:00.0"), 2);
    set_machine("0-1\n", "what\n", "1024\n");
    assert_int_equal(rvli_numa_node_of("0000:19:00.0"), RVLI_NUMA_ANY);
    assert_int_equal(rvli_numa_node_of("0000:1A:00.0"), RVLI_NUMA_ANY);
    set_machine("0\n", "0\n", "0\n"); /* one node is as near as any */
    assert_int_equal(rvli_numa_node_of("0000:19:00.0"), RVLI_NUMA_ANY);
    set_machine(NULL, "0\n", "1\n"); /* a kernel without NUMA */
    assert_int_equal(rvli_numa_node_of("0000:1A:00.0"), RVLI_NUMA_ANY);
}

static void placing_names_one_node(void **state)
{
    (void)state;
    static char page[4096];
    const int nodes[] = {0, 5, 64, 1023};
    set_machine(NULL, NULL, NULL);
    for (unsigned i = 0; i < 4; i++) {
        rvli_numa_prefer(page, sizeof page, nodes[i]);
        assert_int_equal(placing_count, i + 1);
        assert_int_equal(placings[i].at, (uintptr_t)page);
        assert_int_equal(placings[i].size, sizeof page);
        assert_int_equal(placings[i].node, nodes[i]);
    }
    rvli_numa_prefer(page, sizeof page, RVLI_NUMA_ANY);
    rvli_numa_prefer(page, sizeof page, 1024);
    assert_int_equal(placing_count, 4);
}

/* ---- Chunks ---- */

static rvl_context *open_context(rvl_host_keep keep)
{
    const rvl_cuda_options options = {.struct_size = sizeof options, .host_keep = keep};
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    return gpu_open(&options, NULL);
}

static void close_context(rvl_context *context)
{
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    check_nothing_left();
}

static char *host_alloc(rvl_context *context, int device, uint64_t size)
{
    void *host = NULL;
    assert_int_equal(context->ops.host_alloc(context->self, device, size, &host), RVL_OK);
    rvli_pinned_settle();
    return host;
}

static void host_free(rvl_context *context, char *host, uint64_t size)
{
    assert_int_equal(context->ops.host_free(context->self, 0, host, size), RVL_OK);
    rvli_pinned_settle();
}

static void check_placing(unsigned number, const char *at, int node)
{
    assert_true(number < placing_count);
    assert_int_equal(placings[number].at, (uintptr_t)at);
    assert_int_equal(placings[number].size, CHUNK_BYTES);
    assert_int_equal(placings[number].node, node);
}

static void chunks_are_near_who_asks(void **state)
{
    (void)state;
    set_machine("0-1\n", "0\n", "1\n");
    rvl_context *context = open_context(RVL_HOST_KEEP_ALL);
    char *first = host_alloc(context, 0, CHUNK_BYTES);
    char *second = host_alloc(context, 1, CHUNK_BYTES);
    assert_int_equal(placing_count, 2);
    check_placing(0, first, 0);
    check_placing(1, second, 1);
    assert_int_equal(rvli_pinned_get_facts().pinned_bytes, 2 * CHUNK_BYTES);
    host_free(context, first, CHUNK_BYTES);
    assert_ptr_equal(host_alloc(context, 1, CHUNK_BYTES), first); /* used again where it is */
    assert_int_equal(placing_count, 2);
    close_context(context);
}

static void chunks_made_again_are_placed_again(void **state)
{
    (void)state;
    set_machine("0-1\n", "0\n", "1\n");
    rvl_context *context = open_context(RVL_HOST_KEEP_NONE);
    char *host = host_alloc(context, 0, CHUNK_BYTES);
    host_free(context, host, CHUNK_BYTES);
    assert_ptr_equal(host_alloc(context, 0, CHUNK_BYTES), host);
    assert_int_equal(placing_count, 1); /* the wish still holds */
    host_free(context, host, CHUNK_BYTES);
    assert_ptr_equal(host_alloc(context, 1, CHUNK_BYTES), host);
    assert_int_equal(placing_count, 2);
    check_placing(0, host, 0);
    check_placing(1, host, 1);
    close_context(context);
}

static void nothing_is_placed_without_a_reason(void **state)
{
    (void)state;
    set_machine("0\n", "0\n", "0\n");
    rvl_context *context = open_context(RVL_HOST_KEEP_ALL);
    host_alloc(context, 0, CHUNK_BYTES);
    close_context(context);
    set_machine("0-1\n", "-1\n", NULL);
    context = open_context(RVL_HOST_KEEP_ALL);
    host_alloc(context, 0, CHUNK_BYTES);
    host_alloc(context, 1, CHUNK_BYTES);
    close_context(context);
    set_machine("0-1\n", "1\n", "1\n"); /* the driver does not say where the devices are */
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    assert_true(fake_fail("cuDeviceGetPCIBusId", 1, CUDA_ERROR_NOT_SUPPORTED, true));
    context = open_context(RVL_HOST_KEEP_ALL);
    host_alloc(context, 0, CHUNK_BYTES);
    close_context(context);
    assert_int_equal(placing_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_read),
        cmocka_unit_test(placing_names_one_node),
        cmocka_unit_test(chunks_are_near_who_asks),
        cmocka_unit_test(chunks_made_again_are_placed_again),
        cmocka_unit_test(nothing_is_placed_without_a_reason),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    if (!gpu_is_there())
        return 1;
    fake_reset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
