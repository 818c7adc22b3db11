/* SPDX-License-Identifier: MIT */
/*
 * Loading the CUDA driver, the options of a context, and the caller's current context.
 *
 * Loading succeeds once in a process. What makes it fail is therefore tried in forked children,
 * which tell what they were answered; then the cause is taken away and the same child must succeed.
 * Linked with --wrap=dlopen, so that a machine with a driver is as good as one without.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake.h"
#include "gpu.h"
#include "nothing_left.h"

#define DEFAULT_LIBRARY "libcuda.so.1"

void *__real_dlopen(const char *path, int flags);
__attribute__((visibility("default"))) void *__wrap_dlopen(const char *path, int flags);
void *__wrap_dlopen(const char *path, int flags)
{
    return strcmp(path, DEFAULT_LIBRARY) == 0 ? NULL : __real_dlopen(path, flags);
}

/* ---- Loading, in a child ---- */

/* What a child was answered. */
typedef struct answer {
    rvl_status first;  /* with the cause */
    rvl_status second; /* without */
    bool opened;       /* the first left a context */
    bool table_used;   /* the first left a pointer into a library that is closed */
    rvl_error error;   /* of the first */
} answer;

typedef struct trouble {
    const char *variable; /* of the environment; NULL: none is set */
    const char *value;
    const char *symbol; /* its first call fails; NULL: none does */
    CUresult result;
} trouble;

static void make_trouble(const trouble *t)
{
    if (t->variable != NULL)
        setenv(t->variable, t->value, 1);
    if (t->symbol != NULL)
        fake_fail(t->symbol, 1, t->result, false);
}

static void end_trouble(const trouble *t)
{
    if (t->variable != NULL)
        unsetenv(t->variable);
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    fake_reset();
}

static answer open_twice(const trouble *t)
{
    answer a;
    memset(&a, 0, sizeof a);
    a.error.struct_size = sizeof a.error;
    rvl_context *context = NULL;
    make_trouble(t);
    a.first = rvl_context_open("cuda", NULL, &context);
    a.opened = context != NULL;
    a.table_used = rvli_cuda.cuGetErrorName != NULL;
    rvl_last_error(&a.error);
    end_trouble(t);
    a.second = rvl_context_open("cuda", NULL, &context);
    if (a.second == RVL_OK)
        a.second = rvl_context_close(context, NULL);
    return a;
}

static answer ask_child(trouble t)
{
    int ends[2], ended = -1;
    answer a;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        a = open_twice(&t);
        exit(write(ends[1], &a, sizeof a) == (ssize_t)sizeof a ? 0 : 1);
    }
    close(ends[1]);
    assert_int_equal(read(ends[0], &a, sizeof a), sizeof a);
    close(ends[0]);
    assert_int_equal(waitpid(child, &ended, 0), child);
    assert_int_equal(ended, 0);
    return a;
}

static answer check_refused(trouble t, rvl_status status, const char *cause, const char *remedy)
{
    answer a = ask_child(t);
    assert_int_equal(a.first, status);
    assert_int_equal(a.error.status, status);
    assert_false(a.opened);
    assert_false(a.table_used);
    if (strstr(a.error.message, cause) == NULL || strstr(a.error.message, remedy) == NULL)
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", a.error.message, cause, remedy);
    assert_int_equal(a.second, RVL_OK);
    return a;
}

static void a_missing_library_is_no_driver(void **state)
{
    (void)state;
    check_refused((trouble){.variable = "RVL_CUDA_LIBRARY", .value = "/nowhere/libcuda.so.1"},
                  RVL_ERR_NO_DRIVER, "/nowhere/libcuda.so.1, which RVL_CUDA_LIBRARY names, ",
                  "unset it, or name a driver");
    check_refused((trouble){.variable = "RVL_CUDA_LIBRARY", .value = ""}, RVL_ERR_NO_DRIVER,
                  "no CUDA driver: " DEFAULT_LIBRARY, "is the NVIDIA driver installed?");
}

