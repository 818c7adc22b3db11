/* SPDX-License-Identifier: MIT */
/*
 * A fuzz target without a fuzzer. The kept corpus runs as a regression test; inputs made of it by
 * the target's mutator run as well, and enough of them must be good: a mutator that only breaks
 * its inputs covers nothing but the reader's complaints.
 *
 * With folders as arguments it runs every file in them, and no test: coverage is measured so.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "fuzz.h"

#define FILES_MAX 4096u
#define FILE_BYTES_MAX 65536u
#define ROUNDS 1000u
#define GENERATIONS 8u /* in a row, as long as what is made is good */

typedef struct input {
    char name[256];
    uint8_t *data;
    size_t size;
} input;

static input inputs[FILES_MAX];
static unsigned input_count;

static int compare_names(const void *left, const void *right)
{
    return strcmp(((const input *)left)->name, ((const input *)right)->name);
}

static bool read_input(const char *folder, const char *name)
{
    char path[1024];
    input *in = &inputs[input_count];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rbe");
    in->data = malloc(FILE_BYTES_MAX);
    if (file == NULL || in->data == NULL)
        return false;
    in->size = fread(in->data, 1, FILE_BYTES_MAX, file);
    fclose(file);
    snprintf(in->name, sizeof in->name, "%s", name);
    input_count++;
    return true;
}

/* In the order of their names, which no file system gives. */
static bool read_folder(const char *folder)
{
    struct dirent *entry;
    unsigned first = input_count;
    DIR *all = opendir(folder);
    bool read = all != NULL;
    while (read && input_count < FILES_MAX && (entry = readdir(all)) != NULL)
        read = entry->d_name[0] == '.' || read_input(folder, entry->d_name);
    if (all != NULL)
        closedir(all);
    qsort(inputs + first, input_count - first, sizeof *inputs, compare_names);
    return read;
}

static void free_inputs(void)
{
    while (input_count > 0)
        free(inputs[--input_count].data);
}

static unsigned run_inputs(void)
{
    unsigned good = 0;
    for (unsigned i = 0; i < input_count; i++)
        good += fuzz_run(inputs[i].data, inputs[i].size) ? 1 : 0;
    return good;
}

/* ---- Tests ---- */

static void the_corpus_is_run(void **state)
{
    (void)state;
    unsigned good = run_inputs();
    print_message("%u of %u inputs of the corpus are good\n", good, input_count);
    assert_true(input_count > 1);
    assert_true(good > 0);
    assert_int_equal(run_inputs(), good); /* nothing is left from one execution to the next */
}

#ifdef RVL_FUZZ_GOOD_PERCENT

static unsigned byte_changes;

/* Instead of libFuzzer's: one bit. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max)
{
    (void)size_max;
    byte_changes++;
    if (size > 0)
        data[byte_changes % size] ^= (uint8_t)(1u << byte_changes % 8);
    return size;
}

/* Both times from the same bytes: the generator of byte changes is not the mutator's. */
static size_t make(const input *from, unsigned seed, uint8_t *to)
{
    static uint8_t again[FILE_BYTES_MAX];
    unsigned before = byte_changes;
    memcpy(to, from->data, from->size);
    memcpy(again, from->data, from->size);
    size_t size = LLVMFuzzerCustomMutator(to, from->size, FILE_BYTES_MAX, seed);
    byte_changes = before;
    assert_int_equal(LLVMFuzzerCustomMutator(again, from->size, FILE_BYTES_MAX, seed), size);
    assert_true(size <= FILE_BYTES_MAX);
    assert_memory_equal(again, to, size);
    return size;
}

