/* SPDX-License-Identifier: MIT */
/*
 * CUDA's results where two processes share memory and events, one fact per line. The same
 * program runs on a card and on a simulated one, and prints the same. A peer, which is another
 * process of this program, follows its orders. Words select the parts: memory ends events files
 * unmapped devices.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "facts_need.h"

#define MIB ((size_t)1 << 20)
#define SIZE (64 * MIB)
#define PEER_SOCKET 17

/* Evaluates the first argument before the others. */
#define SAY(format, first, ...)                                                                    \
    do {                                                                                           \
        const char *said = (first);                                                                \
        say(format, said, __VA_ARGS__);                                                            \
    } while (0)

static const char *name_of(cudaError_t error)
{
    (void)cudaGetLastError();
    return cudaGetErrorName(error);
}

static void need(bool good, const char *what)
{
    if (!good) {
        perror(what);
        exit(1);
    }
}

/* MiB in use on the device, by all processes. */
static long long used(void)
{
    size_t left = 0, total = 0;
    NEED(cudaMemGetInfo(&left, &total));
    return (long long)((total - left) / MIB);
}

/* As used(), after the end of a process or a closed file has taken effect. */
static long long settled(void)
{
    const struct timespec time = {.tv_nsec = 400000000};
    nanosleep(&time, NULL);
    return used();
}

/* ---- Orders to the peer ---- */

typedef enum order {
    BEGIN,      /* make its context */
    OPEN,       /* handle, value: flags -> addr */
    CLOSE,      /* addr */
    FREE,       /* addr, with cudaFree */
    READ,       /* addr -> value: a byte */
    WRITE,      /* addr, value: a byte */
    ALLOCATE,   /* value: bytes -> addr, handle, value: its byte is 'p' */
    TAKE_MANY,  /* pieces of 2 MiB */
    FREE_MANY,  /* frees all of these */
    DEVICE_OF,  /* addr -> value */
    USE_DEVICE, /* value */
    OPEN_EVENT, /* event -> addr */
    QUERY,      /* addr */
    WAIT,       /* addr: a stream waits for the event, and then the peer for the stream */
    RECORD,     /* addr */
    SHARE,      /* addr: an event that it has -> event */
    ELAPSED,    /* addr: the time from the event to itself */
    DESTROY,    /* addr */
    IMPORT,     /* a file -> a driver handle in value */
    MAP,        /* value, addr: bytes -> addr */
    UNMAP,      /* addr, value: bytes */
    RELEASE,    /* value */
    END,        /* without freeing anything */
} order;

typedef struct message {
    int what;
    int error; /* of the reply */
    uint64_t addr;
    int64_t value;
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t event;
} message;

static void send_message(int to, const message *what, int file)
{
    struct iovec part = {(void *)(uintptr_t)what, sizeof *what};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct msghdr sent = {.msg_iov = &part, .msg_iovlen = 1};
    if (file >= 0) {
        sent.msg_control = control;
        sent.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&sent);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &file, sizeof file);
    }
    need(sendmsg(to, &sent, MSG_NOSIGNAL) == (ssize_t)sizeof *what, "sendmsg");
}

static bool receive_message(int from, message *what, int *file)
{
    struct iovec part = {what, sizeof *what};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr got = {.msg_iov = &part,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof control};
    *file = -1;
    if (recvmsg(from, &got, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *what)
        return false;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&got);
    if (header != NULL && header->cmsg_type == SCM_RIGHTS)
        memcpy(file, CMSG_DATA(header), sizeof *file);
    return true;
}

/* ---- The peer ---- */

static CUresult map(CUmemGenericAllocationHandle handle, size_t bytes, CUdeviceptr *addr)
{
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = cuMemAddressReserve(addr, bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS)
        result = cuMemMap(*addr, bytes, 0, handle, 0);
    return result == CUDA_SUCCESS ? cuMemSetAccess(*addr, bytes, &access, 1) : result;
}

static CUresult unmap(CUdeviceptr addr, size_t bytes)
{
    CUresult result = cuMemUnmap(addr, bytes);
    return result == CUDA_SUCCESS ? cuMemAddressFree(addr, bytes) : result;
}

