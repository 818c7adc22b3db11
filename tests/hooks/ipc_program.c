/* SPDX-License-Identifier: MIT */
/*
 * usage: ipc_program SCENARIO
 *
 * Runs under the preload library, and starts itself a second time as the importer. test_hooks_ipc.c
 * says how each scenario must end.
 */
#include <dlfcn.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ipc_importer.h"
#include "program.h"

static struct {
    void (*tms_set_current_tag)(const char *tag);
    void (*tms_set_interesting_region)(bool on);
    void (*tms_set_enable_cpu_backup)(bool on);
    rvl_status (*rvl_hooks_get_context)(int device, rvl_context **context_out);
    rvl_status (*rvl_hooks_pause)(const char *tag);
    rvl_status (*rvl_hooks_resume)(const char *tag);
    rvl_status (*rvl_last_error)(rvl_error *error_out);
    rvl_status (*rvl_tag_define)(rvl_context *context, const char *name,
                                 const rvl_tag_options *options, rvl_tag *tag_out);
} lib;

static int importer_socket;
static pid_t importer_process;
static pid_t exporter_process; /* another one than this */

void expect_failed(const char *file, int line, const char *what, long long got, long long wanted)
{
    printf("%s:%d: %s is %lld, not %lld\n", file, line, what, got, wanted);
    fflush(stdout);
    kill(importer_process, SIGKILL);
    if (exporter_process != 0)
        kill(exporter_process, SIGKILL);
    _Exit(1);
}

static void find_functions(void)
{
#define FIND(name)                                                                                 \
    do {                                                                                           \
        void *symbol = dlsym(RTLD_DEFAULT, #name);                                                 \
        EXPECT(symbol != NULL, true);                                                              \
        memcpy(&lib.name, &symbol, sizeof symbol);                                                 \
    } while (false)
    FIND(tms_set_current_tag);
    FIND(tms_set_interesting_region);
    FIND(tms_set_enable_cpu_backup);
    FIND(rvl_hooks_get_context);
    FIND(rvl_hooks_pause);
    FIND(rvl_hooks_resume);
    FIND(rvl_last_error);
    FIND(rvl_tag_define);
#undef FIND
}

/* ---- The importer ---- */

static void start_importer(void)
{
    int ends[2];
    char number[16];
    EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    importer_process = fork();
    if (importer_process == 0) {
        close(ends[0]);
        snprintf(number, sizeof number, "%d", ends[1]);
        execl("/proc/self/exe", "ipc_importer", "importer", number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    importer_socket = ends[0];
}

static void end_importer(void)
{
    int status = 0;
    close(importer_socket);
    EXPECT(waitpid(importer_process, &status, 0), importer_process);
    EXPECT(status, 0);
}

static void kill_importer(void)
{
    EXPECT(kill(importer_process, SIGKILL), 0);
    EXPECT(waitpid(importer_process, NULL, 0), importer_process);
}

/* A signal takes its time to stop all threads. */
static int stop_process(pid_t process)
{
    int status = 0;
    if (kill(process, SIGSTOP) != 0 || waitpid(process, &status, WUNTRACED) != process)
        return -1;
    return WIFSTOPPED(status) ? 0 : -1;
}

static char said[256]; /* by the importer's last error */

static int64_t send_order(order what)
{
    report told = {0};
    EXPECT(send(importer_socket, &what, sizeof what, MSG_NOSIGNAL), sizeof what);
    EXPECT(recv(importer_socket, &told, sizeof told, 0), sizeof told);
    memcpy(said, told.text, sizeof said);
    return told.value;
}

#define ORDER(...) send_order((order){.size = (int64_t)SIZE, __VA_ARGS__})

/* Memory that is taken and given back meanwhile: what is right in the end. */
static int64_t holds_soon(int slot, int value)
{
    const struct timespec while_ns = {.tv_nsec = 10000000};
    int64_t held = -1;
    for (int i = 0; i < 500 && held < 0; i++) {
        held = ORDER(.verb = HOLDS, .slot = slot, .value = value);
        if (held < 0)
            nanosleep(&while_ns, NULL);
    }
    return held;
}

/* ---- This process's memory ---- */

static uint8_t *allocate(const char *tag, uint8_t value)
{
    void *at = NULL;
    lib.tms_set_current_tag(tag);
    lib.tms_set_enable_cpu_backup(true);
    lib.tms_set_interesting_region(true);
    EXPECT(cudaMalloc(&at, SIZE), 0);
    lib.tms_set_interesting_region(false);
    memset(at, value, SIZE);
    return at;
}

static bool all_bytes(const uint8_t *at, uint8_t value)
{
    for (uint64_t i = 0; i < SIZE; i++)
        if (at[i] != value)
            return false;
    return true;
}

static ipc_handle handle_of(void *at)
{
    ipc_handle handle;
    EXPECT(cudaIpcGetMemHandle(&handle, at), 0);
    return handle;
}

static bool same(const ipc_handle *a, const ipc_handle *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static uint64_t used_bytes(int device)
{
    return fake_stats_get().used_bytes[device];
}

static const char *last_message(void)
{
    static rvl_error error;
    error.struct_size = sizeof error;
    lib.rvl_last_error(&error);
    return error.message;
}

#define EXPECT_SAYS(text, part) EXPECT(strstr(text, part) != NULL, true)

/* ---- What works ---- */

static void share(void)
{
    uint8_t *at = allocate("w", 1);
    ipc_handle handle = handle_of(at), inner = handle_of(at + SIZE / 2);
    EXPECT(same(&handle, &inner), true);
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), 1);
    EXPECT(ORDER(.verb = FILL, .value = 2), 0);
    EXPECT(all_bytes(at, 2), true);
    memset(at, 3, SIZE);
    EXPECT(ORDER(.verb = HOLDS, .value = 3), 1);
    EXPECT(ORDER(.verb = MAPPINGS), 1);
    EXPECT(ORDER(.verb = CLOSE), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 3), -1);
    EXPECT(ORDER(.verb = MAPPINGS), 0);
    EXPECT(ORDER(.verb = HANDLES), 0);
    EXPECT(ORDER(.verb = RANGES), 0);
    EXPECT(ORDER(.verb = CLOSE), 1); /* as the runtime says of what is not open */
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 3), 1);
    EXPECT(cudaFree(at), 0);
}

