/* SPDX-License-Identifier: MIT */
/* The recorder by itself, in one process on the fake driver: what fails, and odd turns of events.
 */
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "fake.h"
#include "hooks/record/recorder.h"
#include "hooks/record/file.h"
#include "hooks/record/usage.h"
#include "tests/support/short_memory.h"

#define MIB (UINT64_C(1) << 20)

static char directory[] = "/tmp/reveille-recorder-XXXXXX";
static char path[64];
static char text[8192];

/* The linker lets calls of shared libraries come here, too. */
#define WRAP __attribute__((visibility("default")))

SHORT_MALLOC
SHORT_CALLOC
SHORT_REALLOC

rvl_status __real_rvli_addrmap_insert(void *map, uint64_t key, void *value);
WRAP rvl_status __wrap_rvli_addrmap_insert(void *map, uint64_t key, void *value);
rvl_status __wrap_rvli_addrmap_insert(void *map, uint64_t key, void *value)
{
    return short_memory_refuses() ? RVL_ERR_HOST_OOM : __real_rvli_addrmap_insert(map, key, value);
}

/* ---- In a process of its own, each ---- */

static void start(void)
{
    const rvli_recorder_options options = {path, "test", 0};
    assert_int_equal(rvli_recorder_start(&options), RVL_OK);
}

static void take(rvli_recorded_space space, uint64_t key, uint64_t size_bytes, const char *tag,
                 int device)
{
    const rvli_recorded what = {.size_bytes = size_bytes, .tag = tag, .device = device};
    rvli_recorder_alloc(space, key, &what);
}

/* The events of the only file, without time, process and thread. */
static void read_events(void)
{
    char line[512], name[512] = "";
    text[0] = '\0';
    DIR *entries = opendir(directory);
    for (struct dirent *each; (each = readdir(entries)) != NULL;)
        if (each->d_name[0] != '.')
            snprintf(name, sizeof name, "%s/%s", directory, each->d_name);
    closedir(entries);
    FILE *file = fopen(name, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char kind[16];
        int rest = 0;
        size_t length = strlen(text);
        if (sscanf(line, "%15s %*u %*s %*u%n", kind, &rest) == 1 && rest > 0)
            snprintf(text + length, sizeof text - length, "%s%s", kind, line + rest);
        else if (strncmp(line, "end ", 4) == 0)
            snprintf(text + length, sizeof text - length, "end\n");
    }
    if (file != NULL)
        fclose(file);
}

static void in_child(void (*test)(void))
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        test();
        exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    read_events();
    char command[96];
    snprintf(command, sizeof command, "rm -f %s/*", directory);
    assert_int_equal(system(command), 0);
}

/* ---- Odd turns ---- */

/* One number in either space; an address that comes again; keys that nobody knows; device by
 * number, and one that there is not. */
static void keys(void)
{
    rvli_recorded was;
    start();
    take(RVLI_RECORDED_ADDRESS, 0x1000, 2 * MIB, NULL, 0);
    take(RVLI_RECORDED_HANDLE, 0x1000, 4 * MIB, NULL, 1);
    take(RVLI_RECORDED_ADDRESS, 0x1000, 6 * MIB, "a", 0);
    take(RVLI_RECORDED_ADDRESS, 0x2000, 6 * MIB, NULL, 64);
    take(RVLI_RECORDED_ADDRESS, 0x2000, 6 * MIB, NULL, -1); /* there is no context */
    take(RVLI_RECORDED_ADDRESS, 0x2000, 0, NULL, 0);
    assert_false(rvli_recorder_free(RVLI_RECORDED_ADDRESS, 0x2000, &was));
    assert_true(rvli_recorder_free(RVLI_RECORDED_HANDLE, 0x1000, &was));
    assert_int_equal(was.id, 2);
    assert_int_equal(was.size_bytes, 4 * MIB);
    assert_int_equal(was.device, 1);
    assert_true(rvli_recorder_free(RVLI_RECORDED_ADDRESS, 0x1000, NULL));
    assert_false(rvli_recorder_free(RVLI_RECORDED_ADDRESS, 0x1000, NULL));
    assert_true(rvli_recorder_try_close());
    rvli_recorder_close();
}

static void test_keys(void **state)
{
    (void)state;
    in_child(keys);
    assert_string_equal(text, "alloc 1 0 2097152 -\nalloc 2 1 4194304 -\nfree 1\n"
                              "alloc 3 0 6291456 a\nfree 2\nfree 3\nend\n");
}

