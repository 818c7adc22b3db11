/* SPDX-License-Identifier: MIT */
/*
 * Ranks that are processes, each with memory and two communicators, which pause and resume
 * together (reveille/communicator.h). Each step is made to fail on each rank in turn. After
 * that, memory, content, communicators and counters are as before on all ranks, and the same
 * move succeeds.
 *
 * The program exports NCCL's calls that suspend and resume. They take precedence over those of
 * the simulated library, as a profiler's would, and fail on request.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda.h>

#include "reveille/communicator.h"
#include "reveille/reveille.h"
#include "simcuda/nccl/nccl.h"

#define RANKS 3
#define COMMS 2
#define ROUNDS 256
#define MIB (UINT64_C(1) << 20)
#define SECOND_NS UINT64_C(1000000000)
#define WEIGHTS (32 * MIB)
#define MADE (196 * MIB) /* docs/fidelity/libraries.md, a communicator of ranks */
#define ROOM (64 * MIB)
#define VOTE_LIMIT_MS 20000
#define SHORT_NS SECOND_NS /* time to wait in NCCL for a rank that does not come */
#define LONG_NS (60 * SECOND_NS)
#define DIED 3 /* exit status */

/* What fails on the failing rank. */
typedef enum fault {
    FAULT_NONE,
    FAULT_VETO,   /* a callback refuses the pause */
    FAULT_STAT,   /* ncclCommMemStats() fails */
    FAULT_ROOM,   /* the device is full */
    FAULT_BEFORE, /* NCCL fails before it has met the other ranks, on one communicator */
    FAULT_AFTER,  /* NCCL reports a failure, but has done the work */
    FAULT_DEATH,  /* the rank dies instead of calling NCCL */
} fault;

/* ---- State shared by ranks ---- */

typedef struct vote_round {
    atomic_int agreed;
    atomic_int decision; /* 1: continue; -1: give up; the first decision holds for all ranks */
} vote_round;

static struct shared {
    rvli_nccl_id ids[COMMS];
    vote_round rounds[ROUNDS];
    atomic_int moves[RANKS]; /* calls of NCCL that suspend or resume */
} * job;

static int rank, next_round;

static void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_nsec = ms * 1000000};
    nanosleep(&pause, NULL);
}

static void decide(vote_round *round, int decision)
{
    int undecided = 0;
    atomic_compare_exchange_strong(&round->decision, &undecided, decision);
}

/* Whether all ranks agree. */
static bool vote(bool agrees)
{
    vote_round *round = &job->rounds[next_round++];
    if (!agrees)
        decide(round, -1);
    else if (atomic_fetch_add(&round->agreed, 1) + 1 == RANKS)
        decide(round, 1);
    for (int ms = 0; atomic_load(&round->decision) == 0; ms++) {
        if (ms > VOTE_LIMIT_MS)
            decide(round, -1);
        sleep_ms(1);
    }
    return atomic_load(&round->decision) == 1;
}

static bool others_have_given_up(void *user)
{
    (void)user;
    return atomic_load(&job->rounds[next_round].decision) < 0;
}

/* Checks a condition in a rank. On failure, the rank ends, which the parent detects. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            rvl_error said = {.struct_size = sizeof said};                                         \
            rvl_last_error(&said);                                                                 \
            fprintf(stderr, "rank %d, line %d: %s (%s)\n", rank, __LINE__, #condition,             \
                    said.message);                                                                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* ---- NCCL, with a fault in front of it ---- */

static void *library;
static fault injected; /* on this rank, from now on */
static void *faulty;   /* the communicator that fails */

#define REAL(name) ((__typeof__(&name))(uintptr_t)dlsym(library, #name))

static rvli_nccl_result with_fault(rvli_comm *comm, rvli_nccl_result (*move)(rvli_comm *))
{
    bool fails = comm == faulty;
    atomic_fetch_add(&job->moves[rank], 1);
    if (injected == FAULT_DEATH)
        _exit(DIED);
    if (fails && injected == FAULT_BEFORE)
        return RVLI_NCCL_CUDA_ERROR;
    rvli_nccl_result result = move(comm);
    return fails && injected == FAULT_AFTER ? RVLI_NCCL_CUDA_ERROR : result;
}

static rvli_nccl_result suspend(rvli_comm *comm)
{
    return REAL(ncclCommSuspend)(comm, RVLI_NCCL_SUSPEND_MEMORY);
}

static rvli_nccl_result resume(rvli_comm *comm)
{
    return REAL(ncclCommResume)(comm);
}

__attribute__((visibility("default"))) rvli_nccl_result ncclCommSuspend(rvli_comm *comm, int flags)
{
    return flags == RVLI_NCCL_SUSPEND_MEMORY ? with_fault(comm, suspend)
                                             : RVLI_NCCL_INVALID_ARGUMENT;
}