static void count_openings(void)
{
    uint8_t *at = allocate("w", 1);
    ipc_handle handle = handle_of(at);
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 0);
    EXPECT(ORDER(.verb = OPEN, .handle = handle, .slot = 1), 0);
    EXPECT(ORDER(.verb = DISTANCE, .value = 1), 0);
    EXPECT(ORDER(.verb = MAPPINGS), 1);
    EXPECT(ORDER(.verb = CLOSE), 0);
    EXPECT(ORDER(.verb = HOLDS, .slot = 1, .value = 1), 1);
    EXPECT(ORDER(.verb = DEVICE, .value = 1), 0); /* another device, another mapping */
    EXPECT(ORDER(.verb = OPEN, .handle = handle, .slot = 2), 0);
    EXPECT(ORDER(.verb = DISTANCE, .slot = 1, .value = 2) != 0, true);
    EXPECT(ORDER(.verb = HOLDS, .slot = 2, .value = 1), 1);
    EXPECT(ORDER(.verb = CLOSE, .slot = 1), 0);
    EXPECT(ORDER(.verb = HOLDS, .slot = 2, .value = 1), 1);
    EXPECT(ORDER(.verb = CLOSE, .slot = 2), 0);
    EXPECT(ORDER(.verb = MAPPINGS), 0);
}

