/* SPDX-License-Identifier: MIT */
/* A full table of names, made by several threads at once. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "hooks/shim/name_table.h"

#define COUNT ((int)RVLI_NAME_TABLE_MAX)
#define TWICE 7 /* and again as the last */
#define THREADS 8
#define ROUNDS 50

static char names[COUNT][16];

static const char *name_at(int index)
{
    return index < COUNT ? names[index] : NULL;
}

static void make_names(void)
{
    for (int i = 0; i < COUNT; i++)
        snprintf(names[i], sizeof names[i], "cuName%d", i == COUNT - 1 ? TWICE : i);
}

static void *look_up_all(void *table)
{
    uintptr_t wrong = 0;
    for (int i = COUNT - 1; i >= 0; i--)
        wrong += rvli_name_table_find(table, names[i]) != (i == COUNT - 1 ? TWICE : i);
    wrong += rvli_name_table_find(table, "cuName") != -1;
    wrong += rvli_name_table_find(table, "") != -1;
    return (void *)wrong;
}

static pthread_barrier_t start;

static void *look_up_at_once(void *table)
{
    pthread_barrier_wait(&start);
    return look_up_all(table);
}

static void test_every_name(void **state)
{
    (void)state;
    rvli_name_table table = {.at = name_at};
    assert_null(look_up_all(&table));
    assert_null(look_up_all(&table));
    rvli_name_table empty = {.at = name_at};
    memset(names, 0, sizeof names);
    assert_int_equal(rvli_name_table_find(&empty, ""), 0); /* the first of a name */
    assert_int_equal(rvli_name_table_find(&empty, "cuName1"), -1);
    make_names();
}

static void test_threads(void **state)
{
    (void)state;
    assert_int_equal(pthread_barrier_init(&start, NULL, THREADS), 0);
    for (int round = 0; round < ROUNDS; round++) {
        rvli_name_table table = {.at = name_at};
        pthread_t threads[THREADS];
        void *wrong = NULL;
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, look_up_at_once, &table), 0);
        for (int i = 0; i < THREADS; i++) {
            assert_int_equal(pthread_join(threads[i], &wrong), 0);
            assert_null(wrong);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_name),
        cmocka_unit_test(test_threads),
    };
    make_names();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