/* One without cuGetProcAddress_v2 may be a driver, of the time before that was there. */
static void another_library_is_too_old(void **state)
{
    (void)state;
    check_refused((trouble){.variable = "RVL_CUDA_LIBRARY", .value = "libm.so.6"},
                  RVL_ERR_DRIVER_TOO_OLD, "libm.so.6 has no cuGetProcAddress_v2",
                  "install a driver of CUDA 12.0 or newer");
}

static void an_old_driver_is_too_old(void **state)
{
    (void)state;
    const char *variable = "FAKE_CUDA_DRIVER_VERSION";
    check_refused((trouble){.variable = variable, .value = "11080"}, RVL_ERR_DRIVER_TOO_OLD,
                  "older than CUDA 12.0", "install a newer one");
    check_refused((trouble){.variable = variable, .value = "10010"}, RVL_ERR_DRIVER_TOO_OLD,
                  "lacks cuDevicePrimaryCtxRelease", "install a driver of CUDA 12.0 or newer");
    answer a = ask_child((trouble){.variable = variable, .value = "12000"});
    assert_int_equal(a.first, RVL_OK);
    check_refused((trouble){.symbol = "cuDriverGetVersion", .result = CUDA_ERROR_INVALID_VALUE},
                  RVL_ERR_DRIVER_TOO_OLD, "older than CUDA 12.0", "install a newer one");
}

static void every_entry_point_is_asked_for(void **state)
{
    (void)state;
    static const char *const names[] = {
#define NAME(name, version) #name,
        RVLI_CUDA_ENTRY_MAP(NAME)
#undef NAME
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char cause[80] = "the CUDA driver lacks ";
        strncat(cause, names[i], sizeof cause - strlen(cause) - 2);
        strcat(cause, ":");
        check_refused((trouble){.variable = "FAKE_CUDA_MISSING_SYMBOL", .value = names[i]},
                      RVL_ERR_DRIVER_TOO_OLD, cause, "install a driver");
    }
}

static void no_device_is_said_to_be_none(void **state)
{
    (void)state;
    const char *cause = "finds no device", *remedy = "see nvidia-smi";
    check_refused((trouble){.variable = "FAKE_CUDA_DEVICES", .value = "-1"}, RVL_ERR_NO_DEVICE,
                  cause, remedy);
    check_refused((trouble){.symbol = "cuInit", .result = CUDA_ERROR_NO_DEVICE}, RVL_ERR_NO_DEVICE,
                  cause, remedy);
    check_refused((trouble){.symbol = "cuDeviceGetCount", .result = CUDA_ERROR_NOT_INITIALIZED},
                  RVL_ERR_NO_DEVICE, cause, remedy);
}

