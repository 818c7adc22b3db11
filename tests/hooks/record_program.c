/* SPDX-License-Identifier: MIT */
/* usage: record_program SCENARIO: what test_hooks_record.c records; one process a scenario. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>

#include "cudart_fake.h"
#include "fake.h"
#include "nccl_fake.h"
#include "nvtx_by_hand.h"
#include "reveille/communicator.h"
#include "reveille/hooks.h"
#include "reveille/reveille.h"

#ifdef RVL_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

#define MIB (UINT64_C(1) << 20)

static const char *self;
static rvl_status (*stage)(const char *name);
static rvl_status (*step)(void);
static rvl_status (*nccl_bytes)(int device, uint64_t *bytes_out);
static rvl_status (*hooks_pause)(const char *tag);
static rvl_status (*hooks_resume)(const char *tag);
static void (*set_tag)(const char *tag);
static void (*set_region)(bool on);
static void (*set_backup)(bool on);

static void find_in(void *library, const char *name, void *function_out)
{
    void *symbol = dlsym(library, name);
    if (symbol != NULL)
        memcpy(function_out, &symbol, sizeof symbol);
}

static void find(const char *name, void *function_out)
{
    find_in(RTLD_DEFAULT, name, function_out);
}

static void need(bool good, const char *what)
{
    if (good)
        return;
    printf("failed: %s\n", what);
    fflush(stdout);
    kill(getpid(), SIGTERM);
}
#define NEED(condition) need(condition, #condition)

static void *get(uint64_t bytes)
{
    void *pointer = NULL;
    NEED(cudaMalloc(&pointer, bytes) == 0);
    return pointer;
}

static void give(void *pointer)
{
    NEED(cudaFree(pointer) == 0);
}

static void *get_in_region(const char *tag, bool backup, uint64_t bytes)
{
    set_tag(tag);
    set_backup(backup);
    set_region(true);
    void *pointer = get(bytes);
    set_region(false);
    return pointer;
}

/* ---- Every kind of event ---- */

static void entry_point(const char *name, void *function_out)
{
    void *function = NULL;
    NEED(cudaGetDriverEntryPointByVersion(name, &function, 12000, 0, NULL) == 0);
    memcpy(function_out, &function, sizeof function);
}

static void driver_calls(void)
{
    fake_create create;
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
    };
    CUmemGenericAllocationHandle handle = 0;
    entry_point("cuMemCreate", &create);
    entry_point("cuMemRelease", &release);
    NEED(create(&handle, 6 * MIB, &properties, 0) == CUDA_SUCCESS);
    NEED(release(handle) == CUDA_SUCCESS);
    NEED(release(handle) != CUDA_SUCCESS); /* and is no event */
}

static void kinds(void)
{
    void *async = NULL, *managed = NULL;
    NEED(stage("load") == RVL_OK);
    void *plain = get(2 * MIB);
    NEED(cudaMallocAsync(&async, 4 * MIB, NULL) == 0);
    NEED(cudaMallocManaged(&managed, 6 * MIB, 1) == 0);
    void *weights = get_in_region("weights", true, 8 * MIB);
    void *kv = get_in_region("kv cache", false, 10 * MIB);
    void *nameless = get_in_region("", false, 2 * MIB);
    driver_calls();
    NEED(stage("") == RVL_ERR_INVALID);
    NEED(stage(NULL) == RVL_ERR_INVALID);
    NEED(stage("asleep") == RVL_OK);
    NEED(hooks_pause("weights") == RVL_OK);
    NEED(hooks_pause(NULL) == RVL_OK);
    NEED(hooks_pause("never") == RVL_ERR_NOT_FOUND);
    NEED(step() == RVL_OK);
    NEED(hooks_resume("weights") == RVL_OK);
    NEED(cudaFreeAsync(async, NULL) == 0);
    give(managed);
    give(plain);
    give(kv);
    give(weights);
    give(nameless);
    give(NULL);
}

