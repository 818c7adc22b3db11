/* SPDX-License-Identifier: MIT */
/* The content of images of device code, and broken images: nothing behind their end is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <lz4.h>
#include <zstd.h>

#include "cubin_writer.h"
#include "simcuda/driver/image.h"
#include "support/short_memory.h"

SHORT_MALLOC
SHORT_REALLOC
SHORT_STRNDUP

static const cubin_kernel kernels[] = {
    {"work", 168, 2048, 0, {256, 2, 1}},
    {"add", 18, 0, 400, {0}},
};
static const cubin_shape shape = {.version = 90,
                                  .kernels = kernels,
                                  .kernel_count = 2,
                                  .argument_bytes = 1264,
                                  .variables = true};

static const char ptx[] = "// made by hand\n.version 8.7\n.target sm_90a, debug\n.address_size 64\n"
                          ".extern .global .align 4 .u32 elsewhere;\n"
                          ".visible .global .align 4 .u32 seen = 7;\n"
                          ".global .align 8 .v2 .f32 zeroes[10][2];\n"
                          ".const .align 1 .b8 table[4] = {1, 2, 3, 4};\n"
                          ".extern .shared .align 16 .b8 dynamic[];\n"
                          "/* .entry not(); */\n"
                          ".visible .entry work(.param .u64 p)\n.maxntid 64, 2\n{\n"
                          " .shared .align 4 .b8 one[2048];\n .shared .b64 two[4];\n"
                          " { .reg .b32 %r<2>; }\n ret;\n}\n"
                          ".func helper() { ret; }\n"
                          ".entry add(.param .u32 a, .param .align 8 .b8 b[5],\n"
                          " .param .u64 .ptr .global .align 32 c, .param .texref none,\n"
                          " .param .b8 too_many[65536], .param .v2 .f32 d)\n"
                          ".reqntid 32, 1, 1\n{ .param .b64 not_its_own; ret; }\n";

static rvli_image image;

static rvli_image_error read_as(const void *bytes, size_t size_bytes, int major, int minor)
{
    image = (rvli_image){.version = 12345};
    return rvli_image_read(bytes, size_bytes, major, minor, &image);
}

/* Reads a copy at the end of its memory, so that sanitizers detect reads beyond it. */
static rvli_image_error read_exactly(const void *bytes, size_t size_bytes)
{
    void *copy = malloc(size_bytes > 0 ? size_bytes : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size_bytes);
    rvli_image_error error = read_as(copy, size_bytes, 9, 0);
    free(copy);
    return error;
}

static void check_refused(rvli_image_error got, rvli_image_error expected)
{
    assert_int_equal(got, expected);
    assert_int_equal(image.version, 12345); /* nothing was written */
}

static void check_entry(const char *name, unsigned registers, unsigned shared_bytes,
                        unsigned local_bytes, unsigned threads_most)
{
    const rvli_kernel_entry *entry = rvli_image_entry(&image, name);
    assert_non_null(entry);
    assert_int_equal(entry->registers, registers);
    assert_int_equal(entry->shared_bytes, shared_bytes);
    assert_int_equal(entry->local_bytes, local_bytes);
    assert_int_equal(entry->threads_most, threads_most);
}

static unsigned arguments_of(const char *name)
{
    const rvli_kernel_entry *entry = rvli_image_entry(&image, name);
    assert_non_null(entry);
    return entry->argument_bytes;
}

static void check_variable(const char *name, size_t size_bytes, const void *initial)
{
    const rvli_variable *variable = rvli_image_variable(&image, name);
    assert_non_null(variable);
    assert_int_equal(variable->size_bytes, size_bytes);
    if (initial != NULL)
        assert_memory_equal(variable->initial, initial, 4);
    else
        assert_null(variable->initial);
}

/* ---- Cubins ---- */

static void a_cubin_says_what_its_kernels_need(void **state)
{
    unsigned char bytes[CUBIN_BYTES_MOST];
    static const uint32_t seven = 7;
    (void)state;
    for (int old = 0; old <= 1; old++) {
        cubin_shape of = shape;
        of.old = old;
        size_t size = cubin_write(&of, bytes);
        for (int known = 0; known <= 1; known++) {
            assert_int_equal(read_as(bytes, known ? size : SIZE_MAX, 9, 0), RVLI_IMAGE_OK);
            assert_int_equal(image.entry_count, 2);
            assert_int_equal(image.version, 90);
            assert_int_equal(image.code_bytes, 64);
            assert_int_equal(image.global_bytes, 104);
            check_entry("work", 168, 2048, 0, 512);
            check_entry("add", 18, 0, 400, 0);
            assert_int_equal(arguments_of("work"), 1264);
            assert_int_equal(arguments_of("add"), 1264);
            assert_int_equal(rvli_image_entry(&image, "add")->constant_bytes, 64);
            assert_null(rvli_image_entry(&image, "ad"));
            assert_int_equal(image.variable_count, 3);
            check_variable("seen", 4, &seven);
            check_variable("zeroes", 100, NULL);
            check_variable("table", 64, "\1\2\3\4");
            assert_null(rvli_image_variable(&image, "work"));
            rvli_image_free(&image);
            assert_int_equal(image.entry_count, 0);
        }
    }
}

