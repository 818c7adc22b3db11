/* SPDX-License-Identifier: MIT */
/* The data that ranks exchange through NCCL operations, as their programs read it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/simcuda/nccl_ranks.h"
#include "tests/support/folder.h"
#include "tests/support/run_command.h"

static void run_to(int status, int ranks, const char *words)
{
    char all[2048];
    snprintf(all, sizeof all, "init id $1 %d %s", ranks, words);
    assert_int_equal(run_ranks(ranks, all), status);
    check_line(1, "0");
}

/* Runs ranks with these words, after they have a communicator. */
static void run(int ranks, const char *words)
{
    run_to(0, ranks, words);
}

/* Compares all that a rank printed after its communicator was made. */
static void check_rank(int rank, const char *expected)
{
    char name[] = {(char)('0' + rank), '\0'}, text[8192];
    folder_read(name, text, sizeof text);
    const char *after = strchr(text, '\n'); /* the result of device */
    after = after != NULL ? strchr(after + 1, '\n') : NULL;
    assert_non_null(after);
    assert_string_equal(after + 1, expected);
}

static void check_all(int ranks, const char *expected)
{
    for (int rank = 0; rank < ranks; rank++)
        check_rank(rank, expected);
}

static void check_unknown_reads(const char *how_often)
{
    char text[8192];
    folder_read("machine", text, sizeof text);
    if (how_often == NULL)
        assert_null(strstr(text, "only a kernel"));
    else
        check_contains(text, how_often);
}

/* ---- Numbers ---- */

/* Rank 0 has the first numbers, rank 1 the second. */
static void check_numbers(const char *type, const char *operation, const char *first,
                          const char *second, const char *expected)
{
    char words[256], lines[64];
    snprintf(words, sizeof words, "put %s $([ $1 = 0 ] && echo %s || echo %s) allreduce %s get 2",
             type, first, second, operation);
    snprintf(lines, sizeof lines, "0\n%s \n", expected);
    run(2, words);
    check_all(2, lines);
    check_unknown_reads(NULL);
}

static void numbers_of_every_type(void **state)
{
    (void)state;
    check_numbers("i8", "sum", "100,-5", "101,-6", "-55 -11");
    check_numbers("u8", "sum", "200,1", "201,2", "145 3");
    check_numbers("i32", "max", "-7,7", "3,-3", "3 7");
    check_numbers("u32", "min", "4000000000,1", "5,2", "5 1");
    check_numbers("i64", "prod", "-3000000000,2", "3,4", "-9000000000 8");
    check_numbers("u64", "avg", "18446744073709551613,6", "1,3", "9223372036854775807 4");
    check_numbers("f16", "sum", "3c00,4000", "4000,4000", "4200 4400");
    check_numbers("bf16", "prod", "3f80,4040", "4000,4040", "4000 4110");
    check_numbers("f32", "avg", "0.25,-1", "0.75,4", "0.5 1.5");
    check_numbers("f64", "sum", "0.1,1e300", "0.2,1e300",
                  "0.30000000000000004 2.0000000000000001e+300");
    check_numbers("e4m3", "sum", "38,44", "40,44", "44 4c");
    check_numbers("e5m2", "min", "3c,bc", "40,3c", "3c bc");
}

/* With ncclRedOpCreatePreMulSum(), each rank has its own factor. */
static void factors_of_ranks(void **state)
{
    (void)state;
    run(2, "put f32 2,3 factor $((10 * $1 + 1)) allreduce mul get 2");
    check_all(2, "0\n24 36 \n");
    run(2, "put f32 2,3 factoron $((10 * $1 + 1)) reducescatter mul get 1");
    check_rank(0, "0\n24 \n");
    check_rank(1, "0\n36 \n");
    run(1, "put f32 2,3 factor 5 allreduce mul get 2");
    check_all(1, "0\n10 15 \n");
}

/* ---- Operations ---- */

