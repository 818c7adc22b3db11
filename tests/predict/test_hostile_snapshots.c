/* SPDX-License-Identifier: MIT */
/*
 * Snapshots that were made to do harm: files that unpack to far more than they are, structures that
 * are named again and again, and values of types that no snapshot has. Each is refused with its
 * place, in memory and time that grow with the file.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <libdeflate.h>

#include "reveille/snapshot.h"
#include "tests/support/snapshot_writer.h"

#define MIB ((size_t)1 << 20)
#define PATH_PATTERN "/tmp/reveille-hostile-XXXXXX"

static rvl_error last_error;

/* ---- Running ---- */

static rvl_status run_file(const char *path, rvl_snapshot **snapshot_out)
{
    last_error = (rvl_error){.struct_size = sizeof last_error};
    *snapshot_out = NULL;
    rvl_status status = rvl_snapshot_run(path, NULL, snapshot_out);
    rvl_last_error(&last_error);
    return status;
}

static void check_refused(const written *bytes, const char *message)
{
    char path[] = PATH_PATTERN;
    rvl_snapshot *snapshot;
    save_bytes(path, bytes->data, bytes->size);
    rvl_status status = run_file(path, &snapshot);
    unlink(path);
    rvl_snapshot_close(snapshot);
    assert_string_equal(last_error.message, message);
    assert_int_equal(status, RVL_ERR_CORRUPT_TRACE);
}

static void check_read(const written *bytes, uint64_t entries)
{
    char path[] = PATH_PATTERN;
    rvl_snapshot *snapshot;
    rvl_snapshot_facts facts = {.struct_size = sizeof facts};
    save_bytes(path, bytes->data, bytes->size);
    rvl_status status = run_file(path, &snapshot);
    unlink(path);
    if (status != RVL_OK)
        fail_msg("%s", last_error.message);
    assert_int_equal(rvl_snapshot_get_facts(snapshot, &facts), RVL_OK);
    rvl_snapshot_close(snapshot);
    assert_int_equal(facts.event_count, entries);
}

/* In a child: what reading a file adds to the memory that this program has, at most. */
static size_t most_memory(const char *path, rvl_status expected)
{
    struct rusage before, after;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(0);
    assert_int_equal(wait4(child, &status, 0, &before), child);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        rvl_snapshot *snapshot;
        alarm(100);
        _exit(run_file(path, &snapshot) == expected ? 0 : 1);
    }
    assert_int_equal(wait4(child, &status, 0, &after), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    return (size_t)(after.ru_maxrss - before.ru_maxrss) << 10;
}

/* ---- Writing ---- */

static void write_all(written *to, const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        write_byte(to, (unsigned char)bytes[i]);
}

#define WRITE(to, bytes) write_all(to, bytes, sizeof(bytes) - 1)

static void write_little(written *to, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        write_byte(to, (unsigned char)(number >> (8 * i)));
}

static void key_number(written *to, const char *key, int64_t number)
{
    write_text(to, key);
    write_number(to, number);
}

static void key_text(written *to, const char *key, const char *text)
{
    write_text(to, key);
    write_text(to, text);
}

static void write_entry(written *to, const char *action, int64_t addr, int64_t size)
{
    WRITE(to, "}(");
    key_text(to, "action", action);
    key_number(to, "addr", addr);
    key_number(to, "size", size);
    write_byte(to, 'u');
}

static void begin_segment(written *to, int64_t addr, int64_t size)
{
    WRITE(to, "}(");
    key_number(to, "address", addr);
    key_number(to, "total_size", size);
    key_number(to, "device", 0);
    key_number(to, "stream", 0);
}

/* "\x80\x04}(" "device_traces" [[one entry]]; what follows are more keys and values. */
static written begin_file(void)
{
    written to = {0};
    WRITE(&to, "\x80\x04}(");
    write_text(&to, "device_traces");
    WRITE(&to, "](](");
    write_entry(&to, "alloc", 4096, 512);
    WRITE(&to, "ee");
    return to;
}

static void end_file(written *to)
{
    WRITE(to, "u.");
}

/* ---- Unpacking ---- */