static void a_cubin_is_for_its_card(void **state)
{
    unsigned char bytes[CUBIN_BYTES_MOST];
    cubin_shape of = shape;
    (void)state;
    size_t size = cubin_write(&of, bytes);
    check_refused(read_as(bytes, size, 8, 0), RVLI_IMAGE_OTHER_CARD);
    check_refused(read_as(bytes, size, 10, 0), RVLI_IMAGE_OTHER_CARD);
    of.version = 86;
    size = cubin_write(&of, bytes);
    check_refused(read_as(bytes, size, 8, 0), RVLI_IMAGE_OTHER_CARD);
    check_refused(read_as(bytes, size, 9, 0), RVLI_IMAGE_OTHER_CARD);
    assert_int_equal(read_as(bytes, size, 8, 9), RVLI_IMAGE_OK);
    rvli_image_free(&image);
}

static void a_cubin_may_have_no_kernel(void **state)
{
    unsigned char bytes[CUBIN_BYTES_MOST];
    const cubin_shape of = {.version = 90};
    (void)state;
    size_t size = cubin_write(&of, bytes);
    assert_int_equal(read_as(bytes, size, 9, 0), RVLI_IMAGE_OK);
    assert_int_equal(image.entry_count, 0);
    assert_null(rvli_image_entry(&image, "work"));
    rvli_image_free(&image);
}

/* The table of sections ends the file, so any shorter file is broken. */
static void a_cubin_that_is_cut_is_refused(void **state)
{
    unsigned char bytes[CUBIN_BYTES_MOST];
    (void)state;
    size_t size = cubin_write(&shape, bytes);
    for (size_t length = 0; length < size; length++)
        check_refused(read_exactly(bytes, length), RVLI_IMAGE_INVALID);
}

/* With any value in the first `first` bytes, all reads stay inside. */
static void check_changes(const unsigned char *bytes, size_t size, size_t first)
{
    static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff};
    unsigned char *changed = malloc(size);
    size_t refused = 0, taken = 0;
    assert_non_null(changed);
    for (size_t at = 0; at < first; at++)
        for (size_t i = 0; i < sizeof values; i++) {
            memcpy(changed, bytes, size);
            changed[at] = values[i];
            rvli_image_error error = read_exactly(changed, size);
            refused += error != RVLI_IMAGE_OK;
            taken += error == RVLI_IMAGE_OK;
            if (error == RVLI_IMAGE_OK)
                rvli_image_free(&image);
        }
    free(changed);
    assert_true(refused > 0);
    assert_true(taken > 0);
}

static void a_cubin_with_any_byte_changed_is_read_inside(void **state)
{
    unsigned char bytes[CUBIN_BYTES_MOST];
    (void)state;
    size_t size = cubin_write(&shape, bytes);
    check_changes(bytes, size, size);
}

/* If the size is unknown, a header may give an end that is not mapped. */
static void a_cubin_that_ends_nowhere_is_refused(void **state)
{
    unsigned char bytes[CUBIN_BYTES_MOST];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = cubin_write(&shape, bytes);
    const uint64_t ends[] = {page * 2, UINT64_C(1) << 62, UINT64_MAX - 100};
    (void)state;
    assert_true(size <= 2 * page);
    unsigned char *at =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    munmap(at + 2 * page, page);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        memcpy(at, bytes, size);
        memcpy(at + 40, &ends[i], sizeof ends[i]); /* e_shoff */
        check_refused(read_as(at, SIZE_MAX, 9, 0), RVLI_IMAGE_INVALID);
    }
    munmap(at, 2 * page);
}

/* ---- PTX ---- */

