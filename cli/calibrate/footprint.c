/* SPDX-License-Identifier: MIT */
/*
 * Measures the memory that the driver takes for itself: for a context, the first kernel, streams
 * and graphs.
 *
 * The amounts are differences of the free bytes from cuMemGetInfo(). It needs a context, so a
 * process cannot measure its own first one. Instead, a child makes a context while this process
 * reads the free bytes.
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calibrate/card.h"

/* ---- Context ---- */

struct context_child {
    pid_t pid;
    int socket; /* the first byte sent means: make the context; the second: pause; a closed socket:
                   exit. The child replies with a byte once the context exists, and with a
                   first_pause after the pause */
};

static bool take_byte(int socket)
{
    char byte = 0;
    return recv(socket, &byte, 1, 0) == 1;
}

static bool give_byte(int socket)
{
    const char byte = 1;
    return send(socket, &byte, 1, MSG_NOSIGNAL) == 1;
}

typedef struct first_pause {
    uint64_t ns;
    uint64_t bytes;
} first_pause;

/* Runs in the child: keeps a context, as a program has it, until the parent closes the socket. */
static void be_child(int ordinal, int socket)
{
    samples none = {0};
    card it = {.measured = &none};
    if (take_byte(socket) && card_find(&it, ordinal) == RVL_OK && card_open(&it) == RVL_OK &&
        give_byte(socket) && take_byte(socket)) {
        first_pause took = {0};
        took.ns = measure_first_pause(&it, &took.bytes);
        if (send(socket, &took, sizeof took, MSG_NOSIGNAL) == (ssize_t)sizeof took)
            take_byte(socket);
    }
    _exit(0);
}

context_child *context_child_start(int ordinal)
{
    int ends[2];
    context_child *child = calloc(1, sizeof *child);
    if (child == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        free(child);
        return NULL;
    }
    child->pid = fork();
    if (child->pid == 0) {
        close(ends[0]);
        be_child(ordinal, ends[1]);
    }
    close(ends[1]);
    child->socket = ends[0];
    if (child->pid > 0)
        return child;
    context_child_end(child);
    return NULL;
}

uint64_t context_child_measure(context_child *child, card *it)
{
    if (child == NULL)
        return 0;
    uint64_t before = card_free_bytes(it);
    if (!give_byte(child->socket) || !take_byte(child->socket))
        return 0;
    uint64_t after = card_free_bytes(it);
    return after < before ? before - after : 0;
}

uint64_t context_child_first_pause(context_child *child, uint64_t *bytes_out)
{
    first_pause took = {0};
    *bytes_out = 0;
    if (child == NULL || !give_byte(child->socket) ||
        recv(child->socket, &took, sizeof took, MSG_WAITALL) != (ssize_t)sizeof took)
        return 0;
    *bytes_out = took.bytes;
    return took.ns;
}

void context_child_end(context_child *child)
{
    if (child == NULL)
        return;
    close(child->socket); /* the child reads the end of the stream, and exits */
    if (child->pid > 0)
        waitpid(child->pid, NULL, 0);
    free(child);
}

/* ---- Kernels, streams, graphs ---- */

#define STREAMS 34 /* streams that PyTorch makes with its first: a pool of 32, and two */

/* An empty kernel that every driver can compile. */
static const char kernel_text[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
                                  ".visible .entry rvl_nothing()\n{\n    ret;\n}\n";

static void note_taken(card *it, const char *act, uint64_t before)
{
    uint64_t after = card_free_bytes(it);
    samples_add(it->measured, act, 0, "bytes", after < before ? before - after : 0);
}

static bool measure_kernel(card *it)
{
    CUmodule module = NULL;
    CUfunction kernel = NULL;
    if (it->cuModuleLoadData == NULL || it->cuModuleGetFunction == NULL ||
        it->cuLaunchKernel == NULL || it->cuModuleUnload == NULL)
        return true;
    uint64_t before = card_free_bytes(it);
    /* A driver without a PTX compiler leaves this figure out. */
    if (it->cuModuleLoadData(&module, kernel_text) != CUDA_SUCCESS)
        return true;
    if (it->cuModuleGetFunction(&kernel, module, "rvl_nothing") != CUDA_SUCCESS) {
        it->cuModuleUnload(module);
        return true;
    }
    bool ok = card_ok(it, it->cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                      "starting a kernel") &&
              card_ok(it, it->cuCtxSynchronize(), "waiting for a kernel");
    if (ok)
        note_taken(it, "first_kernel_takes", before);
    it->cuModuleUnload(module);
    return ok;
}

static bool measure_streams(card *it)
{
    CUstream streams[STREAMS];
    int count = 0;
    uint64_t before = card_free_bytes(it);
    while (count < STREAMS &&
           card_ok(it, it->cuStreamCreate(&streams[count], CU_STREAM_NON_BLOCKING),
                   "creating a stream"))
        count++;
    note_taken(it, "34_streams_take", before);
    while (count > 0)
        it->cuStreamDestroy(streams[--count]);
    return it->failed == NULL;
}

static bool launch_graph(card *it, CUgraph graph, CUstream stream)
{
    CUgraphNode node = NULL;
    CUgraphExec exec = NULL;
    uint64_t before = card_free_bytes(it);
    bool ok = card_ok(it, it->cuGraphAddEmptyNode(&node, graph, NULL, 0), "adding to a graph") &&
              card_ok(it, it->cuGraphInstantiateWithFlags(&exec, graph, 0), "making a graph ready");
    ok = ok && card_ok(it, it->cuGraphLaunch(exec, stream), "starting a graph") &&
         card_ok(it, it->cuStreamSynchronize(stream), "waiting for a graph");
    if (ok)
        note_taken(it, "graph_takes", before);
    if (exec != NULL)
        it->cuGraphExecDestroy(exec);
    return ok;
}

static bool measure_graph(card *it)
{
    CUgraph graph = NULL;
    CUstream stream = NULL;
    if (it->cuGraphCreate == NULL || it->cuGraphAddEmptyNode == NULL ||
        it->cuGraphInstantiateWithFlags == NULL || it->cuGraphLaunch == NULL ||
        it->cuGraphExecDestroy == NULL || it->cuGraphDestroy == NULL)
        return true;
    if (!card_ok(it, it->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "creating a stream"))
        return false;
    bool ok = card_ok(it, it->cuGraphCreate(&graph, 0), "making a graph") &&
              launch_graph(it, graph, stream);
    if (graph != NULL)
        it->cuGraphDestroy(graph);
    it->cuStreamDestroy(stream);
    return ok;
}

bool measure_footprint(card *it)
{
    return measure_kernel(it) && measure_streams(it) && measure_graph(it);
}
