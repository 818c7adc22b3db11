/* SPDX-License-Identifier: MIT */
/* NCCL on simulated GPUs: ranks that are processes of a run, or all in one process. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/simcuda/nccl_ranks.h"
#include "tests/support/folder.h"
#include "tests/support/run_command.h"

#define CONTEXT 552402944LL         /* what the driver takes for a process */
#define COMMUNICATOR 205520896LL    /* 196 MiB, for two or more ranks, at its creation */
#define COLLECTIVE 301989888LL      /* 288 MiB, with its first collective */
#define CODE 199229440LL            /* 190 MiB, with what asserts need, once per process */
#define COLLECTIVE_CODE 199229440LL /* 190 MiB, with the first collective of a process */
#define WORKING (CONTEXT + CODE + COMMUNICATOR + COLLECTIVE_CODE + COLLECTIVE)
#define PAGE 2097152LL

/* ---- Meeting ---- */

static void ranks_meet(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(3, "init id $1 3 who reduce async destroy"), 0);
    check_line(1, "0");
    check_line(2, "0/3 on 0");
    check_line(3, "0");
    check_line(4, "0");
    check_line(5, "0");
    check_file("2", "2/3 on 2\n0\n0\n0\n");
}

static void one_process_has_all_ranks(void **state)
{
    (void)state;
    assert_int_equal(run_shell(COMMAND_WORD " run --gpus 4 -- " PROGRAM
                                            " nccl all 4 who reduce memory device 3 memory 2>err"),
                     0);
    check_line(0, "0");
    check_line(1, "0/4 on 0");
    check_line(2, "0");
    check_number(3, WORKING + PAGE); /* with the memory that it has not freed */
    check_number(5, WORKING + PAGE);
}

static void one_that_does_not_block(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "later id $1 2 who reduce"), 0);
    check_line(1, "7"); /* ncclInProgress */
    check_line(2, "0");
    check_line(3, "0/2 on 0");
    check_line(4, "0");
}

static void who_is_missing_is_named(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f id; REVEILLE_NCCL_TIMEOUT_S=1 " COMMAND_WORD
                               " run --gpus 2 -- " PROGRAM " nccl id id init id 1 6 memory 2>err"),
                     0);
    check_line(1, "2"); /* ncclSystemError */
    check_number(2, CONTEXT);
    check_file("err", "rank 1 of 6 has waited "); /* 1 s, or more on a busy machine */
    check_file("err", " s for ranks that have not come: 0, 2-5. ");
    check_file("err", "REVEILLE_NCCL_TIMEOUT_S");
}

static void who_has_ended_is_named(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f id in; " COMMAND_WORD " run --gpus 3 -- sh -c '" PROGRAM
                               " nccl id id; " PROGRAM
                               " nccl begin id 0 3 mark in finish & (" PROGRAM
                               " nccl device 1 comes in begin id 1 3 end >1 2>&1); wait' 2>err"),
                     0);
    check_line(1, "7"); /* ncclInProgress */
    check_line(2, "6"); /* ncclRemoteError */
    check_file("err", "rank 0 of 3 waits for the others, and rank 1, simcuda-program[");
    check_file("err", "], has ended");
}

static void two_ranks_of_one_device(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "device 0 init id $1 2 memory"), 0);
    check_line(2, "5"); /* ncclInvalidUsage */
    check_file("err", "Duplicate GPU detected: rank 0 and rank 1 both on CUDA device 0");
}

/* Each rank sees one device, as device 0. */
static void ranks_that_see_one_device(void **state)
{
    (void)state;
    const char line[] = "rm -f id [0-9]; " COMMAND_WORD " run --gpus 2 -- sh -c '" PROGRAM
                        " nccl id id >made; rank() { CUDA_VISIBLE_DEVICES=$2 " PROGRAM
                        " nccl init id $1 2 reduce memory; }; rank 1 %s >1 2>&1 & rank 0 1 "
                        "2>err; wait' 2>machine";
    char words[1024];
    snprintf(words, sizeof words, line, "0");
    assert_int_equal(run_shell(words), 0);
    check_line(0, "0");
    check_number(2, WORKING);
    snprintf(words, sizeof words, line, "1");
    assert_int_equal(run_shell(words), 0);
    check_line(0, "5"); /* ncclInvalidUsage */
    check_file("err", "Duplicate GPU detected");
}