static cudaError_t allocate(message *what)
{
    void *addr = NULL;
    const char byte = 'p';
    cudaError_t error = cudaMalloc(&addr, (size_t)what->value);
    if (error == cudaSuccess)
        error = cudaMemcpy(addr, &byte, 1, cudaMemcpyHostToDevice);
    if (error == cudaSuccess)
        error = cudaIpcGetMemHandle(&what->memory, addr);
    what->addr = (uintptr_t)addr;
    return error;
}

#define MANY 100
static void *many[MANY];

static cudaError_t take_many(void)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < MANY && error == cudaSuccess; i++)
        error = cudaMalloc(&many[i], 2 * MIB);
    return error;
}

static cudaError_t free_many(void)
{
    cudaError_t error = cudaSuccess;
    for (int i = 0; i < MANY && error == cudaSuccess; i++)
        error = cudaFree(many[i]);
    return error;
}

static cudaError_t do_memory(message *what)
{
    void *addr = (void *)(uintptr_t)what->addr; /* NOLINT(performance-no-int-to-ptr) */
    char byte = (char)what->value;
    struct cudaPointerAttributes facts;
    cudaError_t error = cudaSuccess;
    switch ((order)what->what) {
    case BEGIN:
        return cudaFree(NULL);
    case OPEN:
        error = cudaIpcOpenMemHandle(&addr, what->memory, (unsigned)what->value);
        what->addr = (uintptr_t)addr;
        return error;
    case CLOSE:
        return cudaIpcCloseMemHandle(addr);
    case FREE:
        return cudaFree(addr);
    case READ:
        error = cudaMemcpy(&byte, addr, 1, cudaMemcpyDeviceToHost);
        what->value = (unsigned char)byte;
        return error;
    case WRITE:
        return cudaMemcpy(addr, &byte, 1, cudaMemcpyHostToDevice);
    case ALLOCATE:
        return allocate(what);
    case TAKE_MANY:
        return take_many();
    case FREE_MANY:
        return free_many();
    case DEVICE_OF:
        error = cudaPointerGetAttributes(&facts, addr);
        what->value = facts.device;
        return error;
    case USE_DEVICE:
        return cudaSetDevice((int)what->value);
    default:
        return cudaErrorNotSupported;
    }
}

static cudaError_t do_events(message *what)
{
    cudaEvent_t event = (cudaEvent_t)what->addr; /* NOLINT(performance-no-int-to-ptr) */
    cudaStream_t stream = NULL;
    float milliseconds;
    cudaError_t error = cudaSuccess;
    switch ((order)what->what) {
    case OPEN_EVENT:
        error = cudaIpcOpenEventHandle(&event, what->event);
        what->addr = (uintptr_t)event;
        return error;
    case QUERY:
        return cudaEventQuery(event);
    case WAIT:
        error = cudaStreamCreate(&stream);
        error = error == cudaSuccess ? cudaStreamWaitEvent(stream, event, 0) : error;
        return error == cudaSuccess ? cudaEventSynchronize(event) : error;
    case RECORD:
        return cudaEventRecord(event, NULL);
    case SHARE:
        return cudaIpcGetEventHandle(&what->event, event);
    case ELAPSED:
        return cudaEventElapsedTime(&milliseconds, event, event);
    case DESTROY:
        return cudaEventDestroy(event);
    default:
        return do_memory(what);
    }
}

static cudaError_t do_files(message *what, int file)
{
    CUmemGenericAllocationHandle handle = (CUmemGenericAllocationHandle)what->value;
    CUdeviceptr addr = what->addr;
    CUresult result = CUDA_SUCCESS;
    switch ((order)what->what) {
    case IMPORT:
        result = cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file,
                                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        close(file);
        what->value = (int64_t)handle;
        return (cudaError_t)result;
    case MAP:
        result = map(handle, (size_t)what->addr, &addr);
        what->addr = addr;
        return (cudaError_t)result;
    case UNMAP:
        return (cudaError_t)unmap(addr, (size_t)what->value);
    case RELEASE:
        return (cudaError_t)cuMemRelease(handle);
    case END:
        _exit(0);
    default:
        return do_events(what);
    }
}

