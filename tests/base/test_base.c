/* SPDX-License-Identifier: MIT */
/* The small things everything stands on: statuses, error record, bounded text, options, pool. */
#include <pthread.h>
#include <stdbool.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/grow.h"
#include "base/intmap.h"
#include "base/options.h"
#include "base/pool.h"
#include "base/text.h"
#include "tests/support/short_memory.h"

static rvl_error last_error(void)
{
    rvl_error error = {.struct_size = sizeof(error)};
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    return error;
}

static void test_grow(void **state)
{
    (void)state;
    uint32_t *list = NULL, capacity = 0;
    uint16_t *wide = NULL;
    size_t room = 0;
    assert_true(RVLI_GROW(list, capacity, 3));
    assert_int_equal(capacity, 3);
    for (uint32_t i = 0; i < 3; i++)
        list[i] = i + 7;
    assert_true(RVLI_GROW(list, capacity, 3));
    assert_int_equal(capacity, 6);
    assert_int_equal(list[2], 9);
    assert_true(RVLI_GROW(wide, room, 5));
    assert_int_equal(room, 5);

    /* A capacity that has no double, in its type or in bytes: list and capacity stay. */
    uint32_t *const before = list;
    capacity = UINT32_C(1) << 31;
    assert_false(RVLI_GROW(list, capacity, 3));
    assert_int_equal(capacity, UINT32_C(1) << 31);
    assert_ptr_equal(list, before);
    size_t most = SIZE_MAX / 4;
    assert_false(RVLI_GROW(list, most, 3));
    assert_int_equal(most, SIZE_MAX / 4);
    assert_ptr_equal(list, before);
    free(list);
    free(wide);
}

static void test_status_names(void **state)
{
    (void)state;
    assert_string_equal(rvl_status_name(RVL_OK), "RVL_OK");
    assert_string_equal(rvl_status_text(RVL_OK), "success");
    assert_string_equal(rvl_status_name(RVL_ERR_DEVICE_OOM), "RVL_ERR_DEVICE_OOM");
    assert_string_equal(rvl_status_text(RVL_ERR_DEVICE_OOM), "out of device memory");
    assert_string_equal(rvl_status_name(RVL_ERR_FORKED), "RVL_ERR_FORKED");
    assert_int_equal(RVL_ERR_FORKED, -20);
    assert_string_equal(rvl_status_name((rvl_status)-21), "RVL_ERR_?");
    assert_string_equal(rvl_status_text((rvl_status)1), "unknown status");
}

/* Runs in a thread of its own. Nobody has written its record. */
static void *fresh_record(void *copy_out)
{
    rvl_error *copy = copy_out;
    copy->struct_size = sizeof(*copy);
    rvl_last_error(copy);
    rvli_error(RVL_ERR_IO, "of this thread only");
    return NULL;
}

static void test_error_is_of_the_thread(void **state)
{
    (void)state;
    rvli_error(RVL_ERR_STATE, "of the main thread");
    rvl_error fresh = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fresh_record, &fresh), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(fresh.status, RVL_OK);
    assert_int_equal(fresh.device, RVL_NO_DEVICE);
    assert_string_equal(fresh.message, "");
    rvl_error error = last_error();
    assert_int_equal(error.status, RVL_ERR_STATE);
    assert_string_equal(error.message, "of the main thread");
}

/* ---- Without memory for a record ---- */

SHORT_CALLOC

static void *record_without_memory(void *copy_out)
{
    rvl_error *copy = copy_out;
    copy->struct_size = sizeof(*copy);
    short_memory_left = 0; /* not before: making a thread needs memory */
    rvli_error(RVL_ERR_HOST_OOM, "no memory for a record either");
    short_memory_left = -1;
    rvl_last_error(copy);
    return NULL;
}

static void test_error_has_a_place(void **state)
{
    (void)state;
    char longer[1500];
    memset(longer, 'x', sizeof longer);
    memcpy(longer + sizeof longer - 9, "/end.rvt", 9);
    rvli_error(RVL_ERR_CORRUPT_TRACE, "somewhere");
    rvli_error_place("a.rvt", 7, 3);
    rvli_error_key("hidden_size");
    rvl_error error = last_error();
    assert_string_equal(error.file, "a.rvt");
    assert_int_equal(error.line, 7);
    assert_int_equal(error.column, 3);
    assert_string_equal(error.key, "hidden_size");
    assert_string_equal(error.message, "somewhere");

    rvli_error_place(longer, 0, 0);
    error = last_error();
    assert_int_equal(strlen(error.file), sizeof error.file - 1);
    assert_memory_equal(error.file, "...x", 4);
    assert_string_equal(error.file + sizeof error.file - 9, "/end.rvt");

    rvli_error(RVL_ERR_IO, "elsewhere"); /* nothing of the old place is left */
    error = last_error();
    assert_string_equal(error.file, "");
    assert_string_equal(error.key, "");
    assert_int_equal(error.line + error.column, 0);
}

