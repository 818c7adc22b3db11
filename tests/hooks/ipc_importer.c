/* SPDX-License-Identifier: MIT */
#include "ipc_importer.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "fake.h"
#include "reveille/status.h"

#define OPENERS 4
#define ROUNDS 30
#define CONNECTIONS 100

static uint8_t *slots[SLOTS];

/* ---- Memory that may not be there ---- */

static sigjmp_buf back;

static void jump_back(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static int64_t holds(const volatile uint8_t *at, int64_t size, uint8_t value)
{
    if (sigsetjmp(back, 1) != 0)
        return -1;
    for (int64_t i = 0; i < size; i++)
        if (at[i] != value)
            return 0;
    return 1;
}

static int64_t fill(volatile uint8_t *at, int64_t size, uint8_t value)
{
    if (sigsetjmp(back, 1) != 0)
        return -1;
    for (int64_t i = 0; i < size; i++)
        at[i] = value;
    return 0;
}

/* ---- PyTorch's cache, as far as it matters: what a handle gave is not asked for again ---- */

static struct {
    ipc_handle handle;
    uint8_t *at;
} cache[SLOTS];
static int cached;

static int open_cached(const order *what)
{
    void *at = NULL;
    for (int i = 0; i < cached; i++)
        if (memcmp(&cache[i].handle, &what->handle, sizeof what->handle) == 0) {
            slots[what->slot] = cache[i].at;
            return 0;
        }
    int error = cudaIpcOpenMemHandle(&at, what->handle, 1);
    if (error != 0)
        return error;
    cache[cached].handle = what->handle;
    cache[cached++].at = at;
    slots[what->slot] = at;
    return 0;
}

/* ---- Orders ---- */

void find_in_driver(const char *name, void *function_out)
{
    CUresult (*find)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    void *symbol = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
    memcpy(&find, &symbol, sizeof symbol);
    if (find(name, &symbol, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL) != CUDA_SUCCESS)
        _exit(1);
    memcpy(function_out, &symbol, sizeof symbol);
}

static int open_by_driver(const order *what)
{
    CUresult (*open)(CUdeviceptr *, CUipcMemHandle, unsigned);
    CUdeviceptr at = 0;
    CUipcMemHandle handle;
    memcpy(&handle, &what->handle, sizeof handle);
    find_in_driver("cuIpcOpenMemHandle", &open);
    CUresult result = open(&at, handle, 1);
    if (result == CUDA_SUCCESS)
        slots[what->slot] = (uint8_t *)(uintptr_t)at;
    return (int)result;
}

static int close_by_driver(const order *what)
{
    CUresult (*give_back)(CUdeviceptr);
    find_in_driver("cuIpcCloseMemHandle", &give_back);
    return (int)give_back((uintptr_t)slots[what->slot]);
}

static int open_handle(const order *what)
{
    void *at = NULL;
    int error = cudaIpcOpenMemHandle(&at, what->handle, 1);
    if (error == 0)
        slots[what->slot] = at;
    return error;
}

static pthread_barrier_t start;

static void *open_and_close(void *argument)
{
    const order *what = argument;
    int64_t failures = 0;
    pthread_barrier_wait(&start);
    for (int i = 0; i < ROUNDS; i++) {
        void *at = NULL;
        if (cudaIpcOpenMemHandle(&at, what->handle, 1) != 0)
            failures++;
        else if (*(volatile uint8_t *)at != (uint8_t)what->value || cudaIpcCloseMemHandle(at) != 0)
            failures++;
    }
    return (void *)(intptr_t)failures;
}

static int64_t open_in_threads(order *what)
{
    pthread_t threads[OPENERS];
    int64_t failures = 0;
    pthread_barrier_init(&start, NULL, OPENERS);
    for (int i = 0; i < OPENERS; i++)
        if (pthread_create(&threads[i], NULL, open_and_close, what) != 0)
            abort();
    for (int i = 0; i < OPENERS; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        failures += (intptr_t)result;
    }
    pthread_barrier_destroy(&start);
    return failures;
}

static int64_t fork_idle(void)
{
    pid_t child = fork();
    if (child == 0) {
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
        alarm(5);
        pause();
        _exit(0);
    }
    return child;
}

static int64_t capture(bool on)
{
    static void *stream;
    if (stream == NULL && cudaStreamCreate(&stream) != 0)
        return -1;
    return on ? cudaStreamBeginCapture(stream, 0) : cudaStreamEndCapture(stream, NULL);
}

/* Finds the socket of a process by the beginning of its name. */
static bool find_socket(int process, struct sockaddr_un *address_out, socklen_t *length_out)
{
    char line[512], prefix[64];
    FILE *all = fopen("/proc/net/unix", "r");
    bool found = false;
    snprintf(prefix, sizeof prefix, "@reveille-ipc-%d-", process);
    while (all != NULL && !found && fgets(line, sizeof line, all) != NULL) {
        const char *name = strstr(line, prefix);
        if (name == NULL)
            continue;
        size_t length = strcspn(name, "\n");
        memset(address_out, 0, sizeof *address_out);
        address_out->sun_family = AF_UNIX;
        memcpy(address_out->sun_path + 1, name + 1, length - 1);
        *length_out = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
        found = true;
    }
    if (all != NULL)
        fclose(all);
    return found;
}

/* Every third one says something that is no message, of every size, and the next closes. */
static int64_t connect_silently(int process)
{
    struct sockaddr_un address;
    socklen_t length;
    int64_t connected = 0;
    char nonsense[2000];
    memset(nonsense, 0x5a, sizeof nonsense);
    if (!find_socket(process, &address, &length))
        return -1;
    for (int i = 0; i < CONNECTIONS; i++) {
        int one = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (connect(one, (struct sockaddr *)&address, length) == 0)
            connected++;
        if (i % 3 == 0)
            (void)!send(one, nonsense, (size_t)i * 19 + 1, MSG_NOSIGNAL);
        else if (i % 3 == 1)
            close(one);
    }
    return connected;
}

static int64_t carry_out(order *what)
{
    uint8_t *at = slots[what->slot % SLOTS];
    switch (what->verb) {
    case OPEN:
        return open_handle(what);
    case OPEN_CACHED:
        return open_cached(what);
    case OPEN_BY_DRIVER:
        return open_by_driver(what);
    case CLOSE_BY_DRIVER:
        return close_by_driver(what);
    case CLOSE:
        return cudaIpcCloseMemHandle(at);
    case HOLDS:
        return holds(at, what->size, (uint8_t)what->value);
    case FILL:
        return fill(at, what->size, (uint8_t)what->value);
    case DISTANCE:
        return (int64_t)((uintptr_t)slots[what->value] - (uintptr_t)at);
    case DEVICE:
        return cudaSetDevice((int)what->value);
    case CAPTURE:
        return capture(what->value != 0);
    case FAIL:
        return fake_fail(what->text, (uint64_t)what->value, (CUresult)999, false) ? 0 : -1;
    case UNLOAD:
        return fake_fail(NULL, 1, CUDA_ERROR_DEINITIALIZED, true) ? 0 : -1;
    case MAPPINGS:
        return (int64_t)fake_stats_get().live.mappings;
    case HANDLES:
        return (int64_t)fake_stats_get().live.handles;
    case RANGES:
        return (int64_t)fake_stats_get().live.ranges;
    case FORK:
        return fork_idle();
    case THREADS:
        return open_in_threads(what);
    case SILENT:
        return connect_silently(what->slot);
    }
    return -1;
}

int importer_run(int socket)
{
    order what;
    rvl_status (*last_error)(rvl_error *);
    void *symbol = dlsym(RTLD_DEFAULT, "rvl_last_error");
    const struct sigaction action = {.sa_handler = jump_back};
    memcpy(&last_error, &symbol, sizeof symbol);
    sigaction(SIGSEGV, &action, NULL);
    while (recv(socket, &what, sizeof what, 0) == (ssize_t)sizeof what) {
        report told = {.value = carry_out(&what)};
        rvl_error error = {.struct_size = sizeof error};
        last_error(&error);
        memcpy(told.text, error.message, sizeof told.text);
        if (send(socket, &told, sizeof told, MSG_NOSIGNAL) < 0)
            return 1;
    }
    return 0;
}
