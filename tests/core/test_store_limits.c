/* SPDX-License-Identifier: MIT */
/* What a store does where there is no more room, time or file descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/backup/store/client.h"
#include "store_raw.h"

/* ---- The budget ---- */

static void a_budget_too_small_refuses_the_whole(void **state)
{
    (void)state;
    const uint64_t budgets[] = {SMALL - 1, SEGMENT, LARGE, CONTENT - 1};
    const uint64_t refused[] = {SEGMENT, LARGE - SEGMENT, SMALL, SMALL};
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        owner of = owner_start(budgets[i]);
        user only = user_start((user_options){0});
        user_fill(only, 6);
        answer said = user_tell(only, (request){.what = PAUSE});
        assert_int_equal(said.status, RVL_ERR_HOST_OOM);
        assert_int_equal(said.error.status, RVL_ERR_HOST_OOM);
        assert_string_equal(said.error.tag, "weights");
        assert_string_equal(said.error.file, store_path);
        assert_non_null(strstr(said.error.message, "the store has no room"));
        assert_int_equal(said.states[0], RVL_STATE_ACTIVE);
        assert_int_equal(said.states[1], RVL_STATE_ACTIVE);
        assert_int_equal(said.memory.store_bytes, 0);
        user_check(only, 6);
        store_await_stats(1, 0, 0);
        assert_int_equal(store_stats().refused_count, 1);
        assert_int_equal(store_stats().refused_bytes, refused[i]);
        assert_int_equal(store_host_bytes(&only, 1), 0);
        user_end(only);
        owner_stop(of);
    }
    owner of = owner_start(CONTENT); /* what is enough is taken */
    user only = user_start((user_options){0});
    user_pause(only);
    store_await_stats(1, CONTENT, CONTENT);
    assert_int_equal(store_stats().refused_count, 0);
    user_end(only);
    owner_stop(of);
}

