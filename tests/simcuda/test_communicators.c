/* SPDX-License-Identifier: MIT */
/*
 * Communicators of NCCL that pause and resume together with memory (reveille/communicator.h),
 * with all ranks in one process. usage: test_communicators [old]: NCCL cannot suspend.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda.h>

#include "reveille/communicator.h"
#include "reveille/hooks.h"
#include "reveille/reveille.h"
#include "simcuda/nccl/nccl.h"

#define GPUS 2
#define MIB (UINT64_C(1) << 20)
#define WEIGHTS (32 * MIB)
#define MADE (196 * MIB) /* docs/fidelity/libraries.md, a communicator of two ranks */
#define ROOM (64 * MIB)
#define TIMEOUT_NS UINT64_C(30000000000)
#define SHORT_NS UINT64_C(200000000)

static void *library;
static rvli_comm *comms[GPUS];
static CUcontext devices[GPUS];
static rvl_context *context;
static rvl_addr weights;
static rvl_tag tag;
static const char content[] = "at the end of the weights";

/* NULL: this NCCL lacks the function. */
#define FIND(name) ((__typeof__(&name))(uintptr_t)dlsym(library, #name))

static uint64_t free_bytes(int device)
{
    size_t free = 0, total = 0;
    assert_int_equal(cuCtxSetCurrent(devices[device]), CUDA_SUCCESS);
    assert_int_equal(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
}

/* ---- The calls of a program ---- */

/* Prepares and waits. After an error, everything is as before. */
static rvl_status move_communicators(rvl_transition_kind kind, rvl_communicator_move **move_out)
{
    const rvl_communicator_options options = {.struct_size = sizeof options,
                                              .timeout_ns = TIMEOUT_NS};
    rvl_status status = rvl_communicator_prepare(kind, &options, move_out);
    if (status != RVL_OK)
        return status;
    status = rvl_communicator_wait(*move_out);
    if (status != RVL_OK)
        (void)rvl_communicator_abort(*move_out);
    return status;
}

static rvl_status end_together(rvl_status status, rvl_transition *memory,
                               rvl_communicator_move *communicators)
{
    if (status != RVL_OK) {
        assert_int_equal(rvl_transition_abort(memory), RVL_OK);
        return status;
    }
    assert_int_equal(rvl_communicator_commit(communicators), RVL_OK);
    return rvl_transition_commit(memory);
}

static rvl_status pause_together(void)
{
    rvl_transition *memory = NULL;
    rvl_communicator_move *communicators = NULL;
    rvl_status status = rvl_pause_prepare(context, &tag, 1, NULL, &memory);
    if (status != RVL_OK)
        return status;
    status = move_communicators(RVL_TRANSITION_PAUSE, &communicators);
    return end_together(status, memory, communicators);
}

static rvl_status resume_together(void)
{
    rvl_transition *memory = NULL;
    rvl_communicator_move *communicators = NULL;
    rvl_status status = rvl_resume_prepare(context, &tag, 1, NULL, &memory);
    if (status != RVL_OK)
        return status;
    status = move_communicators(RVL_TRANSITION_RESUME, &communicators);
    return end_together(status, memory, communicators);
}

/* ---- Observed state ---- */

static void write_content(void)
{
    assert_int_equal(cuCtxSetCurrent(devices[0]), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyHtoD(weights + WEIGHTS - sizeof content, content, sizeof content),
                     CUDA_SUCCESS);
}

static void check_content(void)
{
    char found[sizeof content] = "";
    assert_int_equal(cuCtxSetCurrent(devices[0]), CUDA_SUCCESS);
    assert_int_equal(cuMemcpyDtoH(found, weights + WEIGHTS - sizeof found, sizeof found),
                     CUDA_SUCCESS);
    assert_string_equal(found, content);
}

static rvl_state state(void)
{
    rvl_allocation found = {.struct_size = sizeof found};
    assert_int_equal(rvl_allocation_find(context, weights, &found), RVL_OK);
    return found.state;
}

static bool is_suspended(int i)
{
    uint64_t suspended = 2;
    assert_int_equal(FIND(ncclCommMemStats)(comms[i], RVLI_NCCL_MEMORY_SUSPENDED, &suspended),
                     RVLI_NCCL_SUCCESS);
    return suspended == 1;
}

static void check_stats(bool paused)
{
    rvl_tag_stats all = {.struct_size = sizeof all}, one = all;
    assert_int_equal(rvl_communicator_get_stats(-1, &all), RVL_OK);
    assert_int_equal(rvl_communicator_get_stats(1, &one), RVL_OK);
    assert_int_equal(all.allocation_count, GPUS);
    assert_int_equal(all.active_bytes, paused ? 0 : GPUS * MADE);
    assert_int_equal(all.paused_bytes, paused ? GPUS * MADE : 0);
    assert_int_equal(one.active_bytes + one.paused_bytes, MADE);
    assert_int_equal(one.allocation_count, 1);
}

static void check_all(bool paused, const uint64_t *free)
{
    check_stats(paused);
    assert_int_equal(state(), paused ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE);
    for (int i = 0; i < GPUS; i++) {
        assert_int_equal(is_suspended(i), paused);
        assert_int_equal(free_bytes(i), free[i]);
    }
    if (!paused)
        check_content();
}

static void both_move_together(void **unused)
{
    (void)unused;
    const uint64_t awake[] = {free_bytes(0), free_bytes(1)};
    const uint64_t asleep[] = {awake[0] + WEIGHTS + MADE, awake[1] + MADE};
    for (int cycle = 0; cycle < 3; cycle++) {
        assert_int_equal(pause_together(), RVL_OK);
        check_all(true, asleep);
        assert_int_equal(resume_together(), RVL_OK);
        check_all(false, awake);
    }
}

/* The communicators of one GPU have no room, so neither they nor the weights resume. */
static void without_room_none_wakes(void **unused)
{
    (void)unused;
    const uint64_t awake[] = {free_bytes(0), free_bytes(1)};
    assert_int_equal(pause_together(), RVL_OK);
    for (int full = 0; full < GPUS; full++) {
        CUdeviceptr taken = 0;
        uint64_t asleep[] = {free_bytes(0), free_bytes(1)};
        assert_int_equal(cuCtxSetCurrent(devices[full]), CUDA_SUCCESS);
        assert_int_equal(cuMemAlloc(&taken, asleep[full] - ROOM), CUDA_SUCCESS);
        asleep[full] = free_bytes(full);
        assert_int_equal(resume_together(), RVL_ERR_DEVICE_OOM);
        check_all(true, asleep);
        assert_int_equal(cuCtxSetCurrent(devices[full]), CUDA_SUCCESS);
        assert_int_equal(cuMemFree(taken), CUDA_SUCCESS);
    }
    assert_int_equal(resume_together(), RVL_OK);
    check_all(false, awake);
}

/* ---- Suspending by the program ---- */

/* NCCL waits for every rank, so all ranks of the process are in one group. */
static void suspend_by_hand(bool suspend)
{
    assert_int_equal(FIND(ncclGroupStart)(), RVLI_NCCL_SUCCESS);
    for (int i = 0; i < GPUS; i++)
        assert_int_equal(suspend ? FIND(ncclCommSuspend)(comms[i], RVLI_NCCL_SUSPEND_MEMORY)
                                 : FIND(ncclCommResume)(comms[i]),
                         RVLI_NCCL_SUCCESS);
    assert_int_equal(FIND(ncclGroupEnd)(), RVLI_NCCL_SUCCESS);
}

/* A communicator that is already suspended stays suspended, and an abort does not resume it. */
static void what_the_program_suspended_stays_its_own(void **unused)
{
    (void)unused;
    rvl_communicator_move *move = NULL;
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    suspend_by_hand(true);
    assert_int_equal(rvl_communicator_forecast(RVL_TRANSITION_PAUSE, &forecast), RVL_OK);
    assert_int_equal(forecast.allocation_count, 0);
    assert_int_equal(rvl_communicator_forecast(RVL_TRANSITION_RESUME, &forecast), RVL_OK);
    assert_int_equal(forecast.allocation_count, GPUS);
    assert_int_equal(forecast.needed_bytes, MADE);
    assert_true(forecast.fits);
    assert_int_equal(move_communicators(RVL_TRANSITION_PAUSE, &move), RVL_OK);
    assert_int_equal(rvl_communicator_abort(move), RVL_OK);
    for (int i = 0; i < GPUS; i++)
        assert_true(is_suspended(i));
    assert_int_equal(rvl_hooks_resume(RVL_COMMUNICATOR_TAG), RVL_OK);
    for (int i = 0; i < GPUS; i++)
        assert_false(is_suspended(i));
}

/* ---- Missing ranks ---- */

static rvl_state state_of(size_t index)
{
    rvl_communicator found = {.struct_size = sizeof found};
    assert_int_equal(rvl_communicator_get(index, &found), RVL_OK);
    return found.state;
}

/* One of the ranks is not given, so it never comes. Later it does. */
static void a_late_rank_is_waited_for_again(void **unused)
{
    (void)unused;
    const rvl_communicator_options brief = {.struct_size = sizeof brief, .timeout_ns = SHORT_NS};
    rvl_communicator_move *move = NULL;
    rvl_error said = {.struct_size = sizeof said};
    assert_int_equal(rvl_communicator_remove(comms[1]), RVL_OK);
    assert_int_equal(rvl_communicator_prepare(RVL_TRANSITION_PAUSE, &brief, &move), RVL_OK);
    assert_int_equal(rvl_communicator_wait(move), RVL_ERR_TIMEOUT);
    assert_int_equal(rvl_last_error(&said), RVL_OK);
    assert_string_equal(said.op, "ncclCommSuspend");
    assert_string_equal(said.tag, "nccl");
    assert_non_null(strstr(said.message, "has not returned on 1 communicator in time"));
    assert_int_equal(rvl_communicator_remove(comms[0]), RVL_ERR_BUSY);
    assert_int_equal(rvl_hooks_pause(RVL_COMMUNICATOR_TAG), RVL_ERR_BUSY);
    assert_int_equal(rvl_communicator_abort(move), RVL_ERR_TIMEOUT);
    assert_int_equal(state_of(0), RVL_STATE_PAUSING);
    assert_int_equal(rvl_hooks_resume(RVL_COMMUNICATOR_TAG), RVL_ERR_STATE);
    assert_int_equal(rvl_communicator_add(comms[1]), RVL_OK);
    assert_int_equal(rvl_hooks_pause(RVL_COMMUNICATOR_TAG), RVL_OK);
    assert_int_equal(state_of(0), RVL_STATE_PAUSED);
    assert_int_equal(state_of(1), RVL_STATE_PAUSED);
    assert_int_equal(rvl_hooks_resume(RVL_COMMUNICATOR_TAG), RVL_OK);
    assert_int_equal(state_of(0), RVL_STATE_ACTIVE);
}

/* A call that returns after the timeout belongs to the next move, and aborting that move reverts
 * it. */
static void a_late_call_belongs_to_the_next_move(void **unused)
{
    (void)unused;
    const rvl_communicator_options brief = {.struct_size = sizeof brief, .timeout_ns = SHORT_NS};
    rvl_communicator_move *move = NULL;
    assert_int_equal(rvl_communicator_remove(comms[1]), RVL_OK);
    assert_int_equal(rvl_communicator_prepare(RVL_TRANSITION_PAUSE, &brief, &move), RVL_OK);
    assert_int_equal(rvl_communicator_wait(move), RVL_ERR_TIMEOUT);
    assert_int_equal(rvl_communicator_abort(move), RVL_ERR_TIMEOUT);
    assert_int_equal(FIND(ncclCommSuspend)(comms[1], RVLI_NCCL_SUSPEND_MEMORY), RVLI_NCCL_SUCCESS);
    for (int ms = 0; state_of(0) != RVL_STATE_PAUSED && ms < 10000; ms++)
        usleep(1000);
    assert_int_equal(state_of(0), RVL_STATE_PAUSED);

    assert_int_equal(rvl_communicator_prepare(RVL_TRANSITION_PAUSE, &brief, &move), RVL_OK);
    assert_int_equal(rvl_communicator_wait(move), RVL_OK);
    assert_int_equal(rvl_communicator_add(comms[1]), RVL_OK); /* it takes no part in this move */
    assert_int_equal(rvl_communicator_abort(move),
                     RVL_ERR_TIMEOUT); /* the other rank stays suspended */
    assert_int_equal(state_of(0), RVL_STATE_RESUMING);
    assert_int_equal(rvl_hooks_resume(RVL_COMMUNICATOR_TAG), RVL_OK);
    for (size_t i = 0; i < GPUS; i++)
        assert_int_equal(state_of(i), RVL_STATE_ACTIVE);
}

static bool stop_at_once(void *user)
{
    (*(int *)user)++;
    return true;
}

static void others_may_give_up(void **unused)
{
    (void)unused;
    int asked = 0;
    const rvl_communicator_options options = {.struct_size = sizeof options,
                                              .timeout_ns = SHORT_NS,
                                              .stop = stop_at_once,
                                              .user = &asked};
    rvl_communicator_move *move = NULL;
    assert_int_equal(rvl_communicator_prepare(RVL_TRANSITION_PAUSE, &options, &move), RVL_OK);
    assert_int_equal(rvl_communicator_wait(move), RVL_OK); /* all came in the remaining time */
    assert_in_range(asked, 0, 1);
    assert_int_equal(rvl_communicator_abort(move), RVL_OK);
    for (size_t i = 0; i < GPUS; i++)
        assert_int_equal(state_of(i), RVL_STATE_ACTIVE);
}

/* ---- Refused calls ---- */

static void bad_calls_are_refused(void **unused)
{
    (void)unused;
    const struct {
        rvl_communicator_options known;
        uint64_t unknown;
    } newer = {{.struct_size = sizeof newer}, 1};
    rvl_communicator_move *move = NULL;
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_tag_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_communicator_add(NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_remove(&move), RVL_ERR_NOT_FOUND);
    assert_int_equal(rvl_communicator_get(0, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_get_stats(-2, &stats), RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_get_stats(0, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_forecast((rvl_transition_kind)2, &forecast), RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_forecast(RVL_TRANSITION_PAUSE, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_prepare(RVL_TRANSITION_PAUSE, NULL, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_prepare((rvl_transition_kind)2, NULL, &move),
                     RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_prepare(RVL_TRANSITION_PAUSE, &newer.known, &move),
                     RVL_ERR_VERSION);
    assert_int_equal(rvl_communicator_wait(NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_commit(NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_communicator_abort(NULL), RVL_ERR_INVALID);
    assert_null(move);
}

/* The child has no communicators, and the move belongs to the parent. */
static void a_child_knows_none(void **unused)
{
    (void)unused;
    rvl_communicator_move *move = NULL;
    rvl_communicator found = {.struct_size = sizeof found};
    int status = 0;
    assert_int_equal(move_communicators(RVL_TRANSITION_PAUSE, &move), RVL_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(rvl_communicator_commit(move) == RVL_ERR_FORKED &&
                      rvl_communicator_abort(move) == RVL_ERR_FORKED &&
                      rvl_communicator_get(0, &found) == RVL_ERR_NOT_FOUND
                  ? 0
                  : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(rvl_communicator_commit(move), RVL_OK);
    assert_int_equal(rvl_hooks_resume(RVL_COMMUNICATOR_TAG), RVL_OK);
}

static rvl_status refuse(void *user, rvl_tag number)
{
    (void)user;
    (void)number;
    return RVL_ERR_STATE;
}

/* If the library refuses, NCCL is not called. */
static void what_is_vetoed_is_not_suspended(void **unused)
{
    (void)unused;
    rvl_tag_options options = {.struct_size = sizeof options, .before_unmap = refuse};
    const uint64_t awake[] = {free_bytes(0), free_bytes(1)};
    assert_int_equal(rvl_tag_define(context, "weights", &options, &tag), RVL_OK);
    assert_int_equal(pause_together(), RVL_ERR_VETOED);
    check_all(false, awake);
    options.before_unmap = NULL;
    assert_int_equal(rvl_tag_define(context, "weights", &options, &tag), RVL_OK);
}

/* With an NCCL that cannot suspend, nothing changes. */
static void an_older_one_leaves_all_as_it_was(void **unused)
{
    (void)unused;
    const uint64_t awake[] = {free_bytes(0), free_bytes(1)};
    rvl_communicator found = {.struct_size = sizeof found};
    rvl_forecast forecast = {.struct_size = sizeof forecast};
    rvl_tag_stats stats = {.struct_size = sizeof stats};
    rvl_error said = {.struct_size = sizeof said};
    assert_int_equal(pause_together(), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(rvl_last_error(&said), RVL_OK);
    assert_string_equal(said.message,
                        "NCCL 2.28.9 cannot give its memory back; 2.29.7 and later can. Its "
                        "communicators here keep memory that only `reveille record` can tell "
                        "(nccl:PID). Load a newer libnccl.so.2, or leave them out");
    assert_string_equal(said.tag, "nccl");
    assert_int_equal(rvl_communicator_forecast(RVL_TRANSITION_PAUSE, &forecast),
                     RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(rvl_communicator_get_stats(-1, &stats), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(rvl_hooks_pause(RVL_COMMUNICATOR_TAG), RVL_ERR_NOT_SUPPORTED);
    assert_int_equal(rvl_communicator_get(1, &found), RVL_OK);
    assert_false(found.can_pause);
    assert_int_equal(found.size_bytes, 0);
    assert_int_equal(found.rank, 1);
    assert_int_equal(state(), RVL_STATE_ACTIVE);
    for (int i = 0; i < GPUS; i++)
        assert_int_equal(free_bytes(i), awake[i]);
}

static int begin(void **unused)
{
    (void)unused;
    const rvl_alloc_options options = {
        .struct_size = sizeof options, .tag = "weights", .backup = RVL_BACKUP_HOST};
    assert_int_equal(rvl_communicator_add(comms), RVL_ERR_STATE); /* no NCCL is loaded */
    library = dlopen("libnccl.so.2", RTLD_NOW);
    assert_non_null(library);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    for (int i = 0; i < GPUS; i++)
        assert_int_equal(cuDevicePrimaryCtxRetain(&devices[i], i), CUDA_SUCCESS);
    assert_int_equal(FIND(ncclCommInitAll)(comms, GPUS, NULL), RVLI_NCCL_SUCCESS);
    for (int i = 0; i < GPUS; i++)
        assert_int_equal(rvl_communicator_add(comms[i]), RVL_OK);
    assert_int_equal(rvl_context_open("cuda", NULL, &context), RVL_OK);
    assert_int_equal(rvl_alloc(context, WEIGHTS, &options, &weights), RVL_OK);
    assert_int_equal(rvl_tag_find(context, 0, "weights", &tag), RVL_OK);
    write_content();
    return 0;
}

static int end(void **unused)
{
    (void)unused;
    assert_int_equal(rvl_free(context, weights), RVL_OK);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_move_together),
        cmocka_unit_test(without_room_none_wakes),
        cmocka_unit_test(what_is_vetoed_is_not_suspended),
        cmocka_unit_test(what_the_program_suspended_stays_its_own),
        cmocka_unit_test(a_late_rank_is_waited_for_again),
        cmocka_unit_test(a_late_call_belongs_to_the_next_move),
        cmocka_unit_test(others_may_give_up),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(a_child_knows_none),
    };
    const struct CMUnitTest old[] = {cmocka_unit_test(an_older_one_leaves_all_as_it_was)};
    return argc > 1 && strcmp(argv[1], "old") == 0 ? cmocka_run_group_tests(old, begin, end)
                                                   : cmocka_run_group_tests(tests, begin, end);
}
