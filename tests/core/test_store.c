/* SPDX-License-Identifier: MIT */
/* One backup for all processes of a node: what is shared, and how often it is copied. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "store_scene.h"

static void share(size_t count)
{
    user users[USERS_MAX];
    owner of = owner_start(CONTENT);
    for (size_t i = 0; i < count; i++) {
        users[i] = user_start((user_options){.no_verify = i % 2 == 1});
        user_fill(users[i], 7);
    }
    for (size_t i = 0; i < count; i++) {
        answer said = user_tell(users[i], (request){.what = PAUSE});
        assert_int_equal(said.status, RVL_OK);
        assert_int_equal(said.memory.store_bytes, CONTENT);
        assert_int_equal(said.memory.store_found_bytes, i == 0 ? 0 : CONTENT);
        assert_int_equal(said.memory.used_bytes, 0);
        assert_int_equal(said.copied, i == 0 ? CONTENT : 0);
        assert_int_equal(said.read, i == 1 ? CONTENT : 0); /* the first to find it checks it */
    }
    assert_int_equal(store_host_bytes(users, count), CONTENT);
    store_await_stats(count, CONTENT, count * CONTENT);
    assert_int_equal(store_stats().segment_count, 3);
    assert_int_equal(store_stats().budget_bytes, CONTENT);
    for (size_t i = 0; i < count; i++) {
        user_resume(users[i]);
        user_check(users[i], 7);
    }
    store_await_stats(count, 0, 0);
    assert_int_equal(store_host_bytes(users, count), 0);
    for (size_t i = 0; i < count; i++)
        user_end(users[i]);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

static void two_processes_share(void **state)
{
    (void)state;
    share(2);
}

static void eight_processes_share(void **state)
{
    (void)state;
    share(USERS_MAX);
}

static void different_content_is_kept_apart(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user users[2] = {user_start((user_options){0}), user_start((user_options){0})};
    user_fill(users[0], 1);
    user_fill(users[1], 2);
    user_pause(users[0]);
    user_pause(users[1]);
    assert_int_equal(store_host_bytes(users, 2), 2 * CONTENT);
    store_await_stats(2, 2 * CONTENT, 2 * CONTENT);
    for (size_t i = 0; i < 2; i++) {
        user_resume(users[i]);
        user_check(users[i], i + 1);
        user_end(users[i]);
    }
    owner_stop(of);
}