/* More blocks than one message takes. */
static void many_blocks(void)
{
    const rvl_tag_options options = {.struct_size = sizeof options, .block_bytes = 2 * MIB};
    rvl_context *context = NULL;
    rvl_tag tag;
    void *at = NULL;
    EXPECT(lib.rvl_hooks_get_context(0, &context), RVL_OK);
    EXPECT(lib.rvl_tag_define(context, "b", &options, &tag), RVL_OK);
    lib.tms_set_current_tag("b");
    lib.tms_set_interesting_region(true);
    EXPECT(cudaMalloc(&at, 74 * MIB), 0);
    memset(at, 5, 74 * MIB);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(at)), 0);
    EXPECT(ORDER(.verb = MAPPINGS), 37);
    EXPECT(send_order((order){.verb = HOLDS, .value = 5, .size = 74 * (int64_t)MIB}), 1);
    EXPECT(lib.rvl_hooks_pause(NULL), RVL_OK);
    EXPECT(ORDER(.verb = HOLDS, .value = 5), -1);
    EXPECT(ORDER(.verb = HANDLES), 0);
}

/* A tag that joins small allocations: those that are exported have memory of their own. */
static void coalesced(void)
{
    const rvl_tag_options options = {.struct_size = sizeof options, .coalesce_bytes = 16 * MIB};
    rvl_context *context = NULL;
    rvl_tag tag;
    EXPECT(lib.rvl_hooks_get_context(0, &context), RVL_OK);
    EXPECT(lib.rvl_tag_define(context, "c", &options, &tag), RVL_OK);
    uint8_t *at = allocate("c", 1), *other = allocate("c", 2);
    EXPECT(used_bytes(0), 2 * SIZE);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(at)), 0);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(other), .slot = 1), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), 1);
    EXPECT(ORDER(.verb = HOLDS, .slot = 1, .value = 2), 1);
    EXPECT(lib.rvl_hooks_pause("c"), RVL_OK);
    EXPECT(ORDER(.verb = HANDLES), 0);
}

/* The whole cycle, with a cache of handles in the way. */
static void cycle(void)
{
    uint8_t *at = allocate("w", 11), *other = allocate("other", 12);
    ipc_handle first = handle_of(at), of_other = handle_of(other);
    EXPECT(ORDER(.verb = OPEN_CACHED, .handle = first), 0);
    EXPECT(ORDER(.verb = OPEN_CACHED, .handle = of_other, .slot = 1), 0);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_OK);
    EXPECT(used_bytes(0), SIZE);
    EXPECT(ORDER(.verb = HANDLES), 1); /* so that it is free, too */
    EXPECT(ORDER(.verb = HOLDS, .value = 11), -1);
    EXPECT(ORDER(.verb = HOLDS, .slot = 1, .value = 12), 1);
    ipc_handle none;
    EXPECT(cudaIpcGetMemHandle(&none, at), 400);
    EXPECT_SAYS(last_message(), "paused");
    EXPECT(lib.rvl_hooks_resume("w"), RVL_OK);
    memset(at, 13, SIZE);
    EXPECT(ORDER(.verb = OPEN_CACHED, .handle = first, .slot = 2), 0); /* what is cached */
    EXPECT(ORDER(.verb = HOLDS, .slot = 2, .value = 13), -1);          /* is never read */
    EXPECT(ORDER(.verb = OPEN, .handle = first, .slot = 3), 400);
    EXPECT_SAYS(said, "from before a pause");
    ipc_handle second = handle_of(at);
    EXPECT(same(&first, &second), false);
    EXPECT(ORDER(.verb = OPEN_CACHED, .handle = second, .slot = 2), 0);
    EXPECT(ORDER(.verb = HOLDS, .slot = 2, .value = 13), 1);
    EXPECT(ORDER(.verb = DISTANCE, .value = 2) != 0, true);
    EXPECT(ORDER(.verb = CLOSE), 0);
    EXPECT(ORDER(.verb = OPEN, .handle = first, .slot = 3), 400);
    EXPECT_SAYS(said, "from before a pause");
    EXPECT(ORDER(.verb = HOLDS, .slot = 2, .value = 13), 1);
    EXPECT(lib.rvl_hooks_pause(NULL), RVL_OK);
    EXPECT(ORDER(.verb = CLOSE, .slot = 1), 0);
    EXPECT(ORDER(.verb = CLOSE, .slot = 2), 0);
    EXPECT(ORDER(.verb = RANGES), 0);
    EXPECT(lib.rvl_hooks_resume(NULL), RVL_OK);
    EXPECT(all_bytes(at, 13), true);
    EXPECT(all_bytes(other, 12), true);
}