static int be_peer(void)
{
    message what;
    int file;
    while (receive_message(PEER_SOCKET, &what, &file)) {
        what.error = (int)do_files(&what, file);
        (void)cudaGetLastError();
        send_message(PEER_SOCKET, &what, -1);
    }
    return 0;
}

/* ---- The peer, as the caller sees it ---- */

typedef struct peer {
    pid_t process;
    int socket;
    message last;
} peer;

static const char *ask_with(peer *of, order what, int file)
{
    int none;
    of->last.what = (int)what;
    send_message(of->socket, &of->last, file);
    need(receive_message(of->socket, &of->last, &none), "the peer");
    return cudaGetErrorName((cudaError_t)of->last.error);
}

static const char *ask(peer *of, order what)
{
    return ask_with(of, what, -1);
}

static const char *ask_of(peer *of, order what, uint64_t addr)
{
    of->last.addr = addr;
    return ask(of, what);
}

static const char *ask_for(peer *of, order what, int64_t value)
{
    of->last.value = value;
    return ask(of, what);
}

/* The byte that the peer reads there, or '?'. */
static char peer_reads(peer *of, uint64_t addr)
{
    (void)ask_of(of, READ, addr);
    return of->last.error == cudaSuccess ? (char)of->last.value : '?';
}

static peer start(void)
{
    int ends[2];
    peer made = {0};
    need(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0, "socketpair");
    made.process = fork();
    need(made.process >= 0, "fork");
    if (made.process == 0) {
        dup2(ends[1], PEER_SOCKET);
        execl("/proc/self/exe", "ipc_facts", "peer", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    made.socket = ends[0];
    need(strcmp(ask(&made, BEGIN), "cudaSuccess") == 0, "the peer's context");
    return made;
}

static void wait_for(peer *of)
{
    need(waitpid(of->process, NULL, 0) == of->process, "waitpid");
    close(of->socket);
}

static void end(peer *of)
{
    of->last.what = END;
    send_message(of->socket, &of->last, -1);
    wait_for(of);
}

static void kill_it(peer *of)
{
    kill(of->process, SIGKILL);
    wait_for(of);
}

/* ---- Memory, by handles ---- */

static void write_byte(void *addr, char byte)
{
    NEED(cudaMemcpy(addr, &byte, 1, cudaMemcpyHostToDevice));
}

static char read_byte(void *addr)
{
    char byte = '?';
    return cudaMemcpy(&byte, addr, 1, cudaMemcpyDeviceToHost) == cudaSuccess ? byte : '!';
}

/* Memory that has no handle. */
static void no_handle(void)
{
    cudaIpcMemHandle_t handle;
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle made;
    CUdeviceptr mapped;
    void *addr;
    char bytes[16];
    say("handle of nothing: %s", name_of(cudaIpcGetMemHandle(&handle, NULL)));
    say("handle of the stack: %s", name_of(cudaIpcGetMemHandle(&handle, bytes)));
    NEED(cudaHostAlloc(&addr, MIB, 0));
    say("handle of pinned memory: %s", name_of(cudaIpcGetMemHandle(&handle, addr)));
    NEED(cudaFreeHost(addr));
    NEED(cudaMallocManaged(&addr, MIB, cudaMemAttachGlobal));
    say("handle of managed memory: %s", name_of(cudaIpcGetMemHandle(&handle, addr)));
    NEED(cudaFree(addr));
    NEED(cudaMallocAsync(&addr, MIB, NULL));
    say("handle of a pool's memory: %s", name_of(cudaIpcGetMemHandle(&handle, addr)));
    NEED(cudaFreeAsync(addr, NULL));
    NEED(cuMemCreate(&made, 2 * MIB, &kind, 0));
    NEED(map(made, 2 * MIB, &mapped));
    say("handle of mapped memory: %s", name_of(cudaIpcGetMemHandle(&handle, (void *)mapped)));
    NEED(unmap(mapped, 2 * MIB));
    NEED(cuMemRelease(made));
    NEED(cudaMalloc(&addr, MIB));
    NEED(cudaFree(addr));
    say("handle of freed memory: %s", name_of(cudaIpcGetMemHandle(&handle, addr)));
}

static void open_again(peer *of, uint64_t addr)
{
    SAY("open again: %s, the same address %d", ask_for(of, OPEN, 1), of->last.addr == addr);
    SAY("close once: %s, reads %c", ask(of, CLOSE), peer_reads(of, addr));
    say("close twice: %s", ask_of(of, CLOSE, addr));
    say("close thrice: %s", ask_of(of, CLOSE, addr));
    SAY("open after that: %s, reads %c", ask_for(of, OPEN, 1), peer_reads(of, of->last.addr));
    say("close inside: %s", ask_of(of, CLOSE, of->last.addr + 512));
    say("free what was opened: %s", ask_of(of, FREE, of->last.addr - 512));
}

static void wrong_handles(peer *of, const cudaIpcMemHandle_t *good)
{
    memset(&of->last.memory, 0, sizeof of->last.memory);
    say("open zeroes: %s", ask_for(of, OPEN, 1));
    memset(&of->last.memory, 0x5a, sizeof of->last.memory);
    say("open anything: %s", ask_for(of, OPEN, 1));
    of->last.memory = *good;
    say("open with other flags: %s", ask_for(of, OPEN, 2));
    of->last.memory = *good;
    say("open without flags: %s", ask_for(of, OPEN, 0));
    say("close that: %s", ask(of, CLOSE));
}

/* Two allocations on one page. */
static void small_ones(peer *of)
{
    void *one, *two;
    cudaIpcMemHandle_t first, second;
    NEED(cudaMalloc(&one, 1000));
    NEED(cudaMalloc(&two, 1000));
    write_byte(one, '1');
    write_byte(two, '2');
    NEED(cudaIpcGetMemHandle(&first, one));
    NEED(cudaIpcGetMemHandle(&second, two));
    say("small ones have one handle: %d", memcmp(&first, &second, sizeof first) == 0);
    of->last.memory = first;
    SAY("open a small one: %s, reads %c", ask_for(of, OPEN, 1), peer_reads(of, of->last.addr));
    uint64_t addr = of->last.addr;
    of->last.memory = second;
    SAY("open its neighbour: %s, reads %c", ask_for(of, OPEN, 1), peer_reads(of, of->last.addr));
    say("close the neighbour: %s", ask(of, CLOSE));
    say("close the small one: %s", ask_of(of, CLOSE, addr));
    NEED(cudaFree(one));
    NEED(cudaFree(two));
}

static void in_a_capture(peer *of)
{
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaIpcMemHandle_t handle;
    void *addr = NULL, *own;
    NEED(cudaMalloc(&own, MIB));
    (void)ask_for(of, ALLOCATE, (int64_t)MIB);
    NEED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    NEED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    say("handle in a capture: %s", name_of(cudaIpcGetMemHandle(&handle, own)));
    say("open in a capture: %s", name_of(cudaIpcOpenMemHandle(&addr, of->last.memory, 1)));
    (void)cudaStreamEndCapture(stream, &graph);
    (void)cudaGetLastError();
    NEED(cudaStreamDestroy(stream));
    NEED(cudaFree(own));
}

static void memory(void)
{
    void *addr;
    cudaIpcMemHandle_t handle, inner;
    peer of = start();
    no_handle();
    NEED(cudaMalloc(&addr, SIZE));
    write_byte(addr, 'a');
    long long was = used();
    say("handle: %s", name_of(cudaIpcGetMemHandle(&handle, addr)));
    NEED(cudaIpcGetMemHandle(&inner, (char *)addr + SIZE / 2));
    say("handle of an inner address is the same: %d", memcmp(&handle, &inner, sizeof handle) == 0);
    void *own = NULL;
    say("open one's own: %s", name_of(cudaIpcOpenMemHandle(&own, handle, 1)));
    of.last.memory = handle;
    SAY("open: %s, %+lld", ask_for(&of, OPEN, 1), used() - was);
    uint64_t there = of.last.addr;
    say("reads: %c", peer_reads(&of, there));
    write_byte(addr, 'b');
    say("reads later: %c", peer_reads(&of, there));
    of.last.addr = there;
    SAY("writes: %s, here %c", ask_for(&of, WRITE, 'c'), read_byte(addr));
    SAY("its device: %s, %d", ask_of(&of, DEVICE_OF, there), (int)of.last.value);
    of.last.addr = there;
    of.last.memory = handle;
    open_again(&of, there);
    say("still open: %c", peer_reads(&of, there));
    wrong_handles(&of, &handle);
    say("close what one has: %s", name_of(cudaIpcCloseMemHandle(addr)));
    say("close nothing: %s", name_of(cudaIpcCloseMemHandle(NULL)));
    small_ones(&of);
    in_a_capture(&of);
    NEED(cudaFree(addr));
    end(&of);
}

/* ---- Ends: which process frees, ends or is killed first ---- */

static void owner_frees_first(void)
{
    void *addr;
    peer of = start();
    long long was = used();
    NEED(cudaMalloc(&addr, SIZE));
    write_byte(addr, 'f');
    NEED(cudaIpcGetMemHandle(&of.last.memory, addr));
    cudaIpcMemHandle_t handle = of.last.memory;
    say("first open: %s", ask_for(&of, OPEN, 1));
    uint64_t there = of.last.addr;
    SAY("the owner frees: %s, %+lld", name_of(cudaFree(addr)), settled() - was);
    peer third = start();
    long long with_third = used();
    third.last.memory = handle;
    say("a third opens it then: %s", ask_for(&third, OPEN, 1));
    SAY("the peer closes: %s, %+lld", ask_of(&of, CLOSE, there), settled() - with_third);
    of.last.memory = handle;
    say("open what was freed: %s", ask_for(&of, OPEN, 1));
    end(&third);
    end(&of);
}

static void importer_ends(bool killed)
{
    void *addr;
    long long was = used();
    NEED(cudaMalloc(&addr, SIZE));
    write_byte(addr, 'i');
    peer of = start();
    NEED(cudaIpcGetMemHandle(&of.last.memory, addr));
    (void)ask_for(&of, OPEN, 1);
    if (killed)
        kill_it(&of);
    else
        end(&of);
    SAY("the importer %s: %+lld, reads %c", killed ? "is killed" : "ends", settled() - was,
        read_byte(addr));
    SAY("the owner frees then: %s, %+lld", name_of(cudaFree(addr)), settled() - was);
}

static void owner_ends(bool killed)
{
    void *addr = NULL, *again = NULL;
    const char *how = killed ? "is killed" : "ends";
    long long was = used();
    peer of = start();
    (void)ask_for(&of, ALLOCATE, (int64_t)SIZE);
    cudaIpcMemHandle_t handle = of.last.memory;
    SAY("open before the owner %s: %s", how, name_of(cudaIpcOpenMemHandle(&addr, handle, 1)));
    if (killed)
        kill_it(&of);
    else
        end(&of);
    SAY("the owner %s: %+lld, reads %c", how, settled() - was, read_byte(addr));
    SAY("open again after it %s: %s", how, name_of(cudaIpcOpenMemHandle(&again, handle, 1)));
    if (again != NULL)
        (void)cudaIpcCloseMemHandle(again);
    const char *closed = name_of(cudaIpcCloseMemHandle(addr));
    SAY("close after the owner %s: %s, %+lld", how, closed, settled() - was);
    SAY("open when the owner %s: %s", killed ? "was killed" : "has ended",
        name_of(cudaIpcOpenMemHandle(&addr, handle, 1)));
}

/* The process that simulates the card. 0: this runs on a real card. */
static pid_t find_machine(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer_of_ours = {0};
    socklen_t size = sizeof peer_of_ours;
    const char *name = getenv("REVEILLE_MACHINE");
    if (name == NULL || strlen(name) + 1 >= sizeof address.sun_path)
        return 0;
    memcpy(address.sun_path + 1, name, strlen(name));
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    need(file >= 0 &&
             connect(file, (struct sockaddr *)&address,
                     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) == 0,
         "connect");
    need(getsockopt(file, SOL_SOCKET, SO_PEERCRED, &peer_of_ours, &size) == 0, "getsockopt");
    close(file);
    return peer_of_ours.pid;
}

/* Continues the machine some time after it was stopped. */
static void go_on_later(pid_t machine)
{
    const struct timespec time = {.tv_nsec = 200000000};
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child > 0)
        return;
    nanosleep(&time, NULL);
    kill(machine, SIGCONT);
    _exit(0);
}

/*
 * When the peer reports that it has freed memory, any process can use it. The machine is stopped
 * meanwhile, so it receives the frees and the query at the same time.
 */
static void peer_frees(void)
{
    pid_t machine = find_machine();
    peer of = start();
    long long was = used();
    SAY("a peer takes many: %s, %+lld", ask(&of, TAKE_MANY), used() - was);
    if (machine != 0)
        kill(machine, SIGSTOP);
    const char *freed = ask(&of, FREE_MANY);
    if (machine != 0)
        go_on_later(machine);
    SAY("a peer frees many: %s, %+lld", freed, used() - was);
    (void)ask(&of, TAKE_MANY);
    if (machine != 0)
        kill(machine, SIGSTOP);
    kill_it(&of);
    if (machine != 0)
        go_on_later(machine);
    say("a killed peer has none: %d", (machine == 0 ? settled() : used()) < was);
}

static void ends(void)
{
    peer_frees();
    owner_frees_first();
    importer_ends(false);
    importer_ends(true);
    owner_ends(false);
    owner_ends(true);
}

/* ---- Events ---- */

static void no_event(void)
{
    cudaEvent_t event;
    cudaIpcEventHandle_t handle;
    say("event without timing off: %s",
        name_of(cudaEventCreateWithFlags(&event, cudaEventInterprocess)));
    NEED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    say("handle of another event: %s", name_of(cudaIpcGetEventHandle(&handle, event)));
    NEED(cudaEventDestroy(event));
}

static void events(void)
{
    cudaEvent_t event, own = NULL;
    cudaIpcEventHandle_t handle, again;
    peer of = start();
    no_event();
    NEED(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming));
    say("handle of an event: %s", name_of(cudaIpcGetEventHandle(&handle, event)));
    NEED(cudaIpcGetEventHandle(&again, event));
    say("the same again: %d", memcmp(&handle, &again, sizeof handle) == 0);
    say("open one's own event: %s", name_of(cudaIpcOpenEventHandle(&own, handle)));
    of.last.event = handle;
    say("open an event: %s", ask(&of, OPEN_EVENT));
    uint64_t there = of.last.addr;
    say("query before a record: %s", ask_of(&of, QUERY, there));
    NEED(cudaEventRecord(event, NULL));
    NEED(cudaDeviceSynchronize());
    say("query: %s", ask_of(&of, QUERY, there));
    say("wait: %s", ask_of(&of, WAIT, there));
    SAY("record there: %s, query here %s", ask_of(&of, RECORD, there),
        name_of(cudaEventSynchronize(event)));
    say("elapsed: %s", ask_of(&of, ELAPSED, there));
    say("handle of an opened event: %s", ask_of(&of, SHARE, there));
    of.last.event = handle;
    SAY("open an event again: %s, the same %d", ask(&of, OPEN_EVENT), of.last.addr == there);
    memset(&of.last.event, 0, sizeof of.last.event);
    say("open zeroes as an event: %s", ask(&of, OPEN_EVENT));
    say("destroy what was opened: %s", ask_of(&of, DESTROY, there));
    NEED(cudaEventDestroy(event));
    of.last.event = handle;
    say("open a destroyed event: %s", ask(&of, OPEN_EVENT));
    end(&of);
}

