/* SPDX-License-Identifier: MIT */
/*
 * The data that ranks exchange, as the machine keeps it (simcuda/machine/deposits.h): messages
 * of processes, each of which is a connection of this program, started by `reveille run`. Some
 * of the messages are never sent by our libraries.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "reveille/status.h"
#include "simcuda/wire/wire.h"

#define RANKS 3
#define LIMIT 1024 /* operations of a communicator (simcuda/machine/deposits.h) */
#define MESSAGES 20000

static int process[RANKS]; /* one connection for each rank */
static int observer;       /* another connection */
static uint64_t meeting;
static int contents = -1;
static unsigned meetings;

/* ---- Messages ---- */

static void post(int file, const rvli_wire_request *request)
{
    assert_int_equal(send(file, request, sizeof *request, MSG_NOSIGNAL), sizeof *request);
}

static rvl_status ask(int file, const rvli_wire_request *request, rvli_wire_answer *answer)
{
    post(file, request);
    assert_int_equal(recv(file, answer, sizeof *answer, 0), sizeof *answer);
    return (rvl_status)answer->status;
}

static int connect_as(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *machine = getenv(RVLI_WIRE_VARIABLE);
    assert_non_null(machine);
    size_t length = strlen(machine);
    memcpy(address.sun_path + 1, machine, length);
    int file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(file, (struct sockaddr *)&address,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)),
                     0);
    rvli_wire_request hello = {.kind = RVLI_WIRE_HELLO, .bytes = RVLI_WIRE_VERSION};
    rvli_wire_request named = {.kind = RVLI_WIRE_NAME};
    rvli_wire_answer answer;
    snprintf(named.text, sizeof named.text, "%s", name);
    assert_int_equal(ask(file, &hello, &answer), RVL_OK);
    assert_int_equal(ask(file, &named, &answer), RVL_OK);
    return file;
}

static int take_contents(void)
{
    const rvli_wire_request request = {.kind = RVLI_WIRE_CONTENTS};
    rvli_wire_answer answer;
    rvli_wire_parcel parcel;
    int file = -1;
    post(observer, &request);
    rvli_wire_wrap(&parcel, &answer, sizeof answer, -1);
    parcel.message.msg_control = parcel.control;
    parcel.message.msg_controllen = sizeof parcel.control;
    assert_int_equal(recvmsg(observer, &parcel.message, 0), sizeof answer);
    memcpy(&file, CMSG_DATA(CMSG_FIRSTHDR(&parcel.message)), sizeof file);
    return file;
}

/* The blocks of the file. The answered message ensures that earlier messages were served. */
static long long blocks(void)
{
    struct stat facts;
    rvli_wire_answer answer;
    const rvli_wire_request memory = {.kind = RVLI_WIRE_MEMORY};
    assert_int_equal(ask(observer, &memory, &answer), RVL_OK);
    assert_int_equal(fstat(contents, &facts), 0);
    return (long long)facts.st_blocks;
}

/* ---- Ranks ---- */

static rvli_wire_request about(rvli_wire_kind kind, uint32_t rank, uint64_t sequence,
                               uint64_t bytes)
{
    return (rvli_wire_request){.kind = kind,
                               .id = meeting,
                               .rank = rank,
                               .sequence = sequence,
                               .from = RVLI_WIRE_ALL,
                               .to = RVLI_WIRE_ALL,
                               .bytes = bytes};
}

static void come(uint32_t rank, uint64_t sequence, rvli_wire_come how)
{
    rvli_wire_answer answer;
    const rvli_wire_request request = about(RVLI_WIRE_COME, rank, sequence, how);
    assert_int_equal(ask(process[rank], &request, &answer), RVL_OK);
}

static void taken(uint32_t rank, uint64_t sequence)
{
    const rvli_wire_request request = about(RVLI_WIRE_TAKEN, rank, sequence, 0);
    post(process[rank], &request);
}

/* Brings a page filled with a letter. */
static void bring(uint32_t rank, uint64_t sequence, char letter)
{
    char page[4096];
    rvli_wire_answer answer;
    const rvli_wire_request request = about(RVLI_WIRE_BRING, rank, sequence, sizeof page);
    assert_int_equal(ask(process[rank], &request, &answer), RVL_OK);
    memset(page, letter, sizeof page);
    assert_int_equal(pwrite(contents, page, sizeof page, (off_t)answer.place), sizeof page);
}

static rvl_status take(uint32_t rank, uint64_t sequence, uint32_t giver, rvli_wire_answer *answer)
{
    const rvli_wire_request request = about(RVLI_WIRE_TAKE, rank, sequence, giver);
    return ask(process[rank], &request, answer);
}

