/* SPDX-License-Identifier: MIT */
/* Users and the owner of a store that die, and calls that fail, at every step. */
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "store_scene.h"

/* ---- Processes that end ---- */

static void a_user_may_die_at_every_step(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user other = user_start((user_options){0});
    user_fill(other, 11);
    user_pause(other);
    bool whole = false;
    for (uint64_t nth = 1; !whole; nth++) { /* odd: content that is there; even: not */
        user dies = user_start((user_options){0});
        user_fill(dies, 11 + nth % 2);
        answer said;
        user_begin_pause(dies, KILL_SELF, nth / 2 + 1);
        whole = read(dies.line, &said, sizeof said) == sizeof said;
        user_kill(dies);
        store_await_stats(1, CONTENT, CONTENT);
        assert_true(whole ? nth > 10 : nth < 100);
    }
    user_resume(other);
    user_check(other, 11);
    user_end(other);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

static void the_one_that_put_content_there_may_die(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user users[2] = {user_start((user_options){0}), user_start((user_options){0})};
    for (size_t i = 0; i < 2; i++) {
        user_fill(users[i], 12);
        user_pause(users[i]);
    }
    user_kill(users[0]);
    store_await_stats(1, CONTENT, CONTENT);
    user_resume(users[1]);
    user_check(users[1], 12);
    user_end(users[1]);
    owner_stop(of);
}

static void a_child_does_not_hold_what_its_parent_had(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user only = user_start((user_options){0});
    user_fill(only, 13);
    user_pause(only);
    pid_t child = user_tell(only, (request){.what = FORK}).child;
    assert_true(child > 0);
    assert_int_equal(store_host_bytes(&(user){.process = child}, 1), 0);
    user_kill(only);
    store_await_stats(0, 0, 0);
    kill(child, SIGKILL);
    owner_stop(of);
}

/* What the dead owner kept is mapped still; a new one serves the next pause. */
static void users_survive_the_owner(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user users[2] = {user_start((user_options){.retain = true}), user_start((user_options){0})};
    for (size_t i = 0; i < 2; i++) {
        user_fill(users[i], 14);
        user_pause(users[i]);
    }
    owner_kill(of);
    assert_int_equal(store_host_bytes(users, 2), CONTENT);
    for (size_t i = 0; i < 2; i++) {
        user_resume(users[i]);
        user_check(users[i], 14);
    }
    answer said = user_tell(users[1], (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_ERR_IO);
    assert_string_equal(said.error.file, store_path);
    assert_non_null(strstr(said.error.message, "reveille store"));
    assert_int_equal(said.states[0], RVL_STATE_ACTIVE);
    user_check(users[1], 14);
    of = owner_start(0);
    user_pause(users[1]);
    user_pause(users[0]); /* unchanged: with the segments of the dead owner */
    store_await_stats(1, CONTENT, CONTENT);
    for (size_t i = 0; i < 2; i++) {
        user_resume(users[i]);
        user_check(users[i], 14);
        user_end(users[i]);
    }
    owner_stop(of);
}

static void the_owner_may_die_at_every_step(void **state)
{
    (void)state;
    bool whole = false;
    for (uint64_t nth = 1; !whole; nth++) {
        owner of = owner_start(0);
        user only = user_start((user_options){0});
        user_fill(only, 16);
        answer said = user_tell(
            only, (request){.what = PAUSE, .act = KILL_OWNER, .nth = nth, .owner = of.process});
        whole = !said.happened;
        bool paused = said.status == RVL_OK;
        assert_true(paused || said.status == RVL_ERR_IO);
        assert_int_equal(said.states[0], paused ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE);
        if (!paused)
            user_check(only, 16);
        owner_kill(of);
        of = owner_start(0); /* replaces the socket that is left */
        if (paused)
            user_resume(only);
        user_check(only, 16);
        user_pause(only);
        user_resume(only);
        user_check(only, 16);
        user_end(only);
        owner_stop(of);
        assert_true(nth < 100 && (!whole || nth > 5));
    }
}

/* ---- Calls that fail ---- */

/* What fails in a pause. */
typedef enum failing { CALLS, MEMORY, DEVICE, FAILINGS } failing;

#define DEVICE_OPS                                                                                 \
    (UINT64_C(1) << RVLI_OP_digest | UINT64_C(1) << RVLI_OP_copy_to_host |                         \
     UINT64_C(1) << RVLI_OP_record_event | UINT64_C(1) << RVLI_OP_wait_event)

static request pause_that_fails(failing what, uint64_t nth)
{
    return (request){.what = PAUSE,
                     .act = what == CALLS ? FAIL : PASS,
                     .nth = nth,
                     .no_memory = what == MEMORY,
                     .op_mask = what == DEVICE ? DEVICE_OPS : 0};
}

/* Whether the content is `kept` in the store, by other users, or is to be copied. */
static void fail_at_every_step(failing what, bool kept)
{
    owner of = owner_start(CONTENT);
    user other = user_start((user_options){0});
    user only = user_start((user_options){.no_verify = true});
    user_fill(only, 17);
    user_fill(other, 17);
    bool whole = false;
    int without_threads = 0;
    uint64_t steps = 0;
    for (uint64_t nth = 1; !whole; nth++, steps++) {
        if (kept) /* again each time: nobody has checked its segments */
            user_pause(other);
        answer said = user_tell(only, pause_that_fails(what, nth));
        whole = !said.happened;
        /* Without memory for threads it pauses all the same. */
        bool paused = said.status == RVL_OK;
        assert_true(what == MEMORY ? paused || !whole : paused == whole);
        assert_int_equal(said.states[0], paused ? RVL_STATE_PAUSED : RVL_STATE_ACTIVE);
        assert_int_equal(said.states[1], said.states[0]);
        assert_int_equal(said.copied, !paused || kept ? 0 : CONTENT);
        without_threads += paused && !whole;
        if (paused)
            user_resume(only);
        user_check(only, 17);
        /* What came and was not sealed has ended its connection. */
        store_await_stats(ANY_USERS, kept ? CONTENT : 0, kept ? CONTENT : 0);
        assert_int_equal(store_host_bytes(&only, 1), 0);
        if (kept)
            user_resume(other);
        assert_true(nth < 2000);
    }
    assert_int_equal(without_threads, what == MEMORY);
    assert_true(steps > 3);
    user_pause(other); /* nobody has claimed any of it */
    user_end(other);
    user_end(only);
    owner_stop(of);
}

static void every_call_may_fail(void **state)
{
    (void)state;
    for (failing what = CALLS; what < FAILINGS; what++)
        fail_at_every_step(what, false);
}

static void every_call_may_fail_of_what_is_found(void **state)
{
    (void)state;
    for (failing what = CALLS; what < FAILINGS; what++)
        fail_at_every_step(what, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_user_may_die_at_every_step),
        cmocka_unit_test(the_one_that_put_content_there_may_die),
        cmocka_unit_test(a_child_does_not_hold_what_its_parent_had),
        cmocka_unit_test(users_survive_the_owner),
        cmocka_unit_test(the_owner_may_die_at_every_step),
        cmocka_unit_test(every_call_may_fail),
        cmocka_unit_test(every_call_may_fail_of_what_is_found),
    };
    return cmocka_run_group_tests(tests, store_make_folder, folder_remove_empty);
}