/* A pickle of one string, as a gzip file of one member or of one a MiB. */
static written bomb(size_t size, bool one_member)
{
    struct libdeflate_compressor *packer = libdeflate_alloc_compressor(6);
    unsigned char *bytes = calloc(1, size), *packed = malloc(size / 64 + MIB);
    written to = {0};
    assert_non_null(packer);
    assert_non_null(bytes);
    assert_non_null(packed);
    memcpy(bytes, "\x80\x04\x8d\xff\xff\xff\xff\x01\x00\x00\x00", 11);
    size_t step = one_member ? size : MIB;
    for (size_t at = 0; at < size; at += step) {
        size_t count = libdeflate_gzip_compress(packer, bytes + at, step, packed, size / 64 + MIB);
        assert_true(count > 0);
        write_all(&to, (const char *)packed, count);
    }
    libdeflate_free_compressor(packer);
    free(packed);
    free(bytes);
    return to;
}

static void check_bomb(bool one_member)
{
    char path[] = PATH_PATTERN;
    written packed = bomb(512 * MIB, one_member);
    size_t size = packed.size;
    check_refused(&packed, "it unpacks to more than 100 times its size, or to more than 8 GiB: no "
                           "recorded snapshot does; if you trust it, gunzip it first");
    save_bytes(path, packed.data, packed.size);
    free(packed.data);
    size_t bytes = most_memory(path, RVL_ERR_CORRUPT_TRACE);
    unlink(path);
    assert_in_range(bytes, 0, 16 * MIB + 100 * size + 32 * MIB);
}

static void a_bomb_in_one_member_is_refused_while_it_unpacks(void **state)
{
    (void)state;
    check_bomb(true);
}

static void a_bomb_in_many_members_is_refused_while_it_unpacks(void **state)
{
    (void)state;
    check_bomb(false);
}

/* 54 times is what stacks that are written in every entry pack. */
static void what_packs_well_is_read(void **state)
{
    (void)state;
    written to = {0}, packed = {0};
    WRITE(&to, "\x80\x04}(");
    write_text(&to, "device_traces");
    WRITE(&to, "](](");
    for (int i = 0; i < 200000; i++)
        write_entry(&to, i % 2 == 0 ? "alloc" : "free_requested", 4096, 512);
    WRITE(&to, "ee");
    end_file(&to);
    struct libdeflate_compressor *packer = libdeflate_alloc_compressor(1);
    unsigned char *room = malloc(to.size);
    assert_non_null(packer);
    assert_non_null(room);
    size_t count = libdeflate_gzip_compress(packer, to.data, to.size, room, to.size);
    assert_in_range(count, 1, to.size / 60);
    write_all(&packed, (const char *)room, count);
    libdeflate_free_compressor(packer);
    free(room);
    free(to.data);
    check_read(&packed, 200000);
    free(packed.data);
}

static void what_never_ends_is_not_read_on(void **state)
{
    (void)state;
    rvl_snapshot *snapshot;
    assert_int_equal(run_file("/dev/zero", &snapshot), RVL_ERR_CORRUPT_TRACE);
    assert_null(snapshot);
    assert_string_equal(last_error.message, "byte 0: not a pickle of protocol 2 to 5: it does not "
                                            "begin with PROTO");
}

/* 64 MiB, and three times the file: here of empty lists, of which each byte makes one. */
static void tables_stay_within_their_budget(void **state)
{
    (void)state;
    size_t size = 24 * MIB;
    char path[] = PATH_PATTERN;
    char *bytes = malloc(size);
    assert_non_null(bytes);
    memset(bytes, ']', size);
    memcpy(bytes, "\x80\x04", 2);
    save_bytes(path, bytes, size);
    free(bytes);
    size_t most = most_memory(path, RVL_ERR_CORRUPT_TRACE);
    unlink(path);
    /* The file is mapped, and so counts as memory as far as it was read. */
    size_t bound = 64 * MIB + 4 * size + 16 * MIB;
#ifdef __SANITIZE_ADDRESS__
    bound *= 2; /* its realloc() copies, and keeps what was freed for a while */
#endif
    assert_in_range(most, 32 * MIB, bound);
}

/* ---- Named again and again ---- */

/* device_traces with one list of some entries `times` times. */
static written shared_traces(unsigned times)
{
    written to = {0};
    WRITE(&to, "\x80\x04}(");
    write_text(&to, "device_traces");
    WRITE(&to, "](](");
    for (int i = 0; i < 3; i++)
        write_entry(&to, "alloc", 4096 * (i + 1), 512);
    write_byte(&to, 'e');
    for (unsigned i = 1; i < times; i++)
        write_byte(&to, '2'); /* DUP */
    write_byte(&to, 'e');
    end_file(&to);
    return to;
}

static void there_are_at_most_64_devices(void **state)
{
    (void)state;
    written few = shared_traces(64), many = shared_traces(65), very_many = shared_traces(1000000);
    check_read(&few, 3);
    check_refused(&many, "device_traces has more than 64 devices: no machine has");
    check_refused(&very_many, "device_traces has more than 64 devices: no machine has");
    free(few.data);
    free(many.data);
    free(very_many.data);
}