/* There and back, and once with the tags left paused. One that is refused is no event. */
static void sleeping(void)
{
    const rvl_sleep_options discard = {.struct_size = sizeof discard, .flags = RVL_SLEEP_DISCARD};
    const rvl_wake_up_options paused = {.struct_size = sizeof paused, .flags = RVL_WAKE_UP_PAUSED};
    const struct timespec some = {.tv_nsec = 30000000};
    __typeof__(&rvl_sleep) leave = NULL;
    __typeof__(&rvl_wake_up) come_back = NULL;
    __typeof__(&rvl_sleep_forbid) forbid = NULL;
    __typeof__(&rvl_sleep_allow) allow = NULL;
    find("rvl_sleep", &leave);
    find("rvl_wake_up", &come_back);
    find("rvl_sleep_forbid", &forbid);
    find("rvl_sleep_allow", &allow);
    void *weights = get_in_region("weights", true, 8 * MIB);
    void *kv = get_in_region("kv", false, 4 * MIB);
    NEED(forbid(7, "a test says so") == RVL_OK);
    NEED(leave(NULL, NULL) == RVL_ERR_BUSY);
    NEED(allow(7) == RVL_OK);
    NEED(leave(NULL, NULL) == RVL_OK);
    NEED(stage("asleep") == RVL_OK); /* without samples: no device is asked */
    nanosleep(&some, NULL);
    NEED(come_back(NULL, NULL) == RVL_OK);
    NEED(stage("awake") == RVL_OK);
    NEED(leave(NULL, &discard) == RVL_OK);
    NEED(come_back(NULL, &paused) == RVL_OK);
    NEED(hooks_resume(NULL) == RVL_OK);
    NEED(fake_fail("cuCheckpointProcessCheckpoint", 1, CUDA_ERROR_NOT_SUPPORTED, false));
    NEED(leave(NULL, NULL) == RVL_ERR_NOT_SUPPORTED);
    give(weights);
    give(kv);
}

/* It ends asleep. */
static void ends_asleep(void)
{
    __typeof__(&rvl_sleep) leave = NULL;
    find("rvl_sleep", &leave);
    (void)get_in_region("weights", true, 8 * MIB);
    NEED(leave(NULL, NULL) == RVL_OK);
}

/* What libreveille tells of it, for a version of NCCL that cannot. */
static uint64_t nccl_bytes_of(int device)
{
    uint64_t bytes = UINT64_MAX;
    NEED(nccl_bytes(device, &bytes) == RVL_OK);
    return bytes;
}

/* It cannot suspend: the refusal says what its communicators keep, on each of their devices. */
static void refuse_old(void)
{
    fake_comm comms[] = {{.device = 0, .rank_count = 3},
                         {.device = 1, .rank = 1, .rank_count = 3},
                         {.device = 0, .rank = 2, .rank_count = 3}};
    rvl_communicator_move *move = NULL;
    rvl_error said = {.struct_size = sizeof said};
    __typeof__(&rvl_communicator_add) add = NULL, remove_one = NULL;
    __typeof__(&rvl_communicator_prepare) prepare = NULL;
    __typeof__(&rvl_last_error) last_error = NULL;
    find("rvl_communicator_add", &add);
    find("rvl_communicator_remove", &remove_one);
    find("rvl_communicator_prepare", &prepare);
    find("rvl_last_error", &last_error);
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++)
        NEED(add(&comms[i]) == RVL_OK);
    NEED(prepare(RVL_TRANSITION_PAUSE, NULL, &move) == RVL_ERR_NOT_SUPPORTED);
    NEED(move == NULL && last_error(&said) == RVL_OK);
    NEED(strcmp(said.message,
                "NCCL 2.28.9 cannot give its memory back; 2.29.7 and later can. Its communicators "
                "here keep 8.0 MiB on device 0, 4.0 MiB on device 1. Load a newer libnccl.so.2, or "
                "leave them out") == 0);
    NEED(hooks_pause("nccl") == RVL_ERR_NOT_SUPPORTED);
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++)
        NEED(remove_one(&comms[i]) == RVL_OK);
}