static void in_threads(void)
{
    uint8_t *at = allocate("w", 7);
    EXPECT(ORDER(.verb = THREADS, .handle = handle_of(at), .value = 7), 0);
    EXPECT(ORDER(.verb = MAPPINGS), 0);
    EXPECT(ORDER(.verb = RANGES), 0);
    EXPECT(ORDER(.verb = HANDLES), 0);
}

/* A program that asks the driver itself. */
static void by_driver(void)
{
    CUresult (*get)(CUipcMemHandle *, CUdeviceptr);
    CUresult (*open)(CUdeviceptr *, CUipcMemHandle, unsigned);
    CUresult (*give_back)(CUdeviceptr);
    CUipcMemHandle handle;
    CUdeviceptr mapped = 0;
    uint8_t *at = allocate("w", 1);
    EXPECT(cudaSetDevice(0), 0); /* the thread has a context */
    find_in_driver("cuIpcGetMemHandle", &get);
    find_in_driver("cuIpcOpenMemHandle", &open);
    find_in_driver("cuIpcCloseMemHandle", &give_back);
    EXPECT(get(&handle, (uintptr_t)at), 0);
    ipc_handle by_runtime = handle_of(at);
    EXPECT(memcmp(&handle, &by_runtime, sizeof handle), 0);
    EXPECT(get(&handle, 4096), CUDA_ERROR_INVALID_VALUE);
    EXPECT(open(&mapped, handle, 1), 201); /* its own */
    memset(&handle, 9, sizeof handle);
    EXPECT(open(&mapped, handle, 1), CUDA_ERROR_INVALID_HANDLE);
    EXPECT(give_back(4096), CUDA_ERROR_INVALID_VALUE);
    EXPECT(ORDER(.verb = DEVICE, .value = 0), 0);
    EXPECT(ORDER(.verb = OPEN_BY_DRIVER, .handle = by_runtime), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), 1);
    EXPECT(ORDER(.verb = OPEN, .handle = by_runtime, .slot = 1), 0); /* the same */
    EXPECT(ORDER(.verb = DISTANCE, .value = 1), 0);
    EXPECT(ORDER(.verb = CLOSE), 0);
    EXPECT(ORDER(.verb = CLOSE_BY_DRIVER), 0);
    EXPECT(ORDER(.verb = CLOSE_BY_DRIVER), CUDA_ERROR_INVALID_VALUE);
    EXPECT(ORDER(.verb = MAPPINGS), 0);
}

/* ---- Handles that are no good ---- */

static void bad_handles(void)
{
    void *at = NULL, *outside = NULL;
    uint8_t *inside = allocate("w", 1);
    ipc_handle handle = handle_of(inside), bad = handle;
    EXPECT(cudaIpcOpenMemHandle(&at, handle, 1), 201);
    EXPECT_SAYS(last_message(), "this process's own");
    bad.bytes[20] ^= 1;
    EXPECT(ORDER(.verb = OPEN, .handle = bad), 400);
    EXPECT_SAYS(said, "damaged");
    memset(&bad, 0x77, sizeof bad);
    EXPECT(ORDER(.verb = OPEN, .handle = bad), 400); /* says the runtime */
    EXPECT(cudaIpcOpenMemHandle(NULL, handle, 1), 400);
    EXPECT(cudaIpcGetMemHandle(NULL, inside), 1);
    EXPECT(cudaIpcGetMemHandle(&bad, (void *)4096), 1);
    EXPECT(cudaMalloc(&outside, SIZE), 0);
    ipc_handle of_runtime = handle_of(outside);
    EXPECT_TEXT(of_runtime.bytes, "cudart-fake handle");
    EXPECT(ORDER(.verb = OPEN, .handle = of_runtime), 0);
    EXPECT(ORDER(.verb = CLOSE), 0);
    EXPECT(ORDER(.verb = MAPPINGS), 0);
}