static void a_segment_is_read_once(void **state)
{
    (void)state;
    written to = begin_file();
    write_text(&to, "segments");
    WRITE(&to, "](");
    begin_segment(&to, 1 << 20, 1 << 20);
    WRITE(&to, "u22e");
    end_file(&to);
    check_refused(&to, "segments[1]: a segment that is in the list already, where another one is "
                       "expected: not as torch.cuda.memory._dump_snapshot() writes it");
    free(to.data);
}

static void a_list_of_blocks_is_read_once(void **state)
{
    (void)state;
    written to = begin_file();
    write_text(&to, "segments");
    WRITE(&to, "](");
    for (int i = 0; i < 2; i++) {
        begin_segment(&to, (i + 1) << 20, 1 << 20);
        write_text(&to, "blocks");
        if (i == 0) {
            WRITE(&to, "]q\x07(}(");
            key_text(&to, "state", "inactive");
            key_number(&to, "size", 512);
            WRITE(&to, "ue");
        } else {
            WRITE(&to, "h\x07");
        }
        write_byte(&to, 'u');
    }
    write_byte(&to, 'e');
    end_file(&to);
    check_refused(
        &to, "segments[1].blocks is the list of another segment, too, which no allocator does");
    free(to.data);
}

static void write_stage(written *to, const char *name, size_t length, bool memo)
{
    WRITE(to, "}(");
    key_text(to, "stage", "START");
    write_text(to, "name");
    if (memo) {
        WRITE(to, "h\x09");
    } else {
        write_byte(to, 'X');
        write_little(to, length, 4);
        write_all(to, name, length);
        WRITE(to, "q\x09");
    }
    key_number(to, "time_us", 5);
    key_number(to, "device", 0);
    write_byte(to, 'u');
}

static written with_stages(const char *name, size_t length, unsigned times)
{
    written to = begin_file();
    write_text(&to, "external_annotations");
    WRITE(&to, "](");
    for (unsigned i = 0; i < times; i++)
        write_stage(&to, name, length, i > 0);
    write_byte(&to, 'e');
    end_file(&to);
    return to;
}

static void stages_are_bounded(void **state)
{
    (void)state;
    char long_name[300] = "stage:";
    memset(long_name + 6, 'x', sizeof long_name - 6);
    written fits = with_stages(long_name, 6 + 255, 2), longer = with_stages(long_name, 6 + 256, 2);
    written many = with_stages("stage:a", 7, 8193), cut = with_stages("stage:a\0b", 9, 2);
    check_read(&fits, 1);
    check_refused(&longer, "byte 116: a stage's name of more than 255 bytes");
    check_refused(&cut, "byte 116: a stage's name with a NUL in it: rename that annotation");
    check_refused(&many, "8193 annotations begin a stage, and 8192 may: name a longer prefix, "
                         "which fewer of them have (--stage-prefix)");
    free(fits.data);
    free(longer.data);
    free(many.data);
    free(cut.data);
}

/* Final segments of a private pool, and as many entries that each give all of them back. */
static double seconds_for(int count)
{
    char path[] = PATH_PATTERN;
    struct timespec begin, end;
    rvl_snapshot *snapshot;
    written to = {0};
    WRITE(&to, "\x80\x04}(");
    write_text(&to, "device_traces");
    WRITE(&to, "](](");
    for (int i = 0; i < count; i++)
        write_entry(&to, "segment_free", 1 << 20, INT64_C(1) << 45);
    WRITE(&to, "ee");
    write_text(&to, "segments");
    WRITE(&to, "](");
    for (int i = 0; i < count; i++) {
        begin_segment(&to, (int64_t)(i + 2) << 21, 1 << 21);
        write_text(&to, "segment_pool_id");
        write_number(&to, 0);
        write_number(&to, 1);
        WRITE(&to, "\x86u");
    }
    write_byte(&to, 'e');
    end_file(&to);
    save_bytes(path, to.data, to.size);
    free(to.data);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    rvl_status status = run_file(path, &snapshot);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    unlink(path);
    rvl_snapshot_close(snapshot);
    if (status != RVL_OK)
        fail_msg("%s", last_error.message);
    return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
}

static void releases_of_many_segments_take_time_by_their_number(void **state)
{
    (void)state;
    double growth = 0;
    for (int attempt = 0; attempt < 5; attempt++) {
        growth = seconds_for(32000) / seconds_for(4000);
        if (growth < 20) /* of 8; quadratic it is 64 */
            return;
    }
    fail_msg("8 times the size took %.1f times as long", growth);
}

