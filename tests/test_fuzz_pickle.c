/* SPDX-License-Identifier: MIT */
/*
 * The fuzzer's way to change snapshots (fuzz_pickle.h): most of what it makes is a pickle that is
 * read, and much of it a snapshot that is run, so that a fuzzer gets where bytes alone do not. This
 * is also a run of the reader and the model with ten thousand odd snapshots in every build.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "fuzz_pickle.h"
#include "reveille/snapshot.h"
#include "snapshot/pickle.h"

#define ROUNDS 10000u
#define SIZE_MAX_BYTES 16384u
#define CORPUS RVL_SOURCE_DIR "/tests/corpus/snapshot/"

static unsigned byte_changes;

/* Instead of the fuzzer's: one byte. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max)
{
    (void)size_max;
    byte_changes++;
    if (size > 0)
        data[byte_changes % size] ^= (uint8_t)(1u << byte_changes % 8);
    return size;
}

static size_t read_seed(const char *name, uint8_t *data)
{
    char path[256];
    snprintf(path, sizeof path, CORPUS "%s", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t size = fread(data, 1, SIZE_MAX_BYTES, file);
    fclose(file);
    assert_true(size > 0);
    return size;
}

static bool is_read(const uint8_t *data, size_t size)
{
    rvli_pickle pickle;
    rvli_pickle_error error;
    if (rvli_pickle_read(data, size, &pickle, &error) != RVL_OK)
        return false;
    rvli_pickle_destroy(&pickle);
    return true;
}

static bool is_run(const uint8_t *data, size_t size)
{
    char path[64];
    rvl_snapshot *snapshot = NULL;
    int file = memfd_create("snapshot", MFD_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(write(file, data, size), size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    rvl_status status = rvl_snapshot_run(path, NULL, &snapshot);
    rvl_snapshot_close(snapshot);
    close(file);
    return status == RVL_OK;
}

/* What is run is changed again, up to sixteen times in a row, as a fuzzer does. */
static void most_of_what_it_makes_is_read(void **state)
{
    (void)state;
    static const char *const seeds[] = {"default.pickle", "expandable.pickle", "late.pickle",
                                        "late-expandable.pickle", "settings.pickle"};
    static uint8_t current[SIZE_MAX_BYTES], data[SIZE_MAX_BYTES];
    unsigned read = 0, run = 0;
    size_t current_size = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round % 16 == 0)
            current_size = read_seed(seeds[round / 16 % 5], current);
        memcpy(data, current, current_size);
        size_t size = LLVMFuzzerCustomMutator(data, current_size, sizeof data, round);
        assert_true(size <= sizeof data);
        read += is_read(data, size) ? 1 : 0;
        if (!is_run(data, size))
            continue;
        run++;
        memcpy(current, data, size);
        current_size = size;
    }
    print_message("of %u: %u read, %u run; %u by bytes\n", ROUNDS, read, run, byte_changes);
    assert_true(read > ROUNDS / 2);
    assert_true(run > ROUNDS / 4);
    assert_true(byte_changes > 0);
}

/* gzip files, and what breaks off. */
static void what_is_no_pickle_is_changed_as_bytes(void **state)
{
    (void)state;
    uint8_t data[] = "\x1f\x8b no pickle";
    unsigned before = byte_changes;
    assert_int_equal(LLVMFuzzerCustomMutator(data, sizeof data, sizeof data, 1), sizeof data);
    assert_int_equal(LLVMFuzzerCustomMutator(data, 0, sizeof data, 2), 0);
    assert_int_equal(byte_changes, before + 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(most_of_what_it_makes_is_read),
        cmocka_unit_test(what_is_no_pickle_is_changed_as_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