static void ptx_says_what_its_directives_say(void **state)
{
    (void)state;
    for (int known = 0; known <= 1; known++) {
        assert_int_equal(read_as(ptx, known ? sizeof ptx - 1 : SIZE_MAX, 9, 0), RVLI_IMAGE_OK);
        assert_int_equal(image.entry_count, 2);
        assert_int_equal(image.version, 90);
        check_entry("work", RVLI_REGISTERS_ASSUMED, 2048 + 32, 0, 128);
        check_entry("add", RVLI_REGISTERS_ASSUMED, 0, 0, 0);
        assert_int_equal(arguments_of("work"), 8);
        assert_int_equal(arguments_of("add"), 32); /* at 0, 8, 16 and 24 */
        const rvli_kernel_entry *add = rvli_image_entry(&image, "add");
        assert_int_equal(add->required[0], 32);
        assert_int_equal(add->required[2], 1);
        assert_int_equal(add->constant_bytes, 4);
        assert_int_equal(add->ptx_version, 90);
        assert_int_equal(image.variable_count, 3);
        check_variable("seen", 4, NULL);
        assert_true(rvli_image_variable(&image, "seen")->unread);
        check_variable("zeroes", 160, NULL);
        assert_false(rvli_image_variable(&image, "zeroes")->unread);
        check_variable("table", 4, NULL);
        assert_null(rvli_image_variable(&image, "elsewhere"));
        rvli_image_free(&image);
    }
}

#define HEAD ".version 8.0\n.target sm_80\n"

static void broken_ptx_is_refused(void **state)
{
    static const struct {
        const char *text;
        rvli_image_error error;
    } of[] = {
        {"", RVLI_IMAGE_INVALID},
        {"words", RVLI_IMAGE_INVALID},
        {"\n\n", RVLI_IMAGE_INVALID},
        {".target sm_80\n", RVLI_IMAGE_INVALID},
        {".version\n", RVLI_IMAGE_BAD_PTX},
        {".version 8\n.target sm_80", RVLI_IMAGE_BAD_PTX},
        {".version x.y\n.target sm_80", RVLI_IMAGE_BAD_PTX},
        {".version 9.1\n.target sm_80", RVLI_IMAGE_NEW_PTX},
        {".version 99999999999999999999.0\n.target sm_80", RVLI_IMAGE_NEW_PTX},
        {".version 8.0\n.target sm_100", RVLI_IMAGE_BAD_PTX},
        {".version 8.0\n.target debug", RVLI_IMAGE_BAD_PTX},
        {".version 8.0\n", RVLI_IMAGE_BAD_PTX},
        {HEAD ".entry", RVLI_IMAGE_BAD_PTX},
        {HEAD ".entry ()", RVLI_IMAGE_BAD_PTX},
        {HEAD ".entry f() {", RVLI_IMAGE_BAD_PTX},
        {HEAD ".entry f() { } }", RVLI_IMAGE_BAD_PTX},
        {HEAD ".entry f()\n.maxntid x\n{ }", RVLI_IMAGE_BAD_PTX},
        {HEAD ".entry f()\n.reqntid 1, 1, 1, 1\n{ }", RVLI_IMAGE_BAD_PTX},
        {HEAD ".global", RVLI_IMAGE_BAD_PTX},
        {HEAD ".global .align", RVLI_IMAGE_BAD_PTX},
        {HEAD ".global .u32 x[4", RVLI_IMAGE_BAD_PTX},
        {HEAD ".global x;", RVLI_IMAGE_BAD_PTX},
        {HEAD ".global .u64 x[9999999999999999999];", RVLI_IMAGE_BAD_PTX},
        {HEAD ".entry f() { .shared .b8 x[4294967296]; }", RVLI_IMAGE_BAD_PTX},
        {HEAD ".entry f() { .shared .b8 x[4294967295]; .shared .b8 y[1]; }", RVLI_IMAGE_BAD_PTX},
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        check_refused(read_exactly(of[i].text, strlen(of[i].text)), of[i].error);
        check_refused(read_as(of[i].text, SIZE_MAX, 9, 0), of[i].error);
    }
}

static void ptx_with_any_byte_changed_or_cut_is_read_inside(void **state)
{
    (void)state;
    check_changes((const unsigned char *)ptx, sizeof ptx - 1, sizeof ptx - 1);
    for (size_t length = 0; length < sizeof ptx - 1; length++)
        if (read_exactly(ptx, length) == RVLI_IMAGE_OK)
            rvli_image_free(&image);
}

/* ---- Fat binaries ---- */

#define PART_BYTES 64
#define PTX_PART 1
#define CUBIN_PART 2
#define BY_SOME 0x1000u /* an unknown method */
#define BY_LZ4 0x2000u
#define BY_ZSTD 0x8000u