/* What NCCL allocates, gives back while it is suspended, and takes again. */
static void nccl(void)
{
    CUresult (*take)(fake_create, int, size_t, CUmemGenericAllocationHandle *) = NULL;
    int (*malloc_by)(fake_alloc, size_t, void **) = NULL;
    CUresult (*release)(CUmemGenericAllocationHandle);
    fake_create create;
    CUmemGenericAllocationHandle buffers = 0, scratch = 0;
    void *state = NULL;
    void *library = dlopen(RVL_NCCL_FAKE_PATH, RTLD_NOW);
    NEED(library != NULL);
    find_in(library, "fake_nccl_take", &take);
    find_in(library, "fake_nccl_malloc", &malloc_by);
    entry_point("cuMemCreate", &create);
    entry_point("cuMemRelease", &release);
    NEED(nccl_bytes(0, &(uint64_t){0}) == RVL_ERR_NOT_FOUND); /* the device was not used yet */
    void *plain = get(2 * MIB);
    NEED(nccl_bytes_of(0) == 0);
    NEED(take(create, 0, 8 * MIB, &buffers) == CUDA_SUCCESS);
    NEED(nccl_bytes_of(0) == 8 * MIB);
    NEED(take(create, 1, 4 * MIB, &scratch) == CUDA_SUCCESS);
    NEED(malloc_by(cudaMallocAsync, 2 * MIB, &state) == 0);
    NEED(fake_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY, false));
    NEED(take(create, 0, 8 * MIB, &scratch) != CUDA_SUCCESS);
    NEED(stage("asleep") == RVL_OK);
    NEED(release(buffers) == CUDA_SUCCESS);
    NEED(nccl_bytes_of(0) == 2 * MIB);
    NEED(stage("awake") == RVL_OK);
    NEED(take(create, 0, 8 * MIB, &buffers) == CUDA_SUCCESS);
    NEED(nccl_bytes_of(0) == 10 * MIB && nccl_bytes_of(1) == 4 * MIB);
    NEED(cudaFreeAsync(state, NULL) == 0);
    NEED(nccl_bytes_of(0) == 8 * MIB);
    give(plain);
    refuse_old();
    NEED(nccl_bytes(-1, &(uint64_t){0}) == RVL_ERR_INVALID);
    NEED(nccl_bytes(0, NULL) == RVL_ERR_INVALID);
    NEED(nccl_bytes(2, &(uint64_t){0}) == RVL_ERR_NOT_FOUND);
    NEED(nccl_bytes(1 << 20, &(uint64_t){0}) == RVL_ERR_NOT_FOUND);
}

/* ---- What fails ---- */

static void refused(void)
{
    void *stream = NULL;
    void (*set_margin)(uint64_t bytes) = NULL;
    find("set_memory_margin_bytes", &set_margin);
    void *weights = get_in_region("weights", false, 4 * MIB);
    NEED(cudaStreamCreate(&stream) == 0);
    NEED(cudaStreamBeginCapture(stream, 0) == 0);
    NEED(cudaFree(weights) == 900);
    NEED(hooks_pause("weights") == RVL_ERR_BUSY);
    NEED(cudaStreamEndCapture(stream, NULL) == 0);
    void *other = get_in_region("other", false, 4 * MIB);
    NEED(hooks_pause("other") == RVL_OK);
    NEED(fake_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN, false));
    NEED(hooks_pause(NULL) != RVL_OK);
    NEED(hooks_pause("weights") == RVL_OK);
    set_region(true);
    void *pointer = NULL;
    NEED(cudaMalloc(&pointer, UINT64_C(1) << 40) == 2);
    set_region(false);
    NEED(cudaMalloc(&pointer, UINT64_C(1) << 40) == 2);
    NEED(fake_fail("cuMemCreate", 1, CUDA_ERROR_OUT_OF_MEMORY, false));
    NEED(hooks_resume("weights") == RVL_ERR_DEVICE_OOM);
    set_margin(1024 * MIB);
    set_region(true);
    NEED(cudaMalloc(&pointer, 2 * MIB) == 2);
    set_region(false);
    give(weights);
    give(other);
}

