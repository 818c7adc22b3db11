/* SPDX-License-Identifier: MIT */
/*
 * A user's program, built against CUDA's headers and linked with libcudart. It executes its words
 * in order. Words with a result print it:
 *
 *     malloc BYTES   result     memory    bytes in use     held SECONDS   sleeps
 *     mark FILE      makes it   until FILE   waits for it
 *     vmm BYTES      result     pin BYTES result           stage NAME     an NVTX range
 *     free           the last   touch     the last         child WORD...  in a forked child
 *     device N       result     unknown   result           pairs N        microseconds per pair
 *     tables         result of asking for the driver's private tables
 *     nvml N         bytes in use according to NVML
 *     confidential V NVML's values, by version V of its structure; 0: all is off
 *     sees LIST      sets CUDA_VISIBLE_DEVICES; the number of devices, or an error
 *     uuid N         its last byte      bus N     its PCI bus
 *     wheel FILE     devices that a library with its own copy of the runtime sees
 *     opens FILE     whether this name opens the driver; -1: it opens nothing
 *     nccl WORD...   see tests/simcuda/nccl_words.h
 *     streams N      result             kernel    result, of a kernel in PTX
 *     graph          result, of a graph without nodes
 *     pool SIZES     allocates each size of a list, in MiB, from the pool, and frees all
 *     wait           result, of waiting for the device
 *     multicast      whether the device supports it, and the result of making an object, twice
 *     become USER    result, of switching to another user
 *     steals         closes all descriptors, and opens a socket in place of each
 *     written        bytes that were written to these sockets
 *     bare WORD...   in a child of a bare clone(), which no library notices
 *     register ADDRESS BYTES   result
 *     exit N         ends with this status
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <nvtx3/nvToolsExt.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "nccl_words.h"

static void *last;

static void say(long long value)
{
    printf("%lld\n", value);
    fflush(stdout);
}

static void memory(void)
{
    size_t left = 0, total = 0;
    cudaError_t error = cudaMemGetInfo(&left, &total);
    say(error == cudaSuccess ? (long long)(total - left) : -(long long)error);
}

/* ---- Descriptors that were replaced ---- */

#define STOLEN_FIRST 3
#define STOLEN_END 64
static int stolen[2] = {-1, -1};

static void steal(void)
{
    for (int file = STOLEN_FIRST; file < STOLEN_END; file++)
        close(file);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, stolen) != 0)
        exit(9);
    int kept = fcntl(stolen[1], F_DUPFD, STOLEN_END);
    close(stolen[1]);
    stolen[1] = kept;
    for (int file = STOLEN_FIRST; file < STOLEN_END; file++)
        dup2(stolen[0], file);
}

static long long written(void)
{
    char bytes[4096];
    return recv(stolen[1], bytes, sizeof bytes, MSG_DONTWAIT);
}

/* Maps memory with the driver's functions, at an address reserved for it. */
static CUresult map(size_t bytes)
{
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    const CUmemAccessDesc access = {.location = kind.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle;
    CUdeviceptr addr = 0;
    CUresult result = cuMemCreate(&handle, bytes, &kind, 0);
    if (result == CUDA_SUCCESS)
        result = cuMemAddressReserve(&addr, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS)
        result = cuMemMap(addr, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS)
        result = cuMemSetAccess(addr, bytes, &access, 1);
    if (result == CUDA_SUCCESS)
        result = cuMemRelease(handle); /* it stays as long as it is mapped */
    last = (void *)addr;
    return result;
}

static CUresult unmap(size_t bytes)
{
    CUresult result = cuMemUnmap((CUdeviceptr)last, bytes);
    return result == CUDA_SUCCESS ? cuMemAddressFree((CUdeviceptr)last, bytes) : result;
}

/* A function of NVML, which programs open by name. */
static uintptr_t of_nvml(const char *name)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    void *function = library != NULL ? dlsym(library, name) : NULL;
    if (function == NULL)
        exit(100);
    return (uintptr_t)function;
}

/* Bytes in use according to NVML, or its error as a negative number. */
static long long ask_nvml(unsigned index)
{
    unsigned long long memory[3]; /* total, free, used */
    void *device = NULL;
    int (*init)(void) = (int (*)(void))of_nvml("nvmlInit_v2");
    int (*find)(unsigned, void **) =
        (int (*)(unsigned, void **))of_nvml("nvmlDeviceGetHandleByIndex_v2");
    int (*ask)(void *, void *) = (int (*)(void *, void *))of_nvml("nvmlDeviceGetMemoryInfo");
    int result = init();
    result = result == 0 ? find(index, &device) : result;
    result = result == 0 ? ask(device, memory) : result;
    return result == 0 ? (long long)memory[2] : -(long long)result;
}