static void freed(void)
{
    uint8_t *at = allocate("w", 1), *held = allocate("w", 2);
    ipc_handle handle = handle_of(at), of_held = handle_of(held);
    EXPECT(ORDER(.verb = OPEN, .handle = of_held), 0);
    EXPECT(cudaFree(at), 0);
    EXPECT(cudaFree(held), 0);
    EXPECT(ORDER(.verb = OPEN, .handle = handle, .slot = 1), 400);
    EXPECT_SAYS(said, "was freed");
    EXPECT(ORDER(.verb = HOLDS, .value = 2), 1);
    uint8_t *again = allocate("w", 3);
    ipc_handle new = handle_of(again);
    EXPECT(same(&new, &handle) || same(&new, &of_held), false);
    EXPECT(ORDER(.verb = OPEN, .handle = new, .slot = 1), 0);
    EXPECT(ORDER(.verb = HOLDS, .slot = 1, .value = 3), 1);
    EXPECT(ORDER(.verb = CLOSE), 0);
    EXPECT(ORDER(.verb = MAPPINGS), 1);
}

/* With FAKE_CUDA_EXPORT_REFUSED=1. */
static void not_exportable(void)
{
    ipc_handle handle;
    uint8_t *at = allocate("w", 1);
    uint64_t calls = fake_calls("cuMemCreate");
    EXPECT(cudaIpcGetMemHandle(&handle, at), 801);
    EXPECT_SAYS(last_message(), "exportable");
    allocate("w", 1); /* remembered: it is asked for no more */
    EXPECT(fake_calls("cuMemCreate"), calls + 1);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_OK);
}

/* ---- Importers that do not let go ---- */

static void killed(void)
{
    uint8_t *at = allocate("w", 1);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(at)), 0);
    EXPECT(ORDER(.verb = FORK) > 0, true); /* which does not hold what its parent held */
    kill_importer();
    EXPECT(lib.rvl_hooks_pause("w"), RVL_OK);
    EXPECT(lib.rvl_hooks_resume("w"), RVL_OK);
    EXPECT(all_bytes(at, 1), true);
    start_importer();
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(at)), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), 1);
}

/*
 * With RVL_IPC_TIMEOUT_MS=2000: an eighth is kept back for the answer that comes last. If a busy
 * machine took longer for it, the pause would say that the memory is not free yet.
 */
static void stopped(void)
{
    char who[48];
    uint8_t *at = allocate("w", 1);
    ipc_handle handle = handle_of(at);
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 0);
    EXPECT(stop_process(importer_process), 0);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_ERR_TIMEOUT);
    snprintf(who, sizeof who, "process %d (", (int)importer_process);
    EXPECT_SAYS(last_message(), who);
    EXPECT_SAYS(last_message(),
                "holds 4.0 MiB that it imported and does not let go within 1750 ms");
    EXPECT(used_bytes(0), SIZE);
    EXPECT(all_bytes(at, 1), true);
    EXPECT(kill(importer_process, SIGCONT), 0);
    EXPECT(holds_soon(0, 1), 1);
    ipc_handle after = handle_of(at);
    EXPECT(same(&handle, &after), true);
    rvl_status status = RVL_ERR_TIMEOUT;
    for (int i = 0; i < 20 && status == RVL_ERR_TIMEOUT; i++)
        status = lib.rvl_hooks_pause("w");
    EXPECT(status, RVL_OK);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), -1);
}

static void capturing(void)
{
    uint8_t *at = allocate("w", 1);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(at)), 0);
    EXPECT(ORDER(.verb = CAPTURE, .value = 1), 0);
    EXPECT(ORDER(.verb = CLOSE), 900);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_ERR_BUSY);
    EXPECT_SAYS(last_message(), "cannot let go: a stream is being captured there");
    EXPECT(used_bytes(0), SIZE);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), 1);
    EXPECT(ORDER(.verb = CAPTURE, .value = 0), 0);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_OK);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), -1);
}