/* A tag on two devices; the context that was opened last is moved first. */
static void parts(void)
{
    rvl_status (*context_of)(int, rvl_context **) = NULL;
    rvl_status (*pause)(rvl_context *, const rvl_tag *, size_t, const rvl_pause_options *) = NULL;
    rvl_status (*resume)(rvl_context *, const rvl_tag *, size_t, const rvl_resume_options *) = NULL;
    rvl_context *contexts[2] = {NULL, NULL};
    find("rvl_hooks_get_context", &context_of);
    find("rvl_pause", &pause);
    find("rvl_resume", &resume);
    void *on_first = get_in_region("weights", true, 4 * MIB);
    NEED(cudaSetDevice(1) == 0);
    void *on_second = get_in_region("weights", true, 6 * MIB);
    NEED(fake_fail("cuMemUnmap", 2, CUDA_ERROR_UNKNOWN, false));
    NEED(hooks_pause("weights") != RVL_OK); /* on the first device alone */
    NEED(stage("part") == RVL_OK);
    NEED(fake_fail("cuMemCreate", 1, CUDA_ERROR_UNKNOWN, true));
    NEED(hooks_resume("weights") != RVL_OK);
    NEED(fake_fail("cuMemCreate", 0, CUDA_SUCCESS, false));
    NEED(stage("the same") == RVL_OK);
    NEED(hooks_resume("weights") == RVL_OK);
    for (int i = 0; i < 2; i++)
        NEED(context_of(i, &contexts[i]) == RVL_OK);
    NEED(pause(contexts[0], NULL, 0, NULL) == RVL_OK);
    NEED(stage("by hand") == RVL_OK);
    NEED(pause(contexts[1], NULL, 0, NULL) == RVL_OK);
    NEED(stage("all") == RVL_OK);
    NEED(resume(contexts[0], NULL, 0, NULL) == RVL_OK);
    NEED(stage("back") == RVL_OK);
    NEED(resume(contexts[1], NULL, 0, NULL) == RVL_OK);
    give(on_first);
    give(on_second);
}

static void disk_full(void)
{
    const struct rlimit none = {0, 0};
    void *plain = get(2 * MIB);
    signal(SIGXFSZ, SIG_IGN);
    NEED(setrlimit(RLIMIT_FSIZE, &none) == 0);
    NEED(stage("full") == RVL_ERR_IO);
    NEED(stage("again") == RVL_OK); /* there is no recording any more */
    give(plain);
}

static void plain(void)
{
    give(get(4 * MIB));
}

/* ---- Threads ---- */

#define THREADS 4
#define ROUNDS 100

static pthread_barrier_t start;