/* The sum of all values that both functions of NVML return about confidential computing, or an
 * error as a negative number. */
static long long ask_confidential(unsigned version)
{
    unsigned state[3] = {9, 9, 9}; /* environment, feature, tools of developers */
    unsigned settings[5] = {sizeof settings | version << 24, 9, 9, 9, 9}; /* and several GPUs */
    int (*ask_state)(void *) = (int (*)(void *))of_nvml("nvmlSystemGetConfComputeState");
    int (*ask_settings)(void *) = (int (*)(void *))of_nvml("nvmlSystemGetConfComputeSettings");
    int result = ask_settings(settings);
    result = result == 0 ? ask_state(state) : result;
    unsigned said = state[0] + state[1] + state[2];
    for (int each = 1; each < 5; each++)
        said += settings[each];
    return result == 0 ? (long long)said : -(long long)result;
}

static long long sees(const char *list)
{
    int count = 0;
    setenv("CUDA_VISIBLE_DEVICES", list, 1);
    cudaError_t error = cudaGetDeviceCount(&count);
    return error == cudaSuccess ? count : -(long long)error;
}

static long long ask_uuid(int device)
{
    struct cudaDeviceProp of;
    cudaError_t error = cudaGetDeviceProperties(&of, device);
    return error == cudaSuccess ? of.uuid.bytes[15] : -(long long)error;
}

static long long ask_bus(int device)
{
    char text[16];
    cudaError_t error = cudaDeviceGetPCIBusId(text, sizeof text, device);
    return error == cudaSuccess ? strtol(text + 5, NULL, 16) : -(long long)error;
}

static long long opens_driver(const char *file)
{
    void *opened = dlopen(file, RTLD_NOW);
    return opened == NULL ? -1 : opened == dlopen("libcuda.so.1", RTLD_NOW);
}

static long long ask_wheel(const char *file)
{
    void *opened = dlopen(file, RTLD_NOW);
    int (*ask)(void) =
        opened != NULL ? (int (*)(void))(uintptr_t)dlsym(opened, "wheel_devices") : NULL;
    return ask != NULL ? ask() : -1000;
}

static void pairs(long count)
{
    struct timespec from, to;
    void *addr;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (long i = 0; i < count; i++)
        if (cudaMalloc(&addr, 20 << 20) != cudaSuccess || cudaFree(addr) != cudaSuccess)
            exit(1);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.2f\n",
           ((double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3) /
               (double)count);
}

static cudaError_t make_streams(long count)
{
    cudaError_t result = cudaSuccess;
    cudaStream_t stream;
    for (long i = 0; i < count && result == cudaSuccess; i++)
        result = cudaStreamCreate(&stream);
    return result;
}

static CUresult launch_kernel(void)
{
    static const char text[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                               ".visible .entry nothing()\n{\n    ret;\n}\n";
    CUmodule module;
    CUfunction kernel;
    CUresult result = cuModuleLoadData(&module, text);
    if (result == CUDA_SUCCESS)
        result = cuModuleGetFunction(&kernel, module, "nothing");
    if (result == CUDA_SUCCESS)
        result = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
    return result;
}

static CUresult launch_graph(void)
{
    CUgraph graph;
    CUgraphExec exec;
    CUresult result = cuGraphCreate(&graph, 0);
    if (result == CUDA_SUCCESS)
        result = cuGraphInstantiateWithFlags(&exec, graph, 0);
    return result == CUDA_SUCCESS ? cuGraphLaunch(exec, NULL) : result;
}

/* A list separated by commas. */
static cudaError_t use_pool(const char *sizes)
{
    void *made[8];
    int count = 0;
    cudaError_t error = cudaSuccess;
    for (char *at = (char *)(uintptr_t)sizes; error == cudaSuccess && *at != '\0' && count < 8;
         at += *at == ',') {
        error = cudaMallocAsync(&made[count], (size_t)strtoul(at, &at, 10) << 20, NULL);
        count += error == cudaSuccess;
    }
    while (count > 0)
        cudaFreeAsync(made[--count], NULL);
    return error;
}

static void ask_multicast(void)
{
    const CUmulticastObjectProp wanted = {.numDevices = 2, .size = 2 << 20};
    CUmemGenericAllocationHandle made;
    int can = -1;
    cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0);
    say(can);
    for (int i = 0; i < 2; i++)
        say(cuMulticastCreate(&made, &wanted));
}