static void what_has_no_room_goes_to_disk(void **state)
{
    (void)state;
    owner of = owner_start(SEGMENT + SMALL);
    user only = user_start((user_options){.overflow = true});
    user_fill(only, 8);
    answer said = user_tell(only, (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.states[0], RVL_STATE_PAUSED);
    assert_int_equal(said.disk_bytes, LARGE);
    assert_int_equal(said.memory.store_bytes, SMALL);
    store_await_stats(1, SMALL, SMALL);
    user_resume(only);
    user_check(only, 8);
    user_end(only);
    owner_stop(of);
}

/* One that was retained in the store and has changed: the old one is dropped with the pause. */
static void a_retained_backup_may_go_to_disk(void **state)
{
    (void)state;
    owner of = owner_start(CONTENT);
    user only = user_start((user_options){.overflow = true, .retain = true});
    user_fill(only, 9);
    user_pause(only);
    user_resume(only);
    user_fill(only, 10); /* all of it has changed, and there is no room beside what is kept */
    answer said = user_tell(only, (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.disk_bytes + said.memory.store_bytes, CONTENT);
    assert_true(said.disk_bytes >= LARGE);
    user_resume(only);
    user_check(only, 10);
    user_pause(only);
    user_resume(only);
    user_check(only, 10);
    user_end(only);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

/* ---- Time, and descriptors ---- */

static void expect_refusal(answer said, const char *why)
{
    assert_int_equal(said.status, RVL_ERR_IO);
    assert_non_null(strstr(said.error.message, why));
    assert_int_equal(said.states[0], RVL_STATE_ACTIVE);
    assert_int_equal(said.states[1], RVL_STATE_ACTIVE);
    assert_int_equal(said.memory.store_bytes, 0);
}

/* It does not hang its users, and serves them again when it goes on. */
static void a_stopped_owner_is_given_up(void **state)
{
    (void)state;
    rvl_store_stats stats = {.struct_size = sizeof stats};
    store_patience_ms = 300;
    owner of = owner_start(0);
    user only = user_start((user_options){0});
    user_fill(only, 21);
    user_pause(only);
    assert_int_equal(kill(of.process, SIGSTOP), 0);
    user_resume(only); /* it asks nothing of the owner */
    user_check(only, 21);
    uint64_t begin_ms = store_now_ms();
    answer said = user_tell(only, (request){.what = PAUSE});
    assert_in_range(store_now_ms() - begin_ms, 250, 5000);
    expect_refusal(said, "has not answered for 10 s");
    assert_string_equal(said.error.file, store_path);
    assert_int_equal(said.error.native_code, ETIMEDOUT);
    user_check(only, 21);
    assert_int_equal(rvl_store_get_stats(store_path, &stats), RVL_ERR_IO);
    assert_int_equal(kill(of.process, SIGCONT), 0);
    store_patience_ms = 0;
    user_pause(only);
    store_await_stats(1, CONTENT, CONTENT);
    user_resume(only);
    user_check(only, 21);
    user_end(only);
    owner_stop(of);
}

/* What has no answer is not waited for: more of it than the connection holds ends that. */
static void an_owner_that_is_stopped_keeps_nobody(void **state)
{
    (void)state;
    rvli_store_client *client = NULL;
    uint64_t connection = 0;
    owner of = owner_start(0);
    assert_int_equal(rvli_store_client_new(store_path, &client), RVL_OK);
    assert_int_equal(rvli_store_reserve(client, 2 * SMALL, &connection), RVL_OK);
    assert_int_equal(kill(of.process, SIGSTOP), 0);
    uint64_t begin_ms = store_now_ms();
    for (int i = 0; i < 2000; i++)
        rvli_store_return(client, 0, connection);
    assert_in_range(store_now_ms() - begin_ms, 0, 8000);
    assert_int_equal(kill(of.process, SIGCONT), 0);
    store_await_stats(0, 0, 0); /* the connection has ended, and what was reserved is back */
    assert_int_equal(rvli_store_client_renew(client), RVL_OK);
    assert_int_equal(rvli_store_reserve(client, SMALL, &connection), RVL_OK);
    assert_int_equal(store_stats().promised_bytes, SMALL);
    for (int i = 0; i < 2000; i++) /* one that goes on hears all of it */
        rvli_store_return(client, SMALL / 2048, connection);
    rvli_store_return(client, SMALL, connection);
    assert_int_equal(rvli_store_reserve(client, SMALL, &connection), RVL_OK);
    assert_int_equal(store_stats().promised_bytes, SMALL);
    rvli_store_client_delete(client);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

/* Each of the descriptors that a pause opens is the first that there is none for. */
static void a_user_without_descriptors_loses_nothing(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user first = user_start((user_options){0}), only = user_start((user_options){0});
    user_fill(first, 22);
    user_fill(only, 22);
    user_pause(first); /* so that the other one finds segments */
    uint64_t refused = 0;
    for (bool paused = false; !paused; refused += !paused) {
        answer said = user_tell(only, (request){.what = PAUSE, .descriptors = 1 + refused});
        paused = said.status == RVL_OK;
        if (paused)
            break;
        expect_refusal(said, "raise ulimit -n");
        assert_int_equal(said.error.native_code, EMFILE);
        user_check(only, 22);
        store_await_stats(2, CONTENT, CONTENT);
        assert_true(refused < 20);
    }
    assert_true(refused >= 2); /* one for what it fills, one for what it finds */
    store_await_stats(2, CONTENT, 2 * CONTENT);
    user_resume(only);
    user_resume(first);
    user_check(only, 22);
    user_check(first, 22);
    user_end(only);
    user_end(first);
    owner_stop(of);
}

/* Processor time of a process so far. */
static uint64_t ticks_of(pid_t process)
{
    char name[64], line[1024] = "";
    unsigned long user_ticks = 0, system_ticks = 0;
    snprintf(name, sizeof name, "/proc/%d/stat", (int)process);
    FILE *file = fopen(name, "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    assert_int_equal(sscanf(strrchr(line, ')') + 2,
                            "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user_ticks,
                            &system_ticks),
                     2);
    return user_ticks + system_ticks;
}

/* Connections that it cannot keep are refused, one by one, and it does not turn in circles. */
static void an_owner_without_descriptors_says_so(void **state)
{
    (void)state;
    enum { CONNECTIONS = 40 };
    int held[CONNECTIONS];
    owner of = owner_start_limited(0, 60);
    user only = user_start((user_options){0});
    user_fill(only, 23);
    user_pause(only);
    int to = raw_connect(), fd = raw_file(SMALL, ALL_SEALS, 1);
    raw_reserve(to, SMALL);
    for (int i = 0; i < CONNECTIONS; i++)
        held[i] = raw_connect();
    usleep(300000);
    assert_int_equal(raw_add(to, SMALL, (rvli_digest){5, 5}, fd).kind, RVLI_STORE_REFUSED);
    uint64_t ticks = ticks_of(of.process);
    usleep(500000);
    assert_in_range(ticks_of(of.process) - ticks, 0, (uint64_t)sysconf(_SC_CLK_TCK) / 10);
    rvl_store_stats stats = {.struct_size = sizeof stats};
    rvl_error error = {.struct_size = sizeof error};
    assert_int_equal(rvl_store_get_stats(store_path, &stats), RVL_ERR_IO);
    rvl_last_error(&error);
    assert_non_null(strstr(error.message, "ulimit -n"));
    user_resume(only);
    user_check(only, 23);
    answer said = user_tell(only, (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_ERR_HOST_OOM); /* it keeps some for its users */
    assert_non_null(strstr(said.error.message, "no file descriptor left: raise its ulimit -n"));
    user_check(only, 23);
    for (int i = 0; i < CONNECTIONS; i++)
        close(held[i]);
    for (int i = 0; i < 100 && rvl_store_get_stats(store_path, &stats) != RVL_OK; i++)
        usleep(10000);
    assert_int_equal(raw_add(to, SMALL, (rvli_digest){5, 5}, fd).kind, RVLI_STORE_DONE);
    close(to);
    close(fd);
    store_await_stats(1, 0, 0);
    user_pause(only);
    user_resume(only);
    user_check(only, 23);
    user_end(only);
    owner_stop(of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_budget_too_small_refuses_the_whole),
        cmocka_unit_test(what_has_no_room_goes_to_disk),
        cmocka_unit_test(a_retained_backup_may_go_to_disk),
        cmocka_unit_test(a_stopped_owner_is_given_up),
        cmocka_unit_test(an_owner_that_is_stopped_keeps_nobody),
        cmocka_unit_test(a_user_without_descriptors_loses_nothing),
        cmocka_unit_test(an_owner_without_descriptors_says_so),
    };
    return cmocka_run_group_tests(tests, store_make_folder, folder_remove_empty);
}