static void *work(void *argument)
{
    char tag[16];
    pthread_barrier_wait(&start);
    snprintf(tag, sizeof tag, "t%u", (unsigned)(uintptr_t)argument);
    for (int i = 0; i < ROUNDS; i++) {
        void *plain = get(2 * MIB);
        void *region = get_in_region(tag, false, 4 * MIB);
        give(plain);
        give(region);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    plain(); /* the first sample is taken while nobody else allocates */
    NEED(pthread_barrier_init(&start, NULL, THREADS) == 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        NEED(pthread_create(&all[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        NEED(pthread_join(all[i], NULL) == 0);
}

/* ---- Ends ---- */

static void *leave(void *unused)
{
    (void)unused;
    exit(0);
}

static void exit_in_thread(void)
{
    pthread_t other;
    get(2 * MIB);
    NEED(pthread_create(&other, NULL, leave, NULL) == 0);
    pthread_join(other, NULL);
}

static void exit_at_once(void)
{
    get(2 * MIB);
    _exit(0);
}

static void killed(void)
{
    get(2 * MIB);
    NEED(stage("one") == RVL_OK);
    raise(SIGKILL);
}

static void killed_later(void)
{
    void *plain = get(2 * MIB);
    get(4 * MIB);
    give(plain);
    const struct timespec longer = {2, 500000000};
    nanosleep(&longer, NULL);
    raise(SIGKILL);
}

static void executes(void)
{
    get(2 * MIB);
    NEED(stage("before") == RVL_OK);
    execl(self, self, "plain", (char *)NULL);
}

static void only_marks(void)
{
    NEED(stage("alone") == RVL_OK);
    NEED(step() == RVL_OK);
}

static void nothing(void)
{
}

/* ---- Fork ---- */

static int exit_of(pid_t child)
{
    int status = 0;
    NEED(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void turn(int from, int to)
{
    char byte = 0;
    if (from >= 0)
        NEED(read(from, &byte, 1) == 1);
    if (to >= 0)
        NEED(write(to, &byte, 1) == 1);
}

/*
 * Two processes, one device: 8 MiB of the parent, 16 of the child beside them, and 20 of the parent
 * once the child has given up its own. At most 8 + 16 = 24, then 8 + 20 = 28 at once.
 */
static void forked(void)
{
    int to_child[2], to_parent[2];
    NEED(pipe(to_child) == 0 && pipe(to_parent) == 0);
    pid_t child = fork();
    if (child == 0) {
        turn(to_child[0], -1);
        void *kv = get_in_region("kv", false, 16 * MIB);
        turn(-1, to_parent[1]);
        turn(to_child[0], -1);
        NEED(hooks_pause("kv") == RVL_OK);
        turn(-1, to_parent[1]);
        turn(to_child[0], -1);
        give(kv);
        _exit(0); /* as Python's workers do */
    }
    void *first = get(8 * MIB);
    turn(-1, to_child[1]);
    turn(to_parent[0], to_child[1]);
    turn(to_parent[0], -1);
    void *second = get(20 * MIB);
    give(second);
    turn(-1, to_child[1]);
    NEED(exit_of(child) == 0);
    give(first);
}

/* A child that inherits memory cannot use it, and has nothing to say. */
static void forked_after(void)
{
    void *first = get(8 * MIB);
    pid_t child = fork();
    if (child == 0)
        exit(0);
    NEED(exit_of(child) == 0);
    child = vfork();
    if (child == 0)
        _exit(0);
    NEED(exit_of(child) == 0);
    give(first);
}

/* ---- NVTX ---- */

static void nvtx(void)
{
#ifdef RVL_HAVE_NVTX
    nvtxDomainHandle_t domain = nvtxDomainCreateA("domain");
    nvtxEventAttributes_t range = {
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .messageType = NVTX_MESSAGE_TYPE_ASCII,
        .message = {.ascii = "stage:three"},
    };
    nvtxRangePushA("stage:one");
    void *first = get(2 * MIB);
    nvtxRangePop();
    nvtxRangePushA("other");
    nvtxRangePop();
    nvtxRangePushA("stage:");
    nvtxRangeEnd(nvtxRangeStartA("stage:two"));
    nvtxRangePushEx(&range);
    range.message.ascii = "stage:four";
    nvtxDomainRangePushEx(domain, &range);
    nvtxDomainRangePop(domain);
    range.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    range.message.registered = nvtxDomainRegisterStringA(domain, "stage:five");
    nvtxDomainRangePushEx(domain, &range);
    nvtxDomainRangeEnd(domain, nvtxDomainRangeStartEx(domain, &range));
    range.messageType = NVTX_MESSAGE_TYPE_UNICODE;
    range.message.unicode = L"stage:wide";
    nvtxRangeStartEx(&range);
    range.messageType = NVTX_MESSAGE_UNKNOWN;
    nvtxRangePushEx(&range);
    give(first);
#endif
}

static void nvtx_by_hand(void)
{
    nvtx_range range = {.size = sizeof range, .message_type = NVTX_ASCII, .message = "stage:three"};
    nvtx_push("stage:one");
    void *first = get(2 * MIB);
    nvtx_push("other");
    nvtx_push("stage:");
    nvtx_start("stage:two");
    nvtx_push_range(&range);
    range.message = "stage:four";
    nvtx_domain_push(&range);
    range.message_type = NVTX_REGISTERED;
    range.message = nvtx_domain_register("stage:five");
    nvtx_domain_push(&range);
    nvtx_domain_start(&range);
    range.message_type = NVTX_UNICODE;
    range.message = L"stage:wide";
    nvtx_start_range(&range);
    range.message_type = NVTX_UNKNOWN;
    nvtx_push_range(&range);
    give(first);
}

/* ---- Samples ---- */

static void sampled(void)
{
    const struct timespec some = {0, 300000000};
    void *first = get(8 * MIB);
    nanosleep(&some, NULL);
    NEED(stage("two") == RVL_OK);
    give(first);
    NEED(cudaSetDevice(1) == 0);
    get(2 * MIB);
    NEED(stage("three") == RVL_OK);
    _Exit(0);
}

/* ---- What the driver takes for itself ---- */

static void no_kernel(void **params)
{
    (void)params;
}

static void entry(const char *name, unsigned version, void *function_out)
{
    void *function = NULL;
    NEED(cudaGetDriverEntryPointByVersion(name, &function, version, 0, NULL) == 0);
    memcpy(function_out, &function, sizeof function);
}

static void growth(void)
{
    CUresult (*stream_create)(CUstream *, unsigned);
    CUresult (*stream_create_with)(CUstream *, unsigned, int);
    CUresult (*module_load)(CUmodule *, const void *);
    CUresult (*function_of)(CUfunction *, CUmodule, const char *);
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream, void **, void **);
    CUstream first, second;
    CUmodule module;
    CUfunction function;
    entry("cuStreamCreate", 12000, &stream_create);
    entry("cuStreamCreateWithPriority", 12000, &stream_create_with);
    entry("cuModuleLoadData", 12000, &module_load);
    entry("cuModuleGetFunction", 12000, &function_of);
    entry("cuLaunchKernel", 12000, &launch);
    void *plain = get(2 * MIB);
    NEED(stream_create(&first, 0) == CUDA_SUCCESS);
    NEED(stream_create_with(&second, 0, 0) == CUDA_SUCCESS);
    NEED(stream_create(NULL, 0) != CUDA_SUCCESS);
    NEED(fake_kernel_set("none", no_kernel, 0, NULL));
    NEED(stage("kernels") == RVL_OK);
    NEED(module_load(&module, "") == CUDA_SUCCESS);
    NEED(function_of(&function, module, "none") == CUDA_SUCCESS);
    NEED(launch(function, 1, 1, 1, 1, 1, 1, 0, first, NULL, NULL) == CUDA_SUCCESS);
    NEED(launch(function, 1, 1, 1, 1, 1, 1, 0, first, NULL, NULL) == CUDA_SUCCESS);
    NEED(setenv("FAKE_NVML_OTHERS", "4194304", 1) == 0); /* another process; the kernel is known */
    NEED(launch(function, 1, 1, 1, 1, 1, 1, 0, first, NULL, NULL) == CUDA_SUCCESS);
    NEED(stage("end") == RVL_OK);
    give(plain);
}

/* The last who has the primary context lets it go, and somebody makes it again. */
static void context_gone(void)
{
    CUresult (*stream_create)(CUstream *, unsigned);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*release)(CUdevice);
    CUstream stream;
    CUcontext context;
    entry("cuStreamCreate", 12000, &stream_create);
    entry("cuDevicePrimaryCtxRetain", 12000, &retain);
    entry("cuDevicePrimaryCtxRelease", 12000, &release);
    get(2 * MIB);
    NEED(stream_create(&stream, 0) == CUDA_SUCCESS);
    NEED(retain(&context, 0) == CUDA_SUCCESS);
    NEED(release(0) == CUDA_SUCCESS);
    NEED(stage("held") == RVL_OK);
    while (release(0) == CUDA_SUCCESS)
        ;
    NEED(stage("gone") == RVL_OK);
    NEED(retain(&context, 0) == CUDA_SUCCESS);
}

/* PyTorch opens the torch library. The preload library records its allocations. */
static void torch(void)
{
    void *(*torch_malloc)(ssize_t size, int device, void *stream) = NULL;
    void (*torch_free)(void *pointer, ssize_t size, int device, void *stream) = NULL;
    void *library = dlopen(RVL_TORCH_PATH, RTLD_NOW | RTLD_LOCAL);
    NEED(library != NULL);
    find_in(library, "tms_torch_malloc", &torch_malloc);
    find_in(library, "tms_torch_free", &torch_free);
    find_in(library, "tms_set_current_tag", &set_tag);
    find_in(library, "tms_set_interesting_region", &set_region);
    find("rvl_hooks_pause", &hooks_pause);
    find("rvl_hooks_resume", &hooks_resume);
    find("rvl_hooks_stage", &stage);
    find("rvl_hooks_step", &step);
    NEED(stage("load") == RVL_OK);
    set_tag("weights");
    set_region(true);
    void *weights = torch_malloc(4 * MIB, 0, NULL);
    set_region(false);
    NEED(weights != NULL);
    void *plain = get(2 * MIB);
    NEED(hooks_pause("weights") == RVL_OK);
    NEED(step() == RVL_OK);
    NEED(hooks_resume(NULL) == RVL_OK);
    NEED(fake_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN, false));
    NEED(hooks_pause("weights") != RVL_OK);
    torch_free(weights, 4 * MIB, 0, NULL);
    give(plain);
}

/* The context of regions is asked what it knows; its marks are none of the recording's. */
static void marks_of_a_context(void)
{
    rvl_status (*context_of)(int device, rvl_context **context_out) = NULL;
    rvl_status (*context_stage)(rvl_context * context, const char *name) = NULL;
    rvl_status (*context_step)(rvl_context * context) = NULL;
    rvl_context *context = NULL;
    find("rvl_hooks_get_context", &context_of);
    find("rvl_stage", &context_stage);
    find("rvl_step", &context_step);
    void *kv = get_in_region("kv", false, 4 * MIB);
    NEED(context_of(0, &context) == RVL_OK);
    NEED(context_stage(context, "of the context") == RVL_OK);
    NEED(context_step(context) == RVL_OK);
    NEED(stage("of the process") == RVL_OK);
    give(kv);
}

static void region_first(void)
{
    give(get_in_region("kv", false, 4 * MIB));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } scenarios[] = {
#define SCENARIO(name) {#name, name}
        SCENARIO(sleeping),       SCENARIO(ends_asleep),  SCENARIO(kinds),
        SCENARIO(refused),        SCENARIO(disk_full),    SCENARIO(threads),
        SCENARIO(exit_in_thread), SCENARIO(exit_at_once), SCENARIO(killed),
        SCENARIO(killed_later),   SCENARIO(executes),     SCENARIO(plain),
        SCENARIO(only_marks),     SCENARIO(nothing),      SCENARIO(forked),
        SCENARIO(forked_after),   SCENARIO(nvtx),         SCENARIO(sampled),
        SCENARIO(region_first),   SCENARIO(torch),        SCENARIO(growth),
        SCENARIO(context_gone),   SCENARIO(nvtx_by_hand), SCENARIO(marks_of_a_context),
        SCENARIO(parts),          SCENARIO(nccl),
    };
    self = argv[0];
    find("rvl_hooks_stage", &stage);
    find("rvl_hooks_step", &step);
    find("rvl_hooks_get_nccl_bytes", &nccl_bytes);
    find("rvl_hooks_pause", &hooks_pause);
    find("rvl_hooks_resume", &hooks_resume);
    find("tms_set_current_tag", &set_tag);
    find("tms_set_interesting_region", &set_region);
    find("tms_set_enable_cpu_backup", &set_backup);
    if (argc == 3 && strcmp(argv[1], "exit") == 0)
        return atoi(argv[2]);
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(scenarios[i].name, argv[1]) == 0) {
            scenarios[i].run();
            return 0;
        }
    return 64;
}