static int act(char **words)
{
    const char *word = words[0];
    long long value = words[1] != NULL ? atoll(words[1]) : 0;
    if (strcmp(word, "malloc") == 0)
        say(cudaMalloc(&last, (size_t)value));
    else if (strcmp(word, "vmm") == 0)
        say(map((size_t)value));
    else if (strcmp(word, "unmap") == 0)
        say(unmap((size_t)value));
    else if (strcmp(word, "pin") == 0)
        say(cudaHostAlloc(&last, (size_t)value, 0));
    else if (strcmp(word, "device") == 0)
        say(cudaSetDevice((int)value));
    else if (strcmp(word, "held") == 0)
        sleep((unsigned)value);
    else if (strcmp(word, "mark") == 0)
        make_mark(words[1]);
    else if (strcmp(word, "until") == 0)
        await_mark(words[1]);
    else if (strcmp(word, "stage") == 0)
        nvtxRangePushA(words[1]);
    else if (strcmp(word, "pairs") == 0)
        pairs((long)value);
    else if (strcmp(word, "pool") == 0)
        say(use_pool(words[1]));
    else if (strcmp(word, "streams") == 0)
        say(make_streams((long)value));
    else if (strcmp(word, "nvml") == 0)
        say(ask_nvml((unsigned)value));
    else if (strcmp(word, "confidential") == 0)
        say(ask_confidential((unsigned)value));
    else if (strcmp(word, "sees") == 0)
        say(sees(words[1]));
    else if (strcmp(word, "uuid") == 0)
        say(ask_uuid((int)value));
    else if (strcmp(word, "bus") == 0)
        say(ask_bus((int)value));
    else if (strcmp(word, "opens") == 0)
        say(opens_driver(words[1]));
    else if (strcmp(word, "wheel") == 0)
        say(ask_wheel(words[1]));
    else if (strcmp(word, "become") == 0)
        say(seteuid((uid_t)value));
    else if (strcmp(word, "exit") == 0)
        exit((int)value);
    else
        return 0;
    return 2;
}

static int act_alone(const char *word)
{
    struct cudaDeviceProp facts;
    struct cudaPointerAttributes what;
    const void *table = NULL;
    char byte = 'x';
    if (strcmp(word, "memory") == 0)
        memory();
    else if (strcmp(word, "kernel") == 0)
        say(launch_kernel());
    else if (strcmp(word, "graph") == 0)
        say(launch_graph());
    else if (strcmp(word, "free") == 0)
        say(cudaFree(last));
    else if (strcmp(word, "steals") == 0)
        steal();
    else if (strcmp(word, "written") == 0)
        say(written());
    else if (strcmp(word, "touch") == 0)
        *(volatile char *)last = 1;
    else if (strcmp(word, "read") == 0)
        say(cudaMemcpy(&byte, last, 1, cudaMemcpyDeviceToHost) == cudaSuccess ? byte : -1);
    else if (strcmp(word, "error") == 0)
        puts(cudaGetErrorName(cudaGetLastError()));
    else if (strcmp(word, "what") == 0)
        say(cudaPointerGetAttributes(&what, last) == cudaSuccess ? (int)what.type : -1);
    else if (strcmp(word, "name") == 0)
        puts(cudaGetDeviceProperties(&facts, 0) == cudaSuccess ? facts.name : "none");
    else if (strcmp(word, "tables") == 0)
        say(cuGetExportTable(&table, &(CUuuid){{0}}));
    else if (strcmp(word, "wait") == 0)
        say(cudaDeviceSynchronize());
    else if (strcmp(word, "multicast") == 0)
        ask_multicast();
    else if (strcmp(word, "unknown") == 0)
        say(cudaCtxResetPersistingL2Cache());
    else
        return 0;
    return 1;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc;) {
        if (strcmp(argv[i], "nccl") == 0)
            return nccl_words(argv + i + 1);
        if (strcmp(argv[i], "child") == 0) {
            pid_t child = fork();
            if (child != 0)
                return waitpid(child, NULL, 0) < 0;
            i++;
            continue;
        }
        if (strcmp(argv[i], "bare") == 0) {
            long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
            if (child != 0)
                return waitpid((pid_t)child, NULL, 0) < 0;
            i++;
            continue;
        }
        if (strcmp(argv[i], "register") == 0) {
            say(cudaHostRegister((void *)(uintptr_t)strtoull(argv[i + 1], NULL, 0),
                                 strtoull(argv[i + 2], NULL, 0), 0));
            i += 3;
            continue;
        }
        int taken = act_alone(argv[i]);
        taken = taken > 0 ? taken : act(argv + i);
        if (taken == 0) {
            fprintf(stderr, "%s: no such word\n", argv[i]);
            return 9;
        }
        i += taken;
    }
    return 0;
}