static void all_operations(void **state)
{
    (void)state;
    run(3, "put i32 $1,10,2$1 allreduce sum get 3 broadcast 1 get 3 allgather get 9");
    check_all(3, "0\n3 30 63 \n0\n1 10 21 \n0\n0 10 20 1 10 21 2 10 22 \n");
    check_unknown_reads(NULL);
    run(3, "put i32 $1,1$1,2$1 alltoall get 3 scatter 2 get 1 reducescatter sum get 1");
    check_rank(0, "0\n0 1 2 \n0\n2 \n0\n3 \n");
    check_rank(1, "0\n10 11 12 \n0\n12 \n0\n33 \n");
    check_rank(2, "0\n20 21 22 \n0\n22 \n0\n63 \n");
    check_unknown_reads(NULL);
    run(3, "put i32 $1,1 reduceto max 2 get 2 gather 1 get 6");
    check_rank(0, "0\n0 0 \n0\n0 0 0 0 0 0 \n"); /* not the root: nothing was written */
    check_rank(1, "0\n0 0 \n0\n0 1 1 1 2 1 \n");
    check_rank(2, "0\n2 1 \n0\n2 1 0 0 0 0 \n");
}

static void sends_and_receives(void **state)
{
    (void)state;
    /* In a ring, two in succession, mixed with an operation of all ranks. */
    run(3, "put i32 $1,5 send $((($1 + 1) % 3)) put i32 1$1,6 send $((($1 + 1) % 3)) allreduce max "
           "recv $((($1 + 2) % 3)) get 2 recv $((($1 + 2) % 3)) get 2");
    check_rank(0, "0\n0\n0\n0\n2 5 \n0\n12 6 \n");
    check_rank(1, "0\n0\n0\n0\n0 5 \n0\n10 6 \n");
    check_rank(2, "0\n0\n0\n0\n1 5 \n0\n11 6 \n");
    run(2, "put i32 7,$1 send $1 recv $1 get 2"); /* to itself */
    check_rank(0, "0\n0\n7 0 \n");
    check_rank(1, "0\n0\n7 1 \n");
    run(1, "put i32 7,8 recv 0 send 0 get 2"); /* in the other order, as in a group */
    check_all(1, "0\n0\n7 8 \n");
}

/* Received data is sent on, copied and overwritten before it is read. */
static void nobody_waits_before_a_read(void **state)
{
    (void)state;
    run(2, "put i32 1,2 held $1 allreduce sum onward onward get 2");
    check_all(2, "0\n0\n0\n8 16 \n");
    run(2, "put i32 1,2 $([ $1 = 1 ] && echo held 1) allreduce sum copied over 9 get 2");
    check_all(2, "0\n2 9 \n");
    run(2, "put i32 1,2 allreduce sum allreduce max get 2"); /* the first result is never read */
    check_all(2, "0\n0\n1 2 \n");
}

static void a_communicator_that_is_gone(void **state)
{
    (void)state;
    run(2, "put i32 1,$1 held $1 allreduce sum destroy get 2");
    check_all(2, "0\n0\n2 1 \n");
}

static void those_of_a_split(void **state)
{
    (void)state;
    run(4, "split $(($1 % 2)) 0 put i32 $1 allreduce sum get 1");
    check_rank(0, "0\n0\n2 \n");
    check_rank(3, "0\n0\n4 \n");
}

/* ---- Unknown data ---- */

static void what_a_rank_does_not_know(void **state)
{
    (void)state;
    /* One number of rank 1 is unknown. So its sum is unknown, and so is its place in what is
     * gathered. */
    run(2, "put i32 1,$([ $1 = 0 ] && echo 2 || echo -) allreduce sum get 1 get 2 allgather get 3 "
           "get 4");
    check_all(2, "0\n2 \n2 0 \n0\n1 2 1 \n1 2 1 0 \n");
    check_unknown_reads("the program read 4 times what only a kernel");
    run(2, "put i32 $([ $1 = 0 ] && echo 2 || echo -) allreduce sum get 1 broadcast 0 get 1");
    check_all(2, "0\n0 \n0\n2 \n");
    check_unknown_reads("2 times");
}

static void beyond_the_limit(void **state)
{
    (void)state;
    assert_int_equal(
        run_shell("rm -f id; " COMMAND_WORD " run --gpus 2 --keep-contents 8 -- sh -c '" PROGRAM
                  " nccl id id; rank() { " PROGRAM
                  " nccl device $1 init id $1 2 put i32 1,2 allreduce sum get 2 put i32 1,2,3 "
                  "allreduce sum get 3 allgather get 3 put i32 4 allgather get 2; }; rank 1 >1 & "
                  "rank 0 >0; wait' >table 2>machine"),
        0);
    check_all(2, "0\n2 4 \n0\n0 0 0 \n0\n0 0 0 \n0\n4 4 \n");
    check_unknown_reads("4 times");
    assert_int_equal(
        run_shell("rm -f id; " COMMAND_WORD " run --gpus 2 --keep-contents 0 -- sh -c '" PROGRAM
                  " nccl id id; rank() { " PROGRAM
                  " nccl device $1 init id $1 2 put i32 1 allreduce sum get 1; }; rank 1 >1 & "
                  "rank 0 >0; wait' >table 2>machine"),
        0);
    check_all(2, "0\n0 \n");
}