static void a_rank_that_comes_twice(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f id in out; " COMMAND_WORD " run --gpus 2 -- sh -c '" PROGRAM
                               " nccl id id; " PROGRAM
                               " nccl begin id 0 2 mark in comes out >0 2>&1 & " PROGRAM
                               " nccl comes in init id 0 2 init id 5 2 mark out; wait' 2>err"),
                     0);
    check_line(2, "5"); /* ncclInvalidUsage */
    check_line(3, "4"); /* ncclInvalidArgument */
    check_file("err", "rank 0 of 2 is there already");
    check_file("err", "rank 5 of 2");
}

/* ---- Splitting ---- */

static void split_by_color_and_key(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(4, "init id $1 4 split $(($1 % 2)) $((9 - $1)) who reduce destroy"),
                     0);
    check_line(2, "0");
    check_line(3, "1/2 on 0"); /* rank 2 has the lower key */
    check_line(4, "0");
    check_file("1", "1/2 on 1");
    check_file("2", "0/2 on 2");
    check_file("3", "0/2 on 3");
}

static void split_without_a_color(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(3, "init id $1 3 split $(($1 == 1 ? -1 : 7)) 0 who"), 0);
    check_line(3, "0/2 on 0");
    check_file("1", "none\n");
    check_file("2", "1/2 on 2");
}

static void shrunk_by_a_rank(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(3, "init id $1 3 $([ $1 = 1 ] || echo shrink 1) who"), 0);
    check_line(3, "0/2 on 0");
    check_file("2", "1/2 on 2");
}

/* ---- One rank of many ---- */

static void one_rank_of_many(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f id; " COMMAND_WORD
                               " run --rank 3 --world 64 -- sh -c 'echo $RANK $WORLD_SIZE "
                               "$LOCAL_RANK $LOCAL_WORLD_SIZE; " PROGRAM
                               " nccl id id init id $RANK $WORLD_SIZE who reduce memory "
                               "split 1 2 who reduce' 2>err"),
                     0);
    check_line(0, "3 64 0 1");
    check_line(2, "0");
    check_line(3, "3/64 on 0");
    check_line(4, "0");
    check_number(5, WORKING);
    check_line(6, "0");
    check_line(7, "2/64 on 0"); /* its key; nothing is known of the other ranks */
    check_line(8, "0");
}

static void its_environment(void **state)
{
    (void)state;
    assert_int_equal(run_shell(COMMAND_WORD " run --gpus 8 --rank 9 --world 20 -- sh -c 'echo "
                                            "$LOCAL_RANK $LOCAL_WORLD_SIZE $GROUP_RANK "
                                            "$GROUP_WORLD_SIZE $MASTER_ADDR "
                                            "$TORCHELASTIC_USE_AGENT_STORE; test $MASTER_PORT -gt "
                                            "0; exit $((2 + $?))' 2>err"),
                     2);
    check_line(0, "1 8 1 3 127.0.0.1 True");
    assert_int_equal(run_command("run --world 4 --rank 4 -- true"), 2);
    check_printed("--rank 4: --world 4 has ranks from 0 to 3");
    assert_int_equal(run_command("run --rank 0 -- true"), 2);
    check_printed("--rank: of how many? Add --world");
    assert_int_equal(run_command("run --world 0 -- true"), 2);
}

/* ---- Memory ---- */

static void what_a_communicator_takes(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "memory init id $1 2 memory split 0 $1 memory share 0 $1 memory "
                                  "destroy memory"),
                     0);
    check_number(1, CONTEXT);
    check_number(3, CONTEXT + CODE + COMMUNICATOR);
    check_number(5, CONTEXT + CODE + 2 * COMMUNICATOR);
    check_number(7, CONTEXT + CODE + 2 * COMMUNICATOR);
    check_number(9, CONTEXT + CODE + 2 * COMMUNICATOR); /* it had no memory of its own */
    check_file("table", "NCCL of simcuda-program[");
}

static void what_the_first_collective_takes(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "init id $1 2 memory reduce memory reduce memory stats suspend "
                                  "memory resume memory destroy memory"),
                     0);
    check_number(2, CONTEXT + CODE + COMMUNICATOR);
    check_number(4, WORKING);
    check_number(6, WORKING); /* only once */
    check_line(7, "507510784 0 304087040 811597824 ");
    check_number(9, CONTEXT + CODE + COLLECTIVE_CODE);
    check_number(11, WORKING);
    check_number(13, CONTEXT + CODE + COLLECTIVE_CODE);
}

static void no_room_for_a_collective(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "init id $1 2 malloc 149000000000 reduce memory stats"), 0);
    check_line(3, "1"); /* ncclUnhandledCudaError */
    check_number(4, CONTEXT + CODE + COMMUNICATOR + 149000552448LL);
    check_line(5, "205520896 0 104857600 310378496 ");
    check_file("err", "Cuda failure 2 'out of memory'");
}

