/* SPDX-License-Identifier: MIT */
/*
 * Elements of arrays between versions: one that has grown since its first version, as the library
 * knows it, and what older and newer callers hand over.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/element.h"
#include "base/error.h"

/* Its first version ended with `bytes`. */
typedef struct rvl_thing {
    const char *name;
    uint64_t bytes;
    uint64_t since_2;
} rvl_thing;

typedef struct first_thing {
    const char *name;
    uint64_t bytes;
} first_thing;

typedef struct later_thing {
    rvl_thing known;
    uint64_t since_3;
} later_thing;

#define THING RVLI_ELEMENT(rvl_thing, bytes)
#define CANARY 0x5a

static void assert_refused(rvl_status status, rvl_status expected, const char *message)
{
    assert_int_equal(status, expected);
    assert_int_equal(rvli_error_get()->status, expected);
    assert_string_equal(rvli_error_get()->message, message);
}

static void sizes_are_those_of_a_version(void **state)
{
    (void)state;
    assert_int_equal(rvli_element_check(THING, sizeof(first_thing)), RVL_OK);
    assert_int_equal(rvli_element_check(THING, sizeof(rvl_thing)), RVL_OK);
    assert_int_equal(rvli_element_check(THING, sizeof(later_thing)), RVL_OK);
    assert_int_equal(rvli_element_check(THING, RVLI_ELEMENT_BYTES_MAX), RVL_OK);
    assert_refused(rvli_element_check(THING, 0), RVL_ERR_INVALID,
                   "thing_size is 0, and no rvl_thing has that size: set it to sizeof(rvl_thing)");
    assert_refused(rvli_element_check(THING, sizeof(first_thing) - 8), RVL_ERR_INVALID,
                   "thing_size is 8, and no rvl_thing has that size: set it to sizeof(rvl_thing)");
    assert_refused(rvli_element_check(THING, sizeof(rvl_thing) + 1), RVL_ERR_INVALID,
                   "thing_size is 25, and no rvl_thing has that size: set it to sizeof(rvl_thing)");
    assert_int_equal(rvli_element_check(THING, RVLI_ELEMENT_BYTES_MAX + 8), RVL_ERR_INVALID);
    assert_int_equal(rvli_element_check(THING, SIZE_MAX - 7), RVL_ERR_INVALID);
}

static void older_elements_end_in_zeroes(void **state)
{
    (void)state;
    const first_thing things[] = {{"a", 1}, {"b", 2}};
    rvl_thing read;
    memset(&read, CANARY, sizeof read);
    assert_int_equal(rvli_element_read_at(THING, &read, things, sizeof *things, 1), RVL_OK);
    assert_string_equal(read.name, "b");
    assert_int_equal(read.bytes, 2);
    assert_int_equal(read.since_2, 0);
}

static void newer_elements_end_in_zeroes_or_are_refused(void **state)
{
    (void)state;
    later_thing things[] = {{{"a", 1, 3}, 0}, {{"b", 2, 4}, 0}};
    rvl_thing read = {0};
    assert_int_equal(rvli_element_read_at(THING, &read, things, sizeof *things, 1), RVL_OK);
    assert_string_equal(read.name, "b");
    assert_int_equal(read.since_2, 4);
    things[1].since_3 = UINT64_C(1) << 63; /* the last byte */
    assert_int_equal(rvli_element_read_at(THING, &read, things, sizeof *things, 0), RVL_OK);
    assert_refused(rvli_element_read_at(THING, &read, things, sizeof *things, 1), RVL_ERR_VERSION,
                   "an rvl_thing uses fields that this version of the library lacks: it knows 24 "
                   "bytes, and those behind must be 0. Leave the fields out, or use a newer "
                   "library");
}

/* Two of them, into an array of callers' that have room for one and a byte. */
static void arrays_are_filled_at_the_callers_step(void **state)
{
    (void)state;
    static const rvl_thing known[] = {{"a", 1, 3}, {"b", 2, 4}};
    static const size_t sizes[] = {sizeof(first_thing), sizeof(rvl_thing), sizeof(later_thing)};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        _Alignas(rvl_thing) unsigned char array[3 * sizeof(later_thing)];
        size_t size = sizes[i], count = 0;
        memset(array, CANARY, sizeof array);
        const rvli_elements_out out = {
            .element = THING, .array = array, .size = size, .capacity = 2};
        assert_int_equal(rvli_elements_fill(&out, known, 2, &count), RVL_OK);
        assert_int_equal(count, 2);
        for (size_t k = 0; k < 2; k++) {
            later_thing found = {.since_3 = 0};
            memcpy(&found, array + k * size, size);
            assert_string_equal(found.known.name, known[k].name);
            assert_int_equal(found.known.bytes, known[k].bytes);
            assert_int_equal(found.known.since_2, i == 0 ? 0 : known[k].since_2);
            assert_int_equal(found.since_3, 0);
        }
        for (size_t at = 2 * size; at < sizeof array; at++)
            assert_int_equal(array[at], CANARY);
    }
}

static void no_more_is_written_than_there_is_room_for(void **state)
{
    (void)state;
    static const rvl_thing known[] = {{"a", 1, 3}, {"b", 2, 4}};
    rvl_thing room[2];
    memset(room, CANARY, sizeof room);
    size_t count = 0;
    rvli_elements_out out = {.element = THING, .array = room, .size = sizeof *room, .capacity = 1};
    assert_int_equal(rvli_elements_fill(&out, known, 2, &count), RVL_OK);
    assert_int_equal(count, 2);
    assert_string_equal(room[0].name, "a");
    const unsigned char *second = (const unsigned char *)&room[1];
    for (size_t i = 0; i < sizeof room[1]; i++)
        assert_int_equal(second[i], CANARY);

    count = 7;
    assert_refused(rvli_elements_fill(&out, known, 2, NULL), RVL_ERR_INVALID,
                   "count_out is NULL: say where the number goes");
    out.size = 0;
    assert_int_equal(rvli_elements_fill(&out, known, 2, &count), RVL_ERR_INVALID);
    out.array = NULL;
    assert_refused(rvli_elements_fill(&out, known, 2, &count), RVL_ERR_INVALID,
                   "there is no array to write to: give one, or a capacity of 0 to ask for the "
                   "number alone");
    assert_int_equal(count, 7);
    out.capacity = 0; /* then neither array nor size is looked at */
    assert_int_equal(rvli_elements_fill(&out, known, 2, &count), RVL_OK);
    assert_int_equal(count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_a_version),
        cmocka_unit_test(older_elements_end_in_zeroes),
        cmocka_unit_test(newer_elements_end_in_zeroes_or_are_refused),
        cmocka_unit_test(arrays_are_filled_at_the_callers_step),
        cmocka_unit_test(no_more_is_written_than_there_is_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
