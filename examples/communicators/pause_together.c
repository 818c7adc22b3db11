/* SPDX-License-Identifier: MIT */
/*
 * Two ranks of a job give up their weights and the memory of their communicator, and take both
 * back: all ranks together, or none.
 *
 *     cc -D_GNU_SOURCE -o pause_together pause_together.c -lreveille -lcuda -ldl
 *     reveille run --gpus 2 -- ./pause_together        (or on two cards, without `reveille run`)
 *
 * A job has its own way to vote: MPI, a store, a socket. Here ranks are forked, and vote in memory
 * that they share. NCCL is opened by name, so that the example needs no header of it.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda.h>

#include "reveille/communicator.h"
#include "reveille/cuda.h"
#include "reveille/reveille.h"

#define RANKS 2
#define VOTES 16
#define MIB (UINT64_C(1) << 20)
#define WEIGHTS_BYTES (256 * MIB)

typedef struct unique_id { /* ncclUniqueId */
    char bytes[128];
} unique_id;

static struct job {
    unique_id id;
    atomic_int voted[VOTES], refused[VOTES];
} * job;

static int rank, votes;

/* Whether all ranks say yes. */
static bool vote(bool yes)
{
    int round = votes++;
    atomic_fetch_add(&job->refused[round], !yes);
    atomic_fetch_add(&job->voted[round], 1);
    while (atomic_load(&job->voted[round]) < RANKS)
        usleep(1000); /* a job has a timeout here */
    return atomic_load(&job->refused[round]) == 0;
}

/* Says what went wrong on this rank. */
static rvl_status told(rvl_status status)
{
    rvl_error error = {.struct_size = sizeof error};
    if (status != RVL_OK && rvl_last_error(&error) == RVL_OK)
        fprintf(stderr, "rank %d: %s: %s\n", rank, rvl_status_name(status), error.message);
    return status;
}

/* ---- All ranks or none ---- */

/* What this rank can do alone: memory first, and then there is room for the communicators. */
static rvl_status prepare(rvl_transition_kind kind, rvl_context *context, rvl_tag tag,
                          rvl_transition **memory_out)
{
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_status status = kind == RVL_TRANSITION_PAUSE
                            ? rvl_pause_prepare(context, &tag, 1, NULL, memory_out)
                            : rvl_resume_prepare(context, &tag, 1, NULL, memory_out);
    if (status == RVL_OK)
        status = rvl_communicator_forecast(kind, &forecast);
    return status == RVL_OK && !forecast.fits ? RVL_ERR_DEVICE_OOM : status;
}

static rvl_status call_nccl(rvl_transition_kind kind, rvl_communicator_move **move_out)
{
    rvl_status status = rvl_communicator_prepare(kind, NULL, move_out);
    return status == RVL_OK ? rvl_communicator_wait(*move_out) : status;
}

static bool move(rvl_transition_kind kind, rvl_context *context, rvl_tag tag)
{
    rvl_transition *memory = NULL;
    rvl_communicator_move *communicators = NULL;
    bool all = vote(told(prepare(kind, context, tag, &memory)) == RVL_OK);
    if (all)
        all = vote(told(call_nccl(kind, &communicators)) == RVL_OK);
    if (communicators != NULL)
        told((all ? rvl_communicator_commit : rvl_communicator_abort)(communicators));
    if (memory != NULL)
        told((all ? rvl_transition_commit : rvl_transition_abort)(memory));
    return all;
}

/* ---- A rank ---- */

static unsigned long used_mib(void)
{
    size_t free = 0, total = 0;
    cuMemGetInfo(&free, &total);
    return (unsigned long)((total - free) / MIB);
}

static void *make_communicator(void)
{
    void *comm = NULL, *nccl = dlopen("libnccl.so.2", RTLD_NOW);
    int (*get_id)(unique_id *) = NULL;
    int (*init)(void **, int, unique_id, int) = NULL;
    if (nccl == NULL)
        return NULL;
    *(void **)&get_id = dlsym(nccl, "ncclGetUniqueId");
    *(void **)&init = dlsym(nccl, "ncclCommInitRank");
    bool good = get_id != NULL && init != NULL && (rank > 0 || get_id(&job->id) == 0);
    return vote(good) && init(&comm, RANKS, job->id, rank) == 0 ? comm : NULL;
}

static int run_rank(void)
{
    const rvl_cuda_options cuda = {.struct_size = sizeof cuda, .devices = &rank, .device_count = 1};
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = &cuda};
    const rvl_alloc_options weights = {
        .struct_size = sizeof weights, .tag = "weights", .backup = RVL_BACKUP_HOST};
    CUcontext device;
    rvl_context *context;
    rvl_addr addr;
    rvl_tag tag;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&device, rank) != CUDA_SUCCESS ||
        cuCtxSetCurrent(device) != CUDA_SUCCESS)
        return 1;
    void *comm = make_communicator();
    if (comm == NULL || told(rvl_communicator_add(comm)) != RVL_OK ||
        told(rvl_context_open("cuda", &options, &context)) != RVL_OK ||
        told(rvl_alloc(context, WEIGHTS_BYTES, &weights, &addr)) != RVL_OK ||
        told(rvl_tag_find(context, 0, "weights", &tag)) != RVL_OK)
        return 1;
    unsigned long awake = used_mib();
    if (!move(RVL_TRANSITION_PAUSE, context, tag))
        return 1;
    printf("rank %d: %lu MiB less while asleep\n", rank, awake - used_mib());
    if (!move(RVL_TRANSITION_RESUME, context, tag))
        return 1;
    printf("rank %d: awake again, %s\n", rank, used_mib() == awake ? "as before" : "not as before");
    return 0;
}

int main(void)
{
    int failed = 0, status;
    job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job == MAP_FAILED)
        return 1;
    for (rank = 0; rank < RANKS; rank++)
        if (fork() == 0)
            return run_rank();
    while (wait(&status) > 0)
        failed |= status;
    return failed != 0;
}