static void a_driver_that_does_not_start_is_none(void **state)
{
    (void)state;
    answer a =
        check_refused((trouble){.symbol = "cuInit", .result = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH},
                      RVL_ERR_NO_DRIVER, "does not start", "see nvidia-smi");
    assert_int_equal(a.error.native_code, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
    assert_string_equal(a.error.native_name, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH");
}

/* ---- Options ---- */

static void check_options(const rvl_cuda_options *cuda, rvl_status status, const char *cause)
{
    rvl_context *context = NULL;
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = cuda};
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    assert_int_equal(rvl_context_open("cuda", &options, &context), status);
    if (status == RVL_OK) {
        assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    } else {
        assert_null(context);
        assert_non_null(strstr(rvli_error_get()->message, cause));
    }
    check_nothing_left();
}

static void check_devices(const int *devices, size_t count, rvl_status status, const char *cause)
{
    const rvl_cuda_options cuda = {
        .struct_size = sizeof cuda, .devices = devices, .device_count = count};
    check_options(&cuda, status, cause);
}

static void wrong_device_lists_are_refused(void **state)
{
    (void)state;
    const int good[] = {1, 0}, twice[] = {0, 1, 0}, beyond[] = {0, 2}, below[] = {-1};
    int many[RVL_MAX_DEVICES + 1];
    for (int i = 0; i <= RVL_MAX_DEVICES; i++)
        many[i] = i;
    check_devices(good, 2, RVL_OK, "");
    check_devices(NULL, 5, RVL_OK, ""); /* all of them; the count says nothing */
    check_devices(good, 0, RVL_ERR_INVALID, "1 to 64 devices");
    check_devices(many, RVL_MAX_DEVICES + 1, RVL_ERR_INVALID, "1 to 64 devices");
    check_devices(twice, 3, RVL_ERR_INVALID, "listed twice");
    check_devices(beyond, 2, RVL_ERR_NO_DEVICE, "CUDA_ERROR_INVALID_DEVICE");
    check_devices(below, 1, RVL_ERR_NO_DEVICE, "CUDA_ERROR_INVALID_DEVICE");
}

static void the_list_is_the_order(void **state)
{
    (void)state;
    const int reversed[] = {1, 0};
    const rvl_cuda_options cuda = {
        .struct_size = sizeof cuda, .devices = reversed, .device_count = 2};
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    rvl_context *context = gpu_open(&cuda, NULL);
    assert_int_equal(rvl_device_count(context), 2);
    support_alloc(context, "weights", 0, 6 * MIB, RVL_BACKUP_NONE);
    assert_int_equal(fake_stats_get().used_bytes[1], 6 * MIB);
    assert_int_equal(fake_stats_get().used_bytes[0], 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    check_nothing_left();
}

/* One more than a context has room for. */
static CUresult count_too_many(int *count)
{
    *count = RVL_MAX_DEVICES + 1;
    return CUDA_SUCCESS;
}

static void more_devices_than_a_context_has_are_left_out(void **state)
{
    (void)state;
    const fake_config config = {.devices = RVL_MAX_DEVICES};
    const rvli_cuda_driver driver = rvli_cuda;
    fake_configure(&config);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    rvli_cuda.cuDeviceGetCount = count_too_many;
    rvl_context *context = gpu_open(NULL, NULL);
    rvli_cuda = driver;
    assert_int_equal(rvl_device_count(context), RVL_MAX_DEVICES);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    check_nothing_left();
}

static size_t odd_granularity;

static CUresult answer_odd_granularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    (void)properties;
    (void)option;
    *granularity = odd_granularity;
    return CUDA_SUCCESS;
}

static void odd_granularities_are_refused(void **state)
{
    (void)state;
    const rvli_cuda_driver driver = rvli_cuda;
    const size_t odd[] = {0, 3 * MIB, GRANULE + 1};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        odd_granularity = odd[i];
        rvli_cuda.cuMemGetAllocationGranularity = answer_odd_granularity;
        check_options(NULL, RVL_ERR_NOT_SUPPORTED, "the granularity is not a power of two");
    }
    rvli_cuda = driver;
    check_options(NULL, RVL_OK, "");
}

static void unknown_options_are_refused(void **state)
{
    (void)state;
    struct {
        rvl_cuda_options known;
        uint64_t later;
    } newer = {.known = {.struct_size = sizeof newer}};
    rvl_cuda_options cuda = {.struct_size = sizeof(size_t) - 1};
    check_options(&cuda, RVL_ERR_INVALID, "struct_size");
    cuda = (rvl_cuda_options){.struct_size = sizeof(size_t)}; /* an older caller's */
    check_options(&cuda, RVL_OK, "");
    cuda = (rvl_cuda_options){.struct_size = sizeof cuda, .host_keep = (rvl_host_keep)3};
    check_options(&cuda, RVL_ERR_INVALID, "host_keep");
    cuda.host_keep = (rvl_host_keep)-1;
    check_options(&cuda, RVL_ERR_INVALID, "host_keep");
    check_options(&newer.known, RVL_OK, "");
    newer.later = 1;
    check_options(&newer.known, RVL_ERR_VERSION, "");
}