/* ---- Of another type ---- */

#define AS_WRITTEN " is expected: not as torch.cuda.memory._dump_snapshot() writes it"
#define OTHER_TYPE " is of another type than torch.cuda.memory._dump_snapshot() gives it"

/* A key of the file and its value, as opcodes. */
typedef struct odd_value {
    const char *key;
    const char *opcodes;
    size_t size;
    const char *message;
} odd_value;

#define ODD(key, opcodes, message)                                                                 \
    {                                                                                              \
        key, opcodes, sizeof(opcodes) - 1, message                                                 \
    }
#define ENTRY                                                                                      \
    "}(\x8c\x06"                                                                                   \
    "action\x8c\x05"                                                                               \
    "alloc\x8c\x04"                                                                                \
    "addrK\x09\x8c\x04"                                                                            \
    "sizeM\x00\x10u"
#define FRAME                                                                                      \
    "}(\x8c\x08"                                                                                   \
    "filename\x8c\x01"                                                                             \
    "f\x8c\x04"                                                                                    \
    "lineK\x01u"
#define SEGMENT(rest)                                                                              \
    "](}(\x8c\x07"                                                                                 \
    "addressK\x09\x8c\x0a"                                                                         \
    "total_sizeK\x09" rest "ue"

static const odd_value odd_values[] = {
    ODD("device_traces", "}",
        "device_traces is not a list: dump it as "
        "torch.cuda.memory._dump_snapshot() wrote it"),
    ODD("device_traces", "](" ENTRY "e",
        "device_traces[0]: an entry of a trace, where a list" AS_WRITTEN),
    ODD("device_traces",
        "](](" ENTRY "eK\x05"
        "e",
        "device_traces[1]: an integer, where a list" AS_WRITTEN),
    ODD("device_traces",
        "](]N"
        "e",
        "device_traces[1]: None, where a list" AS_WRITTEN),
    ODD("device_traces", "](](]ee",
        "device_traces[0][0]: a list, where an entry of a trace" AS_WRITTEN),
    ODD("device_traces", "](](" ENTRY ENTRY "]" ENTRY "ee",
        "device_traces[0][2]: a list, where an entry of a trace" AS_WRITTEN),
    ODD("device_traces", "](](" ENTRY "}ee",
        "device_traces[0][1]: an empty dict, where an entry of a trace" AS_WRITTEN),
    ODD("device_traces", "](](" ENTRY "}(\x8c\x01xNuee",
        "device_traces[0][1]: a dict of other keys, where an entry of a trace" AS_WRITTEN),
    ODD("device_traces", "](](" ENTRY "}(\x8c\x05state\x8c\x08inactive\x8c\x04sizeK\x01uee",
        "device_traces[0][1]: a block, where an entry of a trace" AS_WRITTEN),
    ODD("device_traces", "](](" ENTRY FRAME "ee",
        "device_traces[0][1]: a stack frame, where an entry of a trace" AS_WRITTEN),
    ODD("device_traces", "](](" FRAME "ee",
        "device_traces[0][0]: a stack frame, where an entry of a trace" AS_WRITTEN),
    ODD("device_traces",
        "](](}(\x8c\x06"
        "actionK\x01uee",
        "byte 35: an entry's action is not a string"),
    ODD("segments", "N",
        "segments is not a list: dump it as "
        "torch.cuda.memory._dump_snapshot() wrote it"),
    ODD("segments", "](Ne", "segments[0]: None, where a segment" AS_WRITTEN),
    ODD("segments", "](" FRAME "e", "segments[0]: a stack frame, where a segment" AS_WRITTEN),
    ODD("segments", "](" ENTRY "e", "segments[0]: an entry of a trace, where a segment" AS_WRITTEN),
    ODD("segments",
        SEGMENT("\x8c\x06"
                "deviceN"),
        "segments[0].device" OTHER_TYPE),
    ODD("segments",
        SEGMENT("\x8c\x06"
                "streamN"),
        "segments[0].stream" OTHER_TYPE),
    ODD("segments",
        SEGMENT("\x8c\x07"
                "addressN"),
        "segments[0].address" OTHER_TYPE),
    ODD("segments",
        SEGMENT("\x8c\x0a"
                "total_sizeN"),
        "segments[0].total_size" OTHER_TYPE),
    ODD("segments", SEGMENT("\x8c\x0csegment_typeN"), "segments[0].segment_type" OTHER_TYPE),
    ODD("segments", SEGMENT("\x8c\x0fsegment_pool_idK\x01K\x01K\x01\x87"),
        "segments[0].segment_pool_id" OTHER_TYPE),
    ODD("segments", SEGMENT("\x8c\x0fsegment_pool_idNN\x86"),
        "segments[0].segment_pool_id" OTHER_TYPE),
    ODD("segments", SEGMENT("\x8c\x0dis_expandableK\x01"), "segments[0].is_expandable" OTHER_TYPE),
    ODD("segments",
        SEGMENT("\x8c\x06"
                "blocksN"),
        "segments[0].blocks" OTHER_TYPE),
    ODD("segments",
        SEGMENT("\x8c\x06"
                "blocks](Ne"),
        "segments[0].blocks[0]: None, where a block" AS_WRITTEN),
    ODD("segments",
        SEGMENT("\x8c\x06"
                "blocks](" FRAME "e"),
        "segments[0].blocks[0]: a stack frame, where a block" AS_WRITTEN),
    ODD("segments",
        SEGMENT("\x8c\x06"
                "blocks](}(\x8c\x05stateN\x8c\x04sizeK\x01ue"),
        "byte 132: a block's state is not a string"),
    ODD("external_annotations", "N",
        "external_annotations is not a list: dump it as "
        "torch.cuda.memory._dump_snapshot() wrote it"),
    ODD("external_annotations", "](]e",
        "external_annotations[0]: a list, where an annotation" AS_WRITTEN),
    ODD("external_annotations", "](}(\x8c\x05stageN\x8c\x04name\x8c\x01nue",
        "byte 108: an annotation's stage is not a string"),
    ODD("external_annotations", "](}(\x8c\x05stage\x8c\x01s\x8c\x04nameNue",
        "byte 108: an annotation's name is not a string"),
    ODD("external_annotations",
        "](}(\x8c\x05stage\x8c\x01s\x8c\x04name\x8c\x01n\x8c\x06"
        "deviceNue",
        "byte 119: an annotation's device is not an integer"),
};