/* What is good is changed again, as a fuzzer does. */
static void most_of_what_it_makes_is_good(void **state)
{
    (void)state;
    static uint8_t current_data[FILE_BYTES_MAX], made[FILE_BYTES_MAX];
    input current = {.data = current_data};
    unsigned good = 0, changed = 0;
    for (unsigned round = 0, next = 0; round < ROUNDS; round++) {
        while (round % GENERATIONS == 0) {
            const input *seed = &inputs[next++ % input_count];
            memcpy(current.data, seed->data, seed->size);
            current.size = seed->size;
            if (fuzz_run(seed->data, seed->size))
                break;
        }
        size_t size = make(&current, round, made);
        changed += size != current.size || memcmp(made, current.data, size) != 0 ? 1 : 0;
        if (!fuzz_run(made, size))
            continue;
        good++;
        memcpy(current.data, made, size);
        current.size = size;
    }
    print_message("of %u made, %u changed and %u good; %u by bytes\n", ROUNDS, changed, good,
                  byte_changes);
    assert_true(changed > ROUNDS * 3 / 4);
    assert_true(good * 100 >= ROUNDS * RVL_FUZZ_GOOD_PERCENT);
    assert_true(byte_changes > 0);
}

static void there_is_never_too_little_room(void **state)
{
    (void)state;
    for (unsigned i = 0; i < input_count; i++) {
        for (size_t room = inputs[i].size; room < inputs[i].size + 64; room += 21) {
            uint8_t *exact = malloc(room + 1); /* what is written behind it a sanitizer sees */
            assert_non_null(exact);
            exact[room] = 0x5a;
            memcpy(exact, inputs[i].data, inputs[i].size);
            assert_true(LLVMFuzzerCustomMutator(exact, inputs[i].size, room, i) <= room);
            assert_int_equal(exact[room], 0x5a);
            free(exact);
        }
    }
}

static void nothing_and_nonsense_are_changed_as_bytes(void **state)
{
    (void)state;
    uint8_t data[16] = "\x01 nonsense \xff";
    unsigned before = byte_changes;
    (void)LLVMFuzzerCustomMutator(data, 0, sizeof data, 1);
    assert_int_equal(LLVMFuzzerCustomMutator(data, 13, sizeof data, 1), 13);
    assert_true(byte_changes > before);
}

#ifdef RVL_FUZZ_CROSSES
static void two_inputs_make_another(void **state)
{
    (void)state;
    static uint8_t made[FILE_BYTES_MAX], again[FILE_BYTES_MAX];
    static const input *parents[FILES_MAX];
    unsigned good = 0, count = 0;
    for (unsigned i = 0; i < input_count; i++)
        if (fuzz_run(inputs[i].data, inputs[i].size))
            parents[count++] = &inputs[i];
    assert_true(count > 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        const input *first = parents[round % count];
        const input *second = parents[(round / count + round) % count];
        size_t size = LLVMFuzzerCustomCrossOver(first->data, first->size, second->data,
                                                second->size, made, sizeof made, round);
        assert_true(size <= sizeof made);
        assert_int_equal(LLVMFuzzerCustomCrossOver(first->data, first->size, second->data,
                                                   second->size, again, sizeof again, round),
                         size);
        assert_memory_equal(again, made, size);
        good += fuzz_run(made, size) ? 1 : 0;
    }
    print_message("of %u made of two good ones, %u good\n", ROUNDS, good);
    assert_true(good * 100 >= ROUNDS * RVL_FUZZ_CROSSES);
}
#endif

#endif

static int read_corpus(void **state)
{
    (void)state;
    return read_folder(RVL_FUZZ_CORPUS) ? 0 : -1;
}

static int free_corpus(void **state)
{
    (void)state;
    free_inputs();
    return 0;
}

static int run_folders(char **folders, int count)
{
    for (int i = 0; i < count; i++) {
        if (!read_folder(folders[i])) {
            fprintf(stderr, "%s cannot be read\n", folders[i]);
            return 1;
        }
    }
    unsigned all = input_count, good = run_inputs();
    printf("%u inputs, %u good\n", all, good);
    free_inputs();
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_corpus_is_run),
#ifdef RVL_FUZZ_GOOD_PERCENT
        cmocka_unit_test(most_of_what_it_makes_is_good),
        cmocka_unit_test(there_is_never_too_little_room),
        cmocka_unit_test(nothing_and_nonsense_are_changed_as_bytes),
#ifdef RVL_FUZZ_CROSSES
        cmocka_unit_test(two_inputs_make_another),
#endif
#endif
    };
    if (argc > 1)
        return run_folders(argv + 1, argc - 1);
    return cmocka_run_group_tests(tests, read_corpus, free_corpus);
}