/* A handle that somebody else holds, too, is freed with the last of them. */
static void held(void)
{
    start();
    rvli_recorder_retain(RVLI_RECORDED_HANDLE, 0x1000); /* nobody knows it, nor after it */
    take(RVLI_RECORDED_HANDLE, 0x1000, 4 * MIB, NULL, 1);
    rvli_recorder_retain(RVLI_RECORDED_HANDLE, 0x1000);
    rvli_recorder_retain(RVLI_RECORDED_HANDLE, 0x1000);
    rvli_recorder_retain(RVLI_RECORDED_HANDLE, 0x2000);
    assert_false(rvli_recorder_free(RVLI_RECORDED_HANDLE, 0x1000, NULL));
    assert_false(rvli_recorder_free(RVLI_RECORDED_HANDLE, 0x1000, NULL));
    assert_int_equal(rvli_recorder_step(), RVL_OK);
    assert_true(rvli_recorder_free(RVLI_RECORDED_HANDLE, 0x1000, NULL));
    assert_false(rvli_recorder_free(RVLI_RECORDED_HANDLE, 0x1000, NULL));
    rvli_recorder_close();
    rvli_recorder_retain(RVLI_RECORDED_HANDLE, 0x1000);
}

static void test_held(void **state)
{
    (void)state;
    in_child(held);
    assert_string_equal(text, "alloc 1 1 4194304 -\nstep\nfree 1\nend\n");
}

static void find_entry(const char *name, void *function_out)
{
    void *function = NULL;
    assert_int_equal(cuGetProcAddress(name, &function, 12000, 0, NULL), CUDA_SUCCESS);
    memcpy(function_out, &function, sizeof function);
}

/* What lies in a device's context goes with it: not handles, nor regions, nor what is elsewhere. */
static void contexts(void)
{
    CUcontext context;
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*release)(CUdevice);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    find_entry("cuDevicePrimaryCtxRetain", &retain);
    find_entry("cuDevicePrimaryCtxRelease", &release);
    start();
    rvli_recorder_context_reset(0);
    rvli_recorder_context_released(0); /* nobody has asked the driver yet */
    take(RVLI_RECORDED_ADDRESS, 0x1000, 2 * MIB, NULL, 0);
    take(RVLI_RECORDED_ADDRESS, 0x2000, 2 * MIB, NULL, 1);
    take(RVLI_RECORDED_ADDRESS, 0x3000, 2 * MIB, "a", 0);
    take(RVLI_RECORDED_ADDRESS, 0x4000, 2 * MIB, NULL, 0);
    take(RVLI_RECORDED_HANDLE, 0x1000, 2 * MIB, NULL, 0);
    rvli_recorder_context_reset(-1);
    rvli_recorder_context_reset(64);
    assert_int_equal(retain(&context, 0), CUDA_SUCCESS);
    rvli_recorder_context_released(0); /* others have it still */
    assert_int_equal(rvli_recorder_step(), RVL_OK);
    assert_int_equal(release(0), CUDA_SUCCESS);
    rvli_recorder_context_released(0);
    rvli_recorder_context_reset(0);
    assert_int_equal(rvli_recorder_step(), RVL_OK);
    rvli_recorder_context_reset(1);
    rvli_recorder_close();
    rvli_recorder_context_reset(0);
}

static void test_contexts(void **state)
{
    (void)state;
    in_child(contexts);
    assert_string_equal(text, "alloc 1 0 2097152 -\nalloc 2 1 2097152 -\nalloc 3 0 2097152 a\n"
                              "alloc 4 0 2097152 -\nalloc 5 0 2097152 -\nstep\nfree 1\nfree 4\n"
                              "step\nfree 2\nfree 3\nfree 5\nend\n");
}

static bool first_is_paused(uint64_t addr)
{
    return addr == 0x1000;
}

/* A pause that fails takes back what it has told, and nothing else. */
static void pauses(void)
{
    start();
    take(RVLI_RECORDED_ADDRESS, 0x1000, 2 * MIB, "a", 0);
    take(RVLI_RECORDED_ADDRESS, 0x2000, 2 * MIB, "b", 0);
    rvli_recorder_pause("a");
    rvli_recorder_pause(NULL);
    rvli_recorder_settle(NULL, first_is_paused); /* what was paused before is so still */
    take(RVLI_RECORDED_ADDRESS, 0x3000, 2 * MIB, "a", 0);
    rvli_recorder_pause("a");
    rvli_recorder_resume("never");
    rvli_recorder_resume(NULL);
    rvli_recorder_close();
}

static void test_pauses(void **state)
{
    (void)state;
    in_child(pauses);
    assert_string_equal(text, "alloc 1 0 2097152 a\nalloc 2 0 2097152 b\npause a\npause b\n"
                              "resume b\nalloc 3 0 2097152 a\npause a\nresume b\nresume a\n"
                              "free 1\nfree 2\nfree 3\nend\n");
}

