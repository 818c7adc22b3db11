/* SPDX-License-Identifier: MIT */
/*
 * Threads that allocate, pause, resume and free, on the same tags and on others, while others read.
 * All begin at once. Run under ThreadSanitizer by CI. Content is checked at every turn, and the
 * ledger at the end.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/support/support.h"

#define WORKERS 6
#if defined(__SANITIZE_THREAD__)
#define ROUNDS 15 /* each costs ten times as much, and shows as much */
#else
#define ROUNDS 60
#endif
#define SLOTS 4

typedef struct worker {
    pthread_t thread;
    void *(*body)(void *worker);
    rvl_context *context;
    unsigned seed;
    int number;
    int failures; /* cmocka's asserts belong to the main thread */
} worker;

static void expect(worker *w, bool condition)
{
    w->failures += !condition;
}

static const char *const tags[] = {"red", "green", "blue"};

/* A tag nobody else touches: its content must survive whatever the others do. */
static void *own_tag(void *argument)
{
    worker *w = argument;
    rvl_addr slots[SLOTS] = {0};
    char name[] = {'w', (char)('0' + w->number), '\0'};
    rvl_tag tag = 0;
    rvl_tag_options tag_options = {.struct_size = sizeof tag_options,
                                   .coalesce_bytes = w->number % 2 ? 4 * GRANULE : 0};
    expect(w, rvl_tag_define(w->context, name, &tag_options, &tag) == RVL_OK);
    for (int round = 0; round < ROUNDS; round++) {
        int slot = rand_r(&w->seed) % SLOTS;
        if (slots[slot] == 0) {
            rvl_alloc_options options = {
                .struct_size = sizeof options, .tag_id = tag, .backup = RVL_BACKUP_HOST};
            expect(w, rvl_alloc(w->context, GRANULE, &options, &slots[slot]) == RVL_OK);
            support_fill(slots[slot], GRANULE, (uint64_t)slot);
        } else if (round % 5 == 4) {
            expect(w, rvl_free(w->context, slots[slot]) == RVL_OK);
            slots[slot] = 0;
        }
        expect(w, rvl_pause(w->context, &tag, 1, NULL) == RVL_OK);
        expect(w, rvl_resume(w->context, &tag, 1, NULL) == RVL_OK);
        for (int i = 0; i < SLOTS; i++)
            if (slots[i] != 0)
                expect(w, support_holds(slots[i], GRANULE, (uint64_t)i));
    }
    for (int i = 0; i < SLOTS; i++)
        if (slots[i] != 0)
            expect(w, rvl_free(w->context, slots[i]) == RVL_OK);
    return NULL;
}

/* Tags that several threads move at once, in overlapping sets and both orders. */
static void *shared_tags(void *argument)
{
    worker *w = argument;
    rvl_tag numbers[3];
    for (int i = 0; i < 3; i++) {
        rvl_tag_options tag_options = {.struct_size = sizeof tag_options,
                                       .coalesce_bytes = i == 2 ? 8 * GRANULE : 0};
        expect(w, rvl_tag_define(w->context, tags[i], &tag_options, &numbers[i]) == RVL_OK);
    }
    for (int round = 0; round < ROUNDS; round++) {
        rvl_tag pair[2] = {numbers[rand_r(&w->seed) % 3], numbers[rand_r(&w->seed) % 3]};
        rvl_alloc_options options = {
            .struct_size = sizeof options, .tag_id = pair[0], .backup = RVL_BACKUP_HOST};
        rvl_addr addr = 0;
        expect(w, rvl_alloc(w->context, GRANULE, &options, &addr) == RVL_OK);
        expect(w, rvl_pause(w->context, pair, 2, NULL) == RVL_OK);
        expect(w, rvl_resume(w->context, pair, 2, NULL) == RVL_OK);
        rvl_forecast forecast = {.struct_size = sizeof forecast};
        expect(w, rvl_pause_forecast(w->context, pair, 2, NULL, &forecast) == RVL_OK);
        expect(w, rvl_free(w->context, addr) == RVL_OK);
    }
    return NULL;
}