static size_t put_part(unsigned char *to, unsigned kind, unsigned version, const void *body,
                       size_t bytes, unsigned flags)
{
    const uint16_t kinds[2] = {(uint16_t)kind, 0x0101};
    const uint32_t header_bytes = PART_BYTES;
    const uint64_t size = bytes, flags_wide = flags;
    memset(to, 0, PART_BYTES);
    memcpy(to, kinds, sizeof kinds);
    memcpy(to + 4, &header_bytes, 4);
    memcpy(to + 8, &size, 8);
    memcpy(to + 28, &version, 4);
    memcpy(to + 40, &flags_wide, 8);
    memcpy(to + PART_BYTES, body, bytes);
    return PART_BYTES + bytes;
}

/* Puts the header before parts that end at a place. Returns the total size. */
static size_t put_fat(unsigned char *to, size_t parts_bytes)
{
    const uint32_t magic = 0xba55ed50u;
    const uint16_t version[2] = {1, 16};
    const uint64_t size = parts_bytes;
    memcpy(to, &magic, 4);
    memcpy(to + 4, version, 4);
    memcpy(to + 8, &size, 8);
    return 16 + parts_bytes;
}

/* Machine code for 8.0 and 9.0, and text for 9.0, in this order. */
static size_t make_fat(unsigned char *fat)
{
    unsigned char bytes[CUBIN_BYTES_MOST];
    const cubin_kernel older[] = {{"older", 40, 0, 0, {0}}};
    const cubin_shape of = {.version = 80, .kernels = older, .kernel_count = 1};
    size_t length = put_part(fat + 16, CUBIN_PART, 80, bytes, cubin_write(&of, bytes), 0);
    length += put_part(fat + 16 + length, PTX_PART, 90, ptx, sizeof ptx, 0);
    length += put_part(fat + 16 + length, CUBIN_PART, 90, bytes, cubin_write(&shape, bytes), 0);
    return put_fat(fat, length);
}

static void a_fat_binary_gives_what_fits(void **state)
{
    unsigned char fat[4 * CUBIN_BYTES_MOST];
    size_t size = make_fat(fat);
    const struct {
        uint32_t magic, version;
        const void *fat;
        const void *unused;
    } wrapper = {0x466243b1u, 1, fat, NULL};
    (void)state;
    assert_int_equal(read_as(fat, size, 9, 0), RVLI_IMAGE_OK);
    check_entry("work", 168, 2048, 0, 512);
    rvli_image_free(&image);
    assert_int_equal(read_as(&wrapper, SIZE_MAX, 8, 6), RVLI_IMAGE_OK);
    check_entry("older", 40, 0, 0, 0);
    rvli_image_free(&image);
    assert_int_equal(read_as(fat, SIZE_MAX, 12, 0), RVLI_IMAGE_OK); /* from the text */
    check_entry("work", RVLI_REGISTERS_ASSUMED, 2080, 0, 128);
    rvli_image_free(&image);
    check_refused(read_as(fat, size, 7, 5), RVLI_IMAGE_OTHER_CARD);
    check_refused(read_as(&wrapper, sizeof wrapper, 9, 0), RVLI_IMAGE_INVALID); /* as in a file */
    for (size_t length = 0; length < size; length++)
        check_refused(read_exactly(fat, length), RVLI_IMAGE_INVALID);
    check_changes(fat, size, 16 + PART_BYTES);
}

static void what_is_compressed_is_sealed(void **state)
{
    unsigned char fat[CUBIN_BYTES_MOST];
    (void)state;
    size_t size = put_fat(fat, put_part(fat + 16, CUBIN_PART, 90, "packed", 6, BY_SOME));
    assert_int_equal(read_as(fat, size, 9, 0), RVLI_IMAGE_OK);
    assert_true(image.sealed);
    assert_int_equal(image.entry_count, 0);
    rvli_image_free(&image);
}

/* Compressed as by nvcc of CUDA 12 or 13: code for 9.0 that calls assert(). */
static size_t make_compressed(unsigned char *fat, uint32_t way, uint64_t expanded_bytes_less)
{
    unsigned char bytes[CUBIN_BYTES_MOST], packed[2 * CUBIN_BYTES_MOST];
    const cubin_kernel big[] = {{"big", 40, 0, 0, {0}}, {"small", 16, 0, 0, {0}}};
    const cubin_shape of = {.version = 90,
                            .kernels = big,
                            .kernel_count = 2,
                            .code_bytes = 3 << 20,
                            .calls = "__assertfail",
                            .variables = true};
    uint64_t expanded_bytes = cubin_write(&of, bytes);
    size_t length = way == BY_LZ4
                        ? (size_t)LZ4_compress_default((const char *)bytes, (char *)packed,
                                                       (int)expanded_bytes, (int)sizeof packed)
                        : ZSTD_compress(packed, sizeof packed, bytes, expanded_bytes, 3);
    const uint32_t compressed_bytes = (uint32_t)length;
    assert_in_range(length, 1, sizeof packed);
    expanded_bytes -= expanded_bytes_less;
    size_t part = put_part(fat + 16, CUBIN_PART, 90, packed, length, way);
    memcpy(fat + 16 + 16, &compressed_bytes, sizeof compressed_bytes);
    memcpy(fat + 16 + 56, &expanded_bytes, sizeof expanded_bytes);
    return put_fat(fat, part);
}