static void a_change_copies_its_segment(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user users[2] = {user_start((user_options){.retain = true}),
                     user_start((user_options){.retain = true})};
    for (size_t i = 0; i < 2; i++) {
        user_fill(users[i], 3);
        user_pause(users[i]);
    }
    user_resume(users[1]); /* its backup stays, and so does the reference */
    store_await_stats(2, CONTENT, 2 * CONTENT);
    user_expect(users[1], (request){.what = CHANGE, .seed = 99}, RVL_OK, RVL_STATE_ACTIVE);
    answer said = user_tell(users[1], (request){.what = PAUSE});
    assert_int_equal(said.status, RVL_OK);
    assert_int_equal(said.memory.store_bytes, CONTENT);
    assert_int_equal(said.memory.store_found_bytes, SEGMENT + SMALL);
    assert_int_equal(said.copied, LARGE - SEGMENT);
    assert_int_equal(said.read, 0);
    store_await_stats(2, CONTENT + LARGE - SEGMENT, 2 * CONTENT);
    assert_int_equal(store_host_bytes(users, 2), CONTENT + LARGE - SEGMENT);
    user_resume(users[0]);
    user_resume(users[1]);
    user_check(users[0], 3);
    user_check(users[1], 3);
    uint64_t words[2];
    for (size_t i = 0; i < 2; i++)
        words[i] = user_tell(users[i], (request){.what = CHECK, .seed = 3}).word;
    assert_int_equal(words[1], 99);
    assert_int_not_equal(words[0], 99);
    user_end(users[0]);
    user_end(users[1]);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

/*
 * Both ask before either has added, or not: the store keeps one all the same, and has room for no
 * more. Each segment is copied by the one that has claimed it. One that is waited for in vain for a
 * second, on a machine that has no time, may be copied by others too.
 */
static void pauses_at_the_same_time_share(void **state)
{
    (void)state;
    owner of = owner_start(CONTENT);
    user users[4];
    for (size_t i = 0; i < 4; i++) {
        users[i] = user_start((user_options){0});
        user_fill(users[i], 4);
    }
    for (int round = 0; round < 4; round++) {
        uint64_t copied = 0;
        for (size_t i = 0; i < 4; i++)
            user_begin_pause(users[i], PASS, 0);
        for (size_t i = 0; i < 4; i++)
            copied += user_end_pause(users[i]).copied;
        assert_in_range(copied, CONTENT, 2 * CONTENT);
        store_await_stats(4, CONTENT, 4 * CONTENT);
        assert_int_equal(store_host_bytes(users, 4), CONTENT);
        for (size_t i = 0; i < 4; i++) {
            user_resume(users[i]);
            user_check(users[i], 4);
        }
    }
    for (size_t i = 0; i < 4; i++)
        user_end(users[i]);
    owner_stop(of);
}

typedef struct mover {
    rvl_context *context;
    rvl_tag tag;
    rvl_addr addr;
    bool good;
} mover;

static void *move_often(void *argument)
{
    mover *m = argument;
    m->good = true;
    for (int i = 0; i < 10; i++)
        m->good = m->good && rvl_pause(m->context, &m->tag, 1, NULL) == RVL_OK &&
                  rvl_resume(m->context, &m->tag, 1, NULL) == RVL_OK &&
                  support_holds(m->addr, SMALL, 21);
    m->good = m->good && rvl_pause(m->context, &m->tag, 1, NULL) == RVL_OK;
    return NULL;
}

/* Of one context, over one connection. */
static void threads_share_a_connection(void **state)
{
    (void)state;
    owner of = owner_start(0);
    mover movers[3];
    pthread_t threads[3];
    rvl_context *context =
        support_open((support_options){.memory = RVL_SIM_BACKED, .store_path = store_path}, NULL);
    for (size_t i = 0; i < 3; i++) {
        const char *const names[] = {"a", "b", "c"};
        movers[i].context = context;
        movers[i].addr = support_alloc(context, names[i], 0, SMALL, RVL_BACKUP_HOST);
        movers[i].tag = support_tag(context, names[i]);
        support_fill(movers[i].addr, SMALL, 21);
    }
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, move_often, &movers[i]), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(movers[i].good);
    }
    store_await_stats(1, SMALL, 3 * SMALL);
    assert_int_equal(store_stats().shared_bytes, 0); /* by one user */
    rvl_host_memory memory = {.struct_size = sizeof memory};
    assert_int_equal(rvl_host_get_memory(context, &memory), RVL_OK);
    assert_int_equal(memory.store_bytes, 3 * SMALL);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    owner_stop(of);
}

/* It finds what it has copied, and others find what it has added. */
static void a_device_without_digests_shares(void **state)
{
    (void)state;
    for (size_t first = 0; first < 2; first++) {
        owner of = owner_start(0);
        user users[2] = {user_start((user_options){.no_digests = first == 0}),
                         user_start((user_options){.no_digests = first == 1})};
        for (size_t i = 0; i < 2; i++) {
            user_fill(users[i], 24);
            answer said = user_tell(users[i], (request){.what = PAUSE});
            assert_int_equal(said.status, RVL_OK);
            assert_int_equal(said.memory.store_found_bytes, i == 0 ? 0 : CONTENT);
            assert_int_equal(said.copied, i == 1 && first == 0 ? 0 : CONTENT);
        }
        store_await_stats(2, CONTENT, 2 * CONTENT);
        for (size_t i = 0; i < 2; i++) {
            user_resume(users[i]);
            user_check(users[i], 24);
            user_end(users[i]);
        }
        owner_stop(of);
    }
}

/* Segments of one user that are equal are copied once. */
static void equal_segments_of_one_user_are_one(void **state)
{
    (void)state;
    enum { COUNT = 5 };
    owner of = owner_start(SMALL);
    rvl_addr addrs[COUNT];
    rvl_context *context =
        support_open((support_options){.memory = RVL_SIM_BACKED, .store_path = store_path}, NULL);
    for (size_t i = 0; i < COUNT; i++) {
        addrs[i] = support_alloc(context, "weights", 0, SMALL, RVL_BACKUP_HOST);
        support_fill(addrs[i], SMALL, 28);
    }
    assert_int_equal(rvl_pause(context, NULL, 0, NULL), RVL_OK);
    assert_int_equal(support_stats(context, 0).backup_out_bytes, SMALL);
    store_await_stats(1, SMALL, COUNT * SMALL);
    assert_int_equal(rvl_resume(context, NULL, 0, NULL), RVL_OK);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(support_holds(addrs[i], SMALL, 28));
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
    owner_stop(of);
}