static void impossible_devices_are_refused(void **state)
{
    (void)state;
    fake_attribute_set(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0);
    check_options(NULL, RVL_ERR_NOT_SUPPORTED, "no virtual memory management (Pascal or newer");
    check_options(NULL, RVL_OK, "");
}

/* ---- What belongs to the calling thread ---- */

/* A thread's current context and its capture mode, and what they must be after every call. */
typedef struct belongings {
    CUcontext current;
    CUstreamCaptureMode mode;
} belongings;

/* The backend has no use for this entry point. */
static CUcontext current_context(void)
{
    CUresult (*get)(CUcontext * context_out) = NULL;
    void *pointer = NULL;
    CUcontext current = NULL;
    assert_int_equal(cuGetProcAddress("cuCtxGetCurrent", &pointer, 4000, 0, NULL), CUDA_SUCCESS);
    memcpy(&get, &pointer, sizeof get);
    assert_int_equal(get(&current), CUDA_SUCCESS);
    return current;
}

static CUstreamCaptureMode mode_of_thread(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    assert_int_equal(rvli_cuda.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    CUstreamCaptureMode relaxed = mode;
    assert_int_equal(rvli_cuda.cuThreadExchangeStreamCaptureMode(&relaxed), CUDA_SUCCESS);
    return mode;
}

/* fault: the symbol with calls that fail for good meanwhile. */
static void check_belongings(const belongings *mine, const char *fault, const char *call)
{
    if (fault != NULL)
        fake_fail(fault, 0, CUDA_SUCCESS, false);
    if (current_context() != mine->current || mode_of_thread() != mine->mode)
        fail_msg("%s, with %s failing, changed the thread's context or capture mode", call,
                 fault != NULL ? fault : "nothing");
    if (fault != NULL)
        fake_fail(fault, 1, CUDA_ERROR_NOT_PERMITTED, true);
}

#define KEEPS(call)                                                                                \
    do {                                                                                           \
        rvl_status answered_ = (call);                                                             \
        check_belongings(mine, fault, #call);                                                      \
        if (fault == NULL)                                                                         \
            assert_int_equal(answered_, RVL_OK);                                                   \
    } while (0)

static void live_in_context(rvl_context *context, const belongings *mine, const char *fault)
{
    rvl_addr addr = 0;
    rvl_tag tag = 0;
    const rvl_alloc_options options = {
        .struct_size = sizeof options, .tag = "weights", .backup = RVL_BACKUP_HOST};
    const void *backup = NULL;
    uint64_t size = 0;
    KEEPS(rvl_tag_define(context, "weights", NULL, &tag));
    KEEPS(rvl_alloc(context, 6 * MIB, &options, &addr));
    rvl_status status = rvl_pause(context, &tag, 1, NULL);
    check_belongings(mine, fault, "rvl_pause");
    if (status == RVL_OK && addr != 0)
        KEEPS(rvl_backup_find(context, addr, &backup, &size));
    KEEPS(rvl_resume(context, &tag, 1, NULL));
    KEEPS(rvl_stage(context, "next"));
    if (addr != 0)
        KEEPS(rvl_free(context, addr));
    assert_int_not_equal(rvl_alloc(context, INT64_MAX / 2, &options, &addr), RVL_OK);
    check_belongings(mine, fault, "an rvl_alloc that is too large");
}

/* A whole life of a context, during which a symbol fails from the beginning, or after opening. */
static void live(const belongings *mine, const char *fault, bool from_the_beginning)
{
    rvl_context *context = NULL;
    if (fault != NULL && from_the_beginning)
        fake_fail(fault, 1, CUDA_ERROR_NOT_PERMITTED, true);
    rvl_status status = rvl_context_open("cuda", NULL, &context);
    if (fault != NULL)
        fake_fail(fault, 1, CUDA_ERROR_NOT_PERMITTED, true);
    check_belongings(mine, fault, "rvl_context_open");
    if (status == RVL_OK) {
        live_in_context(context, mine, fault);
        rvl_context_close(context, NULL);
        check_belongings(mine, fault, "rvl_context_close");
    }
    if (fault != NULL)
        fake_fail(fault, 0, CUDA_SUCCESS, false);
}

/* All but taking a context back: a driver that refuses that cannot be helped. */
static const char *const failing[] = {
    "cuCtxPushCurrent",
    "cuThreadExchangeStreamCaptureMode",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSynchronize",
    "cuMemGetInfo",
    "cuMemGetAllocationGranularity",
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemMap",
    "cuMemUnmap",
    "cuMemSetAccess",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuEventCreate",
    "cuEventRecord",
    "cuEventSynchronize",
};

static void live_all_lives(CUcontext current)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    assert_int_equal(rvli_cuda.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    const belongings mine = {current, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL};
    live(&mine, NULL, false);
    for (size_t i = 0; i < sizeof failing / sizeof failing[0]; i++) {
        live(&mine, failing[i], true);
        live(&mine, failing[i], false);
    }
    assert_int_equal(rvli_cuda.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
}

static void calls_leave_no_context_current(void **state)
{
    (void)state;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    live_all_lives(NULL);
    fake_reset();
}

static void calls_leave_the_callers_context_current(void **state)
{
    (void)state;
    for (int device = 0; device < 2; device++) {
        CUcontext primary = NULL;
        assert_int_equal(cuInit(0), CUDA_SUCCESS);
        assert_int_equal(rvli_cuda.cuDevicePrimaryCtxRetain(&primary, device), CUDA_SUCCESS);
        assert_int_equal(rvli_cuda.cuCtxSetCurrent(primary), CUDA_SUCCESS);
        live_all_lives(primary);
        fake_reset();
    }
}

/* Refused once, on the way in: the way out must not take back what was never done. */
static void a_refused_capture_mode_is_not_taken_back(void **state)
{
    (void)state;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    rvl_context *context = gpu_open(NULL, NULL);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    assert_int_equal(rvli_cuda.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    const belongings mine = {NULL, CU_STREAM_CAPTURE_MODE_GLOBAL};
    uint64_t free_bytes = 7, total_bytes = 7;
    fake_fail("cuThreadExchangeStreamCaptureMode", 1, CUDA_ERROR_NOT_PERMITTED, false);
    assert_int_equal(context->ops.memory_info(context->self, 0, &free_bytes, &total_bytes),
                     RVL_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(rvli_error_get()->message, "capture mode"));
    assert_int_equal(free_bytes, 7);
    assert_int_equal(total_bytes, 7);
    check_belongings(&mine, NULL, "memory_info");
    assert_int_equal(context->ops.memory_info(context->self, 0, &free_bytes, &total_bytes), RVL_OK);
    assert_int_equal(total_bytes, GIB);
    check_belongings(&mine, NULL, "memory_info");
    assert_int_equal(rvli_cuda.cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    check_nothing_left();
}

/* ---- Entry points ---- */

static void entry_points_are_the_drivers(void **state)
{
    (void)state;
    void *entry = NULL, *before = &before;
    CUresult (*count_devices)(int *);
    int count = 0;
    assert_int_equal(cuInit(0), CUDA_SUCCESS); /* undone by fake_reset() */
    assert_int_equal(rvl_cuda_get_entry("cuDeviceGetCount", 2000, &entry), RVL_OK);
    memcpy(&count_devices, &entry, sizeof count_devices);
    assert_ptr_equal(count_devices, rvli_cuda.cuDeviceGetCount);
    assert_int_equal(count_devices(&count), CUDA_SUCCESS);
    assert_int_equal(count, 2);
    entry = before;
    assert_int_equal(rvl_cuda_get_entry("cuNoSuchEntry", 12000, &entry), RVL_ERR_NOT_FOUND);
    assert_non_null(strstr(rvli_error_get()->message, "cuNoSuchEntry"));
    assert_int_equal(rvl_cuda_get_entry("cuMemMap", 2000, &entry), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_cuda_get_entry(NULL, 2000, &entry), RVL_ERR_INVALID);
    assert_int_equal(rvl_cuda_get_entry("cuMemMap", 12000, NULL), RVL_ERR_INVALID);
    assert_ptr_equal(entry, before);
}

/* What is idle goes back to the system, and what a backup uses stays. */
static void idle_host_memory_is_trimmed(void **state)
{
    (void)state;
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    rvl_context *context = gpu_open(NULL, NULL);
    rvl_host_memory memory = {.struct_size = sizeof memory};
    support_alloc(context, "weights", 0, 4 * MIB, RVL_BACKUP_HOST);
    rvl_tag weights = support_tag(context, "weights");
    assert_int_equal(rvl_pause(context, &weights, 1, NULL), RVL_OK);
    assert_int_equal(rvl_host_trim(context, 0), RVL_OK);
    assert_int_equal(rvl_host_get_memory(context, &memory), RVL_OK);
    assert_true(memory.pinned_bytes >= 4 * MIB);
    assert_int_equal(rvl_resume(context, &weights, 1, NULL), RVL_OK);
    assert_int_equal(rvl_host_trim(context, UINT64_MAX), RVL_OK);
    assert_int_equal(rvl_host_get_memory(context, &memory), RVL_OK);
    assert_true(memory.pinned_bytes >= 4 * MIB);
    assert_int_equal(rvl_host_trim(context, 0), RVL_OK);
    assert_int_equal(rvl_host_get_memory(context, &memory), RVL_OK);
    assert_int_equal(memory.pinned_bytes, 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    check_nothing_left();
}

/* A context's only device has the number 0 in it, and the driver's in an error. */
static void errors_have_the_drivers_number(void **state)
{
    (void)state;
    const int second = 1;
    const rvl_cuda_options options = {
        .struct_size = sizeof options, .devices = &second, .device_count = 1};
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    rvl_context *context = gpu_open(&options, NULL);
    rvl_addr addr = 0;
    assert_int_equal(rvl_alloc(context, UINT64_C(1) << 40, NULL, &addr), RVL_ERR_DEVICE_OOM);
    assert_int_equal(rvli_error_get()->device, 1);
    fake_fail("cuCtxSynchronize", 1, CUDA_ERROR_OPERATING_SYSTEM, false);
    assert_int_equal(rvl_device_synchronize(context, 0), RVL_ERR_IO);
    assert_int_equal(rvli_error_get()->device, 1);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    check_nothing_left();
}

int main(void)
{
    const struct CMUnitTest loading[] = {
        cmocka_unit_test(a_missing_library_is_no_driver),
        cmocka_unit_test(another_library_is_too_old),
        cmocka_unit_test(an_old_driver_is_too_old),
        cmocka_unit_test(every_entry_point_is_asked_for),
        cmocka_unit_test(no_device_is_said_to_be_none),
        cmocka_unit_test(a_driver_that_does_not_start_is_none),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_device_lists_are_refused),
        cmocka_unit_test(the_list_is_the_order),
        cmocka_unit_test(more_devices_than_a_context_has_are_left_out),
        cmocka_unit_test(odd_granularities_are_refused),
        cmocka_unit_test(unknown_options_are_refused),
        cmocka_unit_test(impossible_devices_are_refused),
        cmocka_unit_test(calls_leave_no_context_current),
        cmocka_unit_test(calls_leave_the_callers_context_current),
        cmocka_unit_test(a_refused_capture_mode_is_not_taken_back),
        cmocka_unit_test(entry_points_are_the_drivers),
        cmocka_unit_test(idle_host_memory_is_trimmed),
        cmocka_unit_test(errors_have_the_drivers_number),
    };
    setenv("RVL_CUDA_LIBRARY", RVL_CUDA_FAKE_PATH, 1);
    int failed = cmocka_run_group_tests(loading, NULL, NULL); /* before this process has loaded */
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
