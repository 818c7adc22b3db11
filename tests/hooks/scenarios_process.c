/* SPDX-License-Identifier: MIT */
/* What processes do: threads, forks, captures, libraries that come and go, look-ups. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin.h"
#include "program.h"

/* ---- Threads ---- */

#define THREADS 8
#define ROUNDS 20

static pthread_barrier_t start;

static void *work(void *argument)
{
    char tag[16];
    pthread_barrier_wait(&start);
    uint8_t number = (uint8_t)(uintptr_t)argument;
    snprintf(tag, sizeof tag, "thread%u", number);
    for (int i = 0; i < ROUNDS; i++) {
        uint8_t *at = in_region(tag, i % 2 ? HOST : NOTHING, number % 2, number);
        uint8_t *outside = hook_malloc(SIZE, number % 2);
        EXPECT(outside != NULL, true);
        EXPECT(h.tms_pause(tag), 0);
        EXPECT(h.tms_resume(tag), 0);
        EXPECT(i % 2 == 0 || holds(at, number), true);
        hook_free(outside);
        hook_free(at);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[THREADS];
    EXPECT(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&all[i], NULL, work, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(all[i], NULL), 0);
    EXPECT(used(0) + used(1), 0);
}

/* ---- Fork ---- */

static int exit_of(pid_t child)
{
    int status = 0;
    EXPECT(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A child that was forked before anybody allocated is a process like any other. */
static void fork_before(void)
{
    pid_t child = fork();
    if (child == 0) {
        uint8_t *at = in_region("c", HOST, 0, 1);
        EXPECT(h.tms_pause("c"), 0);
        EXPECT(h.tms_resume("c"), 0);
        EXPECT(holds(at, 1), true);
        exit(0);
    }
    EXPECT(exit_of(child), 0);
    EXPECT(used(0), 0);
}

/* One that inherits memory may not use it: CUDA says so, and so do we. */
static void fork_after(void)
{
    uint8_t *at = in_region("p", HOST, 0, 2);
    pid_t child = fork();
    if (child == 0) {
        EXPECT(h.rvl_hooks_pause("p"), RVL_ERR_FORKED);
        h.tms_set_interesting_region(true);
        EXPECT(hook_malloc(SIZE, 0) == NULL, true);
        if (h.preload)
            EXPECT(cudaFree(at), 3);
        EXPECT(h.tms_get_cpu_backup_pointer(at, 1) == NULL, true);
        exit(0);
    }
    EXPECT(exit_of(child), 0);
    EXPECT(h.tms_pause("p"), 0);
    EXPECT(h.tms_resume("p"), 0);
    EXPECT(holds(at, 2), true);
    hook_free(at);
}

static _Atomic bool stop;
static _Atomic unsigned turns;

static void *allocate_all_the_time(void *unused)
{
    for (; !stop; turns++)
        hook_free(in_region("busy", NOTHING, 0, 1));
    return unused;
}

/* Until the other thread has allocated once more; if it never does, the program is ended. */
static void await_turn(void)
{
    for (unsigned before = turns; turns == before;)
        usleep(100);
}

/* The child's locks are free, whatever the parent's threads were doing. */
static void fork_busy(void)
{
    pthread_t other;
    EXPECT(pthread_create(&other, NULL, allocate_all_the_time, NULL), 0);
    for (int i = 0; i < 20; i++) {
        await_turn();
        pid_t child = fork();
        if (child == 0) {
            EXPECT(h.tms_get_cpu_backup_pointer(NULL, 1) == NULL, true);
            _exit(0);
        }
        EXPECT(exit_of(child), 0);
    }
    stop = true;
    EXPECT(pthread_join(other, NULL), 0);
}

/* ---- Captures ---- */

static void capture(void)
{
    void *stream = NULL;
    uint8_t *at = in_region("g", HOST, 0, 3);
    EXPECT(cudaStreamCreate(&stream), 0);
    EXPECT(cudaStreamBeginCapture(stream, 0), 0);
    EXPECT(h.rvl_hooks_pause("g"), RVL_ERR_BUSY);
    EXPECT(h.rvl_hooks_resume(NULL), RVL_ERR_BUSY);
    EXPECT(cudaFree(at), 900);
    uint8_t *during = in_region("g", HOST, 0, 4); /* which PyTorch does */
    EXPECT(fake_capture_invalidated(), false);
    EXPECT(holds(at, 3), true);
    EXPECT(cudaStreamEndCapture(stream, NULL), 0);
    EXPECT(h.tms_pause("g"), 0);
    EXPECT(h.tms_resume("g"), 0);
    EXPECT(holds(at, 3), true);
    EXPECT(holds(during, 4), true);
    EXPECT(cudaStreamBeginCapture(stream, 0), 0);
    EXPECT(cudaStreamDestroy(stream), 0);
    EXPECT(h.tms_pause("g"), 0);
    EXPECT(cudaStreamBeginCapture((void *)8, 0), 400); /* there is no such stream */
    EXPECT(h.tms_resume("g"), 0);
}

static void *end_it(void *stream)
{
    return (void *)(intptr_t)cudaStreamEndCapture(stream, NULL);
}

static void *free_it(void *at)
{
    return (void *)(intptr_t)cudaFree(at);
}

static intptr_t in_thread(void *(*does)(void *), void *argument)
{
    pthread_t thread;
    void *answer = NULL;
    EXPECT(pthread_create(&thread, NULL, does, argument), 0);
    EXPECT(pthread_join(thread, &answer), 0);
    return (intptr_t)answer;
}

/* What other threads may do while one captures, and what not. */
static void capture_threads(void)
{
    enum { GLOBAL, THREAD_LOCAL };
    void *stream = NULL;
    uint8_t *at = in_region("g", HOST, 0, 3), *other = in_region("g", HOST, 0, 4);
    EXPECT(cudaStreamCreate(&stream), 0);
    EXPECT(cudaStreamBeginCapture(stream, THREAD_LOCAL), 0);
    EXPECT(h.rvl_hooks_pause("g"), RVL_ERR_BUSY);
    EXPECT(in_thread(free_it, other), 0);
    EXPECT(used(0), 2 * SIZE); /* nobody knows yet that it is not in use */
    EXPECT(fake_capture_invalidated(), false);
    EXPECT(in_thread(end_it, stream), 908); /* it has ended all the same */
    EXPECT(used(0), SIZE);
    EXPECT(h.rvl_hooks_pause("g"), RVL_OK);
    EXPECT(h.rvl_hooks_resume("g"), RVL_OK);
    EXPECT(cudaStreamBeginCapture(stream, GLOBAL), 0);
    EXPECT(in_thread(free_it, at), 900);
    EXPECT(cudaStreamEndCapture(stream, NULL), 0);
    EXPECT(cudaFree(at), 0);
}

/* A pause of the context itself is refused as well. */
static void capture_context(void)
{
    rvl_context *context = NULL;
    void *stream = NULL;
    uint8_t *at = in_region("g", HOST, 0, 3);
    EXPECT(h.rvl_hooks_get_context(0, &context), RVL_OK);
    EXPECT(cudaStreamCreate(&stream), 0);
    EXPECT(cudaStreamBeginCapture(stream, 0), 0);
    EXPECT(h.rvl_pause(context, NULL, 0, NULL), RVL_ERR_BUSY);
    EXPECT(fake_capture_invalidated(), false);
    EXPECT(cudaStreamEndCapture(stream, NULL), 0);
    EXPECT(h.rvl_pause(context, NULL, 0, NULL), RVL_OK);
    EXPECT(used(0), 0);
    EXPECT(cudaStreamBeginCapture(stream, 0), 0);
    EXPECT(h.rvl_resume(context, NULL, 0, NULL), RVL_ERR_BUSY);
    EXPECT(cudaStreamEndCapture(stream, NULL), 0);
    EXPECT(h.rvl_resume(context, NULL, 0, NULL), RVL_OK);
    EXPECT(holds(at, 3), true);
}

static void capture_pause(void)
{
    void *stream = NULL;
    in_region("g", HOST, 0, 3);
    EXPECT(cudaStreamCreate(&stream), 0);
    EXPECT(cudaStreamBeginCapture(stream, 0), 0);
    h.tms_pause(NULL);
}

/* ---- Runtimes that programs keep for themselves ---- */

static void *need(void *library, const char *name)
{
    void *symbol = library != NULL ? dlsym(library, name) : NULL;
    if (symbol == NULL) {
        printf("%s\n", dlerror());
        exit(1);
    }
    return symbol;
}

static void find_in_driver(const char *name, void *function_out)
{
    CUresult (*find)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    void *library = dlopen(getenv("RVL_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    void *symbol = need(library, "cuGetProcAddress_v2");
    memcpy(&find, &symbol, sizeof symbol);
    EXPECT(find(name, &symbol, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL), CUDA_SUCCESS);
    memcpy(function_out, &symbol, sizeof symbol);
}

/* The driver does not bring a process back that has another's pool open. */
static void imported_pool(void)
{
    CUresult (*import)(CUmemoryPool *, void *, CUmemAllocationHandleType, unsigned long long);
    CUresult (*destroy)(CUmemoryPool);
    const CUmemAllocationHandleType file = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    CUmemoryPool pool = NULL;
    find_in_driver("cuMemPoolImportFromShareableHandle", &import);
    find_in_driver("cuMemPoolDestroy", &destroy);
    in_region("r", NOTHING, 0, 1);
    EXPECT(import(&pool, (void *)(intptr_t)-1, file, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT(h.rvl_sleep_forecast(NULL, NULL, &forecast) == RVL_ERR_BUSY, false);
    EXPECT(import(&pool, (void *)(intptr_t)STDIN_FILENO, file, 0), CUDA_SUCCESS);
    EXPECT(h.rvl_sleep_forecast(NULL, NULL, &forecast), RVL_ERR_BUSY);
    EXPECT(destroy(pool), CUDA_SUCCESS);
    EXPECT(h.rvl_sleep_forecast(NULL, NULL, &forecast) == RVL_ERR_BUSY, false);
}

/* As `program` is built for this, it has no runtime of its own but what the plugin brings. */
static void local_runtime(void)
{
    int (*alloc)(void **, size_t);
    int (*give_back)(void *);
    int (*version)(void);
    void *plugin = dlopen(RVL_PLUGIN_PATH, RTLD_NOW | RTLD_LOCAL);
    void *symbol = need(plugin, "plugin_malloc");
    memcpy(&alloc, &symbol, sizeof symbol);
    symbol = need(plugin, "plugin_free");
    memcpy(&give_back, &symbol, sizeof symbol);
    symbol = need(plugin, "plugin_version");
    memcpy(&version, &symbol, sizeof symbol);
    EXPECT(version(), 12000);

    void *outside = NULL, *inside = NULL;
    EXPECT(alloc(&outside, SIZE), 0);
    h.tms_set_interesting_region(true);
    h.tms_set_enable_cpu_backup(true);
    EXPECT(alloc(&inside, SIZE), 0);
    h.tms_set_interesting_region(false);
    fill(inside, 61);
    fill(outside, 62);
    EXPECT(h.tms_pause(NULL), 0);
    EXPECT(used(0), SIZE);
    EXPECT(h.tms_resume(NULL), 0);
    EXPECT(holds(inside, 61), true);
    EXPECT(holds(outside, 62), true);
    EXPECT(dlclose(plugin), 0);
    EXPECT(cudaFree(inside), 0);
    EXPECT(cudaFree(outside), 0); /* the runtime is still there */
    EXPECT(used(0), 0);
}

static bool is_of_hook(void *function)
{
    Dl_info info;
    return dladdr(function, &info) != 0 && strstr(info.dli_fname, "libreveille-preload") != NULL;
}

/* As ctypes does it: its own handle of a runtime. */
static void looked_up_runtime(void)
{
    int (*alloc)(void **, size_t);
    void *inside = NULL;
    void *runtime = dlopen(RVL_CUDART_12_PATH, RTLD_NOW | RTLD_LOCAL);
    void *symbol = need(runtime, "cudaMalloc");
    memcpy(&alloc, &symbol, sizeof symbol);
    h.tms_set_interesting_region(true);
    EXPECT(alloc(&inside, SIZE), 0);
    EXPECT(h.tms_pause(NULL), 0);
    EXPECT(used(0), 0);
    EXPECT(dlvsym(runtime, "cudaMalloc", "NONE") == NULL, true);
    EXPECT(dlvsym(runtime, "cudaMalloc", "libcudart.so.12") == symbol, true);
    EXPECT(dlvsym(runtime, "cudaMalloc", "libcudart.so.13") == NULL, true);
    void *memset_there = dlsym(runtime, "cudaMemset"); /* which nobody stands in front of */
    EXPECT(memset_there != NULL, true);
    EXPECT(dlvsym(runtime, "cudaMemset", "libcudart.so.12") == memset_there, true);
    EXPECT(is_of_hook(symbol), true);
    EXPECT(is_of_hook(memset_there), false);
    EXPECT(dlsym(runtime, "cudaNoSuchFunction") == NULL, true);
    EXPECT(dlerror() != NULL, true);
}

static void no_runtime(void)
{
    void *pointer = NULL;
    if (!h.preload) {
        EXPECT(h.tms_torch_malloc((ssize_t)SIZE, 0, NULL) == NULL, true);
        return;
    }
    EXPECT(cudaMalloc(&pointer, SIZE), 35);
    EXPECT(cudaFree((void *)8), 35);
    h.tms_set_interesting_region(true);
    EXPECT(cudaMalloc(&pointer, SIZE), 35);
    EXPECT(h.tms_pause(NULL), 0);
}

/* The caller's place in the search order is what it was. */
static void next_of_caller(void)
{
    EXPECT(cuda_chain(), 41);
    EXPECT(dlsym(RTLD_DEFAULT, "cuda_chain") == (void *)(uintptr_t)cuda_chain, true);
    EXPECT(dlsym(RTLD_DEFAULT, "cu") == NULL, true);
}

/* ---- Beginning and end ---- */

/* With PROGRAM_BEFORE_MAIN and TMS_INIT_ENABLE=1: one was allocated before main. */
static void before_main(void)
{
    EXPECT(used(0), SIZE);
    EXPECT(h.tms_pause(NULL), 0);
    EXPECT(used(0), 0);
    EXPECT(h.tms_resume(NULL), 0);
    EXPECT(used(0), SIZE);
}

/* The one that opened the library closes it; memory is still in its care. */
static void closed(void)
{
    uint8_t *at = in_region("c", HOST, 0, 71);
    EXPECT(dlclose(h.library), 0);
    EXPECT(h.tms_pause("c"), 0);
    EXPECT(used(0), 0);
    EXPECT(h.tms_resume("c"), 0);
    EXPECT(holds(at, 71), true);
    hook_free(at);
    EXPECT(used(0), 0);
}

static void killed(void)
{
    h.tms_set_disk_backup_dir(getenv("PROGRAM_DIRECTORY"));
    in_region("k", DISK, 0, 1);
    EXPECT(h.tms_pause("k"), 0);
    raise(SIGKILL);
}

static uint8_t *late;
static int late_error;

/* The driver is gone before the program's last calls, as at the end of real ones. */
__attribute__((destructor)) static void free_late(void)
{
    if (late != NULL && cudaFree(late) != late_error)
        _Exit(5);
}

static void free_at_exit(void)
{
    if (cudaFree(late) != late_error)
        _Exit(6);
    if (late_error == 0)
        late = NULL;
}

static void unload(void)
{
    fake_fail(NULL, 1, CUDA_ERROR_DEINITIALIZED, true);
}

static void freed_after_driver(void)
{
    late = in_region("l", HOST, 0, 1);
    late_error = 4; /* cudaErrorCudartUnloading */
    EXPECT(atexit(free_at_exit), 0);
    EXPECT(atexit(unload), 0); /* runs first */
}

/* Paused memory needs nothing of the device. */
static void paused_after_driver(void)
{
    freed_after_driver();
    late_error = 0;
    EXPECT(h.tms_pause("l"), 0);
}

static void nothing(void)
{
}

static void settings_good(void)
{
    EXPECT(h.rvl_hooks_check_settings(), RVL_OK);
}

/* Answered as often as it is asked, and the process goes on. */
static void settings_asked(void)
{
    rvl_error error = {.struct_size = sizeof error};
    for (int i = 0; i < 2; i++) {
        EXPECT(h.rvl_hooks_check_settings(), RVL_ERR_INVALID);
        EXPECT(h.rvl_last_error(&error), RVL_OK);
        EXPECT_TEXT(error.message,
                    "environment variable TMS_INIT_ENABLE has the value \"maybe\", which is not "
                    "understood: set 1, true, TRUE, yes, YES or 0, false, FALSE, no, NO, or unset "
                    "it");
    }
}

const scenario process_scenarios[] = {
#define SCENARIO(name)                                                                             \
    {                                                                                              \
#name, name                                                                                \
    }
    SCENARIO(threads),
    SCENARIO(fork_before),
    SCENARIO(fork_after),
    SCENARIO(fork_busy),
    SCENARIO(capture),
    SCENARIO(capture_pause),
    SCENARIO(capture_threads),
    SCENARIO(capture_context),
    SCENARIO(imported_pool),
    SCENARIO(local_runtime),
    SCENARIO(looked_up_runtime),
    SCENARIO(no_runtime),
    SCENARIO(next_of_caller),
    SCENARIO(before_main),
    SCENARIO(closed),
    SCENARIO(killed),
    SCENARIO(nothing),
    SCENARIO(settings_good),
    SCENARIO(settings_asked),
    SCENARIO(freed_after_driver),
    SCENARIO(paused_after_driver),
    {NULL, NULL},
};