/* ---- File descriptors ---- */

static CUmemGenericAllocationHandle create(CUmemAllocationHandleType type)
{
    CUmemGenericAllocationHandle made;
    CUmemAllocationProp kind = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = type,
                                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    NEED(cuMemCreate(&made, SIZE, &kind, 0));
    return made;
}

#define A_FILE CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static const char *driver_says(CUresult result)
{
    const char *name = "?";
    (void)cuGetErrorName(result, &name);
    return name;
}

static void no_file(CUmemGenericAllocationHandle good)
{
    int file = -1, nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    CUmemGenericAllocationHandle made = create(CU_MEM_HANDLE_TYPE_NONE);
    say("file of what has none: %s",
        driver_says(cuMemExportToShareableHandle(&file, made, A_FILE, 0)));
    NEED(cuMemRelease(made));
    say("file of what was released: %s",
        driver_says(cuMemExportToShareableHandle(&file, made, A_FILE, 0)));
    say("file with flags: %s", driver_says(cuMemExportToShareableHandle(&file, good, A_FILE, 1)));
    say("file of another kind: %s",
        driver_says(cuMemExportToShareableHandle(&file, good, CU_MEM_HANDLE_TYPE_WIN32, 0)));
    say("import another file: %s",
        driver_says(cuMemImportFromShareableHandle(&made, (void *)(intptr_t)nothing, A_FILE)));
    say("import no file: %s",
        driver_says(cuMemImportFromShareableHandle(&made, (void *)(intptr_t)-1, A_FILE)));
    close(nothing);
}

