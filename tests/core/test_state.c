/* SPDX-License-Identifier: MIT */
/* Every state times every move: exactly the moves below are legal, and lead where they say. */
#include "core/state.h"
#include "tests/support/support.h"

typedef struct legal_move {
    rvl_state from;
    rvli_move move;
    rvl_state to; /* FREE: the state stays as it is */
} legal_move;

static const legal_move legal[] = {
    {RVL_STATE_ACTIVE, RVLI_MOVE_PAUSE_BEGIN, RVL_STATE_PAUSING},
    {RVL_STATE_ACTIVE, RVLI_MOVE_LOSE, RVL_STATE_LOST},
    {RVL_STATE_ACTIVE, RVLI_MOVE_FREE, RVL_STATE_ACTIVE},
    {RVL_STATE_PAUSING, RVLI_MOVE_PAUSE_COMMIT, RVL_STATE_PAUSED},
    {RVL_STATE_PAUSING, RVLI_MOVE_PAUSE_UNDO, RVL_STATE_ACTIVE},
    {RVL_STATE_PAUSING, RVLI_MOVE_LOSE, RVL_STATE_LOST},
    {RVL_STATE_PAUSED, RVLI_MOVE_RESUME_BEGIN, RVL_STATE_RESUMING},
    {RVL_STATE_PAUSED, RVLI_MOVE_FREE, RVL_STATE_PAUSED},
    {RVL_STATE_RESUMING, RVLI_MOVE_RESUME_COMMIT, RVL_STATE_ACTIVE},
    {RVL_STATE_RESUMING, RVLI_MOVE_RESUME_UNDO, RVL_STATE_PAUSED},
    {RVL_STATE_RESUMING, RVLI_MOVE_LOSE, RVL_STATE_LOST},
    {RVL_STATE_LOST, RVLI_MOVE_RESUME_BEGIN, RVL_STATE_RESUMING},
    {RVL_STATE_LOST, RVLI_MOVE_FREE, RVL_STATE_LOST},
};

static const legal_move *find_legal(rvl_state from, rvli_move move)
{
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++)
        if (legal[i].from == from && legal[i].move == move)
            return &legal[i];
    return NULL;
}

static void every_state_and_every_move(void **state)
{
    (void)state;
    size_t legal_seen = 0;
    for (int from = 0; from < (int)RVLI_STATE_COUNT; from++)
        for (int move = 0; move < RVLI_MOVE_COUNT; move++) {
            rvl_state to = (rvl_state)from;
            const legal_move *expected = find_legal((rvl_state)from, (rvli_move)move);
            bool moved = rvli_state_move((rvl_state)from, (rvli_move)move, &to);
            assert_int_equal(moved, expected != NULL);
            assert_int_equal(to, expected != NULL ? expected->to : (rvl_state)from);
            legal_seen += moved;
        }
    assert_int_equal(legal_seen, sizeof legal / sizeof *legal);
}

static void values_out_of_range_are_illegal(void **state)
{
    (void)state;
    rvl_state to = RVL_STATE_ACTIVE;
    assert_false(rvli_state_move((rvl_state)RVLI_STATE_COUNT, RVLI_MOVE_FREE, &to));
    assert_false(rvli_state_move((rvl_state)-1, RVLI_MOVE_FREE, &to));
    assert_false(rvli_state_move(RVL_STATE_ACTIVE, RVLI_MOVE_COUNT, &to));
    assert_int_equal(to, RVL_STATE_ACTIVE);
}

static void states_have_names(void **state)
{
    (void)state;
    assert_string_equal(rvl_state_text(RVL_STATE_ACTIVE), "active");
    assert_string_equal(rvl_state_text(RVL_STATE_PAUSING), "pausing");
    assert_string_equal(rvl_state_text(RVL_STATE_PAUSED), "paused");
    assert_string_equal(rvl_state_text(RVL_STATE_RESUMING), "resuming");
    assert_string_equal(rvl_state_text(RVL_STATE_LOST), "lost");
    assert_string_equal(rvl_state_text((rvl_state)99), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_and_every_move),
        cmocka_unit_test(values_out_of_range_are_illegal),
        cmocka_unit_test(states_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
