/* SPDX-License-Identifier: MIT */
/*
 * Memory that two processes share through the preload library, on a real GPU with the CUDA runtime
 * that is found (RVL_CUDART names another). Exit status 77 where there is none.
 *
 * The program starts itself again under the library, and that a second time as the importer.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/skip.h"

#define MIB ((size_t)1 << 20)
#define SIZE (64 * MIB)
#define PART (16 * MIB) /* where the tensor begins that a program shares, as PyTorch does it */
#define TO_HOST 2

typedef struct ipc_handle {
    char bytes[64];
} ipc_handle;

static struct {
    int (*cudaMalloc)(void **pointer, size_t size);
    int (*cudaFree)(void *pointer);
    int (*cudaMemset)(void *pointer, int value, size_t size);
    int (*cudaMemcpy)(void *to, const void *from, size_t size, int kind);
    int (*cudaMemGetInfo)(size_t *free_bytes, size_t *total_bytes);
    int (*cudaIpcGetMemHandle)(ipc_handle *handle, void *pointer);
    int (*cudaIpcOpenMemHandle)(void **pointer, ipc_handle handle, unsigned flags);
    int (*cudaIpcCloseMemHandle)(void *pointer);
    int (*tms_pause)(const char *tag);
    int (*tms_resume)(const char *tag);
    void (*tms_set_current_tag)(const char *tag);
    void (*tms_set_interesting_region)(bool on);
    void (*tms_set_enable_cpu_backup)(bool on);
} cuda;