/* A tag that is paused in part is written as memory that begins paused. */
static void parts(void)
{
    start();
    take(RVLI_RECORDED_ADDRESS, 0x1000, 2 * MIB, "a", 0);
    take(RVLI_RECORDED_ADDRESS, 0x2000, 4 * MIB, "a", 0);
    take(RVLI_RECORDED_ADDRESS, 0x3000, 2 * MIB, NULL, 0);
    take(RVLI_RECORDED_ADDRESS, 0x4000, 2 * MIB, "", 0);
    rvli_recorder_pause("a");
    rvli_recorder_settle("a", first_is_paused);
    rvli_recorder_pause("a");
    rvli_recorder_settle("a", first_is_paused);
    rvli_recorder_resume("a");
    rvli_recorder_pause("");
    rvli_recorder_settle("", first_is_paused);
    rvli_recorder_close();
}

static void test_parts(void **state)
{
    (void)state;
    in_child(parts);
    assert_string_equal(text, "alloc 1 0 2097152 a\nalloc 2 0 4194304 a\nalloc 3 0 2097152 -\n"
                              "alloc 4 0 2097152 \"\"\npause a\nfree 1\nresume a\n"
                              "alloc 5 0 2097152 a flags=paused\npause a\nfree 5\nresume a\n"
                              "alloc 6 0 2097152 a flags=paused\nresume a\npause \"\"\n"
                              "resume \"\"\nfree 6\nfree 2\nfree 3\nfree 4\nend\n");
}

static void off(void)
{
    take(RVLI_RECORDED_ADDRESS, 0x1000, 2 * MIB, "a", 0);
    assert_false(rvli_recorder_free(RVLI_RECORDED_ADDRESS, 0x1000, NULL));
    rvli_recorder_pause(NULL);
    rvli_recorder_settle(NULL, first_is_paused);
    rvli_recorder_resume(NULL);
    assert_int_equal(rvli_recorder_growth_begin(RVLI_GROWTH_CONTEXT, 0), RVLI_RECORDER_UNMEASURED);
    rvli_recorder_growth_end(RVLI_GROWTH_CONTEXT, 0, RVLI_RECORDER_UNMEASURED);
    assert_int_equal(rvli_recorder_stage("a"), RVL_OK);
    assert_int_equal(rvli_recorder_step(), RVL_OK);
    assert_true(rvli_recorder_try_close());
    rvli_recorder_close();
    assert_false(rvli_recorder_on());
}

static void test_off(void **state)
{
    (void)state;
    in_child(off);
    assert_string_equal(text, "");
}

/* ---- Host memory ---- */

static void no_memory(void)
{
    start();
    short_memory_refuse_nth(1);
    assert_int_equal(rvli_recorder_stage("early"), RVL_ERR_HOST_OOM); /* its name */
    assert_int_equal(rvli_recorder_stage("early"), RVL_OK);
    for (int i = 0; i < 15; i++)
        assert_int_equal(rvli_recorder_step(), RVL_OK);
    short_memory_refuse_nth(1);
    assert_int_equal(rvli_recorder_step(), RVL_ERR_HOST_OOM); /* the 17th mark */
    short_memory_refuse_nth(1);
    assert_int_equal(rvli_usage_load(), RVL_ERR_HOST_OOM);
    take(RVLI_RECORDED_ADDRESS, 0x1000, 2 * MIB, NULL, 0);
    short_memory_refuse_nth(1); /* the tag */
    take(RVLI_RECORDED_ADDRESS, 0x2000, 2 * MIB, "a", 0);
    assert_true(short_memory_has_refused());
    short_memory_refuse_nth(1); /* the entry */
    take(RVLI_RECORDED_ADDRESS, 0x2000, 2 * MIB, NULL, 0);
    assert_true(short_memory_has_refused());
    assert_false(rvli_recorder_free(RVLI_RECORDED_ADDRESS, 0x2000, NULL));
    take(RVLI_RECORDED_ADDRESS, 0x3000, 4 * MIB, "a", 0);
    rvli_recorder_close();
}

static void test_no_memory(void **state)
{
    (void)state;
    in_child(no_memory);
    const char *marks = "stage early\nstep\nstep\nstep\nstep\nstep\nstep\nstep\nstep\nstep\nstep\n"
                        "step\nstep\nstep\nstep\nstep\n";
    assert_memory_equal(text, marks, strlen(marks));
    assert_string_equal(text + strlen(marks), "alloc 1 0 2097152 -\nalloc 2 0 4194304 a\n"
                                              "free 1\nfree 2\nend\n");
}

/* Whatever is short when the file begins: it is told, and the program goes on. */
static void no_memory_for_the_file(void)
{
    assert_int_equal(rvli_usage_load(), RVL_OK);
    for (unsigned nth = 1; nth <= 2; nth++) {
        start();
        short_memory_refuse_nth(nth);
        take(RVLI_RECORDED_ADDRESS, 0x1000, 2 * MIB, NULL, 0);
        assert_true(short_memory_has_refused());
        short_memory_refuse_nth(0);
        assert_false(rvli_recorder_on());
    }
}