static void in_a_graph(void **state)
{
    (void)state;
    run(2, "put i32 1,2 captured sum get 2 allreduce sum get 2");
    check_all(2, "0\n0 0 \n0\n2 4 \n");
    check_unknown_reads("2 times");
}

static void ranks_that_are_not_started(void **state)
{
    (void)state;
    assert_int_equal(
        run_shell("rm -f id; " COMMAND_WORD " run --rank 1 --world 4 -- " PROGRAM
                  " nccl id id init id 1 4 put i32 5 allreduce sum get 1 broadcast 0 get 1 "
                  "broadcast 1 get 1 allgather get 4 recv 2 get 1 2>machine"),
        0);
    const char *const lines[] = {"0 ", "0", "0 ", "0", "5 ", "0", "0 5 0 0 ", "0", "0 "};
    for (int i = 0; i < (int)(sizeof lines / sizeof *lines); i++)
        check_line(3 + i, lines[i]);
    check_unknown_reads("4 times");
}

/* ---- Ranks that end, or do not come ---- */

static void a_rank_that_ends_after_it_has_brought(void **state)
{
    (void)state;
    run(2, "put i32 3,$1 allreduce sum $([ $1 = 1 ] && echo end) held 1 get 2");
    check_rank(0, "0\n6 1 \n");
    check_unknown_reads(NULL);
}

/* The command ends well, but `reveille run` exits with 3, and reports why. */
static void run_that_waits(const char *seconds, const char *words)
{
    setenv("REVEILLE_NCCL_LEFT_TIMEOUT_S", seconds, 1);
    run_to(3, 2, words);
    unsetenv("REVEILLE_NCCL_LEFT_TIMEOUT_S");
    assert_int_equal(run_shell("test $(grep -c 'rank 0 of 2 calls ncclAllReduce, and rank 1 has "
                               "left without calling it' err) = 1"),
                     0);
    check_file("table", "no verdict: rank 0 of 2 calls ncclAllReduce, and rank 1 has left without "
                        "calling it\n");
}

static void a_rank_that_ends_before(void **state)
{
    (void)state;
    /* What it reads is unknown, and the copy's wait ends with 702, cudaErrorLaunchTimeout. */
    run_that_waits("0", "put i32 3 $([ $1 = 1 ] && echo held 1 end) allreduce sum get 1");
    check_rank(0, "0\n702\n");
    check_unknown_reads("once");
}

/* Fewer batches than on other ranks, under DDP: nothing is read, and a card waits. 6:
 * ncclRemoteError of the communicator, which has failed by the next call. */
static void a_rank_that_leaves_early_is_waited_for(void **state)
{
    (void)state;
    run_that_waits("0", "put i32 3 allreduce sum $([ $1 = 1 ] && echo end) held 1 allreduce sum "
                        "allreduce sum async sync");
    check_rank(0, "0\n0\n6\n6\n702\n");
    check_file("err", "rank 0 of 2 has waited for rank 1, which has left without calling "
                      "ncclAllReduce: its communicator fails");
    /* It leaves after rank 0 has called. No rank takes data from that operation. */
    run_that_waits("0", "put i32 3 $([ $1 = 1 ] && echo held 1 end) allreduce sum held 2 sync");
    check_rank(0, "0\n702\n");
    run_that_waits("0", "put i32 - $([ $1 = 1 ] && echo held 1 end) allreduce sum held 2 sync");
    check_rank(0, "0\n702\n");
    /* No rank waits for it, even if rank 0 has left before. The machine notices it. */
    run_that_waits("10", "put i32 3 allreduce sum $([ $1 = 1 ] && echo end) held 1 allreduce sum");
    check_rank(0, "0\n0\n");
    run_to(3, 2, "put i32 3 $([ $1 = 0 ] && echo allreduce sum || echo held 1)");
    check_file("table", "no verdict: rank 0 of 2 calls ncclAllReduce, and rank 1 has left");
}

/* Not ready, without an error, until the timeout. Then the communicator fails first, for a
 * watchdog. */