/* Reads everything there is to read. */
static void *reader(void *argument)
{
    worker *w = argument;
    for (int round = 0; round < ROUNDS * 4; round++) {
        rvl_device_stats stats = {.struct_size = sizeof stats};
        expect(w, rvl_device_get_stats(w->context, 0, &stats) == RVL_OK);
        expect(w, stats.used_bytes <= stats.peak_bytes);
        rvl_holder holders[16];
        size_t count = 0;
        expect(w, rvl_stage_get_holders(w->context, rvl_stage_count(w->context) - 1, 0, holders,
                                        sizeof *holders, 16, &count) == RVL_OK);
        rvl_allocation each = {.struct_size = sizeof each};
        rvl_addr from = 0;
        while (rvl_allocation_next(w->context, from, &each) == RVL_OK)
            from = each.addr + 1;
        if (round % 16 == 0)
            expect(w, rvl_stage(w->context, "stage") == RVL_OK);
    }
    return NULL;
}

static pthread_barrier_t start;

static void *begin(void *argument)
{
    worker *w = argument;
    pthread_barrier_wait(&start);
    return w->body(w);
}

static void run(void *(*const bodies[WORKERS])(void *))
{
    assert_int_equal(pthread_barrier_init(&start, NULL, WORKERS), 0);
    rvl_context *context = support_open((support_options){.capacity_bytes = 256 * MIB}, NULL);
    worker workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] =
            (worker){.body = bodies[i], .context = context, .seed = (unsigned)i + 1, .number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, begin, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].failures, 0);
    }
    pthread_barrier_destroy(&start);
    rvl_device_stats stats = support_stats(context, 0);
    assert_int_equal(stats.used_bytes, 0);
    assert_int_equal(stats.host_backup_bytes, 0);
    assert_int_equal(stats.allocation_count, 0);
    assert_int_equal(stats.alloc_calls, stats.free_calls);
    uint64_t live = 1;
    assert_int_equal(rvl_context_close(context, &live), RVL_OK);
    assert_int_equal(live, 0);
}

static void different_tags_do_not_disturb_each_other(void **state)
{
    (void)state;
    run((void *(*const[WORKERS])(void *)){own_tag, own_tag, own_tag, own_tag, reader, reader});
}

static void the_same_tags_are_moved_by_one_at_a_time(void **state)
{
    (void)state;
    run((void *(*const[WORKERS])(void *)){shared_tags, shared_tags, shared_tags, shared_tags,
                                          own_tag, reader});
}

/* A free of a moving allocation waits for it. */
typedef struct slow_callback {
    rvl_context *context;
    rvl_addr addr;
    pthread_t freer;
    _Atomic pid_t freer_id;
    _Atomic rvl_status freed; /* RVL_ERR_TIMEOUT: not yet */
} slow_callback;

static void *free_it(void *argument)
{
    slow_callback *slow = argument;
    slow->freer_id = gettid();
    slow->freed = rvl_free(slow->context, slow->addr);
    return NULL;
}

static rvl_status start_free(void *user, rvl_tag tag)
{
    (void)tag;
    slow_callback *slow = user;
    slow->freed = RVL_ERR_TIMEOUT;
    bool waits = pthread_create(&slow->freer, NULL, free_it, slow) == 0 &&
                 support_await_sleep(&slow->freer_id);
    rvl_allocation allocation = {.struct_size = sizeof allocation};
    bool there = rvl_allocation_find(slow->context, slow->addr, &allocation) == RVL_OK &&
                 allocation.state == RVL_STATE_PAUSING;
    return waits && there && slow->freed == RVL_ERR_TIMEOUT ? RVL_OK : RVL_ERR_STATE;
}

static void freeing_a_moving_allocation_waits(void **state)
{
    (void)state;
    rvl_context *context = support_open((support_options){0}, NULL);
    slow_callback slow = {.context = context};
    rvl_tag tag;
    rvl_tag_options options = {
        .struct_size = sizeof options, .before_unmap = start_free, .callback_user = &slow};
    assert_int_equal(rvl_tag_define(context, "weights", &options, &tag), RVL_OK);
    slow.addr = support_alloc(context, "weights", 0, GRANULE, RVL_BACKUP_HOST);
    assert_int_equal(rvl_pause(context, &tag, 1, NULL), RVL_OK);
    pthread_join(slow.freer, NULL);
    assert_int_equal(slow.freed, RVL_OK);
    assert_int_equal(support_stats(context, 0).allocation_count, 0);
    assert_int_equal(support_stats(context, 0).host_backup_bytes, 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(different_tags_do_not_disturb_each_other),
        cmocka_unit_test(the_same_tags_are_moved_by_one_at_a_time),
        cmocka_unit_test(freeing_a_moving_allocation_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
