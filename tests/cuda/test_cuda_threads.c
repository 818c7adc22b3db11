/* SPDX-License-Identifier: MIT */
/* Threads that allocate, pause, resume and free tags of their own on one device. */
#include <pthread.h>
#include <stdio.h>

#include "gpu.h"

enum { THREADS = 8 };

static pthread_barrier_t start;

typedef struct thread_work {
    rvl_context *context;
    int number;
    bool good;
} thread_work;

static void *work(void *argument)
{
    thread_work *mine = argument;
    char name[8];
    pthread_barrier_wait(&start);
    snprintf(name, sizeof name, "t%d", mine->number);
    mine->good = true;
    for (uint64_t round = 0; round < 12 && mine->good; round++) {
        rvl_addr addr = support_alloc(mine->context, name, 0, 6 * MIB, RVL_BACKUP_HOST);
        uint64_t seed = round * 100 + (uint64_t)mine->number;
        gpu_fill(mine->context, 0, addr, 6 * MIB, seed);
        rvl_tag tag = support_tag(mine->context, name);
        mine->good = rvl_pause(mine->context, &tag, 1, NULL) == RVL_OK &&
                     rvl_resume(mine->context, &tag, 1, NULL) == RVL_OK &&
                     gpu_holds(mine->context, 0, addr, 6 * MIB, seed) &&
                     rvl_free(mine->context, addr) == RVL_OK;
    }
    return NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    thread_work works[THREADS];
    rvl_context *context = gpu_open(NULL, NULL);
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        works[i] = (thread_work){.context = context, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &works[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(works[i].good);
    }
    assert_int_equal(support_stats(context, 0).used_bytes, 0);
    assert_int_equal(rvl_context_close(context, NULL), RVL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_do_not_disturb_each_other),
    };
    if (!gpu_is_there())
        return SKIPPED;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
