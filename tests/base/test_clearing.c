/* SPDX-License-Identifier: MIT */
/* Released memory that is cleared block by block. */
#include "tests/support/support.h"

#include "base/clearing.h"

static const rvl_cost clear = {.fs_per_byte = 1000}; /* a GiB in 1073741 ns */

#define GIB_NS UINT64_C(1073741)

static void blocks_come_back_whole(void **state)
{
    (void)state;
    rvli_clearing it = {0};
    rvli_clearing_add(&it, clear, 2 * GIB, 100);
    rvli_clearing_add(&it, clear, 1 * GIB, 200);
    assert_int_equal(it.end_ns, 100 + 2 * GIB_NS + 1 + GIB_NS); /* the second waits for the first */
    assert_int_equal(rvli_clearing_take(&it, 2 * GIB_NS), 0);
    assert_int_equal(rvli_clearing_take(&it, 101 + 2 * GIB_NS), 2 * GIB);
    assert_int_equal(rvli_clearing_take(&it, 101 + 2 * GIB_NS), 0);
    /* Long after that a third begins at once. */
    rvli_clearing_add(&it, clear, 1 * GIB, 50 * GIB_NS);
    assert_int_equal(it.end_ns, 51 * GIB_NS);
    assert_int_equal(rvli_clearing_take(&it, 51 * GIB_NS), 2 * GIB);
    assert_int_equal(it.count, 0);
}

/* Until 512 MiB are together; then the next begins. */
static void small_blocks_count_as_one(void **state)
{
    (void)state;
    rvli_clearing it = {0};
    for (int i = 0; i < 257; i++)
        rvli_clearing_add(&it, clear, 2 * MIB, 0);
    assert_int_equal(it.count, 2);
    assert_int_equal(rvli_clearing_take(&it, 500 * GIB_NS / 1024), 0);
    assert_int_equal(rvli_clearing_take(&it, 513 * GIB_NS / 1024), 512 * MIB);
    assert_int_equal(rvli_clearing_take(&it, 515 * GIB_NS / 1024), 2 * MIB);
}

/* The ring goes round, and what finds no place joins the last. */
static void there_may_be_too_many(void **state)
{
    (void)state;
    rvli_clearing it = {0};
    for (unsigned i = 0; i < RVLI_CLEARING_MAX / 2; i++)
        rvli_clearing_add(&it, clear, 1 * GIB, 0);
    assert_int_equal(rvli_clearing_take(&it, UINT64_MAX / 2), RVLI_CLEARING_MAX / 2 * GIB);
    it.end_ns = 0;
    for (unsigned i = 0; i < RVLI_CLEARING_MAX + 2; i++)
        rvli_clearing_add(&it, clear, 1 * GIB, 0);
    assert_int_equal(it.count, RVLI_CLEARING_MAX);
    assert_int_equal(rvli_clearing_take(&it, (RVLI_CLEARING_MAX + 1) * (GIB_NS + 1)),
                     (RVLI_CLEARING_MAX - 1) * GIB);
    assert_int_equal(rvli_clearing_take(&it, (RVLI_CLEARING_MAX + 2) * (GIB_NS + 1)), 3 * GIB);
}

static void waiting_is_for_whole_blocks(void **state)
{
    (void)state;
    rvli_clearing it = {0};
    assert_int_equal(rvli_clearing_down_to(&it, 0), 0);
    rvli_clearing_add(&it, clear, 1 * GIB, 0);
    rvli_clearing_add(&it, clear, 2 * GIB, 0);
    assert_int_equal(rvli_clearing_down_to(&it, 3 * GIB), 0);
    assert_int_equal(rvli_clearing_down_to(&it, 2 * GIB), GIB_NS);
    assert_int_equal(rvli_clearing_down_to(&it, 2 * GIB - 1), it.end_ns);
    assert_int_equal(rvli_clearing_down_to(&it, 0), it.end_ns);
}

/* Times of a clock that began later; what is cleared already comes at once. */
static void another_clock_goes_on(void **state)
{
    (void)state;
    rvli_clearing it = {0};
    rvli_clearing_add(&it, clear, 1 * GIB, 1000);
    rvli_clearing_add(&it, clear, 1 * GIB, 1000);
    rvli_clearing copy = rvli_clearing_from(&it, 2000 + GIB_NS);
    assert_int_equal(copy.end_ns, it.end_ns - 2000 - GIB_NS);
    assert_int_equal(rvli_clearing_take(&copy, 0), 1 * GIB);
    assert_int_equal(rvli_clearing_take(&copy, copy.end_ns - 1), 0);
    assert_int_equal(rvli_clearing_take(&copy, copy.end_ns), 1 * GIB);
    copy = rvli_clearing_from(&it, 90 * GIB_NS);
    assert_int_equal(copy.end_ns, 0);
    assert_int_equal(rvli_clearing_take(&copy, 0), 2 * GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_back_whole), cmocka_unit_test(small_blocks_count_as_one),
        cmocka_unit_test(there_may_be_too_many),  cmocka_unit_test(waiting_is_for_whole_blocks),
        cmocka_unit_test(another_clock_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