static void what_destroying_gives_back(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "init id $1 2 destroy memory"), 0);
    check_number(3, CONTEXT + CODE); /* its code stays */
    assert_int_equal(run_ranks(2, "init id $1 2 finalize memory reduce"), 0);
    check_number(3, CONTEXT + CODE);
    check_line(4, "5"); /* ncclInvalidUsage */
}

static void alone_it_takes_nothing(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, "init id 0 1 who memory reduce"), 0);
    check_line(2, "0/1 on 0");
    check_number(3, CONTEXT);
    check_line(4, "0");
}

/* Of seven operations, the one without elements launches nothing, and the four in a group launch
 * one kernel. A communicator of one rank launches none. */
static void captured_operations_are_nodes(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "init id $1 2 capture lost reduce"), 0);
    check_line(2, "4 kernels");
    check_line(3, "0");
    check_line(4, "1"); /* ncclUnhandledCudaError */
    check_line(5, "0");
    assert_int_equal(run_ranks(1, "init id 0 1 capture"), 0);
    check_line(2, "0 kernels");
    check_line(3, "0");
}

static void suspended_and_resumed(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "init id $1 2 stats suspend memory reduce stats resume memory "
                                  "reduce resume"),
                     0);
    check_line(2, "205520896 0 104857600 310378496 ");
    check_line(3, "0");
    check_number(4, CONTEXT + CODE);
    check_line(5, "5"); /* ncclInvalidUsage: it is suspended */
    check_line(6, "205520896 1 104857600 310378496 ");
    check_line(7, "0");
    check_number(8, CONTEXT + CODE + COMMUNICATOR);
    check_line(9, "0");
    check_line(10, "5"); /* it is not suspended */
}

/* As in NCCL: no rank is suspended before all ranks are, and none continues before all are
 * resumed. */
static void suspending_waits_for_all(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "init id $1 2 held $1 suspend memory held $1 resume memory"), 0);
    check_line(2, "0");
    check_number(3, CONTEXT + CODE);
    check_line(4, "0");
    check_number(5, CONTEXT + CODE + COMMUNICATOR);
    assert_int_equal(run_shell("rm -f id out [0-9]; " COMMAND_WORD
                               " run --gpus 2 -- sh -c '" PROGRAM " nccl id id; " PROGRAM
                               " nccl device 1 init id 1 2 comes out >1 2>&1 & " PROGRAM
                               " nccl device 0 init id 0 2 patience 2 suspend memory stats reduce "
                               "mark out; wait' 2>err"),
                     0);
    check_line(3, "2"); /* ncclSystemError */
    check_number(4, CONTEXT + CODE + COMMUNICATOR);
    check_line(5, "205520896 0 104857600 310378496 ");
    check_line(6, "2"); /* it has failed permanently */
    check_file("err", " s for ranks that have not come: 1. ");
}

static void a_rank_that_ends_instead_of_suspending(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f id [0-9]; " COMMAND_WORD " run --gpus 2 -- sh -c '" PROGRAM
                               " nccl id id; (" PROGRAM
                               " nccl device 1 init id 1 2 held 1 end >1 2>&1) & " PROGRAM
                               " nccl device 0 init id 0 2 patience 3 suspend; wait' 2>err"),
                     0);
    check_line(3, "2"); /* it had not come, so its end is not detected */
}

static void all_ranks_of_a_process_suspend(void **state)
{
    (void)state;
    assert_int_equal(run_shell(COMMAND_WORD " run --gpus 2 -- " PROGRAM
                                            " nccl all 2 memory every memory again memory 2>err"),
                     0);
    check_number(1, CONTEXT + CODE + COMMUNICATOR);
    check_line(2, "0");
    check_number(3, CONTEXT + CODE);
    check_line(4, "0");
    check_number(5, CONTEXT + CODE + COMMUNICATOR);
}

static void shared_memory_is_not_suspended(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "init id $1 2 share 0 $1 suspend resume memory"), 0);
    check_line(3, "5"); /* ncclInvalidUsage */
    check_line(4, "5");
    check_number(5, CONTEXT + CODE + COMMUNICATOR);
}

static void finalized_asleep(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "init id $1 2 suspend finalize destroy memory"), 0);
    check_line(3, "0");
    check_line(4, "0");
    check_number(5, CONTEXT + CODE);
}