static rvl_status stop_it(void *user, rvl_tag tag)
{
    (void)user;
    (void)tag;
    return stop_process(importer_process) == 0 ? RVL_OK : RVL_ERR_STATE;
}

/* It has unmapped, but not given back yet. With RVL_IPC_TIMEOUT_MS=200. */
static void slow(void)
{
    const rvl_tag_options options = {.struct_size = sizeof options, .before_unmap = stop_it};
    rvl_context *context = NULL;
    rvl_tag tag;
    uint8_t *at = allocate("w", 1);
    EXPECT(lib.rvl_hooks_get_context(0, &context), RVL_OK);
    EXPECT(lib.rvl_tag_define(context, "w", &options, &tag), RVL_OK);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(at)), 0);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_OK); /* and a line on stderr */
    EXPECT(used_bytes(0), 0);
    EXPECT(kill(importer_process, SIGCONT), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), -1);
    EXPECT(lib.rvl_hooks_resume("w"), RVL_OK);
    EXPECT(all_bytes(at, 1), true);
}

/* ---- One deadline for the whole pause ---- */

#define DEADLINE_MS 2000 /* of these scenarios, by RVL_IPC_TIMEOUT_MS */
#define SLACK_MS 1500    /* less than what a second wait would take; a busy machine needs some */

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What a pause answers that importers hold up, which must be in time. */
static rvl_status pause_in_time(const char *tag, int64_t at_least_ms)
{
    int64_t begin_ms = now_ms();
    rvl_status status = lib.rvl_hooks_pause(tag);
    int64_t took_ms = now_ms() - begin_ms;
    EXPECT(took_ms >= at_least_ms, true);
    EXPECT(took_ms < DEADLINE_MS + SLACK_MS ? 0 : took_ms, 0);
    return status;
}

/* Several imports, all stalled, and the pause fails: nobody is waited for twice. */
static void stalled(void)
{
    uint8_t *at = allocate("w", 1), *other = allocate("w", 2);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(at)), 0);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(other), .slot = 1), 0);
    EXPECT(stop_process(importer_process), 0);
    EXPECT(pause_in_time("w", DEADLINE_MS / 2), RVL_ERR_TIMEOUT);
    EXPECT_SAYS(last_message(), "2 imports hold 8.0 MiB");
    EXPECT(all_bytes(at, 1) && all_bytes(other, 2), true);
    EXPECT(kill(importer_process, SIGCONT), 0);
    EXPECT(holds_soon(0, 1), 1);
    EXPECT(holds_soon(1, 2), 1);
}

/* It stalls once it has let go of the first device's memory, and never hears of the second's. */
static void stalled_between(void)
{
    const rvl_tag_options options = {.struct_size = sizeof options, .before_unmap = stop_it};
    rvl_context *context = NULL;
    rvl_tag tag;
    uint8_t *first = allocate("w", 1);
    EXPECT(cudaSetDevice(1), 0);
    uint8_t *second = allocate("w", 2); /* its context is newer: it is paused first */
    EXPECT(lib.rvl_hooks_get_context(1, &context), RVL_OK);
    EXPECT(lib.rvl_tag_define(context, "w", &options, &tag), RVL_OK);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(first)), 0);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(second), .slot = 1), 0);
    EXPECT(pause_in_time("w", DEADLINE_MS / 2), RVL_ERR_TIMEOUT);
    EXPECT(used_bytes(0), SIZE);
    EXPECT(used_bytes(1), 0);
    EXPECT(kill(importer_process, SIGCONT), 0);
    EXPECT(holds_soon(0, 1), 1);
    EXPECT(ORDER(.verb = HOLDS, .slot = 1, .value = 2), -1);
    EXPECT(lib.rvl_hooks_resume("w"), RVL_OK);
    EXPECT(all_bytes(first, 1) && all_bytes(second, 2), true);
}

/* ---- What fails ---- */