static void check_letter(uint32_t rank, uint64_t sequence, uint32_t giver, char letter)
{
    rvli_wire_answer answer;
    char there = 0;
    assert_int_equal(take(rank, sequence, giver, &answer), RVL_OK);
    assert_int_equal(answer.count, 1);
    assert_int_equal(answer.total_bytes, 4096);
    assert_int_equal(pread(contents, &there, 1, (off_t)answer.place + 4095), 1);
    assert_int_equal(there, letter);
}

/* Ends a process as kill -9 does, and waits until the machine has noticed. */
static void kill_rank(uint32_t rank)
{
    char answer[sizeof(rvli_wire_answer)];
    ssize_t left;
    assert_int_equal(shutdown(process[rank], SHUT_WR), 0);
    while ((left = recv(process[rank], answer, sizeof answer, 0)) > 0)
        continue;
    assert_int_equal(left, 0);
    close(process[rank]);
}

/* Connects processes, with their communicator. */
static int begin(void **state)
{
    rvli_wire_answer answer;
    char name[32];
    (void)state;
    meetings++;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        snprintf(name, sizeof name, "meeting %u", meetings);
        process[rank] = connect_as("rank");
        rvli_wire_request meet = {.kind = RVLI_WIRE_MEET, .rank = rank, .ranks = RANKS};
        memcpy(meet.text, name, sizeof name);
        assert_int_equal(ask(process[rank], &meet, &answer), RVL_OK);
        meeting = answer.id;
    }
    observer = connect_as("observer");
    contents = take_contents();
    assert_int_equal(blocks(), 0);
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < RANKS; rank++)
        kill_rank(rank);
    assert_int_equal(blocks(), 0); /* nothing of it is left */
    close(observer);
    close(contents);
    return 0;
}

/* ---- Tests ---- */

static void what_is_brought_is_taken_by_all(void **state)
{
    rvli_wire_answer answer;
    (void)state;
    bring(1, 0, 'b');
    come(1, 0, RVLI_WIRE_GETS);
    come(0, 0, RVLI_WIRE_GETS);
    check_letter(0, 0, 1, 'b');
    assert_int_equal(take(0, 0, 0, &answer), RVL_OK); /* it has come without data */
    assert_int_equal(answer.count, 0);
    assert_int_equal(take(0, 0, 2, &answer), RVL_ERR_BUSY);
    come(2, 0, RVLI_WIRE_GETS);
    assert_int_equal(take(0, 0, 2, &answer), RVL_OK);
    taken(0, 0);
    taken(1, 0);
    assert_true(blocks() > 0);
    check_letter(2, 0, 1, 'b');
    taken(2, 0);
    assert_int_equal(blocks(), 0);
}

static void who_needs_nothing_holds_nothing(void **state)
{
    (void)state;
    bring(0, 0, 'a');
    come(0, 0, RVLI_WIRE_GIVES);
    come(1, 0, RVLI_WIRE_GIVES);
    assert_true(blocks() > 0);
    come(2, 0, RVLI_WIRE_GIVES);
    assert_int_equal(blocks(), 0);
}

static void who_has_not_come_cannot_take(void **state)
{
    rvli_wire_answer answer;
    (void)state;
    bring(1, 0, 'b');
    come(1, 0, RVLI_WIRE_GIVES);
    assert_int_equal(take(0, 0, 1, &answer), RVL_ERR_INVALID);
    come(0, 0, RVLI_WIRE_GIVES);
    assert_int_equal(take(0, 0, 7, &answer), RVL_ERR_INVALID); /* there is no rank 7 */
    assert_int_equal(take(0, 5, 1, &answer), RVL_OK);          /* nor such an operation: unknown */
    assert_int_equal(answer.count, 0);
}

static void what_is_brought_and_not_said_is_not_there(void **state)
{
    rvli_wire_answer answer;
    (void)state;
    come(0, 0, RVLI_WIRE_GETS);
    bring(1, 0, 'b');
    assert_int_equal(take(0, 0, 1, &answer), RVL_ERR_BUSY);
    kill_rank(1);
    assert_int_equal(take(0, 0, 1, &answer), RVL_ERR_STATE);
    process[1] = connect_as("later");
}

static void a_process_that_ends_leaves_what_it_brought(void **state)
{
    rvli_wire_answer answer;
    (void)state;
    bring(1, 0, 'b');
    come(1, 0, RVLI_WIRE_GETS);
    kill_rank(1);
    come(0, 0, RVLI_WIRE_GETS);
    check_letter(0, 0, 1, 'b');
    taken(0, 0);
    come(2, 0, RVLI_WIRE_GIVES);
    assert_int_equal(blocks(), 0); /* no wait for the rank that has ended */
    come(0, 1, RVLI_WIRE_GETS);    /* nor for an operation that it never calls */
    assert_int_equal(take(0, 1, 1, &answer), RVL_ERR_STATE);
    process[1] = connect_as("later");
}

