/* SPDX-License-Identifier: MIT */
/*
 * How a C program pauses NCCL's communicators together with its memory: between the two phases of a
 * pause or resume (man page rvl_pause_prepare(3)). NCCL is looked up by name, as a program does
 * that must run with several versions of it. usage: test_communicators [old]: NCCL cannot suspend.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <cuda.h>

#include "reveille/reveille.h"
#include "simcuda/nccl/nccl.h"

#define GPUS 2
#define MIB (UINT64_C(1) << 20)
#define WEIGHTS (32 * MIB)
#define MADE (196 * MIB) /* docs/fidelity.md, a communicator of two ranks */
#define ROOM (64 * MIB)

static void *library;
static rvli_comm *comms[GPUS];
static CUcontext devices[GPUS];
static rvl_context *context;
static rvl_addr weights;
static rvl_tag tag;
static const char content[] = "at the end of the weights";

/* NULL: this NCCL has no such function. */
#define FIND(name) ((__typeof__(&name))(uintptr_t)dlsym(library, #name))

static uint64_t free_bytes(int device)
{
    size_t free = 0, total = 0;
    assert_int_equal(cuCtxSetCurrent(devices[device]), CUDA_SUCCESS);
    assert_int_equal(cuMemGetInfo(&free, &total), CUDA_SUCCESS);
    return free;
}

/* ---- What a program does ---- */

/* All communicators of the process in one group, since NCCL waits for every rank. */
static rvl_status move_communicators(bool suspend)
{
    if (FIND(ncclCommSuspend) == NULL || FIND(ncclCommResume) == NULL)
        return RVL_ERR_NOT_SUPPORTED;
    rvli_nccl_result result = FIND(ncclGroupStart)();
    for (int i = 0; i < GPUS && result == RVLI_NCCL_SUCCESS; i++)
        result = suspend ? FIND(ncclCommSuspend)(comms[i], RVLI_NCCL_SUSPEND_MEMORY)
                         : FIND(ncclCommResume)(comms[i]);
    rvli_nccl_result ended = FIND(ncclGroupEnd)();
    return result == RVLI_NCCL_SUCCESS && ended == RVLI_NCCL_SUCCESS ? RVL_OK : RVL_ERR_STATE;
}

/* A rank without room would keep the others waiting in NCCL. */
static bool communicators_fit(void)
{
    for (int i = 0; i < GPUS; i++) {
        uint64_t bytes = 0;
        if (FIND(ncclCommMemStats)(comms[i], RVLI_NCCL_MEMORY_SUSPENDABLE, &bytes) !=
                RVLI_NCCL_SUCCESS ||
            bytes > free_bytes(i))
            return false;
    }
    return true;
}

static rvl_status pause_together(void)
{
    rvl_transition *prepared = NULL;
    rvl_status status = rvl_pause_prepare(context, &tag, 1, NULL, &prepared);
    if (status != RVL_OK)
        return status;
    status = move_communicators(true);
    rvl_status ended =
        status == RVL_OK ? rvl_transition_commit(prepared) : rvl_transition_abort(prepared);
    return status == RVL_OK ? ended : status;
}

static rvl_status resume_together(void)
{
    rvl_transition *prepared = NULL;
    rvl_status status = rvl_resume_prepare(context, &tag, 1, NULL, &prepared);
    if (status != RVL_OK)
        return status;
    status = communicators_fit() ? move_communicators(false) : RVL_ERR_DEVICE_OOM;
    rvl_status ended =
        status == RVL_OK ? rvl_transition_commit(prepared) : rvl_transition_abort(prepared);
    return status == RVL_OK ? ended : status;
}

/* ---- What is seen of it ---- */

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

static void check_all(bool paused, const uint64_t *free)
{
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

/* The communicators of one GPU have no room: neither they nor the weights wake. */
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

/*
 * NCCL refuses what is suspended already: memory is as it was. What is unmapped and mapped again
 * loses its content on simulated GPUs (docs/run.md); tests/core/test_prepare.c has what an abort
 * keeps.
 */
static void what_nccl_refuses_is_undone(void **unused)
{
    (void)unused;
    assert_int_equal(move_communicators(true), RVL_OK);
    const uint64_t free[] = {free_bytes(0), free_bytes(1)};
    assert_int_equal(pause_together(), RVL_ERR_STATE);
    assert_int_equal(state(), RVL_STATE_ACTIVE);
    for (int i = 0; i < GPUS; i++)
        assert_int_equal(free_bytes(i), free[i]);
    assert_int_equal(move_communicators(false), RVL_OK);
    write_content();

    assert_int_equal(pause_together(), RVL_OK);
    assert_int_equal(move_communicators(false), RVL_OK); /* by somebody else */
    assert_int_equal(resume_together(), RVL_ERR_STATE);
    assert_int_equal(state(), RVL_STATE_PAUSED);
    assert_int_equal(move_communicators(true), RVL_OK);
    assert_int_equal(resume_together(), RVL_OK);
    check_content();
}

static rvl_status refuse(void *user, rvl_tag number)
{
    (void)user;
    (void)number;
    return RVL_ERR_STATE;
}

/* What the library refuses, NCCL does not hear of. */
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

/* An NCCL that cannot suspend: nothing has changed. */
static void an_older_one_leaves_all_as_it_was(void **unused)
{
    (void)unused;
    const uint64_t awake[] = {free_bytes(0), free_bytes(1)};
    assert_int_not_equal(pause_together(), RVL_OK);
    assert_int_equal(state(), RVL_STATE_ACTIVE);
    for (int i = 0; i < GPUS; i++)
        assert_int_equal(free_bytes(i), awake[i]);
}

static int begin(void **unused)
{
    (void)unused;
    const rvl_alloc_options options = {
        .struct_size = sizeof options, .tag = "weights", .backup = RVL_BACKUP_HOST};
    library = dlopen("libnccl.so.2", RTLD_NOW);
    assert_non_null(library);
    assert_int_equal(cuInit(0), CUDA_SUCCESS);
    for (int i = 0; i < GPUS; i++)
        assert_int_equal(cuDevicePrimaryCtxRetain(&devices[i], i), CUDA_SUCCESS);
    assert_int_equal(FIND(ncclCommInitAll)(comms, GPUS, NULL), RVLI_NCCL_SUCCESS);
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
        cmocka_unit_test(what_nccl_refuses_is_undone),
        cmocka_unit_test(what_is_vetoed_is_not_suspended),
    };
    const struct CMUnitTest old[] = {cmocka_unit_test(an_older_one_leaves_all_as_it_was)};
    return argc > 1 && strcmp(argv[1], "old") == 0 ? cmocka_run_group_tests(old, begin, end)
                                                   : cmocka_run_group_tests(tests, begin, end);
}