__attribute__((visibility("default"))) rvli_nccl_result ncclCommResume(rvli_comm *comm)
{
    return with_fault(comm, resume);
}

__attribute__((visibility("default"))) rvli_nccl_result
ncclCommMemStats(rvli_comm *comm, rvli_nccl_memory what, uint64_t *value)
{
    return injected == FAULT_STAT ? RVLI_NCCL_INTERNAL_ERROR
                                  : REAL(ncclCommMemStats)(comm, what, value);
}

/* ---- A rank ---- */

static rvli_comm *comms[COMMS];
static rvl_context *context;
static rvl_addr weights;
static rvl_tag tag;
static const char content[] = "at the end of the weights";
static uint64_t awake_bytes; /* free bytes on the device with everything resumed */
static bool asleep;

static uint64_t free_bytes(void)
{
    size_t free = 0, total = 0;
    NEED(cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
    return free;
}

static rvl_status veto(void *user, rvl_tag number)
{
    (void)user;
    (void)number;
    return injected == FAULT_VETO ? RVL_ERR_STATE : RVL_OK;
}

static void make_communicators(void)
{
    if (rank == 0)
        for (int i = 0; i < COMMS; i++)
            NEED(REAL(ncclGetUniqueId)(&job->ids[i]) == RVLI_NCCL_SUCCESS);
    NEED(vote(true));
    for (int i = 0; i < COMMS; i++) {
        NEED(REAL(ncclCommInitRank)(&comms[i], RANKS, job->ids[i], rank) == RVLI_NCCL_SUCCESS);
        NEED(rvl_communicator_add(comms[i]) == RVL_OK);
        NEED(rvl_communicator_add(comms[i]) == RVL_OK); /* adding it again has no effect */
    }
    faulty = comms[0];
}

static void make_memory(void)
{
    const rvl_cuda_options cuda = {.struct_size = sizeof cuda, .devices = &rank, .device_count = 1};
    const rvl_context_options options = {.struct_size = sizeof options, .backend_options = &cuda};
    const rvl_alloc_options wanted = {
        .struct_size = sizeof wanted, .tag = "weights", .backup = RVL_BACKUP_HOST};
    const rvl_tag_options refusing = {.struct_size = sizeof refusing, .before_unmap = veto};
    NEED(rvl_context_open("cuda", &options, &context) == RVL_OK);
    NEED(rvl_tag_define(context, "weights", &refusing, &tag) == RVL_OK);
    NEED(rvl_alloc(context, WEIGHTS, &wanted, &weights) == RVL_OK);
    NEED(cuMemcpyHtoD(weights + WEIGHTS - sizeof content, content, sizeof content) == CUDA_SUCCESS);
}

static void begin_rank(void)
{
    CUcontext device = NULL;
    library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    NEED(library != NULL && cuInit(0) == CUDA_SUCCESS);
    NEED(cuDevicePrimaryCtxRetain(&device, rank) == CUDA_SUCCESS);
    NEED(cuCtxSetCurrent(device) == CUDA_SUCCESS);
    make_communicators();
    make_memory();
    awake_bytes = free_bytes();
    NEED(vote(true));
}

/* ---- The calls of a program ---- */

static rvl_status prepare_memory(rvl_transition_kind kind, rvl_transition **memory_out)
{
    return kind == RVL_TRANSITION_PAUSE ? rvl_pause_prepare(context, &tag, 1, NULL, memory_out)
                                        : rvl_resume_prepare(context, &tag, 1, NULL, memory_out);
}

static rvl_status fits(rvl_transition_kind kind)
{
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_status status = rvl_communicator_forecast(kind, &forecast);
    return status != RVL_OK || forecast.fits ? status : RVL_ERR_DEVICE_OOM;
}

/* Moves all ranks or none. *own_out: this rank's failure, or RVL_OK. */
static bool move(rvl_transition_kind kind, uint64_t timeout_ns, rvl_status *own_out)
{
    const rvl_communicator_options options = {
        .struct_size = sizeof options, .timeout_ns = timeout_ns, .stop = others_have_given_up};
    rvl_transition *memory = NULL;
    rvl_communicator_move *communicators = NULL;
    rvl_status status = prepare_memory(kind, &memory);
    if (status == RVL_OK)
        status = fits(kind);
    bool done = vote(status == RVL_OK);
    if (done) {
        status = rvl_communicator_prepare(kind, &options, &communicators);
        if (status == RVL_OK)
            status = rvl_communicator_wait(communicators);
        done = vote(status == RVL_OK);
    }
    *own_out = status;
    if (communicators != NULL && done)
        NEED(rvl_communicator_commit(communicators) == RVL_OK);
    else if (communicators != NULL)
        (void)rvl_communicator_abort(communicators);
    if (memory != NULL)
        NEED((done ? rvl_transition_commit : rvl_transition_abort)(memory) == RVL_OK);
    asleep = done ? kind == RVL_TRANSITION_PAUSE : asleep;
    return done;
}

/* ---- Observed state ---- */

static void check_communicators(uint64_t pauses, uint64_t resumes)
{
    rvl_communicator one = {.struct_size = sizeof one};
    rvl_tag_stats stats = {.struct_size = sizeof stats};
    for (size_t i = 0; i < COMMS; i++) {
        NEED(rvl_communicator_get(i, &one) == RVL_OK);
        NEED(one.comm == comms[i] && one.device == rank && one.rank == rank);
        NEED(one.rank_count == RANKS && one.can_pause && one.size_bytes == MADE);
        NEED(one.state == (asleep ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE));
    }
    NEED(rvl_communicator_get(COMMS, &one) == RVL_ERR_NOT_FOUND);
    NEED(rvl_communicator_get_stats(rank, &stats) == RVL_OK);
    NEED(stats.active_bytes == (asleep ? 0 : COMMS * MADE));
    NEED(stats.paused_bytes == (asleep ? COMMS * MADE : 0));
    NEED(stats.peak_bytes == COMMS * MADE && stats.allocation_count == COMMS);
    NEED(stats.pauses == pauses * COMMS && stats.resumes == resumes * COMMS);
}

static void check_memory(uint64_t taken_bytes)
{
    rvl_allocation found = {.struct_size = sizeof found};
    char read[sizeof content] = "";
    NEED(rvl_allocation_find(context, weights, &found) == RVL_OK);
    NEED(found.state == (asleep ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE));
    NEED(free_bytes() == awake_bytes + (asleep ? WEIGHTS + COMMS * MADE : 0) - taken_bytes);
    if (asleep)
        return;
    NEED(cuMemcpyDtoH(read, weights + WEIGHTS - sizeof read, sizeof read) == CUDA_SUCCESS);
    NEED(strcmp(read, content) == 0);
}

/* On simulated GPUs, memory that an aborted pause maps again has lost its content (docs/run.md). */
static void write_again(void)
{
    if (!asleep)
        NEED(cuMemcpyHtoD(weights + WEIGHTS - sizeof content, content, sizeof content) ==
             CUDA_SUCCESS);
}

/* ---- A step fails ---- */

static rvl_status expected(fault what)
{
    switch (what) {
    case FAULT_VETO:
        return RVL_ERR_VETOED;
    case FAULT_ROOM:
        return RVL_ERR_DEVICE_OOM;
    default:
        return RVL_ERR_STATE;
    }
}

static bool calls_nccl(fault what)
{
    return what == FAULT_BEFORE || what == FAULT_AFTER;
}

static CUdeviceptr take_room(fault what)
{
    CUdeviceptr taken = 0;
    if (what == FAULT_ROOM)
        NEED(cuMemAlloc(&taken, free_bytes() - ROOM) == CUDA_SUCCESS);
    return taken;
}

/*
 * A move that a rank cannot make, followed by the same move. If the failure comes before NCCL is
 * called, NCCL is called on no rank. If it comes in NCCL before the other ranks are met, they
 * wait there until the same move is made again.
 */
static void fail_once(rvl_transition_kind kind, int failing, fault what, const uint64_t *cycles)
{
    rvl_status own = RVL_OK;
    uint64_t before = free_bytes();
    CUdeviceptr taken = rank == failing ? take_room(what) : 0;
    uint64_t taken_bytes = before - free_bytes();
    NEED(vote(true));
    atomic_store(&job->moves[rank], 0);
    injected = rank == failing ? what : FAULT_NONE;
    NEED(!move(kind, what == FAULT_BEFORE ? SHORT_NS : LONG_NS, &own));
    injected = FAULT_NONE;
    NEED(rank != failing || own == expected(what));
    NEED(calls_nccl(what) == (atomic_load(&job->moves[rank]) > 0));
    if (what != FAULT_BEFORE) {
        write_again();
        check_memory(taken_bytes);
        check_communicators(cycles[0], cycles[1]);
    }
    if (taken != 0)
        NEED(cuMemFree(taken) == CUDA_SUCCESS);
    write_again();
    NEED(vote(true));
    NEED(move(kind, LONG_NS, &own));
}

static void pauses_and_resumes_fail(void)
{
    static const fault in_pause[] = {FAULT_VETO, FAULT_STAT, FAULT_BEFORE, FAULT_AFTER};
    static const fault in_resume[] = {FAULT_STAT, FAULT_ROOM, FAULT_BEFORE, FAULT_AFTER};
    uint64_t cycles[2] = {0, 0};
    for (int failing = 0; failing < RANKS; failing++) {
        for (size_t i = 0; i < sizeof in_pause / sizeof *in_pause; i++) {
            fail_once(RVL_TRANSITION_PAUSE, failing, in_pause[i], cycles);
            cycles[0]++;
            check_memory(0);
            check_communicators(cycles[0], cycles[1]);
            fail_once(RVL_TRANSITION_RESUME, failing, in_resume[i], cycles);
            cycles[1]++;
            check_memory(0);
            check_communicators(cycles[0], cycles[1]);
        }
    }
}

static void it_goes_well(void)
{
    rvl_status own = RVL_OK;
    for (uint64_t cycle = 1; cycle <= 3; cycle++) {
        NEED(move(RVL_TRANSITION_PAUSE, LONG_NS, &own));
        check_memory(0);
        check_communicators(cycle, cycle - 1);
        NEED(vote(true));
        NEED(move(RVL_TRANSITION_RESUME, LONG_NS, &own));
        check_memory(0);
        check_communicators(cycle, cycle);
        NEED(vote(true));
    }
}

static void sleep_is_refused(void)
{
    rvl_error why = {.struct_size = sizeof why};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    NEED(rvl_sleep(NULL, NULL) == RVL_ERR_NOT_SUPPORTED);
    NEED(rvl_last_error(&why) == RVL_OK);
    NEED(strstr(why.message, "2 communicators of NCCL connect this process with others") != NULL);
    NEED(strcmp(why.tag, RVL_COMMUNICATOR_TAG) == 0);
    NEED(rvl_sleep_forecast(NULL, NULL, &forecast) == RVL_ERR_NOT_SUPPORTED);
    NEED(!rvl_context_is_asleep(NULL));
}

/* Communicators would lose a process that sleeps, so a sleep is refused until they are paused or
 * forgotten. */
static void a_sleep_asks_for_communicators(void)
{
    rvl_status own = RVL_OK;
    sleep_is_refused();
    check_memory(0);
    check_communicators(0, 0);
    NEED(move(RVL_TRANSITION_PAUSE, LONG_NS, &own));
    NEED(rvl_sleep(NULL, NULL) == RVL_OK);
    NEED(rvl_context_is_asleep(NULL));
    NEED(rvl_wake_up(NULL, NULL) == RVL_OK);
    check_memory(0);
    check_communicators(1, 0);
    NEED(vote(true));
    NEED(move(RVL_TRANSITION_RESUME, LONG_NS, &own));
    check_memory(0);
    check_communicators(1, 1);
    sleep_is_refused();
    check_memory(0);
    NEED(vote(true));
}

/* The other ranks are told, and get their memory back. NCCL has given up that communicator. */
static void a_rank_dies(void)
{
    rvl_status own = RVL_OK;
    injected = rank == RANKS - 1 ? FAULT_DEATH : FAULT_NONE;
    NEED(!move(RVL_TRANSITION_PAUSE, SHORT_NS, &own));
    NEED(own == RVL_ERR_STATE || own == RVL_ERR_TIMEOUT);
    write_again();
    rvl_allocation found = {.struct_size = sizeof found};
    NEED(rvl_allocation_find(context, weights, &found) == RVL_OK);
    NEED(found.state == RVL_STATE_ACTIVE);
    for (int i = 0; i < COMMS; i++)
        NEED(rvl_communicator_remove(comms[i]) == RVL_OK);
    NEED(!rvl_communicator_get_stats(-1, &(rvl_tag_stats){.struct_size = sizeof(rvl_tag_stats)}));
}

/* ---- The parent ---- */

static pid_t start_rank(int number, void (*scenario)(void))
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    rank = number;
    begin_rank();
    scenario();
    _exit(0); /* NCCL's calls may still be waiting */
}

static void run(void (*scenario)(void), int status_of_last)
{
    pid_t children[RANKS];
    memset(job, 0, sizeof *job);
    for (int i = 0; i < RANKS; i++)
        children[i] = start_rank(i, scenario);
    for (int i = 0; i < RANKS; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), i == RANKS - 1 ? status_of_last : 0);
    }
}

static void ranks_move_together(void **unused)
{
    (void)unused;
    run(it_goes_well, 0);
}

static void each_step_fails_on_each_rank(void **unused)
{
    (void)unused;
    run(pauses_and_resumes_fail, 0);
}

static void none_sleeps_with_communicators(void **unused)
{
    (void)unused;
    run(a_sleep_asks_for_communicators, 0);
}

static void others_go_on_without_a_dead_rank(void **unused)
{
    (void)unused;
    run(a_rank_dies, DIED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_move_together),
        cmocka_unit_test(each_step_fails_on_each_rank),
        cmocka_unit_test(none_sleeps_with_communicators),
        cmocka_unit_test(others_go_on_without_a_dead_rank),
    };
    job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (job == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
