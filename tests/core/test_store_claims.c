/* SPDX-License-Identifier: MIT */
/* Who copies what several users of a store want, and who waits for it. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store_raw.h"

static void one_user_at_a_time_has_a_claim(void **state)
{
    (void)state;
    const rvli_digest digest = {5, 6}, other = {5, 7};
    const rvli_store_message give_up = {
        .kind = RVLI_STORE_UNCLAIM, .bytes = SMALL, .digest = digest};
    owner of = owner_start(0);
    int first = raw_connect(), second = raw_connect();
    assert_int_equal(raw_find(first, digest, false), RVLI_STORE_NONE);
    assert_int_equal(raw_find(first, digest, true), RVLI_STORE_NONE);
    assert_int_equal(raw_find(first, digest, true), RVLI_STORE_BUSY); /* its own, too */
    assert_int_equal(raw_find(second, digest, true), RVLI_STORE_BUSY);
    assert_int_equal(raw_find(second, digest, false), RVLI_STORE_NONE);
    assert_int_equal(raw_find(second, other, true), RVLI_STORE_NONE);
    raw_tell(second, give_up); /* it is not its own */
    assert_int_equal(raw_find(second, digest, true), RVLI_STORE_BUSY);
    raw_tell(first, give_up);
    assert_int_equal(raw_find(first, other, true), RVLI_STORE_BUSY); /* waits for the owner */
    assert_int_equal(raw_find(second, digest, true), RVLI_STORE_NONE);
    assert_int_equal(raw_find(first, digest, true), RVLI_STORE_BUSY);
    close(second); /* both of its claims end */
    store_await_stats(1, 0, 0);
    assert_int_equal(raw_find(first, other, true), RVLI_STORE_NONE);
    assert_int_equal(raw_find(first, digest, true), RVLI_STORE_NONE);
    second = raw_connect();
    int fd = raw_file(SMALL, ALL_SEALS, 1);
    raw_reserve(first, SMALL);
    assert_int_equal(raw_add(first, SMALL, digest, fd).kind, RVLI_STORE_DONE);
    assert_int_equal(raw_find(second, digest, true), RVLI_STORE_FOUND);
    close(fd);
    close(first);
    close(second);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

/* What a process that has not added it hears of a segment, before and after its own words. */
static int hear_and_say(rvli_digest digest, uint64_t id)
{
    const rvli_store_message find = {.kind = RVLI_STORE_FIND, .bytes = SMALL, .digest = digest};
    int to = raw_connect(), came = -1;
    raw_tell(to, (rvli_store_message){.kind = RVLI_STORE_CHECKED, .id = id}); /* without one */
    uint32_t before = raw_ask(to, find, -1, &came).checked;
    raw_tell(to, (rvli_store_message){.kind = RVLI_STORE_CHECKED, .id = id + 1});
    uint32_t between = raw_ask(to, find, -1, &came).checked;
    raw_tell(to, (rvli_store_message){.kind = RVLI_STORE_CHECKED, .id = id});
    return (int)(before + 10 * between + 100 * raw_ask(to, find, -1, &came).checked);
}

/* Only a user that has a segment, and has not added it, says that it is checked: all are told. */
static void what_is_checked_once_is_not_checked_again(void **state)
{
    (void)state;
    const rvli_digest digest = {8, 9};
    owner of = owner_start(0);
    int first = raw_connect(), fd = raw_file(SMALL, ALL_SEALS, 1), status = 0;
    raw_reserve(first, SMALL);
    rvli_store_message added = raw_add(first, SMALL, digest, fd);
    const int expected[] = {100, 111}; /* the second to look is told what the first has said */
    for (size_t i = 0; i < 2; i++) {
        pid_t other = fork();
        if (other == 0)
            _exit(hear_and_say(digest, added.id));
        assert_int_equal(waitpid(other, &status, 0), other);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), expected[i]);
    }
    close(fd);
    close(first);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

/* Nobody waits for long for a user that has claimed a content and does nothing. */
static void a_claim_is_not_waited_for_forever(void **state)
{
    (void)state;
    owner of = owner_start(CONTENT);
    user only = user_start((user_options){0});
    user_fill(only, 25);
    int to = raw_connect();
    rvli_digest name = raw_name_of(only, to);
    assert_int_equal(raw_find(to, name, true), RVLI_STORE_NONE);
    uint64_t begin_ms = store_now_ms();
    answer said = user_tell(only, (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.copied, CONTENT);
    assert_in_range(store_now_ms() - begin_ms, 1000, 9000);
    assert_int_equal(raw_find(to, name, true), RVLI_STORE_FOUND);
    user_resume(only);
    user_check(only, 25);
    close(to);
    user_end(only);
    owner_stop(of);
}

/* A claim that is given up while it is waited for goes to the one that waits. */
static void a_claim_may_change_hands(void **state)
{
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        owner of = owner_start(CONTENT);
        user only = user_start((user_options){0});
        user_fill(only, 26);
        int to = raw_connect();
        rvli_digest name = raw_name_of(only, to);
        assert_int_equal(raw_find(to, name, true), RVLI_STORE_NONE);
        user_begin_pause(only, PASS, 0);
        usleep(300000);
        if (!dies)
            raw_tell(to, (rvli_store_message){
                             .kind = RVLI_STORE_UNCLAIM, .bytes = SMALL, .digest = name});
        else
            close(to);
        assert_int_equal(user_end_pause(only).copied, CONTENT);
        user_resume(only);
        user_check(only, 26);
        if (!dies)
            close(to);
        user_end(only);
        owner_stop(of);
    }
}

static void await_stop(pid_t process)
{
    int status = 0;
    assert_int_equal(waitpid(process, &status, WUNTRACED), process);
    assert_true(WIFSTOPPED(status));
}

/*
 * One that copies is stopped or killed at each of its calls, while another wants the same content.
 * That one goes on by itself. One that goes on later finds what has been added meanwhile.
 */
static void the_one_that_copies_may_stop(void **state)
{
    (void)state;
    for (int dies = 0; dies < 2; dies++)
        for (uint64_t nth = 1; nth < 14; nth += 3) {
            owner of = owner_start(0);
            user users[2] = {user_start((user_options){0}), user_start((user_options){0})};
            user_fill(users[0], 27);
            user_fill(users[1], 27);
            user_begin_pause(users[0], STOP_SELF, nth);
            await_stop(users[0].process);
            user_begin_pause(users[1], PASS, 0);
            if (dies) {
                usleep(100000);
                user_kill(users[0]);
            }
            answer said = user_end_pause(users[1]);
            assert_int_equal(said.memory.store_bytes, CONTENT);
            if (!dies) {
                assert_int_equal(kill(users[0].process, SIGCONT), 0);
                answer later = user_end_pause(users[0]);
                assert_int_equal(later.memory.store_bytes, CONTENT);
                assert_in_range(said.copied + later.copied, CONTENT, 2 * CONTENT);
                store_await_stats(2, CONTENT, 2 * CONTENT);
                user_resume(users[0]);
                user_check(users[0], 27);
                user_end(users[0]);
            }
            store_await_stats(1, CONTENT, CONTENT);
            user_resume(users[1]);
            user_check(users[1], 27);
            user_end(users[1]);
            owner_stop(of);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_user_at_a_time_has_a_claim),
        cmocka_unit_test(what_is_checked_once_is_not_checked_again),
        cmocka_unit_test(a_claim_is_not_waited_for_forever),
        cmocka_unit_test(a_claim_may_change_hands),
        cmocka_unit_test(the_one_that_copies_may_stop),
    };
    return cmocka_run_group_tests(tests, store_make_folder, folder_remove_empty);
}