static void a_rank_that_has_left_may_still_take(void **state)
{
    const rvli_wire_request part = {.kind = RVLI_WIRE_PART, .id = meeting, .rank = 2};
    (void)state;
    come(2, 0, RVLI_WIRE_GETS);
    post(process[2], &part);
    bring(0, 0, 'a');
    come(0, 0, RVLI_WIRE_GIVES);
    come(1, 0, RVLI_WIRE_GIVES);
    check_letter(2, 0, 0, 'a');
    assert_true(blocks() > 0);
    taken(2, 0);
    assert_int_equal(blocks(), 0);
}

static void pairs_are_counted_apart(void **state)
{
    rvli_wire_answer answer;
    rvli_wire_request send = about(RVLI_WIRE_BRING, 1, 0, 64), receive = send;
    (void)state;
    send.from = receive.from = 1;
    send.to = receive.to = 2;
    assert_int_equal(ask(process[1], &send, &answer), RVL_OK);
    uint64_t place = answer.place;
    assert_int_equal(ask(process[1], &send, &answer), RVL_ERR_STATE); /* only once */
    assert_int_equal(pwrite(contents, "x", 1, (off_t)place), 1);
    send.kind = RVLI_WIRE_COME;
    send.bytes = RVLI_WIRE_GIVES;
    assert_int_equal(ask(process[1], &send, &answer), RVL_OK);
    receive.rank = 2;
    receive.kind = RVLI_WIRE_COME;
    receive.bytes = RVLI_WIRE_GETS;
    assert_int_equal(ask(process[2], &receive, &answer), RVL_OK);
    receive.kind = RVLI_WIRE_TAKE;
    receive.bytes = 1;
    assert_int_equal(ask(process[2], &receive, &answer), RVL_OK);
    assert_int_equal(answer.place, place);
    assert_int_equal(answer.total_bytes, 64);
    receive.rank = 0; /* a third rank takes no part in it */
    assert_int_equal(ask(process[0], &receive, &answer), RVL_ERR_INVALID);
    receive.rank = 2;
    receive.kind = RVLI_WIRE_TAKEN;
    post(process[2], &receive);
    assert_int_equal(blocks(), 0);
}

static void too_many_operations(void **state)
{
    rvli_wire_answer answer;
    (void)state;
    bring(1, 0, 'b');
    come(1, 0, RVLI_WIRE_GIVES);
    for (uint64_t i = 0; i < LIMIT; i++)
        come(0, i, RVLI_WIRE_GETS);
    const rvli_wire_request bring_more = about(RVLI_WIRE_BRING, 0, LIMIT, 4096),
                            come_more = about(RVLI_WIRE_COME, 0, LIMIT, RVLI_WIRE_GIVES);
    assert_int_equal(ask(process[0], &bring_more, &answer), RVL_ERR_BUSY);
    assert_int_equal(ask(process[0], &come_more, &answer), RVL_ERR_BUSY);
    check_letter(0, 0, 1, 'b');  /* data that is there stays */
    come(1, 1, RVLI_WIRE_GIVES); /* others catch up */
    come(2, 1, RVLI_WIRE_GIVES);
    taken(0, 1);
    assert_int_equal(ask(process[0], &come_more, &answer), RVL_OK);
}

static void a_rank_that_waits_no_longer(void **state)
{
    rvli_wire_answer answer;
    const rvli_wire_request more = about(RVLI_WIRE_COME, 1, 1, RVLI_WIRE_GETS);
    (void)state;
    bring(1, 0, 'b');
    come(1, 0, RVLI_WIRE_GIVES);
    come(0, 0, RVLI_WIRE_GETS);
    come(0, 7, RVLI_WIRE_ENDS);
    assert_int_equal(blocks(), 0);
    assert_int_equal(take(0, 0, 1, &answer), RVL_OK); /* unknown, for all ranks */
    assert_int_equal(answer.count, 0);
    assert_int_equal(ask(process[1], &more, &answer), RVL_ERR_STATE);
    assert_int_equal(take(1, 1, 0, &answer), RVL_OK);
    assert_int_equal(answer.count, 0);
}