static void a_watchdog_sees_that_a_rank_has_left(void **state)
{
    (void)state;
    run_that_waits("3", "put i32 3 $([ $1 = 1 ] && echo end) held 1 allreduce sum async query "
                        "held 3 async query allreduce sum");
    check_rank(0, "0\n0\n600 600 600 600 0\n6\n600 600 600 600 0\n6\n");
    /* It aborts the communicator, and so ends its operations. */
    run_that_waits("3", "put i32 3 $([ $1 = 1 ] && echo end) held 1 allreduce sum query destroy "
                        "query sync");
    check_rank(0, "0\n600 600 600 600 0\n0\n0 0 0 0 0\n0\n");
    assert_int_equal(run_shell("grep -q 'its communicator fails' err"), 1);
}

static void a_rank_that_has_called_all_may_leave(void **state)
{
    char text[8192];
    (void)state;
    run(2, "put i32 3 allreduce sum sync $([ $1 = 1 ] && echo end) held 1");
    folder_read("err", text, sizeof text);
    assert_null(strstr(text, "has left"));
    /* What fits in NCCL's buffers is sent, even if no rank takes it. */
    run(2, "put i32 3 $([ $1 = 1 ] && echo end) held 1 send 1 broadcast 0 sync");
    check_rank(0, "0\n0\n0\n");
    check_file("err",
               "rank 0 of 2 calls ncclSend, and rank 1 has left without calling it: on cards");
}

/* Rank 1 never calls what rank 0 calls, and is still running when rank 0 gives up. */
static void check_gives_up(const char *words, const char *expected)
{
    char line[2048];
    snprintf(line, sizeof line,
             "rm -f id out; REVEILLE_NCCL_LEFT_TIMEOUT_S=0 " COMMAND_WORD
             " run --gpus 2 -- sh -c '" PROGRAM " nccl id id; " PROGRAM
             " nccl device 1 init id 1 2 comes out >1 2>&1 & " PROGRAM
             " nccl device 0 init id 0 2 patience 1 put i32 3 allreduce sum %s mark out >0; wait' "
             ">table 2>err",
             words);
    assert_int_equal(run_shell(line), 3);
    check_file("table", "no verdict: rank 0 of 2 has waited ");
    check_rank(0, expected);
    check_file("err", "rank 0 of 2 has waited "); /* 1 s, or more on a busy machine */
}

static void a_rank_that_does_not_come(void **state)
{
    (void)state;
    check_gives_up("get 1", "0\n702\n");
    check_file("err", " s for rank 1 to call ncclAllReduce (REVEILLE_NCCL_TIMEOUT_S)");
}

static void a_rank_that_is_late_is_named(void **state)
{
    (void)state;
    run(3,
        "put i32 3 $([ $1 = 1 ] && echo hears err reads hears 2 waits) allreduce sum $([ $1 = 2 ] "
        "&& echo sync) get 1");
    check_rank(0, "0\n9 \n");
    check_file("err", "rank 0 of 3 reads what ncclAllReduce brings, and waits for rank 1, which "
                      "has not called it");
    check_file("2", "rank 2 of 3 waits until ncclAllReduce is complete, which rank 1 has not "
                    "called");
}

/* The rank that calls second reports the difference, once. */
static void check_difference(const char *of_0, const char *of_1)
{
    char text[2 * 8192], by_0[512], by_1[512];
    folder_read("err", text, 8192);
    folder_read("1", text + strlen(text), 8192);
    snprintf(by_0, sizeof by_0, "rank 0 of 2 calls %s, and rank 1 calls %s: all ranks must", of_0,
             of_1);
    snprintf(by_1, sizeof by_1, "rank 1 of 2 calls %s, and rank 0 calls %s: all ranks must", of_1,
             of_0);
    const char *said = strstr(text, "make the same call");
    if (strstr(text, by_0) == NULL)
        check_contains(text, by_1);
    assert_null(strstr(said + 1, "make the same call"));
}

