/* SPDX-License-Identifier: MIT */
/* Content that is on its way: reads, writes, copies and frees of promised memory. */
#include <setjmp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <cuda.h>

#include "simcuda/driver/contents.h"

#define BYTES 100
#define PROMISES_MOST 16 /* unread promises that may stay (simcuda/driver/contents.c) */
#define THREADS 4

/* Brings the alphabet repeatedly, with one unknown byte. */
typedef struct carrier {
    atomic_int brought, ended;
    size_t bytes, unknown;
    atomic_bool here;
} carrier;

static CUdeviceptr memory;

static bool bring(void *user, char *bytes, bool *known, bool wait)
{
    carrier *of = user;
    if (!wait && !atomic_load(&of->here))
        return false;
    while (!atomic_load(&of->here))
        usleep(1000);
    atomic_fetch_add(&of->brought, 1);
    for (size_t i = 0; i < of->bytes; i++) {
        bytes[i] = (char)('a' + i % 26);
        known[i] = i != of->unknown;
    }
    return true;
}

static void end(void *user)
{
    atomic_fetch_add(&((carrier *)user)->ended, 1);
}

static const rvli_bringer bringer = {bring, end};

static carrier carrier_of(size_t unknown)
{
    return (carrier){.bytes = BYTES, .unknown = unknown, .here = true};
}

static void promise(carrier *of, size_t at)
{
    assert_true(rvli_contents_promise(memory + at, of->bytes, &bringer, of));
}

/* A '.' stands for an unknown byte. */
static void check(size_t at, const char *expected)
{
    char got[BYTES + 1] = "";
    bool known[BYTES];
    size_t count = strlen(expected);
    rvli_contents_read_known(memory + at, got, known, count);
    for (size_t i = 0; i < count; i++)
        got[i] = known[i] ? got[i] : '.';
    assert_string_equal(got, expected);
}

static int begin(void **state)
{
    CUcontext context;
    (void)state;
    return !(cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
             cuCtxSetCurrent(context) == CUDA_SUCCESS &&
             cuMemAlloc(&memory, 4 << 20) == CUDA_SUCCESS);
}

static int forget(void **state)
{
    (void)state;
    rvli_contents_forget(memory, 4 << 20);
    return rvli_contents_promises();
}

static void a_read_has_it_brought(void **state)
{
    carrier of = carrier_of(3);
    (void)state;
    promise(&of, 500); /* across the end of a kept piece */
    assert_false(rvli_contents_knows(memory + 500));
    assert_int_equal(atomic_load(&of.brought), 0);
    check(499, ".abc.efghijklmnopqrst");
    assert_int_equal(atomic_load(&of.brought), 1);
    assert_int_equal(atomic_load(&of.ended), 1);
    check(595, "rstuv.");
    assert_int_equal(atomic_load(&of.brought), 1);
}

static void a_write_does_without(void **state)
{
    carrier of = carrier_of(BYTES), unread = carrier_of(BYTES);
    (void)state;
    promise(&of, 0);
    rvli_contents_write(memory + 10, "XYZ", 3);
    rvli_contents_forget(memory + 20, 2);
    rvli_contents_fill(memory + 98, 'f', 4, 1);
    assert_int_equal(atomic_load(&of.brought), 0);
    check(8, "ijXYZnopqrst..wx");
    check(95, "rstffff.");
    promise(&unread, 1000);
    rvli_contents_write(memory + 900, "", 1);
    assert_int_equal(atomic_load(&unread.ended), 0);
    rvli_contents_forget(memory + 900, 1000);
    assert_int_equal(atomic_load(&unread.ended), 1);
    assert_int_equal(atomic_load(&unread.brought), 0);
}

static void a_copy_is_promised_too(void **state)
{
    carrier of = carrier_of(30);
    (void)state;
    promise(&of, 100);
    rvli_contents_write(memory + 90, "12345", 5);
    rvli_contents_write(memory + 104, "-", 1);
    rvli_contents_move(memory + 2000, memory + 90, 50); /* known and promised content */
    rvli_contents_move(memory + 110, memory + 100, 40); /* overlapping itself */
    rvli_contents_write(memory + 200, "9", 1);
    assert_int_equal(atomic_load(&of.brought), 0);
    rvli_contents_forget(memory + 100, 10);
    check(2000, "12345.....abcd-fghijklmnopqrstuvwxyzabcd.fghijklmn.");
    check(100, "..........abcd-fghijklmnopqrstuvwxyzabcd.fghijklmnyz");
    check(195, "rstuv9.");
    assert_int_equal(atomic_load(&of.brought), 1);
    assert_int_equal(atomic_load(&of.ended), 1);
}