static void an_aborted_pause_leaves_nothing(void **state)
{
    (void)state;
    owner of = owner_start(CONTENT);
    user only = user_start((user_options){0});
    user_fill(only, 19);
    user_expect(only, (request){.what = ABORT}, RVL_OK, RVL_STATE_ACTIVE);
    user_check(only, 19);
    store_await_stats(1, 0, 0);
    user_pause(only);
    store_await_stats(1, CONTENT, CONTENT);
    user_resume(only);
    user_check(only, 19);
    user_end(only);
    owner_stop(of);
}

/* Forecasts know host bytes of a backup in a store, retained ones too, and ask no store. */
static void forecasts_ask_no_store(void **state)
{
    (void)state;
    for (int retain = 0; retain < 2; retain++) {
        owner of = owner_start(0);
        user only = user_start((user_options){.retain = retain});
        user_fill(only, 20);
        uint64_t wanted[] = {CONTENT, retain ? 0 : CONTENT, retain ? 0 : CONTENT};
        for (int i = 0; i < 3; i++) {
            answer said = user_tell(only, (request){.what = FORESEE});
            assert_int_equal(said.status, RVL_OK);
            assert_true(said.forecast.fits);
            assert_int_equal(said.forecast.host_bytes, wanted[i]);
            assert_true(said.forecast.time_ns > 0 && said.forecast.time_ns < 1000000000);
            if (i % 2 == 0)
                user_pause(only);
            else
                user_resume(only);
        }
        user_end(only);
        owner_stop(of);
    }
}

static void freeing_drops_the_reference(void **state)
{
    (void)state;
    owner of = owner_start(0);
    user only = user_start((user_options){0});
    user_fill(only, 5);
    user_pause(only);
    assert_int_equal(user_tell(only, (request){.what = FREE}).status, RVL_OK);
    store_await_stats(1, LARGE, LARGE);
    user_end(only);
    store_await_stats(0, 0, 0);
    owner_stop(of);
}

/* ---- Opening ---- */

static rvl_status open_at(const char *at)
{
    rvl_context *context = NULL;
    const rvl_context_options options = {.struct_size = sizeof options, .store_path = at};
    rvl_status status = rvl_context_open("sim", &options, &context);
    rvl_context_close(context, NULL);
    return status;
}

static void what_cannot_be_opened(void **state)
{
    (void)state;
    char long_path[200];
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    assert_int_equal(open_at(store_path), RVL_ERR_IO);
    assert_int_equal(open_at(""), RVL_ERR_INVALID);
    assert_int_equal(open_at(long_path), RVL_ERR_INVALID);
    rvl_store *store = NULL, *second = NULL;
    rvl_store_options options = {.struct_size = sizeof options, .path = store_path};
    assert_int_equal(rvl_store_open(NULL, &store), RVL_ERR_INVALID);
    assert_int_equal(rvl_store_open(&options, NULL), RVL_ERR_INVALID);
    assert_int_equal(rvl_store_serve(NULL, -1), RVL_ERR_INVALID);
    rvl_store_close(NULL);
    assert_int_equal(rvl_store_open(&options, &store), RVL_OK);
    assert_int_equal(rvl_store_open(&options, &second), RVL_ERR_BUSY);
    rvl_store_close(store);
    folder_write("store", "a file");
    assert_int_equal(rvl_store_open(&options, &store), RVL_ERR_IO);
    assert_true(folder_has("store"));
    assert_int_equal(unlink(store_path), 0);
    options.path = "/nowhere/at/all/store";
    assert_int_equal(rvl_store_open(&options, &store), RVL_ERR_IO);
    rvl_context *context = NULL;
    const rvl_context_options lone = {.struct_size = sizeof lone,
                                      .flags = RVL_CONTEXT_STORE_OVERFLOW};
    assert_int_equal(rvl_context_open("sim", &lone, &context), RVL_ERR_INVALID);
    rvl_store_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(rvl_store_get_stats(store_path, &stats), RVL_ERR_IO);
    assert_int_equal(rvl_store_get_stats(NULL, &stats), RVL_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_processes_share),
        cmocka_unit_test(eight_processes_share),
        cmocka_unit_test(different_content_is_kept_apart),
        cmocka_unit_test(a_change_copies_its_segment),
        cmocka_unit_test(pauses_at_the_same_time_share),
        cmocka_unit_test(threads_share_a_connection),
        cmocka_unit_test(a_device_without_digests_shares),
        cmocka_unit_test(equal_segments_of_one_user_are_one),
        cmocka_unit_test(an_aborted_pause_leaves_nothing),
        cmocka_unit_test(forecasts_ask_no_store),
        cmocka_unit_test(freeing_drops_the_reference),
        cmocka_unit_test(what_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, store_make_folder, folder_remove_empty);
}