static void own_file(CUmemGenericAllocationHandle handle, int file, long long was)
{
    CUmemGenericAllocationHandle again = 0;
    CUmemAllocationProp kind = {0};
    SAY("import one's own: %s, %+lld",
        driver_says(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file, A_FILE)),
        used() - was);
    say("the same handle: %d", again == handle);
    SAY("what it is: %s, device %d, kind %d",
        driver_says(cuMemGetAllocationPropertiesFromHandle(&kind, again)), kind.location.id,
        (int)kind.requestedHandleTypes);
    SAY("release it: %s, %+lld", driver_says(cuMemRelease(again)), used() - was);
}

/* Only the file holds the memory. */
static void file_alone(void)
{
    int file = -1;
    long long was = used();
    CUmemGenericAllocationHandle handle = create(A_FILE), back;
    NEED(cuMemExportToShareableHandle(&file, handle, A_FILE, 0));
    int copy = dup(file);
    NEED(cuMemRelease(handle));
    close(file);
    say("a file alone: %+lld", settled() - was);
    say("import from it: %s",
        driver_says(cuMemImportFromShareableHandle(&back, (void *)(intptr_t)copy, A_FILE)));
    NEED(cuMemRelease(back));
    close(copy);
    say("the file is closed: %+lld", settled() - was);
}

