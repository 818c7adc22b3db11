/* SPDX-License-Identifier: MIT */
/* Slots for graphs' kernels: when they are made, in which pages, and which graphs reuse them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "simcuda/driver/graph_share.h"

#define KIB ((size_t)1024)
#define ROOM (2000 * KIB)    /* a context's room for each kind */
#define SMALL ((size_t)1792) /* sizes of slots for arguments */
#define MIDDLE ((size_t)2816)
#define LARGE ((size_t)8192)
#define LAUNCH ((size_t)512)

static rvli_graph_share share;

static int begin(void **state)
{
    (void)state;
    share = rvli_graph_share_begin();
    return 0;
}

/* The needs of kernels of one kind. */
static rvli_graph_needs needs_of(size_t kernels, uint64_t argument_bytes)
{
    rvli_graph_needs needs = {0};
    for (size_t i = 0; i < kernels; i++)
        rvli_graph_needs_add(&needs, argument_bytes);
    return needs;
}

static size_t add(size_t kernels, uint64_t argument_bytes)
{
    const rvli_graph_needs needs = needs_of(kernels, argument_bytes);
    return rvli_graph_share_add(&share, &needs);
}

static void drop(size_t kernels, uint64_t argument_bytes)
{
    const rvli_graph_needs needs = needs_of(kernels, argument_bytes);
    rvli_graph_share_drop(&share, &needs);
}

static void arguments_need_slots_of_their_size(void **state)
{
    static const struct {
        uint64_t argument_bytes;
        size_t slots[RVLI_GRAPH_SLOT_SIZES];
    } cases[] = {
        {0, {1, 0, 0}},    {1264, {1, 0, 0}}, {1265, {0, 1, 0}}, {2288, {0, 1, 0}},
        {2289, {0, 0, 1}}, {7664, {0, 0, 1}}, {7665, {0, 0, 2}}, {32764, {0, 0, 5}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const rvli_graph_needs needs = needs_of(1, cases[i].argument_bytes);
        assert_int_equal(needs.kernels, 1);
        assert_memory_equal(needs.slots, cases[i].slots, sizeof needs.slots);
    }
}

static void the_context_has_room_for_the_first(void **state)
{
    (void)state;
    const size_t kernels = ROOM / SMALL;
    assert_int_equal(add(kernels, 0), 0);
    assert_int_equal(share.argument_rooms[0], ROOM - kernels * SMALL);
    assert_int_equal(share.launch_rooms[0], ROOM - kernels * LAUNCH);
    assert_int_equal(add(1, 0), 1);
    assert_int_equal(add(1, 2289), 0); /* in the same page, in spite of the other size */
}

/* Slots that fill a page get a page of their own. Its rest is not used for others. */
static void many_have_pages_of_their_own(void **state)
{
    (void)state;
    assert_int_equal(add(255, 4000), 1); /* more than the room, and less than a page */
    assert_int_equal(share.argument_rooms[1], LARGE);
    assert_int_equal(add(256, 4000), 1);
    assert_int_equal(add(257, 4000), 2);
    assert_int_equal(share.argument_rooms[0], ROOM);
    assert_int_equal(share.argument_rooms[1], LARGE);
    assert_int_equal(share.argument_rooms[2], 0);
    assert_int_equal(share.launch_rooms[0], ROOM - 768 * LAUNCH);
}

static void destroyed_graphs_leave_their_slots(void **state)
{
    (void)state;
    assert_int_equal(add(4096, 256), 4 + 1); /* 7 MiB of arguments, 2 MiB of launches */
    drop(4096, 256);
    assert_int_equal(add(4000, 0), 0);
    assert_int_equal(add(96, 0), 0);
    assert_int_equal(add(1500, 0), 2); /* no slot was left; launches have room */
    drop(4000, 0);
    assert_int_equal(add(4000 + 700, 0), 0); /* 700 slots are made, where there is room */
    assert_int_equal(share.arguments[0].made, 4096 + 1500 + 700);
    assert_int_equal(share.arguments[0].used, 96 + 1500 + 4700);
}

/* Slots for arguments of one size are not used for another. Slots for launches have one size. */
static void sizes_share_no_slots(void **state)
{
    (void)state;
    assert_int_equal(add(4096, 0), 4 + 1);
    drop(4096, 0);
    assert_int_equal(add(4096, 2048), 6); /* 11 MiB */
    assert_int_equal(share.launches.made, 4096);
    assert_int_equal(share.arguments[1].made, 4096);
}

/* The smallest sufficient room is used. Pages beyond the tracked ones count as full. */
static void rooms_are_kept_in_mind(void **state)
{
    (void)state;
    assert_int_equal(add(1000, 0), 0); /* 250 KiB are left */
    size_t pages = 0;
    for (size_t i = 0; i < RVLI_GRAPH_ROOMS + 2; i++)
        pages += add(700 + 10 * i, 0);
    assert_int_equal(pages, RVLI_GRAPH_ROOMS + 2 + 2); /* and two pages for launches */
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < RVLI_GRAPH_ROOMS; i++)
        least = share.argument_rooms[i] < least ? share.argument_rooms[i] : least;
    assert_int_equal(least, 2048 * KIB - 770 * SMALL);
    assert_int_equal(add(400, 0), 0);
    for (size_t i = 0; i < RVLI_GRAPH_ROOMS; i++)
        assert_int_not_equal(share.argument_rooms[i], least);
}

/* Slots of a destroyed context: the next context does not have them. */
static void more_may_be_dropped_than_there_are(void **state)
{
    (void)state;
    assert_int_equal(add(10, 1300), 0);
    drop(20, 1300);
    assert_int_equal(share.launches.used, 0);
    assert_int_equal(share.arguments[1].used, 0);
    assert_int_equal(share.arguments[1].made, 10);
    assert_int_equal(share.argument_rooms[0], ROOM - 10 * MIDDLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arguments_need_slots_of_their_size),
        cmocka_unit_test_setup(the_context_has_room_for_the_first, begin),
        cmocka_unit_test_setup(many_have_pages_of_their_own, begin),
        cmocka_unit_test_setup(destroyed_graphs_leave_their_slots, begin),
        cmocka_unit_test_setup(sizes_share_no_slots, begin),
        cmocka_unit_test_setup(rooms_are_kept_in_mind, begin),
        cmocka_unit_test_setup(more_may_be_dropped_than_there_are, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