static void pause_fails(void)
{
    uint8_t *at = allocate("w", 1);
    ipc_handle handle = handle_of(at);
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 0);
    fake_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN, false);
    EXPECT(lib.rvl_hooks_pause("w") != RVL_OK, true);
    EXPECT_SAYS(last_message(), "pause of \"w\"");
    EXPECT(ORDER(.verb = HOLDS, .value = 1), 1); /* as if nothing had happened */
    EXPECT(ORDER(.verb = FILL, .value = 2), 0);
    EXPECT(all_bytes(at, 2), true);
    EXPECT(ORDER(.verb = OPEN, .handle = handle, .slot = 1), 0);
    EXPECT(ORDER(.verb = FAIL, .text = "cuMemUnmap", .value = 1), 0);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_ERR_BUSY); /* the importer's unmapping fails */
    EXPECT_SAYS(last_message(), "cannot let go");
    EXPECT(all_bytes(at, 2), true);
    EXPECT(ORDER(.verb = HOLDS, .value = 2), 1);
    EXPECT(ORDER(.verb = FAIL, .text = "cuCtxSynchronize", .value = 1), 0);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_ERR_BUSY);
    EXPECT(ORDER(.verb = HOLDS, .value = 2), 1);
}

/* The importer cannot map again: it says so, and what it has faults. */
static void restore_fails(void)
{
    uint8_t *at = allocate("w", 1);
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(at)), 0);
    EXPECT(ORDER(.verb = FAIL, .text = "cuMemMap", .value = 1), 0);
    fake_fail("cuMemUnmap", 1, CUDA_ERROR_UNKNOWN, false);
    EXPECT(lib.rvl_hooks_pause("w") != RVL_OK, true);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), -1);
    EXPECT(ORDER(.verb = HANDLES), 0);
    EXPECT(ORDER(.verb = CLOSE), 0);
    EXPECT(ORDER(.verb = RANGES), 0);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_OK);
}

static void opening_fails(void)
{
    static const char *const symbols[] = {"cuMemImportFromShareableHandle", "cuMemAddressReserve",
                                          "cuMemMap", "cuMemSetAccess"};
    uint8_t *at = allocate("w", 1);
    ipc_handle handle = handle_of(at);
    for (int i = 0; i < 4; i++) {
        order fail = {.verb = FAIL, .value = 1};
        strcpy(fail.text, symbols[i]);
        EXPECT(send_order(fail), 0);
        EXPECT(ORDER(.verb = OPEN, .handle = handle), 205);
        EXPECT(ORDER(.verb = MAPPINGS), 0);
        EXPECT(ORDER(.verb = HANDLES), 0);
        EXPECT(ORDER(.verb = RANGES), 0);
    }
    fake_fail("cuMemExportToShareableHandle", 1, CUDA_ERROR_UNKNOWN, false);
    EXPECT(ORDER(.verb = OPEN, .handle = handle) != 0, true);
    EXPECT_SAYS(said, "exporting a block");
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 0);
    EXPECT(ORDER(.verb = FAIL, .text = "cuMemUnmap", .value = 1), 0);
    EXPECT(ORDER(.verb = CLOSE), 205);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), 1);
    EXPECT(ORDER(.verb = CLOSE), 0);
    EXPECT(ORDER(.verb = MAPPINGS), 0);
}

static void hostile(void)
{
    uint8_t *at = allocate("w", 1);
    ipc_handle handle = handle_of(at);
    EXPECT(ORDER(.verb = SILENT, .slot = getpid()), 100);
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), 1);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_OK);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), -1);
}

/* ---- Exporters that end ---- */

/* This process has nothing to do but to wait for its end. */
static pid_t start_exporter(ipc_handle *handle_out)
{
    int ends[2];
    EXPECT(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        ipc_handle handle = handle_of(allocate("w", 9));
        EXPECT(write(ends[1], &handle, sizeof handle), sizeof handle);
        pause();
        _exit(0);
    }
    EXPECT(read(ends[0], handle_out, sizeof *handle_out), sizeof *handle_out);
    close(ends[0]);
    close(ends[1]);
    exporter_process = child;
    return child;
}