static void files(void)
{
    int file = -1;
    CUdeviceptr addr;
    peer of = start();
    long long before = used();
    CUmemGenericAllocationHandle handle = create(A_FILE);
    NEED(map(handle, SIZE, &addr));
    write_byte((void *)addr, 'v');
    long long was = used();
    no_file(handle);
    say("file: %s", driver_says(cuMemExportToShareableHandle(&file, handle, A_FILE, 0)));
    own_file(handle, file, was);
    SAY("import: %s, %+lld", ask_with(&of, IMPORT, file), used() - was);
    int64_t theirs = of.last.value;
    say("import again: %s", ask_with(&of, IMPORT, file));
    int64_t second = of.last.value;
    say("release the second: %s", ask_for(&of, RELEASE, second));
    of.last.addr = SIZE;
    say("map: %s", ask_for(&of, MAP, theirs));
    uint64_t there = of.last.addr;
    say("mapped reads: %c", peer_reads(&of, there));
    write_byte((void *)addr, 'w');
    say("mapped reads later: %c", peer_reads(&of, there));
    of.last.addr = there;
    SAY("mapped writes: %s, here %c", ask_for(&of, WRITE, 'x'), read_byte((void *)addr));
    say("release what is mapped: %s", ask_for(&of, RELEASE, theirs));
    close(file);
    NEED(unmap(addr, SIZE));
    NEED(cuMemRelease(handle));
    say("the owner lets go: %+lld, reads %c", settled() - before, peer_reads(&of, there));
    of.last.addr = there;
    SAY("the importer lets go: %s, %+lld", ask_for(&of, UNMAP, (int64_t)SIZE), settled() - before);
    file_alone();
    handle = create(A_FILE);
    NEED(cuMemExportToShareableHandle(&file, handle, A_FILE, 0));
    (void)ask_with(&of, IMPORT, file);
    close(file);
    kill_it(&of);
    NEED(cuMemRelease(handle));
    peer next = start();
    say("a killed importer: %+lld", settled() - before);
    end(&next);
}