static void check_compressed(uint32_t way)
{
    unsigned char fat[2 * CUBIN_BYTES_MOST];
    size_t size = make_compressed(fat, way, 0);
    assert_int_equal(read_as(fat, size, 9, 0), RVLI_IMAGE_OK);
    assert_false(image.sealed);
    check_entry("big", 40, 0, 0, 0);
    assert_int_equal(rvli_image_entry(&image, "big")->code_bytes, 3 << 20);
    assert_int_equal(rvli_image_entry(&image, "small")->code_bytes, 32);
    assert_true(image.asserts);
    rvli_image_free(&image);
    check_changes(fat, size, size);
    size = make_compressed(fat, way, 1);
    check_refused(read_as(fat, size, 9, 0), RVLI_IMAGE_INVALID);
}

static void what_is_compressed_is_read(void **state)
{
    (void)state;
    check_compressed(BY_LZ4);
    check_compressed(BY_ZSTD);
}

static void code_that_asserts_says_so(void **state)
{
    unsigned char bytes[CUBIN_BYTES_MOST];
    cubin_shape of = shape;
    (void)state;
    assert_int_equal(read_as(bytes, cubin_write(&of, bytes), 9, 0), RVLI_IMAGE_OK);
    assert_false(image.asserts);
    rvli_image_free(&image);
    of.calls = "sinf";
    assert_int_equal(read_as(bytes, cubin_write(&of, bytes), 9, 0), RVLI_IMAGE_OK);
    assert_false(image.asserts);
    rvli_image_free(&image);
    of.calls = "__assertfail";
    assert_int_equal(read_as(bytes, cubin_write(&of, bytes), 9, 0), RVLI_IMAGE_OK);
    assert_true(image.asserts);
    rvli_image_free(&image);
}

/* ---- No host memory ---- */

static void without_host_memory_nothing_is_read(void **state)
{
    unsigned char bytes[CUBIN_BYTES_MOST];
    unsigned char fat[2 * CUBIN_BYTES_MOST];
    size_t size = cubin_write(&shape, bytes), fat_bytes = make_compressed(fat, BY_ZSTD, 0);
    (void)state;
    for (int form = 0; form <= 2; form++) {
        const void *of = form == 0 ? (const void *)bytes : form == 1 ? (const void *)ptx : fat;
        size_t of_bytes = form == 0 ? size : form == 1 ? sizeof ptx - 1 : fat_bytes;
        bool refused = true;
        size_t failed = 0;
        for (uint64_t nth = 1; refused; nth++) {
            short_memory_refuse_nth(nth);
            rvli_image_error error = read_as(of, of_bytes, 9, 0);
            refused = short_memory_has_refused();
            short_memory_refuse_nth(0);
            failed += refused;
            if (refused)
                check_refused(error, RVLI_IMAGE_OUT_OF_HOST);
            else
                assert_int_equal(error, RVLI_IMAGE_OK);
        }
        assert_true(failed >= 8);
        rvli_image_free(&image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cubin_says_what_its_kernels_need),
        cmocka_unit_test(a_cubin_is_for_its_card),
        cmocka_unit_test(a_cubin_may_have_no_kernel),
        cmocka_unit_test(a_cubin_that_is_cut_is_refused),
        cmocka_unit_test(a_cubin_with_any_byte_changed_is_read_inside),
        cmocka_unit_test(a_cubin_that_ends_nowhere_is_refused),
        cmocka_unit_test(ptx_says_what_its_directives_say),
        cmocka_unit_test(broken_ptx_is_refused),
        cmocka_unit_test(ptx_with_any_byte_changed_or_cut_is_read_inside),
        cmocka_unit_test(a_fat_binary_gives_what_fits),
        cmocka_unit_test(what_is_compressed_is_sealed),
        cmocka_unit_test(what_is_compressed_is_read),
        cmocka_unit_test(code_that_asserts_says_so),
        cmocka_unit_test(without_host_memory_nothing_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