static void exporter_ends(void)
{
    ipc_handle handle;
    pid_t exporter = start_exporter(&handle);
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 0);
    EXPECT(kill(exporter, SIGKILL), 0);
    EXPECT(waitpid(exporter, NULL, 0), exporter);
    EXPECT(ORDER(.verb = HOLDS, .value = 9), 1); /* it is the importer's now */
    EXPECT(ORDER(.verb = OPEN, .handle = handle, .slot = 1), 0);
    EXPECT(ORDER(.verb = CLOSE), 0);
    EXPECT(ORDER(.verb = CLOSE, .slot = 1), 0);
    EXPECT(ORDER(.verb = MAPPINGS), 0);
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 400);
    EXPECT_SAYS(said, "is gone");
}

/* With RVL_IPC_TIMEOUT_MS=200: one that does not answer. */
static void exporter_stops(void)
{
    ipc_handle handle;
    pid_t exporter = start_exporter(&handle);
    EXPECT(stop_process(exporter), 0);
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 205);
    EXPECT_SAYS(said, "does not answer");
    EXPECT(ORDER(.verb = HANDLES), 0);
    EXPECT(kill(exporter, SIGCONT), 0);
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 9), 1);
    EXPECT(kill(exporter, SIGKILL), 0);
    EXPECT(waitpid(exporter, NULL, 0), exporter);
}

/* A child of an exporter exports what is its own, and nothing else. */
static void forked(void)
{
    int status = 0;
    ipc_handle handle;
    uint8_t *at = allocate("w", 1);
    handle = handle_of(at);
    pid_t child = fork();
    if (child == 0) {
        ipc_handle inherited;
        EXPECT(cudaIpcGetMemHandle(&inherited, at), 3);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0), child);
    EXPECT(status, 0);
    EXPECT(ORDER(.verb = OPEN, .handle = handle), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 1), 1);
    EXPECT(lib.rvl_hooks_pause("w"), RVL_OK);
}

/* The one that holds something may end, and the one that gave it: nobody closes anything. */
static void ends_while_held(void)
{
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(allocate("w", 1))), 0);
}

/* Closing what the driver has taken along already is nobody's news. */
static void unloaded(void)
{
    EXPECT(ORDER(.verb = OPEN, .handle = handle_of(allocate("w", 1))), 0);
    EXPECT(ORDER(.verb = UNLOAD), 0);
    EXPECT(ORDER(.verb = CLOSE), 4);
}

/* ---- Running ---- */

static const scenario scenarios[] = {
#define SCENARIO(name)                                                                             \
    {                                                                                              \
#name, name                                                                                \
    }
    SCENARIO(share),
    SCENARIO(count_openings),
    SCENARIO(many_blocks),
    SCENARIO(cycle),
    SCENARIO(in_threads),
    SCENARIO(by_driver),
    SCENARIO(bad_handles),
    SCENARIO(freed),
    SCENARIO(not_exportable),
    SCENARIO(killed),
    SCENARIO(stopped),
    SCENARIO(capturing),
    SCENARIO(slow),
    SCENARIO(pause_fails),
    SCENARIO(restore_fails),
    SCENARIO(opening_fails),
    SCENARIO(hostile),
    SCENARIO(exporter_ends),
    SCENARIO(coalesced),
    SCENARIO(exporter_stops),
    SCENARIO(forked),
    SCENARIO(ends_while_held),
    SCENARIO(unloaded),
    SCENARIO(stalled),
    SCENARIO(stalled_between),
};

int main(int argc, char **argv)
{
    alarm(60);
    if (argc == 3 && strcmp(argv[1], "importer") == 0)
        return importer_run(atoi(argv[2]));
    find_functions();
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++)
        if (strcmp(scenarios[i].name, argv[1]) == 0) {
            start_importer();
            scenarios[i].run();
            end_importer();
            return 0;
        }
    return 2;
}