static void another_processs_rank(void **state)
{
    rvli_wire_answer answer;
    const rvli_wire_request request = about(RVLI_WIRE_BRING, 1, 0, 4096);
    rvli_wire_request said = about(RVLI_WIRE_COME, 1, 0, RVLI_WIRE_GIVES);
    (void)state;
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_NOT_FOUND);
    assert_int_equal(ask(process[0], &said, &answer), RVL_ERR_NOT_FOUND);
    come(0, 0, RVLI_WIRE_GETS);
    assert_int_equal(take(0, 0, 1, &answer),
                     RVL_ERR_BUSY); /* the message did not come from rank 1 */
    said.kind = RVLI_WIRE_TAKEN;
    said.rank = 0;
    post(process[1], &said); /* nor does this one come from rank 0 */
    assert_int_equal(take(0, 0, 1, &answer), RVL_ERR_BUSY);
}

static void sizes_and_ranks_that_do_not_exist(void **state)
{
    rvli_wire_answer answer;
    rvli_wire_request request = about(RVLI_WIRE_BRING, 0, 0, 0);
    (void)state;
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_INVALID);
    request.bytes = UINT64_MAX;
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_INVALID);
    request.bytes = 8;
    request.id = meeting + 1000;
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_NOT_FOUND);
    request.id = meeting;
    request.rank = RANKS;
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_NOT_FOUND);
    request.rank = 0;
    request.from = 0;
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_NOT_FOUND);
    request.to = RANKS;
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_NOT_FOUND);
    request.from = 1;
    request.to = 0; /* a receiver brings no data */
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_INVALID);
    request = about(RVLI_WIRE_COME, 0, 0, RVLI_WIRE_ENDS + 1);
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_INVALID);
    request.bytes = RVLI_WIRE_GETS;
    request.from = 0;
    request.to = 1; /* a sender gets no data */
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_INVALID);
    come(0, 1, RVLI_WIRE_GIVES);
    request = about(RVLI_WIRE_COME, 0, 1, RVLI_WIRE_GIVES);
    assert_int_equal(ask(process[0], &request, &answer), RVL_ERR_STATE); /* only once */
}

/* The machine answers any messages, and later valid requests still work. */
static void any_messages(void **state)
{
    uint32_t seed = 12345;
    (void)state;
    for (int i = 0; i < MESSAGES; i++) {
        rvli_wire_answer answer;
        uint32_t any[8];
        for (size_t j = 0; j < sizeof any / sizeof *any; j++)
            any[j] = seed = seed * 1664525u + 1013904223u;
        const uint32_t few[] = {0, 1, 2, 3, RVLI_WIRE_ALL, 1u << 31};
        const uint64_t sizes[] = {0, 1, 2, 4096, 1u << 20, UINT32_MAX, UINT64_MAX};
        rvli_wire_request request = {
            .kind = RVLI_WIRE_BRING + (any[0] >> 16) % 4,
            .device = (any[0] >> 24) % 5 == 0 ? -1 : 0,
            .id = (any[1] >> 16) % 8 == 0 ? any[1] : meeting,
            .bytes = sizes[(any[2] >> 16) % 7],
            .rank = few[(any[3] >> 16) % 6],
            .sequence = (any[4] >> 16) % 9,
            .from = few[(any[5] >> 16) % 6],
            .to = few[(any[6] >> 16) % 6],
        };
        if ((any[7] >> 16) % 3 == 0)
            request.from = request.to = RVLI_WIRE_ALL;
        int from = process[(any[7] >> 20) % RANKS];
        if (request.kind == RVLI_WIRE_COME && request.bytes == RVLI_WIRE_ENDS)
            continue; /* it would end the exchange */
        if (request.kind == RVLI_WIRE_TAKEN)
            post(from, &request);
        else
            (void)ask(from, &request, &answer);
    }
    bring(2, 1000, 'c');
    come(2, 1000, RVLI_WIRE_GIVES);
    come(1, 1000, RVLI_WIRE_GETS);
    check_letter(1, 1000, 2, 'c');
}

int main(void)
{
#define IN_A_COMMUNICATOR(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        IN_A_COMMUNICATOR(what_is_brought_is_taken_by_all),
        IN_A_COMMUNICATOR(who_needs_nothing_holds_nothing),
        IN_A_COMMUNICATOR(who_has_not_come_cannot_take),
        IN_A_COMMUNICATOR(what_is_brought_and_not_said_is_not_there),
        IN_A_COMMUNICATOR(a_process_that_ends_leaves_what_it_brought),
        IN_A_COMMUNICATOR(a_rank_that_has_left_may_still_take),
        IN_A_COMMUNICATOR(pairs_are_counted_apart),
        IN_A_COMMUNICATOR(too_many_operations),
        IN_A_COMMUNICATOR(a_rank_that_waits_no_longer),
        IN_A_COMMUNICATOR(another_processs_rank),
        IN_A_COMMUNICATOR(sizes_and_ranks_that_do_not_exist),
        IN_A_COMMUNICATOR(any_messages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