static void ranks_that_differ_are_named(void **state)
{
    (void)state;
    char text[8192];
    run(2, "put i32 3 allreduce sum get 1 broadcast 1 get 1 allgather get 2 send $((1 - $1))");
    check_rank(0, "0\n6 \n0\n3 \n0\n3 3 \n0\n");
    folder_read("err", text, sizeof text);
    assert_null(strstr(text, "the same call"));
    run(2, "put $([ $1 = 1 ] && echo i32 3,4 || echo i32 3) allreduce sum allreduce sum");
    check_difference("ncclAllReduce of 4 bytes of int32, sum",
                     "ncclAllReduce of 8 bytes of int32, sum");
    /* Rank 1 comes second to the first operation, and rank 0 to the next. */
    assert_int_equal(run_shell("rm -f first second"), 0);
    run(2, "$([ $1 = 1 ] && echo comes first put i32 3,4 || echo put i32 3) allreduce sum "
           "$([ $1 = 0 ] && echo mark first comes second) allreduce sum "
           "$([ $1 = 1 ] && echo mark second)");
    check_difference("ncclAllReduce of 4 bytes of int32, sum",
                     "ncclAllReduce of 8 bytes of int32, sum");
    run(2, "put $([ $1 = 1 ] && echo i32 3 || echo f32 3) allreduce sum");
    check_difference("ncclAllReduce of 4 bytes of float32, sum",
                     "ncclAllReduce of 4 bytes of int32, sum");
    run(2, "put i32 3 allreduce $([ $1 = 1 ] && echo max || echo sum)");
    check_difference("ncclAllReduce of 4 bytes of int32, sum",
                     "ncclAllReduce of 4 bytes of int32, max");
    run(2, "put i32 3 $([ $1 = 1 ] && echo allgather || echo allreduce sum)");
    check_difference("ncclAllReduce of 4 bytes of int32, sum", "ncclAllGather of 4 bytes");
}

/* ---- Waiting for streams, events and devices ---- */

/* Rank 1 makes a mark, and comes to the operation after rank 0 has waited for a while. */
static void check_waits(const char *options, const char *operation, const char *wait)
{
    char line[2048];
    snprintf(line, sizeof line,
             "rm -f id mark; " COMMAND_WORD " run --gpus 2 %s -- sh -c '" PROGRAM
             " nccl id id; " PROGRAM " nccl device 1 init id 1 2 put f32 1,2 held 1 mark mark %s "
             ">1 & " PROGRAM " nccl device 0 malloc 4096 init id 0 2 put f32 1,2 %s %s marked mark "
             ">0; wait' "
             ">table 2>machine",
             options, operation, operation, wait);
    assert_int_equal(run_shell(line), 0);
    check_rank(0, "0\n0\n0\n1\n");
}

static void who_waits_for_an_operation_waits_for_all_ranks(void **state)
{
    static const char *const waits[] = {"sync", "syncdevice", "syncevent",   "syncbehind",
                                        "free", "copy",       "syncblocking"};
    static const char *const operations[] = {"allgather", "alltoall", "reduceto sum 0",
                                             "broadcast 1", "scatter 1"};
    (void)state;
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++)
        check_waits("", "allreduce sum", waits[i]);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        check_waits("", operations[i], "sync");
    check_waits("", "captured sum", "sync");
    check_waits("", "streamed sum", "sync");
    check_waits("--keep-contents 0", "allreduce sum", "sync"); /* without data */
}

/* Rank 0 makes a mark before rank 1 comes. It has sent data, and has waited for a stream and an
 * event that take no part in the operations of all ranks. */
static void who_need_not_wait_does_not(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f mark"), 0);
    run(2, "put f32 1,2 syncnothing $([ $1 = 0 ] && echo send 1 broadcast 0 sync allreduce sum "
           "syncnothing mark mark || echo comes mark recv 0 broadcast 0 allreduce sum) "
           "sync get 2");
    check_rank(0, "0\n0\n0\n0\n0\n0\n0\n2 4 \n");
    check_rank(1, "0\n1\n0\n0\n0\n0\n2 4 \n");
}

/* Rank 0 queries before and after rank 1 has come. 600: cudaErrorNotReady. */
static void queries_are_not_ready_before_all_ranks_come(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f mark there"), 0);
    run(2, "put f32 1,2 query $([ $1 = 0 ] && echo allreduce sum query mark mark comes there query "
           "sync query || echo comes mark allreduce sum query mark there) get 2");
    check_rank(0, "0 0 0 0 0\n0\n600 600 600 600 0\n1\n0 0 0 0 0\n0\n0 0 0 0 0\n2 4 \n");
    check_rank(1, "0 0 0 0 0\n1\n0\n0 0 0 0 0\n2 4 \n");
}

/* Each launch calls the captured operations. Ranks may call them in a graph or directly. A
 * launch after the end of the communicator calls nothing. */