/* Addresses without memory. This part runs last: an error on the device ends all work there. */
static void unmapped(void)
{
    CUdeviceptr addr = 0;
    char byte = 'u';
    NEED(cuMemAddressReserve(&addr, 4 * MIB, 0, 0, 0));
    say("copy from no memory: %s",
        name_of(cudaMemcpy(&byte, (void *)addr, 1, cudaMemcpyDeviceToHost)));
    say("copy to no memory: %s",
        name_of(cudaMemcpy((void *)addr, &byte, 1, cudaMemcpyHostToDevice)));
    say("fill no memory: %s", name_of(cudaMemset((void *)addr, 1, 16)));
    say("wait for that: %s", name_of(cudaDeviceSynchronize()));
}

/* ---- Another device ---- */

static void devices(void)
{
    void *addr;
    peer of = start();
    NEED(cudaMalloc(&addr, SIZE));
    write_byte(addr, 'd');
    NEED(cudaIpcGetMemHandle(&of.last.memory, addr));
    say("open for the first device: %s", ask_for(&of, OPEN, 1));
    uint64_t first = of.last.addr;
    NEED(cudaSetDevice(1));
    say("use the second: %s", ask_for(&of, USE_DEVICE, 1));
    long long was = used();
    SAY("open for the second: %s, %+lld there", ask_for(&of, OPEN, 1), used() - was);
    say("it has another address: %d, reads %c", of.last.addr != first,
        peer_reads(&of, of.last.addr));
    uint64_t second = of.last.addr;
    SAY("it is of the first: %s, %d", ask_of(&of, DEVICE_OF, second), (int)of.last.value);
    say("close for the first: %s", ask_of(&of, CLOSE, first));
    say("the second still reads: %c", peer_reads(&of, second));
    say("close for the second: %s", ask_of(&of, CLOSE, second));
    end(&of);
}