static void other_types_are_refused_with_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof odd_values / sizeof odd_values[0]; i++) {
        const odd_value *odd = &odd_values[i];
        written to = {0};
        if (strcmp(odd->key, "device_traces") == 0)
            WRITE(&to, "\x80\x04}(");
        else
            to = begin_file();
        write_text(&to, odd->key);
        write_all(&to, odd->opcodes, odd->size);
        end_file(&to);
        check_refused(&to, odd->message);
        free(to.data);
    }
}

/* Settings in another form are a note: the model then runs with what it assumes. */
static void settings_of_other_types_are_noted(void **state)
{
    (void)state;
    static const char *const keys[] = {"max_split_size", "garbage_collection_threshold",
                                       "expandable_segments", "roundup_power2_divisions",
                                       "PYTORCH_CUDA_ALLOC_CONF"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char path[] = PATH_PATTERN;
        rvl_snapshot *snapshot;
        rvl_snapshot_facts facts = {.struct_size = sizeof facts};
        bool noted = false;
        written to = begin_file();
        write_text(&to, "allocator_settings");
        WRITE(&to, "}(");
        write_text(&to, keys[i]);
        WRITE(&to, ")u");
        end_file(&to);
        save_bytes(path, to.data, to.size);
        free(to.data);
        assert_int_equal(run_file(path, &snapshot), RVL_OK);
        unlink(path);
        assert_int_equal(rvl_snapshot_get_facts(snapshot, &facts), RVL_OK);
        for (uint32_t note = 0; note < facts.note_count; note++)
            noted |= strstr(rvl_snapshot_note(snapshot, note), "setting") != NULL;
        rvl_snapshot_close(snapshot);
        if (!noted)
            fail_msg("%s as a tuple is not told of", keys[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bomb_in_one_member_is_refused_while_it_unpacks),
        cmocka_unit_test(a_bomb_in_many_members_is_refused_while_it_unpacks),
        cmocka_unit_test(what_packs_well_is_read),
        cmocka_unit_test(what_never_ends_is_not_read_on),
        cmocka_unit_test(tables_stay_within_their_budget),
        cmocka_unit_test(there_are_at_most_64_devices),
        cmocka_unit_test(a_segment_is_read_once),
        cmocka_unit_test(a_list_of_blocks_is_read_once),
        cmocka_unit_test(stages_are_bounded),
        cmocka_unit_test(releases_of_many_segments_take_time_by_their_number),
        cmocka_unit_test(other_types_are_refused_with_their_place),
        cmocka_unit_test(settings_of_other_types_are_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