#define EXPECT(got, wanted)                                                                        \
    do {                                                                                           \
        long long got_ = (long long)(got), wanted_ = (long long)(wanted);                          \
        if (got_ != wanted_) {                                                                     \
            printf("%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, got_, wanted_);      \
            fflush(stdout);                                                                        \
            _Exit(1);                                                                              \
        }                                                                                          \
    } while (false)

/* ---- The runtime ---- */

static void *open_runtime(void)
{
    const char *named = getenv("RVL_CUDART");
    if (named != NULL)
        return dlopen(named, RTLD_NOW | RTLD_GLOBAL);
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so",
                                        "/usr/local/cuda/lib64/libcudart.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_GLOBAL);
    return library;
}

/* The hook's functions are found first. */
static void find(const char *name, void *function_out)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    if (symbol == NULL) {
        printf("%s is not there\n", name);
        exit(1);
    }
    memcpy(function_out, &symbol, sizeof symbol);
}

static void find_functions(void)
{
#define FIND(name) find(#name, &cuda.name)
    EXPECT(open_runtime() != NULL, true);
    FIND(cudaMalloc);
    FIND(cudaFree);
    FIND(cudaMemset);
    FIND(cudaMemcpy);
    FIND(cudaMemGetInfo);
    FIND(cudaIpcGetMemHandle);
    FIND(cudaIpcOpenMemHandle);
    FIND(cudaIpcCloseMemHandle);
    FIND(tms_pause);
    FIND(tms_resume);
    FIND(tms_set_current_tag);
    FIND(tms_set_interesting_region);
    FIND(tms_set_enable_cpu_backup);
#undef FIND
}

static bool is_there(void)
{
    size_t free_bytes, total_bytes;
    void *symbol = open_runtime() != NULL ? dlsym(RTLD_DEFAULT, "cudaMemGetInfo") : NULL;
    if (symbol == NULL)
        return false;
    memcpy(&cuda.cudaMemGetInfo, &symbol, sizeof symbol);
    return cuda.cudaMemGetInfo(&free_bytes, &total_bytes) == 0;
}

/* 1 if all bytes have a value, 0 if not, and an error of CUDA, made negative. */
static int holds(const char *at, size_t size, int value)
{
    static char host[SIZE];
    int error = cuda.cudaMemcpy(host, at, size, TO_HOST);
    if (error != 0)
        return -error;
    for (size_t i = 0; i < size; i++)
        if (host[i] != (char)value)
            return 0;
    return 1;
}

/* ---- The importer ---- */

typedef enum verb { OPEN, CLOSE, HOLDS, FILL } verb;

typedef struct order {
    verb verb;
    int slot;
    int value;
    ipc_handle handle;
} order;

static int carry_out(const order *what)
{
    static char *slots[4];
    void *at = NULL;
    int error = 0;
    switch (what->verb) {
    case OPEN:
        error = cuda.cudaIpcOpenMemHandle(&at, what->handle, 1);
        if (error == 0)
            slots[what->slot] = at;
        return error;
    case CLOSE:
        return cuda.cudaIpcCloseMemHandle(slots[what->slot]);
    case HOLDS:
        return holds(slots[what->slot] + PART, SIZE - PART, what->value);
    case FILL:
        error = cuda.cudaMemset(slots[what->slot], what->value, SIZE);
        /* The device may still be at it; reading waits. */
        return error != 0 || holds(slots[what->slot], SIZE, what->value) == 1 ? error : -1;
    }
    return -1;
}

static int run_importer(int socket)
{
    order what;
    find_functions();
    while (recv(socket, &what, sizeof what, 0) == (ssize_t)sizeof what) {
        int answer = carry_out(&what);
        if (send(socket, &answer, sizeof answer, MSG_NOSIGNAL) < 0)
            return 1;
    }
    return 0;
}

static int importer; /* the one that gets orders */

static int send_order(order what)
{
    int answer = 0;
    EXPECT(send(importer, &what, sizeof what, MSG_NOSIGNAL), sizeof what);
    EXPECT(recv(importer, &answer, sizeof answer, 0), sizeof answer);
    return answer;
}

#define ORDER(...) send_order((order){__VA_ARGS__})

static pid_t start_importer(void)
{
    int ends[2];
    char number[16];
    EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        if (importer != 0)
            close(importer); /* the other one's */
        snprintf(number, sizeof number, "%d", ends[1]);
        execl("/proc/self/exe", "test", "importer", number, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    importer = ends[0];
    return child;
}

/* ---- The exporter ---- */

static char *allocate(int value)
{
    void *at = NULL;
    cuda.tms_set_current_tag("w");
    cuda.tms_set_enable_cpu_backup(true);
    cuda.tms_set_interesting_region(true);
    EXPECT(cuda.cudaMalloc(&at, SIZE), 0);
    cuda.tms_set_interesting_region(false);
    EXPECT(cuda.cudaMemset(at, value, SIZE), 0);
    EXPECT(holds(at, SIZE, value), 1);
    return at;
}

static size_t free_bytes_now(void)
{
    size_t free_bytes = 0, total_bytes = 0;
    EXPECT(cuda.cudaMemGetInfo(&free_bytes, &total_bytes), 0);
    return free_bytes;
}

/* What programs find out where an allocation begins by. */
static void check_range(char *at)
{
    unsigned long long begin = 0;
    size_t size = 0;
    int (*range)(unsigned long long *, size_t *, unsigned long long);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *symbol = driver != NULL ? dlsym(driver, "cuMemGetAddressRange_v2") : NULL;
    if (symbol == NULL) { /* the fake one has no such thing */
        EXPECT(getenv("RVL_CUDA_LIBRARY") != NULL, 1);
        return;
    }
    memcpy(&range, &symbol, sizeof symbol);
    EXPECT(range(&begin, &size, (uintptr_t)at + PART), 0);
    EXPECT(begin, (uintptr_t)at);
    EXPECT(size, SIZE);
}

/* Reading what is gone may cost a process its context: one importer is there for that alone. */
static void share_region(int probe, int other)
{
    ipc_handle first, second;
    char *at = allocate(0x11);
    check_range(at);
    EXPECT(cuda.cudaIpcGetMemHandle(&first, at), 0);
    importer = probe;
    EXPECT(ORDER(.verb = OPEN, .handle = first), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 0x11), 1);
    importer = other;
    EXPECT(ORDER(.verb = OPEN, .handle = first), 0);
    EXPECT(ORDER(.verb = HOLDS, .value = 0x11), 1);
    EXPECT(ORDER(.verb = FILL, .value = 0x22), 0);
    EXPECT(holds(at, SIZE, 0x22), 1);

    size_t before = free_bytes_now();
    EXPECT(cuda.tms_pause("w"), 0);
    EXPECT(free_bytes_now() >= before + SIZE, true); /* the importer has given it back */
    EXPECT(cuda.tms_resume("w"), 0);
    EXPECT(holds(at, SIZE, 0x22), 1);
    importer = probe;
    EXPECT(ORDER(.verb = HOLDS, .value = 0x22) < 0, true);
    importer = other;
    EXPECT(ORDER(.verb = OPEN, .slot = 1, .handle = first), 400);

    EXPECT(cuda.cudaIpcGetMemHandle(&second, at), 0);
    EXPECT(memcmp(&first, &second, sizeof first) != 0, true);
    EXPECT(ORDER(.verb = OPEN, .slot = 1, .handle = second), 0);
    EXPECT(ORDER(.verb = HOLDS, .slot = 1, .value = 0x22), 1);
    EXPECT(ORDER(.verb = FILL, .slot = 1, .value = 0x33), 0);
    EXPECT(holds(at, SIZE, 0x33), 1);
    EXPECT(ORDER(.verb = CLOSE), 0);
    EXPECT(ORDER(.verb = HOLDS, .slot = 1, .value = 0x33), 1);
    EXPECT(ORDER(.verb = CLOSE, .slot = 1), 0);
    EXPECT(cuda.cudaFree(at), 0);
}

/* The runtime's own memory goes the runtime's own way. */
static void share_outside(void)
{
    void *at = NULL;
    ipc_handle handle;
    EXPECT(cuda.cudaMalloc(&at, SIZE), 0);
    EXPECT(cuda.cudaMemset(at, 0x44, SIZE), 0);
    EXPECT(holds(at, SIZE, 0x44), 1);
    EXPECT(cuda.cudaIpcGetMemHandle(&handle, at), 0);
    EXPECT(ORDER(.verb = OPEN, .slot = 2, .handle = handle), 0);
    if (getenv("RVL_CUDART") == NULL) /* the fake one shares no bytes */
        EXPECT(ORDER(.verb = HOLDS, .slot = 2, .value = 0x44), 1);
    EXPECT(ORDER(.verb = CLOSE, .slot = 2), 0);
    EXPECT(cuda.cudaFree(at), 0);
}

static int run_exporter(void)
{
    int status = 0;
    pid_t probe = start_importer();
    int probe_socket = importer;
    pid_t child = start_importer();
    find_functions();
    share_region(probe_socket, importer);
    share_outside();
    close(importer);
    EXPECT(waitpid(child, &status, 0), child);
    EXPECT(status, 0);
    close(probe_socket);
    EXPECT(waitpid(probe, NULL, 0), probe);
    return 0;
}

int main(int argc, char **argv)
{
    alarm(200);
    if (argc == 3)
        return run_importer(atoi(argv[2]));
    if (argc == 2)
        return run_exporter();
    if (!is_there()) {
        SKIP_LINE("there is no CUDA runtime, or no GPU under it");
        return SKIPPED;
    }
    setenv("LD_PRELOAD", RVL_PRELOAD_PATH, 1);
    execl("/proc/self/exe", argv[0], "exporter", (char *)NULL);
    return 1;
}