/* A peer that sees only the second device, as its first. */
static void visible(void)
{
    void *addr;
    int file = -1;
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    peer of = start();
    long long was = used();
    CUmemGenericAllocationHandle handle = create(A_FILE);
    NEED(cuMemExportToShareableHandle(&file, handle, A_FILE, 0));
    say("import from a device that it does not see: %s", ask_with(&of, IMPORT, file));
    close(file);
    NEED(cuMemRelease(handle));
    say("all is given back: %+lld", settled() - was);
    NEED(cudaSetDevice(1));
    NEED(cudaMalloc(&addr, SIZE));
    write_byte(addr, 'd');
    NEED(cudaIpcGetMemHandle(&of.last.memory, addr));
    SAY("open from the one that it sees: %s, reads %c", ask_for(&of, OPEN, 1),
        peer_reads(&of, of.last.addr));
    SAY("it is of its first: %s, %d", ask_of(&of, DEVICE_OF, of.last.addr), (int)of.last.value);
    end(&of);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"memory", memory},  {"ends", ends},         {"events", events},
                 {"files", files},    {"unmapped", unmapped}, {"devices", devices},
                 {"visible", visible}};
    if (argc > 1 && strcmp(argv[1], "peer") == 0)
        return be_peer();
    NEED(cudaFree(NULL));
    NEED(cuInit(0));
    for (int i = 1; i < argc; i++)
        for (size_t part = 0; part < sizeof parts / sizeof *parts; part++)
            if (strcmp(argv[i], parts[part].name) == 0)
                parts[part].run();
    return 0;
}