static void test_error_without_memory(void **state)
{
    (void)state;
    rvl_error of_thread = {0};
    pthread_t thread;
    rvli_error(RVL_ERR_STATE, "of the main thread");
    for (int round = 0; round < 2; round++) { /* the record is common, so that it serves again */
        assert_int_equal(pthread_create(&thread, NULL, record_without_memory, &of_thread), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(of_thread.status, RVL_ERR_HOST_OOM);
        assert_string_equal(of_thread.message, "no memory for a record either");
    }
    assert_string_equal(last_error().message, "of the main thread");
}

static void test_error_fields(void **state)
{
    (void)state;
    assert_int_equal(rvli_error(RVL_ERR_DEVICE_OOM, "first"), RVL_ERR_DEVICE_OOM);
    rvli_error_native(2, "CUDA_ERROR_OUT_OF_MEMORY");
    rvli_error_op("create");
    rvli_error_bytes(3, 4096, 1024);
    rvli_error_tag("kv_cache");
    rvli_error_message("second");
    rvl_error error = last_error();
    assert_int_equal(error.struct_size, sizeof(error));
    assert_int_equal(error.status, RVL_ERR_DEVICE_OOM);
    assert_int_equal(error.native_code, 2);
    assert_string_equal(error.native_name, "CUDA_ERROR_OUT_OF_MEMORY");
    assert_string_equal(error.op, "create");
    assert_int_equal(error.device, 3);
    assert_int_equal(error.requested_bytes, 4096);
    assert_int_equal(error.free_bytes, 1024);
    assert_string_equal(error.tag, "kv_cache");
    assert_string_equal(error.message, "second");

    rvl_error saved = *rvli_error_get();
    rvli_error(RVL_ERR_IO, "while undoing");
    error = last_error();
    assert_int_equal(error.native_code, 0);
    assert_int_equal(error.device, RVL_NO_DEVICE);
    assert_string_equal(error.tag, "");
    rvli_error_set(&saved);
    error = last_error();
    assert_int_equal(error.status, RVL_ERR_DEVICE_OOM);
    assert_string_equal(error.message, "second");
}

static void test_error_cuts_long_text(void **state)
{
    (void)state;
    char text[300];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    rvli_error(RVL_ERR_IO, text);
    rvli_error_tag(text);
    rvl_error error = last_error();
    assert_int_equal(strlen(error.message), sizeof(error.message) - 1);
    assert_int_equal(strlen(error.tag), sizeof(error.tag) - 1);
}

static void test_last_error_sizes(void **state)
{
    (void)state;
    rvli_error(RVL_ERR_BUSY, "busy");
    rvli_error_bytes(1, 2, 3);
    assert_int_equal(rvl_last_error(NULL), RVL_ERR_INVALID);
    rvl_error error;
    memset(&error, 0x55, sizeof(error));
    error.struct_size = offsetof(rvl_error, status);
    assert_int_equal(rvl_last_error(&error), RVL_ERR_INVALID);
    assert_int_equal(error.native_code, 0x55555555);
    /* A caller that knows the status alone. */
    error.struct_size = offsetof(rvl_error, native_code);
    assert_int_equal(rvl_last_error(&error), RVL_OK);
    assert_int_equal(error.status, RVL_ERR_BUSY);
    assert_int_equal(error.native_code, 0x55555555);
    assert_int_equal(error.struct_size, offsetof(rvl_error, native_code));
    /* The misuse above did not touch the record. */
    assert_int_equal(last_error().requested_bytes, 2);
}

static void test_text(void **state)
{
    (void)state;
    char buffer[12];
    rvli_text text = rvli_text_begin(buffer, sizeof(buffer));
    assert_string_equal(buffer, "");
    rvli_text_add(&text, "ab");
    rvli_text_add_u64(&text, 0);
    rvli_text_add_u64(&text, 907);
    assert_string_equal(buffer, "ab0907");
    assert_int_equal(text.length, 6);
    rvli_text_add(&text, "123456789");
    assert_string_equal(buffer, "ab090712345");
    rvli_text_add(&text, "more");
    assert_int_equal(text.length, 11);

    char wide[32];
    text = rvli_text_begin(wide, sizeof(wide));
    rvli_text_add_u64(&text, UINT64_MAX);
    assert_string_equal(wide, "18446744073709551615");

    rvli_text_copy(wide, 4, "abcdef");
    assert_string_equal(wide, "abc");
    rvli_text_copy(wide, 4, "ab\xc3\xa9"); /* e acute would be cut in half */
    assert_string_equal(wide, "ab");
    rvli_text_copy(wide, 5, "ab\xc3\xa9");
    assert_string_equal(wide, "ab\xc3\xa9");
    rvli_text_copy(wide, 1, "abc");
    assert_string_equal(wide, "");
    wide[0] = 'k';
    rvli_text_copy(wide, 0, "abc");
    assert_int_equal(wide[0], 'k');
}

static void assert_bytes_text(uint64_t bytes, const char *expected)
{
    char buffer[32];
    rvli_text text = rvli_text_begin(buffer, sizeof(buffer));
    rvli_text_add_bytes(&text, bytes);
    assert_string_equal(buffer, expected);
}

static void test_text_bytes(void **state)
{
    (void)state;
    const uint64_t gib = (uint64_t)1 << 30;
    assert_bytes_text(0, "0 B");
    assert_bytes_text(512, "512 B");
    assert_bytes_text(10239, "10239 B");
    assert_bytes_text(10240, "10.0 KiB");
    assert_bytes_text(1048575, "1.0 MiB");
    assert_bytes_text(3 * gib / 2, "1.5 GiB");
    assert_bytes_text(gib * 942 / 10, "94.2 GiB");
    assert_bytes_text(1024 * gib - 1, "1.0 TiB");
    assert_bytes_text(UINT64_MAX, "16.0 EiB");
}

typedef struct options {
    size_t struct_size;
    uint64_t first;
    uint64_t second;
} options;

typedef struct newer_options {
    options known;
    uint64_t third;
} newer_options;

static void test_options(void **state)
{
    (void)state;
    options read;
    memset(&read, 0x55, sizeof(read));
    assert_int_equal(rvli_options_read(&read, sizeof(read), NULL), RVL_OK);
    assert_int_equal(read.struct_size, sizeof(read));
    assert_int_equal(read.first, 0);
    assert_int_equal(read.second, 0);

    options user = {.struct_size = sizeof(user), .first = 1, .second = 2};
    assert_int_equal(rvli_options_read(&read, sizeof(read), &user), RVL_OK);
    assert_int_equal(read.second, 2);

    user.struct_size = offsetof(options, second); /* an older caller */
    assert_int_equal(rvli_options_read(&read, sizeof(read), &user), RVL_OK);
    assert_int_equal(read.struct_size, sizeof(read));
    assert_int_equal(read.first, 1);
    assert_int_equal(read.second, 0);

    newer_options newer = {.known = {.struct_size = sizeof(newer), .first = 5}};
    assert_int_equal(rvli_options_read(&read, sizeof(read), &newer), RVL_OK);
    assert_int_equal(read.first, 5);
    newer.third = 1;
    newer.known.first = 6;
    assert_int_equal(rvli_options_read(&read, sizeof(read), &newer), RVL_ERR_VERSION);
    assert_int_equal(last_error().status, RVL_ERR_VERSION);
    assert_int_equal(read.first, 5);

    user.struct_size = 0;
    assert_int_equal(rvli_options_read(&read, sizeof(read), &user), RVL_ERR_INVALID);
    assert_int_equal(last_error().status, RVL_ERR_INVALID);
    assert_int_equal(read.first, 5);
}

static void test_results(void **state)
{
    (void)state;
    const options result = {.struct_size = sizeof(result), .first = 1, .second = 2};
    assert_int_equal(rvli_result_write(NULL, &result, sizeof(result)), RVL_ERR_INVALID);
    options user = {.struct_size = sizeof(size_t) - 1, .first = 9};
    assert_int_equal(rvli_result_write(&user, &result, sizeof(result)), RVL_ERR_INVALID);
    assert_int_equal(user.first, 9);
    user.struct_size = offsetof(options, second);
    user.second = 9;
    assert_int_equal(rvli_result_write(&user, &result, sizeof(result)), RVL_OK);
    assert_int_equal(user.struct_size, offsetof(options, second));
    assert_int_equal(user.first, 1);
    assert_int_equal(user.second, 9);
    newer_options newer = {.known = {.struct_size = sizeof(newer)}, .third = 9};
    assert_int_equal(rvli_result_write(&newer, &result, sizeof(result)), RVL_OK);
    assert_int_equal(newer.known.struct_size, sizeof(newer));
    assert_int_equal(newer.known.second, 2);
    assert_int_equal(newer.third, 0);
}

static void test_pool(void **state)
{
    (void)state;
    enum { OBJECTS = 20000, OBJECT_BYTES = 256 };
    rvli_pool pool;
    rvli_pool_init(&pool, OBJECT_BYTES);
    char **objects = malloc(OBJECTS * sizeof(*objects));
    assert_non_null(objects);
    for (int i = 0; i < OBJECTS; i++) {
        objects[i] = rvli_pool_get(&pool);
        assert_non_null(objects[i]);
        assert_int_equal((uintptr_t)objects[i] % 64, 0);
        memset(objects[i], i % 251, OBJECT_BYTES);
    }
    for (int i = 0; i < OBJECTS; i++) { /* none overlaps another */
        assert_int_equal((unsigned char)objects[i][0], i % 251);
        assert_int_equal((unsigned char)objects[i][OBJECT_BYTES - 1], i % 251);
    }
    rvli_pool_put(&pool, objects[7]);
    rvli_pool_put(&pool, objects[9]);
    assert_ptr_equal(rvli_pool_get(&pool), objects[9]); /* freed last, out first */
    assert_ptr_equal(rvli_pool_get(&pool), objects[7]);
    free(objects);
    size_t all_bytes = (size_t)OBJECTS * OBJECT_BYTES; /* slabs have a line each, and a rest */
    assert_in_range(rvli_pool_bytes(&pool), all_bytes, all_bytes + all_bytes / 50);
    rvli_pool_destroy(&pool);
    assert_null(pool.slabs);
    assert_int_equal(rvli_pool_bytes(&pool), 0);
    assert_non_null(rvli_pool_get(&pool)); /* a destroyed pool is an empty one */
    rvli_pool_destroy(&pool);
}

static void test_pool_of_large_objects(void **state)
{
    (void)state;
    const size_t object_bytes = (size_t)5 << 20; /* larger than any slab is by itself */
    rvli_pool pool;
    rvli_pool_init(&pool, object_bytes);
    char *first = rvli_pool_get(&pool);
    char *second = rvli_pool_get(&pool);
    assert_non_null(first);
    assert_non_null(second);
    first[object_bytes - 1] = 1;
    second[0] = 2;
    assert_int_equal(first[object_bytes - 1], 1);
    rvli_pool_destroy(&pool);
}

/* ---- The map of numbers ---- */

#define KEYS 20000u

/* Keys that go in, and out again in another order, with the extremes among them. */
static uint64_t nth_key(uint64_t n)
{
    return n == 0 ? 1 : n == 1 ? UINT64_MAX : n * 7;
}

static void test_intmap(void **state)
{
    (void)state;
    rvli_intmap map = {0};
    uint64_t value = 5;
    assert_false(rvli_intmap_get(&map, 1, &value));
    assert_false(rvli_intmap_remove(&map, 1, &value));
    assert_int_equal(value, 5);
    for (uint64_t n = 0; n < KEYS; n++) {
        assert_int_equal(rvli_intmap_reserve(&map), RVL_OK);
        size_t capacity = map.capacity;
        assert_int_equal(rvli_intmap_insert(&map, nth_key(n), n), RVL_OK);
        assert_int_equal(map.capacity, capacity);
        assert_int_equal(rvli_intmap_insert(&map, nth_key(n), n), RVL_ERR_INVALID);
        if (map.count >= 64)
            assert_true(map.capacity * sizeof *map.slots <= map.count * 33);
    }
    assert_int_equal(rvli_intmap_insert(&map, 0, 1), RVL_ERR_INVALID);
    for (uint64_t n = 0; n < KEYS; n += 3) {
        assert_true(rvli_intmap_remove(&map, nth_key(n), &value));
        assert_int_equal(value, n);
        assert_false(rvli_intmap_remove(&map, nth_key(n), &value));
    }
    for (uint64_t n = 0; n < KEYS; n++) {
        assert_int_equal(rvli_intmap_get(&map, nth_key(n), &value), n % 3 != 0);
        if (n % 3 != 0)
            assert_int_equal(value, n);
    }
    assert_int_equal(map.count, KEYS - (KEYS + 2) / 3);
    rvli_intmap_destroy(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_intmap),
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_status_names),
        cmocka_unit_test(test_error_is_of_the_thread),
        cmocka_unit_test(test_error_has_a_place),
        cmocka_unit_test(test_error_without_memory),
        cmocka_unit_test(test_error_fields),
        cmocka_unit_test(test_error_cuts_long_text),
        cmocka_unit_test(test_last_error_sizes),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_text_bytes),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_pool_of_large_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