static void test_no_memory_for_the_file(void **state)
{
    (void)state;
    in_child(no_memory_for_the_file);
}

/* ---- The driver ---- */

static void no_driver(void)
{
    setenv("RVL_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
    start();
    take(RVLI_RECORDED_ADDRESS, 0x1000, 2 * MIB, NULL, 0);
    assert_false(rvli_recorder_on());
    assert_int_equal(rvli_usage_load(), RVL_ERR_NO_DRIVER);
    start();
    assert_int_equal(rvli_recorder_stage("lost"), RVL_OK);
    rvli_recorder_close();
}

static void old_driver(void)
{
    fake_configure(&(fake_config){.missing_symbol = "cuDevicePrimaryCtxGetState"});
    assert_int_equal(rvli_usage_load(), RVL_ERR_DRIVER_TOO_OLD);
    assert_non_null(strstr(rvli_error_get()->message, "cuDevicePrimaryCtxGetState"));
}

static void no_device(void)
{
    fake_configure(&(fake_config){.devices = -1});
    assert_int_equal(rvli_usage_load(), RVL_ERR_NO_DEVICE);
}

static void silent_device(void)
{
    uint64_t used_bytes = 0;
    assert_true(fake_fail("cuDeviceTotalMem", 1, CUDA_ERROR_UNKNOWN, false));
    assert_int_equal(rvli_usage_load(), RVL_ERR_NO_DEVICE);
    assert_true(fake_fail("cuMemGetAllocationGranularity", 1, CUDA_ERROR_UNKNOWN, false));
    assert_int_equal(rvli_usage_load(), RVL_OK);
    assert_int_equal(rvli_usage_count(), 2);
    assert_int_equal(rvli_usage_device_at(0)->granularity_bytes, 2 * MIB);
    assert_int_equal(rvli_usage_device_at(1)->place, 1);
    assert_false(rvli_usage_device_at(1)->always);
    assert_int_equal(rvli_usage_current(), -1);
    assert_false(rvli_usage_read(0, &used_bytes));
}

static void test_drivers(void **state)
{
    (void)state;
    in_child(no_driver);
    assert_string_equal(text, "");
    in_child(old_driver);
    in_child(no_device);
    in_child(silent_device);
}

/* ---- Names ---- */

static void assert_pattern(const char *given, const char *wanted)
{
    char pattern[PATH_MAX];
    assert_int_equal(rvli_record_file_pattern(given, pattern), RVL_OK);
    assert_string_equal(pattern, wanted);
}

static void test_names(void **state)
{
    (void)state;
    char pattern[PATH_MAX], here[PATH_MAX], whole[PATH_MAX + 16], name[400];
    static char longest[PATH_MAX + 8];
    assert_pattern("/a/run.rvt", "/a/run.%p.rvt");
    assert_pattern("/a.b/run", "/a.b/run.%p");
    assert_pattern("/a/.run", "/a/.run.%p");
    assert_pattern("/a/%p-%%.rvt", "/a/%p-%%.rvt");
    assert_non_null(getcwd(here, sizeof here));
    snprintf(whole, sizeof whole, "%s/run.%%p.rvt", here);
    assert_pattern("run.rvt", whole);
    memset(longest, 'a', sizeof longest - 1);
    longest[0] = '/';
    assert_int_equal(rvli_record_file_pattern(longest, pattern), RVL_ERR_INVALID);
    assert_int_equal(rvli_record_file_check(longest), RVL_ERR_INVALID);
    assert_int_equal(rvli_record_file_check(directory), RVL_ERR_IO);
    assert_string_equal(rvli_error_get()->native_name, "EISDIR");
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(rvli_recorder_start(&(rvli_recorder_options){path, name, 0}), RVL_ERR_INVALID);
    assert_int_equal(rvli_recorder_start(&(rvli_recorder_options){path, "", 0}), RVL_ERR_INVALID);
    assert_int_equal(rvli_recorder_start(&(rvli_recorder_options){"/nowhere/run.rvt", NULL, 0}),
                     RVL_ERR_IO);
    assert_false(rvli_recorder_on());
}

static int begin(void **state)
{
    (void)state;
    setenv("RVL_NVML_LIBRARY", "/nowhere/libnvidia-ml.so", 1);
    bool good = mkdtemp(directory) != NULL;
    snprintf(path, sizeof path, "%s/run.rvt", directory);
    return good ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    return rmdir(directory);
}

int main(void)
{
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),      cmocka_unit_test(test_held),
        cmocka_unit_test(test_contexts),  cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_parts),     cmocka_unit_test(test_off),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_no_memory_for_the_file),
        cmocka_unit_test(test_drivers),   cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