static void launches_call_what_was_captured(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f mark there"), 0);
    run(2, "put f32 1,2 $([ $1 = 0 ] && echo keep sum query launch query mark mark comes there "
           "query launch sync query || echo comes mark allreduce sum mark there keep sum launch "
           "sync) destroy $([ $1 = 0 ] && echo launch query)");
    check_rank(
        0, "0\n0 0 0 0 0\n0\n600 600 600 600 0\n1\n0 0 0 0 0\n0\n0\n0 0 0 0 0\n0\n0\n0 0 0 0 0\n");
    check_rank(1, "1\n0\n0\n0\n0\n0\n");
}

static void who_waits_for_too_long_fails(void **state)
{
    (void)state;
    check_gives_up("sync sync async", "0\n702\n702\n2\n"); /* 2: ncclSystemError */
    check_file("err", " s for rank 1 to call ncclAllReduce (REVEILLE_NCCL_TIMEOUT_S): its "
                      "communicator fails");
}

/* ---- Limits ---- */

static void many_operations(void **state)
{
    (void)state;
    /* Rank 0 is soon too far ahead, and waits for rank 1. */
    run(2, "put i8 1 held $1 many 5000 allreduce sum get 1");
    check_all(2, "0\n0\n2 \n");
    run(2,
        "put i8 $([ $1 = 0 ] && echo - || echo 1) held $1 many 2000 put i8 1 allreduce sum get 1");
    check_all(2, "0\n0\n2 \n");
}

static void a_rank_that_is_far_ahead_for_too_long(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f id out; " COMMAND_WORD " run --gpus 2 -- sh -c '" PROGRAM
                               " nccl id id; rank() { n=$1; shift; " PROGRAM
                               " nccl device $n init id $n 2 patience 1 put i8 1 $*; }; "
                               "rank 1 comes out many 2000 allreduce sum >1 & "
                               "rank 0 many 2000 mark out allreduce sum >0; wait' >table 2>err"),
                     3);
    check_rank(0, "2\n2\n");
    check_file("err", "rank 0 of 2 has waited "); /* 1 s, or more on a busy machine */
    check_file("err", " s for others, which are too many operations behind");
}

/* 64 MiB of data are kept, and as much for the flags of known bytes. */
static void more_than_there_is_room_for(void **state)
{
    (void)state;
    assert_int_equal(run_shell("rm -f far"), 0);
    run(2, "put i8 1 large 8 few $([ $1 = 1 ] && echo comes far) large 40 far allreduce sum get 1");
    check_rank(0, "2 2\n0\n0 0\n0\n0\n2 \n"); /* unknown, and then all room is free again */
    check_rank(1, "2 2\n0\n1\n0 0\n0\n0\n2 \n");
    check_unknown_reads("4 times");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_every_type),
        cmocka_unit_test(factors_of_ranks),
        cmocka_unit_test(all_operations),
        cmocka_unit_test(sends_and_receives),
        cmocka_unit_test(nobody_waits_before_a_read),
        cmocka_unit_test(a_communicator_that_is_gone),
        cmocka_unit_test(those_of_a_split),
        cmocka_unit_test(what_a_rank_does_not_know),
        cmocka_unit_test(beyond_the_limit),
        cmocka_unit_test(in_a_graph),
        cmocka_unit_test(ranks_that_are_not_started),
        cmocka_unit_test(a_rank_that_ends_after_it_has_brought),
        cmocka_unit_test(a_rank_that_ends_before),
        cmocka_unit_test(a_rank_that_does_not_come),
        cmocka_unit_test(a_rank_that_leaves_early_is_waited_for),
        cmocka_unit_test(a_watchdog_sees_that_a_rank_has_left),
        cmocka_unit_test(a_rank_that_has_called_all_may_leave),
        cmocka_unit_test(a_rank_that_is_late_is_named),
        cmocka_unit_test(ranks_that_differ_are_named),
        cmocka_unit_test(who_waits_for_an_operation_waits_for_all_ranks),
        cmocka_unit_test(who_need_not_wait_does_not),
        cmocka_unit_test(queries_are_not_ready_before_all_ranks_come),
        cmocka_unit_test(launches_call_what_was_captured),
        cmocka_unit_test(who_waits_for_too_long_fails),
        cmocka_unit_test(many_operations),
        cmocka_unit_test(a_rank_that_is_far_ahead_for_too_long),
        cmocka_unit_test(more_than_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