static void a_later_promise_takes_its_place(void **state)
{
    carrier first = carrier_of(BYTES), second = carrier_of(BYTES);
    (void)state;
    promise(&first, 0);
    promise(&second, 50);
    check(48, "wxabc");
    check(149, "v.");
    assert_int_equal(atomic_load(&first.ended), 1);
    rvli_contents_forget(memory, 200);
    promise(&first, 0);
    promise(&second, 0);
    assert_int_equal(atomic_load(&first.ended), 2);
    assert_int_equal(atomic_load(&first.brought), 1); /* not needed the second time */
    rvli_contents_forget(memory, 200);                /* no promise may outlive its carrier */
    assert_int_equal(atomic_load(&second.ended), 2);
}

static void strides_are_read_as_one(void **state)
{
    carrier of = carrier_of(BYTES);
    const int64_t sizes[] = {3, 2}, strides[] = {10, 3};
    char got[7] = "";
    (void)state;
    promise(&of, 0);
    assert_true(rvli_contents_read_strided(memory, 1, 2, sizes, strides, got));
    assert_string_equal(got, "adknux");
}

/* Content that has arrived is written when later promises come. Other promises stay. */
static void those_that_nobody_reads(void **state)
{
    static carrier all[3 * PROMISES_MOST];
    (void)state;
    for (size_t i = 0; i < 3 * PROMISES_MOST; i++) {
        all[i] = carrier_of(BYTES);
        promise(&all[i], i * 200);
    }
    assert_int_equal(rvli_contents_promises(), PROMISES_MOST);
    assert_int_equal(atomic_load(&all[0].ended), 1);
    assert_true(rvli_contents_knows(memory + 5));
    check(5, "fgh");
    assert_int_equal(atomic_load(&all[0].brought), 1);
    rvli_contents_tidy();
    assert_int_equal(rvli_contents_promises(), 0);
    for (size_t i = 0; i < 3 * PROMISES_MOST; i++) {
        assert_int_equal(atomic_load(&all[i].ended), 1);
        all[i] = carrier_of(BYTES);
        atomic_store(&all[i].here, i > 0);
        promise(&all[i], i * 200);
    }
    assert_int_equal(rvli_contents_promises(), 3 * PROMISES_MOST); /* the oldest has not arrived */
    rvli_contents_tidy();
    assert_int_equal(rvli_contents_promises(), 3 * PROMISES_MOST);
    atomic_store(&all[0].here, true);
    rvli_contents_tidy();
    assert_int_equal(rvli_contents_promises(), 0);
}

static void freed_memory(void **state)
{
    CUdeviceptr other;
    carrier of = carrier_of(BYTES);
    (void)state;
    assert_int_equal(cuMemAlloc(&other, 4 << 20), CUDA_SUCCESS);
    assert_true(rvli_contents_promise(other + 100, BYTES, &bringer, &of));
    assert_int_equal(cuMemFree(other), CUDA_SUCCESS);
    assert_int_equal(atomic_load(&of.ended), 1);
    assert_int_equal(atomic_load(&of.brought), 0);
}

/* ---- Threads ---- */

static void *read_it(void *user)
{
    char got[BYTES];
    (void)user;
    return (void *)(uintptr_t)(rvli_contents_read(memory, got, BYTES) && got[30] == 'e');
}

static void threads_wait_for_one(void **state)
{
    pthread_t threads[THREADS];
    carrier of = carrier_of(BYTES);
    (void)state;
    atomic_store(&of.here, false);
    promise(&of, 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_it, NULL), 0);
    usleep(20000);
    rvli_contents_write(memory + 5000, "others go on",
                        12); /* other threads continue while they wait */
    check(5000, "others go on");
    atomic_store(&of.here, true);
    for (int i = 0; i < THREADS; i++) {
        void *right = NULL;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_non_null(right);
    }
    assert_int_equal(atomic_load(&of.brought), 1);
    assert_int_equal(atomic_load(&of.ended), 1);
}

/* If the memory is written while the content is brought, the written bytes stay. */
static void written_while_it_is_on_its_way(void **state)
{
    pthread_t thread;
    carrier of = carrier_of(BYTES);
    (void)state;
    atomic_store(&of.here, false);
    promise(&of, 0);
    assert_int_equal(pthread_create(&thread, NULL, read_it, NULL), 0);
    usleep(20000);
    rvli_contents_write(memory + 1, "Z", 1);
    atomic_store(&of.here, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check(0, "aZcd");
}

int main(void)
{
#define ON_CLEAN_MEMORY(test) cmocka_unit_test_teardown(test, forget)
    const struct CMUnitTest tests[] = {
        ON_CLEAN_MEMORY(a_read_has_it_brought),
        ON_CLEAN_MEMORY(a_write_does_without),
        ON_CLEAN_MEMORY(a_copy_is_promised_too),
        ON_CLEAN_MEMORY(a_later_promise_takes_its_place),
        ON_CLEAN_MEMORY(strides_are_read_as_one),
        ON_CLEAN_MEMORY(those_that_nobody_reads),
        ON_CLEAN_MEMORY(freed_memory),
        ON_CLEAN_MEMORY(threads_wait_for_one),
        ON_CLEAN_MEMORY(written_while_it_is_on_its_way),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
