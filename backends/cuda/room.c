/* SPDX-License-Identifier: MIT */
#include "backends/cuda/room.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

#define LIBRARY_VARIABLE "RVL_NVML_LIBRARY"
#define PROGRAM "nvidia-smi"
#define PRELOAD "LD_PRELOAD="
#define ANSWER_MS 20000 /* nvidia-smi loads the driver if no process holds it */
#define MIB_SHIFT 20

/* ---- A library in this process ---- */

/*
 * Declared here, because three functions do not justify NVML's header. 0 is success; a device is a
 * pointer.
 */
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

static struct {
    int (*init)(void);
    int (*by_bus_id)(const char *bus_id, void **device_out);
    int (*get_memory)(void *device, nvml_memory *memory_out);
} nvml;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool good;

static bool find(void *library, const char *name, void *function_out)
{
    void *symbol = dlsym(library, name);
    if (symbol != NULL)
        memcpy(function_out, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void load(void)
{
    void *library = dlopen(getenv(LIBRARY_VARIABLE), RTLD_NOW | RTLD_LOCAL);
    good = library != NULL && find(library, "nvmlInit_v2", &nvml.init) &&
           find(library, "nvmlDeviceGetHandleByPciBusId_v2", &nvml.by_bus_id) &&
           find(library, "nvmlDeviceGetMemoryInfo", &nvml.get_memory) && nvml.init() == 0;
}

static bool is_named(void)
{
    const char *path = getenv(LIBRARY_VARIABLE);
    return path != NULL && path[0] != '\0';
}

static rvl_status ask_library(const char *bus_id, uint64_t *free_out)
{
    void *device = NULL;
    nvml_memory memory = {0};
    pthread_once(&once, load);
    if (!good || nvml.by_bus_id(bus_id, &device) != 0 || nvml.get_memory(device, &memory) != 0)
        return rvli_error(RVL_ERR_NOT_SUPPORTED,
                          "what " LIBRARY_VARIABLE " names does not say how much of the device is "
                          "free: name libnvidia-ml.so.1, or unset it");
    *free_out = memory.free;
    return RVL_OK;
}

/* ---- nvidia-smi ---- */

/*
 * The environment without LD_PRELOAD, which is meant for this process only. The caller frees the
 * list. Returns NULL without memory.
 */
static char **environment_of_program(void)
{
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **list = calloc(count + 1, sizeof *list);
    for (size_t i = 0; list != NULL && i < count; i++)
        if (strncmp(environ[i], PRELOAD, sizeof PRELOAD - 1) != 0)
            list[kept++] = environ[i];
    return list;
}

static bool start(const char *bus_id, int out, pid_t *program_out)
{
    const char *const words[] = {
        PROGRAM, "--query-gpu=memory.free", "--format=csv,noheader,nounits", "-i", bus_id, NULL};
    posix_spawn_file_actions_t files;
    sigset_t none;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&files) != 0)
        return false;
    posix_spawnattr_init(&attributes);
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    char **variables = environment_of_program();
    int failed = posix_spawnp(program_out, PROGRAM, &files, &attributes, (char *const *)words,
                              variables != NULL ? variables : environ);
    free(variables);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return failed == 0;
}

/* Reads to the end, or until the time is up. */
static size_t read_all(int from, char *text, size_t capacity)
{
    struct pollfd waits = {.fd = from, .events = POLLIN};
    size_t length = 0;
    while (length + 1 < capacity) {
        int ready = poll(&waits, 1, ANSWER_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        ssize_t count = ready > 0 ? read(from, text + length, capacity - 1 - length) : 0;
        if (count <= 0)
            break;
        length += (size_t)count;
    }
    text[length] = '\0';
    return length;
}

static bool ask_program(const char *bus_id, uint64_t *free_out)
{
    int ends[2];
    char text[64], *end = NULL;
    pid_t program = 0;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    bool started = start(bus_id, ends[1], &program);
    close(ends[1]);
    if (started) {
        read_all(ends[0], text, sizeof text);
        kill(program, SIGKILL); /* its output has been read */
        while (waitpid(program, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    close(ends[0]);
    if (!started)
        return false;
    unsigned long long mib = strtoull(text, &end, 10);
    *free_out = (uint64_t)mib << MIB_SHIFT;
    return end != text;
}

rvl_status rvli_room_of(const char *bus_id, uint64_t *free_out)
{
    if (is_named())
        return ask_library(bus_id, free_out);
    return ask_program(bus_id, free_out)
               ? RVL_OK
               : rvli_error(RVL_ERR_NOT_SUPPORTED,
                            "nvidia-smi does not say how much of the device is free, so nobody "
                            "knows whether a sleeping process has room to wake: put it on the "
                            "PATH; in a container, allow the capability utility");
}