static void an_older_version(void **state)
{
    (void)state;
    assert_int_equal(run_shell("REVEILLE_NCCL_VERSION=2.28.9 " COMMAND_WORD
                               " run --gpus 2 -- " PROGRAM
                               " nccl all 2 version suspend resume async 2>err"),
                     0);
    check_line(1, "22809");
    check_line(2, "5"); /* ncclInvalidUsage */
    check_line(3, "5");
    check_line(4, "0"); /* nothing has changed */
    check_file("err", "NCCL 22809 is asked for, and gives no memory back: that came with 22907");
    assert_int_equal(run_shell("REVEILLE_NCCL_VERSION=new " COMMAND_WORD " run -- " PROGRAM
                               " nccl all 1 version 2>err"),
                     0);
    check_line(1, "23007");
}

static void no_room_for_a_communicator(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "malloc 149300000000 init id $1 2 memory"), 0);
    check_line(2, "1"); /* ncclUnhandledCudaError */
    check_file("err", "Cuda failure 2 'out of memory'");
    check_file("table", "fits after 2 refusals that the program survived, with ");
    check_file("table", "]/NCCL asked for ");
    check_number(3, CONTEXT + 149300445184LL); /* the failure has changed nothing */
}

static void no_room_to_resume(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "init id $1 2 suspend malloc 149300000000 resume stats memfree"),
                     0);
    check_line(2, "0");
    check_line(3, "0");
    check_line(4, "1"); /* ncclUnhandledCudaError */
    check_line(5, "205520896 1 104857600 310378496 ");
}

static void memory_for_programs(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(2, "init id $1 2 alloc 1 memory memfree memory window memory alloc "
                                  "0 alloc 999999999999 memory"),
                     0);
    check_number(3, CONTEXT + CODE + COMMUNICATOR + PAGE);
    check_line(4, "0");
    check_number(5, CONTEXT + CODE + COMMUNICATOR);
    check_line(6, "0");
    check_number(7, CONTEXT + CODE + COMMUNICATOR);
    check_line(8, "4");
    check_line(9, "1");
    check_number(10, CONTEXT + CODE + COMMUNICATOR);
}

/* ---- Bad calls ---- */

/* If the watchdog could see the first bucket, timing would decide when DDP frees it. */
static void a_watchdog_sees_what_it_is_shown(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        assert_int_equal(run_ranks(ranks, ranks == 1 ? "init id $1 1 polled destroy"
                                                     : "init id $1 2 polled destroy"),
                         0);
        check_line(1, "0");
        check_line(2, "d d h d h 1 d h d d 0 h 1 d ");
    }
}

static void bad_operations(void **state)
{
    (void)state;
    assert_int_equal(run_ranks(1, "init id 0 1 version bad unknown unknown"), 0);
    check_line(2, "23007");
    check_line(3, "4");
    check_line(4, "4");
    check_line(5, "4");
    check_line(6, "1"); /* outside the buffer */
    check_line(7, "4");
    check_line(8, "4");
    check_line(9, "5");
    check_line(10, "5");
    check_line(11, "5");
    assert_int_equal(
        run_shell("grep -c 'ncclDevCommCreate, asked for by .*simcuda-program' err; true"), 0);
    check_line(0, "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_meet),
        cmocka_unit_test(one_process_has_all_ranks),
        cmocka_unit_test(one_that_does_not_block),
        cmocka_unit_test(who_is_missing_is_named),
        cmocka_unit_test(who_has_ended_is_named),
        cmocka_unit_test(two_ranks_of_one_device),
        cmocka_unit_test(ranks_that_see_one_device),
        cmocka_unit_test(a_rank_that_comes_twice),
        cmocka_unit_test(split_by_color_and_key),
        cmocka_unit_test(split_without_a_color),
        cmocka_unit_test(shrunk_by_a_rank),
        cmocka_unit_test(one_rank_of_many),
        cmocka_unit_test(its_environment),
        cmocka_unit_test(what_a_communicator_takes),
        cmocka_unit_test(what_the_first_collective_takes),
        cmocka_unit_test(no_room_for_a_collective),
        cmocka_unit_test(what_destroying_gives_back),
        cmocka_unit_test(alone_it_takes_nothing),
        cmocka_unit_test(captured_operations_are_nodes),
        cmocka_unit_test(suspended_and_resumed),
        cmocka_unit_test(suspending_waits_for_all),
        cmocka_unit_test(a_rank_that_ends_instead_of_suspending),
        cmocka_unit_test(all_ranks_of_a_process_suspend),
        cmocka_unit_test(shared_memory_is_not_suspended),
        cmocka_unit_test(finalized_asleep),
        cmocka_unit_test(an_older_version),
        cmocka_unit_test(no_room_for_a_communicator),
        cmocka_unit_test(no_room_to_resume),
        cmocka_unit_test(memory_for_programs),
        cmocka_unit_test(a_watchdog_sees_what_it_is_shown),
        cmocka_unit_test(bad_operations),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
